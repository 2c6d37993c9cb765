"""Common parts of all ffmpeg commands: reading raw YUV, parameters and identity of encoder libraries, decoding."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from codecnn.codec.base import CodecSettings, coded_format
from codecnn.pictures.files import VideoFormat, decode, decoder_arguments, ffmpeg_identity, require_encoder, run


def raw_input(ffmpeg: str, source: str, source_format: VideoFormat, *log: str) -> list[str]:
    """Return the beginning of an ffmpeg command that reads a raw YUV file; a pure function.

    Args:
        ffmpeg: The ffmpeg program.
        source: Raw YUV file.
        source_format: Format of the source.
        *log: ffmpeg options that select its log output.
    """
    size = f"{source_format.width}x{source_format.height}"
    argv = [ffmpeg, "-hide_banner", "-nostdin", "-y", *log, "-f", "rawvideo"]
    argv += ["-pix_fmt", source_format.ffmpeg_pix_fmt, "-s", size, "-r", str(source_format.fps or 30), "-i", source]
    return argv


def encoder_input(
    ffmpeg: str, source: str, source_format: VideoFormat, settings: CodecSettings, loglevel: str = "info"
) -> list[str]:
    """Return the beginning of an ffmpeg command that codes a raw YUV file: its input and the format that is coded.

    Each picture is coded once, and samples of 8 bit are shifted to 10 bit.

    Args:
        ffmpeg: The ffmpeg program.
        source: Raw YUV file.
        source_format: Format of the source.
        settings: Settings of the encode.
        loglevel: Least severity of ffmpeg's messages.
    """
    argv = raw_input(ffmpeg, source, source_format, "-loglevel", loglevel, "-nostats")
    argv += ["-fps_mode", "passthrough", *shift_grey(source_format, settings.internal_bit_depth)]
    return [*argv, "-pix_fmt", coded_format(source_format, settings).ffmpeg_pix_fmt]


def shift_grey(source_format: VideoFormat, bit_depth: int) -> list[str]:
    """Return the filter that converts grey of 8 bit to 10 bit by a shift, as ffmpeg converts all other formats.

    ffmpeg repeats the upper bits in the lower ones; the mask removes them.
    """
    if source_format.chroma != "400" or source_format.bit_depth != 8 or bit_depth != 10:
        return []
    return ["-vf", "format=gray10le,lut=y=bitand(val\\,1020)"]


def join_params(params: Mapping[str, str]) -> str:
    """Return encoder parameters in the form in which ffmpeg passes them on, e.g. "keyint=1:qp=32"."""
    return ":".join(f"{key}={value}" for key, value in params.items())


@functools.cache
def library_identity(ffmpeg: str, library: str, pix_fmt: str, version: str, output: str = "null") -> str:
    """Return an encoder library and ffmpeg with their versions.

    Args:
        ffmpeg: The ffmpeg program.
        library: Name of the encoder in ffmpeg, e.g. "libvvenc".
        pix_fmt: A pixel format that the encoder accepts.
        version: Regular expression for the line that the library prints at its start; group 1 is the version.
        output: ffmpeg's name of the output format, if the library states its version in the bitstream only.

    Raises:
        ToolMissingError: This ffmpeg was built without the library.
    """
    require_encoder(ffmpeg, library)
    argv = [ffmpeg, "-hide_banner", "-nostdin", "-loglevel", "verbose", "-f", "lavfi"]
    argv += ["-i", "color=size=64x64:rate=1:duration=1", "-frames:v", "1", "-pix_fmt", pix_fmt]
    done = run([*argv, "-c:v", library, "-f", output, "-"], what=f"asking {library} for its version")
    match = re.search(version, done.stderr + done.stdout)
    return f"{library} {match[1] if match else 'of unknown version'}, {ffmpeg_identity(ffmpeg)}"


def decode_stream(
    ffmpeg: str,
    bitstream: Path,
    output: Path,
    video_format: VideoFormat,
    *,
    loop_filters: bool = True,
    crop: bool = True,
    decoder: str | None = None,
    filters: str | None = None,
    name: str | None = None,
) -> int:
    """Decode a bitstream into a raw YUV file, every picture once, in one thread, because units are coded in parallel.

    Args:
        ffmpeg: The ffmpeg program.
        bitstream: Elementary stream of VVC, HEVC, AVC or AV1.
        output: Raw YUV file to write.
        video_format: Format of the output.
        loop_filters: See `codecnn.pictures.files.decoder_arguments`.
        crop: See `codecnn.pictures.files.decoder_arguments`.
        decoder: See `codecnn.pictures.files.decoder_arguments`.
        filters: ffmpeg's filters for the decoded pictures.
        name: Name of the stream in messages; the name of the file by default.

    Returns:
        Number of pictures.

    Raises:
        EncoderError: ffmpeg fails, or the stream is damaged.
    """
    options = decoder_arguments(loop_filters=loop_filters, crop=crop, decoder=decoder, threads=1)
    pix_fmt, name = video_format.ffmpeg_pix_fmt, name or bitstream.name
    return decode(bitstream, pix_fmt, output, filters=filters, name=name, options=options, ffmpeg=ffmpeg)
