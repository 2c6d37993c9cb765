"""Types that all checks share: a finding, the set-up to check, and small helpers."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, ParamSpec

import torch
from torch import Tensor, nn

from codecnn.models import named_outputs
from codecnn.training.task import Batch

Verdict = Literal["pass", "note", "fail", "skipped"]
Arguments = ParamSpec("Arguments")
Measured = tuple[bool | None, str] | tuple[bool | None, str, str]
"""True if the check passes, or None if it does not apply; figures or the reason; optionally a hint."""


@dataclass(frozen=True)
class Finding:
    """Result of a check.

    Attributes:
        name: Name of the check.
        verdict: "pass", "fail", "skipped", or "note" if what was found slows training down but makes nothing wrong.
        measured: The measured figures, or why the check was skipped.
        hint: What to do about a failure or a note.
    """

    name: str
    verdict: Verdict
    measured: str
    hint: str = ""


def check(
    name: str, hint: str, unmet: Verdict = "fail"
) -> Callable[[Callable[Arguments, Measured]], Callable[Arguments, Finding]]:
    """Turn a function that measures into a check that returns a finding.

    Args:
        name: Name of the check.
        hint: What to do if it fails, unless the function returns its own hint.
        unmet: Verdict if it fails; "note" for a check of the speed alone.
    """

    def decorate(measure: Callable[Arguments, Measured]) -> Callable[Arguments, Finding]:
        @functools.wraps(measure)
        def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Finding:
            passed, measured, *own_hint = measure(*args, **kwargs)
            if passed is None:
                return Finding(name, "skipped", measured)
            return Finding(name, "pass", measured) if passed else Finding(name, unmet, measured, *(own_hint or [hint]))

        return checked

    return decorate


@dataclass(frozen=True)
class Setup:
    """A training set-up as the checks see it, with batches small enough to be quick.

    Attributes:
        build: Creates a network as training starts with it, on the device of the batches.
        draw: Returns the given number of first batches of the run, drawn anew at every call.
        loss: Returns the scalar that training minimises, in the precision of training.
        no_identity: Why the network does not start as the identity; None if it should.
        seed: Seed of torch, set before every `build`.
    """

    build: Callable[[], nn.Module]
    draw: Callable[[int], list[Batch]]
    loss: Callable[[nn.Module, Batch], Tensor]
    no_identity: str | None = None
    seed: int = 0

    def network(self) -> nn.Module:
        """Create a network in training mode; it is the same at every call if the seed determines it."""
        torch.manual_seed(self.seed)
        return self.build().train()

    def network_without_zeros(self) -> nn.Module:
        """Create a network whose zero parameters are small random numbers, so that they hide no fault."""
        network = self.network()
        with torch.no_grad():
            for parameter in network.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.05)
        return network


def train_step(setup: Setup, network: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch) -> Tensor:
    """Take one step without a schedule and return the loss before it; a loss without gradient changes nothing."""
    loss = setup.loss(network, batch)
    if loss.requires_grad:
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return loss.detach()


def adam(network: nn.Module, learning_rate: float = 1e-3) -> torch.optim.Optimizer:
    """Create Adam over the parameters that are not frozen."""
    return torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=learning_rate)


def outputs(network: nn.Module, batch: Batch) -> list[Tensor]:
    """Return the outputs of a network for a batch as a list of tensors."""
    return list(named_outputs(network(batch)).values())


def abbreviated(names: list[str]) -> str:
    """Join the first names of a list, and the number of further ones."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
