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

ADDED = "of an added part"


def grow(model: FilterNetwork, source: Path | str) -> TransferReport:
    """Start a new low-cost network or RDN as the smaller one of a weights file, or of the zoo's weights of that name.

    A network for luma and chroma may start as one of luma alone, and leaves chroma as it is then. Only with
    floating-point rounding do the two differ in what they compute. Returns what became of every tensor: "loaded",
    "adapted" with both shapes, or "missing" in what was added. Raises ModelError for networks of other kinds, planes or
    conditioning, and for one that is smaller anywhere; MissingFileError.
    """
    small = load_model(source)[0]
    report = start_as(model, model.of_own_kind(small, str(source)), str(source), larger=True)
    return beside(small, model, report, str(source))


def start_as(model: FilterNetwork, small: FilterNetwork, source: str, *, larger: bool) -> TransferReport:
    """`grow` from a network, which errors and the report call `source`; of equal size unless `larger` is allowed."""
    _require_larger(model, small, source, larger)
    tensors = small.state_dict()
    model.silence_added(small)
    reports = []
    with torch.no_grad():
        for name, own in model.state_dict(keep_vars=True).items():
            if name not in tensors:
                reports.append(TensorReport(name, "missing", ADDED))
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


def beside(small: FilterNetwork, model: FilterNetwork, report: TransferReport, source: str) -> TransferReport:
    """The report on a start by way of another form of `small`, told of the tensors that `small` itself has."""
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
