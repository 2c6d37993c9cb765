"""A network made ready to filter: folded, without gradients, laid out as the convolutions of its device want it."""

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.models.base import FilterNetwork
from codecnn.models.blocks import RDB, Branches, DepthwiseBlock, Fusion, SeparableBlock
from codecnn.models.conditioning import QpModulation
from codecnn.models.families.baselines import Chain
from codecnn.models.fused import FusedDepthwise, FusedSeparable, InPlaceModulation, add_convolution

GROUP_WIDTH = 48
"""Features that `GroupedRDB` makes in one convolution: three vectors of 16 floats, where 24 leave half of one idle."""


class GroupedRDB(nn.Module):
    """An RDB for inference on the CPU: no concatenation, and convolutions of several layers' features at once.

    A convolution over concatenated features is the sum of convolutions over each of them. The layers are taken in
    groups of about GROUP_WIDTH features. Each group is one tensor of sums: what the block's input and the groups before
    it contribute to all its layers comes in one wide convolution each, and only what layers of the group contribute to
    one another is left for narrow ones. The local residual is part of the fusion's weights.

    `scratch` holds the tensors of sums from block to block and tile to tile: memory that is new costs the system's
    clearing of every page, a quarter of a convolution's time. So blocks that share it run one after the other.
    """

    def __init__(self, block: RDB, scratch: "Scratch") -> None:
        super().__init__()
        self.scratch = scratch
        first, growth = block.fusion.out_channels, block.fusion.in_channels - block.fusion.out_channels
        count = len(block.layers)
        self.growth = growth // count
        size = max(1, round(GROUP_WIDTH / self.growth))
        groups = [range(start, min(start + size, count)) for start in range(0, count, size)]
        weights = [_weight(layer) for layer in block.layers]
        biases = [_bias(layer) for layer in block.layers]

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
        fusion = _weight(block.fusion)
        through = fusion[:, :first].clone()
        if block.local_residual:
            through += torch.eye(first, dtype=fusion.dtype)[:, :, None, None]
        self.fusion_input = _laid_out(through)
        self.fusion_bias = _bias(block.fusion)
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
        features = fusion.out_channels
        self.bias = _bias(fusion)
        self.weights = [_laid_out(part) for part in torch.split(_weight(fusion), features, dim=1)]

    def forward(self, parts: Iterable[Tensor]) -> Tensor:
        parts = iter(parts)
        sums = F.conv2d(next(parts), self.weights[0], self.bias)
        for part, weight in zip(parts, self.weights[1:], strict=True):
            add_convolution(sums, part, weight)
        return sums


class Scratch:
    """Tensors (n, channels, h, w) by name, kept as long as the shape stays; their content is whatever was there."""

    def __init__(self) -> None:
        self.kept: dict[str, Tensor] = {}

    def like(self, x: Tensor, name: str, channels: int) -> Tensor:
        """One with the size, type and device of `x`, channels last."""
        shape = (x.shape[0], channels, *x.shape[2:])
        found = self.kept.get(name)
        if found is None or found.shape != shape or found.dtype != x.dtype:
            self.kept.pop(name, None)
            found = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
            self.kept[name] = found
        return found


def _weight(layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Conv2d)
    return layer.weight.detach()


def _bias(layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Conv2d)
    assert layer.bias is not None
    return layer.bias.detach()


def _laid_out(weight: Tensor) -> Tensor:
    return weight.contiguous(memory_format=torch.channels_last)


_FUSED: dict[type[nn.Module], Callable[..., nn.Module]] = {
    Fusion: SummedFusion,
    SeparableBlock: FusedSeparable,
    DepthwiseBlock: FusedDepthwise,
    QpModulation: InPlaceModulation,
}


def fold(model: FilterNetwork) -> FilterNetwork:
    """A copy in evaluation mode in which branches and batch normalisation have become part of the convolutions."""
    folded = copy.deepcopy(model).eval()
    for module in list(folded.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Branches):
                setattr(module, name, child.folded())
        if isinstance(module, Chain):
            for index, norm in enumerate(module.norms):
                layer = module.layers[index]
                if isinstance(norm, nn.BatchNorm2d) and isinstance(layer, nn.Conv2d):
                    module.layers[index] = torch.nn.utils.fuse_conv_bn_eval(layer, norm)
                    module.norms[index] = nn.Identity()
    return folded


def prepare(model: FilterNetwork) -> FilterNetwork:
    """`model` ready to filter on the device it is on; the result is that of `model` to float rounding.

    A copy: later changes of `model` do not reach it. It keeps memory between pictures, and filters one at a time.
    """
    ready = fold(model)
    if next(ready.parameters()).device.type == "cpu":
        scratch = Scratch()
        for module in list(ready.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, RDB):
                    setattr(module, name, GroupedRDB(child, scratch))
                elif type(child) in _FUSED:
                    setattr(module, name, _FUSED[type(child)](child))
    return ready.requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
