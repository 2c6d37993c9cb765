"""Figures of docs/modes.md: what choosing modes by a network loses, saves, and takes.

    python tools/mode_worth.py modes_8 modes_16 --test stores/diverse_test [--golden ../shared/data/golden] [--time]
    python tools/mode_worth.py modes_8 modes_16 --test stores/diverse_test --exact

Cost lost: by how much the cheapest of the first k modes costs more by DCT than the cheapest of all, in blocks of the
split test, by which nothing was chosen; 95 % by bootstrap over the pictures. Recall: how often the mode that libvvenc
chose is among the first k, for CUs of these sizes of the golden streams. Time: processor time of one thread for a
picture of 1920x1080, references included, in turns with the full search. --card writes the first into the cards.
--exact holds the integers that lie beside the weights against them: how often the first mode is another, how many of
the first 8 are, and what cost is lost beyond float's; with --time the integers' time stands beside float's.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.analysis import bootstrap_counts, bootstrap_interval
from codecnn.dataset import open_store
from codecnn.intra import block_costs, block_positions, blocks_at, reference_lines, some_costs
from codecnn.labels import first_modes, rank_modes
from codecnn.models import (
    IntegerSketch,
    ModeClassifier,
    card_path,
    load_integer_sketch,
    load_mode_network,
    weights_path,
)
from codecnn.runs import read_json, write_json
from codecnn.training.intra_modes import costs_of
from tools.label_thesis import RESAMPLES, TRIED, draw_blocks, excess
from tools.label_thesis import first_modes as network_modes
from tools.label_worth import plain_blocks, source_of

QPS = [22, 27, 32, 37]
ROUNDS = 5


def main() -> None:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="+")
    parser.add_argument("--test", type=Path)
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--card", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--blocks", type=int, default=80, help="of 8x8 a picture and QP; of others by their side [80]")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for weights in args.weights:
        model, _ = load_mode_network(weights)
        integers = (
            load_integer_sketch(weights_path(weights).with_suffix(".int16.safetensors"))[0] if args.exact else None
        )
        if args.test and integers is not None:
            print(f"{weights}: " + differs(model, integers, args.test, args.blocks))
        elif args.test:
            found = lost(model, args.test, args.blocks)
            print(
                f"{weights}: "
                + "; ".join(f"{part:.2f} % ({low:.2f} to {high:.2f}) at {k}" for k, part, low, high in found)
            )
            if args.card:
                card = card_path(weights_path(weights))
                write_json(card, read_json(card) | {"lost_percent": {str(k): part for k, part, *_ in found}})
        if args.golden:
            print(f"{weights}: " + recall(model, args.golden))
        if args.time:
            print(f"{weights}: " + seconds(model, integers))


def lost(model: Any, folder: Path, count: int) -> list[tuple[int, float, float, float]]:
    """(k, percent of DCT cost lost, and its interval) by the cheapest of the first k modes."""
    side = model.options["side"]
    cut, picture = draw_blocks(open_store(folder), "test", side, count * 8 // side, QPS)
    costs = costs_of(cut, "dct", "vvc")
    first = network_modes(model, cut, max(TRIED))
    pictures = int(picture.max()) + 1
    where = picture, np.searchsorted(QPS, cut["qp"])
    best = np.zeros((1, pictures, len(QPS)))
    np.add.at(best[0], where, costs.min(1))
    found = []
    for tried in TRIED:
        chosen = np.zeros_like(best)
        np.add.at(chosen[0], where, np.take_along_axis(costs, first[:, :tried], 1).min(1))
        times = bootstrap_counts(pictures, RESAMPLES, np.random.default_rng(1))
        low, high = bootstrap_interval(excess(chosen, best, times)[:, 0]) or [np.nan, np.nan]
        found.append((tried, float(excess(chosen, best, np.ones((1, pictures)))[0, 0]), low, high))
    return found


def differs(model: Any, integers: IntegerSketch, folder: Path, count: int) -> str:
    """How far the integers' first modes are from those of the network in float, in modes and in DCT cost."""
    side = model.options["side"]
    cut, picture = draw_blocks(open_store(folder), "test", side, count * 8 // side, QPS)
    costs = costs_of(cut, "dct", "vvc")
    ours = network_modes(model, cut, max(TRIED))
    theirs = np.empty_like(ours)
    for qp, depth in {*zip(cut["qp"].tolist(), cut["bit_depth"].tolist(), strict=True)}:
        mine = (cut["qp"] == qp) & (cut["bit_depth"] == depth)
        theirs[mine], _ = first_modes(integers, cut["line"][mine], cut["block"][mine], depth, qp, max(TRIED))
    kept = (ours[:, :8, None] == theirs[:, None, :8]).any(2).mean()
    where = picture, np.searchsorted(QPS, cut["qp"])
    best = np.zeros((1, int(picture.max()) + 1, len(QPS)))
    np.add.at(best[0], where, costs.min(1))
    times = bootstrap_counts(best.shape[1], RESAMPLES, np.random.default_rng(1))
    told = [
        f"of {len(costs)} blocks the first mode differs in {100 * (ours[:, 0] != theirs[:, 0]).mean():.2f} %, "
        f"{100 * (1 - kept):.2f} % of the first 8"
    ]
    for tried in TRIED:
        parts = []
        for first in (theirs, ours):
            chosen = np.zeros_like(best)
            np.add.at(chosen[0], where, np.take_along_axis(costs, first[:, :tried], 1).min(1))
            parts.append([excess(chosen, best, weights)[:, 0] for weights in (np.ones((1, best.shape[1])), times)])
        low, high = bootstrap_interval(parts[0][1] - parts[1][1]) or [np.nan, np.nan]
        told.append(
            f"cost lost {parts[0][0][0]:.3f} % and in float {parts[1][0][0]:.3f} %, "
            f"{parts[0][0][0] - parts[1][0][0]:+.4f} ({low:+.4f} to {high:+.4f}) at {tried}"
        )
    return "; ".join(told)


def recall(model: ModeClassifier, golden: Path) -> str:
    """How often an encoder's mode is among the network's first, for CUs of its size of the streams of astronaut."""
    ((width, height),) = model.block_sizes or ()
    hits, count = np.zeros(len(TRIED)), 0
    for stream in sorted((golden / "vvc").glob("astronaut_ai_*qp*.266")):
        if "ibd8" in stream.name or "nolf" not in stream.name:
            continue
        picture, table = source_of(golden / "sources" / "astronaut_512x512_8b420.yuv", stream)
        blocks, modes = plain_blocks(table)
        mine = (blocks[:, 2:] == (width, height)).all(1)
        where = blocks[mine, :2]
        line = reference_lines(picture.references, where, width, height, picture.bit_depth)
        block = blocks_at(picture.original, where, width, height)
        first, _ = first_modes(model, line, block, picture.bit_depth, int(stream.stem[-2:]), max(TRIED))
        same = first == modes[mine, None]
        hits += [same[:, :tried].any(1).sum() for tried in TRIED]
        count += len(where)
    shares = "; ".join(f"{100 * hit / count:.1f} % at {k}" for hit, k in zip(hits, TRIED, strict=True))
    return f"of {count} CUs the encoder's mode is among the first: {shares}"


def seconds(model: ModeClassifier, integers: IntegerSketch | None) -> str:
    """Processor time of the full search, of the network alone, and of the network with its first 8 modes tried; of its
    integers alone too."""
    ((width, height),) = model.block_sizes or ()
    rng = np.random.default_rng(0)
    plane = np.clip(rng.normal(500, 80, (1080, 1920)).cumsum(1) / 30 % 1024, 0, 1023).astype(np.uint16)
    where = block_positions(1920, 1080, width, height)

    def cut() -> tuple[Any, Any]:
        return reference_lines(plane, where, width, height, 10), blocks_at(plane, where, width, height)

    def search() -> None:
        rank_modes(block_costs(*cut(), 10, "dct"), 3, exact=False)

    def predict() -> None:
        first_modes(model, *cut(), 10, 32, 8)

    def exact() -> None:
        if integers is not None:
            first_modes(integers, *cut(), 10, 32, 8)

    def tried() -> None:
        line, block = cut()
        modes, _ = first_modes(model, line, block, 10, 32, 8)
        rank_modes(some_costs(line, block, 10, "dct", modes), 3, exact=False)

    works = {"full search": search, "network": predict, "network, 8 modes tried": tried}
    works |= {"integers": exact} if integers is not None else {}
    takes: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS + 1):
        for name, work in works.items():
            start = time.process_time()
            work()
            if number:  # the first round compiles
                takes[name].append(time.process_time() - start)
    return "; ".join(f"{name} {1000 * min(values):.0f} ms" for name, values in takes.items())


if __name__ == "__main__":
    main()
