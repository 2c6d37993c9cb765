"""Low-cost filters: a quarter-resolution trunk of 1x1 convolutions, with 3x3 taps in factors or by channel only.

Most of a small network's multiply-accumulates go into 3x3 taps between all channels. Here the channels mix in 1x1
convolutions, wide in the middle, and the taps are either 1x3 and 3x1 between all channels (`SeparableBlock`) or 3x3
within each channel, trained in branches that fold (`DepthwiseBlock`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from codecnn.models.base import DECODED_PLANES, Filtered, FilterNetwork, QpGain
from codecnn.models.blocks import DepthwiseBlock, SeparableBlock, check_choice, check_counts, initialise
from codecnn.models.conditioning import CONDITIONING, QpModulation
from codecnn.models.registry import register

_BLOCKS = {"separable": SeparableBlock, "depthwise": DepthwiseBlock}


class LowCost(FilterNetwork):
    """planes -> unshuffle -> 3x3 unpadded -> block ... block -> 3x3 -> shuffle -> x gain(QP) -> (+) cropped rec_y.

    `kind` is that of the blocks, "separable" or "depthwise"; `conditioning` as in `RDN`, after every block. The head
    takes `shuffle` samples on each side away. The last convolution starts at zero.
    """

    def __init__(
        self,
        features: int = 32,
        blocks: int = 5,
        expansion: int = 3,
        kind: str = "separable",
        shuffle: int = 2,
        planes: Sequence[str] = ("rec_y", "qp"),
        conditioning: str = "film",
    ) -> None:
        options: dict[str, Any] = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        check_counts("low-cost", features=features, blocks=blocks, expansion=expansion, shuffle=shuffle)
        check_choice("low-cost", "kind", kind, tuple(_BLOCKS))
        check_choice("low-cost", "conditioning", conditioning, CONDITIONING)
        super().__init__(
            planes,
            halo=shuffle,
            radius=(1 + blocks + 1) * shuffle + shuffle - 1,
            stride=shuffle,
            beside=() if conditioning == "plane" else ("qp",),
        )
        self.options = {**options, "planes": list(planes)}
        cells = shuffle**2
        self.unshuffle = nn.PixelUnshuffle(shuffle)
        self.head = nn.Conv2d(len(self.channels) * cells, features, 3)
        self.blocks = nn.ModuleList(_BLOCKS[kind](features, expansion) for _ in range(blocks))
        self.tail = nn.Conv2d(features, cells, 3, padding=1)
        self.shuffle = nn.PixelShuffle(shuffle)
        self.gain = QpGain() if "qp" in self.planes else None
        spans = [slice(i * cells, (i + 1) * cells) for i, name in enumerate(self.channels) if name in DECODED_PLANES]
        initialise(self, self.head, spans, self.tail)
        self.modulations = (
            None
            if conditioning == "plane"
            else nn.ModuleList(QpModulation(features, conditioning) for _ in range(blocks))
        )

    def forward(self, planes: Mapping[str, Tensor]) -> Filtered:
        """Filtered luma (n, 1, h - 2·halo, w - 2·halo), in the scale of `rec_y` (x / 2^bit_depth), not clipped."""
        x = self.head(self.unshuffle(self.stack(planes)))
        for index, block in enumerate(self.blocks):
            x = block(x)
            if self.modulations is not None:
                x = self.modulations[index](x, planes["qp"])
        return self.repaired(planes, self.shuffle(self.tail(x)))


@register("low_cost_17")
def low_cost_17(**options: Any) -> LowCost:
    """Quarter-resolution trunk of 5 separable blocks, 32 features, expansion 3, FiLM by QP; 15.9 kMAC/pixel."""
    return LowCost(**options)


@register("low_cost_75")
def low_cost_75(**options: Any) -> LowCost:
    """Quarter-resolution trunk of 6 separable blocks, 64 features, expansion 3, FiLM by QP; 74.9 kMAC/pixel."""
    defaults: dict[str, Any] = {"features": 64, "blocks": 6}
    return LowCost(**defaults | options)


@register("low_cost_5")
def low_cost_5(**options: Any) -> LowCost:
    """Quarter-resolution trunk of 6 depthwise blocks, 24 features, expansion 2, FiLM by QP; 4.2 kMAC/pixel."""
    defaults: dict[str, Any] = {"features": 24, "blocks": 6, "expansion": 2, "kind": "depthwise"}
    return LowCost(**defaults | options)
