"""Published networks for comparison, for luma, with the same inputs and outputs as all other filter networks.

Their layers are those of the papers: padded, at full resolution, on the decoded plane alone (further planes are an
option). Initialisation, residual scale and zero last layer are those of this package, so that comparisons are between
architectures.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.models.base import FilterNetwork, NetworkOutput, register
from codecnn.models.blocks import BatchNorm, QpGain, check_counts, initialise
from codecnn.models.graph.nodes import Draft


class Baseline(FilterNetwork):
    """Base class of networks of padded convolutions; `radius` is the sum of the kernels' half widths."""

    def __init__(self, planes: Sequence[str], radius: int) -> None:
        super().__init__(planes, halo=0, radius=radius, stride=1)
        self.gain = QpGain() if "qp" in self.planes else None


class Chain(Baseline):
    """A chain of convolutions with ReLU between them.

    Args:
        kernels: Side of each kernel, odd.
        widths: Output channels of each convolution but the last, which has one.
        planes: Names of the input planes.
        norm: Use batch normalisation before every ReLU but the first.
        options: Options of the network, without the planes.
    """

    def __init__(
        self,
        kernels: Sequence[int],
        widths: Sequence[int],
        planes: Sequence[str],
        *,
        norm: bool,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(planes, sum(size // 2 for size in kernels))
        self.options = {**options, "planes": list(planes)}
        channels = list(pairwise((len(self.channels), *widths, 1)))
        plain = [not norm or index in (0, len(kernels) - 1) for index in range(len(kernels))]
        self.layers = nn.ModuleList(
            nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=bias)
            for (inputs, outputs), size, bias in zip(channels, kernels, plain, strict=True)
        )
        self.norms = nn.ModuleList(
            nn.Identity() if bias else nn.BatchNorm2d(outputs)
            for (_, outputs), bias in zip(channels, plain, strict=True)
        )
        head, tail = self.layers[0], self.layers[-1]
        assert isinstance(head, nn.Conv2d)
        initialise(self, head, self.sample_spans(1), tail)

    def forward(self, planes: Mapping[str, Tensor]) -> NetworkOutput:
        """Return filtered luma of the size of `rec_y`, not clipped."""
        x = self.stack(planes)
        for layer, norm in zip(self.layers[:-1], self.norms[:-1], strict=True):
            x = F.relu(norm(layer(x)))
        return self.repaired(planes, self.layers[-1](x))

    def folded(self) -> "Chain":
        """Fold batch normalisation, of one process or synchronised, into the convolutions before it; return the chain.

        With running statistics it is a factor and an offset by channel: w' = w·γ/σ and b' = β - μ·γ/σ.
        """
        for index, norm in enumerate(self.norms):
            layer = self.layers[index]
            if isinstance(norm, BatchNorm) and isinstance(layer, nn.Conv2d):
                self.layers[index] = torch.nn.utils.fuse_conv_bn_eval(layer, norm)
                self.norms[index] = nn.Identity()
        return self

    def draw(self, draft: Draft) -> dict[str, str]:
        """Add the nodes of the network."""
        x, last = self.draw_channels(draft), len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            x = draft.conv(f"layers.{index}", x, layer, relu=int(index < last))
        return {"y": x}


class VRCNN(Baseline):
    """VRCNN: two layers of two parallel kernel sizes between a 5x5 and a 3x3 layer."""

    def __init__(self, planes: Sequence[str] = ("rec_y",)) -> None:
        super().__init__(planes, radius=2 + 2 + 1 + 1)
        self.options = {"planes": list(planes)}
        self.first = nn.Conv2d(len(self.channels), 64, 5, padding=2)
        self.second = nn.ModuleList([nn.Conv2d(64, 16, 5, padding=2), nn.Conv2d(64, 32, 3, padding=1)])
        self.third = nn.ModuleList([nn.Conv2d(48, 16, 3, padding=1), nn.Conv2d(48, 32, 1)])
        self.last = nn.Conv2d(48, 1, 3, padding=1)
        initialise(self, self.first, self.sample_spans(1), self.last)

    def forward(self, planes: Mapping[str, Tensor]) -> NetworkOutput:
        """Return filtered luma of the size of `rec_y`, not clipped."""
        x = F.relu(self.first(self.stack(planes)))
        for pair in (self.second, self.third):
            x = F.relu(torch.cat([layer(x) for layer in pair], dim=1))
        return self.repaired(planes, self.last(x))

    def draw(self, draft: Draft) -> dict[str, str]:
        """Add the nodes of the network."""
        x = draft.conv("first", self.draw_channels(draft), self.first, relu=1)
        for name, pair in (("second", self.second), ("third", self.third)):
            parts = [draft.conv(f"{name}.{index}", x, layer, relu=1) for index, layer in enumerate(pair)]
            x = draft.joined(name, parts)
        return {"y": draft.conv("last", x, self.last)}


class EDSR(Baseline):
    """EDSR without its up-scaling: residual blocks without normalisation and a skip connection over all of them."""

    SCALE = 0.1
    """Residual scaling (section 3.3 of the paper); without it, the variance of features doubles with every block."""

    def __init__(self, features: int = 64, blocks: int = 16, planes: Sequence[str] = ("rec_y",)) -> None:
        check_counts("EDSR", features=features, blocks=blocks)
        super().__init__(planes, radius=1 + 2 * blocks + 1 + 1)
        self.options = {"features": features, "blocks": blocks, "planes": list(planes)}

        def conv(inputs: int, outputs: int) -> nn.Conv2d:
            return nn.Conv2d(inputs, outputs, 3, padding=1)

        self.head = conv(len(self.channels), features)
        self.layers = nn.ModuleList(conv(features, features) for _ in range(blocks))
        self.seconds = nn.ModuleList(conv(features, features) for _ in range(blocks))
        self.body = conv(features, features)
        self.tail = conv(features, 1)
        initialise(self, self.head, self.sample_spans(1), self.tail)

    def forward(self, planes: Mapping[str, Tensor]) -> NetworkOutput:
        """Return filtered luma of the size of `rec_y`, not clipped."""
        first = self.head(self.stack(planes))
        x = first
        for layer, second in zip(self.layers, self.seconds, strict=True):
            x = x + second(F.relu(layer(x))) * self.SCALE
        return self.repaired(planes, self.tail(first + self.body(x)))

    def draw(self, draft: Draft) -> dict[str, str]:
        """Add the nodes of the network."""
        first = x = draft.conv("head", self.draw_channels(draft), self.head)
        for index, (layer, second) in enumerate(zip(self.layers, self.seconds, strict=True)):
            y = draft.conv(f"layers.{index}", x, layer, relu=1)
            x = draft.add(f"sum.{index}", "add", x, draft.conv(f"seconds.{index}", y, second, scale=self.SCALE))
        x = draft.add("sum", "add", first, draft.conv("body", x, self.body))
        return {"y": draft.conv("tail", x, self.tail)}


def arcnn(planes: Sequence[str] = ("rec_y",)) -> Chain:
    """Build AR-CNN, four convolutions, at its published widths."""
    return Chain((9, 7, 1, 5), (64, 32, 16), planes, norm=False, options={})


def dncnn(features: int = 64, layers: int = 17, planes: Sequence[str] = ("rec_y",)) -> Chain:
    """Build DnCNN-S with `layers` convolutions of `features` channels."""
    check_counts("DnCNN", features=features, layers=layers - 1)
    options = {"features": features, "layers": layers}
    return Chain((3,) * layers, (features,) * (layers - 1), planes, norm=True, options=options)


register("vrcnn", VRCNN, "VRCNN, 4 layers of varied kernel sizes (Dai, Liu, Wu, MMM 2017); 55 kMAC/pixel.")
register("arcnn", arcnn, "AR-CNN, 9-7-1-5 (Dong et al., ICCV 2015); 106 kMAC/pixel.")
register(
    "dncnn",
    dncnn,
    "DnCNN-S, 17 layers of 64 features with batch normalisation (Zhang et al., IEEE TIP 2017); 554 kMAC/pixel.",
)
register(
    "edsr",
    EDSR,
    "EDSR baseline, 16 residual blocks of 64 features (Lim et al., CVPR Workshops 2017); 1217 kMAC/pixel.",
)
