"""Temporal planes: decoded pictures before and after a picture, or that it refers to, and their motion compensation."""

import functools
from collections.abc import Callable, Sequence

from codecnn.base.planes import TEMPORAL_PLANES
from codecnn.pictures.motion.block_matching import MotionReference, Plane

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


class TemporalPlanes:
    """Temporal planes of the pictures of a sequence.

    The interpolated pictures of a neighbourhood stay in memory, 16 planes each, because neighbouring pictures share
    them.
    """

    def __init__(
        self,
        names: Sequence[str],
        luma: Callable[[int], Plane],
        count: int,
        bit_depth: int,
        references: Sequence[References] = (),
    ) -> None:
        """Set the planes and the sequence.

        Args:
            names: Names of the planes; those that are not temporal are skipped.
            luma: Function that returns the luma of the decoded picture with a number in output order, shape (h, w).
            count: Number of pictures of the sequence.
            bit_depth: Bits per sample.
            references: References of each picture; only planes of reference pictures need them.
        """
        self.names = [name for name in names if name in TEMPORAL_PLANES]
        self.luma, self.count, self.references = luma, count, references
        self._interpolated = functools.lru_cache(maxsize=len(self.names) + 1)(
            lambda number: MotionReference(luma(number), bit_depth)
        )

    def __call__(self, number: int) -> dict[str, Plane]:
        """Compute the planes of a picture.

        Args:
            number: Number of the picture in output order.

        Returns:
            The planes by name, shape (h, w). A plane that shows the picture itself equals its luma.
        """
        compensated: dict[int, Plane] = {}
        planes = {}
        for name in self.names:
            references = self.references[number] if self.references else None
            other = temporal_number(name, number, self.count, references)
            if other == number or not TEMPORAL_PLANES[name].compensated:
                planes[name] = self.luma(other)
                continue
            if other not in compensated:
                compensated[other] = self._interpolated(other).compensate(self.luma(number))
            planes[name] = compensated[other]
        return planes
