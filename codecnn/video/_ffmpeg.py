"""Any stream that ffmpeg decodes (H.266, H.265, H.264, MP4, Matroska, ...), as raw pictures in a memory map."""

import re
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from codecnn.errors import EncoderError, FormatError
from codecnn.video._formats import VideoFormat, frame_rate
from codecnn.video._video import Video, check_selection, planes_at
from codecnn.video.process import ffmpeg_path, run
from codecnn.video.raw import map_file

_PLANAR = re.compile(r"(?:yuv(?P<j>j?)a?(?P<chroma>420|422|444)p|gray)(?P<depth>9|10|12|14|16)?(?:le|be)?", re.ASCII)
_SEMIPLANAR = {
    "nv12": ("420", 8),
    "nv21": ("420", 8),
    "nv16": ("422", 8),
    "nv24": ("444", 8),
    "p010le": ("420", 10),
    "p210le": ("422", 10),
}
_STREAM_LINE = re.compile(
    r"^  Stream #0:0.*?: Video: (?P<codec>\w+)(?: \([^()\n]*\))*, (?P<pix_fmt>\w+)(?:\([^()\n]*\))?, "
    r"(?P<width>\d{1,6})x(?P<height>\d{1,6})(?P<rest>[^\n]*)",
    re.MULTILINE | re.ASCII,
)
_CHANGE_LINE = re.compile(
    r"^\[vf#\S+ @ \S+\] Reconfiguring filter graph because video parameters changed to (\w+)(?:\([^()\n]*\))?, "
    r"(\d+)x(\d+)",
    re.MULTILINE | re.ASCII,
)
_MAX_RATE = 1000


class StreamInfo(NamedTuple):
    """What ffmpeg tells of a file's first video stream: codec name, its own pixel format, and our format for it."""

    codec: str
    pix_fmt: str
    format: VideoFormat


def probe_stream(path: Path | str) -> StreamInfo:
    """Codec and geometry of the first video stream, without decoding it.

    Raises MissingFileError or FormatError when the file is absent, empty, holds no video, or pictures that are not
    planar Y'CbCr or grey of 8 to 16 bit.
    """
    path = Path(path)
    map_file(path)
    argv = [ffmpeg_path(), "-hide_banner", "-nostdin", *_input(path)]
    argv += ["-map", "0:V:0", "-c", "copy", "-frames:v", "1", "-f", "null", "-"]
    try:
        told = run(argv, what=f"reading {path}").stderr
    except EncoderError as error:
        raise FormatError(f"{path} is not a video that ffmpeg can read: {_reason(error)}") from error
    container = re.search(r"^Input #0, ([\w,]+), from", told, flags=re.MULTILINE)
    # Read from where the output is described: the file's name, which may hold lines like these, stands before that.
    stream = _STREAM_LINE.search(told, told.rfind("\nOutput #0, null"))
    if container is None or stream is None:
        raise FormatError(f"{path} has no video stream whose size and pixel format ffmpeg can tell")
    chroma, bit_depth, _ = _layout(stream["pix_fmt"], path)
    fps = _rate(container[1], stream["rest"])
    video_format = VideoFormat(int(stream["width"]), int(stream["height"]), chroma, bit_depth, fps)
    return StreamInfo(stream["codec"], stream["pix_fmt"], video_format)


def open_stream(path: Path | str, *, frames: int | None = None) -> Video:
    """Decode a stream, or its first `frames` pictures, and map the result; every coded picture comes once.

    The raw pictures lie in the folder for temporary files (TMPDIR), and are gone when the video and its pictures are.
    Raises FormatError when the file is no video or its pictures change in size or samples, EncoderError when decoding
    fails: any damage that the decoder notices counts, picture hashes of HEVC included.
    """
    path = Path(path)
    check_selection(path, frames=frames)
    info = probe_stream(path)
    _, _, pix_fmt = _layout(info.pix_fmt, path)
    limit = () if frames is None else ("-frames:v", str(frames))
    with tempfile.TemporaryDirectory(prefix="codecnn-", ignore_cleanup_errors=True) as folder:
        decoded = Path(folder) / "decoded.yuv"
        count = decode(path, pix_fmt, decoded, limit, info=info)
        # The mapping keeps the pictures readable although their file loses its name here.
        data = map_file(decoded)
    if data.size != count * info.format.picture_bytes:
        raise FormatError(f"{path} does not decode to whole pictures of {info.format}: its picture size changes")
    starts = range(0, data.size, info.format.picture_bytes)
    return Video(path, info.format, planes_at(data, starts, info.format), count)


def decode(
    path: Path,
    pix_fmt: str,
    output: Path,
    options: Sequence[str] = (),
    *,
    demuxer: str | None = None,
    info: StreamInfo | None = None,
) -> int:
    """Decode the first video stream of `path` into the raw file `output` in ffmpeg's `pix_fmt`, every picture once.

    `options` are further ffmpeg output options. Nothing is scaled or rotated. Returns the number of pictures; raises
    EncoderError on any damage, FormatError when a picture is not of the size and pixel format of `info`, if given.
    """
    forced = () if demuxer is None else ("-f", demuxer)
    argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-nostats", "-y", "-loglevel", "info", "-xerror"]
    argv += ["-err_detect", "crccheck+explode", "-noautorotate", *forced, *_input(path)]
    argv += ["-map", "0:V:0", "-fps_mode", "passthrough", "-noautoscale", *options]
    argv += ["-f", "rawvideo", "-pix_fmt", pix_fmt, "-progress", "pipe:1", _url(output)]
    try:
        done = run(argv, what=f"decoding {path}")
    except EncoderError as error:
        raise EncoderError(f"decoding {path} failed: {_reason(error)}") from error
    if info is not None:
        _check_constant(path, done.stderr, info)
    counts = re.findall(r"^frame=\s*(\d+)$", done.stdout, flags=re.MULTILINE | re.ASCII)
    if not counts:
        raise EncoderError(f"decoding {path} failed: ffmpeg did not tell how many pictures it wrote")
    return int(counts[-1])


def _check_constant(path: Path, told: str, info: StreamInfo) -> None:
    """Raise FormatError where ffmpeg tells of a change: it would convert samples, and sizes may have equal areas."""
    for pix_fmt, width, height in _CHANGE_LINE.findall(told, told.rfind("\nOutput #0, rawvideo")):
        if (pix_fmt, int(width), int(height)) != (info.pix_fmt, info.format.width, info.format.height):
            raise FormatError(
                f"{path} is a stream of {info.format} whose pictures change to {width}x{height} {pix_fmt}"
            )


def _url(path: Path) -> str:
    """A name that ffmpeg takes for a file whatever it looks like: an option, a protocol, a pattern."""
    return f"file:{path.absolute()}"


def _input(path: Path) -> tuple[str, ...]:
    return ("-protocol_whitelist", "file,pipe", "-i", _url(path))


def _layout(pix_fmt: str, path: Path) -> tuple[str, int, str]:
    """Chroma format and bit depth of ffmpeg's `pix_fmt`, and the planar little-endian form to write it in.

    Each form holds the same samples: only byte order, interleaving and alpha go.
    """
    if pix_fmt in _SEMIPLANAR:
        chroma, bit_depth = _SEMIPLANAR[pix_fmt]
    elif match := _PLANAR.fullmatch(pix_fmt):
        chroma, bit_depth = match["chroma"] or "400", int(match["depth"] or 8)
        if match["j"]:
            # Asked for plain yuv, older ffmpegs squeeze the full range of these into the limited one.
            return chroma, bit_depth, f"yuvj{chroma}p"
    else:
        raise FormatError(
            f"{path} has pictures of pixel format {pix_fmt}: only YCbCr 420, 422, 444 and grey can be read"
        )
    return chroma, bit_depth, VideoFormat(1, 1, chroma, bit_depth).ffmpeg_pix_fmt


def _rate(container: str, rest: str) -> Fraction | None:
    """Frame rate in Hz from the end of ffmpeg's stream line, None where it tells nothing sensible.

    Bare elementary streams have no time stamps: for them `fps` is ffmpeg's default of 25, and `tbr` is the rate that
    the stream's own headers tell (of fields in H.264).
    """
    bare = container in ("vvc", "hevc", "h264")
    match = re.search(r" (\d+(?:\.\d+)?) " + ("tbr" if bare else "fps"), rest, flags=re.ASCII)
    if match is None:
        return None
    rate = Fraction(match[1]) / (2 if container == "h264" else 1)
    return frame_rate(rate) if 0 < rate <= _MAX_RATE else None


def _reason(error: EncoderError) -> str:
    """The program's own words, without the head that `run` puts before them."""
    return str(error).split("): ", 1)[-1]
