"""Low-cost filters: a trunk at half the height and width of 1x1 convolutions and factorised or depthwise 3x3 ones.

Most multiply-accumulates of a small network go into 3x3 taps between all channels. Here the channels mix in 1x1
convolutions, wide in the middle, and the spatial taps are either 1x3 and 3x1 between all channels (`SeparableBlock`)
or 3x3 within each channel, trained in branches that fold (`DepthwiseBlock`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from codecnn.base.errors import ModelError
from codecnn.base.planes import MAX_QP
from codecnn.models.base import FilterNetwork, NetworkOutput, Trunk, register
from codecnn.models.blocks import (
    CONDITIONING,
    Block,
    DepthwiseBlock,
    QpGain,
    SeparableBlock,
    check_choice,
    check_counts,
    initialise,
)
from codecnn.models.graph.nodes import Draft

_BLOCKS = {"separable": SeparableBlock, "depthwise": DepthwiseBlock}


class LowCost(Trunk):
    """A low-cost filter of luma.

    planes -> unshuffle -> 3x3 unpadded -> block ... block -> 3x3 -> shuffle -> x gain(QP) -> (+) cropped rec_y

    The halo is `shuffle` samples. The last convolution starts at zero.

    Args:
        features: Channels of the trunk.
        blocks: Number of blocks.
        expansion: Channels inside a block, as a multiple of `features`.
        kind: Kind of the blocks, "separable" or "depthwise".
        shuffle: Factor of PixelUnshuffle and PixelShuffle.
        planes: Names of the input planes.
        conditioning: "plane", "film" or "se" as in `RDN`; the modulation follows every block.
        qp_range: Lowest and highest QP of an earlier training, to add QPs beyond them (`QpModulation`).
    """

    GROWS = ("features", "blocks", "expansion")
    LIFTS: tuple[str, ...] = ("features",)

    def __init__(
        self,
        features: int = 32,
        blocks: int = 5,
        expansion: int = 3,
        kind: str = "separable",
        shuffle: int = 2,
        planes: Sequence[str] = ("rec_y", "qp"),
        conditioning: str = "film",
        qp_range: Sequence[int] | None = None,
    ) -> None:
        options: dict[str, Any] = {
            "features": features,
            "blocks": blocks,
            "expansion": expansion,
            "kind": kind,
            "shuffle": shuffle,
            "planes": list(planes),
            "conditioning": conditioning,
        }
        check_counts("low-cost", features=features, blocks=blocks, expansion=expansion, shuffle=shuffle)
        check_choice("low-cost", "kind", kind, tuple(_BLOCKS))
        check_choice("low-cost", "conditioning", conditioning, CONDITIONING)
        super().__init__(
            planes,
            halo=shuffle,
            radius=(1 + blocks + 1) * shuffle + shuffle - 1,
            stride=shuffle,
            outputs=self.OUTPUTS,
            conditions=() if conditioning == "plane" else ("qp",),
        )
        self.options = options
        if qp_range is not None:
            if conditioning == "plane" or len(qp_range) != 2 or not 0 <= qp_range[0] <= qp_range[1] <= MAX_QP:
                raise ModelError(
                    f"qp_range takes two QPs from 0 to {MAX_QP} and conditioning film or se, not {qp_range}"
                )
            self.options["qp_range"] = qp_range
        self.factor = shuffle
        self.unshuffle = nn.PixelUnshuffle(shuffle)
        self.head = nn.Conv2d(self.head_inputs(), features, 3)
        self.blocks = nn.ModuleList(_BLOCKS[kind](features, expansion) for _ in range(blocks))
        self.tail = nn.Conv2d(features, self.tail_outputs(), 3, padding=1)
        self.shuffle = nn.PixelShuffle(shuffle)
        self.gain = QpGain(qp_range=qp_range) if "qp" in self.planes else None
        initialise(self, self.head, self.head_spans(), self.tail)
        self.modulate(conditioning, features, qp_range)

    def forward(self, planes: Mapping[str, Tensor]) -> NetworkOutput:
        """Filter the planes.

        Returns:
            Luma (n, 1, h - 2·halo, w - 2·halo) in the scale of `rec_y` (x / 2^bit_depth), not clipped.
        """
        x = self.head(self.into_head(planes))
        for index, block in enumerate(self.blocks):
            x = block(x)
            if self.modulations is not None:
                x = self.modulations[index](x, planes["qp"])
        return self.out_of_tail(planes, self.tail(x))

    def draw(self, draft: Draft) -> dict[str, str]:
        """Add the nodes of the network."""
        x = draft.conv("head", self.draw_channels(draft, self.factor), self.head)
        return self.draw_tail(draft, self.draw_blocks(draft, x)[-1])

    def silence_added(self, small: FilterNetwork) -> None:
        """Make the blocks that `small` does not have the identity."""
        for block in list(self.blocks)[small.options["blocks"] :]:
            assert isinstance(block, Block)
            block.silence()


@dataclass(frozen=True)
class Size:
    """Size of a registered low-cost network; the attributes are options of `LowCost`."""

    features: int
    blocks: int
    expansion: int = 3
    kind: str = "separable"

    def describe(self, kmac: float) -> str:
        """Return the end of a description, with the cost in kMAC/pixel on the default planes."""
        plane = 9 * self.features / 1000  # 3x3 taps from the four samples of a cell to the features, by four samples
        return (
            f"{self.blocks} {self.kind} blocks, {self.features} features, expansion {self.expansion}, FiLM by QP; "
            f"{kmac} kMAC/pixel, and {plane:.2f} for each further plane."
        )


SMALLEST, SMALL, LARGE, TEACHER = Size(24, 6, 2, "depthwise"), Size(32, 5), Size(64, 6), Size(128, 8)
"""Sizes of the networks of about 5, 17, 75 and 400 kMAC/pixel."""

for _name, _size, _kmac in (
    ("low_cost_5", SMALLEST, 4.2),
    ("low_cost_17", SMALL, 15.9),
    ("low_cost_75", LARGE, 74.9),
    ("low_cost_400", TEACHER, 395.5),
):
    register(_name, LowCost, f"Trunk at half the height and width: {_size.describe(_kmac)}", **asdict(_size))
