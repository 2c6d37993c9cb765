"""Networks for luma and chroma together, in 4:2:0, at the resolution of chroma: an RDN and low-cost ones."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor

from codecnn.errors import ModelError
from codecnn.models._conditioning import QpGain
from codecnn.models._registry import register
from codecnn.models.base import Filtered, FilterNetwork, Trunk
from codecnn.models.families.low_cost import LowCost
from codecnn.models.families.rdn import RDN
from codecnn.models.graph._draft import Draft, arrays
from codecnn.models.planes import CHROMA_PLANES, DECODED_PLANES, RESIDUAL_SCALE, centred

PLANES = ("rec_y", "rec_u", "rec_v", "qp")


class Yuv(Trunk):
    """How luma and chroma enter and leave a trunk of half the height and width, in front of its class in the bases.

    The channels of the first convolution are the four luma sub-pictures, U, V and what else is declared; the last one
    makes four luma sub-pictures, U and V: chroma enters and leaves at its own resolution, without resampling. Luma
    planes have four channels each, chroma planes and the QP one. The outputs are added to the cropped inputs.
    """

    LUMA: type[Trunk]
    """The network of luma alone with the same trunk."""
    FIXED: ClassVar[dict[str, Any]]
    """Options of that network that are no options here, and what they are."""

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
        # Nothing is upsampled here.
        self.radius -= 2
        self.chroma_gain: QpGain | None = None

    def head_inputs(self) -> int:
        return sum(_width(name) for name in self.channels)

    def tail_outputs(self) -> int:
        return 4 + 2

    def head_width(self, plane: str) -> int:
        return _width(plane)

    def head_spans(self) -> list[slice]:
        return [span for name, span in self._head_places() if name in DECODED_PLANES]

    def _head_places(self) -> list[tuple[str, slice]]:
        """The planes that are channels of the first convolution, and where they are."""
        ends = accumulate(_width(name) for name in self.channels)
        return [(name, slice(end - _width(name), end)) for name, end in zip(self.channels, ends, strict=True)]

    def gain_of(self, output: str) -> QpGain | None:
        return self.gain if output == "y" or self.chroma_gain is None else self.chroma_gain

    def into_head(self, planes: Mapping[str, Tensor]) -> Tensor:
        self.check(planes)
        return torch.cat([self._at_chroma(planes, name) for name in self.channels], dim=1)

    def _at_chroma(self, planes: Mapping[str, Tensor], name: str) -> Tensor:
        """A plane's channels (n, 1 or 4, h/2, w/2), as the first convolution gets them."""
        if name in CHROMA_PLANES:
            return centred(planes[name])
        plane = self.entering(planes, name)
        if name == "qp":
            return _subsampled(plane).expand(planes["rec_u"].shape)
        unshuffled: Tensor = self.unshuffle(plane.expand(planes["rec_y"].shape))
        return unshuffled

    def out_of_tail(self, planes: Mapping[str, Tensor], made: Tensor) -> Filtered:
        """Filtered y (n, 1, h, w), u and v (n, 1, h/2, w/2) without the halo, not clipped."""
        filtered = {"y": self.repaired(planes, self.shuffle(made[:, :4]))}
        halo = self.halo // 2
        for index, name in enumerate(("u", "v"), start=4):
            residual = made[:, index : index + 1].to(planes["rec_u"].dtype) * RESIDUAL_SCALE
            gain = self.gain_of(name)
            if gain is not None:
                residual = residual * gain(_subsampled(self.crop(planes["qp"])))
            filtered[name] = planes[f"rec_{name}"][:, :, halo:-halo, halo:-halo] + residual
        return filtered

    def draw_channels(self, draft: Draft, factor: int = 1) -> str:
        """The channels at chroma's resolution."""
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
        weight, bias = arrays(self.tail)
        luma = draft.weights("tail.y", x, weight[:4], bias[:4])
        made = {"y": draft.add("tail.y.shuffled", "shuffle", luma, factor=2)}
        for name, i in (("u", 4), ("v", 5)):
            made[name] = draft.weights(f"tail.{name}", x, weight[i : i + 1], bias[i : i + 1])
        return made

    @torch.no_grad()
    def of_own_kind(self, small: FilterNetwork, source: str) -> FilterNetwork:
        """A network of luma alone as one that leaves chroma as it is; weights from and to chroma are zero."""
        if type(small) is not self.LUMA:
            return small
        for name, value in self.FIXED.items():
            if small.options[name] != value:
                told = f"a network for chroma grows from one with {name} {value}"
                raise ModelError(f"{source} has {name} {small.options[name]}: {told}")
        beside = [name for name in self.planes if name not in CHROMA_PLANES]
        if list(small.planes) != beside:
            told = ", ".join(beside)
            raise ModelError(f"{source} has the planes {', '.join(small.planes)}, the network beside chroma's {told}")
        options = {name: value for name, value in small.options.items() if name not in self.FIXED}
        coloured = type(self)(**options | {"planes": list(self.planes)}).to(next(small.parameters()).dtype)
        tensors = small.state_dict()
        for name, own in coloured.state_dict(keep_vars=True).items():
            if name == "head.weight":
                own.zero_()
                for plane, span in coloured._head_places():
                    if plane not in CHROMA_PLANES:
                        start = 4 * small.channels.index(plane)
                        learned = tensors[name][:, start : start + 4]
                        # The four samples of a cell have one QP.
                        own[:, span] = learned.sum(dim=1, keepdim=True) if plane == "qp" else learned
            elif name in ("tail.weight", "tail.bias"):
                own.zero_()
                own[:4] = tensors[name]
            elif name in tensors:
                own.copy_(tensors[name])
        return coloured


def _width(plane: str) -> int:
    """Channels that a plane has at chroma's resolution."""
    return 1 if plane in (*CHROMA_PLANES, "qp") else 4


def _subsampled(qp: Tensor) -> Tensor:
    """A QP plane at chroma's resolution; a constant one stays as it is."""
    return qp if qp.shape[2:] == (1, 1) else qp[:, :, ::2, ::2]


class YuvRDN(Yuv, RDN):
    """`RDN` with shuffle 2 for luma and chroma; one gain by QP for all three."""

    LUMA = RDN
    FIXED: ClassVar[dict[str, Any]] = {
        "shuffle": 2,
        "upsampling": "shuffle",
        "transform": "unshuffle",
        "output": "residual",
    }


class YuvLowCost(Yuv, LowCost):
    """`LowCost` with shuffle 2 for luma and chroma, with a gain by QP of its own for chroma.

    The error of chroma grows more slowly with the QP than luma's: in 99 pictures coded by libvvenc, 4:2:0, its root
    mean square doubles every 15 steps of QP, luma's every 9, and is 0.45 of luma's at QP 37.
    """

    LUMA = LowCost
    FIXED: ClassVar[dict[str, Any]] = {"shuffle": 2}

    def __init__(self, planes: Sequence[str] = PLANES, **options: Any) -> None:
        super().__init__(planes, **options)
        if self.gain is not None:
            self.chroma_gain = QpGain(unity=52, doubling=15)


register(
    "rdn_yuv",
    YuvRDN,
    "RDN(32, 3, 6, 16) for Y, U and V of 4:2:0 together, at chroma's resolution; 56 kMAC a luma pixel.",
)


def _register(name: str, features: int, blocks: int, kmac: float) -> None:
    told = f"{blocks} separable blocks, {features} features, expansion 3, FiLM by QP; {kmac} kMAC a luma pixel."
    sizes = {"features": features, "blocks": blocks, "expansion": 3}
    register(name, YuvLowCost, f"Y, U and V of 4:2:0 together, at chroma's resolution: {told}", **sizes)


_register("low_cost_yuv_17", 32, 5, 16.2)
_register("low_cost_yuv_75", 64, 6, 75.5)
