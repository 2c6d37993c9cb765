"""What the checks of a training set-up share: a finding, and the set-up as they see it."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, ParamSpec

import torch
from torch import Tensor, nn

from codecnn.models import named_outputs
from codecnn.training.task import Batch

Verdict = Literal["pass", "fail", "skipped"]
Given = ParamSpec("Given")
Measured = tuple[bool | None, str] | tuple[bool | None, str, str]
"""Whether all is good, or None where the check does not apply; the figures or the reason; a hint of its own."""


@dataclass(frozen=True)
class Finding:
    """What one check says: its name, the verdict, the figures it measured (or why it was skipped), what to do."""

    name: str
    verdict: Verdict
    measured: str
    hint: str = ""


def check(name: str, hint: str) -> Callable[[Callable[Given, Measured]], Callable[Given, Finding]]:
    """Make a check of a function that measures: its finding has this name, and where it fails this hint."""

    def decorate(measure: Callable[Given, Measured]) -> Callable[Given, Finding]:
        @functools.wraps(measure)
        def checked(*args: Given.args, **kwargs: Given.kwargs) -> Finding:
            good, measured, *other = measure(*args, **kwargs)
            if good is None:
                return Finding(name, "skipped", measured)
            return Finding(name, "pass", measured) if good else Finding(name, "fail", measured, *(other or [hint]))

        return checked

    return decorate


@dataclass(frozen=True)
class Setup:
    """A training set-up as the checks see it, with batches small enough to be quick.

    build        a fresh network as training starts with it, on the device of the batches
    draw         the first so many batches of the run, drawn anew at every call
    loss         the scalar that training minimises, in the precision of training
    no_identity  why the network does not start as the identity; None where it should
    seed         of torch, set before every `build`
    """

    build: Callable[[], nn.Module]
    draw: Callable[[int], list[Batch]]
    loss: Callable[[nn.Module, Batch], Tensor]
    no_identity: str | None = None
    seed: int = 0

    def network(self) -> nn.Module:
        """A fresh network in training mode; the same at every call where the network lets the seed decide."""
        torch.manual_seed(self.seed)
        return self.build().train()

    def awakened(self) -> nn.Module:
        """A fresh network whose parameters that start at zero are small random numbers, so that they hide nothing."""
        network = self.network()
        with torch.no_grad():
            for parameter in network.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.05)
        return network


def train_step(setup: Setup, network: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch) -> Tensor:
    """One step without a schedule; returns the loss before it, detached. A loss without gradient changes nothing."""
    loss = setup.loss(network, batch)
    if loss.requires_grad:
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return loss.detach()


def adam(network: nn.Module, learning_rate: float = 1e-3) -> torch.optim.Optimizer:
    """Adam over the parameters that are not frozen."""
    return torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=learning_rate)


def outputs(network: nn.Module, batch: Batch) -> list[Tensor]:
    """What a network makes of a batch, as a list of tensors."""
    return list(named_outputs(network(batch)).values())


def few(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
