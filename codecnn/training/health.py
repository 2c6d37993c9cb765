"""Signs that a network cannot learn: units that are always zero, QP modulations near zero, updates of a wrong size."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from codecnn.base.planes import QP_SCALE
from codecnn.models import QpModulation, Trunk
from codecnn.training.execution import forward_hooks
from codecnn.training.settings import LoopSettings

DEAD_UNITS = 0.5
"""Largest share of dead units in a healthy layer."""
FEW_SAMPLES = 4096
"""Samples of a unit in a batch below which a unit that is always zero may well be active elsewhere."""
SWITCHED_OFF = 0.27
"""Mean factor of the QP modulations, relative to the start of the run, below which they switch the network off.

Modulations shrink in every training, also in successful ones, so the bound lies below what those reach
(docs/research/training_health.md).
"""
UPDATES = (1e-5, 1e-1)
"""Healthy range of the change of a weight tensor per step, relative to its norm, in the median over the tensors."""
IN_A_ROW = 2
"""Consecutive measurements that must agree before a warning is given."""


@dataclass(frozen=True)
class Activity:
    """Activity of a network on one batch, by names of its layers.

    Attributes:
        dead: Share of the units of a layer that ReLU sets to zero at every sample of the batch; layers with at least
            FEW_SAMPLES samples per unit.
        factors: Mean of |factor| over the features of a QP modulation, at `qp`.
        mean_factor: Geometric mean of `factors`; 1 for a network without modulations.
        qp: QP of the batch at which that mean is smallest; None for a network without modulations.
        features: Root mean square of the output of a block, after its modulation.
    """

    dead: Mapping[str, float]
    factors: Mapping[str, float]
    mean_factor: float
    qp: float | None
    features: Mapping[str, float]


@dataclass(frozen=True)
class Health:
    """Measurements of one step; sizes by names of parameters.

    Attributes:
        step: Number of the step; the first is 1.
        activity: Activity on the batch of the step; None if the network was not called.
        gradients: Norms of the gradients before clipping.
        updates: Norm of the change of a tensor relative to the norm of the tensor, scaled to the full learning rate;
            only tensors of two or more dimensions that were not zero.
    """

    step: int
    activity: Activity | None
    gradients: Mapping[str, float]
    updates: Mapping[str, float]


class _DeadUnits(TorchFunctionMode):
    """Mode that records the share of dead units at every ReLU, whether called as a function or as a module."""

    def __init__(self) -> None:
        super().__init__()
        self.last_layer = ""
        self.dead: dict[str, Tensor] = {}

    def set_last_layer(self, layer: str, output: Any) -> None:
        """Note the layer that ran last; to be called after each layer."""
        self.last_layer = layer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        # Without gradients dense blocks clamp into a buffer.
        relu = name in ("relu", "relu_") or (name == "clamp" and kwargs.get("min") == 0 and "max" not in kwargs)
        if relu and args[0].ndim == 4 and args[0][:, 0].numel() >= FEW_SAMPLES:
            self.dead[self.last_layer] = 1 - (args[0] > 0).any(3).any(2).any(0).float().mean()
        return func(*args, **kwargs)


@torch.no_grad()
def measure_activity(network: nn.Module, inputs: tuple[Any, ...]) -> Activity:
    """Run `network(*inputs)` in evaluation mode and measure its activity; the network is not changed."""
    modes = [(module, module.training) for module in network.modules()]
    layers = {name: module for name, module in network.named_modules() if not any(module.children())}
    units, features = _DeadUnits(), dict[str, Tensor]()

    def measure_features(name: str, output: Tensor) -> None:
        features[name] = output.float().square().mean().sqrt()

    network.eval()
    try:
        with (
            forward_hooks(layers, units.set_last_layer),
            forward_hooks(trunk_blocks(network), measure_features),
            units,
        ):
            network(*inputs)
    finally:
        for module, mode in modes:
            module.training = mode
    factors, mean_factor, qp = _modulation_factors(network, inputs)
    return Activity(_to_numbers(units.dead), factors, mean_factor, qp, _to_numbers(features))


def trunk_blocks(network: nn.Module) -> dict[str, nn.Module]:
    """Return the blocks of a trunk by name, or the modulations after them; empty for other networks."""
    if not isinstance(network, Trunk):
        return {}
    name = "blocks" if network.modulations is None else "modulations"
    return {f"{name}.{key}": module for key, module in network.get_submodule(name).named_children()}


def _modulation_factors(network: nn.Module, inputs: tuple[Any, ...]) -> tuple[dict[str, float], float, float | None]:
    """Return the mean |factor| by modulation, their geometric mean and the QP, for the QP of the smallest mean."""
    modulations = {name: module for name, module in network.named_modules() if isinstance(module, QpModulation)}
    if not modulations or not isinstance(inputs[0], Mapping) or "qp" not in inputs[0]:
        return {}, 1.0, None
    qps = inputs[0]["qp"].flatten().unique()
    means = torch.stack([m.factors(qps[:, None, None, None])[0].abs().mean((1, 2, 3)) for m in modulations.values()])
    mean_factors = means.log().mean(0).exp()
    smallest = int(mean_factors.argmin())
    return (
        dict(zip(modulations, means[:, smallest].tolist(), strict=True)),
        float(mean_factors[smallest]),
        float(qps[smallest]) * QP_SCALE,
    )


def measure_step(
    network: nn.Module, before: Mapping[str, Tensor], rate: float, clipping: float = 1.0
) -> tuple[dict[str, float], dict[str, float]]:
    """Measure gradients and updates of a step.

    Args:
        network: The network after the step, with its gradients.
        before: Parameters before the step, by name.
        rate: Learning rate of the step relative to the full one.
        clipping: Factor by which clipping multiplied the gradients.

    Returns:
        `gradients` and `updates` as in `Health`.
    """
    gradients, updates = dict[str, Tensor](), dict[str, Tensor]()
    for name, parameter in network.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad.norm() / clipping
            if parameter.ndim >= 2 and rate > 0:
                updates[name] = (parameter.detach() - before[name]).norm() / before[name].norm() / rate
    # A tensor that was zero has no ratio.
    finite = {name: value for name, value in _to_numbers(updates).items() if math.isfinite(value)}
    return _to_numbers(gradients), finite


def _to_numbers(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """Convert scalar tensors to numbers, waiting for the device once."""
    return dict(zip(tensors, torch.stack([*tensors.values()]).tolist(), strict=True)) if tensors else {}


class Diagnosis:
    """Converts the measurements of a run into warnings, each of which is given once.

    A warning names the setting to change and a value to try.
    """

    def __init__(self, settings: LoopSettings) -> None:
        self._settings = settings
        self._counts: dict[tuple[str, str], int] = {}
        self._reported: set[tuple[str, str]] = set()
        # Start weights may have a mean factor below 1, so the first measurement is the reference.
        self._first_mean_factor: float | None = None

    def warnings(self, health: Health) -> list[str]:
        """Return a sentence for each kind of problem that IN_A_ROW measurements show and that was not reported yet.

        To be called with the measurements of a run in order.
        """
        problems = self._problems(health)
        self._counts = {key: self._counts.get(key, 0) + 1 for key in problems}
        due = [key for key, count in self._counts.items() if count >= IN_A_ROW and key not in self._reported]
        self._reported.update(due)
        sentences: dict[str, str] = {}
        for kind, layer in due:  # the worst layer comes first
            sentences.setdefault(kind, problems[kind, layer])
        return list(sentences.values())

    def _problems(self, health: Health) -> dict[tuple[str, str], str]:
        """Return the problems of one measurement as sentences by kind and layer, the worst layers first."""
        name, rate = "learning_rate", self._settings.learning_rate
        if self._settings.optimiser == "muon":
            name, rate = "muon_rate", self._settings.muon_rate
        lower = f"lower training.{name}, for instance to {rate / 4:.1g}"
        problems = {}
        if health.activity is not None:
            activity = health.activity
            dead = {layer: share for layer, share in activity.dead.items() if share > DEAD_UNITS}
            for layer, share in sorted(dead.items(), key=lambda item: -item[1]):
                more = f", as are more than {DEAD_UNITS:.0%} in {len(dead) - 1} other layers" if len(dead) > 1 else ""
                problems["dead", layer] = (
                    f"{share:.0%} of the units after {layer} are zero at every sample of a batch{more}: "
                    f"they no longer learn; {lower}"
                )
            if self._first_mean_factor is None:
                self._first_mean_factor = activity.mean_factor
            if activity.mean_factor < SWITCHED_OFF * self._first_mean_factor:
                layer = min(activity.factors, key=lambda name: activity.factors[name])
                problems["modulation", "all"] = (
                    f"the QP modulations multiply features by {activity.mean_factor:.2g} on average at QP "
                    f"{activity.qp:g} ({layer} by {activity.factors[layer]:.2g}), which switches the network off: "
                    f"{lower}, or only the rate of the modulations, "
                    f"training.modulation_rate={self._settings.modulation_rate / 10:.1g}"
                )
        if health.updates:
            median = statistics.median(health.updates.values())
            size = f"a step changes the weights by {median:.1e} of their norm (median of {len(health.updates)} tensors)"
            if median > UPDATES[1]:
                problems["updates", "large"] = f"{size}, while 1e-3 is usual: {lower}"
            elif median < UPDATES[0]:
                problems["updates", "small"] = (
                    f"{size}, while 1e-3 is usual: raise training.{name}, or check what blocks the gradients"
                )
        return problems
