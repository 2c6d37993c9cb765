"""Networks as ONNX with one input tensor, for programs that stack pictures as channels: VapourSynth and ffmpeg.

The tensors have the size of the picture: the network repeats the samples at its edges itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codecnn.base.errors import ConfigError, ModelError
from codecnn.base.files import atomic_path
from codecnn.base.planes import MAX_QP, QP_PLANE, QP_SCALE, SLICE_TYPE_PLANE
from codecnn.filtering.network_filter import FloatFilter
from codecnn.models import (
    CHROMA_PLANES,
    HALF_TOLERANCE,
    SAMPLE_PLANES,
    Card,
    FilterNetwork,
    float16_difference,
    onnx_content,
    set_metadata,
)
from codecnn.models.graph import Array, run_onnx
from codecnn.pictures.files import Picture

STACKED_PLANES = ("rec_y", "rec_u", "rec_v", "prev_y", "next_y", SLICE_TYPE_PLANE, QP_PLANE)
"""Planes that a stacked network may take, in the order of the channels."""

TOLERANCE = 1e-5
"""Largest difference of a file to the network in float32, in full scale."""

_WHITE = 255 / 256
"""Value that networks take for the largest sample of 8 bits, which the tensors hold as 1."""

_INPUT, _OUTPUT = "input", "output"
_CHECKED_QPS = (22, 37)
_CHECKED_SIZE = (48, 80)
"""Height and width of the picture on which a file is checked, before they are rounded up to the stride."""


def export_stacked(
    path: Path | str, model: FilterNetwork, card: Card, *, qp: int | None = None, half: bool = False
) -> dict[str, Any]:
    """Write a network as ONNX with one stacked input tensor, and a script for VapourSynth beside it.

    The input is a tensor (1, c, h, w) of the planes in the order of `STACKED_PLANES`, all at the size of luma: samples
    of b bits as x / 2^(b - 8) / 255, chroma of 4:2:0 with each sample repeated in a square of 2x2, the slice type as 0
    for I and 1 for P and B, the QP as q / 64. The output is a tensor (1, 1, h, w) of luma, or (1, 3, h, w) with chroma,
    in the same scale, neither rounded nor clipped. Height and width are multiples of the stride.

    Args:
        path: ONNX file to write; the script is called as the file, with the suffix .vpy.
        model: The network.
        card: Its card, to whose trained QPs the QP is clipped.
        qp: The QP of all pictures. The input then has no QP, and for networks of luma a single channel.
        half: Compute in float16 inside of the network.

    Returns:
        "input", the shape of the tensor; "script"; and "largest_difference" to `codecnn filter --float` on a random
        picture, in full scale.

    Raises:
        ModelError: The network takes planes that players do not have, or the file computes other samples.
        ConfigError: The QP is out of range.
    """
    path = Path(path)
    layout = _layout(model, card, qp)
    largest = float16_difference(path, model) if half else 0.0
    content = _stacked(onnx_content(model, card=card, half=half), model, layout, card)
    filter_ = FloatFilter(model, card=card)
    for number, checked in enumerate(_CHECKED_QPS if qp is None else (qp,)):
        planes = _random_planes(model, np.random.default_rng(number))
        picture = Picture(tuple(planes[name] for name in ("rec_y", "rec_u", "rec_v") if name in planes), 8)
        expected = filter_.samples(picture, checked, planes)
        stack = np.stack([_channel(name, planes, checked) for name in layout.channels])[None]
        result = run_onnx(content, {_INPUT: stack})[_OUTPUT][0] * 255
        for name, samples in zip(model.outputs, result, strict=True):
            step = 1 if name == "y" else 2
            difference = np.abs(samples[::step, ::step] - expected[name]).max() / 256
            largest = max(largest, float(np.nan_to_num(difference, nan=np.inf)))
    if largest > (HALF_TOLERANCE if half else TOLERANCE):
        hint = "; leave out --fp16" if half else ""
        raise ModelError(f"{path} is not written: its samples differ from codecnn filter by {largest:.2g}{hint}")
    script = path.with_suffix(".vpy")
    with atomic_path(path) as part, atomic_path(script) as script_part:
        part.write_bytes(content)
        script_part.write_text(_script(path, layout, model, card), encoding="utf-8")
    return {
        "input": f"1x{len(layout.channels)}x(height)x(width)",
        "script": str(script),
        "largest_difference": largest,
    }


@dataclass(frozen=True)
class _Layout:
    """Channels of the input, lowest and highest QP, and the QP of all pictures if it is fixed."""

    channels: tuple[str, ...]
    qps: tuple[int, int]
    fixed_qp: int | None


def _layout(model: FilterNetwork, card: Card, qp: int | None) -> _Layout:
    if foreign := [name for name in model.planes if name not in STACKED_PLANES]:
        motion = " and no motion search" if any("_mc_" in name for name in foreign) else ""
        raise ModelError(
            f"the network takes the plane {foreign[0]}, and players have decoded pictures only{motion}: choose weights "
            "that take rec_y and qp, e.g. low_cost_17, low_cost_17.hevc, low_cost_17.av1 or low_cost_17.vvc_video"
        )
    if qp is not None and not 0 <= qp <= MAX_QP:
        raise ConfigError(f"QP {qp} is out of range: 0 to {MAX_QP}")
    channels = tuple(name for name in STACKED_PLANES if name in model.planes and (name != QP_PLANE or qp is None))
    return _Layout(channels, (min(card.qps), max(card.qps)) if card.qps else (0, MAX_QP), qp)


def _random_planes(model: FilterNetwork, rng: np.random.Generator) -> dict[str, Array]:
    """Return noise: samples of 8 bits at the resolution of each plane, and the slice type of a picture."""
    planes: dict[str, Array] = {}
    luma = [side + -side % model.stride for side in _CHECKED_SIZE]
    for name in model.planes:
        if name in SAMPLE_PLANES:
            size = [side // (2 if name in CHROMA_PLANES else 1) for side in luma]
            planes[name] = rng.integers(0, 256, size).astype(np.uint8)
        elif name == SLICE_TYPE_PLANE:
            planes[name] = np.full(luma, rng.integers(0, 2), np.float32)
    return planes


def _channel(name: str, planes: Mapping[str, Array], qp: int) -> Array:
    """Return a channel (h, w) of the stacked tensor, float32."""
    if name == QP_PLANE:
        return np.full(planes["rec_y"].shape, qp / QP_SCALE, np.float32)
    if name == SLICE_TYPE_PLANE:
        return planes[name]
    samples = planes[name].astype(np.float32) / np.float32(255)
    return samples.repeat(2, 0).repeat(2, 1) if name in CHROMA_PLANES else samples


def _stacked(content: bytes, model: FilterNetwork, layout: _Layout, card: Card) -> bytes:
    """Surround an ONNX model by nodes that take and give one tensor each."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    inner = onnx.load_from_string(content)
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: Any, dtype: Any = np.float32) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), f"stacked.{name}"))
        return f"stacked.{name}"

    def node(op: str, output: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def sliced(name: str, x: str, starts: list[int], ends: list[int], axes: list[int], step: int = 1) -> str:
        ranges = {"starts": starts, "ends": ends, "axes": axes, "steps": [step] * len(axes)}
        parts = [constant(f"{name}.{part}", value, np.int64) for part, value in ranges.items()]
        return node("Slice", f"stacked.{name}", x, *parts)

    last = np.iinfo(np.int32).max
    for number, name in enumerate(layout.channels):
        if name == QP_PLANE:
            corner = sliced("corner", _INPUT, [number, 0, 0], [number + 1, 1, 1], [1, 2, 3])
            limits = [
                constant(f"qp.{each}", qp / QP_SCALE) for each, qp in zip(("low", "high"), layout.qps, strict=True)
            ]
            node("Clip", QP_PLANE, corner, *limits)
            continue
        x = sliced(f"{name}.channel", _INPUT, [number], [number + 1], [1])
        if name in SAMPLE_PLANES:
            x = node("Mul", f"stacked.{name}.scaled", x, constant(f"{name}.white", _WHITE))
        halo = model.halo
        if name in CHROMA_PLANES:
            x = sliced(f"{name}.half", x, [0, 0], [last, last], [2, 3], 2)
            halo //= 2
        pads = constant(f"{name}.pads", [0, 0, halo, halo] * 2, np.int64)
        node("Pad", name, x, pads, mode="edge")
    if layout.fixed_qp is not None and QP_PLANE in model.planes:
        value = np.full((1, 1, 1, 1), np.clip(layout.fixed_qp, *layout.qps) / QP_SCALE, np.float32)
        constants.append(numpy_helper.from_array(value, QP_PLANE))
    body = len(nodes)
    parts = []
    for name in model.outputs:
        x = name
        if name != "y":
            x = node("Concat", f"stacked.{name}.four", x, x, x, x, axis=1)
            x = node("DepthToSpace", f"stacked.{name}.square", x, blocksize=2)
        parts.append(x)
    joined = parts[0] if len(parts) == 1 else node("Concat", "stacked.joined", *parts, axis=1)
    node("Mul", _OUTPUT, joined, constant("black", 1 / _WHITE))
    sides = ["height", "width"]
    graph = helper.make_graph(
        [*nodes[:body], *inner.graph.node, *nodes[body:]],
        "codecnn",
        [helper.make_tensor_value_info(_INPUT, TensorProto.FLOAT, [1, len(layout.channels), *sides])],
        [helper.make_tensor_value_info(_OUTPUT, TensorProto.FLOAT, [1, len(model.outputs), *sides])],
        [*inner.graph.initializer, *constants],
    )
    result = helper.make_model(
        graph, opset_imports=list(inner.opset_import), ir_version=inner.ir_version, producer_name="codecnn"
    )
    result.doc_string = f"{inner.doc_string}; stacked input"
    set_metadata(
        result,
        0,
        model.stride,
        card,
        planes=",".join(layout.channels),
        scale="sample / 2^(bit_depth - 8) / 255",
        padding=None,
        qp=layout.fixed_qp,
        qp_input="QP / 64" if QP_PLANE in layout.channels else None,
    )
    onnx.checker.check_model(result, full_check=True)
    stacked: bytes = result.SerializeToString()
    return stacked


_QP_LINES = """\
qp = str(arguments.get("qp", {default}))
if not qp.isdecimal():
    raise vs.Error(f"qp is {{qp}}: give the QP of the slices as a number, as in -a qp=32")
qp = int(qp)
"""

_SCRIPT = '''\
"""{title}

    vspipe -c y4m -a source=video.mkv{qp_argument} {script} filtered.y4m

Needs pip install vapoursynth vapoursynth-mlrt-ort vapoursynth-bestsource, and {network} beside this script.
Arguments: source, a video{qp_help}; provider=CUDA or DML computes on a GPU.
"""

from pathlib import Path

import vapoursynth as vs
from vapoursynth import core

arguments = globals()
clip = core.bs.VideoSource(arguments.get("source", "video.mkv"))
{qp_line}provider = arguments.get("provider", "")
network = Path(__file__).with_name({network!r})

if clip.format.color_family not in (vs.GRAY, vs.YUV) or clip.format.sample_type != vs.INTEGER{format_check}:
    raise vs.Error(f"the clip is {{clip.format.name}}, and the network takes {formats}")
if clip.width % {stride} or clip.height % {stride}:
    raise vs.Error(f"{{clip.width}}x{{clip.height}} is not of sides that are multiples of {stride}")
step = 255 * 2 ** (clip.format.bits_per_sample - 8)


def to_float(plane):
    """Return a plane of the clip in float32 without a change of range; 1 is the largest sample of 8 bits."""
    return core.std.Expr(core.std.ShufflePlanes(clip, plane, vs.GRAY), f"x {{step}} /", vs.GRAYS)


y = to_float(0)
{channels}
filtered = core.ort.Model([{names}], network_path=str(network), provider=provider)
whole = core.query_video_format(vs.GRAY, vs.INTEGER, clip.format.bits_per_sample)


def to_samples(plane, size=y):
    """Return a plane of the network's output as samples, rounded and clipped."""
    x = core.std.ShufflePlanes(filtered, plane, vs.GRAY)
    x = core.resize.Point(x, size.width, size.height) if size.width != x.width else x
    return core.std.Expr(x, f"x {{step}} *", whole)


{result}
clip.set_output()
'''

_LUMA_RESULT = """\
y = to_samples(0)
clip = core.std.ShufflePlanes([y, clip, clip], [0, 1, 2], vs.YUV) if clip.format.color_family == vs.YUV else y"""

_COLOUR_RESULT = """\
half = core.std.ShufflePlanes(clip, 1, vs.GRAY)
planes = [to_samples(0), to_samples(1, half), to_samples(2, half)]
clip = core.std.CopyFrameProps(core.std.ShufflePlanes(planes, [0, 0, 0], vs.YUV), clip)"""

_CHANNELS = {
    "rec_y": ("y", ""),
    "rec_u": ("u", "u = core.resize.Point(to_float(1), clip.width, clip.height)"),
    "rec_v": ("v", "v = core.resize.Point(to_float(2), clip.width, clip.height)"),
    "prev_y": ("y[:1] + y[:-1]", ""),
    "next_y": ("y[1:] + y[-1:]", ""),
    SLICE_TYPE_PLANE: (
        "slice_type",
        "# 0 for I pictures, 1 for others; the source filter says which they are.\n"
        "kinds = [core.std.BlankClip(y, color=kind, keep=True) for kind in (0.0, 1.0)]\n"
        'slice_type = core.std.FrameEval(y, lambda n, f: kinds[f.props.get("_PictType", "B") != "I"], prop_src=clip)',
    ),
    QP_PLANE: ("strength", "strength = core.std.BlankClip(y, color=qp / 64, keep=True)"),
}
"""For each plane the clip of the script, and the line that makes it if it needs one."""


def _script(path: Path, layout: _Layout, model: FilterNetwork, card: Card) -> str:
    """Return the script for VapourSynth."""
    takes_qp = QP_PLANE in layout.channels
    colour = len(model.outputs) > 1
    low, high = layout.qps
    default = min(max(32, low), high)
    fixed = "" if layout.fixed_qp is None else f" for QP {layout.fixed_qp}"
    return _SCRIPT.format(
        title=f"Filter a video with the network {card.network}{fixed} in VapourSynth.",
        script=path.with_suffix(".vpy").name,
        network=path.name,
        qp_argument=" -a qp=32" if takes_qp else "",
        qp_help=f"; qp, that of its slices, {low} to {high}" if takes_qp else "",
        qp_line=_QP_LINES.format(default=default) if takes_qp else "",
        format_check=" or clip.format.name[:6] != 'YUV420'" if colour else "",
        formats="YUV 4:2:0 of integers" if colour else "grey or YUV of integers",
        stride=model.stride,
        channels="\n".join(line for name in layout.channels if (line := _CHANNELS[name][1])),
        names=", ".join(_CHANNELS[name][0] for name in layout.channels),
        result=_COLOUR_RESULT if colour else _LUMA_RESULT,
    )
