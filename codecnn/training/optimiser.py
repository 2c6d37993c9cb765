"""Optimisers and the learning-rate schedule: the optimisers of torch, or Muon together with AdamW."""

from collections.abc import Sequence
from itertools import compress
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from codecnn.models import hidden_weights, modulation_parameters, parameter_groups
from codecnn.training.settings import LoopSettings

MOMENTUM = 0.9
"""Momentum of SGD and RMSprop; Muon and AdamW use the defaults of torch."""


def warmup_cosine(optimiser: torch.optim.Optimizer, settings: LoopSettings) -> LRScheduler:
    """Create the learning-rate schedule: linear warm-up from 1 % over `warmup` steps, then a cosine to zero."""
    warmup = min(settings.warmup, settings.steps - 1)
    cosine = CosineAnnealingLR(optimiser, T_max=settings.steps - warmup)
    if warmup == 0:
        return cosine
    return SequentialLR(optimiser, [LinearLR(optimiser, 0.01, 1.0, total_iters=warmup), cosine], milestones=[warmup])


def make_optimiser(model: nn.Module, settings: LoopSettings) -> torch.optim.Optimizer:
    """Create the optimiser that the settings ask for, with every trained parameter in exactly one group.

    The groups of the settings come first. Of the remaining parameters, the weights of hidden convolutions belong to
    Muon if the optimiser is "muon", and the parameters of QP modulations learn at `modulation_rate` times the learning
    rate.
    """
    options_by_pattern = {pattern: group.model_dump(exclude_none=True) for pattern, group in settings.groups.items()}
    groups = parameter_groups(model, options_by_pattern)
    if settings.modulation_rate != 1:
        rate = settings.learning_rate * settings.modulation_rate
        _take_from_rest(groups, modulation_parameters(model), name="modulations", lr=rate)
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    match settings.optimiser:
        case "sgd":
            return torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=True, **options)
        case "rmsprop":
            return torch.optim.RMSprop(groups, momentum=MOMENTUM, **options)
    hidden: list[nn.Parameter] = []
    if settings.optimiser == "muon":
        hidden = _take_from_rest(groups, hidden_weights(model))
    fused = next(model.parameters()).device.type != "cpu" or None  # one kernel for all parameters
    adamw = torch.optim.AdamW(groups, fused=fused, **options)
    if not hidden:
        return adamw
    return CombinedOptimiser(
        [adamw, ConvolutionMuon(hidden, lr=settings.muon_rate, weight_decay=settings.weight_decay)]
    )


def _take_from_rest(groups: list[dict[str, Any]], chosen: Sequence[nn.Parameter], **group: Any) -> list[nn.Parameter]:
    """Remove the chosen parameters from the group "rest"; with options `group` they form a new group before it."""
    if not groups or groups[-1]["name"] != "rest":
        return []
    rest, chosen_ids = groups.pop(), {id(parameter) for parameter in chosen}
    taken = [parameter for parameter in rest["params"] if id(parameter) in chosen_ids]
    remaining = [parameter for parameter in rest["params"] if id(parameter) not in chosen_ids]
    if taken and group:
        groups.append({"params": taken, **group})
    if remaining:
        groups.append({**rest, "params": remaining})
    return taken


class ConvolutionMuon(torch.optim.Muon):
    """Muon of torch applied to weights of convolutions (out, in, h, w), each as the matrix (out, h * w * in).

    Muon steps along the orthogonal matrix that is nearest to the momentum of the gradient, so that directions of weak
    gradients are learned as fast as those of strong ones (Jordan et al., "Muon", 2024). The optimiser of torch accepts
    matrices only; a weight in the memory format channels-last is one without copying.
    """

    def __init__(self, weights: Sequence[nn.Parameter], **options: Any) -> None:
        self._weights = list(weights)
        super().__init__([nn.Parameter(_as_matrix(weight.detach())) for weight in weights], **options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step from the gradients of the convolutions.

        Raises:
            RuntimeError: A weight has been moved to other memory since the optimiser was created.
        """
        for matrix, weight in zip(self._matrices(), self._weights, strict=True):
            # The step writes into the memory of the weight; a weight that was moved would silently not learn.
            if matrix.data_ptr() != weight.data_ptr():
                raise RuntimeError("a weight was moved after the optimiser was created: move the network first")
            matrix.grad = None if weight.grad is None else _as_matrix(weight.grad, view=False)
        super().step()  # type: ignore[no-untyped-call]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Release all gradients."""
        for parameter in (*self._matrices(), *self._weights):
            parameter.grad = None

    def _matrices(self) -> list[nn.Parameter]:
        return [matrix for group in self.param_groups for matrix in group["params"]]


def _as_matrix(tensor: Tensor, view: bool = True) -> Tensor:
    """Return (out, in, h, w) as (out, h * w * in), which shares the memory of a channels-last tensor."""
    moved = tensor.permute(0, 2, 3, 1)
    return moved.view(len(tensor), -1) if view else moved.reshape(len(tensor), -1)


class MovingAverage(AveragedModel):
    """Exponential moving average of the trained weights of a network; all other tensors are those of the network.

    The average of torch copies the number of updates to the device at every update, and waits for the copy. It also
    searches all modules for their parameters, which takes a tenth of the processor time of a step on a GPU.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Start from a copy of `model`."""
        super().__init__(model, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]
        pairs = list(zip(self.module.parameters(), model.parameters(), strict=True))
        trained = [latest.requires_grad for _, latest in pairs]
        self._averaged, self._latest = ([*compress(side, trained)] for side in zip(*pairs, strict=True))
        # An average of values that are not trained would turn infinities to NaN, and integers have none.
        self._fixed = [pair for pair in pairs if not pair[1].requires_grad]
        self._has_buffers = any(True for _ in model.buffers())

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Move the average towards the weights of `model`, the network it was made from; the first call copies them."""
        averaged, latest = self._averaged, self._latest
        if int(self.n_averaged) == 0:  # on the CPU
            for average, weight in zip(averaged, latest, strict=True):
                average.copy_(weight)
        else:
            assert self.multi_avg_fn is not None
            self.multi_avg_fn(averaged, latest, 0)
        for fixed, value in self._fixed:
            fixed.copy_(value)
        if self._has_buffers:  # a network may replace its buffers
            for old, new in zip(self.module.buffers(), model.buffers(), strict=True):
                old.copy_(new)
        self.n_averaged += 1


class CombinedOptimiser(torch.optim.Optimizer):
    """Several optimisers of different parameters as one; schedules see the groups of all of them."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = list(parts)
        super().__init__([{"params": [torch.zeros(0)]}], {})
        self._collect_groups()

    def _collect_groups(self) -> None:
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step with every part."""
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Release all gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the parts."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the states of the parts, whose groups become new objects."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._collect_groups()
