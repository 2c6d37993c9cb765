"""The row of samples that every prediction of a block is a sum of: its references, the same smoothed, the DC value."""

from codecnn.intra._arrays import Array, cast, library
from codecnn.intra._taps import Taps


def reference_rows(lines: Array, taps: Taps, bit_depth: int, *, strong_smoothing: bool = True) -> Array:
    """References, the same smoothed, and the DC value of every block: (n, 2·length + 1) int32."""
    lib = library(lines)
    inner = (lines[:, :-2] + 2 * lines[:, 1:-1] + lines[:, 2:] + 2) >> 2
    smooth = lib.concatenate((lines[:, :1], inner, lines[:, -1:]), 1)
    if strong_smoothing and taps.standard == "hevc" and taps.width == 32:
        smooth = lib.where(_nearly_straight(lines, bit_depth), _straight(lines), smooth)
    width, height = taps.width, taps.height
    corner = 2 * height
    # H.266 8.4.5.2.12 averages the longer side alone, so that the divisor stays a power of two.
    used = lines[:, (corner if width > height else corner - height) : corner + 1 + (width if width >= height else 0)]
    sides = used.sum(1) - lines[:, corner]
    count = width + height if width == height else max(width, height)
    mean = (sides + count // 2) // count
    return lib.concatenate((lines, smooth, cast(mean[:, None], "int32")), 1)


def _nearly_straight(lines: Array, bit_depth: int) -> Array:
    """H.265 8.4.4.2.3: biIntFlag, (n, 1); smooth slopes over 32x32 blocks would show the steps of [1 2 1] as bands."""
    corner, limit = lines[:, 64], 1 << (bit_depth - 5)
    flat = abs(corner + lines[:, -1] - 2 * lines[:, 96]) < limit
    return (flat & (abs(corner + lines[:, 0] - 2 * lines[:, 32]) < limit))[:, None]


def _straight(lines: Array) -> Array:
    """H.265 8.4.4.2.3: straight lines from the corner to both ends."""
    lib = library(lines)
    position = lib.arange(65, device=lines.device, dtype=lib.int32)
    corner = lines[:, 64:65]
    down, right = (((64 - position) * corner + position * lines[:, end : end + 1] + 32) >> 6 for end in (0, 128))
    return lib.concatenate((lib.flip(down, (1,)), right[:, 1:]), 1)
