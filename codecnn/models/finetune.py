"""Fine-tuning: parameter groups by name, and parts of a network that stay as they are."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MethodType
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from codecnn.errors import ModelError
from codecnn.models._transfer import strip_wrappers

GROUP_OPTIONS = ("lr", "weight_decay", "betas", "eps")
"""What a parameter group may set. Torch's optimisers take any key and pass over those they do not know."""


def parameter_groups(model: nn.Module, groups: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Parameter groups for a torch optimiser: {pattern: {"lr": ..., "weight_decay": ...}}, every parameter once.

    A pattern is a glob on whole parameter names ("head.*", "*.bias"); a parameter goes to the first that matches, the
    rest to a last group that keeps the optimiser's own settings. Each group tells its pattern as "name" ("rest" for
    the last). Raises ModelError for a pattern that is left without parameters, and for a setting not in
    GROUP_OPTIONS.
    """
    members: dict[str, list[nn.Parameter]] = {pattern: [] for pattern in groups}
    rest: list[nn.Parameter] = []
    for name, parameter in strip_wrappers(dict(model.named_parameters()), "the network").items():
        pattern = next((pattern for pattern in groups if fnmatchcase(name, pattern)), None)
        (rest if pattern is None else members[pattern]).append(parameter)
    for pattern, options in groups.items():
        if not members[pattern]:
            raise ModelError(
                f"the group {pattern!r} is left without parameters: no name matches it that none before did"
            )
        unknown = [key for key in options if key not in GROUP_OPTIONS]
        if unknown:
            raise ModelError(f"the group {pattern!r} sets {unknown[0]!r}: known are {', '.join(GROUP_OPTIONS)}")
    made = [{"params": members[pattern], "name": pattern, **options} for pattern, options in groups.items()]
    return [*made, {"params": rest, "name": "rest"}] if rest else made


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Keep the parameters whose names match a glob as they are, and return their names.

    They ask for no gradient. Batch norms all of whose parameters are frozen, or that have none and whose
    running mean matches, stay in evaluation mode whatever `train` says. Call it before the network is copied (averaged
    weights), compiled or handed to data parallel. Raises ModelError for a pattern that matches nothing, and when
    nothing is left to train.
    """
    parameters = strip_wrappers(dict(model.named_parameters()), "the network")
    norms = {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
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
    """Keep a module in evaluation mode whatever `train` says."""
    # A bound method and no closure: a deep copy of the network then has it bound to the copy.
    norm.train = MethodType(_train_in_evaluation, norm)  # type: ignore[method-assign]
    norm.eval()


def _train_in_evaluation(norm: nn.Module, mode: bool = True) -> nn.Module:
    return nn.Module.train(norm, False)
