"""Time of integer networks against float networks on the CPU, on one picture by turns.

    python tools/benchmark.py exact [--network NAME...] [--integers FILE...] [--size 640x384] [--runs 5] [--threads 1]

Figures are medians of the ratios by turns: of 8-bit networks with their fastest engine and with float32 convolutions,
and of 16-bit networks with sums of 25 bits (float32) and of 32 bits (float64). The share of time that convolutions take
is measured for the 25-bit form. ONNX Runtime, if installed, runs the float network. Weights are random, since time does
not depend on them. With `--integers`, the networks are those of integer files with their calibrated tensors, and
OpenVINO runs as well: the float network in float32 and bfloat16, and the integers as QDQ. With one thread, processor
time is measured.
"""

import json
import statistics
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from codecnn.base.planes import QP_SCALE
from codecnn.filtering import FloatFilter
from codecnn.filtering.integer import (
    ExactFilter,
    IntegerNetwork,
    engines,
    load_integer,
    quantise,
    quantise_eight,
)
from codecnn.models import CHROMA_PLANES, FilterNetwork, build_graph, create_model, list_models
from codecnn.pictures.files import Picture
from tools.bench._common import (
    OPENVINO_PRECISIONS,
    QP,
    Row,
    auxiliary_planes,
    in_turns,
    make_parser,
    noise_picture,
    row,
    run_in_onnxruntime,
    run_in_openvino,
    size_argument,
)

FORMS = {
    "8": "in 8 bits",
    "8_float32": "in 8 bits by float32 convolutions",
    "25": "in 16 bits with sums of 25",
    "32": "in 16 bits with sums of 32",
}


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return the rows."""
    parser = make_parser("exact", __doc__)
    parser.add_argument("--network", action="append", choices=list_models(), help="networks with random weights [all]")
    parser.add_argument("--integers", action="append", type=Path, help="files of `codecnn export --format int8`")
    parser.add_argument("--size", type=size_argument, default="640x384", help="of the picture, WxH [640x384]")
    parser.add_argument("--runs", type=int, default=5, help="turns of each way [5]")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads [1]")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    width, height = options.size
    what = f"{width}x{height}, {options.threads} threads: time"
    picture = noise_picture(height, width)
    rows = []
    for path in options.integers or []:
        rows += measure_file(path, picture, options.runs, what)
    for name in options.network or ([] if options.integers else list_models()):
        rows += measure_network(name, picture, options.runs, what)
    return rows


def measure_network(name: str, picture: Picture, runs: int, what: str) -> list[Row]:
    """Time the integer forms of a network with random weights against the float network and ONNX Runtime.

    Args:
        name: Name of the network.
        picture: The picture to filter.
        runs: Turns of each way.
        what: End of the rows' descriptions.

    Returns:
        A row for each form and peer.
    """
    torch.manual_seed(0)
    model = create_model(name).eval()
    graph = build_graph(model)
    magnitudes = {node.name: 4.0 for node in graph.nodes}
    eight = quantise_eight(graph, magnitudes, 10)
    filters = {
        "float": FloatFilter(model),
        "8": ExactFilter(eight),
        "8_float32": ExactFilter(eight, engine="float32"),
    }
    filters |= {str(bits): ExactFilter(quantise(graph, magnitudes, 10, accumulator_bits=bits)) for bits in (25, 32)}
    auxiliary = auxiliary_planes(model.planes, picture)
    calls = {form: (lambda filter_=filter_: filter_(picture, QP, auxiliary)) for form, filter_ in filters.items()}
    times = in_turns(calls | peer_calls(model, None, padded_planes(picture, auxiliary, model)), runs)
    pairs = [(form, "float") for form in FORMS] + ([("8", "ONNX Runtime")] if "ONNX Runtime" in times else [])
    rows = {
        pair: row(f"`{name}` {FORMS[pair[0]]}, {what}", "s", times[pair[0]], pair[1], times[pair[1]]) for pair in pairs
    }
    figures = {"network": name, "float_seconds": round(min(times["float"]), 3)}
    figures |= {f"{form}_to_{peer}": round(entry["ratio"], 3) for (form, peer), entry in rows.items()}
    print(json.dumps(figures | {"convolutions_of_25_bits": round(convolution_share(calls["25"]), 3)}), flush=True)
    return list(rows.values())


def measure_file(path: Path, picture: Picture, runs: int, what: str) -> list[Row]:
    """Time the network of an integer file: each engine against the float network, the fastest also against the peers.

    The peers get the whole picture with its halo. ONNX Runtime and OpenVINO run the float network, and OpenVINO also
    the integers as `codecnn export` writes them (QDQ).

    Args:
        path: The integer file.
        picture: The picture to filter.
        runs: Turns of each way.
        what: End of the rows' descriptions.

    Returns:
        A row for each engine and peer.
    """
    integers, card = load_integer(path)
    model = create_model(str(card.network), **dict(card.options)).eval()
    auxiliary = auxiliary_planes(integers.graph.planes, picture)
    exact = {engine: ExactFilter(integers, engine=engine) for engine in engines(integers)}
    filters = {"float": FloatFilter(model), **exact}
    calls = {name: (lambda filter_=filter_: filter_(picture, QP, auxiliary)) for name, filter_ in filters.items()}
    peers = peer_calls(model, integers, padded_planes(picture, auxiliary, model))
    times, figures, rows = in_turns(calls | peers, runs), {"file": path.name}, []
    fastest = min(exact, key=lambda engine: statistics.median(times[engine]))
    for engine in exact:
        for peer in ("float", *(peers if engine == fastest else ())):
            rows.append(row(f"`{path.name}` by {engine}, {what}", "s", times[engine], peer, times[peer]))
            figures[f"{engine}_to_{peer}"] = round(rows[-1]["ratio"], 3)
    print(json.dumps(figures), flush=True)
    return rows


def convolution_share(compute: Callable[[], object]) -> float:
    """Return the share of the time in operations that PyTorch's profiler attributes to convolutions."""
    with torch.profiler.profile() as profile:
        compute()
    times = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
    return sum(spent for key, spent in times.items() if "conv" in key) / sum(times.values())


def padded_planes(picture: Picture, auxiliary: Mapping[str, np.ndarray], model: FilterNetwork) -> dict[str, Tensor]:
    """Return the planes (1, 1, h, w) of a whole 10-bit picture with the halo, samples as x / 2^10, and the QP."""
    arrays = dict(zip(("rec_y", "rec_u", "rec_v"), picture.planes, strict=False)) | dict(auxiliary)
    halo = {name: model.halo // (2 if name in CHROMA_PLANES else 1) for name in arrays}
    planes = {
        name: torch.from_numpy(np.pad(array / np.float32(1024), halo[name], mode="edge")[None, None])
        for name, array in arrays.items()
    }
    return planes | {"qp": torch.full((1, 1, 1, 1), QP / QP_SCALE)}


def peer_calls(
    model: FilterNetwork, integers: IntegerNetwork | None, planes: Mapping[str, Tensor]
) -> dict[str, Callable[[], object]]:
    """Return calls of ONNX Runtime and OpenVINO, if installed, with exported networks and as many threads as torch."""
    if find_spec("onnxruntime") is None:
        return {}
    from codecnn.filtering.integer import onnx_integers
    from codecnn.models.graph import onnx_model

    threads, exported = torch.get_num_threads(), onnx_model(build_graph(model)).SerializeToString()
    runs = {"ONNX Runtime": run_in_onnxruntime(exported, threads)}
    if integers is not None and find_spec("openvino") is not None:
        runs |= {f"OpenVINO in {form}": run_in_openvino(exported, threads, form) for form in OPENVINO_PRECISIONS}
        runs["OpenVINO in QDQ"] = run_in_openvino(onnx_integers(integers).SerializeToString(), threads)
    return {name: (lambda run=run: run(planes)) for name, run in runs.items()}
