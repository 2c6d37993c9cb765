"""Checks of the arithmetic: precision, determinism, and data that stays as it is."""

import copy
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from codecnn.dataset import Unit
from codecnn.runs import sha256_file
from codecnn.training.checks.base import Measured, Setup, adam, check, few, train_step
from codecnn.training.task import Batch

LOSS_BOUND, GRADIENT_BOUND = 3e-6, 2e-4
"""Relative errors of float32 against float64; the worst of eleven networks have 2.6e-7, 1.3e-5 (docs/check.md)."""
HASHED_BYTES = 256 * 2**20


@check(
    "float32 against float64",
    "look for differences of large numbers, and for layers in half precision: `codecnn compare` names the first",
)
def check_float64(setup: Setup) -> Measured:
    """Loss and gradients of one step in float32 are those in float64, to LOSS_BOUND and GRADIENT_BOUND.

    A network that cannot compute in float64, since a layer fixes the type of its numbers, fails.
    """
    network, (batch,) = setup.awakened(), setup.draw(1)
    exact = copy.deepcopy(network).double()
    doubled = {key: tensor.double() if tensor.is_floating_point() else tensor for key, tensor in batch.items()}
    try:
        loss64, gradient64 = _gradient(setup, exact, doubled)
    except RuntimeError as error:
        return False, f"no computing in float64: {str(error).splitlines()[0]}"
    loss32, gradient32 = _gradient(setup, network, batch)
    if not gradient64.any():
        return None, "the loss has no gradients"
    loss = abs(loss32 - loss64) / abs(loss64)
    gradient = float((gradient32 - gradient64).norm() / gradient64.norm())
    measured = f"loss differs by {loss:.1e}, gradients by {gradient:.1e} of their norm"
    return loss <= LOSS_BOUND and gradient <= GRADIENT_BOUND, measured


def _gradient(setup: Setup, network: nn.Module, batch: Batch) -> tuple[float, Tensor]:
    """The loss and the gradient of all parameters as one vector, float64."""
    torch.manual_seed(setup.seed)  # dropout drops the same
    loss = setup.loss(network, batch)
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.double().flatten() for p in network.parameters() if p.grad is not None]
    return loss.item(), torch.cat([loss.detach().double().new_zeros(1), *gradients])


@check(
    "determinism",
    "look for random numbers that torch's seed does not decide, for sets and dictionaries in the order of hashes, "
    "and for state that outlives a run",
)
def check_determinism(setup: Setup, steps: int = 3) -> Measured:
    """Two short runs from one seed end at the same weights: on the CPU bit for bit, on a GPU to 1e-4 of the loss."""
    (losses, state), (again, other) = _short_run(setup, steps), _short_run(setup, steps)
    differing = [key for key, tensor in state.items() if not torch.equal(tensor, other[key])]
    drift = max(abs(a - b) / abs(a) for a, b in zip(losses, again, strict=True))
    on_cpu = all(tensor.device.type == "cpu" for tensor in state.values())
    measured = f"after {steps} steps {len(differing)} of {len(state)} tensors differ"
    measured += f" ({few(differing)}), losses by {drift:.1e}" if differing else ""
    return not differing if on_cpu else drift <= 1e-4, measured


def _short_run(setup: Setup, steps: int) -> tuple[list[float], dict[str, Tensor]]:
    network = setup.network()
    optimiser = adam(network)
    losses = [train_step(setup, network, optimiser, batch).item() for batch in setup.draw(steps)]
    return losses, network.state_dict()


@check(
    "data untouched",
    "work on copies, without operations that end in _ on the input; `codecnn dataset verify` looks at every file",
)
def check_data_untouched(setup: Setup, units: Iterable[Unit], batches: int = 4) -> Measured:
    """Training steps change no tensor of their batch, batches drawn again are equal, files have their hashes.

    Of the units' files as many are hashed as HASHED_BYTES allow.
    """
    network = setup.network()
    optimiser = adam(network)
    written: set[str] = set()
    drawn = []
    for batch in setup.draw(batches):
        drawn.append({key: tensor.clone() for key, tensor in batch.items()})
        given = dict(batch)
        train_step(setup, network, optimiser, batch)
        written |= {key for key, tensor in drawn[-1].items() if not torch.equal(given[key], tensor)}
        written |= batch.keys() ^ given.keys()
    changed = [
        index
        for index, (before, after) in enumerate(zip(drawn, setup.draw(batches), strict=True))
        if any(not torch.equal(tensor, before[key]) for key, tensor in after.items())
    ]
    hashed, damaged = _hash_files(units)
    problems = [f"written in place: {few(sorted(written))}"] if written else []
    problems += [f"{len(changed)} batches are others when drawn again"] if changed else []
    problems += [f"other content than when it was built: {few(damaged)}"] if damaged else []
    return not problems, "; ".join(problems) or f"{batches} batches" + (f", {hashed} files" if hashed else "")


def _hash_files(units: Iterable[Unit]) -> tuple[int, list[str]]:
    """How many files were hashed, and which of them are not what their unit says."""
    seen: set[Path] = set()
    damaged, size = [], 0
    for unit in units:
        for file in (unit.decoded_file, unit.original_file):
            path = unit.folder / file
            if path in seen or size > HASHED_BYTES:
                continue
            seen.add(path)
            size += path.stat().st_size
            if sha256_file(path) != unit.files[file]:
                damaged.append(str(path))
    return len(seen), damaged
