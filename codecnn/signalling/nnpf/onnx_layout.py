"""Networks as ONNX files with the one input and one output tensor that a post-filter message describes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, ModelError
from codecnn.base.planes import MAX_QP, QP_SCALE
from codecnn.pictures.files import Picture
from codecnn.signalling.nnpf.carriage import DESCRIBED_PLANES, tensor_layout
from codecnn.signalling.nnpf.messages import Characteristics
from codecnn.signalling.nnpf.patches import Tensor, filter_in_patches

if TYPE_CHECKING:
    from codecnn.models import Card, FilterNetwork
    from codecnn.signalling.updates import LastLayer

UPDATE_TENSORS = {"y": "Y", "u": "U", "v": "V"}
"""Names of the tensors (1, size) of an adaptable file, all zero, to which an update adds the change of a last layer.

The names are short because an update repeats them.
"""

_INPUT, _OUTPUT = "input", "output"
_CHECKED_QPS = (22, 37)
_CHECKED_SIZE = (48, 64)
"""Height and width of the picture on which a file is checked if its patch has no fixed size."""


def export_post_filter(
    path: Path | str,
    model: "FilterNetwork",
    card: "Card",
    *,
    bit_depth: int = 10,
    patch: tuple[int, int] | None = None,
    overlap: int | None = None,
    picture: tuple[int, int] | None = None,
    qp: int | None = None,
    max_qp: int = MAX_QP,
    adaptable: bool = False,
) -> dict[str, Any]:
    """Write a network as ONNX for decoders that apply post-filter messages, and check it on a random picture.

    The input is a tensor (1, channels, h, w): luma, or with nnpfc_inp_order_idc 3 its four phases in raster order, Cb
    and Cr at half size, divided by 2^bit_depth - 1, and a plane of StrengthControlVal if the network takes the QP. The
    output has the same order without strength, and `overlap` fewer luma samples on each side. Its values are a quarter
    of a sample step above the steps of `bit_depth`, so that decoders that round and decoders that drop the fraction
    give the same samples.

    Args:
        path: File to write, .onnx.
        model: The network.
        card: Its card, whose trained QPs limit the QP.
        bit_depth: Bit depth of the samples.
        patch: Width and height of the patches in luma samples; with None, tensors have any size.
        overlap: Luma samples around a patch in the input; the network's halo by default.
        picture: Width and height of the pictures, each of which is one patch. The network then replaces all samples
            outside of the picture by its nearest sample, for decoders that fill them with other values.
        qp: Slice QP for all pictures, for decoders that do not pass the strength; the plane remains as an unused input.
        max_qp: QP of strength 1: 63 for VVC, 51 for HEVC.
        adaptable: Add the tensors of `UPDATE_TENSORS`, which updates change (`codecnn nnpf write --onnx URI --adapt`).

    Returns:
        Sizes of the tensors, and "largest_difference" in sample steps to `codecnn filter` on the random picture.

    Raises:
        ModelError: The network takes planes that decoders do not have, or the file computes other samples.
        ConfigError: Patch, picture, overlap or QP are out of range, or patch and picture are both given.
    """
    from codecnn.base.files import atomic_path
    from codecnn.filtering import FloatFilter
    from codecnn.models import onnx_content
    from codecnn.signalling.updates import last_layers

    planes = set(model.planes)
    if foreign := sorted(planes - DESCRIBED_PLANES):
        raise ModelError(f"the network takes the plane {foreign[0]}, which a post-filter does not have")
    inp_order, out_order, auxiliary = tensor_layout(planes, model.outputs)
    if (inp_order, out_order) not in ((0, 0), (3, 3)):
        raise ModelError("the network takes chroma and outputs luma alone: no tensor layout is written for it")
    if not 1 <= max_qp <= MAX_QP or (qp is not None and not 0 <= qp <= MAX_QP):
        raise ConfigError(f"QP {qp}, or QP {max_qp} of strength 1, is not in 0 to {MAX_QP}")
    unit = 2 if inp_order else 1
    overlap = model.halo if overlap is None else overlap
    if overlap < model.halo or overlap % unit or (overlap - model.halo) % model.stride:
        raise ConfigError(
            f"an overlap of {overlap} luma samples does not fit the network: its halo, {model.halo}, and a multiple of "
            f"{model.stride} more"
        )
    if patch is not None and picture is not None:
        raise ConfigError("a picture is one patch: give the size of a patch or that of the picture, not both")
    patch, whole = patch or picture, picture is not None
    if patch is not None and any(side < 1 or side % model.stride for side in patch):
        raise ConfigError(f"a patch of {patch[0]}x{patch[1]} is not of sides that are multiples of {model.stride}")
    filter_ = FloatFilter(model, card=card)
    plain = onnx_content(model)
    if adaptable:
        plain = _adaptable(plain, last_layers(filter_, "the network"))
    layout = _Layout(
        interleaved=inp_order == 3,
        takes_qp=bool(auxiliary),
        outside=overlap if whole else 0,
        repeated=model.halo if whole else 0,
        crop=0 if whole else overlap - model.halo,
        bit_depth=bit_depth,
        qps=(min(card.qps), max(card.qps)) if card.qps else (0, MAX_QP),
        fixed_qp=qp,
        max_qp=max_qp,
        shrink=2 * overlap // unit,
    )
    content = _wrapped(plain, layout)
    # Where the overlap exceeds the halo, the network sees repeated samples outside of the picture instead of zeros.
    margin = model.radius if overlap > model.halo and not whole else 0
    height, width = (ceil_div(2 * margin + side, model.stride) * model.stride for side in _CHECKED_SIZE)
    message = _message(inp_order, auxiliary, overlap // unit, (width // unit, height // unit))
    largest = 0
    for checked in _CHECKED_QPS if qp is None else (qp,):
        decoded = _random_picture((height, width), bit_depth, inp_order == 3)
        filtered = filter_in_patches(decoded, message, checked / max_qp, lambda tensor: _run(content, tensor))
        for a, b in zip(filter_(decoded, checked).planes, filtered.planes, strict=True):
            side = ceil_div(margin * len(a), height)
            inner = slice(side, len(a) - side), slice(side, a.shape[1] - side)
            largest = max(largest, int(np.abs(a.astype(int) - b)[inner].max()))
    if largest > 1:
        raise ModelError(f"{path} is not written: its samples differ from those of codecnn filter by {largest} steps")
    sides = None
    if patch is not None:
        sides = ((patch[1] + 2 * overlap) // unit, (patch[0] + 2 * overlap) // unit)
        tensor = np.random.default_rng(1).random((1, layout.channels, *sides), np.float32)
        expected, content = _run(content, tensor), _wrapped(plain, layout, sides)
        if not np.allclose(_run(content, tensor), expected, atol=1e-5):
            raise ModelError(f"{path} is not written: it computes other samples in patches of {patch[0]}x{patch[1]}")
    with atomic_path(Path(path)) as part:
        part.write_bytes(content)
    return {
        "input": f"1x{layout.channels}x{sides[0]}x{sides[1]}" if sides else f"1x{layout.channels}x(any)x(any)",
        "nnpfc_inp_order_idc": inp_order,
        "nnpfc_overlap": overlap // unit,
        "largest_difference": largest,
    }


@dataclass(frozen=True)
class _Layout:
    """Tensors of a wrapped network.

    Attributes:
        interleaved: The tensors have four luma phases and chroma.
        takes_qp: The network takes the QP.
        outside: Luma samples to remove on each side of the input.
        repeated: Luma samples to add then on each side, by repeating those of the edge.
        crop: Luma samples to remove on each side of the output.
        bit_depth: Bit depth of the samples.
        qps: Lowest and highest QP that the network was trained for.
        fixed_qp: QP to use instead of the strength.
        max_qp: QP of strength 1.
        shrink: Rows and columns by which the output tensor is smaller than the input tensor.
    """

    interleaved: bool
    takes_qp: bool
    outside: int
    repeated: int
    crop: int
    bit_depth: int
    qps: tuple[int, int]
    fixed_qp: int | None
    max_qp: int
    shrink: int

    @property
    def channels(self) -> int:
        """Channels of the input tensor."""
        return (6 if self.interleaved else 1) + self.takes_qp

    @property
    def peak(self) -> float:
        """Largest sample as the network takes it, which is 1 in the tensors."""
        return float(1 - 0.5**self.bit_depth)


def _run(content: bytes, tensor: Tensor) -> Tensor:
    from codecnn.models.graph import run_onnx

    result: Tensor = run_onnx(content, {_INPUT: tensor})[_OUTPUT]
    return result


def _message(order: int, auxiliary: int, overlap: int, patch: tuple[int, int]) -> Characteristics:
    """Return what `filter_in_patches` needs of a message."""
    return Characteristics(
        nnpfc_purpose=1,
        nnpfc_id=0,
        nnpfc_base_flag=True,
        nnpfc_mode_idc=1,
        nnpfc_inp_order_idc=order,
        nnpfc_out_order_idc=order,
        nnpfc_inp_format_idc=0,
        nnpfc_out_format_idc=0,
        nnpfc_auxiliary_inp_idc=auxiliary,
        nnpfc_overlap=overlap,
        nnpfc_patch_width_minus1=patch[0] - 1,
        nnpfc_patch_height_minus1=patch[1] - 1,
        nnpfc_padding_type=1,
    )


def _random_picture(size: tuple[int, int], bit_depth: int, chroma: bool) -> Picture:
    """Return a picture of smooth waves with noise."""
    rng = np.random.default_rng(37)
    y, x = np.mgrid[: size[0], : size[1]]
    waves = 0.5 + 0.3 * np.sin(x / 6) * np.cos(y / 9)
    shapes = [size, *([(size[0] // 2, size[1] // 2)] * 2 if chroma else [])]
    top = 2**bit_depth - 1
    planes = [
        np.clip((waves[: h * step : step, : w * step : step] + rng.normal(0, 0.01, (h, w))) * top, 0, top)
        for (h, w), step in zip(shapes, (1, 2, 2), strict=False)
    ]
    return Picture(tuple(plane.astype(np.uint16 if bit_depth > 8 else np.uint8) for plane in planes), bit_depth)


def _adaptable(content: bytes, layers: "Sequence[LastLayer]") -> bytes:
    """Add a tensor for each output whose values are added to the weights and the bias of its last layer.

    The change of the weights is the same for all output channels of the layer, as in `codecnn.signalling.updates.Part`.
    """
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_from_string(content)
    nodes, initializers = list(model.graph.node), model.graph.initializer
    for layer in layers:
        tensor, at = UPDATE_TENSORS[layer.output], f"nnpf.update.{layer.output}"
        index, conv = next((i, n) for i, n in enumerate(nodes) if f"{layer.conv.name}.weight" in n.input)
        constants: dict[str, Any] = {
            tensor: np.zeros((1, layer.size), np.float32),
            f"{at}.sizes": np.array([layer.size - 1, 1], np.int64),
            f"{at}.weight.shape": np.array([1, *layer.conv.tensors["weight"].shape[1:]], np.int64),
            f"{at}.bias.shape": np.array([1], np.int64),
        }
        initializers.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
        parts = {f"{at}.weight": conv.input[1], f"{at}.bias": conv.input[2]}
        added = [helper.make_node("Split", [tensor, f"{at}.sizes"], [f"{part}.flat" for part in parts], axis=1)]
        for part, old in parts.items():
            added += [
                helper.make_node("Reshape", [f"{part}.flat", f"{part}.shape"], [f"{part}.change"]),
                helper.make_node("Add", [old, f"{part}.change"], [part]),
            ]
        changed = onnx.NodeProto()
        changed.CopyFrom(conv)
        changed.input[1], changed.input[2] = f"{at}.weight", f"{at}.bias"
        nodes[index : index + 1] = [*added, changed]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.checker.check_model(model, full_check=True)
    adaptable: bytes = model.SerializeToString()
    return adaptable


def _wrapped(content: bytes, layout: _Layout, size: tuple[int, int] | None = None) -> bytes:
    """Surround an ONNX model by nodes that take and give one tensor each.

    Args:
        content: The model: planes by name and `qp` (n, 1, 1, 1) in, filtered planes out.
        layout: The tensors.
        size: Height and width of the input tensor; any if None.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load_from_string(content)
    graph = model.graph
    before: list[Any] = []
    after: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: Any, dtype: Any = np.float32) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), f"nnpf.{name}"))
        return f"nnpf.{name}"

    def sliced(nodes: list[Any], name: str, x: str, first: Sequence[int], last: Sequence[int], axes: list[int]) -> str:
        ranges = [
            constant(f"{name}.{part}", value, np.int64)
            for part, value in (("starts", first), ("ends", last), ("axes", axes))
        ]
        nodes.append(helper.make_node("Slice", [x, *ranges], [f"nnpf.{name}"]))
        return f"nnpf.{name}"

    def node(nodes: list[Any], op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def samples(name: str, first: int, last: int) -> str:
        channel = sliced(before, f"{name}.channel", _INPUT, [first], [last], [1])
        return node(before, "Mul", [channel, constant(f"{name}.peak", layout.peak)], f"nnpf.{name}.scaled")

    def within(name: str, x: str, step: int) -> None:
        """Take the picture out of its surroundings, and repeat its edges as far as the network needs."""
        outside, repeated = layout.outside // step, layout.repeated // step
        if outside:
            x = sliced(before, f"{name}.inside", x, [outside] * 2, [-outside] * 2, [2, 3])
            pads = constant(f"{name}.pads", [0, 0, repeated, repeated] * 2, np.int64)
            x = node(before, "Pad", [x, pads], f"nnpf.{name}.repeated", mode="edge")
        node(before, "Identity", [x], f"rec_{name}")

    luma = samples("y", 0, 4 if layout.interleaved else 1)
    if layout.interleaved:
        within("y", node(before, "DepthToSpace", [luma], "nnpf.y.full", blocksize=2), 1)
        for number, name in ((4, "u"), (5, "v")):
            within(name, samples(name, number, number + 1), 2)
    else:
        within("y", luma, 1)
    if layout.takes_qp:
        number = layout.channels - 1
        corner = sliced(before, "strength", _INPUT, [number, 0, 0], [number + 1, 1, 1], [1, 2, 3])
        scale = float(layout.max_qp) if layout.fixed_qp is None else 0.0
        scaled = node(before, "Mul", [corner, constant("strength.scale", scale)], "nnpf.qp.scaled")
        fixed = [min(max(layout.fixed_qp, layout.qps[0]), layout.qps[1])] * 2 if layout.fixed_qp is not None else None
        limits = [
            constant(name, float(value)) for name, value in zip(("low", "high"), fixed or layout.qps, strict=True)
        ]
        limited = node(before, "Clip", [scaled, *limits], "nnpf.qp.limited")
        node(before, "Mul", [limited, constant("qp.unit", 1 / QP_SCALE)], "qp")
    outputs = [output.name for output in graph.output]
    parts = []
    for name in outputs:
        side = layout.crop // (1 if name == "y" else 2)
        inner = sliced(after, f"{name}.inner", name, [side] * 2, [-side or np.iinfo(np.int32).max] * 2, [2, 3])
        if layout.interleaved and name == "y":
            inner = node(after, "SpaceToDepth", [inner], "nnpf.y.phases", blocksize=2)
        parts.append(inner)
    top = 2**layout.bit_depth - 1
    steps = node(
        after,
        "Mul",
        [node(after, "Concat", parts, "nnpf.parts", axis=1), constant("steps", 2.0**layout.bit_depth)],
        "nnpf.fractions",
    )
    nearest = node(after, "Floor", [node(after, "Add", [steps, constant("half", 0.5)], "nnpf.raised")], "nnpf.nearest")
    above = node(after, "Add", [nearest, constant("quarter", 0.25)], "nnpf.above")
    node(after, "Mul", [above, constant("unit", 1 / top)], _OUTPUT)
    taken = {name for each in graph.node for name in each.input}
    kept = [each for each in before if each.output[0] not in ("rec_u", "rec_v", "qp") or each.output[0] in taken]
    sides: tuple[Any, Any] = size or ("height", "width")
    out_sides = [side - layout.shrink for side in size] if size else ["out_height", "out_width"]
    out_channels = 6 if layout.interleaved else 1
    wrapped = helper.make_graph(
        [*kept, *graph.node, *after],
        "codecnn",
        [helper.make_tensor_value_info(_INPUT, TensorProto.FLOAT, [1, layout.channels, *sides])],
        [helper.make_tensor_value_info(_OUTPUT, TensorProto.FLOAT, [1, out_channels, *out_sides])],
        [*graph.initializer, *constants],
    )
    result = helper.make_model(
        wrapped, opset_imports=list(model.opset_import), ir_version=model.ir_version, producer_name="codecnn"
    )
    result.doc_string = f"{model.doc_string}; post-filter layout of H.274"
    onnx.checker.check_model(result, full_check=True)
    exported: bytes = result.SerializeToString()
    return exported
