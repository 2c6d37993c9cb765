"""RDN for luma and chroma together, in 4:2:0, at the resolution of chroma."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from codecnn.errors import ModelError
from codecnn.models._registry import register
from codecnn.models.base import Filtered
from codecnn.models.families.rdn import RDN
from codecnn.models.graph._draft import Draft
from codecnn.models.planes import CHROMA_PLANES, DECODED_PLANES, RESIDUAL_SCALE, centred


class YuvRDN(RDN):
    """RDN whose channels are the four luma sub-pictures, U, V and what else is declared, and whose output is Y, U, V.

    The trunk is that of `RDN` with shuffle 2: chroma enters and leaves at its own resolution, without resampling. Luma
    planes give four channels each, chroma planes and the QP one. The outputs are added to the cropped inputs.
    """

    OUTPUTS = ("y", "u", "v")
    LIFTS = ()

    def __init__(self, planes: Sequence[str] = ("rec_y", "rec_u", "rec_v", "qp"), **options: Any) -> None:
        for name in ("shuffle", "upsampling", "transform", "output"):
            if name in options:
                raise ModelError(f"the YUV network does not take the option {name!r}")
        super().__init__(planes=planes, shuffle=2, **options)
        for name in ("shuffle", "upsampling", "transform", "output"):
            del self.options[name]
        # Nothing is upsampled here.
        self.radius -= 2

    def _width(self, plane: str) -> int:
        """Channels that a plane has at chroma's resolution."""
        return 1 if plane in (*CHROMA_PLANES, "qp") else 4

    def _inputs(self) -> int:
        return sum(self._width(name) for name in self.channels)

    def _tail_channels(self) -> int:
        return self.factor**2 + 2

    def _sample_spans(self) -> list[slice]:
        ends = list(accumulate(self._width(name) for name in self.channels))
        spans = zip(self.channels, ends, strict=True)
        return [slice(end - self._width(name), end) for name, end in spans if name in DECODED_PLANES]

    def _at_chroma(self, planes: Mapping[str, Tensor], name: str) -> Tensor:
        """A plane's channels (n, 1 or 4, h/2, w/2), as the first convolution gets them."""
        if name in CHROMA_PLANES:
            return centred(planes[name])
        plane = self.entering(planes, name)
        if name == "qp":
            return _subsampled(plane).expand(planes["rec_u"].shape)
        unshuffled: Tensor = self.unshuffle(plane.expand(planes["rec_y"].shape))
        return unshuffled

    def forward(self, planes: Mapping[str, Tensor]) -> Filtered:
        """Filtered y (n, 1, h, w), u and v (n, 1, h/2, w/2) without the halo, not clipped."""
        self.check(planes)
        x = torch.cat([self._at_chroma(planes, name) for name in self.channels], dim=1)
        made = self.tail(self.features(x, planes))
        filtered = {"y": self.repaired(planes, self.shuffle(made[:, :4]))}
        halo = self.halo // 2
        for index, name in enumerate(("u", "v"), start=4):
            residual = made[:, index : index + 1].to(planes["rec_u"].dtype) * RESIDUAL_SCALE
            if self.gain is not None:
                residual = residual * self.gain(_subsampled(self.crop(planes["qp"])))
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
                factor = 1 if name in CHROMA_PLANES else self.factor
                parts.append(draft.shuffled(f"{name}.unshuffled", "unshuffle", draft.plane(name), factor))
        return draft.joined("channels", parts)

    def _draw_tail(self, draft: Draft, x: str) -> dict[str, str]:
        weight, bias = self._tail_arrays()
        luma = draft.weights("tail.y", x, weight[:4], bias[:4])
        made = {"y": draft.add("tail.y.shuffled", "shuffle", luma, factor=2)}
        for name, i in (("u", 4), ("v", 5)):
            made[name] = draft.weights(f"tail.{name}", x, weight[i : i + 1], bias[i : i + 1])
        return made


def _subsampled(qp: Tensor) -> Tensor:
    """A QP plane at chroma's resolution; a constant one stays as it is."""
    return qp if qp.shape[2:] == (1, 1) else qp[:, :, ::2, ::2]


register(
    "rdn_yuv",
    YuvRDN,
    "RDN(32, 3, 6, 16) for Y, U and V of 4:2:0 together, at chroma's resolution; 56 kMAC a luma pixel.",
)
