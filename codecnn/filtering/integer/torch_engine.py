"""The float engine: integer networks computed exactly by PyTorch's float convolutions.

Integers up to 2^24 are float32 numbers, those up to 2^53 float64 numbers. A node whose sums are proven to stay within
2^24 is computed in float32, any other node in float64. Weights are divided by the power of two of the rounding shift,
which changes exponents only, so that the shift becomes a rounding of the sum.

On a CPU a convolution of a concatenation is computed as a sum over its parts, and several layers of a dense block as
one convolution (`ConvolutionSum`): this avoids copies of large tensors, and makes convolutions of few channels wider.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from codecnn.base.runtime import float32_products
from codecnn.filtering.integer.network import FLOAT32_EXACT, IntegerNetwork, check_bit_depth, gain_shift, half
from codecnn.filtering.integer.passes import (
    Rounding,
    add_in_place,
    modulate,
    round_in_place,
    split_rounded,
    weigh_channels,
)
from codecnn.models import GROUP_WIDTH, SAMPLE_PLANES, add_convolution
from codecnn.models.graph import MOVES, Graph, Node, Operation, cropped, same_padding, walk

Names = tuple[str, ...]
Reads = Mapping[str, Names]
"""Tensors whose concatenation each convolution reads, by convolution."""

_ONEDNN_CONVOLUTION = getattr(torch.ops.mkldnn, "_convolution_pointwise", None)
"""oneDNN's convolution, which PyTorch's compiler uses; with one thread PyTorch itself chooses a slower one."""

# Why the result is exact: the proof of `IntegerNetwork` bounds every partial sum, in whatever order terms are added.
# While partial sums are integers below 2^24 (2^53), each is a float32 (float64) number. No addition rounds, with or
# without fused multiply-add, so that addition is associative: blocking, vector width and threads change nothing.
# Dividing all terms by 2^shift only changes exponents. Then floor(sum / 2^shift + 1/2) is the integer
# (sum + half) >> shift, and torch.round, which rounds halves to even, is the rounding of 8-bit networks.


class FastNetwork:
    """An integer network prepared to run on a device.

    Args:
        network: The network.
        device: Device to compute on.
        wide: Compute every node in float64.

    Attributes:
        types: Type that each node is computed in.
        tensors: Weights of each node over the power of two of its shift.
        nodes: Operations in the order in which they are computed.
        sums: Nodes that are computed as a `ConvolutionSum`, by name.
    """

    def __init__(self, network: IntegerNetwork, device: str | torch.device = "cpu", *, wide: bool = False) -> None:
        self.network = network
        self.device = torch.device(device)
        self.types: dict[str, torch.dtype] = {}
        self.tensors: dict[str, dict[str, Tensor]] = {}
        # cuDNN and cuBLAS may compute float32 with fewer bits (TF32) or by transforms, but float64 by products and
        # sums.
        wide = wide or self.device.type != "cpu"
        for node in network.graph.nodes:
            widest = network.ranges[node.name].widest
            kind = torch.float32 if widest <= FLOAT32_EXACT and not wide else torch.float64
            self.types[node.name] = kind
            tensors = _scaled_tensors(node, network.bits)
            self.tensors[node.name] = {name: tensor.to(self.device, kind) for name, tensor in tensors.items()}
        self.nodes: Sequence[Node] = network.graph.nodes
        self.sums: dict[str, ConvolutionSum] = {}
        if not wide:
            self.nodes, self.sums = split_convolutions(network.graph, self.tensors, self._can_split)

    def _can_split(self, node: Node) -> bool:
        """Return whether a convolution can add up the results of parts of its input, which keep their size."""
        in_float32 = self.types[node.name] == torch.float32
        return in_float32 and node.values["groups"] == 1 and bool(node.values["pad"])

    def __call__(
        self,
        planes: Mapping[str, Tensor],
        qp: int,
        bit_depth: int,
        observe: Callable[[str, Tensor], None] | None = None,
    ) -> dict[str, Tensor]:
        """Filter planes that include the halo.

        Args:
            planes: Planes by name, float32, shape (n, 1, h, w): samples as integers, others as the loader scales them.
            qp: Slice QP.
            bit_depth: Bit depth of the samples.
            observe: Called with name and result of every node that is computed by itself.

        Returns:
            Samples by component, float32, shape (n, 1, h, w).

        Raises:
            ModelError: The samples have more bits than the network takes.
        """
        check_bit_depth(self.network, bit_depth)

        def compute(node: Node, inputs: list[Tensor]) -> Tensor:
            result = self._compute(node, inputs, planes, qp, bit_depth)
            if observe is not None:
                observe(node.name, result)
            return result

        with torch.inference_mode(), exact_arithmetic(self.device.type):
            return self._run(compute, qp)

    def _run(self, compute: Callable[[Node, list[Tensor]], Tensor], qp: int) -> dict[str, Tensor]:
        """Compute the outputs with a function that computes a node."""
        return walk(self.nodes, compute)

    def _compute(
        self, node: Node, inputs: list[Tensor], planes: Mapping[str, Tensor], qp: int, bit_depth: int
    ) -> Tensor:
        if node.op == "plane":
            return _centre(node.name, planes[node.name], bit_depth, self.network.bit_depth)
        if node.op == "output":
            return self._compute_output(node, inputs[0], planes, qp, bit_depth)
        if node.op == "qp":
            middle = 1 << (self.network.bit_depth - 1)
            return torch.full_like(inputs[0][:, :1], (qp << (self.network.bit_depth - 6)) - middle)
        if node.name in self.sums:
            return self._compute_sum(node, self.sums[node.name], inputs)
        kind = self.types[node.name]
        if kind == torch.float32 and node.op in ("conv", "modulate") and self.device.type == "cpu":
            return self._compute_in_passes(node, inputs, qp)
        result = _COMPUTE[node.op](node, [x.to(kind) for x in inputs], self.tensors[node.name], qp)
        return self._saturate(node, result) if "low" in node.values else result.to(torch.float32)

    def _compute_in_passes(self, node: Node, inputs: list[Tensor], qp: int) -> Tensor:
        """Compute a convolution or modulation in float32 on a CPU, with a single pass over memory after it."""
        tensors = self.tensors[node.name]
        if node.op == "modulate":
            return modulate(inputs[0], tensors["factor"][qp], tensors["offset"][qp], self._rounding(node))
        if len(inputs) == 1 and len(tensors["weight"]) == tensors["weight"][0, 0].numel() == 1:
            weight, bias = tensors["weight"].flatten(), float(tensors["bias"])
            return weigh_channels(inputs[0], weight, bias, self._rounding(node))
        return self._round_sums(node, _convolve(node, inputs[0], tensors["weight"], tensors["bias"]), inputs[1:])

    def _compute_sum(self, node: Node, parts: "ConvolutionSum", inputs: list[Tensor]) -> Tensor:
        """Compute a convolution part by part, or several layers whose results form one tensor."""
        sums = _convolve(node, inputs[0], parts.weights[0], parts.bias)
        for x, weight in zip(inputs[1:], parts.weights[1:], strict=False):
            add_convolution(sums, x, weight)
        remaining = sums = sums.contiguous(memory_format=torch.channels_last)
        start = 0
        for layer, weight in zip(parts.layers, parts.within, strict=False):
            features, remaining = split_rounded(remaining, remaining.shape[1] - weight.shape[0], self._rounding(layer))
            if start > 0:
                sums[:, start : start + features.shape[1]] = features
            add_convolution(remaining, features, weight)
            start += features.shape[1]
        last = self._round_sums(parts.layers[-1], remaining, inputs[len(parts.weights) :])
        if start > 0:
            sums[:, start:] = last
        return sums if start > 0 else last

    def _round_sums(self, node: Node, sums: Tensor, added: list[Tensor]) -> Tensor:
        """Add a second input to the sums of a convolution if there is one, then round and saturate."""
        if not added:
            return round_in_place(sums, self._rounding(node))
        return add_in_place(sums, added[0], 2.0 ** -node.values["skip"], self._rounding(node))

    def _rounding(self, node: Node) -> Rounding:
        return Rounding(node.values["low"], node.values["high"], self.network.bits == 8)

    def _saturate(self, node: Node, sums: Tensor) -> Tensor:
        """Round and saturate sums that are already divided by the power of two of the shift."""
        if self.network.bits == 8:
            sums.round_()
        else:
            if node.op == "add" and node.values["shift"] > 0:
                sums.add_(0.5)
            sums.floor_()
        # Tensors between nodes are saturated to 16 bits, so that float32 holds them whatever the sums needed.
        return sums.clamp_(node.values["low"], node.values["high"]).to(torch.float32)

    def _compute_output(self, node: Node, x: Tensor, planes: Mapping[str, Tensor], qp: int, bit_depth: int) -> Tensor:
        gain = self.tensors[node.name]["gain"]
        shift = gain_shift(node, bit_depth)
        factor = gain[qp if len(gain) > 1 else 0].to(torch.float64) * 2.0**-shift
        if self.network.bits == 8:
            change = (x * float(factor)).round_()
        else:
            # Products of 16 bits by 16 bits are always float64. The shift depends on the picture's bit depth, so that
            # nothing is folded into the gain.
            change = (x.to(torch.float64) * factor + half(shift) * 2.0**-shift).floor_()
        base: Tensor | float = 1 << (bit_depth - 1)
        if len(node.inputs) == 2:
            base = cropped(planes[node.inputs[1]], node.values["crop"])
        return change.add_(base).clamp_(0, (1 << bit_depth) - 1).to(torch.float32)


@contextlib.contextmanager
def exact_arithmetic(device: str) -> Iterator[None]:
    """Make convolutions multiply and add in the type of their operands, without transforms and with all bits.

    NNPACK convolves by Winograd's and Fourier's transforms, and cuDNN may do so. oneDNN, cuBLAS and autocast may
    compute float32 with fewer bits if a user allows it.

    Args:
        device: Type of the device, "cpu" or "cuda".
    """
    cudnn = torch.backends.cudnn
    enabled = cudnn.enabled
    with (
        float32_products(),
        torch.backends.nnpack.flags(enabled=False),
        torch.autocast(device, enabled=False),
    ):
        cudnn.enabled = False  # the context of PyTorch fails if a program has set TF32 by the new interface
        try:
            yield
        finally:
            cudnn.enabled = enabled


def _scaled_tensors(node: Node, bits: int) -> dict[str, Tensor]:
    """Return a node's tensors, float64, divided by the power of two of its shift.

    If halves are rounded up, the offsets include the half that is added before the shift.
    """
    tensors = {name: torch.from_numpy(tensor.astype(np.float64)) for name, tensor in node.tensors.items()}
    shift = tensors.pop("shift", torch.tensor(float(node.values.get("shift", 0))))
    scaled = {}
    for name, tensor in tensors.items():
        if bits == 16 and name in ("bias", "offset"):
            tensor += half(int(shift))
        by_channel = shift[:, None, None, None] if name == "weight" and shift.dim() else shift
        scaled[name] = tensor * 2.0**-by_channel
    if "weight" in scaled:
        scaled["weight"] = scaled["weight"].contiguous(memory_format=torch.channels_last)
    return scaled


def _centre(name: str, plane: Tensor, bit_depth: int, network_bit_depth: int) -> Tensor:
    """Convert a plane to the integers that enter the network, as `reference.centred_integers` does."""
    middle = 1 << (network_bit_depth - 1)
    if name in SAMPLE_PLANES:
        scale = 1 << (network_bit_depth - bit_depth)
        return plane - middle if scale == 1 else (plane * scale).sub_(middle)
    scaled = (plane.to(torch.float64) * (1 << network_bit_depth) + 0.5).floor_()
    return (scaled.clamp_(0, 2 * middle - 1) - middle).to(torch.float32)


def _convolve(node: Node, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute the sums of a convolution."""
    x = x.contiguous(memory_format=torch.channels_last)
    padding, groups = list(same_padding(weight) if node.values["pad"] else (0, 0)), node.values["groups"]
    if x.dtype == torch.float32 and x.device.type == "cpu" and _ONEDNN_CONVOLUTION is not None:
        sums: Tensor = _ONEDNN_CONVOLUTION(x, weight, bias, padding, [1, 1], [1, 1], groups, "none", [], "")
        return sums
    return F.conv2d(x, weight, bias, padding=padding, groups=groups)


def _compute_conv(node: Node, inputs: list[Tensor], tensors: dict[str, Tensor], qp: int) -> Tensor:
    sums = _convolve(node, inputs[0], tensors["weight"], tensors["bias"])
    return sums.add_(inputs[1], alpha=2.0 ** -node.values["skip"]) if len(inputs) == 2 else sums


def _compute_add(node: Node, inputs: list[Tensor], tensors: dict[str, Tensor], qp: int) -> Tensor:
    left, right, shift = (node.values[name] for name in ("left", "right", "shift"))
    return (inputs[0] * 2.0 ** (left - shift)).add_(inputs[1], alpha=2.0 ** (right - shift))


def _compute_modulate(node: Node, inputs: list[Tensor], tensors: dict[str, Tensor], qp: int) -> Tensor:
    factor, offset = (tensors[name][qp, :, None, None] for name in ("factor", "offset"))
    return torch.addcmul(offset, inputs[0], factor)


_COMPUTE: dict[str, Operation] = MOVES | {"conv": _compute_conv, "add": _compute_add, "modulate": _compute_modulate}


@dataclass(frozen=True)
class ConvolutionSum:
    """A convolution as a sum over the parts of its input, or several layers of a dense block computed together.

    Of several layers, each reads what the layer before reads, and the layer before itself.

    Attributes:
        layers: The convolutions.
        weights: Weights of each part that all layers read, for the channels of all layers.
        bias: Biases of the channels of all layers.
        within: Weights that multiply each layer but the last, for the channels of the layers after it.
    """

    layers: tuple[Node, ...]
    weights: tuple[Tensor, ...]
    bias: Tensor
    within: tuple[Tensor, ...]


def split_convolutions(
    graph: Graph, tensors: Mapping[str, Mapping[str, Tensor]], can_split: Callable[[Node], bool]
) -> tuple[list[Node], dict[str, ConvolutionSum]]:
    """Replace concatenations that only convolutions read by sums over their parts.

    Args:
        graph: The graph of an integer network.
        tensors: Tensors of each node.
        can_split: Says of a convolution whether its terms may be added in another order.

    Returns:
        The remaining nodes, and the convolutions that are computed as sums, by name. The inputs of such a node are the
        parts, followed by the tensor that is added to the sum if there is one. Layers that are computed together form
        one tensor with the name of the first.
    """
    reads, removed = _read_parts(graph, can_split)
    kept = [node for node in graph.nodes if node.name not in removed]
    read_whole = frozenset(name for node in kept for name in (node.inputs[1:] if node.name in reads else node.inputs))
    groups = _layer_groups({node.name: node for node in kept if node.name in reads}, reads, read_whole)
    nodes: list[Node] = []
    sums: dict[str, ConvolutionSum] = {}
    for node in kept:
        names, parts = groups.get(node.name, (node.name,)), _group_parts(reads.get(node.name, ()), groups)
        if node.name != names[0]:
            continue
        if len(names) > 1 or (parts and parts != [node.inputs[:1]]):
            layers = tuple(layer for layer in kept if layer.name in names)
            widths = [[graph.extents[name].channels for name in part] for part in (*parts, names)]
            node = replace(node, inputs=(*(part[0] for part in parts), *node.inputs[1:]))
            sums[node.name] = _split_weights(layers, widths, tensors)
        nodes.append(node)
    return nodes, sums


def _split_weights(
    layers: tuple[Node, ...], widths: list[list[int]], tensors: Mapping[str, Mapping[str, Tensor]]
) -> ConvolutionSum:
    """Divide the weights of layers by what they multiply.

    `widths` are the channels of the tensors in each part that all layers read, and last those of the layers themselves.
    """
    *part_widths, layer_widths = widths
    columns = [
        torch.split(tensors[layer.name]["weight"], [*map(sum, part_widths), *layer_widths[:index]], dim=1)
        for index, layer in enumerate(layers)
    ]

    def stack_weights(index: int) -> Tensor:
        """Stack the weights of a part for all layers that read it."""
        weights = [parts[index] for parts in columns if index < len(parts)]
        return torch.cat(weights).contiguous(memory_format=torch.channels_last)

    stacked = [stack_weights(index) for index in range(len(columns[-1]))]
    bias = torch.cat([tensors[layer.name]["bias"] for layer in layers])
    return ConvolutionSum(layers, tuple(stacked[: len(part_widths)]), bias, tuple(stacked[len(part_widths) :]))


def _read_parts(graph: Graph, can_split: Callable[[Node], bool]) -> tuple[Reads, Collection[str]]:
    """Find the parts that each splittable convolution reads, and the concatenations that are removed for it."""
    reads = {node.name: node.inputs[:1] for node in graph.nodes if node.op == "conv" and can_split(node)}
    removed: dict[str, Names] = {}
    for node in reversed(graph.nodes):
        users = [user for user in graph.nodes if node.name in user.inputs]
        if node.op == "concat" and all(
            user.name in removed or (user.name in reads and node.name not in user.inputs[1:]) for user in users
        ):
            removed[node.name] = node.inputs

    def flatten(name: str) -> Names:
        return tuple(part for inner in removed[name] for part in flatten(inner)) if name in removed else (name,)

    return {name: flatten(read) for name, (read,) in reads.items()}, removed


def _layer_groups(convolutions: Mapping[str, Node], reads: Reads, read_whole: frozenset[str]) -> dict[str, Names]:
    """Group the layers that are computed together: as many as have about GROUP_WIDTH channels; by each of them.

    Each layer reads what the layer before reads, and that layer, with a kernel of the same size. Other convolutions
    that read one layer of a group read all of them, in their order and as parts of a sum.
    """
    groups: dict[str, Names] = {}
    for first, node in convolutions.items():
        channels, *_, rows, columns = node.tensors["weight"].shape
        group: Names = (first,)
        for name, other in convolutions.items():
            alike = len(other.inputs) == 1 and other.tensors["weight"].shape[2:] == (rows, columns)
            if alike and len(group) < round(GROUP_WIDTH / channels) and reads[name] == reads[first] + group:
                group = (*group, name)
        together = all(_reads_all_or_none(read, group) for name, read in reads.items() if name not in group)
        if len(group) > 1 and first not in groups and together and read_whole.isdisjoint(group):
            groups |= dict.fromkeys(group, group)
    return groups


def _reads_all_or_none(read: Names, group: Names) -> bool:
    """Return whether a group is read in one piece or not at all."""
    start = read.index(group[0]) if group[0] in read else len(read)
    end = start + len(group)
    return set(group).isdisjoint(read[:start] + read[end:]) and read[start:end] in (group, ())


def _group_parts(read: Names, groups: Mapping[str, Names]) -> list[Names]:
    """Divide what a convolution reads into the tensors that are computed: groups, and layers without a group."""
    parts: list[Names] = []
    while read:
        parts.append(groups.get(read[0], read[:1]))
        read = read[len(parts[-1]) :]
    return parts
