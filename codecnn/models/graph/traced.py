"""ONNX models of modules without a graph of their own, traced by the exporter of PyTorch.

The exporter runs the module once and records its operations. A module whose operations depend on the samples, such as
one with `if x.mean() > 0`, cannot be recorded and is refused.
"""

import contextlib
import ctypes
import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from codecnn.base.errors import ModelError


class Positional(nn.Module):
    """A module that takes its planes one by one and returns its outputs as a tuple, as exporters of PyTorch need."""

    def __init__(self, network: nn.Module, planes: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.network, self.planes, self.outputs = network, tuple(planes), tuple(outputs)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs in their order for planes in their order."""
        filtered = self.network(dict(zip(self.planes, tensors, strict=True)))
        return (filtered,) if isinstance(filtered, Tensor) else tuple(filtered[name] for name in self.outputs)


class _ValueReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context that records whether a program reads values of tensors, by `item`, `float` or `bool`."""

    any_read = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.any_read = self.any_read or func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def traced_onnx(network: nn.Module, name: str, planes: Mapping[str, Tensor], outputs: Sequence[str]) -> bytes:
    """Trace a module as an ONNX model for any size and number of pictures.

    Args:
        network: The module in evaluation mode, on the CPU; its forward takes the planes as a dictionary.
        name: Its name, for messages.
        planes: Planes of a size that the module accepts, in the order of the model's inputs.
        outputs: Names of the outputs.

    Returns:
        Content of the ONNX file, whose inputs are called as the planes.

    Raises:
        ModelError: The operations of the module depend on its input, or have no ONNX form.
    """
    from codecnn.models.graph.onnx_file import OPSET

    positional = Positional(network, tuple(planes), outputs)
    with _ValueReads() as reads:  # type: ignore[no-untyped-call]
        positional(*planes.values())
    if reads.any_read:
        raise ModelError(
            f"{name} cannot be written as ONNX: its forward reads values of tensors (item, float, bool or if), so that "
            "its operations depend on the picture; compute with tensors instead, e.g. by torch.where, or give it a "
            "method draw, as codecnn.models.FilterNetwork has"
        )
    axes = {plane: {0: "n"} | ({} if tensor.shape[2:] == (1, 1) else _sides(plane)) for plane, tensor in planes.items()}
    file: Any = io.BytesIO()
    try:
        with warnings.catch_warnings(), _without_graphs_on_stdout():
            # Sizes that a module computes in Python are recorded as numbers; the caller runs the model in other sizes.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                positional,
                tuple(planes.values()),
                file,
                input_names=list(planes),
                output_names=list(outputs),
                dynamic_axes=axes | {output: {0: "n"} | _sides(output) for output in outputs},
                opset_version=OPSET,
                dynamo=False,
            )
    except Exception as error:  # the exporter and code of the user can raise anything
        reason = (str(error) or "no reason given").strip().splitlines()[0]
        raise ModelError(
            f"{name} cannot be written as ONNX ({type(error).__name__}: {reason}): use operations that torch.onnx "
            "knows, or give it a method draw, as codecnn.models.FilterNetwork has"
        ) from error
    content: bytes = file.getvalue()
    return content


@contextlib.contextmanager
def _without_graphs_on_stdout() -> Iterator[None]:
    """Keep the exporter from printing the whole graph to standard output when it fails.

    Its own switch has no effect, and C++ prints, so the file descriptor is redirected.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        # What C has buffered would be printed later.
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def _sides(name: str) -> dict[int, str]:
    return {2: f"height_{name}", 3: f"width_{name}"}
