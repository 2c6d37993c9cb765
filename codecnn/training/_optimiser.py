"""What moves the weights: one of torch's optimisers, or Muon and AdamW side by side."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from codecnn.models import hidden_weights, modulation_parameters, parameter_groups
from codecnn.training.settings import LoopSettings

MOMENTUM = 0.9
"""Of SGD and RMSprop; Muon and AdamW have torch's own."""


def make_optimiser(model: nn.Module, settings: LoopSettings) -> torch.optim.Optimizer:
    """The optimiser of the settings over all parameters, each in one group.

    Groups of the settings come first. Of the parameters that are in none, the hidden convolutions' weights are Muon's
    under "muon", and what is made of the QP learns at `modulation_rate` times the learning rate.
    """
    given = {pattern: group.model_dump(exclude_none=True) for pattern, group in settings.groups.items()}
    groups = parameter_groups(model, given)
    if settings.modulation_rate != 1:
        rate = settings.learning_rate * settings.modulation_rate
        _take(groups, modulation_parameters(model), name="modulations", lr=rate)
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    match settings.optimiser:
        case "sgd":
            return torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=True, **options)
        case "rmsprop":
            return torch.optim.RMSprop(groups, momentum=MOMENTUM, **options)
    hidden: list[nn.Parameter] = []
    if settings.optimiser == "muon":
        hidden = _take(groups, hidden_weights(model))
    fused = next(model.parameters()).device.type == "cuda" or None  # in one kernel
    adamw = torch.optim.AdamW(groups, fused=fused, **options)
    if not hidden:
        return adamw
    return SideBySide([adamw, ConvolutionMuon(hidden, lr=settings.muon_rate, weight_decay=settings.weight_decay)])


def _take(groups: list[dict[str, Any]], chosen: Sequence[nn.Parameter], **group: Any) -> list[nn.Parameter]:
    """Take parameters out of the group "rest"; with a name they become a group of their own, in front of it."""
    if not groups or groups[-1]["name"] != "rest":
        return []
    rest, wanted = groups.pop(), {id(parameter) for parameter in chosen}
    taken = [parameter for parameter in rest["params"] if id(parameter) in wanted]
    left = [parameter for parameter in rest["params"] if id(parameter) not in wanted]
    if taken and group:
        groups.append({"params": taken, **group})
    if left:
        groups.append({**rest, "params": left})
    return taken


class ConvolutionMuon(torch.optim.Muon):
    """torch's Muon on weights of convolutions (out, in, h, w), each taken as the matrix (out, h·w·in).

    Muon steps along the orthogonal matrix that is nearest to the gradient's momentum, so that directions in which the
    gradient is weak are learned as fast as those in which it is strong (Jordan et al., "Muon", 2024). torch's takes
    matrices alone; a weight that lies channels last is one without copying.
    """

    def __init__(self, weights: Sequence[nn.Parameter], **options: Any) -> None:
        self._weights = list(weights)
        super().__init__([nn.Parameter(_as_matrix(weight.detach())) for weight in weights], **options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step from the gradients of the convolutions' own weights."""
        for matrix, weight in zip(self._matrices(), self._weights, strict=True):
            # The step writes into the weight's memory; a weight that was given other memory since would not learn.
            if matrix.data_ptr() != weight.data_ptr():
                raise RuntimeError("a weight was moved after the optimiser was made")
            matrix.grad = None if weight.grad is None else _as_matrix(weight.grad, view=False)
        super().step()  # type: ignore[no-untyped-call]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Let go of all gradients."""
        for parameter in (*self._matrices(), *self._weights):
            parameter.grad = None

    def _matrices(self) -> list[nn.Parameter]:
        return [matrix for group in self.param_groups for matrix in group["params"]]


def _as_matrix(tensor: Tensor, view: bool = True) -> Tensor:
    """(out, in, h, w) as (out, h·w·in), which for channels last is the same memory."""
    moved = tensor.permute(0, 2, 3, 1)
    return moved.view(len(tensor), -1) if view else moved.reshape(len(tensor), -1)


class SideBySide(torch.optim.Optimizer):
    """Several optimisers of different parameters as one: schedules see the groups of all of them."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = list(parts)
        super().__init__([{"params": [torch.zeros(0)]}], {})
        self._join()

    def _join(self) -> None:
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """A step of every part."""
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Let go of all gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The states of the parts."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the states of the parts; their groups are then new objects."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._join()
