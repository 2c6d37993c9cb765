"""The network as the loop runs it: compiled where that works, in parallel, its convolutions in the chosen precision."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from codecnn.training.task import Batch


class Autocast(nn.Module):
    """Runs a network under autocast to bfloat16, and hands out float32: losses are computed outside of it."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.module = module
        self._device = device.type

    def forward(self, *inputs: Any) -> Any:
        """What the network returns, tensors of bfloat16 as float32."""
        with torch.autocast(self._device, torch.bfloat16):
            made = self.module(*inputs)
        return tree_map_only(Tensor, lambda value: value.float() if value.dtype == torch.bfloat16 else value, made)


@contextlib.contextmanager
def forward_hooks(modules: Mapping[str, nn.Module], call: Callable[[str, Any], Any]) -> Iterator[None]:
    """Hooks on modules while the context lasts: `call(name, output)` after each that runs.

    What it returns, unless that is None, takes the output's place.
    """

    def hook(name: str) -> Callable[[nn.Module, Any, Any], Any]:
        return lambda module, inputs, output: call(name, output)

    with contextlib.ExitStack() as stack:
        for name, module in modules.items():
            stack.enter_context(module.register_forward_hook(hook(name)))
        yield


@contextlib.contextmanager
def untouched(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Lets a network be tried: at the end its buffers and torch's random numbers are as before, gradients are none."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])


def compiled(
    model: nn.Module, precision: str, device: torch.device, loss: Callable[[nn.Module, Batch], Tensor], batch: Batch
) -> tuple[nn.Module, str | None]:
    """The compiled network if it can compute a loss and its gradients for `batch`, else the network and the reason.

    Compilers fail when they first run, forwards or backwards, in ways of their own. The network stays `untouched`.
    """
    with untouched(model, device):
        try:
            network: nn.Module = torch.compile(model)  # type: ignore[assignment]
            loss(in_precision(network, precision, device), batch).backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            return model, f"{type(error).__name__}: {(str(error) or 'no reason given').splitlines()[0]}"
    return network, None


def in_precision(model: nn.Module, precision: str, device: torch.device) -> nn.Module:
    """The network, under autocast where the precision is "bfloat16"."""
    return Autocast(model, device) if precision == "bfloat16" else model
