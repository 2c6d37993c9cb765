"""Networks for luma and chroma together, in 4:2:0, at the resolution of chroma: an RDN and low-cost networks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor

from codecnn.base.errors import ModelError
from codecnn.models.base import FilterNetwork, NetworkOutput, Trunk, register
from codecnn.models.blocks import QpGain
from codecnn.models.families.low_cost import LARGE, SMALL, LowCost
from codecnn.models.families.rdn import RDN
from codecnn.models.graph.nodes import Draft, arrays
from codecnn.models.planes import CHROMA_PLANES, DECODED_PLANES, RESIDUAL_SCALE, centred

PLANES = ("rec_y", "rec_u", "rec_v", "qp")


class Yuv(Trunk):
    """Mixin that lets luma and chroma enter and leave a trunk at half the height and width; first in the bases.

    The channels of the first convolution are the four luma sub-pictures, U, V and the other declared planes; those of
    the last one are four luma sub-pictures, U and V. Chroma enters and leaves at its own resolution, without
    resampling. Luma planes have four channels each, chroma planes and the QP have one. The outputs are added to the
    cropped inputs.
    """

    LUMA: type[Trunk]
    """Class of the network for luma alone with the same trunk."""

    FIXED: ClassVar[dict[str, Any]]
    """Options of the luma network that are fixed here, and their values."""

    OUTPUTS: tuple[str, ...] = ("y", "u", "v")
    LIFTS: tuple[str, ...] = ()

    def __init__(self, planes: Sequence[str] = PLANES, **options: Any) -> None:
        for name in self.FIXED:
            if name in options:
                raise ModelError(f"the YUV network does not take the option {name!r}")
        trunk: dict[str, Any] = {"planes": planes, **self.FIXED, **options}
        super().__init__(**trunk)
        for name in self.FIXED:
            del self.options[name]
        # Unlike in the base class, chroma is not upsampled.
        self.radius -= 2
        self.chroma_gain: QpGain | None = None

    def head_inputs(self) -> int:
        """Return the number of input channels of the first convolution."""
        return sum(_width(name) for name in self.channels)

    def tail_outputs(self) -> int:
        """Return 6: four luma sub-pictures, U and V."""
        return 4 + 2

    def head_width(self, plane: str) -> int:
        """Return the number of channels of a plane: 4 for luma planes, 1 for chroma planes and the QP."""
        return _width(plane)

    def head_spans(self) -> list[slice]:
        """Return the ranges of input channels that hold decoded samples, a range per plane."""
        return [span for name, span in self._head_places() if name in DECODED_PLANES]

    def _head_places(self) -> list[tuple[str, slice]]:
        """Return the planes that are channels of the first convolution, and their ranges of channels."""
        ends = accumulate(_width(name) for name in self.channels)
        return [(name, slice(end - _width(name), end)) for name, end in zip(self.channels, ends, strict=True)]

    def gain_of(self, output: str) -> QpGain | None:
        """Return the gain of luma, or of chroma if that has a separate one."""
        return self.gain if output == "y" or self.chroma_gain is None else self.chroma_gain

    def into_head(self, planes: Mapping[str, Tensor]) -> Tensor:
        """Return the input of the first convolution, shape (n, head_inputs(), h/2, w/2)."""
        self.check(planes)
        return torch.cat([self._at_chroma(planes, name) for name in self.channels], dim=1)

    def _at_chroma(self, planes: Mapping[str, Tensor], name: str) -> Tensor:
        """Return the channels of a plane (n, 1 or 4, h/2, w/2) as they enter the first convolution."""
        if name in CHROMA_PLANES:
            return centred(planes[name])
        plane = self.entering(planes, name)
        if name == "qp":
            return _subsampled(plane).expand(planes["rec_u"].shape)
        unshuffled: Tensor = self.unshuffle(plane.expand(planes["rec_y"].shape))
        return unshuffled

    def out_of_tail(self, planes: Mapping[str, Tensor], residual: Tensor) -> NetworkOutput:
        """Return filtered y (n, 1, h, w), u and v (n, 1, h/2, w/2) without halo, not clipped."""
        filtered = {"y": self.repaired(planes, self.shuffle(residual[:, :4]))}
        halo = self.halo // 2
        for index, name in enumerate(("u", "v"), start=4):
            change = residual[:, index : index + 1].to(planes["rec_u"].dtype) * RESIDUAL_SCALE
            gain = self.gain_of(name)
            if gain is not None:
                change = change * gain(_subsampled(self.crop(planes["qp"])))
            filtered[name] = planes[f"rec_{name}"][:, :, halo:-halo, halo:-halo] + change
        return filtered

    def draw_channels(self, draft: Draft, factor: int = 1) -> str:
        """Add the channels at the resolution of chroma as one tensor."""
        draft.once("rec_u")
        parts = []
        for name in self.channels:
            if name == "qp":
                parts.append(draft.add("qp", "qp", "rec_u"))
            else:
                cell = 1 if name in CHROMA_PLANES else factor
                parts.append(draft.shuffled(f"{name}.unshuffled", "unshuffle", draft.plane(name), cell))
        return draft.joined("channels", parts)

    def draw_tail(self, draft: Draft, x: str) -> dict[str, str]:
        """Add the last convolution, a part for each component, and the shuffle of luma."""
        weight, bias = arrays(self.tail)
        luma = draft.weights("tail.y", x, weight[:4], bias[:4])
        residuals = {"y": draft.add("tail.y.shuffled", "shuffle", luma, factor=2)}
        for name, i in (("u", 4), ("v", 5)):
            residuals[name] = draft.weights(f"tail.{name}", x, weight[i : i + 1], bias[i : i + 1])
        return residuals

    @torch.no_grad()
    def of_own_kind(self, small: FilterNetwork, source: str) -> FilterNetwork:
        """Convert a network for luma alone into one of this class that leaves chroma unchanged.

        Weights from and to chroma are zero. Networks of other classes are returned as they are.
        """
        if type(small) is not self.LUMA:
            return small
        for name, value in self.FIXED.items():
            if small.options[name] != value:
                raise ModelError(
                    f"{source} has {name} {small.options[name]}: a network for chroma grows from one with "
                    f"{name} {value}"
                )
        luma_planes = [name for name in self.planes if name not in CHROMA_PLANES]
        if list(small.planes) != luma_planes:
            raise ModelError(
                f"{source} has the planes {', '.join(small.planes)}, the network {', '.join(luma_planes)} and chroma"
            )
        options = {name: value for name, value in small.options.items() if name not in self.FIXED}
        coloured = type(self)(**options | {"planes": list(self.planes)}).to(next(small.parameters()).dtype)
        tensors = small.state_dict()
        for name, tensor in coloured.state_dict(keep_vars=True).items():
            if name == "head.weight":
                tensor.zero_()
                for plane, span in coloured._head_places():
                    if plane not in CHROMA_PLANES:
                        start = 4 * small.channels.index(plane)
                        learned = tensors[name][:, start : start + 4]
                        # The four samples of a cell have the same QP.
                        tensor[:, span] = learned.sum(dim=1, keepdim=True) if plane == "qp" else learned
            elif name in ("tail.weight", "tail.bias"):
                tensor.zero_()
                tensor[:4] = tensors[name]
            elif name in tensors:
                tensor.copy_(tensors[name])
        return coloured


def _width(plane: str) -> int:
    """Return the number of channels of a plane at the resolution of chroma."""
    return 1 if plane in (*CHROMA_PLANES, "qp") else 4


def _subsampled(qp: Tensor) -> Tensor:
    """Return a QP plane at the resolution of chroma; a constant plane is returned as it is."""
    return qp if qp.shape[2:] == (1, 1) else qp[:, :, ::2, ::2]


class YuvRDN(Yuv, RDN):
    """`RDN` with shuffle 2 for luma and chroma, with one gain by QP for all components."""

    LUMA = RDN
    FIXED: ClassVar[dict[str, Any]] = {
        "shuffle": 2,
        "upsampling": "shuffle",
        "transform": "unshuffle",
        "output": "residual",
    }


class YuvLowCost(Yuv, LowCost):
    """`LowCost` with shuffle 2 for luma and chroma, with a separate gain by QP for chroma.

    The coding error of chroma grows more slowly with the QP than that of luma: its RMS doubles every 15 QP steps, that
    of luma every 9.
    """

    LUMA = LowCost
    FIXED: ClassVar[dict[str, Any]] = {"shuffle": 2}

    def __init__(self, planes: Sequence[str] = PLANES, **options: Any) -> None:
        super().__init__(planes, **options)
        if self.gain is not None:
            self.chroma_gain = QpGain(unity=52, doubling=15, qp_range=self.options.get("qp_range"))


register(
    "rdn_yuv",
    YuvRDN,
    "RDN(32, 3, 6, 16) for Y, U and V of 4:2:0 together, at chroma's resolution; 56 kMAC a luma pixel.",
)

for _name, _size, _kmac in (("low_cost_yuv_17", SMALL, 16.2), ("low_cost_yuv_75", LARGE, 75.5)):
    _description = f"Y, U and V of 4:2:0 together, at chroma's resolution: {_size.describe(_kmac)}"
    register(_name, YuvLowCost, _description, **asdict(_size))
