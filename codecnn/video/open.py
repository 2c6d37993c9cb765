"""Open a video of any kind by its file name."""

from fractions import Fraction
from pathlib import Path

from codecnn.errors import FormatError
from codecnn.video.ffmpeg import open_stream
from codecnn.video.formats import VideoFormat, frame_rate, guess_format, parse_size
from codecnn.video.raw import Video, map_file, open_raw
from codecnn.video.stills import STILL_SUFFIXES, open_still
from codecnn.video.y4m import open_y4m

RAW_SUFFIXES = frozenset((".yuv", ".raw"))


def open_video(
    path: Path | str,
    *,
    size: tuple[int, int] | str | None = None,
    bit_depth: int | None = None,
    chroma: str | None = None,
    fps: Fraction | float | str | None = None,
    frames: int | None = None,
) -> Video:
    """Open raw YUV (.yuv, .raw), Y4M, a still picture, or whatever else ffmpeg decodes, by the file's extension.

    The video has a length, and its pictures by index and in turn, each with planes y, u, v of (h, w) samples; `format`
    is the geometry of all. `size` is (width, height) or "WxH" in luma samples; `frames` keeps the first n pictures.
    For raw files the options beat the file's name (see `guess_format`). For stills `chroma` and `bit_depth` say what
    to convert to (see `read_still`; 10 bit). Anything else tells its geometry itself, and an option that contradicts
    it is a FormatError; `fps` beats what the file tells.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in RAW_SUFFIXES:
        map_file(path)  # a missing file is told before a missing size
        video = open_raw(path, guess_format(path, size=size, bit_depth=bit_depth, chroma=chroma, fps=fps))
        return video.select(frames=frames)
    if suffix in STILL_SUFFIXES:
        video = open_still(path, chroma=chroma, bit_depth=bit_depth)
    elif suffix == ".y4m":
        video = open_y4m(path)
    else:
        video = open_stream(path, frames=frames)
    _check(path, video.format, size, bit_depth, chroma)
    return video.select(frames=frames, fps=None if fps is None else frame_rate(fps))


def _check(
    path: Path, told: VideoFormat, size: tuple[int, int] | str | None, bit_depth: int | None, chroma: str | None
) -> None:
    """Raise FormatError where an explicit option contradicts what the file tells of itself."""
    wanted = (*(parse_size(size) if isinstance(size, str) else size or (None, None)), chroma, bit_depth)
    actual = (told.width, told.height, told.chroma, told.bit_depth)
    names = ("width", "height", "chroma format", "bit depth")
    for name, want, have in zip(names, wanted, actual, strict=True):
        if want is not None and want != have:
            raise FormatError(f"{path} has {name} {have} by its own header: it cannot be opened with {want}")
