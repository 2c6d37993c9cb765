"""Networks as ONNX files that onnxruntime has run; needs the extra `export`."""

from pathlib import Path

import numpy as np
import torch

from codecnn.errors import ModelError
from codecnn.models.base import FilterNetwork, named_outputs
from codecnn.models.graph.onnx_file import onnx_model, run_onnx
from codecnn.models.inference import build_graph
from codecnn.models.planes import CHROMA_PLANES
from codecnn.planes import QP_SCALE
from codecnn.runs import atomic_path

TOLERANCE = 1e-5
"""Largest difference to PyTorch, in full scale; times the largest sample where that is beyond 1."""


def export_onnx(path: Path | str, model: FilterNetwork, *, qp: int | None = None) -> float:
    """Write `model` to `path` as ONNX, see `onnx_model`, and return how far it is from PyTorch, in full scale.

    The file is run by onnxruntime before it is written, on pictures of two sizes. Raises ModelError where it differs by
    more than 1e-5.
    """
    made = onnx_model(build_graph(model), qp)
    made.doc_string = f"{type(model).__name__}, planes {', '.join(model.planes)}, halo {model.halo}"
    if qp is not None:
        made.doc_string += f", QP {qp}"
    content = made.SerializeToString()
    largest = max(_difference(content, model, size, qp) for size in ((64, 48), (40, 72)))
    if largest > TOLERANCE:
        raise ModelError(f"{path} is not written: onnxruntime's result differs from PyTorch's by {largest:.2g}")
    with atomic_path(path) as part:
        part.write_bytes(content)
    return largest


def _difference(content: bytes, model: FilterNetwork, size: tuple[int, int], qp: int | None) -> float:
    """Largest difference of the outputs for noise of that height and width, over the largest sample or 1."""
    generator = torch.Generator().manual_seed(0)
    height, width = (extent - extent % model.stride + 2 * model.halo for extent in size)
    planes = {}
    for name in model.planes:
        factor = 2 if name in CHROMA_PLANES else 1
        planes[name] = torch.rand(1, 1, height // factor, width // factor, generator=generator)
    if "qp" in planes:
        planes["qp"] = torch.full((1, 1, 1, 1), (37 if qp is None else qp) / QP_SCALE)
    with torch.inference_mode():
        expected = {name: plane.numpy() for name, plane in named_outputs(model.eval()(planes)).items()}
    found = run_onnx(content, {name: plane.numpy() for name, plane in planes.items()})
    return max(
        float(np.abs(found[name] - plane).max() / max(1.0, np.abs(plane).max())) for name, plane in expected.items()
    )
