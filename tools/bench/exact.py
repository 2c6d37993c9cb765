"""Time of integer networks against float ones on the CPU, paired: one picture through each in turn.

    python tools/benchmark.py exact [--network NAME...] [--integers FILE...] [--size 640x384] [--runs 5] [--threads 1]

Figures are the median of the pairs' ratios: of networks of 8 bits by their fastest engine and in float32, of 16 bits
with sums of 25 bits (float32) and 32 (float64); and of the 25-bit form's own time what convolutions take. ONNX Runtime
is timed as well where it is installed, in float. Weights are random; time does not depend on them. With `--integers`
it is the networks of such files instead, of which the bits of tensors are as calibrated. One thread is timed in
processor time, which other work disturbs less.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from codecnn.codec.base import QP_SCALE
from codecnn.filtering import FloatFilter
from codecnn.filtering.integer import ExactFilter, engines, load_integer, quantise, quantise_eight
from codecnn.models import FilterNetwork, create_model, list_models
from codecnn.models.inference import build_graph
from codecnn.video import Picture
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
    picture, made = noise(height, width), []
    for path in given.integers or []:
        made += measure_file(path, picture, given.runs, f"{given.size}, {given.threads} threads: time")
    for name in given.network or ([] if given.integers else list_models()):
        times, share = measure(name, picture, given.runs)
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
    filters: dict[str, Callable[[Picture, int], object]] = {
        "float": FloatFilter(model),
        "8": ExactFilter(eight),
        "8_float32": ExactFilter(eight, engine="float32"),
    }
    filters |= {str(bits): ExactFilter(quantise(graph, sizes, 10, accumulator_bits=bits)) for bits in (25, 32)}
    if find_spec("onnxruntime") is not None:
        filters["ONNX Runtime"] = peer(model, picture)
    return in_turns(filters, picture, runs), share_of_convolutions(lambda: filters["25"](picture, 37))


def measure_file(path: Path, picture: Picture, runs: int, what: str) -> list[Row]:
    """Rows of the engines of an integer file against the float network that it was made of."""
    integers, card = load_integer(path)
    model = create_model(str(card.network)).eval()
    filters: dict[str, Callable[[Picture, int], object]] = {"float": FloatFilter(model)}
    filters |= {engine: ExactFilter(integers, engine=engine) for engine in engines(integers)}
    peers = ["float"]
    if find_spec("onnxruntime") is not None:
        filters["ONNX Runtime"] = peer(model, picture)
        peers.append("ONNX Runtime")
    times, facts, rows = in_turns(filters, picture, runs), {"file": path.name}, []
    for engine, other in itertools.product(engines(integers), peers):
        rows.append(row(f"`{path.name}` by {engine}, {what}", "s", times[engine], other, times[other]))
        facts[f"{engine}_to_{other}"] = round(rows[-1]["ratio"], 3)
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    return rows


def in_turns(
    filters: Mapping[str, Callable[[Picture, int], object]], picture: Picture, runs: int
) -> dict[str, list[float]]:
    """Seconds of each filter for a picture, one after the other, `runs` times."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for one in filters.values():
        one(picture, 37)
    times: dict[str, list[float]] = {kind: [] for kind in filters}
    for _ in range(runs):
        for kind, one in filters.items():
            times[kind].append(seconds(lambda one=one: one(picture, 37), clock))
    return times


def peer(model: FilterNetwork, picture: Picture) -> Callable[[Picture, int], object]:
    """ONNX Runtime on what `codecnn export` writes, in float, on as many threads as torch."""
    import onnxruntime

    from codecnn.models.graph.onnx_file import onnx_model

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    content = onnx_model(build_graph(model)).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    shapes = dict(zip(("rec_y", "rec_u", "rec_v"), picture.planes, strict=False))
    planes = {
        name: np.pad(plane / np.float32(1024), model.halo // (1 if name == "rec_y" else 2), mode="edge")[None, None]
        for name, plane in shapes.items()
    }

    def run(picture: Picture, qp: int) -> object:
        given = {**planes, "qp": np.full((1, 1, 1, 1), qp / QP_SCALE, np.float32)}
        return session.run(None, {name: given[name] for name in names})

    return run


if __name__ == "__main__":
    main(sys.argv[1:])
