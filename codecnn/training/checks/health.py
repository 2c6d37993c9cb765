"""Checks of the first steps with the optimiser and learning rates of the run: does the network keep itself alive?"""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from codecnn.training._health import DEAD_UNITS, FEW_SAMPLES, UPDATES, Activity, Health, activity, changes
from codecnn.training._optimiser import make_optimiser
from codecnn.training._schedule import warmup_cosine
from codecnn.training.checks.base import Measured, Setup, check, few
from codecnn.training.settings import LoopSettings
from codecnn.training.task import Batch

STEPS, WARMUP = 300, 100
"""Steps that are taken, and how many of them the learning rate rises, where the settings warm up no faster."""
JOINED = 16
"""How many of the small batches are looked at together: 8,192 samples of a feature of quarter size."""
KEPT = 0.3
"""The least mean factor of all modulations after STEPS, over that of the start. `low_cost_17` on two seeds: 0.24 and
0.26 with a learning rate of 4e-3, which leads nowhere, 0.38 and 0.36 with 2e-3 (docs/check.md)."""


@dataclass(frozen=True)
class FirstSteps:
    """What a network does before its first step, and the health of the last of some steps."""

    start: Activity
    left: Health


def first_steps(setup: Setup, settings: LoopSettings, steps: int = STEPS, seconds: float = 60) -> FirstSteps:
    """What the first steps leave of a network, with the run's own optimiser: as many steps as `seconds` allow."""
    network, batches = setup.network(), setup.draw(steps)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as training has it, and Muon needs it
    start = activity(network, _inputs(setup, network, batches[:1]))
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
    gradients, updates = changes(network, before, rate)
    seen = activity(network, _inputs(setup, network, batches[-JOINED:]))
    return FirstSteps(start, Health(step, seen, gradients, updates))


def _inputs(setup: Setup, network: nn.Module, batches: list[Batch]) -> tuple[Any, ...]:
    """What the loss calls the network with: on all batches as one where they have one size, on the last otherwise."""
    shapes = [{name: tensor.shape for name, tensor in batch.items()} for batch in batches]
    alike = all(shape == shapes[0] for shape in shapes)
    joined = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]} if alike else batches[-1]
    given: list[tuple[Any, ...]] = []
    with torch.no_grad(), network.register_forward_pre_hook(lambda module, inputs: given.append(inputs)):
        setup.loss(network, joined)
    return given[0]


@check("dead units", "these units have stopped to learn: lower training.learning_rate, or look at how they start")
def check_dead_units(steps: FirstSteps) -> Measured:
    """After the first steps no layer has more than DEAD_UNITS of its units at zero wherever one looks."""
    health = steps.left
    dead = health.activity.dead if health.activity is not None else {}
    if not dead:
        return None, f"no ReLU has {FEW_SAMPLES} samples to look at"
    worst = max(dead, key=lambda layer: dead[layer])
    over = [layer for layer, share in dead.items() if share > DEAD_UNITS]
    measured = f"at most {dead[worst]:.0%}, of {worst}, after {health.step} steps"
    return not over, measured + (f"; more than {DEAD_UNITS:.0%} in {few(over)}" if over else "")


@check(
    "modulations",
    "they switch the network off before it has learned: lower training.learning_rate, or that of the modulations "
    "alone, training.modulation_rate=0.1",
)
def check_modulations(steps: FirstSteps) -> Measured:
    """After the first steps the mean factor of the QP modulations is at least KEPT times that of the start."""
    health, seen = steps.left, steps.left.activity
    if seen is None or not seen.factors:
        return None, "the network has none"
    shown = ", ".join(f"{factor:.2f}" for factor in seen.factors.values())
    return (
        seen.kept >= KEPT * steps.start.kept,
        f"mean factor {seen.kept:.2f} at QP {seen.qp:g} ({shown}) after {health.step} steps",
    )


@check("updates", "far above, lower training.learning_rate; far below, raise it, or look for what keeps gradients away")
def check_updates(steps: FirstSteps) -> Measured:
    """A step changes weights by between 1e-5 and 1e-1 of their size, in the median of the tensors."""
    health = steps.left
    if not health.updates:
        return None, "nothing is trained"
    median = statistics.median(health.updates.values())
    smallest, largest = min(health.updates.values()), max(health.updates.values())
    measured = f"{median:.1e} of the weights a step ({smallest:.0e} to {largest:.0e}), step {health.step}"
    return UPDATES[0] <= median <= UPDATES[1], measured
