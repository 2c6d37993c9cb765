"""Fine-tuning: tensors of one network into another, parameter groups, frozen parts and roles of parameters."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from codecnn.base.errors import ModelError
from codecnn.models.base import FilterNetwork
from codecnn.models.blocks import BatchNorm, QpGain, QpModulation
from codecnn.models.card import Card
from codecnn.models.weights import check_permitted, check_tensor, read_tensors
from codecnn.models.zoo import create_model

STATUSES = ("loaded", "renamed", "adapted", "skipped", "missing", "unexpected")
"""Statuses of a tensor in a report."""

SHOWN = 4
"""Number of differences that an error message lists."""

_BEYOND = ".beyond.weight"
"""End of the name of the vectors of `QpModulation` beyond a range of QPs."""

GROUP_OPTIONS = ("lr", "weight_decay", "betas", "eps")
"""Options of a parameter group; PyTorch's optimisers silently ignore other keys."""

Value = TypeVar("Value")
Rename = Mapping[str, str] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class TensorReport:
    """Result of the transfer of one tensor.

    Attributes:
        name: Name in the network; for an unexpected tensor, the name in the file after renaming.
        status: One of `STATUSES`.
        detail: Name in the file, differing shapes, or planes; empty if there is nothing to add.
    """

    name: str
    status: str
    detail: str = ""


@dataclass(frozen=True)
class TransferReport:
    """Results of a transfer for all tensors of a network and a file.

    Attributes:
        source: Name of the file.
        tensors: Results in the order of the network; unexpected tensors come last.
    """

    source: str
    tensors: tuple[TensorReport, ...]

    def names(self, status: str) -> list[str]:
        """Return the names of the tensors with a status."""
        return [tensor.name for tensor in self.tensors if tensor.status == status]

    def as_dict(self) -> dict[str, Any]:
        """Return source, counts by status and a row per tensor, as in JSON files."""
        counts = Counter(tensor.status for tensor in self.tensors)
        rows = [asdict(tensor) for tensor in self.tensors]
        return {"source": self.source, "counts": {key: counts[key] for key in STATUSES}, "tensors": rows}

    def __str__(self) -> str:
        """Return a line of counts and a line per tensor with status, name and detail."""
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
    """Copy tensors of a file into a network by name.

    Prefixes that wrappers add to names are ignored, in the file and in the network: `module.` at the start (data
    parallel, averaged models) and `_orig_mod.` anywhere (compiled networks). The network is changed only if there is no
    error.

    Args:
        model: The network that is changed.
        source: A .safetensors file, the name of shipped weights, or a table of tensors by name.
        rename: Renames before the comparison, in order: {old: new} for a tensor or all tensors below a module, or pairs
            (regular expression, replacement) as for `re.sub`.
        planes: Input planes of the source's first convolution; by default those of the network on the file's card.
        adapt_first: Adapt the first convolution if the planes differ: weights follow their planes, those of added
            planes are zero, and a `QpGain` that the source does not have becomes a factor of 1, so that the network
            computes the same as the source. Vectors beyond a range of QPs (`QpModulation`) become zero if the source
            has none, and are left out if the network has none; inside the range nothing changes. True selects the first
            2-D convolution of the network; a sequence gives the module names of other ones.
        partial: Load the tensors that fit. By default, every tensor of network and file must have a counterpart.

    Returns:
        The result for every tensor.

    Raises:
        MissingFileError: The file does not exist.
        ModelError: The file is a pickle or damaged, a trained parameter would not be finite, a rename matches nothing,
            two tensors have the same name, planes differ or would be lost, or tensors do not fit (with `partial`, none
            fits).
    """
    label = "the given tensors" if isinstance(source, Mapping) else str(source)
    if isinstance(source, Mapping):
        tensors = dict(source)
    else:
        tensors, card = read_tensors(source)
        planes = planes or _planes_of_card(card)
    given = _rename(strip_wrappers(tensors, label), rename, label)
    target = strip_wrappers(model.state_dict(keep_vars=True), "the network")
    old = tuple(planes or ())
    new = _planes_of(model)
    changed = bool(old and new) and old != new
    if changed and not adapt_first and not partial:
        raise ModelError(
            f"{label} is of a network with the planes {', '.join(old)}, this one has {', '.join(new)}: "
            "adapt_first adapts the first convolution"
        )
    first = _first_convolutions(model, adapt_first) if changed else ()

    reports, copies = [], {}
    for name, parameter in target.items():
        if name not in given:
            if adapt_first and name in {f"{gain}.log_gain" for gain in _names_of(model, QpGain)}:
                copies[name] = torch.zeros_like(parameter)
                reports.append(TensorReport(name, "adapted", "a factor of 1 at every QP"))
            elif adapt_first and name.endswith(_BEYOND):
                copies[name] = torch.zeros_like(parameter)
                reports.append(TensorReport(name, "adapted", "other QPs start as the nearest one of the range"))
            else:
                reports.append(TensorReport(name, "missing", _shape_text(parameter)))
            continue
        old_name, tensor = given[name]
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
        floating = tensor.is_floating_point() and parameter.is_floating_point()
        if tensor.shape != parameter.shape or not (floating or tensor.dtype == parameter.dtype):
            shapes = f"{_shape_text(tensor)} in the file, {_shape_text(parameter)} in the network"
            reports.append(TensorReport(name, "skipped", shapes))
            continue
        check_tensor(old_name, tensor, parameter, label)
        copies[name] = tensor
        reports.append(TensorReport(name, status, detail))
    for name in given:
        if name in target:
            continue
        if adapt_first and name.endswith(_BEYOND):
            reports.append(TensorReport(name, "adapted", "left out, since the network has no qp_range"))
        else:
            reports.append(TensorReport(name, "unexpected", _shape_text(given[name][1])))

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
    """Rearrange the weight of a first convolution for other planes; added planes get zero weights.

    Args:
        weight: Weight, shape (out, channels of `old`, kh, kw).
        old: Planes of the weight.
        new: Planes of the result.
        name: Name of the tensor for error messages.
        drop: Allow that planes of `old` are missing in `new`.
        width: Number of channels of a plane; None if all planes have equally many, as after PixelUnshuffle
            (channel = plane · s² + position).

    Raises:
        ModelError: The weight does not fit `old`, or a plane is missing in `new`.
    """
    channels, rest = divmod(weight.shape[1] if weight.dim() == 4 else 1, len(old))
    widths = {plane: width(plane) or channels for plane in (*old, *new)}
    equal = len(set(widths.values())) == 1
    fits = not rest and channels and math.isqrt(channels) ** 2 == channels
    if weight.dim() != 4 or (not fits if equal else sum(widths[plane] for plane in old) != weight.shape[1]):
        planes = ", ".join(old)
        raise ModelError(f"{name} {_shape_text(weight)} does not have s x s channels for each of the planes {planes}")
    lost = [plane for plane in old if plane not in new]
    if lost and not drop:
        raise ModelError(f"{name} uses the plane {lost[0]!r}, which the network does not have (partial drops it)")
    learned = dict(zip(old, torch.split(weight, [widths[plane] for plane in old], dim=1), strict=True))
    empty = {plane: weight.new_zeros(weight.shape[0], widths[plane], *weight.shape[2:]) for plane in new}
    return torch.cat([learned.get(plane, empty[plane]) for plane in new], dim=1)


def strip_wrappers(table: Mapping[str, Value], label: str) -> dict[str, Value]:
    """Remove the prefixes that wrappers add to names: `module.` at the start, `_orig_mod.` anywhere.

    Args:
        table: Values by name.
        label: Name of the table for error messages.

    Raises:
        ModelError: Two names become equal.
    """
    stripped: dict[str, Value] = {}
    for name, value in table.items():
        parts = [part for part in name.split(".") if part != "_orig_mod"]
        while len(parts) > 1 and parts[0] == "module":
            parts = parts[1:]
        _put(stripped, ".".join(parts), value, label)
    return stripped


def _rename(tensors: Mapping[str, Tensor], rename: Rename, label: str) -> dict[str, tuple[str, Tensor]]:
    """Return old name and tensor by new name."""
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
    """Replace `old` by `new` if it is the name or a module that contains it."""
    return new + name[len(old) :] if name == old or name.startswith(f"{old}.") else name


def _put(table: dict[str, Value], name: str, value: Value, label: str) -> None:
    if name in table:
        raise ModelError(f"two tensors of {label} have the name {name!r} after renaming")
    table[name] = value


def _planes_of(model: nn.Module) -> tuple[str, ...]:
    """Return the planes that are channels of the first convolution; none if the network declares no planes."""
    network = _network_in(model)
    return () if network is None else network.channels


def _network_in(model: nn.Module) -> FilterNetwork | None:
    return next((module for module in model.modules() if isinstance(module, FilterNetwork)), None)


def _planes_of_card(card: Card | None) -> tuple[str, ...]:
    if card is None or card.task != "filter":
        return ()
    check_permitted(card, "the start weights")
    with torch.random.fork_rng(devices=[]):  # keeps the random state of the training unchanged
        return _planes_of(create_model(str(card.network), **card.options))


def _first_convolutions(model: nn.Module, adapt_first: bool | Sequence[str]) -> set[str]:
    """Return the names of the weights that take the input planes."""
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


def _shape_text(tensor: Tensor) -> str:
    kind = "" if tensor.is_floating_point() else f" {str(tensor.dtype).removeprefix('torch.')}"
    return f"{tuple(tensor.shape)}{kind}"


def _require_fit(report: TransferReport, partial: bool) -> None:
    unfit = [tensor for tensor in report.tensors if tensor.status in ("skipped", "missing", "unexpected")]
    if partial and len(unfit) == len(report.tensors):
        raise ModelError(f"no tensor of {report.source} fits the network")
    if partial or not unfit:
        return
    first = "; ".join(f"{tensor.name} {tensor.status} {tensor.detail}" for tensor in unfit[:SHOWN])
    more = f"; and {len(unfit) - SHOWN} more" if len(unfit) > SHOWN else ""
    raise ModelError(f"{report.source} does not fit the network: {first}{more} (partial loads what fits)")


def parameter_groups(model: nn.Module, groups: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Divide the parameters of a network into groups for a PyTorch optimiser.

    Args:
        model: The network.
        groups: Options of `GROUP_OPTIONS` by pattern, a glob on whole parameter names ("head.*", "*.bias"). A parameter
            belongs to the first pattern that matches.

    Returns:
        Groups with "params", the pattern as "name", and the options; the last group, "rest", has the parameters that no
        pattern matches and the settings of the optimiser.

    Raises:
        ModelError: A pattern has no parameters, or an option is unknown.
    """
    members: dict[str, list[nn.Parameter]] = {pattern: [] for pattern in groups}
    rest: list[nn.Parameter] = []
    for name, parameter in strip_wrappers(dict(model.named_parameters()), "the network").items():
        pattern = next((pattern for pattern in groups if fnmatchcase(name, pattern)), None)
        (rest if pattern is None else members[pattern]).append(parameter)
    for pattern, options in groups.items():
        if not members[pattern]:
            raise ModelError(
                f"the group {pattern!r} is left without parameters: it matches no name that is not in a group before"
            )
        unknown = [key for key in options if key not in GROUP_OPTIONS]
        if unknown:
            raise ModelError(f"the group {pattern!r} sets {unknown[0]!r}: known are {', '.join(GROUP_OPTIONS)}")
    named = [{"params": members[pattern], "name": pattern, **options} for pattern, options in groups.items()]
    return [*named, {"params": rest, "name": "rest"}] if rest else named


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Exclude parameters from training.

    Batch normalisation stays in evaluation mode if all its parameters are frozen, or if it has none and its running
    mean matches. Call this function before the network is copied (averaged weights), compiled or wrapped for data
    parallel training.

    Args:
        model: The network that is changed.
        patterns: Globs on whole parameter names.

    Returns:
        Names of the frozen parameters.

    Raises:
        ModelError: A pattern matches nothing, or no parameter remains to be trained.
    """
    parameters = strip_wrappers(dict(model.named_parameters()), "the network")
    norms = {name: module for name, module in model.named_modules() if isinstance(module, BatchNorm)}
    means = strip_wrappers(
        {f"{name}.running_mean": norm for name, norm in norms.items() if not norm.affine}, "the network"
    )
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in (*parameters, *means)):
            raise ModelError(f"nothing to freeze: no parameter's name matches {pattern!r}")
    frozen = [name for name in parameters if _matches(name, patterns)]
    if len(frozen) == len(parameters):
        raise ModelError(f"freezing {', '.join(patterns)} leaves no parameter to train")
    for name in frozen:
        parameters[name].requires_grad_(False)
    for norm in norms.values():
        if norm.affine and not any(parameter.requires_grad for parameter in norm.parameters()):
            stay_in_evaluation(norm)
    for name, norm in means.items():
        if _matches(name, patterns):
            stay_in_evaluation(norm)
    return frozen


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def stay_in_evaluation(norm: nn.Module) -> None:
    """Keep a module in evaluation mode, also when `train` is called."""
    # With a bound method instead of a closure, a deep copy of the network has a method bound to the copy.
    norm.train = MethodType(_train_in_evaluation, norm)  # type: ignore[method-assign]
    norm.eval()


def _train_in_evaluation(norm: nn.Module, mode: bool = True) -> nn.Module:
    return nn.Module.train(norm, False)


def hidden_weights(model: nn.Module) -> list[nn.Parameter]:
    """Return the weights (out, in, h, w) of convolutions from all features to features.

    Excluded are the first and last convolution of a network, which have samples as input or output, and grouped ones,
    whose weights are many small filters instead of a matrix.
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.ConvTranspose2d)]
    weights = [module.weight for module in convolutions[1:-1] if module.groups == 1]
    return [weight for weight in weights if isinstance(weight, nn.Parameter)]


def modulation_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of the modulations by the QP (`QpModulation`)."""
    modulations = [module for module in model.modules() if isinstance(module, QpModulation)]
    return [parameter for module in modulations for parameter in module.parameters()]
