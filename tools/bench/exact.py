"""Time of integer networks against float ones on the CPU, paired: one picture through each in turn.

    python tools/benchmark.py exact [--network NAME...] [--integers FILE...] [--size 640x384] [--runs 5] [--threads 1]

Figures are the median of the pairs' ratios: of networks of 8 bits by their fastest engine and in float32, of 16 bits
with sums of 25 bits (float32) and 32 (float64); and of the 25-bit form's own time what convolutions take. ONNX Runtime
is timed as well where it is installed, in float. Weights are random; time does not depend on them. With `--integers`
it is the networks of such files instead, of which the bits of tensors are as calibrated, and OpenVINO is timed too: the
float network in float32 and bfloat16, the integers as QDQ. One thread is timed in processor time, which other work
disturbs less.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

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
from codecnn.planes import QP_SCALE
from codecnn.video import Picture
from tools.bench._peers import PRECISIONS, in_onnxruntime, in_openvino
from tools.bench._rows import Row, row, seconds
from tools.bench.tiles import noise

FORMS = {
    "8": "in 8 bits",
    "8_float32": "in 8 bits by float32 convolutions",
    "25": "in 16 bits with sums of 25",
    "32": "in 16 bits with sums of 32",
}


def share_of_convolutions(compute: Callable[[], object]) -> float:
    """The share of the time in operations that convolutions take, by PyTorch's own count."""
    with torch.profiler.profile() as profile:
        compute()
    times = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
    return sum(own for key, own in times.items() if "conv" in key) / sum(times.values())


def main(argv: list[str]) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", action="append", choices=list_models())
    parser.add_argument("--integers", action="append", type=Path, help="written by `codecnn export --format int8`")
    parser.add_argument("--size", default="640x384")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(argv)
    torch.set_num_threads(given.threads)
    width, height = (int(part) for part in given.size.split("x"))
    made = []
    for path in given.integers or []:
        made += measure_file(path, (width, height), given.runs, f"{given.size}, {given.threads} threads: time")
    for name in given.network or ([] if given.integers else list_models()):
        times, share = measure(name, noise(height, width), given.runs)
        exact = {
            (form, peer): row(
                f"`{name}` {what}, {given.size}, {given.threads} threads: time", "s", own, peer, times[peer]
            )
            for form, what in FORMS.items()
            for peer, own in (("float", times[form]), ("ONNX Runtime", times[form]))
            if peer in times and (peer == "float" or form == "8")
        }
        ratios = {f"{form}_to_{peer}": of["ratio"] for (form, peer), of in exact.items()}
        facts = {"network": name, "float_seconds": min(times["float"]), **ratios, "convolutions_of_25_bits": share}
        sys.stdout.write(
            json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in facts.items()}) + "\n"
        )
        sys.stdout.flush()
        made += exact.values()
    return made


def measure(name: str, picture: Picture, runs: int) -> tuple[dict[str, list[float]], float]:
    """Seconds by turns of the float network and its integer ones, and the convolutions' share of the 25-bit one's."""
    torch.manual_seed(0)
    model = create_model(name).eval()
    graph = build_graph(model)
    sizes = {node.name: 4.0 for node in graph.nodes}
    eight = quantise_eight(graph, sizes, 10)
    filters = {
        "float": FloatFilter(model),
        "8": ExactFilter(eight),
        "8_float32": ExactFilter(eight, engine="float32"),
    }
    filters |= {str(bits): ExactFilter(quantise(graph, sizes, 10, accumulator_bits=bits)) for bits in (25, 32)}
    auxiliary = {name: plane for name, plane in beside_of(picture).items() if name in model.planes}
    ways = {name: (lambda one=one: one(picture, 37, auxiliary)) for name, one in filters.items()}
    peers = peers_of(model, None, with_halo(picture, auxiliary, model))
    return in_turns(ways | peers, runs), share_of_convolutions(ways["25"])


def measure_file(path: Path, size: tuple[int, int], runs: int, what: str) -> list[Row]:
    """Rows of an integer file: each engine against the float network, and the fastest one against the peers too.

    The peers have the whole picture with its halo: the float network by ONNX Runtime and OpenVINO, and the integers
    themselves by OpenVINO, as `codecnn export` writes them (QDQ).
    """
    integers, card = load_integer(path)
    model = create_model(str(card.network), **dict(card.options)).eval()
    width, height = size
    picture = noise(height, width)
    beside = {name: plane for name, plane in beside_of(picture).items() if name in integers.graph.planes}
    exact = {engine: ExactFilter(integers, engine=engine) for engine in engines(integers)}
    filters = {"float": FloatFilter(model), **exact}
    ways = {name: (lambda one=one: one(picture, 37, beside)) for name, one in filters.items()}
    peers = peers_of(model, integers, with_halo(picture, beside, model))
    times, facts, rows = in_turns(ways | peers, runs), {"file": path.name}, []
    fastest = min(exact, key=lambda engine: statistics.median(times[engine]))
    for engine in exact:
        for other in ("float", *(peers if engine == fastest else ())):
            rows.append(row(f"`{path.name}` by {engine}, {what}", "s", times[engine], other, times[other]))
            facts[f"{engine}_to_{other}"] = round(rows[-1]["ratio"], 3)
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    return rows


def beside_of(picture: Picture) -> dict[str, np.ndarray]:
    """What stands beside an intra picture that is noise: other samples, for time does not depend on them."""
    return {"unf_y": picture.y[::-1].copy(), "slice_type": np.zeros(picture.y.shape, np.float32)}


def with_halo(picture: Picture, beside: Mapping[str, np.ndarray], model: FilterNetwork) -> dict[str, Tensor]:
    """The network's planes (1, 1, h, w) of a whole picture, samples in units of full scale, with the halo."""
    found = dict(zip(("rec_y", "rec_u", "rec_v"), picture.planes, strict=False)) | dict(beside)
    halo = {name: model.halo // (2 if name in CHROMA_PLANES else 1) for name in found}
    planes = {
        name: torch.from_numpy(np.pad(x / np.float32(1024), halo[name], mode="edge")[None, None])
        for name, x in found.items()
    }
    return planes | {"qp": torch.full((1, 1, 1, 1), 37 / QP_SCALE)}


def peers_of(
    model: FilterNetwork, integers: IntegerNetwork | None, planes: Mapping[str, Tensor]
) -> dict[str, Callable[[], object]]:
    """What of ONNX Runtime and OpenVINO is installed, on what `codecnn export` writes, on as many threads as torch."""
    if find_spec("onnxruntime") is None:
        return {}
    from codecnn.filtering.integer import onnx_integers
    from codecnn.models.graph import onnx_model

    threads, plain = torch.get_num_threads(), onnx_model(build_graph(model)).SerializeToString()
    runs = {"ONNX Runtime": in_onnxruntime(plain, threads)}
    if integers is not None and find_spec("openvino") is not None:
        runs |= {f"OpenVINO in {form}": in_openvino(plain, threads, form) for form in PRECISIONS}
        runs["OpenVINO in QDQ"] = in_openvino(onnx_integers(integers).SerializeToString(), threads)
    return {name: (lambda run=run: run(planes)) for name, run in runs.items()}


def in_turns(ways: Mapping[str, Callable[[], object]], runs: int) -> dict[str, list[float]]:
    """Seconds of each way, one after the other, `runs` times."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for one in ways.values():
        one()
    times: dict[str, list[float]] = {kind: [] for kind in ways}
    for _ in range(runs):
        for kind, one in ways.items():
            times[kind].append(seconds(one, clock))
    return times


if __name__ == "__main__":
    main(sys.argv[1:])
