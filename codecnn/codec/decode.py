"""Decode a bitstream with ffmpeg."""

from pathlib import Path

from codecnn.video import VideoFormat, run


def decode_stream(
    ffmpeg: str,
    bitstream: Path,
    output: Path,
    video_format: VideoFormat,
    *,
    loop_filters: bool = True,
    crop: bool = True,
) -> None:
    """Decode `bitstream` into the raw YUV file `output` in the samples of `video_format`, every picture once.

    `loop_filters` False leaves them out, which ffmpeg can for HEVC but not for VVC. `crop` False gives pictures in the
    size that they are coded in.
    """
    # Without these checks ffmpeg repairs a damaged stream as well as it can and says nothing. A picture without its
    # filters does not have the hash that the stream may state.
    options = ["-err_detect", "crccheck+explode"] if loop_filters else ["-skip_loop_filter", "all"]
    if not crop:
        options += ["-flags2", "ignorecrop"]
    # One thread: units are coded side by side, and more would only get in each other's way.
    argv = [ffmpeg, "-hide_banner", "-nostdin", "-y", "-loglevel", "error", "-threads", "1", "-xerror", *options]
    argv += ["-i", f"file:{bitstream.resolve()}", "-fps_mode", "passthrough", "-f", "rawvideo"]
    argv += ["-pix_fmt", video_format.ffmpeg_pix_fmt, f"file:{output.resolve()}"]
    run(argv, what=f"decoding {bitstream.name}")
