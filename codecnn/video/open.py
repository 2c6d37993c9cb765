"""Open a video of any kind by its file name."""

import os
from fractions import Fraction
from pathlib import Path

from codecnn.errors import ConfigError, FormatError
from codecnn.video._ffmpeg import open_stream
from codecnn.video._formats import VideoFormat, frame_rate, parse_name, parse_size
from codecnn.video._packing import open_packed
from codecnn.video._stills import STILL_SUFFIXES, Change, open_still, open_still_folder
from codecnn.video._video import Video, check_selection
from codecnn.video._y4m import open_y4m

RAW_SUFFIXES = frozenset((".yuv", ".raw"))


def open_video(
    path: Path | str,
    *,
    size: tuple[int, int] | str | None = None,
    bit_depth: int | None = None,
    chroma: str | None = None,
    fps: Fraction | float | str | None = None,
    start: int = 0,
    frames: int | None = None,
    step: int = 1,
    packing: str | None = None,
    matrix: str = "bt709",
    full_range: bool = False,
    change: Change | None = None,
) -> Video:
    """Open raw YUV (.yuv, .raw), Y4M, a still picture or a folder of them, or whatever else ffmpeg decodes.

    The extension tells which. The video has a length, and its pictures by index and in turn, each with planes y, u, v
    of (h, w) samples; `format` is the geometry of all. `size` is (width, height) or "WxH" in luma samples.

    `start` pictures are skipped, of the rest every `step`-th is taken, and `frames` of these at most (`step` 8 and all
    intra is the JVET habit). `fps` is the rate of the file, in Hz, and beats what it tells itself; the video's own rate
    is the `step`-th part of it.

    For raw files the options beat the file's name (see `guess_format`), and `packing` is planar or a semi-planar form
    such as p010 (see `PACKINGS`), whose pictures come as planar samples aligned to the least significant bit. For
    stills `chroma`, `bit_depth` (10), `matrix`, `full_range` and `change` say what to convert to (see `read_still`;
    folders: `open_still_folder`). Anything else tells its geometry itself.

    Raises MissingFileError, FormatError when the file is damaged or an option contradicts what it tells of itself, and
    ConfigError for an option that cannot be used with it.
    """
    path = Path(path)
    check_selection(path, start=start, frames=frames, step=step)
    rate = None if fps is None else frame_rate(fps)
    suffix = path.suffix.lower()
    is_folder = os.path.isdir(path)  # noqa: PTH112 - unlike Path.is_dir it takes names that are too long
    is_still = is_folder or suffix in STILL_SUFFIXES
    is_raw = suffix in RAW_SUFFIXES and not is_folder
    if packing is not None and not is_raw:
        raise ConfigError(f"{path} is not raw YUV: it cannot be opened with packing {packing}")
    if (matrix, full_range, change) != ("bt709", False, None) and not is_still:
        raise ConfigError(f"{path} holds YCbCr already: matrix, full range and change are for still pictures")
    if is_raw:
        video = open_packed(path, packing=packing, size=size, bit_depth=bit_depth, chroma=chroma, fps=fps)
        return video.select(start=start, frames=frames, step=step)
    if is_still:
        depth = 10 if bit_depth is None else bit_depth
        open_stills = open_still_folder if is_folder else open_still
        video = open_stills(path, chroma=chroma, bit_depth=depth, matrix=matrix, full_range=full_range, change=change)
    elif suffix == ".y4m":
        video = open_y4m(path)
    else:
        # Nothing beyond the last picture taken is decoded.
        video = open_stream(path, frames=None if frames is None else start + (frames - 1) * step + 1)
    _check(path, video.format, size, bit_depth, chroma)
    return video.select(start=start, frames=frames, step=step, fps=rate)


def open_like(path: Path | str, form: VideoFormat) -> Video:
    """A file beside pictures of the format `form`; where it is raw and its name is silent, of their geometry.

    Raises as `open_video`.
    """
    path = Path(path)
    if path.suffix.lower() not in RAW_SUFFIXES:
        return open_video(path)
    named = parse_name(path)
    return open_video(
        path,
        size=None if named.width else (form.width, form.height),
        bit_depth=named.bit_depth or form.bit_depth,
        chroma=named.chroma or form.chroma,
    )


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
