"""Constants of the intra modes of H.266 and H.265: block sizes, angles, wide-angle mapping, interpolation filters."""

from codecnn.base.errors import ConfigError

PLANAR, DC = 0, 1
MODE_COUNT = {"vvc": 67, "hevc": 35}
"""Luma modes of H.266 (planar, DC, 65 angular) and H.265 (planar, DC, 33 angular)."""

SIZES = {"vvc": (4, 8, 16, 32, 64), "hevc": (4, 8, 16, 32)}
"""Widths and heights of predicted blocks; blocks of HEVC are square."""

CTU_SIZES = {"vvc": (32, 64, 128), "hevc": (16, 32, 64)}
"""Widths of CTUs: H.266 7.4.3.4, H.265 7.4.3.2 (main profiles)."""

_TO_45_DEGREES = (0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 23, 26, 29, 32)
_WIDE_ANGLES = (35, 39, 45, 51, 57, 64, 73, 86, 102, 128, 171, 256, 341, 512)
VVC_ANGLES = (*_TO_45_DEGREES, *_WIDE_ANGLES)
"""H.266 table 24: intraPredAngle by the distance of a mode from mode 18 or 50, on the side where it is positive."""

HEVC_ANGLES = (0, 2, 5, 9, 13, 17, 21, 26, 32)
"""H.265 table 8-5: intraPredAngle by the distance of a mode from mode 10 or 26."""

SMOOTHED_MODES = frozenset((PLANAR, -14, -12, -10, -6, 2, 34, 66, 72, 76, 78, 80))
"""H.266 8.4.5.2.6: modes with refFilterFlag 1, wide angles included: those at whole samples, except 18 and 50."""

GAUSSIAN_DISTANCE = {2: 24, 3: 14, 4: 2, 5: 0, 6: 0}
"""H.266 table 23: nTbS -> intraHorVerDistThres."""

_CUBIC = (
    (0, 64, 0, 0),
    (-1, 63, 2, 0),
    (-2, 62, 4, 0),
    (-2, 60, 7, -1),
    (-2, 58, 10, -2),
    (-3, 57, 12, -2),
    (-4, 56, 14, -2),
    (-4, 55, 15, -2),
    (-4, 54, 16, -2),
    (-5, 53, 18, -2),
    (-6, 52, 20, -2),
    (-6, 49, 24, -3),
    (-6, 46, 28, -4),
    (-5, 44, 29, -4),
    (-4, 42, 30, -4),
    (-4, 39, 33, -4),
    (-4, 36, 36, -4),
)
CUBIC_FILTER = (*_CUBIC, *(taps[::-1] for taps in _CUBIC[-2:0:-1]))
"""Filter fC of H.266 table 25: four taps for each iFact, in 1/64."""

GAUSSIAN_FILTER = tuple((16 - (i >> 1), 32 - (i >> 1), 16 + (i >> 1), i >> 1) for i in range(32))
"""Filter fG of H.266 table 25: four taps for each iFact, in 1/64."""


def check_block(width: int, height: int, standard: str) -> None:
    """Raise ConfigError unless `standard` predicts blocks of `width` x `height` samples."""
    if standard not in MODE_COUNT:
        raise ConfigError(f"unknown standard {standard!r}: use one of {', '.join(MODE_COUNT)}")
    sizes = SIZES[standard]
    if width not in sizes or height not in sizes or (standard == "hevc" and width != height):
        raise ConfigError(
            f"{standard} does not predict blocks of {width}x{height} samples: sides are {', '.join(map(str, sizes))}"
        )


def wide_angle_mode(mode: int, width: int, height: int) -> int:
    """Map a mode to the wide-angle mode that replaces it in a block that is not square (H.266 8.4.5.2.7).

    A wide block has many reference samples above and few to the left, so the modes of flat directions from the lower
    left are replaced by directions from the upper right beyond 45 degrees; in tall blocks the other way round.

    Args:
        mode: Mode number, 0 to 66.
        width: Block width in samples.
        height: Block height in samples.

    Returns:
        Mode number in -14 to 80; `mode` itself where no wide angle applies.
    """
    ratio = abs(width.bit_length() - height.bit_length())
    if width > height and 2 <= mode < (8 + 2 * ratio if ratio > 1 else 8):
        return mode + 65
    if width < height and (60 - 2 * ratio if ratio > 1 else 60) < mode <= 66:
        return mode - 67
    return mode


def vvc_angle(mode: int) -> int:
    """Return intraPredAngle of an angular mode in -14..80, in 1/32 sample per row or column (H.266 table 24)."""
    distance = mode - 50 if mode >= 34 else 18 - mode - (2 if mode < 0 else 0)
    return VVC_ANGLES[distance] if distance >= 0 else -VVC_ANGLES[-distance]


def hevc_angle(mode: int) -> int:
    """Return intraPredAngle of an angular mode in 2..34, in 1/32 sample per row or column (H.265 table 8-5)."""
    distance = mode - 26 if mode >= 18 else 10 - mode
    return HEVC_ANGLES[distance] if distance >= 0 else -HEVC_ANGLES[-distance]


def inverse_angle(angle: int) -> int:
    """Return invAngle = Round(512 * 32 / intraPredAngle), half away from zero (H.266 (333)); `angle` is not 0."""
    magnitude = (2 * 512 * 32 + abs(angle)) // (2 * abs(angle))
    return magnitude if angle > 0 else -magnitude
