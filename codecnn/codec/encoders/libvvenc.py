"""The `vvc` back end: libvvenc and the VVC decoder in the ffmpeg that imageio-ffmpeg brings.

Constant QP here means that the slice QP of every I slice is the QP asked for, and that the encoder's log says so.
The settings that this takes were measured on libvvenc 1.15 (perceptual QP adaptation is on by default, and switching
it off alone switches another one on).
"""

import re
from pathlib import Path

from codecnn.codec.base import CodecSettings, CodedSequence, coded_format, ctc_intra_period
from codecnn.codec.checks import prove_decoded, prove_slice_qp
from codecnn.codec.decode import decode_stream
from codecnn.codec.encoders.jvet import parse_log
from codecnn.codec.encoders.library import joined, library_identity, raw_input
from codecnn.codec.encoders.limits import check_ctu_size, check_even, check_params, check_preset
from codecnn.codec.encoders.unfiltered import code_unfiltered
from codecnn.errors import ConfigError, EncoderError
from codecnn.runs import write_text
from codecnn.video import VideoFormat, ffmpeg_path, require_encoder, run

PRESETS = ("faster", "fast", "medium", "slow", "slower")
CTU_SIZES = (32, 64, 128)

CONSTANT_QP = {"IntraQPOffset": "0", "GOPQPA": "0", "MCTF": "0", "BIM": "0", "LookAhead": "0", "STA": "0"}
"""No intra offset, perceptual adaptation, temporal pre-filter, importance mapping, look-ahead or slice type choice."""

CONFIGURATION_PARAMS = {
    "ai": {"IntraPeriod": "1", "DecodingRefreshType": "idr"},
    "ra": {"IntraPeriod": "32", "GOPSize": "16", "POC0IDR": "1"},
    "ldb": {"IntraPeriod": "-1", "GOPSize": "8", "PicReordering": "0", "DecodingRefreshType": "none"},
}

CTC_PARAMS = {
    "ai": {},
    "ra": {"GOPSize": "32", "DecodingRefreshType": "cra", "MCTF": "1"},
    "ldb": {"MCTF": "1", "MCTFFutureReference": "0"},
}
"""What VTM's configuration files have otherwise than CONFIGURATION_PARAMS, but for IntraQPOffset and IntraPeriod."""

NO_LOOP_FILTERS = {"EDO": "0", "LoopFilterDisable": "1", "SAO": "0", "ALF": "0", "CCALF": "0"}
"""EDO (the encoder's deblocking decision) must go first: without it the encoder refuses LoopFilterDisable."""


def vvenc_params(settings: CodecSettings, source_format: VideoFormat) -> dict[str, str]:
    """The encoder's own parameters for `settings`, in its names. Raises ConfigError on what libvvenc does not have."""
    check_preset("libvvenc", settings.preset, PRESETS)
    check_ctu_size("libvvenc", settings.ctu_size, CTU_SIZES)
    params = {**CONFIGURATION_PARAMS[settings.configuration], **CONSTANT_QP}
    if settings.ctc:
        params |= CTC_PARAMS[settings.configuration] | {"IntraQPOffset": str(settings.intra_qp - settings.qp)}
        if settings.configuration == "ra":
            params["IntraPeriod"] = str(ctc_intra_period(source_format))
    if settings.ctu_size is not None:
        params["CTUSize"] = str(settings.ctu_size)
    if settings.internal_bit_depth != 10:
        params["InternalBitDepth"] = str(settings.internal_bit_depth)
    if source_format.chroma == "400":
        params["ChromaFormatIDC"] = "400"
    if not settings.loop_filters:
        params |= NO_LOOP_FILTERS
    if settings.unfiltered:
        _refuse_filter_params(settings)
        # Else the encoder weighs its deblocking while it decides, and decides otherwise without.
        params["EDO"] = "0"
    # Spaces as in a picture of a group, Frame1: "B 1 0 ...".
    checked = check_params({**params, **settings.params}, values="[A-Za-z0-9_.,+-]+( [A-Za-z0-9_.,+-]+)*")
    return checked | {"SEIDecodedPictureHash": "md5", "verbosity": "6"}


def _refuse_filter_params(settings: CodecSettings) -> None:
    """The user's parameters win, so one that switches a filter on would do that in the unfiltered stream as well."""
    off = {key.lower(): value for key, value in NO_LOOP_FILTERS.items()}
    for key, value in settings.params.items():
        if off.get(str(key).lower(), str(value)) != str(value):
            raise ConfigError(f"unfiltered pictures cannot be had with the encoder parameter {key}={value}")


def encode_argv(
    ffmpeg: str, source: str, source_format: VideoFormat, settings: CodecSettings, output: str
) -> list[str]:
    """The command that codes the raw YUV file `source` into `output`; a pure function of its arguments."""
    if source_format.chroma not in ("400", "420"):
        raise ConfigError(f"libvvenc in ffmpeg codes 4:2:0 and 4:0:0, not {source_format.chroma}")
    check_even("libvvenc", source_format)
    argv = raw_input(ffmpeg, source, source_format, "-loglevel", "verbose")
    argv += [*_to_10_bit(source_format), "-pix_fmt", "yuv420p10le", "-c:v", "libvvenc", "-preset", settings.preset]
    # qpa here as well: ffmpeg sets the encoder's perceptual adaptation by its own option, on by default.
    argv += ["-qp", str(settings.qp), "-qpa", "0", "-threads", str(settings.threads)]
    return [*argv, "-vvenc-params", joined(vvenc_params(settings, source_format)), output]


def _to_10_bit(source_format: VideoFormat) -> list[str]:
    """Filters that keep ffmpeg from rescaling grey samples, which it takes for full range; 4:2:0 it shifts exactly."""
    if source_format.chroma != "400":
        return []
    shift = "format=gray10le,lut=y=bitand(val\\,1020)," if source_format.bit_depth == 8 else ""
    return ["-vf", f"{shift}scale=out_range=pc"]


def normalised_log(stdout: str, stderr: str) -> str:
    """The encoder's configuration and picture lines without times, addresses and thread counts."""
    details = [line for line in stderr.splitlines() if re.search(r"vvenc \[\w+\]:|libvvenc version", line)]
    details = [re.sub(r"^\[libvvenc @ \w+\] ", "", line) for line in details]
    details = [line.rstrip() for line in details if not re.search(r"Threads|PARALLEL PROCESSING", line)]
    pictures = [re.sub(r"\[ET\s+\d+ \] ", "", line) for line in stdout.splitlines() if line.startswith("POC")]
    return "\n".join([*details, *pictures]) + "\n"


class VvcCodec:
    """VVC by libvvenc; see `codecnn.codec.base.Codec` for the contract."""

    name = "vvc"

    def identity(self) -> str:
        """For example "libvvenc 1.15.0-dev, ffmpeg n9.0.2-17-g2a571b6068-20260930"."""
        return library_identity(ffmpeg_path(), "libvvenc", "yuv420p10le", r"libvvenc version: (\S+)")

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code `source` into `folder`: bitstream.266, decoded.yuv, log.txt. The log must prove QP, samples and PSNR.

        With `settings.unfiltered` it codes without EDO and then a second time without loop filters: unfiltered.yuv.
        Raises EncoderError when a slice QP is not the one asked for, when the decoded planes do not have the MD5 that
        the encoder states, when our PSNR differs from the encoder's by more than 1e-4 dB, or when the second stream
        does not hold the same CUs.
        """
        ffmpeg = ffmpeg_path()
        require_encoder(ffmpeg, "libvvenc")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{source.stem} at QP {settings.qp}"
        bitstream, decoded, log = folder / "bitstream.266", folder / "decoded.yuv", folder / "log.txt"
        argv = encode_argv(ffmpeg, f"file:{source.resolve()}", source_format, settings, f"file:{bitstream.name}")
        try:
            done = run(argv, what=f"coding {name}", cwd=folder)
            if bitstream.stat().st_size == 0:
                # ffmpeg may take the encoder for done where the first picture comes after the last one went in: in all
                # intra of 7 to 10 pictures, now and then. Kept from working on several it makes the same stream.
                again = [*argv[:-2], f"{argv[-2]}:MaxParallelFrames=0", argv[-1]]
                done = run(again, what=f"coding {name}", cwd=folder)
        except EncoderError as error:
            if "external library" not in str(error):
                raise
            size = source_format.width * source_format.height
            raise EncoderError(
                f"coding {name} failed in libvvenc: ffmpeg gives it {size} bytes a picture, which very low QPs exceed"
            ) from error
        pictures = parse_log(done.stdout)
        prove_slice_qp(pictures, settings, name)
        output_format = coded_format(source_format, settings)
        decode_stream(ffmpeg, bitstream, decoded, output_format)
        prove_decoded(name, source, source_format, decoded, output_format, pictures)
        unfiltered = None
        if settings.unfiltered:
            unfiltered = code_unfiltered(self, source, source_format, settings, bitstream, decoded)
        write_text(log, normalised_log(done.stdout, done.stderr))
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=output_format,
            pictures=pictures,
            argv=tuple(encode_argv("ffmpeg", source.name, source_format, settings, bitstream.name)),
            encoder=self.identity(),
            log=log,
            unfiltered=unfiltered,
            encoder_seconds=done.cpu_seconds,
        )
