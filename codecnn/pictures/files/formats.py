"""Geometry of raw pictures."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError

CHROMA_SUBSAMPLING = {"400": (1, 1), "420": (2, 2), "422": (2, 1), "444": (1, 1)}
"""Chroma format -> (SubWidthC, SubHeightC), H.266 table 2."""

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
        chroma = (ceil_div(self.height, sub_height), ceil_div(self.width, sub_width))
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
