"""Temporal planes: decoded pictures before and after a picture, or that it refers to, and their motion compensation."""

from collections.abc import Callable, Sequence

from codecnn.base.planes import TEMPORAL_PLANES
from codecnn.pictures.motion.block_matching import Plane, compensate_motion

References = tuple[int, int]
"""Numbers, in output order, of the first pictures of the reference lists 0 and 1; a picture's own number without."""


def temporal_number(name: str, number: int, count: int, references: References | None = None) -> int:
    """Return the number of the picture that a temporal plane shows.

    Args:
        name: Name of the plane, of `codecnn.base.planes.TEMPORAL_PLANES`.
        number: Number of the current picture in output order.
        count: Number of pictures of the sequence.
        references: References of the current picture; only planes of reference pictures need them.

    Returns:
        The number in output order. It is `number` for the picture before the first and after the last one.
    """
    source = TEMPORAL_PLANES[name]
    if source.offset:
        return min(max(number + source.offset, 0), count - 1)
    assert references is not None, "planes of reference pictures need the references"
    assert source.list is not None
    return references[source.list]


def temporal_planes(
    names: Sequence[str],
    luma: Callable[[int], Plane],
    number: int,
    count: int,
    bit_depth: int,
    references: References | None = None,
) -> dict[str, Plane]:
    """Compute temporal planes of a picture.

    Args:
        names: Names of the planes; those that are not temporal are skipped.
        luma: Function that returns the luma of the decoded picture with a number in output order, shape (h, w).
        number: Number of the picture in output order.
        count: Number of pictures of the sequence.
        bit_depth: Bits per sample.
        references: References of the picture; only planes of reference pictures need them.

    Returns:
        The planes by name, shape (h, w). A plane that shows the picture itself equals its luma.
    """
    compensated: dict[int, Plane] = {}
    planes = {}
    for name in names:
        if name not in TEMPORAL_PLANES:
            continue
        other = temporal_number(name, number, count, references)
        if other == number or not TEMPORAL_PLANES[name].compensated:
            planes[name] = luma(other)
            continue
        if other not in compensated:
            compensated[other] = compensate_motion(luma(number), luma(other), bit_depth)
        planes[name] = compensated[other]
    return planes
