"""Base classes of the filter networks, the registry of architectures, and networks as graphs."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from codecnn.base.errors import ModelError
from codecnn.models.blocks import Block, QpGain, QpModulation
from codecnn.models.graph.nodes import Draft, Graph
from codecnn.models.inference import fold
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

NetworkOutput = Tensor | dict[str, Tensor]
"""Result of a network: the filtered luma plane, or for several outputs a plane by component."""


class FilterNetwork(nn.Module):
    """Base class of the filter networks.

    A family overrides `forward`. To be exported it overrides `draw`; to grow from a smaller network it sets `GROWS`
    and overrides `concatenated` and `silence_added`; to start from a full-resolution network it sets `LIFTS` and has
    the option `shuffle`.

    Attributes:
        planes: Names of the input planes.
        outputs: Filtered components: ("y",), or ("y", "u", "v") with chroma at its own resolution.
        channels: Planes that are channels of the first convolution, in this order: all but the `conditions`.
        halo: Luma samples that the unpadded convolutions remove on each side (132 -> 128 is halo 2).
        radius: Distance, in luma samples, over which an output sample depends on the input; the context of a tile.
        stride: Height and width of the input minus twice the halo must be multiples of it.
        gain: Factor on the residual as a function of the QP; None if the QP is unknown.
        options: Options with which the network was built, as its card holds them.

    Args:
        planes: Names of the input planes.
        halo: As the attribute.
        radius: As the attribute, for planes at the resolution of luma.
        stride: As the attribute, for planes at the resolution of luma.
        outputs: Filtered components.
        conditions: Planes that are no channels of the first convolution, such as the QP of a network with modulations.

    Raises:
        ModelError: A plane is unknown, missing or named twice, or the halo does not suit chroma.
    """

    GROWS: tuple[str, ...] = ()
    """Options that may be larger than those of the network that this one grows from; all others must be equal."""

    LIFTS: tuple[str, ...] = ()
    """Options (widths) that are multiplied by s² when a network of shuffle 1 is lifted to shuffle s."""

    predicts_picture: bool = False
    """True if the output is the picture itself and not a residual, so that its samples need more bits than bfloat16."""

    options: dict[str, Any]

    def __init__(
        self,
        planes: Sequence[str],
        *,
        halo: int,
        radius: int,
        stride: int,
        outputs: Sequence[str] = ("y",),
        conditions: Sequence[str] = (),
    ) -> None:
        super().__init__()
        unknown = [name for name in planes if name not in KNOWN_PLANES]
        if unknown:
            raise ModelError(f"unknown plane {unknown[0]!r}: known are {', '.join(KNOWN_PLANES)}")
        needed = ["rec_y", *(f"rec_{name}" for name in outputs if name != "y"), *conditions]
        if len(set(planes)) != len(planes):
            raise ModelError(f"each plane may be named once; got {', '.join(planes)}")
        for name in needed:
            if name not in planes:
                raise ModelError(f"planes must name {name}; got {', '.join(planes) or 'none'}")
        self.planes = tuple(planes)
        self.outputs = tuple(outputs)
        self.channels = tuple(name for name in planes if name not in conditions)
        self.halo = halo
        self.radius = radius
        self.stride = stride
        self.gain: QpGain | None = None
        if any(name in CHROMA_PLANES for name in planes):
            if halo % 2:
                raise ModelError(f"a halo of {halo} luma samples has no half: planes of 4:2:0 chroma need an even one")
            self.stride = math.lcm(stride, 2)
            # Upsampling depends on one more chroma sample, whose farther luma sample is two samples away.
            self.radius = radius + 2

    def check(self, planes: Mapping[str, Tensor]) -> None:
        """Raise ModelError if a plane is missing or its shape does not fit `rec_y` (n, 1, h, w)."""
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
        """Return the channels as one tensor (n, len(channels), h, w), centred and scaled to about [-2, 2].

        Chroma is upsampled to the size of luma. Raises ModelError as `check` does.
        """
        self.check(planes)
        shape = planes["rec_y"].shape
        return torch.cat([self.entering(planes, name).expand(shape) for name in self.channels], dim=1)

    def entering(self, planes: Mapping[str, Tensor], name: str) -> Tensor:
        """Return a plane (n, 1, h, w) as it enters the first convolution; a constant plane is (n, 1, 1, 1)."""
        if name in DIFFERENCE_PLANES:
            return (planes[name] - planes["rec_y"]) * DIFFERENCE_SCALE
        if name in SIGNED_PLANES:
            return (planes[name] - 0.5) * DIFFERENCE_SCALE
        return centred(upsample_chroma(planes[name]) if name in CHROMA_PLANES else planes[name])

    def crop(self, plane: Tensor) -> Tensor:
        """Remove the halo of a plane (n, 1, h, w); a constant plane (n, 1, 1, 1) is returned as it is."""
        if self.halo == 0 or plane.shape[2:] == (1, 1):
            return plane
        return plane[:, :, self.halo : -self.halo, self.halo : -self.halo]

    def repaired(self, planes: Mapping[str, Tensor], residual: Tensor) -> Tensor:
        """Add the scaled output of the last convolution (n, 1, h, w), times the gain by QP, to the cropped `rec_y`.

        The sum has the type of the samples: bfloat16, in which autocast may compute the residual, has 8 bits only.
        """
        residual = residual.to(planes["rec_y"].dtype) * RESIDUAL_SCALE
        if self.gain is not None:
            residual = residual * self.gain(self.crop(planes["qp"]))
        return self.crop(planes["rec_y"]) + residual

    def gain_of(self, output: str) -> QpGain | None:
        """Return the gain on the residual of an output; a family may have different gains."""
        return self.gain

    def sample_spans(self, cells: int, width: int | None = None) -> list[slice]:
        """Return the ranges of input channels of the first convolution that hold decoded samples, for `initialise`.

        Args:
            cells: Channels of each plane.
            width: Channels in each range; by default all channels of a plane.
        """
        starts = [index * cells for index, name in enumerate(self.channels) if name in DECODED_PLANES]
        width = width or cells
        return [slice(at, at + width) for start in starts for at in range(start, start + cells, width)]

    def head_width(self, plane: str) -> int | None:
        """Return the number of input channels of a plane, or None if all planes have equally many."""
        return None

    @property
    def has_graph(self) -> bool:
        """True if the class overrides `draw`."""
        return type(self).draw is not FilterNetwork.draw

    def draw(self, draft: Draft) -> dict[str, str]:
        """Add the nodes of the folded float64 network; return the node of each output's residual by output name."""
        raise ModelError(f"a network of the class {type(self).__name__} has no graph to export")

    def draw_channels(self, draft: Draft, factor: int = 1) -> str:
        """Add the channels at the resolution of luma, unshuffled by `factor`, as one tensor."""
        draft.once("rec_y")
        parts = [
            draft.shuffled(f"{name}.unshuffled", "unshuffle", draft.plane_at_luma(name), factor)
            for name in self.channels
        ]
        return draft.joined("channels", parts)

    def draw_output(self, draft: Draft, output: str, residual: str) -> None:
        """Add the output node, which adds the scaled residual to the decoded plane like `repaired`."""
        by_qp = self.gain_of(output)
        gain = np.ones(1) if by_qp is None else by_qp.table()
        plane = draft.once(f"rec_{output}")
        crop = self.halo // (1 if output == "y" else 2)
        draft.add(output, "output", residual, plane, tensors={"gain": gain * RESIDUAL_SCALE}, crop=crop)

    def concatenated(self, name: str) -> list[int]:
        """Return the widths of the concatenated inputs of the convolution with weight `name`; empty for one input."""
        return []

    def stacked(self, name: str) -> int:
        """Return the number of equal parts of the outputs of tensor `name`, each of which grows at its end."""
        return 1

    def of_own_kind(self, small: "FilterNetwork", source: str) -> "FilterNetwork":
        """Convert a smaller network of another family into an equivalent one of this class, before growing from it.

        By default the network is returned as it is. `source` names it in error messages.
        """
        return small

    def silence_added(self, small: "FilterNetwork") -> None:
        """Make the parts that `small` does not have the identity; by default there are none."""


class Trunk(FilterNetwork):
    """Base class of networks that are a chain of blocks of equal width, each followed by a modulation by the QP.

    The order is `unshuffle`, `head`, blocks, `tail`, `shuffle`; blocks work on 1/`factor` of the height and width.
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
        """Return the number of input channels of the first convolution."""
        return len(self.channels) * self.factor**2

    def tail_outputs(self) -> int:
        """Return the number of output channels of the last convolution."""
        return self.factor**2

    def head_spans(self) -> list[slice]:
        """Return the ranges of input channels that hold decoded samples, those of one plane together."""
        return self.sample_spans(self.factor**2)

    def into_head(self, planes: Mapping[str, Tensor]) -> Tensor:
        """Return the input of the first convolution, shape (n, head_inputs(), h / factor, w / factor)."""
        unshuffled: Tensor = self.unshuffle(self.stack(planes))
        return unshuffled

    def out_of_tail(self, planes: Mapping[str, Tensor], residual: Tensor) -> NetworkOutput:
        """Return the result of the network from the output of the last convolution."""
        return self.repaired(planes, self.shuffle(residual))

    def draw_tail(self, draft: Draft, x: str) -> dict[str, str]:
        """Add the last convolution and the shuffle; return the node of each output's residual by output name."""
        x = draft.conv("tail", x, self.tail)
        return {"y": draft.shuffled("tail.shuffled", "shuffle", x, self.factor)}

    def modulate(self, conditioning: str, features: int, qp_range: Sequence[int] | None = None) -> None:
        """Create the modulations of all blocks; there are none if the QP is an input plane."""
        modulations = (QpModulation(features, conditioning, qp_range) for _ in self.blocks)
        self.modulations = None if conditioning == "plane" else nn.ModuleList(modulations)

    def draw_blocks(self, draft: Draft, x: str) -> list[str]:
        """Add all blocks and modulations after node `x`; return the output node of each block."""
        outputs = []
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x = block.draw(draft, f"blocks.{index}", x)
            if self.modulations is not None:
                modulation = self.modulations[index]
                assert isinstance(modulation, QpModulation)
                x = modulation.draw(draft, f"modulations.{index}", x)
            outputs.append(x)
        return outputs

    def stacked(self, name: str) -> int:
        """Return 2 for the rows of FiLM, which are factors and then offsets, else 1."""
        rows = ".out." in name or ".beyond." in name
        return 2 if self.options["conditioning"] == "film" and rows else 1


def named_outputs(filtered: NetworkOutput) -> dict[str, Tensor]:
    """Return the result of a network by component; a single tensor is luma, "y"."""
    return {"y": filtered} if isinstance(filtered, Tensor) else filtered


def build_graph(model: FilterNetwork) -> Graph:
    """Build the graph that computes the same as `model` in evaluation mode, up to float rounding.

    All linear parts become part of the convolutions: branches, batch normalisation, the 2x2 DCT and EDSR's scale; a
    transposed convolution becomes a convolution and a shuffle. Weights are folded in float64 to keep their precision.

    Raises:
        ModelError: The network, or one of its blocks, has no `draw`.
    """
    double = fold(model).double().cpu().requires_grad_(False)
    draft = Draft()
    for output, residual in double.draw(draft).items():
        double.draw_output(draft, output, residual)
    graph = Graph(tuple(draft.nodes))
    if (graph.halo, graph.outputs) != (model.halo, model.outputs):
        raise ModelError(f"the graph of {type(model).__name__} has halo {graph.halo}, the network {model.halo}")
    return graph


class Architecture(NamedTuple):
    """A registered architecture: a class or function that builds it, a line about it, and its default options."""

    build: Callable[..., FilterNetwork]
    description: str
    options: dict[str, Any]


ARCHITECTURES: dict[str, Architecture] = {}
"""Registered architectures by name."""


def register(name: str, build: Callable[..., FilterNetwork], description: str, **options: Any) -> None:
    """Register an architecture for `create_model`.

    Args:
        name: Name of the architecture, without a dot.
        build: Class or function that takes options and returns the network.
        description: One line for `codecnn models`, ending with the cost.
        options: Options for `build` that a user may override.

    Raises:
        ModelError: The name has a dot, which separates architecture and tag.
    """
    if "." in name:
        raise ModelError(f"the architecture {name!r} has a dot in its name, which separates architecture and tag")
    ARCHITECTURES[name] = Architecture(build, description, options)
