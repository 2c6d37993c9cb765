"""Whether a network can learn: units that are always zero, features that its modulations switch off, its updates."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from codecnn.models import QpModulation, Trunk
from codecnn.planes import QP_SCALE
from codecnn.training._forward import forward_hooks
from codecnn.training.settings import LoopSettings

DEAD_UNITS = 0.5
"""Share of a layer's units that no sample of a batch makes other than zero."""
FEW_SAMPLES = 4096
"""Below so many samples of a unit in a batch a unit that is zero at all of them may well be alive elsewhere."""
SWITCHED_OFF = 0.27
"""The mean factor of all QP modulations over that of the start, below which they switch the network off.

Modulations shrink in every training: those of the shipped networks have 0.31 to 0.45. `low_cost_17` that starts with a
learning rate of 4e-3, which leads nowhere, has 0.25 after 475 steps and 0.22 after 700, with 2e-3 it has 0.38 and 0.33
(docs/training.md).
"""
UPDATES = (1e-5, 1e-1)
"""A step's change of a tensor of weights over its norm, in the median of all; about 1e-3 is usual."""
IN_A_ROW = 2
"""Measurements that must agree before anything is said."""


@dataclass(frozen=True)
class Activity:
    """What a batch leaves in a network, by the names of its layers.

    dead      share of a layer's units that ReLU makes zero at every sample of the batch, of at least FEW_SAMPLES
    factors   mean of |factor| over the features of a QP modulation, at `qp`
    kept      geometric mean of `factors`; 1 for a network without modulations
    qp        the QP of the batch at which that is least; None for a network without modulations
    features  root of the mean square of what a block returns, its modulation applied
    """

    dead: Mapping[str, float]
    factors: Mapping[str, float]
    kept: float
    qp: float | None
    features: Mapping[str, float]


@dataclass(frozen=True)
class Health:
    """What was measured at a step; sizes by the names of parameters.

    activity   of its batch; None where the network was not called
    gradients  norms, before clipping
    updates    norm of the step's change over that of the tensor, as it would be at the full learning rate; of tensors
               of at least two dimensions that were not zero
    """

    step: int
    activity: Activity | None
    gradients: Mapping[str, float]
    updates: Mapping[str, float]


class _Zeros(TorchFunctionMode):
    """Notes at every ReLU, called as function or module, which units it leaves dead; `layer` is what ran before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = ""
        self.dead: dict[str, Tensor] = {}

    def ran(self, layer: str, made: Any) -> None:
        """To be called after each layer."""
        self.layer = layer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        # Without gradients dense blocks clamp into a buffer.
        relu = name in ("relu", "relu_") or (name == "clamp" and kwargs.get("min") == 0 and "max" not in kwargs)
        if relu and args[0].ndim == 4 and args[0][:, 0].numel() >= FEW_SAMPLES:
            self.dead[self.layer] = 1 - (args[0] > 0).any(3).any(2).any(0).float().mean()
        return func(*args, **kwargs)


@torch.no_grad()
def activity(network: nn.Module, inputs: tuple[Any, ...]) -> Activity:
    """What `inputs` leave in a network, which stays as it is: it runs in evaluation mode, as `network(*inputs)`."""
    modes = [(module, module.training) for module in network.modules()]
    layers = {name: module for name, module in network.named_modules() if not any(module.children())}
    zeros, features = _Zeros(), dict[str, Tensor]()

    def note(name: str, made: Tensor) -> None:
        features[name] = made.float().square().mean().sqrt()

    network.eval()
    try:
        with forward_hooks(layers, zeros.ran), forward_hooks(trunk_blocks(network), note), zeros:
            network(*inputs)
    finally:
        for module, mode in modes:
            module.training = mode
    factors, kept, qp = _factors(network, inputs)
    return Activity(_numbers(zeros.dead), factors, kept, qp, _numbers(features))


def trunk_blocks(network: nn.Module) -> dict[str, nn.Module]:
    """The blocks of a trunk by name, or the modulations behind them where it has some; none of other networks."""
    if not isinstance(network, Trunk):
        return {}
    name = "blocks" if network.modulations is None else "modulations"
    return {f"{name}.{key}": module for key, module in network.get_submodule(name).named_children()}


def _factors(network: nn.Module, inputs: tuple[Any, ...]) -> tuple[dict[str, float], float, float | None]:
    """Mean |factor| by modulation, their geometric mean and the QP, of the batch's QP where that mean is least."""
    modulations = {name: module for name, module in network.named_modules() if isinstance(module, QpModulation)}
    if not modulations or not isinstance(inputs[0], Mapping) or "qp" not in inputs[0]:
        return {}, 1.0, None
    qps = inputs[0]["qp"].flatten().unique()
    means = torch.stack([m.factors(qps[:, None, None, None])[0].abs().mean((1, 2, 3)) for m in modulations.values()])
    kept = means.log().mean(0).exp()
    least = int(kept.argmin())
    return (
        dict(zip(modulations, means[:, least].tolist(), strict=True)),
        float(kept[least]),
        float(qps[least]) * QP_SCALE,
    )


def changes(
    network: nn.Module, before: Mapping[str, Tensor], rate: float, clipped: float = 1.0
) -> tuple[dict[str, float], dict[str, float]]:
    """Gradients and updates of a step as in `Health`, from the parameters `before` it.

    `rate` is the learning rate of the step over the full one, `clipped` what clipping multiplied the gradients by.
    """
    gradients, updates = dict[str, Tensor](), dict[str, Tensor]()
    for name, parameter in network.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad.norm() / clipped
            if parameter.ndim >= 2 and rate > 0:
                updates[name] = (parameter.detach() - before[name]).norm() / before[name].norm() / rate
    # Of a tensor that was zero there is no ratio.
    found = {name: value for name, value in _numbers(updates).items() if math.isfinite(value)}
    return _numbers(gradients), found


def _numbers(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """Scalars as numbers; the device is waited for once."""
    return dict(zip(tensors, torch.stack([*tensors.values()]).tolist(), strict=True)) if tensors else {}


class Diagnosis:
    """Says what is wrong with a network, each thing once: `of` takes the measurements of a run one after the other.

    Sentences name the one of the `settings` that is worth changing, and a value to try.
    """

    def __init__(self, settings: LoopSettings) -> None:
        self._settings = settings
        self._row: dict[tuple[str, str], int] = {}
        self._said: set[tuple[str, str]] = set()
        self._kept: float | None = None  # at the first measurement: weights that one starts from may have less than 1

    def of(self, health: Health) -> list[str]:
        """A sentence for each kind of trouble that IN_A_ROW measurements found and that was not told before."""
        found = self._found(health)
        self._row = {key: self._row.get(key, 0) + 1 for key in found}
        due = [key for key, count in self._row.items() if count >= IN_A_ROW and key not in self._said]
        self._said.update(due)
        told: dict[str, str] = {}
        for kind, layer in due:  # the first is the worst
            told.setdefault(kind, found[kind, layer])
        return list(told.values())

    def _found(self, health: Health) -> dict[tuple[str, str], str]:
        """What is wrong at one measurement, by kind and layer, the worst layers first, and what is to be said of it."""
        name = "muon_rate" if self._settings.optimiser == "muon" else "learning_rate"
        lower = f"lower training.{name}, for instance to {getattr(self._settings, name) / 4:.1g}"
        found = {}
        if health.activity is not None:
            seen = health.activity
            dead = {layer: share for layer, share in seen.dead.items() if share > DEAD_UNITS}
            for layer, share in sorted(dead.items(), key=lambda item: -item[1]):
                others = f", and more than {DEAD_UNITS:.0%} in {len(dead) - 1} other layers" if len(dead) > 1 else ""
                found["dead", layer] = (
                    f"{share:.0%} of the units behind {layer} are zero at every sample of a batch{others}: "
                    f"they no longer learn; {lower}"
                )
            self._kept = seen.kept if self._kept is None else self._kept
            if seen.kept < SWITCHED_OFF * self._kept:
                layer = min(seen.factors, key=lambda name: seen.factors[name])
                found["modulation", "all"] = (
                    f"the QP modulations multiply features by {seen.kept:.2g} in the mean at QP {seen.qp:g} "
                    f"({layer} by {seen.factors[layer]:.2g}), which switches the network off: {lower}, or that "
                    f"of the modulations alone, training.modulation_rate={self._settings.modulation_rate / 10:.1g}"
                )
        if health.updates:
            median = statistics.median(health.updates.values())
            size = f"a step changes the weights by {median:.1e} of their size (median of {len(health.updates)} tensors)"
            if median > UPDATES[1]:
                found["updates", "large"] = f"{size}, where 1e-3 is usual: {lower}"
            elif median < UPDATES[0]:
                found["updates", "small"] = (
                    f"{size}, where 1e-3 is usual: raise training.{name}, or look for what keeps gradients away"
                )
        return found
