"""Graphs as ONNX models for any QP, or for a single QP with only the operators that SADL supports.

SADL is the inference library of JVET's NNVC software (https://vcgit.hhi.fraunhofer.de/jvet-ahg-nnvc/sadl).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from codecnn.base.errors import ConfigError, ModelError
from codecnn.base.planes import MAX_QP, QP_SCALE
from codecnn.models.graph.nodes import Graph, Node, same_padding
from codecnn.models.planes import CENTRED_SCALE, CHROMA_PLANES

OPSET = 17
"""Version of the ONNX operators; ONNX Runtime 1.17 and OpenVINO 2024 read it, and so do later ones."""

IR_VERSION = 8
"""Version of the ONNX file format that came with `OPSET`."""

SADL_OPERATORS = frozenset({"Conv", "Add", "Relu", "Concat", "DepthToSpace", "SpaceToDepth", "Mul", "Slice"})
"""Operators of a graph for SADL; one operand of every Mul is a constant."""


class Writer:
    """An ONNX model under construction.

    Its inputs are the graph's planes, and `qp` if the graph depends on the QP and no single QP is given.

    Args:
        graph: The graph that is written.
        qp: The single slice QP, or None for a model that takes any QP.
        half: Compute in float16 between the centred planes and the residual; inputs and outputs stay float32.
    """

    def __init__(self, graph: Graph, qp: int | None = None, *, half: bool = False) -> None:
        self.graph = graph
        self.qp = qp
        self.half = half
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, _shape(name)) for name in graph.planes]
        if qp is None and graph.uses_qp:
            self.inputs.append(helper.make_tensor_value_info("qp", TensorProto.FLOAT, ["n", 1, 1, 1]))
            scaled = self.add("Mul", "qp.scaled", "qp", self.constant("qp.scale", QP_SCALE, np.float32))
            whole = self.add("Cast", "qp.whole", self.add("Round", "qp.rounded", scaled), to=TensorProto.INT64)
            self.add("Reshape", "qp.index", whole, self.constant("qp.flat", [-1], np.int64))

    def model(self) -> onnx.ModelProto:
        """Return the complete model, which the ONNX checker has accepted."""
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, _shape(name)) for name in self.graph.outputs]
        taken = {name for node in self.nodes for name in node.input}
        constants = [constant for name, constant in self.constants.items() if name in taken]
        body = helper.make_graph(self.nodes, "codecnn", self.inputs, outputs, constants)
        model = helper.make_model(
            body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="codecnn"
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def constant(self, name: str, value: Any, dtype: type | None = None) -> str:
        """Add a constant, by default of the type of the features, and return its name."""
        dtype = dtype or (np.float16 if self.half else np.float32)
        self.constants[name] = numpy_helper.from_array(np.asarray(value, dtype=dtype), name)
        return name

    def cast(self, name: str, x: str, to: int) -> str:
        """Add the conversion of `x` to float16 or back if the model has float16; else return `x`."""
        return self.add("Cast", name, x, to=to) if self.half else x

    def add(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output and return the name of the output."""
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def sliced(self, name: str, x: str, start: int, end: int, axes: list[int]) -> str:
        """Add the slice of `x` from `start` to `end` along `axes`; negative positions count from the end."""
        ranges = {"starts": [start] * len(axes), "ends": [end] * len(axes), "axes": axes}
        places = [self.constant(f"{name}.{part}", value, np.int64) for part, value in ranges.items()]
        return self.add("Slice", name, x, *places)

    def by_qp(self, name: str, table: Any, dtype: type | None = None) -> str:
        """Add the row of a table (64, ...) for the QP: a tensor (n, ..., 1, 1), or a constant for a single QP."""
        row = np.asarray(table)
        if self.qp is not None or len(row) == 1:
            row = row[self.qp if len(row) > 1 and self.qp is not None else 0]
            return self.constant(name, row.reshape(1, -1, 1, 1), dtype)
        table = self.constant(f"{name}.table", row.reshape(len(row), -1), dtype)
        gathered = self.add("Gather", f"{name}.row", table, "qp.index")
        return self.add("Unsqueeze", name, gathered, self.constant(f"{name}.axes", [2, 3], np.int64))


def onnx_model(graph: Graph, qp: int | None = None, *, half: bool = False) -> onnx.ModelProto:
    """Convert a graph to an ONNX model for any height and width.

    Inputs are the planes as the network takes them, (n, 1, h, w) with halo, float32, and, if the network depends on
    the QP, `qp` (n, 1, 1, 1) as q / 64 for integer q from 0 to 63. Outputs are the filtered planes, not clipped.

    Args:
        graph: The graph.
        qp: If given, the model is for this slice QP only: it has no input `qp`, and all its operators are among
            `SADL_OPERATORS`.
        half: Compute in float16. Planes are centred, and the residual is added to the samples, in float32.

    Raises:
        ConfigError: `qp` is out of range.
        ModelError: An operation has no ONNX form.
    """
    if qp is not None and not 0 <= qp <= MAX_QP:
        raise ConfigError(f"QP {qp} is out of range: 0 to {MAX_QP}")
    writer = Writer(graph, qp, half=half)
    # The names of planes are those of the inputs; the centred planes have names of their own.
    names: dict[str, str] = {}
    for node in graph.nodes:
        names[node.name] = _write(writer, node, [names[name] for name in node.inputs])
    return writer.model()


def _shape(name: str) -> list[str | int]:
    if name in ("y", "u", "v"):
        return ["n", 1, f"height_{name}", f"width_{name}"]
    return ["n", 1, "height_chroma", "width_chroma"] if name in CHROMA_PLANES else ["n", 1, "height", "width"]


def _write(writer: Writer, node: Node, x: list[str]) -> str:
    name = node.name
    match node.op:
        case "plane":
            half, scale = (
                writer.constant(f"{name}.{part}", value, np.float32)
                for part, value in (("middle", -0.5), ("scale", CENTRED_SCALE))
            )
            middle = writer.add("Add", f"{name}.from_middle", name, half)
            centred = writer.add("Mul", f"{name}.centred", middle, scale)
            return writer.cast(f"{name}.half", centred, TensorProto.FLOAT16)
        case "qp":
            return qp_plane(writer, x[0], (np.arange(MAX_QP + 1) - 32) / 16)
        case "conv":
            return _conv(writer, node, x[0])
        case "add":
            return writer.add("Add", name, *x)
        case "modulate":
            scaled = writer.add("Mul", f"{name}.scaled", x[0], writer.by_qp(f"{name}.factor", node.tensors["factor"]))
            return writer.add("Add", name, scaled, writer.by_qp(f"{name}.offset", node.tensors["offset"]))
        case "output":
            gain = writer.by_qp(f"{name}.gain", node.tensors["gain"][:, None], np.float32)
            residual = writer.cast(f"{name}.residual", x[0], TensorProto.FLOAT)
            change = writer.add("Mul", f"{name}.change", residual, gain)
            if len(node.inputs) == 2:
                base = crop_node(writer, f"{name}.base", node.inputs[1], node.values["crop"])
            else:
                base = writer.constant(f"{name}.base", 0.5, np.float32)
            return writer.add("Add", name, change, base)
        case _:
            return write_move(writer, node, x)


def qp_plane(writer: Writer, like: str, values: Any) -> str:
    """Add a plane of the size of `like` with the entry of `values` (64,) for the QP."""
    zeros = writer.add("Mul", "qp.nothing", like, writer.constant("qp.zero", 0.0))
    return writer.add("Add", "qp.plane", zeros, writer.by_qp("qp.value", np.asarray(values)[:, None]))


def crop_node(writer: Writer, name: str, x: str, size: int) -> str:
    """Add `x` without `size` samples on each side."""
    return writer.sliced(name, x, size, -size, [2, 3]) if size else x


def write_move(writer: Writer, node: Node, x: list[str]) -> str:
    """Add a node that only moves samples; raise ModelError for an operation that has no ONNX form."""
    match node.op:
        case "concat":
            return writer.add("Concat", node.name, *x, axis=1)
        case "crop":
            return crop_node(writer, node.name, x[0], node.values["size"])
        case "edge":
            return _edge(writer, _edge(writer, x[0], f"{node.name}.rows", 2), node.name, 3)
        case "unshuffle" | "shuffle":
            return _shuffled(writer, node, x[0])
        case _:
            raise ModelError(f"the operation {node.op!r} has no ONNX form")


def convolution(writer: Writer, node: Node, name: str, x: str, weight: str, bias: str) -> str:
    """Add the convolution of `node` with the tensors called `weight` and `bias`."""
    shape = node.tensors["weight"].shape
    rows, columns = same_padding(node.tensors["weight"]) if node.values["pad"] else (0, 0)
    kernel = {"kernel_shape": list(shape[2:]), "pads": [rows, columns, rows, columns]}
    steps = {"strides": [1, 1], "dilations": [1, 1], "group": node.values["groups"]}
    return writer.add("Conv", name, x, weight, bias, **kernel, **steps)


def _conv(writer: Writer, node: Node, x: str) -> str:
    relu = bool(node.values["relu"])
    weight, bias = (writer.constant(f"{node.name}.{part}", node.tensors[part]) for part in ("weight", "bias"))
    sums = convolution(writer, node, f"{node.name}.sums" if relu else node.name, x, weight, bias)
    return writer.add("Relu", node.name, sums) if relu else sums


def _edge(writer: Writer, x: str, name: str, axis: int) -> str:
    """Add `x` with its first and last row or column repeated."""
    first = writer.sliced(f"{name}.first", x, 0, 1, [axis])
    last = writer.sliced(f"{name}.last", x, -1, np.iinfo(np.int32).max, [axis])
    return writer.add("Concat", name, first, x, last, axis=axis)


def _shuffled(writer: Writer, node: Node, x: str) -> str:
    """Add a shuffle or unshuffle of one plane; for several planes, ONNX orders channels unlike PyTorch."""
    factor = node.values["factor"]
    inputs, outputs = writer.graph.extents[node.inputs[0]].channels, writer.graph.extents[node.name].channels
    if min(inputs, outputs) != 1:
        raise ModelError(f"node {node.name!r} shuffles several planes at once, which ONNX orders differently")
    return writer.add("SpaceToDepth" if node.op == "unshuffle" else "DepthToSpace", node.name, x, blocksize=factor)


def run_onnx(content: bytes, planes: Mapping[str, Any], *, plain: bool = False) -> dict[str, Any]:
    """Run an ONNX model in onnxruntime on one thread.

    Args:
        content: Content of the ONNX file.
        planes: Input arrays by name; those that the model does not take are ignored.
        plain: Disable graph optimisations, so that no operators are merged.

    Returns:
        Output arrays by name.

    Raises:
        ModelError: onnxruntime cannot run the model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        inputs = {value.name: planes[value.name] for value in session.get_inputs()}
        return dict(zip(names, session.run(names, inputs), strict=True))
    except Exception as error:  # onnxruntime has a class of its own for each kind of failure
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise ModelError(f"onnxruntime cannot run the network as ONNX: {reason}") from error
