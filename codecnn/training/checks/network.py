"""Checks of the network: its start, its gradients, its modes and layers, its arithmetic, and its first steps."""

import copy
import itertools
import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from codecnn.models import BatchNorm
from codecnn.training.checks.base import Measured, Setup, abbreviated, adam, check, outputs, train_step
from codecnn.training.execution import forward_hooks
from codecnn.training.health import (
    DEAD_UNITS,
    FEW_SAMPLES,
    UPDATES,
    Activity,
    Health,
    measure_activity,
    measure_step,
)
from codecnn.training.optimiser import make_optimiser, warmup_cosine
from codecnn.training.settings import LoopSettings
from codecnn.training.task import Batch

START_BOUND = 1e-5
"""Relative error of the first loss; an identity has the loss of no filter exactly, apart from reduced precision."""
OVERFIT_DB = 1.0
"""Fall of the loss in dB that fitting a single batch has to reach."""
OVERFIT_STEPS = 400
"""Steps within which it has to be reached."""
OVERFIT_RATE = 3e-3
"""Learning rate of these steps."""
LOSS_BOUND, GRADIENT_BOUND = 3e-6, 2e-4
"""Largest relative errors of loss and gradient in float32 against float64, above those of the shipped networks."""
STEPS, WARMUP = 300, 100
"""Number of first steps, and of those with a rising learning rate unless the settings warm up faster."""
JOINED_BATCHES = 16
"""Small batches that are joined to measure activity, so that a unit has enough samples."""
MEAN_FACTOR_BOUND = 0.3
"""Smallest mean factor of the QP modulations after STEPS relative to the start (docs/research/checks.md)."""


class NoFilter(nn.Module):
    """Network that returns the decoded planes, cropped to the size of the originals in the batch."""

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the decoded plane (n, 1, h, w) for every orig_* of the batch, by component."""
        planes = {}
        for name in [key.removeprefix("orig_") for key in batch if key.startswith("orig_")]:
            decoded, (height, width) = batch[f"rec_{name}"], batch[f"orig_{name}"].shape[2:]
            top, left = (decoded.shape[2] - height) // 2, (decoded.shape[3] - width) // 2
            planes[name] = decoded[:, :, top : top + height, left : left + width]
        return planes


@check(
    "initial loss",
    "let the network start as the identity: last convolution zero, and the decoded picture added to its output",
)
@torch.no_grad()
def check_initial_loss(setup: Setup, batches: int = 4) -> Measured:
    """Check that the loss of the untrained network equals that of no filter, within START_BOUND."""
    if setup.no_identity is not None:
        return None, setup.no_identity
    network = setup.network()
    drawn = setup.draw(batches)
    first = sum(setup.loss(network, batch).item() for batch in drawn) / batches
    none = sum(setup.loss(NoFilter(), batch).item() for batch in drawn) / batches
    # False if a loss is not finite.
    return abs(first - none) <= START_BOUND * none, f"{first:.6g}, without a filter {none:.6g}"


@check(
    "one batch overfitted",
    "the network cannot fit a single batch: check the loss, detached tensors, and what reaches the output",
)
def check_overfit(setup: Setup, seconds: float = 60) -> Measured:
    """Check that a single batch can be fitted: its loss falls by OVERFIT_DB within OVERFIT_STEPS steps.

    The fall is 10 * log10(loss before / loss after) in dB; for a squared error that is the gain in PSNR. A network that
    is too slow to decide within `seconds` is skipped.
    """
    network, (batch,) = setup.network(), setup.draw(1)
    optimiser = adam(network, OVERFIT_RATE)
    started = time.monotonic()
    first, gain, step = math.nan, 0.0, 0
    for step in range(OVERFIT_STEPS + 1):
        loss = train_step(setup, network, optimiser, batch).item()
        first = loss if step == 0 else first
        gain = max(gain, 10 * math.log10(first / loss)) if loss > 0 and first > 0 else gain
        if gain >= OVERFIT_DB or not math.isfinite(loss):
            break
        if time.monotonic() - started > seconds:
            return None, f"{gain:.2f} dB after {step} steps, the most that {seconds:.0f} s allow"
    return gain >= OVERFIT_DB, f"{gain:.2f} dB after {step} steps"


@check(
    "gradients",
    "these parameters are unused, or cut off by detach(), no_grad() or dead activations: remove or connect them",
)
def check_gradients(setup: Setup, steps: int = 5) -> Measured:
    """Check that gradients are finite, and that every trained parameter gets a non-zero one within some steps.

    Several steps, since a last layer that starts at zero blocks the gradients of all layers before it at first.
    """
    network = setup.network()
    optimiser = adam(network)
    trained = {key: parameter for key, parameter in network.named_parameters() if parameter.requires_grad}
    reached: set[str] = set()
    for index, batch in enumerate(setup.draw(steps)):
        loss = setup.loss(network, batch)
        if not loss.requires_grad:
            return False, "none at all", "the loss does not depend on any parameter: look for detach()"
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = {key: parameter.grad for key, parameter in trained.items() if parameter.grad is not None}
        not_finite = [key for key, gradient in gradients.items() if not gradient.isfinite().all()]
        if not_finite or not loss.isfinite():
            where = (
                f"in {abbreviated(not_finite)} at step {index + 1}"
                if not_finite
                else f"of the loss at step {index + 1}"
            )
            return False, f"not finite {where}", "look for a division by zero, a root or logarithm of 0"
        reached |= {key for key, gradient in gradients.items() if gradient.any()}
        optimiser.step()
    without = [key for key in trained if key not in reached]
    if without:
        return False, f"none in {len(without)} of {len(trained)}: {abbreviated(without)}"
    return True, f"in all {len(trained)} tensors"


@check(
    "evaluation mode",
    "dropout or batch norm behaves as in training: use modules instead of functions with training=True, and do not "
    "call train() in forward",
)
@torch.no_grad()
def check_evaluation_mode(setup: Setup) -> Measured:
    """Check that the output in evaluation mode depends only on the input.

    The output is the same for a second call and for a patch alone as within its batch (batch norm that normalises by
    the batch gives another one), and the state of the network does not change.
    """
    network, (batch,) = setup.network_without_zeros().eval(), setup.draw(1)
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    first, second = outputs(network, batch), outputs(network, batch)
    alone = outputs(network, {key: tensor[:1] for key, tensor in batch.items()})
    changed = [key for key, tensor in network.state_dict().items() if not _equal(tensor, before[key])]
    repeat_difference = max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))
    alone_difference = max(float((a[:1] - b).abs().max()) for a, b in zip(first, alone, strict=True))
    measured = f"second call differs by {repeat_difference:.1e}, a patch alone by {alone_difference:.1e}"
    measured += f", {abbreviated(changed)} changed" if changed else ""
    return repeat_difference == 0 and alone_difference <= 1e-5 and not changed, measured


@check(
    "batch norm",
    "evaluation would normalise by untrained statistics: set momentum above 0 and track_running_stats, and do not call "
    "eval() during training",
)
def check_batch_norm(setup: Setup, steps: int = 3) -> Measured:
    """Check that training changes the running mean and variance of every batch norm that is not frozen."""
    network = setup.network()
    norms = {
        key: module
        for key, module in network.named_modules()
        if isinstance(module, BatchNorm) and (not module.affine or any(p.requires_grad for p in module.parameters()))
    }
    if not norms:
        return None, "the network has none to train"
    before = {key: _statistics(module) for key, module in norms.items()}
    optimiser = adam(network)
    for batch in setup.draw(steps):
        train_step(setup, network, optimiser, batch)
    still = [key for key, module in norms.items() if torch.equal(_statistics(module), before[key])]
    if still:
        return False, f"statistics of {len(still)} of {len(norms)} do not change: {abbreviated(still)}"
    return True, f"the statistics of all {len(norms)} change"


def _statistics(norm: BatchNorm) -> Tensor:
    """Return running mean and variance, shape (2 * features,); empty if the norm has none."""
    if norm.running_mean is None or norm.running_var is None:
        return torch.empty(0)
    return torch.cat([norm.running_mean, norm.running_var]).clone()


@check("last layer", "the coding error has both signs: use no ReLU, sigmoid, tanh or clamp after the last layer")
@torch.no_grad()
def check_last_layer(setup: Setup) -> Measured:
    """Check that the network is linear after its last layer, so that outputs of any size and sign reach the picture.

    The output of the last convolution (or fully connected layer) is replaced by noise t * g for t = 0, 1, -1, 100; an
    activation after it shows as a lost sign or as saturation.
    """
    network, (batch,) = setup.network_without_zeros().eval(), setup.draw(1)
    calls = _layer_calls(network, batch)
    if not calls:
        return None, "the network has no convolution"
    last = calls[-1]
    at = {t: _outputs_for_noise(network, batch, last, calls.count(last), t) for t in (0, 1, -1, 100)}
    up, down, far = at[1] - at[0], at[-1] - at[0], (at[100] - at[0]) / 100
    scale = float(up.abs().max().maximum(down.abs().max()))
    nonlinearity = float((up + down).abs().max().maximum((far - up).abs().max())) / scale if scale > 0 else math.inf
    return (
        nonlinearity <= 0.01,
        f"the response to {last} deviates from a line by {nonlinearity:.1e}"
        if scale > 0
        else f"{last} does not reach the output",
    )


def _layer_calls(network: nn.Module, batch: Batch) -> list[str]:
    """Return the names of convolutions and fully connected layers in the order in which they are computed."""
    calls: list[str] = []
    layers = {k: module for k, module in network.named_modules() if getattr(module, "weight", torch.empty(0)).ndim >= 2}
    with forward_hooks(layers, lambda key, output: calls.append(key)):
        network(batch)
    return calls


def _outputs_for_noise(network: nn.Module, batch: Batch, layer: str, count: int, factor: float) -> Tensor:
    """Return the flattened outputs with the last of `count` outputs of `layer` replaced by `factor` times noise."""
    calls = itertools.count(1)

    def replace(name: str, output: Tensor) -> Tensor | None:
        noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
        return factor * noise.to(output) if next(calls) == count else None

    with forward_hooks({layer: network.get_submodule(layer)}, replace):
        return torch.cat([plane.flatten() for plane in outputs(network, batch)])


@check(
    "float32 against float64",
    "look for differences of large numbers and for layers in half precision: `codecnn compare` names the first one",
)
def check_float64(setup: Setup) -> Measured:
    """Check that loss and gradients of one step are the same in float32 and float64, within the bounds above.

    A network that cannot compute in float64, because a layer fixes the type of its numbers, fails.
    """
    network, (batch,) = setup.network_without_zeros(), setup.draw(1)
    exact = copy.deepcopy(network).double()
    doubled = {key: tensor.double() if tensor.is_floating_point() else tensor for key, tensor in batch.items()}
    try:
        loss64, gradient64 = _gradient(setup, exact, doubled)
    except RuntimeError as error:
        return False, f"the network cannot compute in float64: {str(error).splitlines()[0]}"
    loss32, gradient32 = _gradient(setup, network, batch)
    if not gradient64.any():
        return None, "the loss has no gradients"
    loss = abs(loss32 - loss64) / abs(loss64)
    gradient = float((gradient32 - gradient64).norm() / gradient64.norm())
    measured = f"loss differs by {loss:.1e}, gradients by {gradient:.1e} of their norm"
    return loss <= LOSS_BOUND and gradient <= GRADIENT_BOUND, measured


def _gradient(setup: Setup, network: nn.Module, batch: Batch) -> tuple[float, Tensor]:
    """Return the loss, and the gradient of all parameters as one float64 vector."""
    torch.manual_seed(setup.seed)  # dropout drops the same units in both precisions
    loss = setup.loss(network, batch)
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.double().flatten() for p in network.parameters() if p.grad is not None]
    return loss.item(), torch.cat([loss.detach().double().new_zeros(1), *gradients])


@check(
    "determinism",
    "look for random numbers that do not depend on the seed of torch, for the order of sets, and for state that "
    "outlives a run",
)
def check_determinism(setup: Setup, steps: int = 3) -> Measured:
    """Check that two short runs with one seed give the same weights.

    On the CPU the weights are equal bit for bit; on a GPU the losses agree to 1e-4.
    """
    (losses, state), (losses_again, state_again) = _short_run(setup, steps), _short_run(setup, steps)
    differing = [key for key, tensor in state.items() if not _equal(tensor, state_again[key])]
    drift = max(abs(a - b) / abs(a) for a, b in zip(losses, losses_again, strict=True))
    on_cpu = all(tensor.device.type == "cpu" for tensor in state.values())
    measured = f"after {steps} steps {len(differing)} of {len(state)} tensors differ"
    measured += f" ({abbreviated(differing)}), losses by {drift:.1e}" if differing else ""
    return not differing if on_cpu else drift <= 1e-4, measured


def _equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors of one shape have the same values; NaN, which a buffer may hold, equals NaN."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _short_run(setup: Setup, steps: int) -> tuple[list[float], dict[str, Tensor]]:
    network = setup.network()
    optimiser = adam(network)
    losses = [train_step(setup, network, optimiser, batch).item() for batch in setup.draw(steps)]
    return losses, network.state_dict()


@dataclass(frozen=True)
class FirstSteps:
    """Measurements of the first steps of a training.

    Attributes:
        start: Activity of the network before its first step.
        end: Health at the last step.
    """

    start: Activity
    end: Health


def first_steps(setup: Setup, settings: LoopSettings, steps: int = STEPS, seconds: float = 60) -> FirstSteps:
    """Take the first steps of a training with the optimiser of the run.

    Args:
        setup: The set-up.
        settings: Settings of the run.
        steps: Number of steps.
        seconds: Time after which no further step is taken.

    Returns:
        Measurements before and after.
    """
    network, batches = setup.network(), setup.draw(steps)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as in training, and Muon needs it
    start = measure_activity(network, _inputs(setup, network, batches[:1]))
    optimiser = make_optimiser(network, settings)
    warmup = min(settings.warmup, WARMUP)
    schedule = warmup_cosine(optimiser, settings.model_copy(update={"warmup": warmup}))
    started = time.monotonic()
    for step, batch in enumerate(batches, 1):
        last = step == len(batches) or time.monotonic() - started > seconds
        before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()} if last else {}
        rate = optimiser.param_groups[0]["lr"] / optimiser.param_groups[0]["initial_lr"]
        optimiser.zero_grad(set_to_none=True)
        loss = setup.loss(network, batch)
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
        optimiser.step()
        schedule.step()
        if last:
            break
    gradients, updates = measure_step(network, before, rate)
    activity = measure_activity(network, _inputs(setup, network, batches[-JOINED_BATCHES:]))
    return FirstSteps(start, Health(step, activity, gradients, updates))


def _inputs(setup: Setup, network: nn.Module, batches: list[Batch]) -> tuple[Any, ...]:
    """Return the arguments of the network for all batches joined, or for the last one if their shapes differ."""
    shapes = [{name: tensor.shape for name, tensor in batch.items()} for batch in batches]
    alike = all(shape == shapes[0] for shape in shapes)
    joined = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]} if alike else batches[-1]
    calls: list[tuple[Any, ...]] = []
    with torch.no_grad(), network.register_forward_pre_hook(lambda module, inputs: calls.append(inputs)):
        setup.loss(network, joined)
    return calls[0]


@check("dead units", "these units have stopped learning: lower training.learning_rate, or check their initialisation")
def check_dead_units(steps: FirstSteps) -> Measured:
    """Check that after the first steps no layer has more than DEAD_UNITS of its units at zero at every sample."""
    health = steps.end
    dead = health.activity.dead if health.activity is not None else {}
    if not dead:
        return None, f"no ReLU has {FEW_SAMPLES} samples per unit"
    worst = max(dead, key=lambda layer: dead[layer])
    over = [layer for layer, share in dead.items() if share > DEAD_UNITS]
    measured = f"at most {dead[worst]:.0%}, of {worst}, after {health.step} steps"
    return not over, measured + (f"; more than {DEAD_UNITS:.0%} in {abbreviated(over)}" if over else "")


@check(
    "modulations",
    "they switch the network off before it has learned: lower training.learning_rate, or only the rate of the "
    "modulations, training.modulation_rate=0.1",
)
def check_modulations(steps: FirstSteps) -> Measured:
    """Check the mean factor of the QP modulations after the first steps, relative to the start."""
    health, activity = steps.end, steps.end.activity
    if activity is None or not activity.factors:
        return None, "the network has none"
    shown = ", ".join(f"{factor:.2f}" for factor in activity.factors.values())
    return (
        activity.mean_factor >= MEAN_FACTOR_BOUND * steps.start.mean_factor,
        f"mean factor {activity.mean_factor:.2f} at QP {activity.qp:g} ({shown}) after {health.step} steps",
    )


@check("updates", "far above: lower training.learning_rate; far below: raise it, or check what blocks the gradients")
def check_updates(steps: FirstSteps) -> Measured:
    """Check that a step changes weights by a share of their norm within UPDATES, in the median over the tensors."""
    health = steps.end
    if not health.updates:
        return None, "nothing is trained"
    median = statistics.median(health.updates.values())
    smallest, largest = min(health.updates.values()), max(health.updates.values())
    measured = f"{median:.1e} of the weights per step ({smallest:.0e} to {largest:.0e}), step {health.step}"
    return UPDATES[0] <= median <= UPDATES[1], measured
