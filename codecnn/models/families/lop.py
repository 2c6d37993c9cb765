"""Luma networks in the manner of the standard group's low-complexity filter LOP7 (JVET, NNVC).

The published description: a wide trunk at a quarter of the height and width; blocks that narrow it by a 1x1 convolution
after PReLU, filter each channel by 1x3 and 3x1 in parallel, and widen it again; after every second or third block a
spatial attention from half the trunk's resolution with a hard sigmoid. Inputs are the reconstruction before deblocking,
the prediction, the boundary strengths and the QP. The group's network also filters chroma, takes a second QP and the
slice type, and sees an overlapped 2x2 DCT of its inputs, which is a linear part of the first convolution here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.models.base import NetworkOutput, Trunk, register
from codecnn.models.blocks import Block, QpGain, check_counts, initialise


class LopBlock(Block):
    """Residual block on a wide trunk: x + widen(1x3(y) + 3x1(y)) with y = narrow(PReLU(x)).

    The 1x3 and 3x1 convolutions filter each of the `narrow` channels alone. The block costs 2·width·narrow + 6·narrow
    multiply-accumulates per sample of the trunk.

    Args:
        width: Channels of the trunk.
        narrow: Channels between the two 1x1 convolutions.
        attention: Channels of the spatial attention that follows, 0 for none.
    """

    def __init__(self, width: int, narrow: int, attention: int = 0) -> None:
        super().__init__()
        self.activation = nn.PReLU()
        self.narrow = nn.Conv2d(width, narrow, 1)
        self.row = nn.Conv2d(narrow, narrow, (1, 3), padding=(0, 1), groups=narrow)
        self.column = nn.Conv2d(narrow, narrow, (3, 1), padding=(1, 0), groups=narrow)
        self.widen = nn.Conv2d(narrow, width, 1)
        self.attention = SpatialAttention(width, attention) if attention else None

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        y = self.narrow(self.activation(x))
        x = x + self.widen(self.row(y) + self.column(y))
        return x if self.attention is None else self.attention(x)

    def in_place(self, x: Tensor, *conditions: Tensor) -> Tensor:
        """Compute the block over `x`."""
        return x.copy_(self(x))

    def silence(self) -> None:
        """Make the block the identity, unless it has an attention."""
        for parameter in self.widen.parameters():
            nn.init.zeros_(parameter)


class SpatialAttention(nn.Module):
    """Factors of 0 to 1 on all samples of the trunk, computed at its resolution and at half of it.

    x·hardsigmoid(mask(tail(y) + up(pooled))) with y = PReLU(head(x)), pooled = y' + mix(1x3(y') + 3x1(y')) for the 2x2
    maxima y' of y, and bilinear interpolation `up`.
    """

    REACH = 5
    """Distance, in samples of the trunk, over which a factor depends on the input."""

    def __init__(self, width: int, features: int) -> None:
        super().__init__()
        self.head = nn.Conv2d(width, features, 1)
        self.head_activation = nn.PReLU(init=0.2)
        self.row = nn.Conv2d(features, features, (1, 3), padding=(0, 1), groups=features)
        self.column = nn.Conv2d(features, features, (3, 1), padding=(1, 0), groups=features)
        self.mix = nn.Conv2d(features, features, 1)
        self.mix_activation = nn.PReLU(init=0.2)
        self.tail = nn.Conv2d(features, features, 1)
        self.tail_activation = nn.PReLU(init=0.2)
        self.mask = nn.Conv2d(features, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the product of the trunk (n, width, h, w) and the factors; h and w are even."""
        y = self.head_activation(self.head(x))
        pooled = F.max_pool2d(y, 2)
        pooled = pooled + self.mix_activation(self.mix(self.row(pooled) + self.column(pooled)))
        up = F.interpolate(pooled, scale_factor=2, mode="bilinear", align_corners=False)
        return x * F.hardsigmoid(self.mask(self.tail_activation(self.tail(y)) + up))


class Lop(Trunk):
    """A luma filter in the manner of LOP7.

    planes -> unshuffle -> 3x3 unpadded -> 1x1 widen -> block ... block -> 1x1 narrow -> 1x3, 3x1 by channel -> 1x1,
    PReLU -> 1x1 -> shuffle -> x gain(QP) -> (+) cropped rec_y

    The halo is `shuffle` samples. The last convolution starts at zero. The network has no graph to export.

    Args:
        width: Channels of the trunk.
        narrow: Channels inside a block.
        groups: Number of blocks in each group; the last block of a group has the attention.
        attention: Channels of the spatial attention, 0 for none.
        shuffle: Factor of PixelUnshuffle and PixelShuffle.
        planes: Names of the input planes.
        conditioning: "plane", "film" or "se" as in `RDN`; the modulation follows every block.
    """

    def __init__(
        self,
        width: int = 176,
        narrow: int = 32,
        groups: Sequence[int] = (2, 2, 2, 2, 3),
        attention: int = 32,
        shuffle: int = 4,
        planes: Sequence[str] = ("rec_y", "qp", "unf_y", "pred_y", "bs_v", "bs_h"),
        conditioning: str = "film",
    ) -> None:
        options: dict[str, Any] = {
            "width": width,
            "narrow": narrow,
            "groups": list(groups),
            "attention": attention,
            "shuffle": shuffle,
            "planes": list(planes),
            "conditioning": conditioning,
        }
        check_counts("LOP", width=width, narrow=narrow, shuffle=shuffle, groups=len(groups))
        check_counts("LOP", **{f"groups[{index}]": blocks for index, blocks in enumerate(groups)})
        blocks = sum(groups)
        reach = 1 + blocks + 2 + (SpatialAttention.REACH * len(groups) if attention else 0)
        super().__init__(
            planes,
            halo=shuffle,
            radius=reach * shuffle + shuffle - 1,
            stride=shuffle * (2 if attention else 1),
            outputs=self.OUTPUTS,
            conditions=() if conditioning == "plane" else ("qp",),
        )
        self.options = options
        self.factor = shuffle
        self.unshuffle = nn.PixelUnshuffle(shuffle)
        self.head = nn.Conv2d(self.head_inputs(), narrow, 3)
        self.widen = nn.Conv2d(narrow, width, 1)
        ends = {sum(groups[: index + 1]) - 1 for index in range(len(groups))}
        self.blocks = nn.ModuleList(
            LopBlock(width, narrow, attention if index in ends else 0) for index in range(blocks)
        )
        self.narrow = nn.Conv2d(width, narrow, 1)
        self.row = nn.Conv2d(narrow, narrow, (1, 3), padding=(0, 1), groups=narrow)
        self.column = nn.Conv2d(narrow, narrow, (3, 1), padding=(1, 0), groups=narrow)
        self.mix = nn.Conv2d(narrow, narrow, 1)
        self.activation = nn.PReLU()
        self.tail = nn.Conv2d(narrow, self.tail_outputs(), 1)
        self.shuffle = nn.PixelShuffle(shuffle)
        self.gain = QpGain() if "qp" in self.planes else None
        initialise(self, self.head, self.head_spans(), self.tail)
        self.modulate(conditioning, width)

    def forward(self, planes: Mapping[str, Tensor]) -> NetworkOutput:
        """Filter the planes.

        Returns:
            Luma (n, 1, h - 2·halo, w - 2·halo) in the scale of `rec_y` (x / 2^bit_depth), not clipped.
        """
        x = self.widen(self.head(self.into_head(planes)))
        for index, block in enumerate(self.blocks):
            x = block(x)
            if self.modulations is not None:
                x = self.modulations[index](x, planes["qp"])
        x = self.mix(self.column(self.row(self.narrow(x))))
        return self.out_of_tail(planes, self.tail(self.activation(x)))


def _register(name: str, groups: Sequence[int], kmac: float) -> None:
    """Register a LOP network with attention after each group of blocks."""
    description = f"LOP7 for luma: {sum(groups)} blocks of width 176 at 1/4 x 1/4, {len(groups)} spatial attentions"
    register(name, Lop, f"{description}, FiLM by QP; {kmac} kMAC/pixel.", groups=tuple(groups))


_register("lop_14", (2, 2, 2, 2, 3), 14.1)
_register("lop_17", (3, 3, 3, 3, 3), 16.9)
