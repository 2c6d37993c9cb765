"""What every filter network is: named planes in, the filtered plane or planes out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from codecnn.errors import ModelError
from codecnn.models._blocks import Block
from codecnn.models._conditioning import QpGain, QpModulation
from codecnn.models.graph._draft import Draft
from codecnn.models.planes import (
    CHROMA_PLANES,
    DECODED_PLANES,
    DIFFERENCE_PLANES,
    DIFFERENCE_SCALE,
    KNOWN_PLANES,
    RESIDUAL_SCALE,
    SIGNED_PLANES,
    centred,
    upsample_chroma,
)

Filtered = Tensor | dict[str, Tensor]
"""What a network returns: the filtered luma, or for several outputs each of them by name."""


class FilterNetwork(nn.Module):
    """Base of the filter networks: what all have, and what a family adds to its `forward`.

    To be exported a family has `draw`; to grow from a smaller network it has GROWS and what else growing asks; to start
    as one at full resolution, LIFTS and the option `shuffle`.

    planes   names of the input planes; all but those `beside` are channels of the first convolution, in this order
    outputs  the filtered components: ("y",), or ("y", "u", "v") with chroma at its own resolution
    halo     luma samples that the unpadded convolutions take away on each side (132 -> 128 is halo 2)
    radius   how far, in luma samples, an output sample looks into the input on each side; the context a tile needs
    stride   input height and width less twice the halo must be a multiple of it
    gain     where the QP is known, what the residual is multiplied by
    options  what the network was made with, as its weights' card holds it
    """

    GROWS: tuple[str, ...] = ()
    """Options that may be larger than those of a network that this one grows from; all others are the same."""
    LIFTS: tuple[str, ...] = ()
    """Options that are multiplied by s² where a network of shuffle 1 becomes one of shuffle s: its widths."""

    options: dict[str, Any]

    def __init__(
        self,
        planes: Sequence[str],
        *,
        halo: int,
        radius: int,
        stride: int,
        outputs: Sequence[str] = ("y",),
        beside: Sequence[str] = (),
    ) -> None:
        super().__init__()
        unknown = [name for name in planes if name not in KNOWN_PLANES]
        if unknown:
            raise ModelError(f"unknown plane {unknown[0]!r}: known are {', '.join(KNOWN_PLANES)}")
        needed = ["rec_y", *(f"rec_{name}" for name in outputs if name != "y"), *beside]
        if len(set(planes)) != len(planes):
            raise ModelError(f"each plane may be named once; got {', '.join(planes)}")
        for name in needed:
            if name not in planes:
                raise ModelError(f"planes must name {name}; got {', '.join(planes) or 'none'}")
        self.planes = tuple(planes)
        self.outputs = tuple(outputs)
        self.channels = tuple(name for name in planes if name not in beside)
        self.halo = halo
        self.radius = radius
        self.stride = stride
        self.gain: QpGain | None = None
        if any(name in CHROMA_PLANES for name in planes):
            if halo % 2:
                raise ModelError(f"a halo of {halo} luma samples has no half: planes of 4:2:0 chroma need an even one")
            self.stride = math.lcm(stride, 2)
            # Upsampling looks one chroma sample further, of which the farther luma sample is two away.
            self.radius = radius + 2

    def check(self, planes: Mapping[str, Tensor]) -> None:
        """Raise ModelError that names a plane that is missing or does not fit `rec_y` (n, 1, h, w)."""
        for name in self.planes:
            if name not in planes:
                raise ModelError(f"the network needs the plane {name!r}, which is missing")
        shape = planes["rec_y"].shape
        if len(shape) != 4 or any((size - 2 * self.halo) % self.stride or size <= 2 * self.halo for size in shape[2:]):
            raise ModelError(
                f"rec_y of shape {tuple(shape)} does not fit: (n, 1, h, w) with h and w less {2 * self.halo} "
                f"a positive multiple of {self.stride}"
            )
        chroma = (shape[0], 1, shape[2] // 2, shape[3] // 2)
        for name in self.planes:
            fitting = chroma if name in CHROMA_PLANES else shape
            if planes[name].shape not in (fitting, (shape[0], 1, 1, 1)):
                raise ModelError(f"plane {name!r} has shape {tuple(planes[name].shape)}, rec_y {tuple(shape)}")

    def stack(self, planes: Mapping[str, Tensor]) -> Tensor:
        """The channels as one tensor (n, len(channels), h, w), centred and scaled to about [-2, 2].

        Chroma is upsampled to luma's size. Raises ModelError as `check` does.
        """
        self.check(planes)
        shape = planes["rec_y"].shape
        return torch.cat([self.entering(planes, name).expand(shape) for name in self.channels], dim=1)

    def entering(self, planes: Mapping[str, Tensor], name: str) -> Tensor:
        """A plane (n, 1, h, w) as the first convolution gets it, chroma upsampled; a constant one is (n, 1, 1, 1)."""
        if name in DIFFERENCE_PLANES:
            return (planes[name] - planes["rec_y"]) * DIFFERENCE_SCALE
        if name in SIGNED_PLANES:
            return (planes[name] - 0.5) * DIFFERENCE_SCALE
        return centred(upsample_chroma(planes[name]) if name in CHROMA_PLANES else planes[name])

    def crop(self, plane: Tensor) -> Tensor:
        """`plane` (n, 1, h, w) without the halo: (n, 1, h - 2·halo, w - 2·halo); a constant plane stays as it is."""
        if self.halo == 0 or plane.shape[2:] == (1, 1):
            return plane
        return plane[:, :, self.halo : -self.halo, self.halo : -self.halo]

    def repaired(self, planes: Mapping[str, Tensor], residual: Tensor) -> Tensor:
        """Cropped `rec_y` and the last convolution's output (n, 1, h, w), scaled and multiplied by the QP's gain.

        In the samples' own type: bfloat16, in which autocast may have computed the residual, has 8 bits.
        """
        residual = residual.to(planes["rec_y"].dtype) * RESIDUAL_SCALE
        if self.gain is not None:
            residual = residual * self.gain(self.crop(planes["qp"]))
        return self.crop(planes["rec_y"]) + residual

    def gain_of(self, output: str) -> QpGain | None:
        """What the residual of an output is multiplied by: the gain, unless a family has others for some outputs."""
        return self.gain

    def sample_spans(self, cells: int, width: int | None = None) -> list[slice]:
        """Ranges of the first convolution's channels that hold decoded samples, as `initialise` takes them.

        A plane has `cells` channels, and all of them are together where no width is given.
        """
        starts = [index * cells for index, name in enumerate(self.channels) if name in DECODED_PLANES]
        width = width or cells
        return [slice(at, at + width) for start in starts for at in range(start, start + cells, width)]

    def head_width(self, plane: str) -> int | None:
        """Channels of the first convolution that a plane has; None where all have equally many."""
        return None

    def draw(self, draft: Draft) -> dict[str, str]:
        """Add the nodes of the network, folded and in float64, and return the node of each output's residual."""
        raise ModelError(f"a network of the class {type(self).__name__} has no graph to export")

    def draw_channels(self, draft: Draft, factor: int = 1) -> str:
        """The network's channels at luma's resolution, unshuffled by `factor`, as one tensor."""
        draft.once("rec_y")
        parts = [
            draft.shuffled(f"{name}.unshuffled", "unshuffle", draft.plane_at_luma(name), factor)
            for name in self.channels
        ]
        return draft.joined("channels", parts)

    def draw_output(self, draft: Draft, output: str, residual: str) -> None:
        """Add the output node, which scales a residual and adds it to the decoded plane, as `repaired` does."""
        by_qp = self.gain_of(output)
        gain = np.ones(1) if by_qp is None else by_qp.table()
        plane = draft.once(f"rec_{output}")
        crop = self.halo // (1 if output == "y" else 2)
        draft.add(output, "output", residual, plane, tensors={"gain": gain * RESIDUAL_SCALE}, crop=crop)

    def concatenated(self, name: str) -> list[int]:
        """Widths of the tensors whose concatenation the convolution of weight `name` takes; empty for one tensor."""
        return []

    def stacked(self, name: str) -> int:
        """Number of equal parts of the outputs of the tensor `name`, each of which grows at its own end."""
        return 1

    def of_own_kind(self, small: "FilterNetwork", source: str) -> "FilterNetwork":
        """A smaller network that this one may grow from, as one of its own kind that computes the same.

        By default it must be one already, as growing then checks; errors call it `source`.
        """
        return small

    def silence_added(self, small: "FilterNetwork") -> None:
        """Let the parts that the network has beyond `small` change nothing; by default there are none to silence."""


class Trunk(FilterNetwork):
    """Blocks of one width one after the other, each followed by what the QP makes of its features.

    They work on 1/`factor` of the height and width: `unshuffle`, `head`, blocks, `tail`, `shuffle`.
    """

    OUTPUTS: tuple[str, ...] = ("y",)

    factor: int
    unshuffle: nn.Module
    head: nn.Conv2d
    blocks: nn.ModuleList
    modulations: nn.ModuleList | None
    tail: nn.Conv2d | nn.ConvTranspose2d
    shuffle: nn.Module

    def head_inputs(self) -> int:
        """Channels of the first convolution."""
        return len(self.channels) * self.factor**2

    def tail_outputs(self) -> int:
        """Channels of the last convolution."""
        return self.factor**2

    def head_spans(self) -> list[slice]:
        """Channels of the first convolution that hold decoded samples, those of one plane together."""
        return self.sample_spans(self.factor**2)

    def into_head(self, planes: Mapping[str, Tensor]) -> Tensor:
        """The planes as the first convolution gets them, (n, head_inputs(), h / factor, w / factor)."""
        unshuffled: Tensor = self.unshuffle(self.stack(planes))
        return unshuffled

    def out_of_tail(self, planes: Mapping[str, Tensor], made: Tensor) -> Filtered:
        """What the network returns, of what the last convolution made."""
        return self.repaired(planes, self.shuffle(made))

    def draw_tail(self, draft: Draft, x: str) -> dict[str, str]:
        """Add the last convolution and what follows it, and return the node of each output's residual."""
        x = draft.conv("tail", x, self.tail)
        return {"y": draft.shuffled("tail.shuffled", "shuffle", x, self.factor)}

    def modulate(self, conditioning: str, features: int) -> None:
        """Make the modulations of all blocks, none where the QP comes as a plane."""
        made = (QpModulation(features, conditioning) for _ in self.blocks)
        self.modulations = None if conditioning == "plane" else nn.ModuleList(made)

    def draw_blocks(self, draft: Draft, x: str) -> list[str]:
        """Add the nodes of all blocks and modulations behind the node `x`, and return the output of each block."""
        made = []
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x = block.draw(draft, f"blocks.{index}", x)
            if self.modulations is not None:
                modulation = self.modulations[index]
                assert isinstance(modulation, QpModulation)
                x = modulation.draw(draft, f"modulations.{index}", x)
            made.append(x)
        return made

    def stacked(self, name: str) -> int:
        # FiLM's rows are factors, then offsets.
        return 2 if self.options["conditioning"] == "film" and ".out." in name else 1


def named_outputs(filtered: Filtered) -> dict[str, Tensor]:
    """What a network returned, by component; luma alone is {"y": ...}."""
    return {"y": filtered} if isinstance(filtered, Tensor) else filtered
