"""A network started as a smaller one of its kind: it computes what that does, and learns from there.

After Chen, Goodfellow, Shlens, "Net2Net: Accelerating Learning via Knowledge Transfer", ICLR 2016, who copy features
and share out their weights. Here added features start at random, as in a new network; what the old ones take of
them starts at zero. An added block starts as the identity, or where blocks are fused, as one of which nothing is taken.
"""

from pathlib import Path

import torch
from torch import Tensor

from codecnn.errors import ModelError
from codecnn.models._transfer import TensorReport, TransferReport
from codecnn.models._weights import load_model
from codecnn.models.base import FilterNetwork


def grow(model: FilterNetwork, source: Path | str) -> TransferReport:
    """Start a new low-cost network or RDN as the smaller one of a weights file, or of the zoo's weights of that name.

    Only with floating-point rounding do the two then differ in what they compute. Returns what became of every tensor:
    "loaded", "adapted" with both shapes, or "missing" in what was added. Raises ModelError for networks
    of other kinds, planes or conditioning, and for one that is smaller anywhere; MissingFileError.
    """
    return start_as(model, load_model(source)[0], str(source), larger=True)


def start_as(model: FilterNetwork, small: FilterNetwork, source: str, *, larger: bool) -> TransferReport:
    """`grow` from a network, which errors and the report call `source`; of equal size unless `larger` is allowed."""
    _require_larger(model, small, source, larger)
    tensors = small.state_dict()
    model.silence_added(small)
    reports = []
    with torch.no_grad():
        for name, own in model.state_dict(keep_vars=True).items():
            if name not in tensors:
                reports.append(TensorReport(name, "missing", "of an added part"))
                continue
            tensor = tensors[name]
            if own.shape == tensor.shape:
                own.copy_(tensor)
                reports.append(TensorReport(name, "loaded"))
                continue
            parts = model.stacked(name)
            columns = _places(small.concatenated(name), model.concatenated(name))
            for new, old in zip(own.chunk(parts), tensor.chunk(parts), strict=True):
                _enter(new, old, columns)
            reports.append(TensorReport(name, "adapted", f"{tuple(tensor.shape)} -> {tuple(own.shape)}"))
    return TransferReport(source, tuple(reports))


def _places(old: list[int], new: list[int]) -> list[int]:
    """Places of inputs that are joined in widths `old` among those in widths `new`: each part in front of its own."""
    starts = [sum(new[:index]) for index in range(len(new))]
    return [start + place for start, width in zip(starts, old, strict=False) for place in range(width)]


def _enter(own: Tensor, tensor: Tensor, columns: list[int]) -> None:
    """Put a smaller tensor (outputs, inputs, ...) in front, its inputs at `columns` if there are any.

    Its outputs take nothing of the added inputs.
    """
    rows = own[: tensor.shape[0]]
    rows.zero_()
    if columns:
        rows[:, columns] = tensor.to(own)
    else:
        rows[tuple(slice(size) for size in tensor.shape)] = tensor


def _require_larger(model: FilterNetwork, small: FilterNetwork, source: str, larger: bool) -> None:
    if not model.GROWS:
        raise ModelError(f"low-cost networks and RDNs grow, and none else; {type(model).__name__} is no such network")
    if type(model) is not type(small):
        raise ModelError(f"{type(model).__name__} does not grow from {type(small).__name__}, which {source} is")
    for key, value in small.options.items():
        own = model.options[key]
        grows = larger and key in model.GROWS
        if own < value if grows else own != value:
            rule = (
                f"to grow it needs {'no less' if grows else 'the same'}" if larger else "without grow it needs the same"
            )
            raise ModelError(f"the network has {key} {own}, the one of {source} {value}: {rule}")
