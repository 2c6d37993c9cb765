"""Building blocks of the networks: low-cost blocks, branches that fold, QP conditioning, the 2x2 transform.

Every block takes and returns (n, features, h, w), with zero padding. A block has up to three forms: `forward` for
training, `in_place` for inference on the CPU, and `draw` for export.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.base.errors import ModelError
from codecnn.base.planes import QP_SCALE
from codecnn.models.graph.nodes import QPS, Array, Draft
from codecnn.models.inference import Scratch, add_convolution, convolution

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
"""Batch normalisation of one process or of several."""


def check_counts(network: str, **options: int) -> None:
    """Raise ModelError for an option of `network` that is not an integer of at least 1."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(f"{network} option {name} must be a whole number of at least 1, not {value!r}")


def check_choice(network: str, option: str, value: object, known: tuple[str, ...]) -> None:
    """Raise ModelError if the value of an option of `network` is not one of `known`."""
    if value not in known:
        raise ModelError(f"{network} option {option} is one of {', '.join(known)}, not {value!r}")


DETAIL_GAIN = 4.0
"""Factor on the initial weights of the first convolution, which makes local detail weigh more than by default."""


def initialise(network: nn.Module, head: nn.Conv2d, spans: Iterable[slice], tail: nn.Module | None) -> None:
    """Initialise a network by Kaiming's method, with a zero-mean first and a zero last convolution.

    The zeros make the residual 0 whatever the other weights are: training starts at the decoded picture, at a gain of
    0 dB, and spends no steps on removing the noise of a random residual. The last convolution has gradients from the
    first step on, all others from the second.

    The coding error depends on local detail, which is some hundredths of the brightness around it. With the default
    initialisation the features follow the brightness, and training starts much more slowly. So each filter of the first
    convolution has zero mean over the window and the samples of a plane.

    Args:
        network: The network. Convolutions in a module called "layers" are followed by ReLU.
        head: First convolution.
        spans: Ranges of input channels of `head` that hold samples, those of one plane together.
        tail: Last convolution, which is set to zero; None for a network that does not start as the identity.
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
    """Base of the blocks; a subclass overrides the forms that its networks need."""

    def fused(self, scratch: Scratch) -> nn.Module:
        """Return the block for inference on the CPU; blocks that share `scratch` run one after the other."""
        return InPlace(self)

    def in_place(self, x: Tensor, *conditions: Tensor) -> Tensor:
        """Write the result of `forward` over `x`, without gradients; needed unless `fused` is overridden."""
        raise NotImplementedError(f"{type(self).__name__} has neither in_place nor a fused of its own")

    def draw(self, draft: Draft, name: str, x: str) -> str:
        """Add nodes that compute the block from node `x`, with names that start with `name`; return the last one."""
        raise ModelError(f"a block of the class {type(self).__name__} has no graph to export")

    def silence(self) -> None:
        """Make the block the identity until it is trained; needed for blocks of networks that grow."""
        raise NotImplementedError(f"{type(self).__name__} cannot be added to a network that grows")


class InPlace(nn.Module):
    """A block that overwrites its input, which must not be used afterwards."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, *inputs: Any) -> Tensor:
        """Compute the block in place."""
        return self.block.in_place(*inputs)


class Branches(nn.Module):
    """A 3x3 convolution that is trained as a sum of 3x3, 1x3, 3x1 and 1x1 branches and folds into one 3x3.

    The sum of linear branches is linear (Ding et al., "RepVGG", CVPR 2021, and "ACNet", ICCV 2019): the optimiser has
    more parameters, the decoder has not.
    """

    KERNELS = ((3, 3), (1, 3), (3, 1), (1, 1))

    def __init__(self, inputs: int, outputs: int, *, groups: int = 1) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Conv2d(inputs, outputs, (rows, columns), padding=(rows // 2, columns // 2), groups=groups)
            for rows, columns in self.KERNELS
        )

    def forward(self, x: Tensor) -> Tensor:
        """Compute the folded convolution; the gradients are those of the branches, at the cost of one convolution."""
        return F.conv2d(x, *self._sums(), padding=1, groups=self._first().groups)

    @torch.no_grad()
    def folded(self) -> nn.Conv2d:
        """Return the equivalent 3x3 convolution."""
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
        """Return weight (outputs, inputs / groups, 3, 3) and bias (outputs,) of the sum of the branches."""
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
    """Residual block of two 1x1 convolutions and a 3x3 window in two factors.

    x + 3x1(1x3(project(ReLU(expand(x))))), with expansion·features channels between `expand` and `project`. The block
    costs 2·e·f² + 6·f² multiply-accumulates per sample.
    """

    def __init__(self, features: int, expansion: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(features, expansion * features, 1)
        self.project = nn.Conv2d(expansion * features, features, 1)
        self.row = nn.Conv2d(features, features, (1, 3), padding=(0, 1))
        self.column = nn.Conv2d(features, features, (3, 1), padding=(1, 0))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        y: Tensor = self.column(self.row(self.project(F.relu(self.expand(x)))))
        return x + y

    def in_place(self, x: Tensor, *conditions: Tensor) -> Tensor:
        """Compute the block in place."""
        y = convolution(convolution(x, self.expand, relu=True), self.project)
        add_convolution(x, convolution(y, self.row), self.column.weight, self.column.bias)
        return x

    def draw(self, draft: Draft, name: str, x: str) -> str:
        """Add the nodes of the block."""
        y = draft.conv(f"{name}.expand", x, self.expand, relu=1)
        for part in ("project", "row", "column"):
            y = draft.conv(f"{name}.{part}", y, getattr(self, part))
        return draft.add(f"{name}.sum", "add", x, y)

    def silence(self) -> None:
        """Make the block the identity."""
        _zero(self.column)


class DepthwiseBlock(Block):
    """Residual block of a depthwise 3x3 convolution, trained in branches, and two 1x1 convolutions.

    x + project(ReLU(expand(depthwise(x)))). Once folded, the block costs 9·f + 2·e·f² multiply-accumulates per sample.
    """

    def __init__(self, features: int, expansion: int) -> None:
        super().__init__()
        self.depthwise = Branches(features, features, groups=features)
        self.expand = nn.Conv2d(features, expansion * features, 1)
        self.project = nn.Conv2d(expansion * features, features, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        y: Tensor = self.project(F.relu(self.expand(self.depthwise(x))))
        return x + y

    def in_place(self, x: Tensor, *conditions: Tensor) -> Tensor:
        """Compute the block in place."""
        assert isinstance(self.depthwise, nn.Conv2d), "a network is folded before it is fused"
        y = convolution(convolution(x, self.depthwise), self.expand, relu=True)
        add_convolution(x, y, self.project.weight, self.project.bias)
        return x

    def draw(self, draft: Draft, name: str, x: str) -> str:
        """Add the nodes of the block."""
        y = draft.conv(f"{name}.depthwise", x, self.depthwise)
        y = draft.conv(f"{name}.expand", y, self.expand, relu=1)
        return draft.add(f"{name}.sum", "add", x, draft.conv(f"{name}.project", y, self.project))

    def silence(self) -> None:
        """Make the block the identity."""
        _zero(self.project)


def _zero(layer: nn.Conv2d) -> None:
    assert layer.bias is not None
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)


CONDITIONING = ("plane", "film", "se")
"""Ways in which a network takes the QP: as an input plane, or by `QpModulation` of one of two kinds."""


class QpModulation(Block):
    """Factors, and for FiLM offsets, on features as a function of the slice QP; it starts as the identity.

    - "film": x·(1 + a(QP)) + b(QP) (Perez et al., "FiLM", AAAI 2018)
    - "se": x·2σ(a(QP)), the excitation of squeeze-and-excitation (Hu et al., CVPR 2018)

    Only the QP is squeezed. A squeeze by global pooling would make every sample depend on the whole picture, so that a
    picture cut into tiles would be filtered differently. The cost is that of two small matrices per picture.

    Args:
        features: Number of features.
        kind: "film" or "se".
        qp_range: Lowest and highest QP of the network's first training. Beyond them a and b are those of the nearest QP
            inside, plus the distance to it times a learned vector for either side, which starts at zero. A training of
            these vectors (`beyond`) alone adds QPs and leaves the network as it is inside the range.
    """

    HIDDEN = 16

    def __init__(self, features: int, kind: str, qp_range: Sequence[int] | None = None) -> None:
        super().__init__()
        self.kind = kind
        self.qp_range = qp_range
        self.hidden = nn.Linear(1, self.HIDDEN)
        self.out = nn.Linear(self.HIDDEN, 2 * features if kind == "film" else features)
        self.beyond = None if qp_range is None else nn.Linear(2, self.out.out_features, bias=False)
        for layer in (self.out, self.beyond):
            for parameter in () if layer is None else layer.parameters():
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor, qp: Tensor) -> Tensor:
        """Modulate features.

        Args:
            x: Features, shape (n, features, h, w).
            qp: QP / 64, shape (n, 1, 1, 1).

        Raises:
            ModelError: The QP varies within the picture.
        """
        scale, offset = self.factors(qp)
        return x * scale if offset is None else x * scale + offset

    def in_place(self, x: Tensor, *conditions: Tensor) -> Tensor:
        """Modulate features in place; the condition is the QP."""
        scale, offset = self.factors(*conditions)
        return x.mul_(scale) if offset is None else torch.addcmul(offset, x, scale, out=x)

    def draw(self, draft: Draft, name: str, x: str) -> str:
        """Add a node with a table of 64 rows instead of the two matrices, since the factors depend on the QP only."""
        unit = torch.ones(1, self.out.out_features // (2 if self.kind == "film" else 1), 1, 1).double()
        factors, offsets = [], []
        for qp in range(QPS):
            position = torch.full((1, 1, 1, 1), qp / QP_SCALE, dtype=torch.float64)
            zero = self(torch.zeros_like(unit), position)
            offsets.append(zero.flatten().numpy())
            factors.append((self(unit, position) - zero).flatten().numpy())
        return draft.add(name, "modulate", x, tensors={"factor": np.stack(factors), "offset": np.stack(offsets)})

    def factors(self, qp: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return factors and, for FiLM, offsets of the features, shape (n, features, 1, 1).

        Raises:
            ModelError: The QP varies within the picture.
        """
        if qp.shape[1:] != (1, 1, 1):
            raise ModelError(
                f"conditioning {self.kind!r} takes one QP a picture, (n, 1, 1, 1), not a plane {tuple(qp.shape)}"
            )
        inside = _inside(qp.flatten(1), self.qp_range)
        # From QP 0 to 63 the input goes from -2 to 2, like a centred plane.
        out: Tensor = self.out(F.relu(self.hidden((inside - 0.5) * 4.0)))
        if self.beyond is not None:
            distance = (inside - qp.flatten(1)) * 4.0
            out = out + self.beyond(F.relu(torch.cat([distance, -distance], dim=1)))
        out = out[:, :, None, None]
        if self.kind == "se":
            return 2 * torch.sigmoid(out), None
        scale, offset = out.chunk(2, dim=1)
        return 1 + scale, offset


def _inside(qp: Tensor, qp_range: Sequence[int] | None) -> Tensor:
    """Return the nearest QP / 64 inside the range; without a range all are inside."""
    return qp if qp_range is None else qp.clamp(qp_range[0] / QP_SCALE, qp_range[1] / QP_SCALE)


class QpGain(nn.Module):
    """A learned positive factor on the residual as a function of the QP, with knots at QP 0, 4, ... 64.

    The logarithm of the factor is linear between the knots. It starts at 2^((QP - unity) / doubling), about as the
    coding error grows with the QP. The output of a network is then in units of that error, so that the optimiser's
    steps at high QPs do not hide the smaller gains at low QPs. The gain costs one multiplication per sample and does
    not enlarge the receptive field.

    Args:
        unity: QP at which the initial factor is 1.
        doubling: QP steps in which the initial factor doubles.
        qp_range: Lowest and highest QP beyond which the factor is constant; see `QpModulation`.
    """

    SPACING = 4

    def __init__(self, unity: int = 37, doubling: int = 9, qp_range: Sequence[int] | None = None) -> None:
        super().__init__()
        self.qp_range = qp_range
        knots = torch.arange(int(QP_SCALE) // self.SPACING + 1) * self.SPACING
        self.log_gain = nn.Parameter((knots - unity) / doubling * math.log(2))

    def forward(self, qp: Tensor) -> Tensor:
        """Return the factor for a tensor of QP / 64 of any shape."""
        last = self.log_gain.numel() - 1
        position = (_inside(qp, self.qp_range) * (QP_SCALE / self.SPACING)).clamp(0, last)
        below = position.detach().floor().clamp(max=last - 1)
        weight = position - below
        index = below.long()
        return torch.exp(self.log_gain[index] * (1 - weight) + self.log_gain[index + 1] * weight)

    def table(self) -> Array:
        """Return the factors at QP 0 to 63, shape (64,)."""
        return self(torch.arange(QPS, dtype=torch.float64) / QP_SCALE).numpy()  # type: ignore[no-any-return]


_HADAMARD = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=np.float64)
"""The 2x2 DCT of the four samples of a cell in raster order, without its scale."""


class Haar(nn.Module):
    """2x2 DCT of every channel, (n, c, h, w) -> (n, 4c, h/2, w/2): mean, horizontal, vertical, diagonal difference.

    The transform is scaled so that the mean band has the scale of the samples.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Transform samples into bands."""
        return _butterfly(F.pixel_unshuffle(x, 2)) / 4

    @staticmethod
    def into(weight: Array) -> Array:
        """Return weights (o, 4c, h, w) that compute from unshuffled samples what `weight` computes from the bands."""
        bands = weight.reshape(len(weight), -1, 4, *weight.shape[2:])
        folded: Array = np.einsum("ocjyx,jk->ockyx", bands, _HADAMARD / 4).reshape(weight.shape)
        return folded


class InverseHaar(nn.Module):
    """Inverse of `Haar`, (n, 4c, h, w) -> (n, c, 2h, 2w)."""

    def forward(self, bands: Tensor) -> Tensor:
        """Transform bands into samples."""
        return F.pixel_shuffle(_butterfly(bands), 2)

    @staticmethod
    def into(weight: Array, bias: Array) -> tuple[Array, Array]:
        """Return weight (4, c, h, w) and bias that compute samples of a cell where the given ones compute its bands."""
        return np.einsum("kj,jiyx->kiyx", _HADAMARD, weight), _HADAMARD @ bias


def _butterfly(x: Tensor) -> Tensor:
    """Multiply each group of four channels by the 4x4 Hadamard matrix, which is 4 times its own inverse."""
    count, channels, height, width = x.shape
    a, b, c, d = x.view(count, channels // 4, 4, height, width).unbind(2)
    return torch.stack([a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d], dim=2).flatten(1, 2)
