"""What a filter of pictures is, whatever computes it, and how samples go into one and come out of it."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from codecnn.errors import ModelError
from codecnn.models import CHROMA_PLANES
from codecnn.video import Picture

Array = npt.NDArray[Any]
Planes = Mapping[str, Array]
"""Planes (h, w) of one picture by name: samples as integers, those of the coding tree as the loader scales them."""

NO_PLANES: Planes = {}


class PictureFilter(Protocol):
    """Filters one picture at a time, whole.

    planes   what the network declares: the decoded components, "qp", and what must come beside the picture
    outputs  the components it filters: ("y",) or ("y", "u", "v"); the others are passed on as they are
    """

    @property
    def planes(self) -> tuple[str, ...]: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...

    def samples(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> dict[str, Array]:
        """Each output (h, w) in units of `picture`'s samples, before it is rounded and clipped to whole ones.

        A filter that works in whole numbers gives those of its result. Raises as `__call__` does.
        """

    def __call__(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> Picture:
        """The picture with its `outputs` filtered at full strength, as it was coded at slice QP `qp`.

        `beside` holds the planes that the picture itself does not; see `unit_planes`. Raises ConfigError for a QP out
        of range, ModelError for a plane that is missing or does not fit.
        """


def components(picture: Picture) -> dict[str, Array]:
    """The planes of a picture by component: {"y": ...}, or "y", "u" and "v"."""
    return dict(zip("yuv", picture.planes, strict=False))


def decoded_planes(picture: Picture, names: tuple[str, ...], beside: Planes) -> dict[str, Array]:
    """Those of the planes `names` that the picture and `beside` hold, by name.

    Raises ModelError where chroma is asked for and the picture's is not 4:2:0, and for a plane that neither holds.
    """
    own = {"rec_y": picture.y}
    if any(name in CHROMA_PLANES for name in names):
        height, width = picture.y.shape
        if len(picture.planes) != 3 or picture.planes[1].shape != ((height + 1) // 2, (width + 1) // 2):
            shapes = ", ".join(f"{plane.shape[1]}x{plane.shape[0]}" for plane in picture.planes)
            raise ModelError(f"the network needs 4:2:0 chroma, and the picture's planes are {shapes}")
        own |= {"rec_u": picture.planes[1], "rec_v": picture.planes[2]}
    given = {**beside, **own}
    missing = [name for name in names if name not in given and name != "qp"]
    if missing:
        raise ModelError(f"the network needs the plane {missing[0]!r}, which is missing")
    return {name: given[name] for name in names if name in given}


def rounded(picture: Picture, samples: Planes) -> Picture:
    """`picture` with the components `samples` for its own, rounded half to even and clipped to its bit depth.

    Raises ModelError for samples that are not finite, which a network gives whose training diverged.
    """
    peak = 2**picture.bit_depth - 1
    made = components(picture)
    for name, plane in made.items():
        if name in samples:
            check_finite(name, samples[name])
            made[name] = np.clip(np.rint(samples[name]), 0, peak).astype(plane.dtype)
    return Picture(tuple(made.values()), picture.bit_depth)


def check_finite(name: str, samples: Array) -> None:
    """Raise ModelError where a component holds what is no number: as an integer it would look like a sample."""
    if not np.isfinite(samples).all():
        raise ModelError(f"the network gives values for {name} that are not finite: its weights are of no use")
