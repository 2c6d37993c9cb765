"""Low-cost filters: a trunk at half the height and width of 1x1 convolutions and factorised or depthwise 3x3 ones.

Most multiply-accumulates of a small network go into 3x3 taps between all channels. Here the channels mix in 1x1
convolutions, wide in the middle, and the spatial taps are either 1x3 and 3x1 between all channels (`SeparableBlock`)
or 3x3 within each channel, trained in branches that fold (`DepthwiseBlock`).
"""

from collections.abc import Mapping, Sequence
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


DECODER_PLANES = ("slice_type", "unf_y", "pred_y", "bs_v", "bs_h")
"""Input planes that a VVC decoder has beside the decoded picture, for luma."""
NEIGHBOUR_PLANES = ("prev_mc_y", "next_mc_y")
"""Luma of the decoded pictures before and after in output order, motion-compensated."""
SECOND_NEIGHBOURS = ("prev2_mc_y", "next2_mc_y")
"""The same of the pictures two before and two after."""


def _register(
    name: str, blocks: int, kind: str, features: int, expansion: int, kmac: float, planes: Sequence[str] = ()
) -> None:
    """Register a low-cost network; `planes` are further input planes."""
    description = f"Quarter-resolution trunk of {blocks} {kind} blocks, {features} features, expansion {expansion}"
    description += "".join(f", with {plane}" for plane in planes)
    options: dict[str, Any] = {"features": features, "blocks": blocks, "expansion": expansion, "kind": kind}
    options |= {"planes": ("rec_y", "qp", *planes)} if planes else {}
    register(name, LowCost, f"{description}, FiLM by QP; {kmac} kMAC/pixel.", **options)


_register("low_cost_17", 5, "separable", 32, 3, 15.9)
_register("low_cost_75", 6, "separable", 64, 3, 74.9)
_register("low_cost_5", 6, "depthwise", 24, 2, 4.2)
_register("low_cost_17_unf", 5, "separable", 32, 3, 16.2, ["unf_y"])
_register("low_cost_75_unf", 6, "separable", 64, 3, 75.5, ["unf_y"])
_register("low_cost_400_unf", 8, "separable", 128, 3, 396.7, ["unf_y"])
_register("low_cost_17_dec", 5, "separable", 32, 3, 17.4, DECODER_PLANES)
_register("low_cost_17_dec_mc", 5, "separable", 32, 3, 18.0, [*DECODER_PLANES, *NEIGHBOUR_PLANES])
_register("low_cost_17_dec_mc4", 5, "separable", 32, 3, 18.5, [*DECODER_PLANES, *NEIGHBOUR_PLANES, *SECOND_NEIGHBOURS])
_register("low_cost_75_dec_mc", 6, "separable", 64, 3, 78.9, [*DECODER_PLANES, *NEIGHBOUR_PLANES])
_register("low_cost_75_dec_mc4", 6, "separable", 64, 3, 80.1, [*DECODER_PLANES, *NEIGHBOUR_PLANES, *SECOND_NEIGHBOURS])
_register("low_cost_17_mc", 5, "separable", 32, 3, 16.8, ["slice_type", *NEIGHBOUR_PLANES])
_register("low_cost_17_mc4", 5, "separable", 32, 3, 17.4, ["slice_type", *NEIGHBOUR_PLANES, *SECOND_NEIGHBOURS])
