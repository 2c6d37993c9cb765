"""Networks as files of other libraries: ONNX, and programs of PyTorch (`torch.export`).

Each file is run on noise and compared with the network before it is written.
"""

import copy
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from codecnn.base.errors import ModelError
from codecnn.base.files import atomic_path
from codecnn.base.planes import MAX_QP, QP_SCALE
from codecnn.models.base import FilterNetwork, build_graph, named_outputs
from codecnn.models.card import Card
from codecnn.models.graph.nodes import Array, Graph, run
from codecnn.models.graph.traced import Positional
from codecnn.models.planes import CHROMA_PLANES, KNOWN_PLANES
from codecnn.models.zoo import path_of_sha256

if TYPE_CHECKING:
    import onnx

TOLERANCE = 1e-5
"""Largest difference of a file to PyTorch, in full scale, or relative to the largest sample if that exceeds 1."""

HALF_TOLERANCE = 2 / 1024
"""Largest difference of a float16 file to PyTorch: two sample steps of 10 bits.

Files are checked on independent noise on all planes, where the shipped networks differ by up to 1.6 steps.
"""

_SIZES = ((64, 48), (40, 72))
"""Luma height and width of the noise that a file is checked on."""

Run = Callable[[dict[str, Tensor]], Mapping[str, Any]]
"""Function that computes a file's outputs, arrays by name, from its planes."""


def export_onnx(
    path: Path | str, model: FilterNetwork, *, qp: int | None = None, card: Card | None = None, half: bool = False
) -> float:
    """Write a filter network as ONNX; needs the extra `export`.

    A network without a method `draw` is traced by PyTorch. onnxruntime runs the model on noise of two sizes before the
    file is written, a traced one at four QPs.

    Args:
        path: File to write, .onnx.
        model: The network.
        qp: If given, the file is for this slice QP only and uses only operators of SADL.
        card: Card of the weights, for the metadata of the file.
        half: Compute in float16; inputs and outputs stay float32.

    Returns:
        Largest difference of onnxruntime's result to PyTorch's, in full scale; in float16 also that of
        `float16_difference`.

    Raises:
        ModelError: The difference exceeds 1e-5, or `HALF_TOLERANCE` in float16, or the network has neither a graph nor
            operations that PyTorch can trace.
    """
    from codecnn.models.graph.onnx_file import run_onnx

    lost = float16_difference(path, model) if half else 0.0
    content = onnx_content(model, qp, card=card, half=half)
    # Tracing records one run, so that a traced file is tried at several QPs.
    traced_qps = (37, 22, 12, 52) if qp is None and not model.has_graph else (37,)

    def run_file(planes: dict[str, Tensor]) -> Mapping[str, Any]:
        return run_onnx(content, {name: plane.numpy() for name, plane in planes.items()})

    largest = _largest_difference(run_file, model, traced_qps if qp is None else (qp,))
    if half:
        largest = max(largest, lost)
    if largest > (HALF_TOLERANCE if half else TOLERANCE):
        raise ModelError(f"{path} is not written: onnxruntime's result differs from PyTorch's by {largest:.2g}")
    with atomic_path(Path(path)) as part:
        part.write_bytes(content)
    return largest


def onnx_content(model: FilterNetwork, qp: int | None = None, *, card: Card | None = None, half: bool = False) -> bytes:
    """Return the content of the ONNX file that `export_onnx` writes; arguments and errors as there."""
    import onnx

    from codecnn.models.graph.onnx_file import onnx_model

    if model.has_graph or half or qp is not None:
        exported = onnx_model(build_graph(model), qp, half=half)
    else:
        exported = onnx.load_from_string(_trace(model))
    exported.doc_string = f"{type(model).__name__}, planes {', '.join(model.planes)}, halo {model.halo}"
    if qp is not None:
        exported.doc_string += f", QP {qp}"
    set_metadata(exported, model.halo, model.stride, card, qp=qp)
    content: bytes = exported.SerializeToString()
    return content


def float16_difference(path: Path | str, model: FilterNetwork) -> float:
    """Compute on noise what a network loses if every operation rounds to float16, as a GPU does, at QP 37.

    ONNX Runtime does not show it on a CPU, where it computes float16 in float32.

    Args:
        path: File that is to be written, for the message.
        model: The network.

    Returns:
        Largest difference to the network, in full scale.

    Raises:
        ModelError: The difference exceeds `HALF_TOLERANCE`, or the network has no graph.
    """
    if not model.has_graph:
        raise ModelError(f"{type(model).__name__} has no float16 form without a method draw: leave out --fp16")
    graph = build_graph(model)
    nodes = [
        node if node.op == "output" else replace(node, tensors={name: _halved(x) for name, x in node.tensors.items()})
        for node in graph.nodes
    ]
    rounded = Graph(tuple(nodes))

    def round_result(name: str, x: Tensor) -> None:
        if name not in graph.outputs:
            x.copy_(x.half())

    def run_half(planes: dict[str, Tensor]) -> Mapping[str, Any]:
        return run(rounded, planes, 37, observe=round_result)

    largest = _largest_difference(run_half, model, (37,))
    if largest > HALF_TOLERANCE:
        raise ModelError(
            f"{path} is not written: float16 differs from PyTorch by {largest * 1024:.2g} sample steps of 10 bits, and "
            f"{HALF_TOLERANCE * 1024:.0f} are allowed; leave out --fp16"
        )
    return largest


def _halved(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def set_metadata(
    exported: "onnx.ModelProto", halo: int, stride: int, card: Card | None = None, **facts: object
) -> None:
    """Write into an ONNX model what a program must know to feed it (`metadata_props`).

    Args:
        exported: The model, whose inputs are planes and perhaps `qp`.
        halo: Luma samples by which the planes are larger than the outputs on each side.
        stride: Number of luma samples that height and width without halo are a multiple of.
        card: Card of the weights.
        facts: Further entries; those that are None are left out.
    """
    from onnx import helper

    inputs = [each.name for each in exported.graph.input]
    properties: dict[str, object] = {
        "planes": ",".join(name for name in inputs if name in KNOWN_PLANES and name != "qp"),
        "scale": "sample / 2^bit_depth",
        "halo": halo,
        "stride": stride,
        "padding": "edge",
        "qp_input": "QP / 64, clipped to qp_range" if "qp" in inputs else None,
    }
    if card is not None:
        sha256 = card.source_sha256 or card.sha256
        shipped = sha256 is not None and path_of_sha256(sha256) is not None
        properties |= {
            "qp_range": f"{min(card.qps)},{max(card.qps)}" if card.qps else f"0,{MAX_QP}",
            "codec": ",".join(sorted({codec for store in card.trained_on or () for codec in store.codecs})) or None,
            "license": "BSD-3-Clause" if shipped else None,
            "weights_sha256": sha256,
        }
    properties |= facts
    del exported.metadata_props[:]
    helper.set_model_props(exported, {name: str(value) for name, value in properties.items() if value is not None})


def export_program(path: Path | str, model: FilterNetwork) -> float:
    """Write a filter network as a program of PyTorch, which `torch.export.load` reads without codecnn.

    The program takes the planes one by one, in the order of `model.planes`, and returns a tuple of the outputs. It is
    loaded and run on noise of two sizes before the file is written.

    Args:
        path: File to write, .pt2.
        model: The network.

    Returns:
        Largest difference of the loaded program to the network, in full scale.

    Raises:
        ModelError: The difference exceeds 1e-5, or `torch.export` cannot record the network.
    """
    copied = copy.deepcopy(model).cpu().eval()
    # Two pictures, since PyTorch takes a size of 1 for a constant.
    planes = {name: torch.cat([plane, plane]) for name, plane in _noise(copied, (88, 56), 32).items()}
    any_size = torch.export.Dim.AUTO
    axes = tuple({0: any_size} | ({} if x.shape[2:] == (1, 1) else {2: any_size, 3: any_size}) for x in planes.values())
    file = io.BytesIO()
    network = getattr(model, "network", model)
    try:
        with _without_messages(), torch.no_grad():
            program = torch.export.export(
                Positional(copied, tuple(planes), copied.outputs), tuple(planes.values()), dynamic_shapes=(axes,)
            )
            torch.export.save(program, file)
            file.seek(0)
            loaded = torch.export.load(file).module()
    except Exception as error:  # torch.export and code of the user can raise anything
        reason = (str(error) or "no reason given").strip().splitlines()[0]
        raise ModelError(
            f"{type(network).__name__} cannot be written as a program of torch.export ({type(error).__name__}: "
            f"{reason}): compute without reading values of tensors"
        ) from error

    def run_program(planes: dict[str, Tensor]) -> Mapping[str, Any]:
        return dict(zip(model.outputs, loaded(*(planes[name] for name in model.planes)), strict=True))

    largest = _largest_difference(run_program, model, (37, 22))
    if largest > TOLERANCE:
        raise ModelError(f"{path} is not written: the loaded program differs from the network by {largest:.2g}")
    with atomic_path(Path(path)) as part:
        part.write_bytes(file.getvalue())
    return largest


@contextmanager
def _without_messages() -> Iterator[None]:
    """Keep `torch.export` from logging that sizes of 1 are constants, which are those of `qp`.

    PyTorch 2.11 also warns that the file which it reads is not writable.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
            yield
    finally:
        logging.disable(before)


def _trace(model: FilterNetwork) -> bytes:
    """Return the ONNX file of a network without a graph."""
    from codecnn.models.graph.traced import traced_onnx

    network = getattr(model, "network", model)
    copied = copy.deepcopy(model).cpu().eval()
    return traced_onnx(copied, type(network).__name__, _noise(copied, (88, 56), 32), copied.outputs)


def _noise(model: FilterNetwork, size: tuple[int, int], qp: int) -> dict[str, Tensor]:
    """Return noise on all planes, for an output of about `size` luma samples that the network accepts."""
    generator = torch.Generator().manual_seed(qp)
    height, width = (max(extent - extent % model.stride, model.stride) + 2 * model.halo for extent in size)
    planes = {}
    for name in model.planes:
        factor = 2 if name in CHROMA_PLANES else 1
        planes[name] = torch.rand(1, 1, height // factor, width // factor, generator=generator)
    return planes | ({"qp": torch.full((1, 1, 1, 1), qp / QP_SCALE)} if "qp" in planes else {})


def _largest_difference(run: Run, model: FilterNetwork, qps: tuple[int, ...]) -> float:
    """Return the largest difference on noise, relative to the largest sample if that exceeds 1."""
    largest = 0.0
    for size in _SIZES:
        for qp in qps:
            planes = _noise(model, size, qp)
            with torch.inference_mode():
                expected = {name: plane.numpy() for name, plane in named_outputs(model.eval()(planes)).items()}
                outputs = run(planes)
            for name, plane in expected.items():
                difference = np.abs(np.asarray(outputs[name]) - plane).max() / max(1.0, np.abs(plane).max())
                # A comparison with NaN is false: a result that is not finite must not pass.
                largest = max(largest, float(np.nan_to_num(difference, nan=np.inf, posinf=np.inf)))
    return largest
