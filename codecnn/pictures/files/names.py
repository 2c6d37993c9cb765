"""Geometry and sample layout that JVET-style file names state."""

import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from codecnn.base.errors import FormatError
from codecnn.pictures.files.formats import MAX_BIT_DEPTH, MIN_BIT_DEPTH, VideoFormat, frame_rate, parse_size
from codecnn.pictures.files.pixel_formats import PixelFormat, names_unreadable_format, parse_pixel_format


class NameFields(NamedTuple):
    """Properties of a video that its file name states; None where it does not.

    Attributes:
        width: Luma width in samples.
        height: Luma height in samples.
        chroma: Chroma format: 400, 420, 422 or 444.
        bit_depth: Bits per sample.
        fps: Frame rate in Hz.
        frames: Number of pictures.
        packing: Sample layout as `parse_pixel_format` takes it, if it is not planar, or a layout that is not read.
        bit_depths: All bit depths of a name that states several.
        chromas: All chroma formats of a name that states several.
    """

    width: int | None = None
    height: int | None = None
    chroma: str | None = None
    bit_depth: int | None = None
    fps: Fraction | None = None
    frames: int | None = None
    packing: str | None = None
    bit_depths: tuple[int, ...] = ()
    chromas: tuple[str, ...] = ()


_SIZE_ALONE = re.compile(
    r"(?<![0-9A-Za-z])([1-9]\d{0,4})x([1-9]\d{0,4})(?=[-_. )\]]|[pi](?![a-z])|x\d{1,9}(?:[-_ .]|$)|$)", re.ASCII
)
"""Size that is a token of its own, perhaps with the number of pictures."""
_THIRD_NUMBER = re.compile(r"x(\d{1,9})(?=[-_ .]|$)", re.ASCII)
"""Number of pictures directly behind the size, as in `64x48x30`."""
_CHROMA_IN_PARTS = re.compile(r"(?<![0-9A-Za-z])4[-_:. ]?(?:0[-_:. ]0|2[-_:. ][02]|4[-_:. ]4)(?![0-9A-Za-z])", re.ASCII)
"""Chroma format with separators, as in `4-2-2`."""
_UNIT_SEPARATOR = re.compile(r"(?<=\d)[-_ ](?=(?:bits?|fps|hz|frames?)(?:[-_ .]|$))", re.ASCII)
"""Separator between a number and its unit, as in `10-bit`."""
_SEPARATOR = re.compile(r"[-_ ]+|(?<!\d)\.|\.(?!\d)|\.(?=4(?:00|20|22|44)(?:[-_ .]|$)|\d{1,2}b)", re.ASCII)
"""Separator of tokens. A dot between digits is a decimal point unless a chroma format or a bit depth follows it."""
_PROGRESSIVE = r"p(?![024]1[026](?![0-9]))(?=[-_ .\d]|$)"
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,5})?)(?:fps|hz|p)", re.ASCII)
_BARE_NUMBER = re.compile(r"\d{1,6}(?:\.\d{1,5})?", re.ASCII)
_FRAMES = re.compile(r"(\d{1,9})(?:f|frm|frames?)|f(\d{1,9})", re.ASCII)
_SAMPLES = re.compile(
    r"(?:(?P<depth>\d{1,2})b(?:its?|pp|pc)?)?"
    r"(?:(?:yuv|ycbcr|p|i)?(?P<chroma>4(?:00|20|22|44))(?:p(?P<depth_after>\d{1,2})?(?:le)?)?)?",
    re.ASCII,
)
_DEPTH = re.compile(r"(\d{1,2})bits?", re.ASCII)
_RATES_WITHOUT_POINT = {"2397": "23.976", "2398": "23.976", "23976": "23.976", "2997": "29.97", "5994": "59.94"}
_MAX_PLAUSIBLE_FPS = 240
_RATE_FRACTIONS = (".94", ".97", ".976", ".98", ".88")


def parse_name(path: Path | str) -> NameFields:
    """Parse the geometry in a JVET-style file name, e.g. Tango2_3840x2160_60fps_10bit_420.yuv.

    The stem is parsed, and the extension if it is a pixel format; folders are not. Tokens are separated by `-`, `_`,
    spaces and dots. Those without a known meaning are ignored; of two frame rates or numbers of pictures the first
    counts, and those behind the size count before those in front of it. Two bit depths or chroma formats are refused by
    readers. The tokens behind the size WxH are:

    - frame rate: a bare number up to 240 directly after the size (`416x240_50`), `60fps`, `30Hz`, `80x44p15`;
    - number of pictures: `17f`, `f15`, `100frames`, `64x48x30`;
    - samples: `10bit`, `10b420`, `P420`, `yuv420p10le`, `gray`;
    - samples and their layout: `nv12`, `p010`, `yuv420p10be`, `yuyv422`, see `parse_pixel_format`.

    In front of the size, and in a name without a size, pixel formats and bit depths such as `10bit` are recognised. A
    name that states a layout which is not read, or two different ones, has it as its packing.

    Args:
        path: File name or path; the file need not exist.

    Returns:
        The fields that the name states.
    """
    stem, suffix = _divide(path)
    size = _SIZE_ALONE.search(stem)
    front, behind = (stem, "") if size is None else (stem[: size.start()], _behind(stem, size))
    tokens = _tokens(_normalised(behind), _SEPARATOR)
    parts = [_parse_token(token, after_size=place == 0) for place, token in enumerate(tokens)]
    parts += [_parse_front_token(token) for token in _tokens(front, _SEPARATOR)]
    if is_pixel_format(suffix):
        parts.append(_parse_token(suffix, after_size=False))
    return _join(size, parts)


def is_pixel_format(text: str) -> bool:
    """Return whether a text in lower case is the full name of a pixel format, be it one that is read or not."""
    return parse_pixel_format(text) is not None or names_unreadable_format(text, stated=False)


def _divide(path: Path | str) -> tuple[str, str]:
    """Return the stem of a path and its extension without the dot, in lower case."""
    path = Path(path)
    # Path takes a rate such as _59.94 at the end of a name without extension for the extension.
    if path.suffix in _RATE_FRACTIONS:
        return path.name.lower(), ""
    return path.stem.lower(), path.suffix[1:].lower()


def _behind(stem: str, size: re.Match[str]) -> str:
    """Return the part of a stem behind the size, without a `p` for progressive pictures."""
    text = stem[size.end() :]
    return text[1:] if re.match(_PROGRESSIVE, text) else text


def _normalised(text: str) -> str:
    """Write a chroma format such as 4-2-2 and a number of pictures behind the size as tokens."""
    text = _CHROMA_IN_PARTS.sub(lambda match: re.sub(r"[-_:. ]", "", match[0]), text)
    return re.sub(rf"^{_THIRD_NUMBER.pattern}", r"_f\1", text)


def _tokens(text: str, separator: re.Pattern[str]) -> list[str]:
    return [token for token in separator.split(_UNIT_SEPARATOR.sub("", text)) if token]


class _Part(NamedTuple):
    """Fields that a token states, and the layout if it is the name of one."""

    fields: dict[str, Any]
    layout: PixelFormat | str | None = None


def _join(size: re.Match[str] | None, parts: list[_Part]) -> NameFields:
    """Merge the fields of tokens; the packing is the layout if it is not planar or contradicts other fields."""
    fields: dict[str, Any] = {}
    for part in parts:
        fields = part.fields | fields
    layouts = {part.layout for part in parts if part.layout is not None}
    # A name such as yuv420p says nothing of the bit depth, which another name of the same layout may state.
    layouts = {each for each in layouts if isinstance(each, str) or each.bit_depth or not _refined(each, layouts)}
    names = sorted(each if isinstance(each, str) else each.name for each in layouts)
    if len(names) > 1:
        fields["packing"] = " and ".join(names)
    elif layouts:
        layout = layouts.pop()
        if isinstance(layout, str) or not layout.is_planar or fields != fields | _stated_by(layout):
            fields["packing"] = names[0]
    if size is not None:
        fields |= {"width": int(size[1]), "height": int(size[2])}
    for several, one in (("bit_depths", "bit_depth"), ("chromas", "chroma")):
        stated = tuple(dict.fromkeys(part.fields[one] for part in parts if one in part.fields))
        if len(stated) > 1:
            fields[several] = stated
    return NameFields(**fields)


def _refined(layout: PixelFormat, layouts: Iterable[PixelFormat | str]) -> bool:
    """Return whether one of `layouts` is `layout` with a bit depth."""
    return any(
        not isinstance(each, str) and each.bit_depth and replace(each, name=layout.name, bit_depth=None) == layout
        for each in layouts
    )


def _stated_by(layout: PixelFormat) -> dict[str, Any]:
    depth = {"bit_depth": layout.bit_depth} if layout.bit_depth else {}
    return {"chroma": layout.chroma} | depth


def _parse_token(token: str, *, after_size: bool) -> _Part:
    """Parse a lower-case token behind the size, without implausible values."""
    if after_size and _BARE_NUMBER.fullmatch(token) and (rate := _plausible_rate(token)):
        return _Part({"fps": rate})
    if (match := _RATE.fullmatch(token)) and (rate := _plausible_rate(match[1])):
        return _Part({"fps": rate})
    if match := _FRAMES.fullmatch(token):
        return _Part({"frames": int(match[1] or match[2])})
    if layout := parse_pixel_format(token):
        return _Part(_stated_by(layout), layout)
    if match := _SAMPLES.fullmatch(token):
        fields: dict[str, Any] = {"chroma": match["chroma"]} if match["chroma"] else {}
        depth = match["depth"] or match["depth_after"]
        return _Part(fields | _plausible_depth(depth))
    return _Part({}, token if names_unreadable_format(token, stated=True) else None)


def _parse_front_token(token: str) -> _Part:
    """Parse a lower-case token where titles stand: only bit depths and full names of pixel formats count."""
    if layout := parse_pixel_format(token):
        # "gray" may be a word of a title; "gray10le" is not.
        return _Part(_stated_by(layout), layout) if layout.chroma != "400" or layout.bit_depth else _Part({})
    if match := _DEPTH.fullmatch(token):
        return _Part(_plausible_depth(match[1]))
    return _Part({}, token if names_unreadable_format(token, stated=False) else None)


def _plausible_depth(text: str | None) -> dict[str, Any]:
    depth = int(text) if text else 0
    return {"bit_depth": depth} if MIN_BIT_DEPTH <= depth <= MAX_BIT_DEPTH else {}


def _plausible_rate(text: str) -> Fraction | None:
    rate = Fraction(_RATES_WITHOUT_POINT.get(text, text))
    return frame_rate(rate) if 1 <= rate <= _MAX_PLAUSIBLE_FPS else None


def stated_sizes(path: Path | str) -> list[tuple[int, int]]:
    """Return the different sizes (width, height) that are tokens of a file name, in its order."""
    return list(dict.fromkeys((int(width), int(height)) for width, height in _SIZE_ALONE.findall(_divide(path)[0])))


def guess_format(
    path: Path | str,
    *,
    size: tuple[int, int] | str | None = None,
    bit_depth: int | None = None,
    chroma: str | None = None,
    fps: Fraction | float | str | None = None,
    named: NameFields | None = None,
) -> VideoFormat:
    """Derive the geometry of a raw file from options, its name and the defaults, in this order.

    Args:
        path: File name or path, parsed by `parse_name`.
        size: (width, height) or "WxH" in luma samples.
        bit_depth: Bits per sample; 8 if neither the option nor the name states it.
        chroma: Chroma format; 420 if neither the option nor the name states it.
        fps: Frame rate in Hz.
        named: Fields to use instead of those of `parse_name`.

    Raises:
        FormatError: Neither the option nor the name states the size, the name states several values, or a value cannot
            be used.
    """
    named = parse_name(path) if named is None else named
    for option, what, values, given in (
        ("--bit-depth", "bit depths", named.bit_depths, bit_depth),
        ("--chroma", "chroma formats", named.chromas, chroma),
    ):
        # A layout in the name is compared with its other fields by the reader.
        if values and given is None and named.packing is None:
            stated = " and ".join(map(str, values))
            raise FormatError(f"the name of {path} states the {what} {stated}: give that of its pictures as {option}")
    if size is not None:
        width, height = parse_size(size) if isinstance(size, str) else size
    elif named.width is not None and named.height is not None:
        width, height = named.width, named.height
        sizes = stated_sizes(path)
        if len(sizes) > 1:
            stated = " and ".join(f"{each[0]}x{each[1]}" for each in sizes)
            raise FormatError(f"the name of {path} states the sizes {stated}: give that of its pictures as -s WxH")
    else:
        raise FormatError(f"the name of {path} does not state its picture size: give it as -s WxH, e.g. -s 416x240")
    return VideoFormat(
        width,
        height,
        chroma=chroma if chroma is not None else named.chroma or "420",
        bit_depth=bit_depth if bit_depth is not None else named.bit_depth or 8,
        fps=frame_rate(fps) if fps is not None else named.fps,
    )
