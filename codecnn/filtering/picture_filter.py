"""What filters a picture: networks in float here, and by the same protocol anything else that evaluation can run."""

import copy
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from codecnn.codec.base import MAX_QP, QP_SCALE
from codecnn.errors import ConfigError, ModelError
from codecnn.filtering.frame import DEFAULT_TILE, filter_outputs
from codecnn.filtering.tile_memory import bytes_per_sample, tile_within
from codecnn.models import FilterNetwork, prepare
from codecnn.models.base import CHROMA_PLANES, SAMPLE_PLANES
from codecnn.video import Picture

Array = npt.NDArray[Any]

NOTHING: Mapping[str, Array] = {}


class PictureFilter(Protocol):
    """Filters one picture at a time, whole.

    planes   what the network declares: the decoded components, "qp", and what must come beside the picture
    outputs  the components it filters: ("y",) or ("y", "u", "v"); the others are passed on as they are
    """

    @property
    def planes(self) -> tuple[str, ...]: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...

    def samples(self, picture: Picture, qp: int, beside: Mapping[str, Array] = NOTHING) -> dict[str, Array]:
        """Each output (h, w) in units of `picture`'s samples, before it is rounded and clipped to whole ones.

        A filter that works in whole numbers gives those of its result. Raises as `__call__` does.
        """

    def __call__(self, picture: Picture, qp: int, beside: Mapping[str, Array] = NOTHING) -> Picture:
        """The picture with its `outputs` filtered at full strength, as it was coded at slice QP `qp`.

        `beside` holds the planes (h, w) that the picture itself does not: samples as integers, those of the coding tree
        as the loader scales them; see `unit_planes`. Raises ConfigError for a QP out of range, ModelError for a plane
        that is missing or does not fit.
        """


class FloatFilter:
    """A network in float32, made ready once; `float_filter` makes it. A `PictureFilter`."""

    def __init__(self, model: FilterNetwork, device: torch.device, tile: int | None, memory: int | None) -> None:
        self.model = prepare(copy.deepcopy(model).to(device))
        self.device = device
        self.tile = tile
        self.memory = memory
        self.bytes_per_sample = 0.0 if memory is None else bytes_per_sample(self.model, device)

    @property
    def planes(self) -> tuple[str, ...]:
        return self.model.planes

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.model.outputs

    @torch.inference_mode()
    def samples(self, picture: Picture, qp: int, beside: Mapping[str, Array] = NOTHING) -> dict[str, Array]:
        if not 0 <= qp <= MAX_QP:
            raise ConfigError(f"QP {qp} is out of range: 0 to {MAX_QP}")
        full_scale = float(2**picture.bit_depth)
        planes = {"qp": torch.full((1, 1, 1, 1), qp / QP_SCALE, device=self.device)}
        for name, plane in decoded_planes(picture, self.planes, beside).items():
            tensor = torch.from_numpy(plane.astype(np.float32)).to(self.device)
            planes[name] = (tensor.div_(full_scale) if name in SAMPLE_PLANES else tensor)[None, None]
        tile = self.tile
        if self.memory is not None:
            tile = tile_within(self.memory, self.bytes_per_sample, self.model, picture.y.shape, tile)
        filtered = filter_outputs(self.model, planes, tile)
        return {name: plane[0, 0].mul_(full_scale).cpu().numpy() for name, plane in filtered.items()}

    def __call__(self, picture: Picture, qp: int, beside: Mapping[str, Array] = NOTHING) -> Picture:
        return rounded(picture, self.samples(picture, qp, beside))


def float_filter(
    model: FilterNetwork,
    *,
    device: str | torch.device = "cpu",
    tile: int | None = DEFAULT_TILE,
    memory: int | None = None,
) -> FloatFilter:
    """`model` as a filter of pictures in float32, folded and laid out for `device` once.

    `tile` is the largest side of the tiles in luma samples, None the picture in one piece; the result is the same to
    float rounding. `memory` bounds the bytes of tensors, weights aside: tiles become smaller where they must.
    """
    if tile is not None and tile < 1:
        raise ConfigError(f"tile size must be positive, not {tile}")
    return FloatFilter(model, torch.device(device), tile, memory)


def decoded_planes(picture: Picture, names: tuple[str, ...], beside: Mapping[str, Array]) -> dict[str, Array]:
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


def rounded(picture: Picture, samples: Mapping[str, Array]) -> Picture:
    """`picture` with the components `samples` for its own, rounded half to even and clipped to its bit depth.

    Raises ModelError for samples that are not finite, which a network gives whose training diverged.
    """
    peak = 2**picture.bit_depth - 1
    planes = []
    for name, plane in zip("yuv", picture.planes, strict=False):
        if name in samples:
            check_finite(name, samples[name])
            plane = np.clip(np.rint(samples[name]), 0, peak).astype(plane.dtype)
        planes.append(plane)
    return Picture(tuple(planes), picture.bit_depth)


def check_finite(name: str, samples: Array) -> None:
    """Raise ModelError where a component holds what is no number: as an integer it would look like a sample."""
    if not np.isfinite(samples).all():
        raise ModelError(f"the network gives values for {name} that are not finite: its weights are of no use")
