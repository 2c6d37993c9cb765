"""Time of integer networks against float ones on the CPU, paired: one picture through each in turn.

    python tools/benchmark.py exact [--network NAME...] [--size 640x384] [--runs 5] [--threads 1]

Figures are the median of the pairs' ratios, in float32 (sums of 25 bits) and float64 (32 bits), and of the integer
form's own time what convolutions take. Weights are random; time does not depend on them.
"""

import argparse
import json
import sys
from collections.abc import Callable

import torch

from codecnn.filtering import FloatFilter
from codecnn.filtering.integer import ExactFilter, quantise
from codecnn.models import create_model, list_models
from codecnn.models.inference import build_graph
from codecnn.video import Picture
from tools.bench._rows import Row, row, seconds
from tools.bench.tiles import noise


def share_of_convolutions(compute: Callable[[], object]) -> float:
    """The share of the time in operations that convolutions take, by PyTorch's own count."""
    with torch.profiler.profile() as profile:
        compute()
    times = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
    return sum(own for key, own in times.items() if "conv" in key) / sum(times.values())


def main(argv: list[str]) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", action="append", choices=list_models())
    parser.add_argument("--size", default="640x384")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(argv)
    torch.set_num_threads(given.threads)
    width, height = (int(part) for part in given.size.split("x"))
    picture, made = noise(height, width), []
    for name in given.network or list_models():
        times, share = measure(name, picture, given.runs)
        exact = {
            bits: row(_what(name, bits, given), "s", times[bits], "float", times["float"]) for bits in ("25", "32")
        }
        ratios = {f"{bits}_bits": of["ratio"] for bits, of in exact.items()}
        facts = {"network": name, "float_seconds": min(times["float"]), **ratios, "convolutions_of_25_bits": share}
        sys.stdout.write(
            json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in facts.items()}) + "\n"
        )
        sys.stdout.flush()
        made += exact.values()
    return made


def measure(name: str, picture: Picture, runs: int) -> tuple[dict[str, list[float]], float]:
    """Seconds by turns of the float network and of both integer ones, and the convolutions' share of the smaller's."""
    torch.manual_seed(0)
    model = create_model(name).eval()
    graph = build_graph(model)
    sizes = {node.name: 4.0 for node in graph.nodes}
    filters = {"float": FloatFilter(model)}
    filters |= {str(bits): ExactFilter(quantise(graph, sizes, 10, accumulator_bits=bits)) for bits in (25, 32)}
    for one in filters.values():
        one(picture, 37)
    times: dict[str, list[float]] = {kind: [] for kind in filters}
    for _ in range(runs):
        for kind, one in filters.items():
            times[kind].append(seconds(lambda one=one: one(picture, 37)))
    return times, share_of_convolutions(lambda: filters["25"](picture, 37))


def _what(name: str, bits: str, given: argparse.Namespace) -> str:
    return f"`{name}` in integers, sums of {bits} bits, {given.size}, {given.threads} threads: time"


if __name__ == "__main__":
    main(sys.argv[1:])
