"""Residual dense networks (RDN): the dense block, its form for the CPU, and the registered architectures.

Source: Zhang et al., "Residual Dense Network for Image Super-Resolution", CVPR 2018, without the up-scaling, with an
unpadded head (132 -> 128), and with the output of the network added to the decoded picture.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint as recompute

from codecnn.base.errors import ModelError
from codecnn.models.base import NetworkOutput, Trunk, register
from codecnn.models.blocks import (
    CONDITIONING,
    Block,
    Haar,
    InverseHaar,
    QpGain,
    check_choice,
    check_counts,
    initialise,
)
from codecnn.models.graph.nodes import Array, Draft, arrays
from codecnn.models.inference import GROUP_WIDTH, Scratch, add_convolution


class RDB(Block):
    """Residual dense block (RDB): dense 3x3 convolutions with ReLU, and a 1x1 fusion.

    Args:
        features: Channels of input and output.
        layers: Number of 3x3 convolutions; each takes the input and the outputs of all layers before.
        growth: Output channels of each layer.
        local_residual: Add the input to the output (Zhang et al., CVPR 2018, section 3.2).
        checkpoint: Keep only the input during training and compute the rest again in the backward pass.
    """

    def __init__(
        self, features: int, layers: int, growth: int, *, local_residual: bool = True, checkpoint: bool = False
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(features + index * growth, growth, 3, padding=1) for index in range(layers)
        )
        self.fusion = nn.Conv2d(features + layers * growth, features, 1)
        self.sizes = (features, layers, growth)
        self.local_residual = local_residual
        self.checkpoint = checkpoint

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        if not torch.is_grad_enabled():
            fused = self._in_one_buffer(x)
        elif self.checkpoint:
            fused = recompute(self._concatenating, x, use_reentrant=False)
        else:
            fused = self._concatenating(x)
        return x + fused if self.local_residual else fused

    def _concatenating(self, x: Tensor) -> Tensor:
        dense = x
        for layer in self.layers:
            dense = torch.cat([dense, F.relu(layer(dense))], dim=1)
        fused: Tensor = self.fusion(dense)
        return fused

    def _in_one_buffer(self, x: Tensor) -> Tensor:
        """Compute the fusion without gradients; layers write into slices of one buffer instead of concatenating."""
        count, start, height, width = x.shape
        layout = torch.channels_last if x.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format
        dense = torch.empty(
            (count, self.fusion.in_channels, height, width), dtype=x.dtype, device=x.device, memory_format=layout
        )
        dense[:, :start] = x
        for layer in self.layers:
            new = layer(dense[:, :start])
            stop = start + new.shape[1]
            torch.clamp(new, min=0, out=dense[:, start:stop])
            start = stop
        fused: Tensor = self.fusion(dense)
        return fused

    def fused(self, scratch: Scratch) -> nn.Module:
        """Return the block for inference on the CPU."""
        return GroupedRDB(self, scratch)

    def draw(self, draft: Draft, name: str, x: str) -> str:
        """Add the nodes of the block."""
        dense = x
        for index, layer in enumerate(self.layers):
            new = draft.conv(f"{name}.layers.{index}", dense, layer, relu=1)
            dense = draft.add(f"{name}.dense.{index}", "concat", dense, new)
        fused = draft.conv(f"{name}.fusion", dense, self.fusion)
        return draft.add(f"{name}.sum", "add", x, fused) if self.local_residual else fused


class Fusion(nn.Conv2d):
    """1x1 convolution over the concatenation of tensors (n, features, h, w) that an iterator yields."""

    def __init__(self, blocks: int, features: int) -> None:
        super().__init__(blocks * features, features, 1)

    def forward(self, parts: Iterable[Tensor]) -> Tensor:
        """Compute the fusion of all parts."""
        return super().forward(torch.cat(list(parts), dim=1))

    def fused(self, scratch: Scratch) -> nn.Module:
        """Return the fusion for inference on the CPU."""
        return SummedFusion(self)


def rdb_macs(features: int, layers: int, growth: int) -> int:
    """Compute the multiply-accumulates of an RDB per sample: 9·g·(n·f + g·n·(n - 1) / 2) + f·(f + n·g).

    Layer k = 0 ... n - 1 computes g features from f + k·g with 3x3 taps, 9·g·(f + k·g), and the sum of k is
    n·(n - 1) / 2. The fusion computes f features from f + n·g with one tap. The cost is quadratic in n and in g.
    """
    return 9 * growth * (layers * features + growth * layers * (layers - 1) // 2) + features * (
        features + layers * growth
    )


class GroupedRDB(nn.Module):
    """An RDB for inference on the CPU, without concatenation and with several layers in one convolution.

    A convolution over concatenated features is the sum of convolutions over each of them. Layers are taken in groups of
    about `GROUP_WIDTH` features, and each group has one tensor of sums. The block's input and each earlier group
    contribute to all layers of a group by one wide convolution; only the contributions of layers to others of the same
    group need narrow ones. The local residual is part of the weights of the fusion.

    oneDNN computes 16 output channels per AVX-512 instruction. A narrow convolution leaves much of that idle and reads
    its whole input for few results.

    Args:
        block: The block.
        scratch: Memory for the tensors of sums, which is reused from block to block and tile to tile. Blocks that
            share it must run one after the other.
    """

    def __init__(self, block: RDB, scratch: Scratch) -> None:
        super().__init__()
        self.scratch = scratch
        first, count, self.growth = block.sizes
        size = max(1, round(GROUP_WIDTH / self.growth))
        groups = [range(start, min(start + size, count)) for start in range(0, count, size)]
        weights, biases = zip(*map(_parameters, block.layers), strict=True)

        def columns(layers: range) -> slice:
            return slice(first + layers.start * self.growth, first + layers.stop * self.growth)

        def stacked(layers: range, source: slice) -> Tensor:
            return _channels_last(torch.cat([weights[index][:, source] for index in layers]))

        self.sizes = [len(group) for group in groups]
        self.from_input = [stacked(group, slice(first)) for group in groups]
        self.biases = [torch.cat([biases[index] for index in group]) for group in groups]
        self.from_groups = [
            [stacked(group, columns(before)) for before in groups[:i]] for i, group in enumerate(groups)
        ]
        self.within = [
            [stacked(range(index + 1, group.stop), columns(range(index, index + 1))) for index in group[:-1]]
            for group in groups
        ]
        fusion, self.fusion_bias = _parameters(block.fusion)
        through = fusion[:, :first].clone()
        if block.local_residual:
            through += torch.eye(first, dtype=fusion.dtype)[:, :, None, None]
        self.fusion_input = _channels_last(through)
        self.fusion_groups = [_channels_last(fusion[:, columns(group)]) for group in groups]

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        out = F.conv2d(x, self.fusion_input, self.fusion_bias)
        done: list[Tensor] = []
        for group, size in enumerate(self.sizes):
            sums = self.scratch.like(x, f"sums {group}", size * self.growth)
            sums.copy_(self.biases[group][:, None, None])
            add_convolution(sums, x, self.from_input[group])
            for before, weight in zip(done, self.from_groups[group], strict=True):
                add_convolution(sums, before, weight)
            for index, weight in enumerate(self.within[group]):
                start, stop = index * self.growth, (index + 1) * self.growth
                layer = self.scratch.like(x, "layer", self.growth)
                torch.clamp(sums[:, start:stop], min=0, out=layer)
                rest = self.scratch.like(x, f"rest {weight.shape[0]}", weight.shape[0])
                rest.copy_(sums[:, stop:])
                add_convolution(rest, layer, weight)
                sums[:, stop:] = rest
            done.append(sums.relu_())
            add_convolution(out, sums, self.fusion_groups[group])
        return out


class SummedFusion(nn.Module):
    """A `Fusion` that adds the contribution of each part as it arrives, so that no part is kept."""

    def __init__(self, fusion: Fusion) -> None:
        super().__init__()
        weight, self.bias = _parameters(fusion)
        self.weights = [_channels_last(part) for part in torch.split(weight, fusion.out_channels, dim=1)]

    def forward(self, parts: Iterable[Tensor]) -> Tensor:
        """Compute the fusion of all parts."""
        parts = iter(parts)
        sums = F.conv2d(next(parts), self.weights[0], self.bias)
        for part, weight in zip(parts, self.weights[1:], strict=True):
            add_convolution(sums, part, weight)
        return sums


def _parameters(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a convolution, without gradients."""
    assert isinstance(layer, nn.Conv2d)
    assert layer.bias is not None
    return layer.weight.detach(), layer.bias.detach()


def _channels_last(weight: Tensor) -> Tensor:
    return weight.contiguous(memory_format=torch.channels_last)


class RDN(Trunk):
    """RDN(features, blocks, layers, growth) with PixelUnshuffle and PixelShuffle by `shuffle` around it.

    planes -> unshuffle -> 3x3 -> 3x3 -> RDB ... RDB -> 1x1 -> 3x3 -> (+) -> 3x3 -> shuffle -> x gain(QP) -> (+) -> out
                           unpadded |      `------+------^ all D      ^                                      ^
                            first features -------------------------'         cropped rec_y ---------------'

    With shuffle s the trunk works on 1/s of the height and width, and the halo is 2·s samples. By default the last
    convolution starts at zero: an untrained network returns the decoded picture.

    Args:
        features: Channels of the trunk.
        blocks: Number of RDBs.
        layers: Layers of each RDB.
        growth: Output channels of each layer.
        shuffle: Factor of PixelUnshuffle and PixelShuffle.
        planes: Names of the input planes.
        conditioning: "plane": the QP is a channel; "film" or "se": it modulates the features of every block
            (`QpModulation`).
        global_residual: Add the first features after the blocks.
        local_residual: Add the input of each block to its output.
        output: "residual"; or "picture": the network computes the samples themselves, without a zero start.
        head: "3x3": two unpadded convolutions, with the first features between them; or "5x5": one convolution of
            equal halo.
        upsampling: "shuffle"; or "transposed": a transposed convolution of the same support and cost.
        transform: "unshuffle"; or "haar": the 2x2 DCT before and after the trunk, for shuffle 2 only.
        initialisation: "zero": as by `initialise`; or "torch": PyTorch's default for all convolutions.
        checkpoint: Keep only the input of each block during training and compute the rest again.
    """

    GROWS = ("features", "blocks", "layers", "growth")
    LIFTS: tuple[str, ...] = ("features", "growth")

    def __init__(
        self,
        features: int = 32,
        blocks: int = 3,
        layers: int = 6,
        growth: int = 16,
        shuffle: int = 1,
        planes: Sequence[str] = ("rec_y", "qp"),
        conditioning: str = "plane",
        global_residual: bool = True,
        local_residual: bool = True,
        output: str = "residual",
        head: str = "3x3",
        upsampling: str = "shuffle",
        transform: str = "unshuffle",
        initialisation: str = "zero",
        checkpoint: bool = False,
    ) -> None:
        options: dict[str, Any] = {
            "features": features,
            "blocks": blocks,
            "layers": layers,
            "growth": growth,
            "shuffle": shuffle,
            "planes": list(planes),
            "conditioning": conditioning,
            "global_residual": global_residual,
            "local_residual": local_residual,
            "output": output,
            "head": head,
            "upsampling": upsampling,
            "transform": transform,
            "initialisation": initialisation,
            "checkpoint": checkpoint,
        }
        check_counts("RDN", features=features, blocks=blocks, layers=layers, growth=growth, shuffle=shuffle)
        check_choice("RDN", "conditioning", conditioning, CONDITIONING)
        check_choice("RDN", "output", output, ("residual", "picture"))
        check_choice("RDN", "head", head, ("3x3", "5x5"))
        check_choice("RDN", "upsampling", upsampling, ("shuffle", "transposed"))
        check_choice("RDN", "transform", transform, ("unshuffle", "haar"))
        check_choice("RDN", "initialisation", initialisation, ("zero", "torch"))
        if transform == "haar" and (shuffle != 2 or upsampling != "shuffle"):
            raise ModelError("RDN option transform: haar needs shuffle 2 and upsampling by shuffle")
        # 3x3 convolutions on the longest path: two in the head, all of every block, two in the tail. A sample of an
        # s x s cell depends on whole cells, at most s - 1 samples beyond the distance of the cells.
        cells = 2 + blocks * layers + 2
        super().__init__(
            planes,
            halo=2 * shuffle,
            radius=cells * shuffle + shuffle - 1,
            stride=shuffle,
            outputs=self.OUTPUTS,
            conditions=() if conditioning == "plane" else ("qp",),
        )
        self.options = options
        self.factor = shuffle
        self.predicts_picture = output == "picture"
        self.global_residual = global_residual
        self.unshuffle = Haar() if transform == "haar" else nn.PixelUnshuffle(shuffle)
        self.head = nn.Conv2d(self.head_inputs(), features, 3 if head == "3x3" else 5)
        self.head2 = nn.Conv2d(features, features, 3) if head == "3x3" else None
        self.blocks = nn.ModuleList(
            RDB(features, layers, growth, local_residual=local_residual, checkpoint=checkpoint) for _ in range(blocks)
        )
        self.fusion = Fusion(blocks, features)
        self.fusion2 = nn.Conv2d(features, features, 3, padding=1)
        if upsampling == "shuffle":
            self.tail = nn.Conv2d(features, self.tail_outputs(), 3, padding=1)
            self.shuffle = InverseHaar() if transform == "haar" else nn.PixelShuffle(shuffle)
        else:
            self.tail = nn.ConvTranspose2d(features, 1, 3 * shuffle, stride=shuffle, padding=shuffle)
            self.shuffle = nn.Identity()
        self.gain = QpGain() if "qp" in self.planes and not self.predicts_picture else None
        if initialisation == "zero":
            initialise(self, self.head, self.head_spans(), None if self.predicts_picture else self.tail)
        self.modulate(conditioning, features)

    def head_spans(self) -> list[slice]:
        """Return the ranges of input channels that hold decoded samples; each band of the 2x2 DCT is a range."""
        return self.sample_spans(self.factor**2, 1 if isinstance(self.unshuffle, Haar) else None)

    def _block_outputs(self, x: Tensor, planes: Mapping[str, Tensor]) -> Iterator[Tensor]:
        for index, block in enumerate(self.blocks):
            x = block(x)
            if self.modulations is not None:
                x = self.modulations[index](x, planes["qp"])
            yield x

    def features(self, x: Tensor, planes: Mapping[str, Tensor]) -> Tensor:
        """Compute the features (n, f, h - 4, w - 4) before the last convolution from channels (n, c, h, w)."""
        first = self.head(x)
        x = first if self.head2 is None else self.head2(first)
        x = self.fusion2(self.fusion(self._block_outputs(x, planes)))
        if self.global_residual:
            x = x + (first if self.head2 is None else first[:, :, 1:-1, 1:-1])
        return x

    def forward(self, planes: Mapping[str, Tensor]) -> NetworkOutput:
        """Filter the planes.

        Returns:
            Luma (n, 1, h - 2·halo, w - 2·halo) in the scale of `rec_y` (x / 2^bit_depth), not clipped.
        """
        return self.out_of_tail(planes, self.tail(self.features(self.into_head(planes), planes)))

    def out_of_tail(self, planes: Mapping[str, Tensor], residual: Tensor) -> NetworkOutput:
        """Return the result of the network; with output "picture" the last convolution computes the samples."""
        return self.shuffle(residual) / 4.0 + 0.5 if self.predicts_picture else super().out_of_tail(planes, residual)

    def draw(self, draft: Draft) -> dict[str, str]:
        """Add the nodes of the network."""
        weight, bias = arrays(self.head)
        weight = self.unshuffle.into(weight) if isinstance(self.unshuffle, Haar) else weight
        first = draft.weights("head", self.draw_channels(draft, self.factor), weight, bias, pad=0)
        x = first if self.head2 is None else draft.conv("head2", first, self.head2)
        x = draft.conv("fusion", draft.joined("blocks", self.draw_blocks(draft, x)), self.fusion)
        x = draft.conv("fusion2", x, self.fusion2)
        if self.global_residual:
            skip = first if self.head2 is None else draft.add("head.cropped", "crop", first, size=1)
            x = draft.add("sum", "add", x, skip)
        return self.draw_tail(draft, x)

    def draw_tail(self, draft: Draft, x: str) -> dict[str, str]:
        """Add the last convolution and the shuffle."""
        residual = draft.weights("tail", x, *self._tail_arrays())
        return {"y": draft.shuffled("tail.shuffled", "shuffle", residual, self.factor)}

    def _tail_arrays(self) -> tuple[Array, Array]:
        """Return weight and bias of the last convolution in a form that only a shuffle follows."""
        weight, bias = arrays(self.tail)
        if isinstance(self.shuffle, InverseHaar):
            return self.shuffle.into(weight, bias)
        if isinstance(self.tail, nn.ConvTranspose2d):
            # Sample r of cell I uses tap r + s·(1 - d) of cell I + d.
            s = self.factor
            taps = weight[:, 0].reshape(len(weight), 3, s, 3, s)[:, ::-1, :, ::-1]
            return taps.transpose(2, 4, 0, 1, 3).reshape(s**2, len(weight), 3, 3), np.repeat(bias, s**2)
        return weight, bias

    def draw_output(self, draft: Draft, output: str, residual: str) -> None:
        """Add the output node."""
        if self.predicts_picture:
            draft.add(output, "output", residual, tensors={"gain": np.array([0.25])}, crop=0)
        else:
            super().draw_output(draft, output, residual)

    def concatenated(self, name: str) -> list[int]:
        """Return the widths of the concatenated inputs of layers and fusions."""
        features, growth = self.options["features"], self.options["growth"]
        match name.split("."):
            case ["blocks", _, "layers", layer, "weight"]:
                return [features] + [growth] * int(layer)
            case ["blocks", _, "fusion", "weight"]:
                return [features] + [growth] * self.options["layers"]
            case ["fusion", "weight"]:
                return [features] * self.options["blocks"]
        return []


def _register(name: str, title: str, sizes: tuple[int, int, int, int], kmac: int, **options: Any) -> None:
    """Register an RDN of the given features, blocks, layers and growth, described by `title` and these sizes."""
    features, blocks, layers, growth = sizes
    description = f"{title} {features} features, {blocks} blocks of {layers} layers, growth {growth}"
    description += ", FiLM by QP" if options.get("conditioning") == "film" else ""
    counts = {"features": features, "blocks": blocks, "layers": layers, "growth": growth}
    register(name, RDN, f"{description}; {kmac} kMAC/pixel.", **counts, **options)


register("rdn", RDN, "RDN with any of its options; the default is RDN(32, 3, 6, 16).")

# The three networks of the notebook with which the project began.
_register("rdn_32_3_6_16", "The notebook's small RDN:", (32, 3, 6, 16), 221)
_register("rdn_32_4_6_24", "The notebook's large RDN:", (32, 4, 6, 24), 523)
_register("rdn_64_4_6_24_shuffle", "The notebook's down/up RDN: PixelUnshuffle,", (64, 4, 6, 24), 198, shuffle=2)

# At equal kMAC/pixel, a trunk at half the height and width has four times the multiply-accumulates per sample and, with
# as many layers, twice the radius.
_QUARTER = {"shuffle": 2, "conditioning": "film"}
_register("quarter_unshuffle", "RDN on unshuffled sub-pictures,", (64, 4, 6, 26), 219, **_QUARTER)
_register("quarter_haar", "RDN on the 2x2 DCT,", (64, 4, 6, 26), 219, **_QUARTER, transform="haar")
_register("quarter_light", "RDN on the 2x2 DCT,", (32, 2, 3, 16), 17, **_QUARTER, transform="haar")
