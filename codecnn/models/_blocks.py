"""Building blocks: cheap blocks, branches that fold into one convolution, the 2x2 transform; `dense` has the RDB.

Every block takes and returns (n, features, h, w) and pads with zeros, so that height and width stay. A block's forms
stand together: `forward` for training, `in_place` for inference on the CPU, `draw` for export.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.errors import ModelError
from codecnn.models.fused import Scratch, add_convolution, convolution
from codecnn.models.graph._draft import Draft
from codecnn.models.graph.nodes import Array


def check_counts(network: str, **options: int) -> None:
    """Raise ModelError for an option of `network` that is not a whole number of at least 1."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(f"{network} option {name} must be a whole number of at least 1, not {value!r}")


def check_choice(network: str, option: str, value: object, known: tuple[str, ...]) -> None:
    """Raise ModelError for a `value` of an option that is not one of `known`."""
    if value not in known:
        raise ModelError(f"{network} option {option} is one of {', '.join(known)}, not {value!r}")


DETAIL_GAIN = 4.0
"""How much more the first convolution weighs detail than its usual start would."""


def initialise(network: nn.Module, head: nn.Conv2d, spans: Iterable[slice], tail: nn.Module | None) -> None:
    """Kaiming's start, a head that does not see the mean of its window, and a last convolution of zeros.

    `spans` are the channels of `head` that hold samples, those of one plane together; `tail` is None for a network
    that does not start as the identity. Convolutions called "layers" are followed by ReLU.

    The zeros make a network's residual 0, whatever its other weights: training starts at the codec's picture, at 0 dB
    of gain, and spends no steps on taking back noise that a random residual would add. The last convolution itself gets
    gradients at once, all others from the second step on.

    The error that a codec leaves depends on local detail, which is some hundredths of the brightness around it. With
    torch's default start the features, and what ReLU makes of them, follow the brightness: on the demo's pictures,
    64x64 patches and batch 8, the training gain was 0.0007 dB after 1,442 steps, and 0.0116 dB after 917 steps with
    this start (0.0015 dB after 853 with Kaiming's alone).
    """
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu" if "layers" in name.split(".") else "linear")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    with torch.no_grad():
        for span in spans:
            weight = head.weight[:, span]
            weight -= weight.mean(dim=(1, 2, 3), keepdim=True)
            weight *= DETAIL_GAIN
    if isinstance(tail, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.zeros_(tail.weight)


class Block(nn.Module):
    """A block in the forms that a network needs of it; a network with blocks of another kind cannot be exported."""

    def fused(self, scratch: Scratch) -> nn.Module:
        """The block for inference on the CPU; blocks that share `scratch` run one after the other."""
        return InPlace(self)

    def in_place(self, x: Tensor, *others: Tensor) -> Tensor:
        """What `forward` returns, written over `x`; without gradients. A block that brings none overrides `fused`."""
        raise NotImplementedError(f"{type(self).__name__} has neither in_place nor a fused of its own")

    def draw(self, draft: Draft, name: str, x: str) -> str:
        """The nodes that compute the block from the node `x`, named from `name`; returns the last."""
        raise ModelError(f"a block of the class {type(self).__name__} has no graph to export")

    def silence(self) -> None:
        """Let the block return its input, until it has learned something; blocks of networks that grow bring it."""
        raise NotImplementedError(f"{type(self).__name__} cannot be added to a network that grows")


class InPlace(nn.Module):
    """A block that overwrites its input, which nothing may read after it."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, *inputs: Any) -> Tensor:
        return self.block.in_place(*inputs)


class Branches(nn.Module):
    """A 3x3 convolution that trains as the sum of 3x3, 1x3, 3x1 and 1x1 branches and folds into one 3x3.

    The sum of linear branches is linear (Ding et al., "RepVGG", CVPR 2021, and "ACNet", ICCV 2019): more parameters
    for the optimiser, none for the decoder.
    """

    KERNELS = ((3, 3), (1, 3), (3, 1), (1, 1))

    def __init__(self, inputs: int, outputs: int, *, groups: int = 1) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Conv2d(inputs, outputs, (rows, columns), padding=(rows // 2, columns // 2), groups=groups)
            for rows, columns in self.KERNELS
        )

    def forward(self, x: Tensor) -> Tensor:
        """Folded at every step: the gradients are those of the branches, for the time of one convolution."""
        return F.conv2d(x, *self._sums(), padding=1, groups=self._first().groups)

    @torch.no_grad()
    def folded(self) -> nn.Conv2d:
        """The 3x3 convolution that this one is."""
        first = self._first()
        weight, bias = self._sums()
        like: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
        folded = nn.Conv2d(first.in_channels, first.out_channels, 3, padding=1, groups=first.groups, **like)
        assert folded.bias is not None
        folded.weight.copy_(weight)
        folded.bias.copy_(bias)
        return folded

    def _first(self) -> nn.Conv2d:
        first = self.branches[0]
        assert isinstance(first, nn.Conv2d)
        return first

    def _sums(self) -> tuple[Tensor, Tensor]:
        """Weight (outputs, inputs / groups, 3, 3) and bias (outputs,) of the sum of the branches."""
        weight, bias = self._first().weight, self._first().bias
        assert bias is not None
        for branch in self.branches[1:]:
            assert isinstance(branch, nn.Conv2d)
            assert branch.bias is not None
            rows, columns = ((3 - size) // 2 for size in branch.kernel_size)
            weight = weight + F.pad(branch.weight, (columns, columns, rows, rows))
            bias = bias + branch.bias
        return weight, bias


class SeparableBlock(Block):
    """x + 3x1(1x3(project(ReLU(expand(x))))): two 1x1 convolutions over `expansion`·features, then 3x3 in two factors.

    2·e·f² + 6·f² multiply-accumulates a sample.
    """

    def __init__(self, features: int, expansion: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(features, expansion * features, 1)
        self.project = nn.Conv2d(expansion * features, features, 1)
        self.row = nn.Conv2d(features, features, (1, 3), padding=(0, 1))
        self.column = nn.Conv2d(features, features, (3, 1), padding=(1, 0))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.column(self.row(self.project(F.relu(self.expand(x)))))
        return x + y

    def in_place(self, x: Tensor, *others: Tensor) -> Tensor:
        y = convolution(convolution(x, self.expand, relu=True), self.project)
        add_convolution(x, convolution(y, self.row), self.column.weight, self.column.bias)
        return x

    def draw(self, draft: Draft, name: str, x: str) -> str:
        y = draft.conv(f"{name}.expand", x, self.expand, relu=1)
        for part in ("project", "row", "column"):
            y = draft.conv(f"{name}.{part}", y, getattr(self, part))
        return draft.add(f"{name}.sum", "add", x, y)

    def silence(self) -> None:
        _zero(self.column)


class DepthwiseBlock(Block):
    """x + project(ReLU(expand(depthwise(x)))), with the depthwise 3x3 trained in branches.

    9·f + 2·e·f² multiply-accumulates a sample once folded.
    """

    def __init__(self, features: int, expansion: int) -> None:
        super().__init__()
        self.depthwise = Branches(features, features, groups=features)
        self.expand = nn.Conv2d(features, expansion * features, 1)
        self.project = nn.Conv2d(expansion * features, features, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(F.relu(self.expand(self.depthwise(x))))
        return x + y

    def in_place(self, x: Tensor, *others: Tensor) -> Tensor:
        assert isinstance(self.depthwise, nn.Conv2d), "in place once it is folded"
        y = convolution(convolution(x, self.depthwise), self.expand, relu=True)
        add_convolution(x, y, self.project.weight, self.project.bias)
        return x

    def draw(self, draft: Draft, name: str, x: str) -> str:
        y = draft.conv(f"{name}.depthwise", x, self.depthwise)
        y = draft.conv(f"{name}.expand", y, self.expand, relu=1)
        return draft.add(f"{name}.sum", "add", x, draft.conv(f"{name}.project", y, self.project))

    def silence(self) -> None:
        _zero(self.project)


def _zero(layer: nn.Conv2d) -> None:
    assert layer.bias is not None
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)


_HADAMARD = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=np.float64)
"""What the transform does with the four samples of a cell, row by row, but for its scale."""


class Haar(nn.Module):
    """2x2 DCT of every channel, (n, c, h, w) -> (n, 4c, h/2, w/2): mean, horizontal, vertical, diagonal difference.

    Scaled so that the mean band has the scale of the samples.
    """

    def forward(self, x: Tensor) -> Tensor:
        return _butterfly(F.pixel_unshuffle(x, 2)) / 4

    @staticmethod
    def into(weight: Array) -> Array:
        """Weights (o, 4c, h, w) that do on unshuffled samples what `weight` does on their transform."""
        bands = weight.reshape(len(weight), -1, 4, *weight.shape[2:])
        folded: Array = np.einsum("ocjyx,jk->ockyx", bands, _HADAMARD / 4).reshape(weight.shape)
        return folded


class InverseHaar(nn.Module):
    """What undoes `Haar`, (n, 4c, h, w) -> (n, c, 2h, 2w)."""

    def forward(self, bands: Tensor) -> Tensor:
        return F.pixel_shuffle(_butterfly(bands), 2)

    @staticmethod
    def into(weight: Array, bias: Array) -> tuple[Array, Array]:
        """Weights (4, c, h, w) and bias that make the samples of a cell where the given ones make its bands."""
        return np.einsum("kj,jiyx->kiyx", _HADAMARD, weight), _HADAMARD @ bias


def _butterfly(x: Tensor) -> Tensor:
    """The 4x4 Hadamard matrix on each group of four channels; its own inverse but for a factor of four."""
    count, channels, height, width = x.shape
    a, b, c, d = x.view(count, channels // 4, 4, height, width).unbind(2)
    return torch.stack([a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d], dim=2).flatten(1, 2)
