"""Geometry of raw pictures, and the geometry that JVET-style file names state."""

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from codecnn.errors import FormatError

CHROMA_SUBSAMPLING = {"400": (1, 1), "420": (2, 2), "422": (2, 1), "444": (1, 1)}
"""Chroma format -> (SubWidthC, SubHeightC), H.266 table 2."""

PLANAR = "planar"
"""Packing of raw files whose planes follow one another."""

PACKINGS = {
    f"p{layout}1{depth}": (chroma, bit_depth)
    for layout, chroma in ((0, "420"), (2, "422"), (4, "444"))
    for depth, bit_depth in ((0, 10), (2, 12), (6, 16))
}
"""Semi-planar packings of raw files, p010 to p416 -> (chroma format, bit depth); `raw.py` describes their layout."""

MIN_BIT_DEPTH, MAX_BIT_DEPTH = 8, 16
_FFMPEG_DEPTHS = (8, 9, 10, 12, 14, 16)
_MAX_RATIO = 10**9 - 1
"""Largest numerator and denominator of a frame rate: nine digits, the limit for Y4M headers too."""
_NTSC_RATES = tuple(Fraction(base * 1000, 1001) for base in (24, 30, 48, 60, 120))
_NTSC_TOLERANCE = Fraction(6, 1000)
"""Largest distance in Hz from an NTSC rate at which a rounded rate such as 29.97 is taken for it."""


def check_bit_depth(bit_depth: int) -> None:
    """Raise FormatError unless `bit_depth` is in MIN_BIT_DEPTH to MAX_BIT_DEPTH."""
    if not MIN_BIT_DEPTH <= bit_depth <= MAX_BIT_DEPTH:
        raise FormatError(f"bit depth {bit_depth} is not in {MIN_BIT_DEPTH} to {MAX_BIT_DEPTH}")


@dataclass(frozen=True)
class VideoFormat:
    """Geometry and sample layout of planar pictures.

    Samples are uint8 at 8 bit and little-endian uint16 above, aligned to the least significant bit. Chroma planes of
    an odd luma size n have (n + 1) // 2 samples where they are subsampled.

    Attributes:
        width: Luma width in samples.
        height: Luma height in samples.
        chroma: Chroma format: 400, 420, 422 or 444.
        bit_depth: Bits per sample, 8 to 16.
        fps: Frame rate in Hz, None if unknown. Any value that `frame_rate` accepts is converted to a fraction.

    Raises:
        FormatError: A value is not of the right type or outside its range.
    """

    width: int
    height: int
    chroma: str = "420"
    bit_depth: int = 8
    fps: Fraction | None = None

    def __post_init__(self) -> None:
        for name, value in (("width", self.width), ("height", self.height), ("bit depth", self.bit_depth)):
            if not isinstance(value, int | np.integer) or isinstance(value, bool):
                raise FormatError(f"{name} {value!r} is not a whole number")
        if self.width < 1 or self.height < 1:
            raise FormatError(f"picture size {self.width}x{self.height} is not positive")
        if self.chroma not in CHROMA_SUBSAMPLING:
            raise FormatError(f"unknown chroma format {self.chroma!r}: use one of {', '.join(CHROMA_SUBSAMPLING)}")
        check_bit_depth(self.bit_depth)
        if self.fps is not None and not (isinstance(self.fps, Fraction) and self.fps > 0):
            object.__setattr__(self, "fps", frame_rate(self.fps))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Sample type on disk and in memory: uint8, or little-endian uint16 above 8 bit."""
        return np.dtype(np.uint8 if self.bit_depth == 8 else "<u2")

    @property
    def plane_shapes(self) -> tuple[tuple[int, int], ...]:
        """(height, width) of each plane: one plane for 400, else three."""
        luma = (self.height, self.width)
        if self.chroma == "400":
            return (luma,)
        sub_width, sub_height = CHROMA_SUBSAMPLING[self.chroma]
        chroma = (-(-self.height // sub_height), -(-self.width // sub_width))
        return (luma, chroma, chroma)

    @property
    def picture_bytes(self) -> int:
        """Size of one raw picture in bytes."""
        return sum(height * width for height, width in self.plane_shapes) * self.dtype.itemsize

    @property
    def ffmpeg_pix_fmt(self) -> str:
        """Pixel format as named by ffmpeg, e.g. yuv420p10le; FormatError where ffmpeg has none (11, 13 and 15 bit)."""
        if self.bit_depth not in _FFMPEG_DEPTHS:
            raise FormatError(
                f"ffmpeg has no {self.bit_depth}-bit pixel format: convert to one of "
                f"{', '.join(map(str, _FFMPEG_DEPTHS))} bit"
            )
        depth = "" if self.bit_depth == 8 else f"{self.bit_depth}le"
        if self.chroma == "400":
            return f"gray{depth}"
        return f"yuv{self.chroma}p{depth}"

    def __str__(self) -> str:
        return f"{self.width}x{self.height} {self.chroma} {self.bit_depth} bit"


def frame_rate(value: Fraction | float | str) -> Fraction:
    """Convert a frame rate in Hz to a fraction; rounded NTSC rates such as 23.976 and 59.94 become n·1000/1001.

    Args:
        value: A number, or text such as "30", "29.97" or "30000/1001". A ratio stays exact unless it is within 0.006
            Hz of an NTSC rate.

    Raises:
        FormatError: The value is not a positive number, or its numerator or denominator has more than nine digits.
    """
    text = str(value)
    try:
        # Fraction would compute a power of ten with thousands of digits for a large exponent.
        rate = Fraction(text if len(text) <= 40 and not re.search(r"[eE][-+]?\d{4}", text) else "")
        if "/" not in text:
            rate = rate.limit_denominator(100_000)
    except (ValueError, ZeroDivisionError):
        raise FormatError(f"frame rate {text[:40]!r} is not a number such as 50, 59.94 or 60000/1001") from None
    if rate <= 0 or max(rate.as_integer_ratio()) > _MAX_RATIO:
        raise FormatError(f"frame rate {text!r} is not positive, or not a ratio of numbers up to {_MAX_RATIO}")
    return next((ntsc for ntsc in _NTSC_RATES if abs(rate - ntsc) < _NTSC_TOLERANCE), rate)


def parse_size(text: str) -> tuple[int, int]:
    """Parse text such as "416x240" into width and height in luma samples; FormatError for any other text."""
    match = re.fullmatch(r"([1-9]\d{0,5})[xX]([1-9]\d{0,5})", text.strip(), flags=re.ASCII)
    if match is None:
        raise FormatError(f"size {text!r} is not of the form WxH, e.g. 416x240")
    return int(match[1]), int(match[2])


class NameFields(NamedTuple):
    """Properties of a video that its file name states; None where it does not.

    Attributes:
        width: Luma width in samples.
        height: Luma height in samples.
        chroma: Chroma format: 400, 420, 422 or 444.
        bit_depth: Bits per sample.
        fps: Frame rate in Hz.
        frames: Number of pictures.
        packing: Semi-planar packing, a key of `PACKINGS`.
    """

    width: int | None = None
    height: int | None = None
    chroma: str | None = None
    bit_depth: int | None = None
    fps: Fraction | None = None
    frames: int | None = None
    packing: str | None = None


_SIZE = re.compile(r"(?<![0-9A-Za-z])([1-9]\d{0,4})x([1-9]\d{0,4})(?!\d)", re.ASCII)
_UNIT_SEPARATOR = re.compile(r"(?<=\d)[-_ ](?=(?:bits?|fps|hz|frames?)(?:[-_ ]|$))", re.ASCII)
"""Separator between a number and its unit, as in `10-bit`."""
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,5})?)(?:fps|hz|p)", re.ASCII)
_BARE_NUMBER = re.compile(r"\d{1,6}(?:\.\d{1,5})?", re.ASCII)
_FRAMES = re.compile(r"(\d{1,9})(?:f|frm|frames?)|f(\d{1,9})", re.ASCII)
_SAMPLES = re.compile(
    r"(?:(?P<depth>\d{1,2})b(?:its?|pp|pc)?)?"
    r"(?:(?:yuv|p|i)?(?P<chroma>4(?:00|20|22|44))(?:p(?P<depth_after>\d{1,2})?(?:le)?)?)?",
    re.ASCII,
)
_GREY = re.compile(r"gr[ae]y(?:(?P<depth>\d{1,2})(?:le)?)?", re.ASCII)
_RATES_WITHOUT_POINT = {"2397": "23.976", "2398": "23.976", "23976": "23.976", "2997": "29.97", "5994": "59.94"}
_MAX_PLAUSIBLE_FPS = 240
_RATE_FRACTIONS = (".94", ".97", ".976", ".98", ".88")


def parse_name(path: Path | str) -> NameFields:
    """Parse the geometry in a JVET-style file name, e.g. Tango2_3840x2160_60fps_10bit_420.yuv.

    Only the stem is parsed (no folder, no extension), and of the stem only the tokens from the first WxH on. A stem
    without WxH has no fields. Tokens without a known meaning are ignored; of two tokens for the same field the first
    counts. The tokens are:

    - frame rate: a bare number up to 240 directly after the size (`416x240_50`), `60fps`, `30Hz`, `80x44p15`;
    - number of pictures: `17f`, `f15`, `100frames`;
    - samples: `10bit`, `10b420`, `P420`, `yuv420p10le`, `gray`;
    - samples and their packing: `p010`.

    Args:
        path: File name or path; the file need not exist.

    Returns:
        The fields that the name states.
    """
    path = Path(path)
    # Path takes a rate such as _59.94 at the end of a name without extension for the extension.
    stem = (path.name if path.suffix in _RATE_FRACTIONS else path.stem).lower()
    size = _SIZE.search(stem)
    if size is None:
        return NameFields()
    fields: dict[str, Any] = {}
    rest = _UNIT_SEPARATOR.sub("", stem[size.end() :])
    if progressive := re.match(r"p(?=[-_ \d]|$)", rest):
        rest = rest[progressive.end() :]
    tokens = [token for token in re.split(r"[-_ ]+", rest) if token]
    for position, token in enumerate(tokens):
        fields = _parse_token(token, after_size=position == 0) | fields
    return NameFields(int(size[1]), int(size[2]), **fields)


def _parse_token(token: str, *, after_size: bool) -> dict[str, Any]:
    """Return the fields of `NameFields` that a lower-case token states, without implausible values."""
    if after_size and _BARE_NUMBER.fullmatch(token) and (rate := _plausible_rate(token)):
        return {"fps": rate}
    if (match := _RATE.fullmatch(token)) and (rate := _plausible_rate(match[1])):
        return {"fps": rate}
    if match := _FRAMES.fullmatch(token):
        return {"frames": int(match[1] or match[2])}
    if (packing := token.removesuffix("le")) in PACKINGS:
        chroma, bit_depth = PACKINGS[packing]
        return {"packing": packing, "chroma": chroma, "bit_depth": bit_depth}
    fields: dict[str, Any] = {}
    if match := _GREY.fullmatch(token):
        fields["chroma"] = "400"
        depth = match["depth"]
    elif match := _SAMPLES.fullmatch(token):
        if match["chroma"]:
            fields["chroma"] = match["chroma"]
        depth = match["depth"] or match["depth_after"]
    else:
        return {}
    if depth and MIN_BIT_DEPTH <= int(depth) <= MAX_BIT_DEPTH:
        fields["bit_depth"] = int(depth)
    return fields


def _plausible_rate(text: str) -> Fraction | None:
    rate = Fraction(_RATES_WITHOUT_POINT.get(text, text))
    return frame_rate(rate) if 1 <= rate <= _MAX_PLAUSIBLE_FPS else None


def guess_format(
    path: Path | str,
    *,
    size: tuple[int, int] | str | None = None,
    bit_depth: int | None = None,
    chroma: str | None = None,
    fps: Fraction | float | str | None = None,
) -> VideoFormat:
    """Derive the geometry of a raw file from options, its name and the defaults, in this order.

    Args:
        path: File name or path, parsed by `parse_name`.
        size: (width, height) or "WxH" in luma samples.
        bit_depth: Bits per sample; 8 if neither the option nor the name states it.
        chroma: Chroma format; 420 if neither the option nor the name states it.
        fps: Frame rate in Hz.

    Raises:
        FormatError: Neither the option nor the name states the size, or a value cannot be used.
    """
    named = parse_name(path)
    if size is not None:
        width, height = parse_size(size) if isinstance(size, str) else size
    elif named.width is not None and named.height is not None:
        width, height = named.width, named.height
    else:
        raise FormatError(f"the name of {path} does not state its picture size: give it as -s WxH, e.g. -s 416x240")
    return VideoFormat(
        width,
        height,
        chroma=chroma if chroma is not None else named.chroma or "420",
        bit_depth=bit_depth if bit_depth is not None else named.bit_depth or 8,
        fps=frame_rate(fps) if fps is not None else named.fps,
    )
