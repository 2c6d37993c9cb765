"""The residual dense block and the fusion behind a row of blocks, each with its form for the CPU and its graph."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint as recompute

from codecnn.models._blocks import Block
from codecnn.models.fused import GROUP_WIDTH, Scratch, add_convolution
from codecnn.models.graph._draft import Draft


class RDB(Block):
    """Residual dense block: `layers` 3x3 convolutions of `growth` features, each on everything before, 1x1 fusion.

    With `local_residual` the block's input is added to its output (Zhang et al., CVPR 2018, section 3.2). With
    `checkpoint` training keeps the block's input alone and computes the rest again in the backward pass.
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
        """The block without gradients: layers write into slices of one buffer, where concatenation would copy all."""
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
        return GroupedRDB(self, scratch)

    def draw(self, draft: Draft, name: str, x: str) -> str:
        dense = x
        for index, layer in enumerate(self.layers):
            new = draft.conv(f"{name}.layers.{index}", dense, layer, relu=1)
            dense = draft.add(f"{name}.dense.{index}", "concat", dense, new)
        fused = draft.conv(f"{name}.fusion", dense, self.fusion)
        return draft.add(f"{name}.sum", "add", x, fused) if self.local_residual else fused


class Fusion(nn.Conv2d):
    """1x1 convolution over the concatenation of several tensors (n, features, h, w), which come one by one."""

    def __init__(self, blocks: int, features: int) -> None:
        super().__init__(blocks * features, features, 1)

    def forward(self, parts: Iterable[Tensor]) -> Tensor:
        return super().forward(torch.cat(list(parts), dim=1))

    def fused(self, scratch: Scratch) -> nn.Module:
        """The fusion for inference on the CPU."""
        return SummedFusion(self)


def rdb_macs(features: int, layers: int, growth: int) -> int:
    """Multiply-accumulates a sample of an RDB: 9·g·(n·f + g·n·(n - 1) / 2) + f·(f + n·g).

    Layer k = 0 ... n - 1 sees f + k·g features and makes g with 3x3 taps, 9·g·(f + k·g), and the sum of k is
    n·(n - 1) / 2; the fusion sees f + n·g features and makes f with one tap. Quadratic in n and in g.
    """
    return 9 * growth * (layers * features + growth * layers * (layers - 1) // 2) + features * (
        features + layers * growth
    )


class GroupedRDB(nn.Module):
    """An RDB for inference on the CPU: no concatenation, and convolutions of several layers' features at once.

    A convolution over concatenated features is the sum of convolutions over each of them. The layers are taken in
    groups of about GROUP_WIDTH features. Each group is one tensor of sums: what the block's input and the groups before
    it contribute to all its layers comes in one wide convolution each, and only what layers of the group contribute to
    one another is left for narrow ones. The local residual is part of the fusion's weights.

    Why groups: oneDNN computes 16 output channels a vector instruction (AVX-512), and a narrow convolution leaves much
    of that idle and reads its whole input again for few results.

    `scratch` holds the tensors of sums from block to block and tile to tile: memory that is new costs the system's
    clearing of every page, a quarter of a convolution's time. So blocks that share it run one after the other.
    """

    def __init__(self, block: RDB, scratch: Scratch) -> None:
        super().__init__()
        self.scratch = scratch
        first, count, self.growth = block.sizes
        size = max(1, round(GROUP_WIDTH / self.growth))
        groups = [range(start, min(start + size, count)) for start in range(0, count, size)]
        weights, biases = zip(*map(_numbers, block.layers), strict=True)

        def columns(layers: range) -> slice:
            return slice(first + layers.start * self.growth, first + layers.stop * self.growth)

        def stacked(layers: range, source: slice) -> Tensor:
            return _laid_out(torch.cat([weights[index][:, source] for index in layers]))

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
        fusion, self.fusion_bias = _numbers(block.fusion)
        through = fusion[:, :first].clone()
        if block.local_residual:
            through += torch.eye(first, dtype=fusion.dtype)[:, :, None, None]
        self.fusion_input = _laid_out(through)
        self.fusion_groups = [_laid_out(fusion[:, columns(group)]) for group in groups]

    def forward(self, x: Tensor) -> Tensor:
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
    """A `Fusion` that adds what each part contributes as it comes, and so keeps none of them."""

    def __init__(self, fusion: Fusion) -> None:
        super().__init__()
        weight, self.bias = _numbers(fusion)
        self.weights = [_laid_out(part) for part in torch.split(weight, fusion.out_channels, dim=1)]

    def forward(self, parts: Iterable[Tensor]) -> Tensor:
        parts = iter(parts)
        sums = F.conv2d(next(parts), self.weights[0], self.bias)
        for part, weight in zip(parts, self.weights[1:], strict=True):
            add_convolution(sums, part, weight)
        return sums


def _numbers(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution."""
    assert isinstance(layer, nn.Conv2d)
    assert layer.bias is not None
    return layer.weight.detach(), layer.bias.detach()


def _laid_out(weight: Tensor) -> Tensor:
    return weight.contiguous(memory_format=torch.channels_last)
