"""Y4M (YUV4MPEG2) files: header tags, and reading.

Tags are those of the yuv4mpeg(5) manual of mjpegtools, with the additional `C` values for higher bit depths that
ffmpeg, libvvenc and x265 write.
"""

import dataclasses
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from codecnn.base.errors import FormatError
from codecnn.pictures.files.formats import VideoFormat, frame_rate
from codecnn.pictures.files.pictures import Video, VideoTags
from codecnn.pictures.files.raw import FileBytes

MAGIC = b"YUV4MPEG2"
FRAME = b"FRAME"
FRAME_LINE = b"FRAME\n"
"""Line before each picture that has no parameters of its own."""
_MAX_LINE = 4096
_COLOUR = re.compile(r"(420|422|444)(?:jpeg|paldv|mpeg2)?|(420|422|444)p(9|1[0-6])|mono(9|1[0-6])?", re.ASCII)


def open_y4m(path: Path | str, name: str | None = None) -> Video:
    """Open a Y4M file with the geometry of its header.

    Args:
        path: The file.
        name: Name of the file in messages; the path by default.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The header or a FRAME line is malformed, or the file ends inside a picture.
    """
    file = FileBytes(Path(path))
    path = Path(name or path)
    line = _line(file, 0)
    if line is None or not line.startswith(MAGIC):
        raise FormatError(f"{path} is not a Y4M file: it does not start with a {MAGIC.decode()} line")
    video_format, tags = parse_header(line, path)
    starts, frames = _frame_offsets(path, file, len(line) + 1, video_format.picture_bytes)
    tags = dataclasses.replace(tags, frames=frames)
    return Video(path, video_format, file.planes_at(starts, video_format), len(starts), tags)


def parse_header(line: bytes, path: Path | str) -> tuple[VideoFormat, VideoTags]:
    """Parse a Y4M header line.

    W and H are the size, F the frame rate (F0:0 is unknown), and C the sample layout, or XYSCSS where C is absent;
    without either it is 420jpeg. I and A are unknown where they are absent.

    Args:
        line: The header line without its newline; it may end in a carriage return.
        path: The file, for error messages.

    Returns:
        Geometry and other properties.

    Raises:
        FormatError: A tag is missing or cannot be used.
    """
    try:
        tags = line.decode("ascii").rstrip("\r").split(" ")[1:]
    except UnicodeDecodeError:
        raise FormatError(f"{path}: the Y4M header is not ASCII text") from None
    values = {tag[0]: tag[1:] for tag in tags if tag}
    sizes = {}
    for key in "WH":
        if not re.fullmatch(r"0*[1-9]\d{0,8}", values.get(key, ""), flags=re.ASCII):
            raise FormatError(f"{path}: the Y4M header's {key} is {values.get(key)!r}, not a positive whole number")
        sizes[key] = int(values[key])
    subsampling = next((tag[7:].lower() for tag in tags if tag.startswith("XYSCSS=")), "420jpeg")
    colour = values.get("C", subsampling)
    chroma, bit_depth = _parse_colour(colour, path)
    video_format = VideoFormat(sizes["W"], sizes["H"], chroma, bit_depth, _parse_rate(values.get("F"), path))
    video_tags = VideoTags(
        interlacing=values.get("I") or "?",
        aspect=values.get("A") or "0:0",
        colour=colour,
        rate=values.get("F") or None,
        comments=tuple(tag[1:] for tag in tags if tag.startswith("X")),
    )
    return video_format, video_tags


def _parse_colour(text: str, path: Path | str) -> tuple[str, int]:
    match = _COLOUR.fullmatch(text)
    if match is None:
        raise FormatError(
            f"{path} has the Y4M colour space C{ascii(text[:40])[1:-1]}, but only 420, 422, 444 and mono of 8 to 16 "
            "bit are read: convert it, e.g. with ffmpeg -i IN.y4m -pix_fmt yuv420p OUT.y4m"
        )
    if text.startswith("mono"):
        return "400", int(match[4] or 8)
    return match[1] or match[2], int(match[3] or 8)


def _parse_rate(text: str | None, path: Path | str) -> Fraction | None:
    if text is None or text == "0:0":
        return None
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text, flags=re.ASCII)
    if match is None or int(match[1]) == 0 or int(match[2]) == 0:
        raise FormatError(f"{path}: the Y4M header's frame rate F{text[:40]} is not a positive ratio such as F50:1")
    return frame_rate(Fraction(int(match[1]), int(match[2])))


def format_header(video_format: VideoFormat, tags: VideoTags | None = None) -> bytes:
    """Return the Y4M header line of a format, newline included.

    Args:
        video_format: Geometry.
        tags: Other properties. Its rate and position of chroma samples are used as far as they agree with the format.
            Without them pictures are progressive and samples square, and 420 at 8 bit is C420mpeg2: chroma samples are
            at the left, as in the JVET test sequences.
    """
    tags = tags or VideoTags()
    path = Path("header")
    same_colour = tags.colour is not None and _parse_colour(tags.colour, path) == _colour_of(video_format)
    colour = tags.colour if same_colour else _default_colour(video_format)
    rate = video_format.fps or Fraction(0)
    ratio = f"{rate.numerator}:{rate.denominator if rate else 0}"
    if tags.rate is not None and _parse_rate(tags.rate, path) == video_format.fps:
        ratio = tags.rate
    comments = [f" X{comment}" for comment in tags.comments if same_colour or not comment.startswith("YSCSS=")]
    size = f"W{video_format.width} H{video_format.height}"
    line = f"{MAGIC.decode()} {size} F{ratio} I{tags.interlacing} A{tags.aspect} C{colour}{''.join(comments)}\n"
    return line.encode()


def format_frame_line(parameters: str) -> bytes:
    """Return the line before a picture with parameters such as "Itn", newline included."""
    return b" ".join([FRAME, *([parameters.encode("latin-1")] if parameters else [])]) + b"\n"


def _colour_of(video_format: VideoFormat) -> tuple[str, int]:
    return video_format.chroma, video_format.bit_depth


def _default_colour(video_format: VideoFormat) -> str:
    deep = video_format.bit_depth > 8
    if video_format.chroma == "400":
        return f"mono{video_format.bit_depth}" if deep else "mono"
    if deep:
        return f"{video_format.chroma}p{video_format.bit_depth}"
    return {"420": "420mpeg2"}.get(video_format.chroma, video_format.chroma)


def _frame_offsets(path: Path, file: FileBytes, start: int, picture_bytes: int) -> tuple[Sequence[int], dict[int, str]]:
    """Return the byte offset of the samples of each picture, and the parameters of FRAME lines that have some.

    The first FRAME line is at offset `start`.
    """
    step = len(FRAME_LINE) + picture_bytes
    if start < file.size and (file.size - start) % step == 0:
        lines = range(start, file.size, step)
        if all(file.read(line, len(FRAME_LINE)).tobytes() == FRAME_LINE for line in lines):
            return range(start + len(FRAME_LINE), file.size, step), {}
    return _walk_frames(path, file, start, picture_bytes)


def _walk_frames(path: Path, file: FileBytes, start: int, picture_bytes: int) -> tuple[list[int], dict[int, str]]:
    """Return what `_frame_offsets` returns where FRAME lines have parameters, or carriage returns at their end."""
    offsets: list[int] = []
    parameters: dict[int, str] = {}
    while start < file.size:
        line = _line(file, start)
        whole = f"it holds {len(offsets)} whole frames"
        if line is None and FRAME.startswith(file.read(start, len(FRAME)).tobytes()):
            raise FormatError(f"{path} is cut off inside a FRAME line at byte {start}: {whole}")
        if line is None or (line.rstrip(b"\r") != FRAME and not line.startswith(FRAME + b" ")):
            raise FormatError(f"{path} has no FRAME line at byte {start}: {whole} before")
        first = start + len(line) + 1
        start = first + picture_bytes
        if start > file.size:
            keep = f", or keep the whole ones with ffmpeg -i IN.y4m -frames:v {len(offsets)} OUT.y4m" if offsets else ""
            raise FormatError(
                f"{path} is cut off: {whole} and {file.size - first} of {picture_bytes} bytes of another: write it "
                f"again{keep}"
            )
        text = line[len(FRAME) :].rstrip(b"\r").decode("latin-1").strip()
        if text:
            parameters[len(offsets)] = text
        offsets.append(first)
    if not offsets:
        raise FormatError(f"{path} has a Y4M header but no pictures")
    return offsets, parameters


def _line(file: FileBytes, start: int) -> bytes | None:
    """Return the bytes from `start` to the next newline, None if there is none within `_MAX_LINE` bytes."""
    head, newline, _ = file.read(start, _MAX_LINE).tobytes().partition(b"\n")
    return head if newline else None
