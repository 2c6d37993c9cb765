"""The `vvc` back end: libvvenc and the VVC decoder of the ffmpeg in imageio-ffmpeg.

Constant QP means that every I slice has the QP of the settings, which the encoder's log must confirm. The parameters
were determined with libvvenc 1.15: perceptual QP adaptation is on by default, and switching off only that one enables
another adaptation.
"""

from pathlib import Path

from codecnn.base.errors import ConfigError, EncoderError
from codecnn.base.files import write_text
from codecnn.codec.base import CodecSettings, CodedSequence, coded_format, ctc_intra_period
from codecnn.codec.checks import (
    check_ctu_size,
    check_even,
    check_params,
    check_preset,
    verify_decoded,
    verify_slice_qp,
)
from codecnn.codec.encoders.jvet_log import normalise_library_log, parse_log
from codecnn.codec.encoders.padding import code_padded, padded_size
from codecnn.codec.encoders.unfiltered import code_unfiltered
from codecnn.codec.ffmpeg import decode_stream, join_params, library_identity, raw_input
from codecnn.pictures.files import VideoFormat, ffmpeg_path, require_encoder, run

VVENC_PRESETS = ("faster", "fast", "medium", "slow", "slower")
CTU_SIZES = (32, 64, 128)

SMALLEST = 32
"""Least width and height that are coded.

ffmpeg gives libvvenc one byte per luma sample for the stream of a picture, which must also hold the headers.
"""

_LIBRARY_FAILURE = "external library"
"""Part of ffmpeg's message for a failure in libvvenc, for which a full buffer of the stream is the only known cause."""

CONSTANT_QP = {"IntraQPOffset": "0", "GOPQPA": "0", "MCTF": "0", "BIM": "0", "LookAhead": "0", "STA": "0"}
"""Parameters that switch off the intra offset and every adaptation.

These are perceptual adaptation, temporal pre-filter, importance mapping, look-ahead and adaptive slice types.
"""

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
"""Differences of VTM's configuration files from CONFIGURATION_PARAMS, except IntraQPOffset and IntraPeriod."""

NO_LOOP_FILTERS = {"EDO": "0", "LoopFilterDisable": "1", "SAO": "0", "ALF": "0", "CCALF": "0"}
"""Parameters that switch off the in-loop filters.

EDO, deblocking during decisions, must come first: while it is on, the encoder refuses LoopFilterDisable.
"""


def vvenc_params(settings: CodecSettings, source_format: VideoFormat) -> dict[str, str]:
    """Return the parameters of libvvenc for `settings`; a pure function.

    Args:
        settings: Settings of the encode.
        source_format: Format of the source.

    Returns:
        Values by the encoder's own names.

    Raises:
        ConfigError: libvvenc does not have these settings.
    """
    check_preset("libvvenc", settings.preset, VVENC_PRESETS)
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
        # With EDO the decisions depend on deblocking, so they would differ without it.
        params["EDO"] = "0"
    # Values may contain spaces, as in Frame1: "B 1 0 ...".
    checked = check_params({**params, **settings.params}, values="[A-Za-z0-9_.,+-]+( [A-Za-z0-9_.,+-]+)*")
    return checked | {"SEIDecodedPictureHash": "md5", "verbosity": "6"}


def _refuse_filter_params(settings: CodecSettings) -> None:
    """Raise ConfigError for a user parameter that would switch on a filter in the unfiltered stream as well."""
    off = {key.lower(): value for key, value in NO_LOOP_FILTERS.items()}
    for key, value in settings.params.items():
        if off.get(str(key).lower(), str(value)) != str(value):
            raise ConfigError(f"unfiltered pictures exclude the encoder parameter {key}={value}: remove it")


def encode_argv(
    ffmpeg: str, source: str, source_format: VideoFormat, settings: CodecSettings, output: str
) -> list[str]:
    """Return the ffmpeg command that codes a raw YUV file; a pure function.

    Args:
        ffmpeg: The ffmpeg program.
        source: Raw YUV file.
        source_format: Format of the source.
        settings: Settings of the encode.
        output: Bitstream to write.

    Raises:
        ConfigError: libvvenc does not have these settings or this chroma format.
        FormatError: Width or height is odd.
    """
    if source_format.chroma not in ("400", "420"):
        raise ConfigError(f"libvvenc in ffmpeg codes 4:2:0 and 4:0:0, not {source_format.chroma}")
    check_even("libvvenc", source_format)
    argv = raw_input(ffmpeg, source, source_format, "-loglevel", "verbose")
    argv += [*_to_10_bit(source_format), "-pix_fmt", "yuv420p10le", "-c:v", "libvvenc", "-preset", settings.preset]
    # ffmpeg has an option -qpa of its own, which switches perceptual adaptation on by default.
    argv += ["-qp", str(settings.qp), "-qpa", "0", "-threads", str(settings.threads)]
    return [*argv, "-vvenc-params", join_params(vvenc_params(settings, source_format)), output]


def _to_10_bit(source_format: VideoFormat) -> list[str]:
    """Return filters for grey input, which ffmpeg takes for full range and would rescale; it shifts 4:2:0 exactly."""
    if source_format.chroma != "400":
        return []
    shift = "format=gray10le,lut=y=bitand(val\\,1020)," if source_format.bit_depth == 8 else ""
    return ["-vf", f"{shift}scale=out_range=pc"]


class VvcCodec:
    """VVC coded by libvvenc; see `codecnn.codec.Codec` for the contract."""

    name = "vvc"

    def identity(self) -> str:
        """Return encoder and decoder, for example "libvvenc 1.15.0-dev, ffmpeg n9.0.2-17-g2a571b6068-20260930"."""
        return library_identity(ffmpeg_path(), "libvvenc", "yuv420p10le", r"libvvenc version: (\S+)")

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code a raw YUV file into bitstream.266, decoded.yuv and log.txt.

        Pictures of odd size or below 32 samples are padded for libvvenc, and the decoded pictures are cropped (see
        `code_padded`). With `settings.unfiltered` the source is coded without EDO, and then again without in-loop
        filters, which gives unfiltered.yuv.

        Args:
            source: Raw YUV file.
            source_format: Format of the source.
            settings: Settings of the encode.
            folder: Output folder.

        Raises:
            ConfigError: libvvenc does not have these settings.
            FormatError: The source is not raw YUV of this format.
            EncoderError: The encoder fails; a slice QP is not that of the settings; a decoded plane does not have the
                MD5 in the log; the PSNR differs from the log by more than 1e-4 dB; or the second bitstream does not
                contain the same CUs.
        """
        size = padded_size(source_format, minimum=SMALLEST)
        return code_padded(self._encode, source, source_format, settings, folder, size)

    def _encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Do the work of `encode` for a size that libvvenc takes."""
        ffmpeg = ffmpeg_path()
        require_encoder(ffmpeg, "libvvenc")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{source.stem} at QP {settings.qp}"
        bitstream, decoded, log = folder / "bitstream.266", folder / "decoded.yuv", folder / "log.txt"
        argv = encode_argv(ffmpeg, f"file:{source.resolve()}", source_format, settings, f"file:{bitstream.name}")
        try:
            done = run(argv, what=f"coding {name}", cwd=folder)
            if bitstream.stat().st_size == 0:
                # ffmpeg may stop too early if the encoder returns its first picture after the last one went in, which
                # happens sporadically with 7 to 10 pictures in all intra. Without parallel pictures it writes the same
                # stream that it should have written.
                again = [*argv[:-2], f"{argv[-2]}:MaxParallelFrames=0", argv[-1]]
                done = run(again, what=f"coding {name}", cwd=folder)
        except EncoderError as error:
            if _LIBRARY_FAILURE not in error.report:
                raise
            size = source_format.width * source_format.height
            raise EncoderError(
                f"coding {name} failed in libvvenc: ffmpeg allows {size} bytes for a picture of {source_format.width}x"
                f"{source_format.height}, which low QPs can exceed: use a higher QP or larger pictures"
            ) from error
        pictures = parse_log(done.stdout)
        verify_slice_qp(pictures, settings, name)
        output_format = coded_format(source_format, settings)
        decode_stream(ffmpeg, bitstream, decoded, output_format)
        verify_decoded(name, source, source_format, decoded, output_format, pictures)
        unfiltered = None
        if settings.unfiltered:
            unfiltered = code_unfiltered(self, source, source_format, settings, bitstream, decoded)
        write_text(log, normalise_library_log(done.stdout, done.stderr))
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
