"""The `avc` back end: libx264 and the AVC decoder of the ffmpeg in imageio-ffmpeg.

Constant QP means that every slice header and every macroblock has the QP of the settings. x264 has no low-delay B
pictures: `ldb` is coded with P pictures. It always codes with one thread, because its decisions depend on the number.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codecnn.base.errors import ConfigError, EncoderError
from codecnn.base.files import sha256_file, write_text
from codecnn.codec.avc_headers import AvcStream, avc_info, read_avc
from codecnn.codec.base import CodecSettings, CodedPicture, CodedSequence, coded_format
from codecnn.codec.checks import check_params, check_preset, check_program_source, measured_picture, verify_slice_qp
from codecnn.codec.encoders.padding import MULTIPLE_OF_CHROMA, code_padded, padded_size
from codecnn.codec.ffmpeg import decode_stream, encoder_input, join_params, library_identity
from codecnn.pictures.files import VideoFormat, convert, ffmpeg_path, open_raw, require_encoder, run

_PRESETS = "ultrafast superfast veryfast faster fast medium slow slower veryslow placebo"
PRESETS = tuple(_PRESETS.split())

MAX_QP = 51
"""Largest QP_Y of AVC (H.264 clause 7.4.3)."""

CONSTANT_QP = dict.fromkeys(("ipratio", "pbratio"), "1") | dict.fromkeys(("aq-mode", "mbtree", "scenecut", "psy"), "0")
"""Parameters that switch off QP offsets by slice type, QP adaptation, scene cuts and psycho-visual decisions."""

CONFIGURATION_PARAMS = {
    "ai": {"keyint": "1"},
    "ra": {"keyint": "32", "bframes": "7", "b-adapt": "0", "b-pyramid": "normal"},
    "ldb": {"keyint": "infinite", "bframes": "0"},
}

NO_LOOP_FILTERS = {"no-deblock": "1"}

RECONSTRUCTION = "x264.yuv"
"""File into which x264 writes its reconstruction."""

_PICTURE = re.compile(r"frame=\s*\d+ QP=(\S+) NAL=\d Slice:\w Poc:(-?\d+) ")


def x264_params(settings: CodecSettings) -> dict[str, str]:
    """Return the parameters of x264 for `settings`; a pure function.

    Raises:
        ConfigError: AVC or x264 does not have these settings.
    """
    check_preset("libx264", settings.preset, PRESETS)
    if settings.qp > MAX_QP or (settings.qp == 0 and settings.internal_bit_depth == 8):
        lowest = 1 if settings.internal_bit_depth == 8 else 0
        raise ConfigError(
            f"QP {settings.qp} is out of range for AVC of {settings.internal_bit_depth} bit in x264: {lowest} to "
            f"{MAX_QP}{' (x264 codes QP 0 without loss)' if lowest else ''}"
        )
    # x264 counts from the lowest QP of the bit depth, which is -12 at 10 bit.
    qp = settings.qp + 6 * (settings.internal_bit_depth - 8)
    params = {"qp": str(qp), **CONFIGURATION_PARAMS[settings.configuration], **CONSTANT_QP}
    if not settings.loop_filters:
        params |= NO_LOOP_FILTERS
    params |= settings.params
    return check_params(params, names="[A-Za-z0-9-]+") | {"threads": "1"}


def x264_encode_argv(
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
        ConfigError: AVC or x264 does not have these settings.
        FormatError: Width or height is odd, and so does not have whole chroma samples.
    """
    check_program_source(source_format, settings)
    argv = encoder_input(ffmpeg, source, source_format, settings, "debug")
    params = join_params(x264_params(settings) | {"dump-yuv": RECONSTRUCTION})
    argv += ["-c:v", "libx264", "-preset", settings.preset, "-x264-params", params]
    # The SEI message with x264's options names the number of threads.
    return [*argv, "-bsf:v", "filter_units=remove_types=6", "-f", "h264", output]


def parse_log(text: str, bit_depth: int) -> list[float]:
    """Return the mean QP of the macroblocks of every picture in coding order, from x264's messages."""
    return [float(qp) - 6 * (bit_depth - 8) for qp, _ in _PICTURE.findall(text)]


def verify_avc_stream(stream: AvcStream, mean_qps: Sequence[float], settings: CodecSettings, name: str) -> None:
    """Check that slice headers and x264's messages show one QP for each picture.

    Raises:
        EncoderError: A picture has slices or macroblocks of different QPs, or lossless blocks; or the message lists
            other pictures.
    """
    if len(mean_qps) != len(stream.pictures):
        raise EncoderError(f"{name}: x264 states {len(mean_qps)} pictures and its bitstream has {len(stream.pictures)}")
    for number, (picture, mean_qp) in enumerate(zip(stream.pictures, mean_qps, strict=True)):
        if set(picture.qps) != {mean_qp}:
            raise EncoderError(
                f"{name}, picture {number} in coding order, has slices of QP {', '.join(map(str, picture.qps))} and "
                f"macroblocks of mean QP {mean_qp:.2f}"
            )
    if stream.sps.get("qpprime_y_zero_transform_bypass_flag"):
        raise EncoderError(f"{name} has lossless macroblocks")
    matrices = (stream.sps.get("seq_scaling_matrix_present_flag"), stream.pps.get("pic_scaling_matrix_present_flag"))
    if any(matrices):
        raise EncoderError(f"{name} has scaling matrices, by which the quantiser varies")


def log_text(encoder: str, preset: str, params: dict[str, str], pictures: Sequence[CodedPicture]) -> str:
    """Return the content of log.txt, which is the same in every run: encoder, parameters and the pictures."""
    lines = [f"encoder: {encoder}", f"preset: {preset}", f"x264-params: {join_params(params)}"]
    lines.append("POC type QP bits PSNR_Y")
    for picture in pictures:
        lines.append(f"{picture.poc} {picture.slice_type} {picture.qp} {picture.bits} {picture.psnr_y:.4f}")
    return "\n".join(lines) + "\n"


class AvcCodec:
    """AVC coded by libx264; see `codecnn.codec.Codec` for the contract."""

    name = "avc"

    def identity(self) -> str:
        """Return encoder and decoder, for example "libx264 165, ffmpeg n9.0.2-17-g2a571b6068-20260930"."""
        return library_identity(ffmpeg_path(), "libx264", "yuv420p", r"x264 - core (\S+)", "h264")

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code a raw YUV file into bitstream.264, decoded.yuv and log.txt.

        Pictures of odd size with subsampled chroma are padded for x264, and the decoded pictures are cropped (see
        `code_padded`). With `settings.unfiltered` the bitstream is also decoded without deblocking, into
        unfiltered.yuv.

        Args:
            source: Raw YUV file.
            source_format: Format of the source.
            settings: Settings of the encode.
            folder: Output folder.

        Raises:
            ConfigError: AVC or x264 does not have these settings.
            FormatError: The source is not raw YUV of this format.
            EncoderError: The encoder fails; the QP of a slice or macroblock is not that of the settings; or the decoded
                pictures are not the reconstruction of x264.
        """
        size = padded_size(source_format, multiple=MULTIPLE_OF_CHROMA[source_format.chroma])
        return code_padded(self._encode, source, source_format, settings, folder, size)

    def _encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Do the work of `encode` for a size that x264 takes."""
        ffmpeg = ffmpeg_path()
        require_encoder(ffmpeg, "libx264")
        name = f"{source.stem} at QP {settings.qp}"
        bitstream, decoded, log = folder / "bitstream.264", folder / "decoded.yuv", folder / "log.txt"
        output_format = coded_format(source_format, settings)
        argv = x264_encode_argv(ffmpeg, f"file:{source.resolve()}", source_format, settings, bitstream.name)
        folder.mkdir(parents=True, exist_ok=True)
        reconstruction = folder / RECONSTRUCTION
        try:
            done = run(argv, what=f"coding {name}", cwd=folder)
            ignored = re.search(r"Error parsing option '(\S+) = (.*?)'", done.stderr)
            if ignored:
                raise ConfigError(f"libx264 does not take the parameter {ignored[1]}={ignored[2]}")
            stream = read_avc(bitstream, name)
            verify_avc_stream(stream, parse_log(done.stderr, output_format.bit_depth), settings, name)
            _decode(ffmpeg, bitstream, decoded, output_format)
            if sha256_file(reconstruction) != sha256_file(decoded):
                raise EncoderError(f"{name} decodes to other pictures than x264's reconstruction")
        finally:
            reconstruction.unlink(missing_ok=True)
        pictures = _measured(stream, source, source_format, decoded, output_format, name)
        verify_slice_qp(pictures, settings, name, hierarchy=not {"ipratio", "pbratio"}.isdisjoint(settings.params))
        unfiltered = None
        if settings.unfiltered:
            # All intra predicts from unfiltered samples of the same picture, so this does not drift.
            unfiltered = folder / "unfiltered.yuv"
            _decode(ffmpeg, bitstream, unfiltered, output_format, loop_filters=False)
        write_text(log, log_text(self.identity(), settings.preset, x264_params(settings), pictures))
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=output_format,
            pictures=pictures,
            argv=tuple(x264_encode_argv("ffmpeg", source.name, source_format, settings, bitstream.name)),
            encoder=self.identity(),
            log=log,
            unfiltered=unfiltered,
            encoder_seconds=done.cpu_seconds,
        )


def _decode(
    ffmpeg: str, bitstream: Path, output: Path, video_format: VideoFormat, *, loop_filters: bool = True
) -> None:
    """Decode a stream; ffmpeg decodes grey as 4:2:0, of which the luma is extracted."""
    filters = "extractplanes=y" if video_format.chroma == "400" else None
    decode_stream(ffmpeg, bitstream, output, video_format, loop_filters=loop_filters, filters=filters)


def _measured(
    stream: AvcStream, source: Path, source_format: VideoFormat, decoded: Path, decoded_format: VideoFormat, name: str
) -> tuple[CodedPicture, ...]:
    """Return the pictures in output order with their PSNR."""
    info = avc_info(stream, name)
    coded = VideoFormat(info.width, info.height, info.chroma, info.bit_depth)
    if coded != replace(decoded_format, fps=None):
        raise EncoderError(f"{name} was coded as {coded}, not as {replace(decoded_format, fps=None)}")
    with open_raw(source, source_format) as originals, open_raw(decoded, decoded_format) as outputs:
        if not len(originals) == len(outputs) == len(stream.pictures):
            raise EncoderError(
                f"{name}: of {len(originals)} pictures {len(stream.pictures)} were coded, {len(outputs)} decoded"
            )
        types = {picture.position: picture.slice_type for picture in info.pictures}
        return tuple(
            measured_picture(
                CodedPicture(poc, types[poc], picture.qps[0], picture.bits, 0.0, None, None),
                convert(originals[poc], decoded_format.bit_depth),
                outputs[poc],
            )
            for poc, picture in enumerate(stream.output)
        )
