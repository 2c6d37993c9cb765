"""Weights of one network into another: by name and shape, with a report on every tensor."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from codecnn.errors import ModelError
from codecnn.models._conditioning import QpGain
from codecnn.models._registry import create_model
from codecnn.models._weights import read_tensors
from codecnn.models.base import FilterNetwork
from codecnn.models.card import Card

STATUSES = ("loaded", "renamed", "adapted", "skipped", "missing", "unexpected")
SHOWN = 4
"""How many differences an error tells."""

Value = TypeVar("Value")
Rename = Mapping[str, str] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class TensorReport:
    """What became of one tensor.

    name    in the network; of an unexpected tensor, in the file after renaming
    status  one of STATUSES
    detail  the name in the file, the shapes that differ, the planes; empty where there is nothing to tell
    """

    name: str
    status: str
    detail: str = ""


@dataclass(frozen=True)
class TransferReport:
    """What became of every tensor of a network and of a file, in the network's order, unexpected ones last."""

    source: str
    tensors: tuple[TensorReport, ...]

    def names(self, status: str) -> list[str]:
        """Names of the tensors of one status."""
        return [tensor.name for tensor in self.tensors if tensor.status == status]

    def as_dict(self) -> dict[str, Any]:
        """Source, count by status, and a row a tensor, as JSON files carry them."""
        counts = Counter(tensor.status for tensor in self.tensors)
        rows = [asdict(tensor) for tensor in self.tensors]
        return {"source": self.source, "counts": {key: counts[key] for key in STATUSES}, "tensors": rows}

    def __str__(self) -> str:
        """A line a tensor (status, name, detail) after a line of counts."""
        counts = ", ".join(f"{count} {status}" for status, count in self.as_dict()["counts"].items() if count)
        width = max((len(tensor.name) for tensor in self.tensors), default=0)
        lines = (f"  {tensor.status:10}  {tensor.name:{width}}  {tensor.detail}".rstrip() for tensor in self.tensors)
        return "\n".join([f"{self.source}: {counts}", *lines])


def load_partial(
    model: nn.Module,
    source: Mapping[str, Tensor] | Path | str,
    *,
    rename: Rename = (),
    planes: Sequence[str] | None = None,
    adapt_first: bool | Sequence[str] = False,
    partial: bool = False,
) -> TransferReport:
    """Copy tensors of a .safetensors file, or of a table by name, into `model`, and tell what became of each.

    Names are compared without what wrappers add to them: `module.` in front (data parallel, averaged models) and
    `_orig_mod.` anywhere (compiled ones), in the file and in the network.

    rename       before comparing, in order: {old: new} for a tensor or all below a module, or pairs
                 (regular expression, replacement) as `re.sub` takes them
    planes       input planes of the source's first convolution; by default those of the network on the file's card
    adapt_first  let the first convolution follow when the network's planes are others: what was learned for a plane
                 goes where the network has that plane, added planes start at zero weight, and a `QpGain` that the
                 source has not at a factor of 1, so that the network computes what it did. True finds the one 2-D
                 convolution that the network defines first; several, or another, are given by their modules' names.
    partial      load what fits. Without it every tensor of both sides must have its partner.

    The network is changed only if all is well. Raises MissingFileError, and ModelError for a pickle, a damaged file,
    a rename that matches nothing, two tensors of one name, planes that differ or a plane that would be lost, and,
    unless `partial`, for tensors that do not fit, of which it tells the first; with `partial` if nothing fits.
    """
    label = "the given tensors" if isinstance(source, Mapping) else str(source)
    if isinstance(source, Mapping):
        tensors = dict(source)
    else:
        tensors, card = read_tensors(source)
        planes = planes or _planes_of_card(card)
    found = _rename(strip_wrappers(tensors, label), rename, label)
    target = strip_wrappers(model.state_dict(keep_vars=True), "the network")
    old = tuple(planes or ())
    new = _planes_of(model)
    changed = bool(old and new) and old != new
    if changed and not adapt_first and not partial:
        raise ModelError(
            f"{label} is of a network with the planes {', '.join(old)}, this one has {', '.join(new)}: "
            "adapt_first lets the first convolution follow"
        )
    first = _first_convolutions(model, adapt_first) if changed else ()

    reports, copies = [], {}
    for name, own in target.items():
        if name not in found:
            if adapt_first and name in {f"{gain}.log_gain" for gain in _names_of(model, QpGain)}:
                copies[name] = torch.zeros_like(own)
                reports.append(TensorReport(name, "adapted", "a factor of 1 at every QP"))
            else:
                reports.append(TensorReport(name, "missing", _form(own)))
            continue
        old_name, tensor = found[name]
        status, detail = ("loaded", "") if old_name == name else ("renamed", f"from {old_name}")
        if name in first:
            move = f"planes {', '.join(old)} -> {', '.join(new)}"
            if not adapt_first:
                reports.append(TensorReport(name, "skipped", move))
                continue
            network = _network_in(model)
            assert network is not None, "as its planes are known"
            width = network.head_width
            tensor = adapt_planes(tensor, old, new, name=f"{old_name} of {label}", drop=partial, width=width)
            status, detail = "adapted", f"{move}, {detail}" if detail else move
        if tensor.shape != own.shape or tensor.is_floating_point() != own.is_floating_point():
            reports.append(TensorReport(name, "skipped", f"{_form(tensor)} in the file, {_form(own)} in the network"))
            continue
        copies[name] = tensor
        reports.append(TensorReport(name, status, detail))
    reports += [TensorReport(name, "unexpected", _form(found[name][1])) for name in found if name not in target]

    report = TransferReport(label, tuple(reports))
    _require_fit(report, partial)
    with torch.no_grad():
        for name, tensor in copies.items():
            target[name].copy_(tensor)
    return report


def adapt_planes(
    weight: Tensor,
    old: Sequence[str],
    new: Sequence[str],
    *,
    name: str,
    drop: bool = False,
    width: Callable[[str], int | None] = lambda plane: None,
) -> Tensor:
    """A first convolution's weight (out, channels of `old`, kh, kw) with those of the planes `new` instead.

    Each plane has `width(plane)` channels that follow each other; where that is None, all have equally many, as after
    PixelUnshuffle (channel = plane · s² + position). Planes that `old` has not are zero. Raises ModelError, which tells
    the tensor's `name`, for a weight that does not fit `old`, and for a plane that `new` has not unless `drop`.
    """
    channels, rest = divmod(weight.shape[1] if weight.dim() == 4 else 1, len(old))
    widths = {plane: width(plane) or channels for plane in (*old, *new)}
    equal = len(set(widths.values())) == 1
    fits = not rest and channels and math.isqrt(channels) ** 2 == channels
    if weight.dim() != 4 or (not fits if equal else sum(widths[plane] for plane in old) != weight.shape[1]):
        raise ModelError(f"{name} {_form(weight)} has not s x s channels for each of the planes {', '.join(old)}")
    lost = [plane for plane in old if plane not in new]
    if lost and not drop:
        raise ModelError(f"{name} has learned from the plane {lost[0]!r}, which the network has not (partial drops it)")
    learned = dict(zip(old, torch.split(weight, [widths[plane] for plane in old], dim=1), strict=True))
    empty = {plane: weight.new_zeros(weight.shape[0], widths[plane], *weight.shape[2:]) for plane in new}
    return torch.cat([learned.get(plane, empty[plane]) for plane in new], dim=1)


def strip_wrappers(table: Mapping[str, Value], label: str) -> dict[str, Value]:
    """A table by name with the names that wrappers add taken out: `module.` in front, `_orig_mod.` anywhere.

    Raises ModelError, which tells the table's `label`, when two names become one.
    """
    stripped: dict[str, Value] = {}
    for name, value in table.items():
        parts = [part for part in name.split(".") if part != "_orig_mod"]
        while len(parts) > 1 and parts[0] == "module":
            parts = parts[1:]
        _put(stripped, ".".join(parts), value, label)
    return stripped


def _rename(tensors: Mapping[str, Tensor], rename: Rename, label: str) -> dict[str, tuple[str, Tensor]]:
    """Old name and tensor by new name."""
    names = {name: name for name in tensors}
    for old, new in rename.items() if isinstance(rename, Mapping) else rename:
        try:
            change = _below if isinstance(rename, Mapping) else re.sub
            changed = {key: change(old, new, name) for key, name in names.items()}
        except re.error as error:
            raise ModelError(f"renaming {old!r} to {new!r} is no regular expression: {error}") from error
        if changed == names:
            raise ModelError(f"renaming {old!r} changes no name of {label}")
        names = changed
    renamed: dict[str, tuple[str, Tensor]] = {}
    for name, tensor in tensors.items():
        _put(renamed, names[name], (name, tensor), label)
    return renamed


def _below(old: str, new: str, name: str) -> str:
    """`name` with `new` for `old` where it is `old` or lies below the module `old`."""
    return new + name[len(old) :] if name == old or name.startswith(f"{old}.") else name


def _put(table: dict[str, Value], name: str, value: Value, label: str) -> None:
    if name in table:
        raise ModelError(f"two tensors of {label} have the name {name!r} after renaming")
    table[name] = value


def _planes_of(model: nn.Module) -> tuple[str, ...]:
    """Planes that are channels of the first convolution; none for a network that declares no planes."""
    network = _network_in(model)
    return () if network is None else network.channels


def _network_in(model: nn.Module) -> FilterNetwork | None:
    return next((module for module in model.modules() if isinstance(module, FilterNetwork)), None)


def _planes_of_card(card: Card | None) -> tuple[str, ...]:
    if card is None or card.task != "filter":
        return ()
    with torch.random.fork_rng(devices=[]):  # its random start is not to move that of the training
        return _planes_of(create_model(str(card.network), **card.options))


def _first_convolutions(model: nn.Module, adapt_first: bool | Sequence[str]) -> set[str]:
    """Names of the weights that see the input planes."""
    convolutions = _names_of(model, nn.Conv2d)
    if isinstance(adapt_first, bool):
        return {f"{name}.weight" for name in convolutions[:1]}
    unknown = [name for name in adapt_first if name not in convolutions]
    if unknown:
        raise ModelError(f"adapt_first names {unknown[0]!r}, which is no convolution of the network")
    return {f"{name}.weight" for name in adapt_first}


def _names_of(model: nn.Module, kind: type[nn.Module]) -> list[str]:
    names = [name for name, module in model.named_modules() if isinstance(module, kind)]
    return list(strip_wrappers(dict.fromkeys(names), "the network"))


def _form(tensor: Tensor) -> str:
    kind = "" if tensor.is_floating_point() else f" {str(tensor.dtype).removeprefix('torch.')}"
    return f"{tuple(tensor.shape)}{kind}"


def _require_fit(report: TransferReport, partial: bool) -> None:
    unfit = [tensor for tensor in report.tensors if tensor.status in ("skipped", "missing", "unexpected")]
    if partial and len(unfit) == len(report.tensors):
        raise ModelError(f"nothing of {report.source} fits the network")
    if partial or not unfit:
        return
    told = "; ".join(f"{tensor.name} {tensor.status} {tensor.detail}" for tensor in unfit[:SHOWN])
    more = f"; and {len(unfit) - SHOWN} more" if len(unfit) > SHOWN else ""
    raise ModelError(f"{report.source} does not fit the network: {told}{more} (partial loads what fits)")
