"""Networks of 8 bits as ONNX with quantised tensors (QDQ), of which ONNX Runtime makes the same samples.

Bytes are quantised with the scale 1, weights and biases dequantised with 2^-shift by channel; sums are rounded once, by
QuantizeLinear or Round, which both take halves to the even integer. Whether ONNX Runtime joins a convolution and what
quantises around it to one of bytes, with sums in 32 bits, or multiplies in float32: no sum rounds, as it is below 2^24.
"""

from pathlib import Path

import numpy as np
import onnx

from codecnn.errors import ModelError
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer.reference import run_reference
from codecnn.models import CHROMA_PLANES, SAMPLE_PLANES
from codecnn.models.graph import MOVES, Array, Node, Writer, convolution, crop_node, moved, qp_plane, run_onnx
from codecnn.planes import MAX_QP, QP_SCALE
from codecnn.runs import atomic_path

CHECKED = ((40, 64, 22), (24, 32, 37))
"""Height and width of the luma, and QP, of the noise that a file is tried on before it is written."""


_MOVED_AS_BYTES = ("concat", "crop", "unshuffle", "shuffle")
_ZERO_POINTS = {(-128, 127): 128, (0, 255): 0}
"""What saturates by itself where a result becomes a byte with that zero point."""


def export_integers(path: Path | str, network: IntegerNetwork) -> None:
    """Write the network as ONNX, see `onnx_integers`, once onnxruntime has made the samples of the plain form of it.

    Raises ModelError where it makes others, with or without its own optimisations.
    """
    content = onnx_integers(network).SerializeToString()
    for height, width, qp in CHECKED:
        planes = _noise(network, height, width)
        expected = run_reference(network, planes, qp, network.bit_depth)
        for plain in (False, True):
            for name, samples in run_samples(content, network, planes, qp, plain=plain).items():
                if not np.array_equal(samples, expected[name]):
                    raise ModelError(f"{path} is not written: onnxruntime makes other samples of it at QP {qp}")
    with atomic_path(path) as part:
        part.write_bytes(content)


def run_samples(
    content: bytes, network: IntegerNetwork, planes: dict[str, Array], qp: int, *, plain: bool = False
) -> dict[str, Array]:
    """What onnxruntime makes of planes (n, 1, h, w) with the halo; samples are integers of the network's bit depth."""
    unit = np.float32(2.0**-network.bit_depth)
    given = {name: x.astype(np.float32) * (unit if name in SAMPLE_PLANES else 1) for name, x in planes.items()}
    given["qp"] = np.full((len(planes["rec_y"]), 1, 1, 1), qp / QP_SCALE, np.float32)
    return {name: x / unit for name, x in run_onnx(content, given, plain=plain).items()}


def _zero_point(node: Node, zeros: list[int | None]) -> int | None:
    """The zero point of a node's bytes; None where they are float32 tensors."""
    if node.op in _MOVED_AS_BYTES:
        return zeros[0] if len(set(zeros)) == 1 else None
    return _ZERO_POINTS.get((node.values["low"], node.values["high"])) if "low" in node.values else None


def _noise(network: IntegerNetwork, height: int, width: int) -> dict[str, Array]:
    graph, rng = network.graph, np.random.default_rng(0)
    planes = {}
    for name in graph.planes:
        shape = [
            (side + -side % graph.stride + 2 * graph.halo) // (2 if name in CHROMA_PLANES else 1)
            for side in (height, width)
        ]
        samples = rng.integers(0, 2**network.bit_depth, (1, 1, *shape))
        planes[name] = samples if name in SAMPLE_PLANES else (samples % 68 / np.float32(67)).astype(np.float32)
    return planes


def onnx_integers(network: IntegerNetwork) -> onnx.ModelProto:
    """The network as ONNX, of any height, width and QP, for samples of its bit depth b.

    Inputs and outputs are those of the float network's file, `codecnn.models.graph.onnx_file`: planes (n, 1, h, w) with
    the halo, samples x / 2^b, and `qp` (n, 1, 1, 1) in units of q / 64; but the outputs are rounded and clipped to
    samples, k / 2^b of whole k. Raises ModelError for networks of 16 bits, and for a shuffle of several planes.
    """
    if network.bits != 8:
        raise ModelError("networks of 16 bits have no form in ONNX, whose sums are float32: export int8 instead")
    exact = _Exact(network)
    for node in network.graph.nodes:
        exact.write(node)
    model = exact.writer.model()
    model.doc_string = f"planes {', '.join(network.graph.planes)}, halo {network.graph.halo}, {network.bit_depth} bit"
    return model


class _Exact:
    """Writes node after node. Each tensor is one of float32 that holds integers, dequantised from bytes or not."""

    def __init__(self, network: IntegerNetwork) -> None:
        self.network = network
        self.writer = Writer(network.graph)
        self.made: dict[str, str] = {}
        self.zeros: dict[str, int | None] = {}
        self.one = self.writer.constant("one", 1.0)
        self.zero_points = {zero: self.writer.constant(f"zero.{zero}", zero, np.uint8) for zero in (0, 128)}

    def write(self, node: Node) -> None:
        writer, name, x = self.writer, node.name, [self.made[one] for one in node.inputs]
        self.zeros[name] = zero = _zero_point(node, [self.zeros[one] for one in node.inputs])
        middle = float(1 << (self.network.bit_depth - 1))
        match node.op:
            case "plane":
                samples = self._samples(name)
                made = writer.add("Sub", f"{name}.centred", samples, writer.constant(f"{name}.middle", middle))
            case "qp":
                steps = 1 << (self.network.bit_depth - 6)
                made = qp_plane(writer, x[0], np.arange(MAX_QP + 1) * steps - middle)
            case "conv":
                made = self._ended(node, self._convolved(node, x))
            case "modulate":
                unit = 2.0 ** -node.tensors["shift"].astype(np.float64)
                factor, offset = (
                    writer.by_qp(f"{name}.{part}", node.tensors[part] * unit) for part in ("factor", "offset")
                )
                scaled = writer.add("Mul", f"{name}.scaled", x[0], factor)
                made = self._ended(node, writer.add("Add", f"{name}.sums", scaled, offset))
            case "output":
                made = self._output(node, x[0])
            case _ if node.op in MOVES:
                made = moved(writer, node, x)
                # Quantised again, which changes nothing, what follows finds bytes.
                made = made if zero is None else self._as_bytes(name, made, zero)
            case _:
                raise ModelError(f"the operation {node.op!r} has no form in ONNX")
        self.made[name] = made

    def _samples(self, name: str) -> str:
        """A plane from 0 to 2^b - 1."""
        writer, full = self.writer, 1 << self.network.bit_depth
        scaled = writer.add("Mul", f"{name}.scaled", name, writer.constant(f"{name}.full", float(full)))
        if name in SAMPLE_PLANES:
            return scaled
        # Round and floor(x + 1/2) agree: no quotient is a half.
        return self._clipped(f"{name}.samples", writer.add("Round", f"{name}.rounded", scaled), 0, full - 1)

    def _convolved(self, node: Node, x: list[str]) -> str:
        writer, name, weight = self.writer, node.name, node.tensors["weight"]
        unit = 2.0 ** -node.tensors["shift"].astype(np.float64)
        if weight.dtype == np.int8:
            # Bytes without a sign: of two products with signed ones AVX2 adds up 16 bits, which saturates.
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

    def _ended(self, node: Node, sums: str) -> str:
        """Sums, over what they are shifted by, rounded and saturated."""
        zero, name = self.zeros[node.name], node.name
        if zero is None:
            rounded = self.writer.add("Round", f"{name}.rounded", sums)
            return self._clipped(name, rounded, node.values["low"], node.values["high"])
        return self._as_bytes(name, sums, zero)

    def _as_bytes(self, name: str, x: str, zero: int) -> str:
        arguments = self.one, self.zero_points[zero]
        stored = self.writer.add("QuantizeLinear", f"{name}.q", x, *arguments)
        return self.writer.add("DequantizeLinear", f"{name}.dq", stored, *arguments)

    def _clipped(self, name: str, x: str, low: int, high: int) -> str:
        ends = [self.writer.constant(f"{name}.{end}", float(value)) for end, value in (("low", low), ("high", high))]
        return self.writer.add("Clip", f"{name}.clipped", x, *ends)

    def _output(self, node: Node, x: str) -> str:
        writer, name, bit_depth = self.writer, node.name, self.network.bit_depth
        gain = node.tensors["gain"] * 2.0 ** (bit_depth - node.values["fraction"])
        scaled = writer.add("Mul", f"{name}.scaled", x, writer.by_qp(f"{name}.gain", gain[:, None]))
        change = writer.add("Round", f"{name}.change", scaled)
        if len(node.inputs) == 2:
            base = crop_node(writer, f"{name}.base", f"{node.inputs[1]}.scaled", node.values["crop"])
        else:
            base = writer.constant(f"{name}.base", float(1 << (bit_depth - 1)))
        samples = writer.add("Add", f"{name}.sum", change, base)
        clipped = self._clipped(name, samples, 0, (1 << bit_depth) - 1)
        return writer.add("Mul", name, clipped, writer.constant(f"{name}.unit", 2.0**-bit_depth))
