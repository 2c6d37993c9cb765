"""Trained by one cost, judged by all: does the better label make the better decision of an intra mode?

    python tools/label_thesis.py --store stores/learning --test stores/diverse_test -o runs/thesis

Labels by Hadamard SATD, by DCT SATD and by rate (`codecnn.intra.rate_cost` at the picture's QP); of each cost, block
size and seed two networks: "from nothing", whose weights start at random, and "from the standard", which starts as a
search cut short (`ModeSketch`). Each learns from blocks of the split train of one store, and is judged by all costs on
blocks of the split test of another, by which nothing is chosen. A network that is done is not trained again; table.md
and thesis.png are written anew after each size. Intervals are of 95 %, by bootstrap over the pictures of the test.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.analysis import bootstrap_counts, bootstrap_interval
from codecnn.dataset import Store, open_store
from codecnn.intra import block_positions, blocks_at, reference_lines
from codecnn.labels import read_inputs, store_inputs
from codecnn.models import ModeSketch
from codecnn.runs import write_text
from codecnn.training.intra_modes import costs_of, soft_targets

COSTS = ("hadamard", "dct", "rate")
NETWORKS: dict[str, tuple[dict[str, Any], float]] = {
    "from the standard": ({"coefficients": 16}, 5e-4),
    "from nothing": ({"coefficients": 8, "informed": False}, 4e-3),
}
"""Options of the networks, and their learning rates: what starts at random has farther to go."""
NAMES = {"hadamard": "Hadamard", "dct": "DCT", "rate": "rate"}
TRIED = (1, 3, 8, 16)
"""How many first modes of a network a search may try."""
SOFTNESS = 0.05
RESAMPLES = 2000
Array = NDArray[Any]


class Blocks(NamedTuple):
    """n blocks of one size: samples as `LabelledBlocks.cut` has them, costs (n, 67) by name, and the number of the
    picture (n,) that each is of, the same at all QPs."""

    cut: dict[str, Array]
    costs: dict[str, Array]
    picture: Array


def main(argv: list[str] | None = None) -> None:
    """Train what is not trained yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="to train on, split train")
    parser.add_argument("--test", type=Path, required=True, help="to judge by, split test")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the results")
    parser.add_argument("--sizes", default="8,16", help="sides of the blocks [8,16]")
    parser.add_argument("--qps", default="22,27,32,37", help="[22,27,32,37]")
    parser.add_argument("--seeds", type=int, default=3, help="[3]")
    parser.add_argument("--steps", type=int, default=400, help="of 128 blocks [400]")
    parser.add_argument("--blocks", type=int, default=80, help="of 8x8 a picture and QP; of others by their side [80]")
    parser.add_argument("--only", nargs="+", choices=list(NETWORKS), default=list(NETWORKS), help="networks [all]")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    rows: dict[int, dict[str, Array]] = {}
    for side in (int(part) for part in args.sizes.split(",")):
        rows[side] = judge(side, args)
        text = table(rows, args)
        write_text(args.output / "table.md", text)
        figure(rows, args.only, args.output / "thesis.png")
    print(text)


def judge(side: int, args: argparse.Namespace) -> dict[str, Array]:
    """Sums of cost of one block size, (judges, pictures, QPs), by who chooses: "best", "labels COST", and "NETWORK COST
    of K", the mean over the seeds."""
    qps = [int(part) for part in args.qps.split(",")]
    known = args.output / f"{side}x{side}_test.npz"
    test = _blocks(args.test, "test", side, args, qps, known)
    modes = {f"labels {cost}": test.costs[cost].argmin(1)[:, None] for cost in COSTS}
    found = {name: _sums(test, chosen, qps) for name, chosen in modes.items()}
    found["best"] = np.stack([_sums(test, modes[f"labels {cost}"], qps)[number] for number, cost in enumerate(COSTS)])
    train: Blocks | None = None
    for name in args.only:
        options, rate = NETWORKS[name]
        for cost in COSTS:
            seeds: dict[int, list[Array]] = {tried: [] for tried in TRIED}
            for seed in range(1, args.seeds + 1):
                path = args.output / f"{side}x{side}_{name.replace(' ', '_')}_{cost}_{seed}.npy"
                if not path.is_file():
                    if train is None:
                        train = _blocks(args.store, "train", side, args, qps, args.output / f"{side}x{side}_train.npz")
                    model = learn({"side": side, **options}, train, cost, args.steps, rate, seed)
                    np.save(path, first_modes(model, test.cut, max(TRIED)))
                first = np.load(path)
                for tried in TRIED:
                    seeds[tried].append(_sums(test, first[:, :tried], qps))
            for tried in TRIED:
                found[f"{name} {cost} of {tried}"] = np.stack(seeds[tried])
    return found


def learn(options: dict[str, Any], blocks: Blocks, cost: str, steps: int, rate: float, seed: int) -> ModeSketch:
    """Train a network by soft labels of `cost`, 128 blocks a step: AdamW, rate up and down again by a cosine."""
    torch.manual_seed(seed)
    model = ModeSketch(**options)
    cut = {name: torch.from_numpy(values) for name, values in blocks.cut.items()}
    costs = torch.from_numpy(blocks.costs[cost].astype(np.float32))
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        drawn = torch.randint(len(costs), (128,))
        logits = model(*model.inputs(*(cut[name][drawn] for name in ("line", "block", "bit_depth", "qp"))))
        loss = torch.nn.functional.cross_entropy(logits, soft_targets(costs[drawn], SOFTNESS))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return model


@torch.no_grad()
def first_modes(model: ModeSketch, cut: dict[str, Array], count: int) -> Array:
    """The `count` modes of largest logit of every block, (n, count)."""
    parts = []
    for start in range(0, len(cut["qp"]), 1024):
        piece = (torch.from_numpy(cut[name][start : start + 1024]) for name in ("line", "block", "bit_depth", "qp"))
        parts.append(model(*model.inputs(*piece)).topk(count, dim=1).indices.numpy())
    return np.concatenate(parts)


def excess(chosen: Array, best: Array, times: Array) -> Array:
    """Percent that choices cost above the best, in the mean over the QPs: (resamples, judges), of sums (judges,
    pictures, QPs). `times` (resamples, pictures) says how often each picture is in a resample."""
    sums = (np.einsum("rp,jpq->rjq", times, part) for part in (chosen, best))
    return np.asarray(100 * (next(sums) / next(sums) - 1).mean(2))


def table(rows: dict[int, dict[str, Array]], args: argparse.Namespace) -> str:
    """The results in Markdown."""
    lines = [
        f"Percent of cost above the least, in the mean over QP {args.qps}; 95 % by bootstrap over "
        f"{next(iter(rows.values()))['best'].shape[1]} pictures; networks: mean of {args.seeds} seeds ± their standard "
        f"deviation, {args.steps} steps",
    ]
    for side, found in rows.items():
        times = _resamples(found["best"].shape[1])
        head = " | ".join(f"judged by {NAMES[cost]}" for cost in COSTS)
        lines += ["", f"| {side}x{side}: who chooses | {head} |", "|---|" + "---|" * len(COSTS)]
        for who in _choosers(args.only):
            cells = []
            for judge_, _ in enumerate(COSTS):
                seeds, (low, high) = _each(found, who, times, judge_)
                spread = f" ± {np.std(seeds, ddof=1):.2f}" if len(seeds) > 1 else ""
                cells.append(f"{np.mean(seeds):.2f}{spread} ({low:.2f} to {high:.2f})")
            lines.append(f"| {who} | {' | '.join(cells)} |")
        lines += ["", f"| {side}x{side}: less than by Hadamard's labels | {head} |", "|---|" + "---|" * len(COSTS)]
        for who in _choosers(args.only):
            if "hadamard" not in who:
                other = who.replace("dct", "hadamard").replace("rate", "hadamard")
                cells = [_difference(found, who, other, times, number) for number, _ in enumerate(COSTS)]
                lines.append(f"| {who} | {' | '.join(cells)} |")
        lines += ["", f"| {side}x{side}: above its own labels | by the cost of the labels |", "|---|---|"]
        for name in args.only:
            for number, cost in enumerate(COSTS):
                own = [f"{name} {cost} of {tried}" for tried in TRIED]
                cells = [
                    f"{_difference(found, who, f'labels {cost}', times, number)} at {k}"
                    for who, k in zip(own, TRIED, strict=True)
                ]
                lines.append(f"| {name}, {NAMES[cost]} | {'; '.join(cells)} |")
    return "\n".join(lines) + "\n"


def figure(rows: dict[int, dict[str, Array]], networks: list[str], path: Path) -> None:
    """Cost lost by who chooses and who judges, a panel a block size and judge."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    image, axes = plt.subplots(len(rows), len(COSTS), figsize=(9, 3 * len(rows)), squeeze=False, sharey="row")
    kinds = ["labels", *networks]
    for line, (side, found) in zip(axes, rows.items(), strict=True):
        times = _resamples(found["best"].shape[1])
        for number, (axis, judge_) in enumerate(zip(line, COSTS, strict=True)):
            for place, cost in enumerate(COSTS):
                for shift, kind in enumerate(kinds):
                    who = f"labels {cost}" if kind == "labels" else f"{kind} {cost} of 1"
                    seeds, (low, high) = _each(found, who, times, number)
                    mean = float(np.mean(seeds))
                    axis.errorbar(
                        place + (shift - 1) / 5,
                        mean,
                        [[max(mean - low, 0)], [max(high - mean, 0)]],
                        fmt="os^"[shift],
                        color=f"C{shift}",
                        label=f"{kind}" if not place else None,
                    )
            axis.set_xticks(range(len(COSTS)), [NAMES[cost] for cost in COSTS])
            axis.set_title(f"{side}x{side}, judged by {NAMES[judge_]}", fontsize=10)
            axis.grid(axis="y", alpha=0.3)
        line[0].set_ylabel("cost above the least, %")
        line[0].set_ylim(bottom=0)
    for axis in axes[-1]:
        axis.set_xlabel("labels by")
    axes[0][0].legend(fontsize=8)
    image.tight_layout()
    image.savefig(path, dpi=110)
    plt.close(image)


def _choosers(networks: list[str]) -> list[str]:
    return [f"labels {cost}" for cost in COSTS] + [f"{name} {cost} of 1" for name in networks for cost in COSTS]


def _each(found: dict[str, Array], who: str, times: Array, judge_: int) -> tuple[list[float], list[float]]:
    """The excess of every seed, and the interval of their mean."""
    runs = found[who] if found[who].ndim == 4 else found[who][None]
    whole = np.ones((1, times.shape[1]))
    seeds = [float(excess(run, found["best"], whole)[0, judge_]) for run in runs]
    resampled = np.mean([excess(run, found["best"], times)[:, judge_] for run in runs], axis=0)
    return seeds, bootstrap_interval(resampled) or [np.nan, np.nan]


def _difference(found: dict[str, Array], who: str, other: str, times: Array, judge_: int) -> str:
    """Excess of `who` less that of `other` on the same pictures, with its interval."""
    whole = np.ones((1, times.shape[1]))
    values = []
    for weights in (whole, times):
        parts = []
        for name in (who, other):
            runs = found[name] if found[name].ndim == 4 else found[name][None]
            parts.append(np.mean([excess(run, found["best"], weights)[:, judge_] for run in runs], axis=0))
        values.append(parts[0] - parts[1])
    low, high = bootstrap_interval(values[1]) or [np.nan, np.nan]
    return f"{values[0][0]:+.2f} ({low:+.2f} to {high:+.2f})"


def _resamples(pictures: int) -> Array:
    return bootstrap_counts(pictures, RESAMPLES, np.random.default_rng(1))


def _sums(blocks: Blocks, modes: Array, qps: list[int]) -> Array:
    """Cost of the cheapest of some modes (n, k) by every judge: sums (judges, pictures, QPs)."""
    out = np.zeros((len(COSTS), int(blocks.picture.max()) + 1, len(qps)))
    place = np.searchsorted(qps, blocks.cut["qp"])
    for number, cost in enumerate(COSTS):
        np.add.at(out[number], (blocks.picture, place), np.take_along_axis(blocks.costs[cost], modes, 1).min(1))
    return out


def _blocks(folder: Path, split: str, side: int, args: argparse.Namespace, qps: list[int], known: Path) -> Blocks:
    """Blocks of a split with their costs, drawn and computed once and kept in the file `known`."""
    if not known.is_file():
        cut, picture = draw_blocks(open_store(folder), split, side, args.blocks * 8 // side, qps)
        costs = {cost: costs_of(cut, cost, "vvc").astype(np.float32) for cost in COSTS}
        part = known.with_suffix(".part.npz")
        np.savez(part, picture=picture, **cut, **{f"costs_{cost}": values for cost, values in costs.items()})
        part.rename(known)
    content = np.load(known)
    cut = {name: content[name] for name in ("line", "block", "bit_depth", "qp")}
    return Blocks(cut, {cost: content[f"costs_{cost}"] for cost in COSTS}, content["picture"])


def draw_blocks(store: Store, split: str, side: int, count: int, qps: list[int]) -> tuple[dict[str, Array], Array]:
    """At most `count` blocks of the first picture of every unit, the same at all QPs, and their pictures' numbers."""
    cuts: dict[str, list[Array]] = {name: [] for name in ("line", "block", "bit_depth", "qp")}
    numbers, pictures = [], {}
    for unit in store_inputs(store, (split,)):
        if unit.qps is None or unit.qps[0] not in qps:
            continue
        picture = next(read_inputs([unit]))
        height, width = picture.original.shape
        number = pictures.setdefault(str(unit.picture), len(pictures))
        where = block_positions(width, height, side, side)
        rng = np.random.default_rng([side, number])
        where = where[np.sort(rng.choice(len(where), min(count, len(where)), replace=False))]
        cuts["line"].append(reference_lines(picture.references, where, side, side, picture.bit_depth))
        cuts["block"].append(blocks_at(picture.original, where, side, side).astype(np.int32))
        cuts["bit_depth"].append(np.full(len(where), picture.bit_depth, np.int32))
        cuts["qp"].append(np.full(len(where), picture.qp, np.int32))
        numbers.append(np.full(len(where), number))
    return {name: np.concatenate(parts) for name, parts in cuts.items()}, np.concatenate(numbers)


if __name__ == "__main__":
    main()
