"""Training starts from other networks: grow a smaller one, lift a full-resolution one, revive dead units.

Growing follows Chen, Goodfellow, Shlens, "Net2Net: Accelerating Learning via Knowledge Transfer", ICLR 2016, who copy
features and divide their weights. Here, added features start at random, as in a new network, and the weights from them
to the old features start at zero. An added block starts as the identity or, if blocks are fused, with zero weights in
the fusion.

Lifting: PixelUnshuffle moves the s x s samples of a cell into channels, channel = plane·s² + row·s + column. A network
at full resolution can be written in such channels too, with s² of them for each of its features. A 3x3 convolution
becomes a 3x3 convolution over cells in which a sample is linked to the nine around it and to no others of their cells,
so that at s = 2 three quarters of its weights are zero. ReLU, sums and concatenations work by channel, and zero padding
stays the same if height and width are multiples of s.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from codecnn.base.errors import ModelError
from codecnn.models.base import FilterNetwork
from codecnn.models.blocks import DepthwiseBlock, SeparableBlock
from codecnn.models.transfer import TensorReport, TransferReport
from codecnn.models.weights import load_model

ADDED = "of an added part"
"""Detail of a tensor that the smaller network does not have."""


def grow(model: FilterNetwork, source: Path | str) -> TransferReport:
    """Initialise a low-cost network or RDN so that it computes the same as a smaller one.

    The results differ by floating-point rounding only. A network for luma and chroma may start from one for luma alone
    and then leaves chroma unchanged.

    Args:
        model: The network that is changed.
        source: Weights file of the smaller network, or the name of shipped weights.

    Returns:
        The result for every tensor: "loaded", "adapted" with both shapes, or "missing" in an added part.

    Raises:
        MissingFileError: The file does not exist.
        ModelError: The networks differ in kind, planes or conditioning, or `model` is smaller in any size.
    """
    small = load_model(source)[0]
    report = _start_as(model, model.of_own_kind(small, str(source)), str(source), larger=True)
    return _of_original(small, model, report, str(source))


def _start_as(model: FilterNetwork, small: FilterNetwork, source: str, *, larger: bool) -> TransferReport:
    """Initialise `model` as `small`, called `source` in messages; it must have the same size unless `larger`."""
    _require_larger(model, small, source, larger)
    tensors = small.state_dict()
    model.silence_added(small)
    reports = []
    with torch.no_grad():
        for name, parameter in model.state_dict(keep_vars=True).items():
            if name not in tensors:
                reports.append(TensorReport(name, "missing", ADDED))
                continue
            tensor = tensors[name]
            if parameter.shape == tensor.shape:
                parameter.copy_(tensor)
                reports.append(TensorReport(name, "loaded"))
                continue
            parts = model.stacked(name)
            columns = _input_positions(small.concatenated(name), model.concatenated(name))
            for new, old in zip(parameter.chunk(parts), tensor.chunk(parts), strict=True):
                _embed(new, old, columns)
            reports.append(TensorReport(name, "adapted", f"{tuple(tensor.shape)} -> {tuple(parameter.shape)}"))
    return TransferReport(source, tuple(reports))


def _of_original(small: FilterNetwork, model: FilterNetwork, report: TransferReport, source: str) -> TransferReport:
    """Convert the report on a start from a converted form of `small` into one on the tensors of `small` itself."""
    before, after = (
        {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()} for network in (small, model)
    )
    rows = []
    for row in report.tensors:
        old, new = before.get(row.name), after[row.name]
        if old is None:
            row = TensorReport(row.name, "missing", ADDED)
        elif old != new:
            row = TensorReport(row.name, "adapted", f"{old} -> {new}")
        rows.append(row)
    return TransferReport(source, tuple(rows))


def _input_positions(old: list[int], new: list[int]) -> list[int]:
    """Return the positions of concatenated inputs of widths `old` in ones of widths `new`; each part comes first."""
    starts = [sum(new[:index]) for index in range(len(new))]
    return [start + offset for start, width in zip(starts, old, strict=False) for offset in range(width)]


def _embed(target: Tensor, tensor: Tensor, columns: list[int]) -> None:
    """Copy a smaller tensor (outputs, inputs, ...) into the first outputs, its inputs to `columns` if there are any.

    The weights from added inputs to these outputs become zero.
    """
    rows = target[: tensor.shape[0]]
    rows.zero_()
    if columns:
        rows[:, columns] = tensor.to(target)
    else:
        rows[tuple(slice(size) for size in tensor.shape)] = tensor


def _require_larger(model: FilterNetwork, small: FilterNetwork, source: str, larger: bool) -> None:
    if not model.GROWS:
        raise ModelError(f"only low-cost networks and RDNs grow; {type(model).__name__} is no such network")
    if type(model) is not type(small):
        raise ModelError(f"{type(model).__name__} does not grow from {type(small).__name__}, which {source} is")
    for key, value in small.options.items():
        if key == "qp_range" and key not in model.options:
            continue  # the vectors beyond the range are left out
        option = model.options.get(key)
        grows = larger and key in model.GROWS
        if option < value if grows else option != value:
            rule = (
                f"to grow it needs {'no less' if grows else 'the same'}" if larger else "without grow it needs the same"
            )
            raise ModelError(f"the network has {key} {option}, the one of {source} {value}: {rule}")


def lift(model: FilterNetwork, source: Path | str | None = None, *, grow: bool = False) -> TransferReport:
    """Initialise a low-cost network or RDN with shuffle s so that it computes the same as one at full resolution.

    The full-resolution network has shuffle 1 and 1/s² of the features and growth. The results differ by floating-point
    rounding only, for pictures whose height and width are multiples of s and planes at the resolution of luma; chroma
    is upsampled from a halo of different width.

    Args:
        model: The network that is changed.
        source: Weights file of the full-resolution network, or the name of shipped weights; by default, a new network
            with random weights from PyTorch's generator.
        grow: Allow the lifted network to be smaller than `model`, which then grows from it.

    Returns:
        The result for every tensor: "loaded", "adapted" with both shapes, or "missing" in an added part.

    Raises:
        MissingFileError: The file does not exist.
        ModelError: The network cannot be lifted, or the sizes do not fit.
    """
    label = "random weights at full resolution" if source is None else str(source)
    small = _full_resolution(model) if source is None else load_model(source)[0]
    report = _start_as(model, _lifted(small, _factor(model)), f"{label} (lifted)", larger=grow)
    return _of_original(small, model, report, label)


@torch.no_grad()
def _lifted(small: FilterNetwork, factor: int) -> FilterNetwork:
    """Return the network with shuffle `factor` that is equivalent to `small`."""
    _require_liftable(small)
    if small.options["shuffle"] != 1:
        raise ModelError(f"a network is lifted from shuffle 1; this one has shuffle {small.options['shuffle']}")
    widths = {name: small.options[name] * factor**2 for name in small.LIFTS}
    large = type(small)(**small.options | widths | {"shuffle": factor})
    large.to(next(small.parameters()).dtype)
    transposed = {f"{name}.weight" for name, layer in small.named_modules() if isinstance(layer, nn.ConvTranspose2d)}
    tensors = small.state_dict()
    for name, parameter in large.state_dict(keep_vars=True).items():
        tensor = tensors[name]
        if name in transposed:
            parameter.copy_(_lifted_transposed(tensor, factor))
        elif tensor.dim() == 4:
            parameter.copy_(_lifted_convolution(tensor, factor))
        else:  # biases, factors and offsets of FiLM are repeated by feature; tensors without features stay the same
            parameter.copy_(tensor.repeat_interleave(parameter.shape[0] // tensor.shape[0], dim=0))
    return large


def _lifted_convolution(weight: Tensor, factor: int) -> Tensor:
    """Convert the weight (o, i, h, w) of a convolution over samples into one over cells (o·s², i·s², h, w)."""
    outputs, inputs, height, width = weight.shape
    rows, columns = (_links(size, factor).to(weight) for size in (height, width))
    over_cells = torch.einsum("oiyx,ypjv,xrku->oprijkvu", weight, rows, columns)
    return over_cells.reshape(outputs * factor**2, inputs * factor**2, height, width)


def _links(size: int, factor: int) -> Tensor:
    """Return which tap links which samples: 1 at (tap, position, position in the other cell, tap over cells)."""
    links = torch.zeros(size, factor, factor, size)
    for tap in range(size):
        for position in range(factor):
            cell, other = divmod(position + tap - size // 2, factor)
            links[tap, position, other, cell + size // 2] = 1
    return links


def _lifted_transposed(weight: Tensor, factor: int) -> Tensor:
    """Convert the weight (i, 1, 3, 3) of a transposed convolution of stride 1 into (i·s², 1, 3·s, 3·s) of stride s.

    Sample r of a cell uses tap r + s·(1 - d) of the cell at distance d.
    """
    over_cells = _lifted_convolution(weight.transpose(0, 1).flip(2, 3), factor)
    taps = over_cells.view(factor, factor, -1, 3, 3).flip(3, 4).permute(2, 3, 0, 4, 1)
    return taps.reshape(-1, 1, 3 * factor, 3 * factor)


def _factor(model: FilterNetwork) -> int:
    """Return the factor by which a network is lifted to become `model`."""
    _require_liftable(model)
    factor = int(model.options["shuffle"])
    if factor == 1:
        raise ModelError("a network is lifted to a shuffle of 2 or more; this one has shuffle 1")
    return factor


def _full_resolution(model: FilterNetwork) -> FilterNetwork:
    """Return a new full-resolution network that has the sizes of `model` once it is lifted."""
    cells = _factor(model) ** 2
    for name in model.LIFTS:
        if model.options[name] % cells:
            raise ModelError(f"{name} {model.options[name]} is no multiple of {cells}, the samples of a cell")
    widths = {name: model.options[name] // cells for name in model.LIFTS}
    return type(model)(**model.options | widths | {"shuffle": 1})


def _require_liftable(model: FilterNetwork) -> None:
    if not model.LIFTS:
        raise ModelError(f"{type(model).__name__} is not lifted: only low-cost networks and RDNs of luma alone are")
    if any(isinstance(layer, nn.Conv2d) and layer.groups > 1 for layer in model.modules()):
        raise ModelError(
            "depthwise blocks are not lifted: a 3x3 tap joins samples of a cell, which become separate channels, and "
            "depthwise taps join no channels"
        )
    if model.options.get("transform", "unshuffle") != "unshuffle":
        raise ModelError("a network with transform: haar is not lifted: its first convolution takes bands, not samples")


@torch.no_grad()
def revive(model: FilterNetwork, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, int]:
    """Reinitialise dead units: outputs of a block's expanding convolution that are never positive.

    New input weights of a unit are random and as large as those of its layer on average, since Muon takes steps of one
    size for a whole layer. Weights from the unit start at zero, so that the network computes the same on these inputs.

    Args:
        model: The network that is changed; only separable and depthwise blocks have such units.
        batches: Planes on which the units are observed.

    Returns:
        Number of reinitialised units by block name, without blocks that have none.
    """
    blocks = {
        name: module for name, module in model.named_modules() if isinstance(module, SeparableBlock | DepthwiseBlock)
    }
    alive = {name: torch.zeros(block.expand.out_channels, dtype=torch.bool) for name, block in blocks.items()}

    def observe(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            alive[name] |= (output > 0).amax((0, 2, 3)).cpu()

        return hook

    hooks = [block.expand.register_forward_hook(observe(name)) for name, block in blocks.items()]
    try:
        for batch in batches:
            model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: count for name, block in blocks.items() if (count := _reinitialise(block, ~alive[name]))}


def _reinitialise(block: SeparableBlock | DepthwiseBlock, dead: Tensor) -> int:
    """Reinitialise the units `dead` (outputs of expand,) and return their number."""
    expand, project = block.expand, block.project
    fresh = nn.Conv2d(expand.in_channels, expand.out_channels, 1)
    assert expand.bias is not None
    assert fresh.bias is not None
    factor = expand.weight.norm().cpu() / fresh.weight.norm()
    expand.weight[dead] = (factor * fresh.weight[dead]).to(expand.weight)
    expand.bias[dead] = (factor * fresh.bias[dead]).to(expand.bias)
    project.weight[:, dead] = 0
    return int(dead.sum())
