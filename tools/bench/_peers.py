"""The peers of inference: what `codecnn export` writes, by ONNX Runtime and by OpenVINO, on the CPU."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

Planes = Mapping[str, Tensor]
Run = Callable[[Planes], dict[str, Tensor]]

PRECISIONS = ("f32", "bf16")
"""What OpenVINO may be told to multiply in; left alone it takes bfloat16 on some CPUs and float32 on others."""


def in_onnxruntime(model: Path | bytes, threads: int) -> Run:
    """The outputs of an ONNX file, or of its content, by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs, outputs = ([one.name for one in ends] for ends in (session.get_inputs(), session.get_outputs()))

    def run(planes: Planes) -> dict[str, Tensor]:
        made = session.run(outputs, {name: planes[name].numpy() for name in inputs})
        return {name: torch.from_numpy(plane) for name, plane in zip(outputs, made, strict=True)}

    return run


def in_openvino(model: Path | bytes, threads: int, precision: str = "f32") -> Run:
    """The outputs of an ONNX file, or of its content, by OpenVINO; `precision` is one of `PRECISIONS`."""
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", settings)
    inputs, outputs = ([one.any_name for one in ends] for ends in (compiled.inputs, compiled.outputs))

    def run(planes: Planes) -> dict[str, Tensor]:
        made = compiled({name: planes[name].numpy() for name in inputs}, share_inputs=True)
        return {name: torch.from_numpy(made[name]) for name in outputs}

    return run
