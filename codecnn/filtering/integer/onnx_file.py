"""8-bit networks as ONNX with quantised tensors (QDQ), for which ONNX Runtime computes the same samples.

Bytes are quantised with scale 1; weights and biases are dequantised with 2^-shift for each channel. Sums are rounded
once, by QuantizeLinear or Round, which both round halves to even. ONNX Runtime may fuse a convolution with the
quantisation around it into a convolution of bytes with 32-bit sums, or multiply in float32: since all sums are below
2^24, neither rounds.
"""

from pathlib import Path

import numpy as np
import onnx

from codecnn.base.errors import ConfigError, ModelError
from codecnn.base.files import atomic_path
from codecnn.base.planes import MAX_QP, QP_SCALE
from codecnn.filtering.integer.network import IntegerNetwork
from codecnn.filtering.integer.reference import run_reference
from codecnn.models import CHROMA_PLANES, SAMPLE_PLANES, Card, set_metadata
from codecnn.models.graph import MOVES, Array, Node, Writer, convolution, crop_node, qp_plane, run_onnx, write_move

CHECKED = ((40, 64, 22), (24, 32, 37))
"""Luma height and width, and QP, of the noise that a file is verified with before it is written."""

_MOVED_AS_BYTES = ("concat", "crop", "unshuffle", "shuffle")
"""Operations that move bytes unchanged."""
_ZERO_POINTS = {(-128, 127): 128, (0, 255): 0}
"""Zero points of bytes by their bounds; conversion to a byte saturates to these bounds."""


def export_integers(
    path: Path | str, network: IntegerNetwork, *, bit_depth: int | None = None, card: Card | None = None
) -> None:
    """Write an 8-bit network as ONNX after verifying it; see `onnx_integers` for inputs and outputs.

    Args:
        path: File to write.
        network: The network.
        bit_depth: Bit depth of the pictures; that of the network by default.
        card: Card of the network, for the metadata of the file.

    Raises:
        ModelError: ONNX Runtime computes other samples than the reference engine, with or without its optimisations,
            or the network has no form in ONNX.
        ConfigError: The bit depth is that of no picture, or larger than that of the network.
    """
    bit_depth = network.bit_depth if bit_depth is None else bit_depth
    model = onnx_integers(network, bit_depth)
    set_metadata(model, network.graph.halo, network.graph.stride, card, bit_depth=bit_depth)
    content = model.SerializeToString()
    for height, width, qp in CHECKED:
        planes = _noise(network, height, width, bit_depth)
        expected = run_reference(network, planes, qp, bit_depth)
        for plain in (False, True):
            for name, samples in run_samples(content, network, planes, qp, bit_depth, plain=plain).items():
                if not np.array_equal(samples, expected[name]):
                    raise ModelError(f"{path} is not written: onnxruntime computes other samples at QP {qp}")
    with atomic_path(path) as part:
        part.write_bytes(content)


def run_samples(
    content: bytes,
    network: IntegerNetwork,
    planes: dict[str, Array],
    qp: int,
    bit_depth: int | None = None,
    *,
    plain: bool = False,
) -> dict[str, Array]:
    """Compute the outputs of an exported network with ONNX Runtime.

    Args:
        content: The ONNX file.
        network: The network that was exported.
        planes: Planes (n, 1, h, w), halo included; samples are integers of the bit depth.
        qp: Slice QP.
        bit_depth: Bit depth that the file is for; that of the network by default.
        plain: Switch off the optimisations of ONNX Runtime.

    Returns:
        Samples (n, 1, h, w) by component.
    """
    unit = np.float32(2.0 ** -(network.bit_depth if bit_depth is None else bit_depth))
    inputs = {name: x.astype(np.float32) * (unit if name in SAMPLE_PLANES else 1) for name, x in planes.items()}
    inputs["qp"] = np.full((len(planes["rec_y"]), 1, 1, 1), qp / QP_SCALE, np.float32)
    return {name: x / unit for name, x in run_onnx(content, inputs, plain=plain).items()}


def _zero_point(node: Node, input_zeros: list[int | None]) -> int | None:
    """Return the zero point of a node's bytes; None if its tensor is not stored as bytes."""
    if node.op in _MOVED_AS_BYTES:
        return input_zeros[0] if len(set(input_zeros)) == 1 else None
    return _ZERO_POINTS.get((node.values["low"], node.values["high"])) if "low" in node.values else None


def _noise(network: IntegerNetwork, height: int, width: int, bit_depth: int) -> dict[str, Array]:
    """Draw planes of noise, halo included, for luma of the given size."""
    graph, rng = network.graph, np.random.default_rng(0)
    planes = {}
    for name in graph.planes:
        shape = [
            (side + -side % graph.stride + 2 * graph.halo) // (2 if name in CHROMA_PLANES else 1)
            for side in (height, width)
        ]
        samples = rng.integers(0, 2**bit_depth, (1, 1, *shape))
        planes[name] = samples if name in SAMPLE_PLANES else (samples % 68 / np.float32(67)).astype(np.float32)
    return planes


def onnx_integers(network: IntegerNetwork, bit_depth: int | None = None) -> onnx.ModelProto:
    """Convert an 8-bit network to ONNX, for any height, width and QP and samples of one bit depth b.

    Inputs and outputs are those of the float network's file (`codecnn.models.graph.onnx_model`): planes (n, 1, h, w)
    with the halo, samples as x / 2^b, and `qp` (n, 1, 1, 1) in units of q / 64. The outputs are rounded and clipped to
    samples, k / 2^b for integers k.

    Args:
        network: The network.
        bit_depth: Bit depth b, from 8 to that of the network, which is the default.

    Raises:
        ModelError: The network has 16 bits, or an operation has no form in ONNX.
        ConfigError: The bit depth is out of range.
    """
    bit_depth = network.bit_depth if bit_depth is None else bit_depth
    if not 8 <= bit_depth <= network.bit_depth:
        raise ConfigError(f"bit depth {bit_depth} is out of range: 8 to {network.bit_depth}, that of the integers")
    if network.bits != 8:
        raise ModelError("networks of 16 bits have no form in ONNX, whose sums are float32: export int8 instead")
    exporter = _Exporter(network, bit_depth)
    for node in network.graph.nodes:
        exporter.write(node)
    model = exporter.writer.model()
    model.doc_string = f"planes {', '.join(network.graph.planes)}, halo {network.graph.halo}, {bit_depth} bit"
    return model


class _Exporter:
    """Writes a network node by node; each tensor is float32 that holds integers, dequantised from bytes or not."""

    def __init__(self, network: IntegerNetwork, bit_depth: int) -> None:
        self.network = network
        self.bit_depth = bit_depth
        self.writer = Writer(network.graph)
        self.tensors: dict[str, str] = {}
        self.zeros: dict[str, int | None] = {}
        self.scale_1 = self.writer.constant("one", 1.0)
        self.zero_points = {zero: self.writer.constant(f"zero.{zero}", zero, np.uint8) for zero in (0, 128)}

    def write(self, node: Node) -> None:
        """Write a node, whose inputs are written already."""
        writer, name, x = self.writer, node.name, [self.tensors[name] for name in node.inputs]
        self.zeros[name] = zero = _zero_point(node, [self.zeros[name] for name in node.inputs])
        middle = float(1 << (self.network.bit_depth - 1))
        match node.op:
            case "plane":
                samples = self._samples(name)
                result = writer.add("Sub", f"{name}.centred", samples, writer.constant(f"{name}.middle", middle))
            case "qp":
                steps = 1 << (self.network.bit_depth - 6)
                result = qp_plane(writer, x[0], np.arange(MAX_QP + 1) * steps - middle)
            case "conv":
                result = self._round(node, self._convolve(node, x))
            case "modulate":
                unit = 2.0 ** -node.tensors["shift"].astype(np.float64)
                factor, offset = (
                    writer.by_qp(f"{name}.{part}", node.tensors[part] * unit) for part in ("factor", "offset")
                )
                scaled = writer.add("Mul", f"{name}.scaled", x[0], factor)
                result = self._round(node, writer.add("Add", f"{name}.sums", scaled, offset))
            case "output":
                result = self._output(node, x[0])
            case _ if node.op in MOVES:
                result = write_move(writer, node, x)
                # Quantising again changes no value; it shows the operations that follow that the tensor holds bytes.
                result = result if zero is None else self._as_bytes(name, result, zero)
            case _:
                raise ModelError(f"the operation {node.op!r} has no form in ONNX")
        self.tensors[name] = result

    def _samples(self, name: str) -> str:
        """Scale a plane to 0 to 2^b - 1."""
        writer, full = self.writer, 1 << self.network.bit_depth
        scaled = writer.add("Mul", f"{name}.scaled", name, writer.constant(f"{name}.full", float(full)))
        if name in SAMPLE_PLANES:
            return scaled
        # Round and floor(x + 1/2) agree, because no value is a half.
        return self._clip(f"{name}.samples", writer.add("Round", f"{name}.rounded", scaled), 0, full - 1)

    def _convolve(self, node: Node, x: list[str]) -> str:
        """Write the sums of a convolution over the power of two of their shift."""
        writer, name, weight = self.writer, node.name, node.tensors["weight"]
        unit = 2.0 ** -node.tensors["shift"].astype(np.float64)
        if weight.dtype == np.int8:
            # Weights are unsigned bytes. With signed ones AVX2 sums two products in 16 bits, which saturates.
            shift = writer.constant(f"{name}.unit", unit)
            middles = writer.constant(f"{name}.middles", np.full(len(unit), 128), np.uint8)
            nulls = writer.constant(f"{name}.nulls", np.zeros(len(unit)), np.int32)
            stored = {
                "weight": (writer.constant(f"{name}.weight.q", weight.astype(int) + 128, np.uint8), middles),
                "bias": (writer.constant(f"{name}.bias.q", node.tensors["bias"], np.int32), nulls),
            }
            parts = [
                writer.add("DequantizeLinear", f"{name}.{part}", tensor, shift, zeros, axis=0)
                for part, (tensor, zeros) in stored.items()
            ]
        else:
            by_output = unit[:, None, None, None]
            parts = [
                writer.constant(f"{name}.weight", weight * by_output),
                writer.constant(f"{name}.bias", node.tensors["bias"] * unit),
            ]
        sums = convolution(writer, node, f"{name}.sums", x[0], *parts)
        if len(x) == 1:
            return sums
        scale = writer.constant(f"{name}.skip", 2.0 ** -node.values["skip"])
        return writer.add("Add", f"{name}.all", sums, writer.add("Mul", f"{name}.second", x[1], scale))

    def _round(self, node: Node, sums: str) -> str:
        """Write the rounding and saturation of sums over the power of two of their shift."""
        zero, name = self.zeros[node.name], node.name
        if zero is None:
            rounded = self.writer.add("Round", f"{name}.rounded", sums)
            return self._clip(name, rounded, node.values["low"], node.values["high"])
        return self._as_bytes(name, sums, zero)

    def _as_bytes(self, name: str, x: str, zero: int) -> str:
        arguments = self.scale_1, self.zero_points[zero]
        stored = self.writer.add("QuantizeLinear", f"{name}.q", x, *arguments)
        return self.writer.add("DequantizeLinear", f"{name}.dq", stored, *arguments)

    def _clip(self, name: str, x: str, low: int, high: int) -> str:
        ends = [self.writer.constant(f"{name}.{end}", float(value)) for end, value in (("low", low), ("high", high))]
        return self.writer.add("Clip", f"{name}.clipped", x, *ends)

    def _output(self, node: Node, x: str) -> str:
        writer, name, bit_depth = self.writer, node.name, self.bit_depth
        gain = node.tensors["gain"] * 2.0 ** (bit_depth - node.values["fraction"])
        scaled = writer.add("Mul", f"{name}.scaled", x, writer.by_qp(f"{name}.gain", gain[:, None]))
        change = writer.add("Round", f"{name}.change", scaled)
        if len(node.inputs) == 2:
            plane = node.inputs[1]
            full = writer.constant(f"{name}.full", 2.0**bit_depth)
            samples = writer.add("Mul", f"{name}.samples", plane, full)
            base = crop_node(writer, f"{name}.base", samples, node.values["crop"])
        else:
            base = writer.constant(f"{name}.base", float(1 << (bit_depth - 1)))
        sums = writer.add("Add", f"{name}.sum", change, base)
        clipped = self._clip(name, sums, 0, (1 << bit_depth) - 1)
        return writer.add("Mul", name, clipped, writer.constant(f"{name}.unit", 2.0**-bit_depth))
