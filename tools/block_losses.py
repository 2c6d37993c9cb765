"""A small block predictor trained by pixel errors and by transformed ones: which loss makes the cheaper residual?

    python tools/block_losses.py --store stores/learning --test stores/diverse_test -o runs/block_losses

Reference samples in, an 8x8 block out, by two fully connected layers. One network a loss and seed, all from the same
random weights and the same batches: squared and absolute error of the samples, absolute error of the Hadamard and of
the DCT coefficients (both orthonormal), and log2(1 + |c| / step) of the DCT's, a differentiable stand-in for bits. Each
is judged by PSNR, by the DCT's cost, by estimated bits and by D + λ·R (`codecnn.intra.rate_cost`) at the picture's QP
on blocks of the split test of another store. table.md is in the output; intervals of 95 % by bootstrap over the
pictures.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.analysis import bootstrap_counts, bootstrap_interval
from codecnn.dataset import open_store
from codecnn.intra import ROUNDING, dct, hadamard, predict_modes, quantiser, rate_cost, satd, split_lines
from codecnn.runs import write_text
from tools.label_thesis import draw_blocks

SIDE, HIDDEN = 8, 128
LOSSES = ("pixel L2", "pixel L1", "SATD", "DCT", "rate proxy")
JUDGES = ("dB", "DCT cost", "estimated bits", "D + λ·R")
QPS = [22, 27, 32, 37]
RESAMPLES = 1000
Array = NDArray[Any]


class BlockPredictor(nn.Module):
    """Blocks (n, 8, 8) in samples from reference lines (n, 33) and their bit depth (n,): their mean, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        length = 4 * SIDE + 1
        self.layers = nn.Sequential(
            nn.Linear(length, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, SIDE**2)
        )

    def forward(self, line: Tensor, bit_depth: Tensor) -> Tensor:
        scale = torch.exp2(bit_depth.float() - 4)[:, None]
        mean = line.float().mean(1, keepdim=True)
        residual: Tensor = self.layers((line - mean) / scale)
        return (mean + scale * residual).view(-1, SIDE, SIDE)


def error_of(kind: str, residual: Tensor, step: Tensor) -> Tensor:
    """The loss of residuals (n, 8, 8) in samples, a mean over coefficients; `step` (n,) is the quantiser's."""
    match kind:
        case "pixel L2":
            return residual.square().mean()
        case "pixel L1":
            return residual.abs().mean()
        case "SATD":
            return hadamard(residual).abs().mean() / SIDE
        case "DCT":
            return dct(residual).abs().mean()
    return torch.log2(1 + dct(residual).abs() / step[:, None, None]).mean()


def judge(residual: Array, cut: dict[str, Array], picture: Array) -> Array:
    """Sums by judge, picture and QP, (4, pictures, QPs): squared error over peak², DCT cost, bits, D + λ·R."""
    out = np.zeros((len(JUDGES), int(picture.max()) + 1, len(QPS)))
    for number, qp in enumerate(QPS):
        for depth in np.unique(cut["bit_depth"]):
            mine = (cut["qp"] == qp) & (cut["bit_depth"] == depth)
            part = residual[mine].astype(np.float64)
            step, lagrange = quantiser(qp, int(depth))
            cost = rate_cost(part, qp, int(depth))
            size = np.abs(dct(part))
            level = np.floor(size / step + ROUNDING)
            bits = (cost - np.square(size - level * step).sum((1, 2))) / lagrange
            square = np.square(part).sum((1, 2)) / (255 * 2.0 ** (depth - 8)) ** 2 / SIDE**2
            for index, values in enumerate((square, satd(part, "dct"), bits, cost)):
                np.add.at(out[index, :, number], picture[mine], values)
    return out


def train(kind: str, cut: dict[str, Array], steps: int, seed: int) -> BlockPredictor:
    """A predictor trained by one loss, 128 blocks a step: AdamW, a rate that goes up and down by a cosine."""
    torch.manual_seed(seed)
    model = BlockPredictor()
    data = {name: torch.from_numpy(values) for name, values in cut.items()}
    scale = torch.exp2(data["bit_depth"].float() - 8)
    step = scale * torch.exp2((data["qp"].float() - 4) / 6)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        drawn = torch.randint(len(step), (128,))
        found = model(data["line"][drawn], data["bit_depth"][drawn])
        loss = error_of(kind, data["block"][drawn] - found, step[drawn])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
    return model


@torch.no_grad()
def left_by(model: BlockPredictor, cut: dict[str, Array]) -> Array:
    """What whole samples of the prediction leave, (n, 8, 8)."""
    found = model(torch.from_numpy(cut["line"]), torch.from_numpy(cut["bit_depth"])).round().numpy()
    peak = (1 << cut["bit_depth"].astype(np.int64))[:, None, None] - 1
    return np.asarray(cut["block"] - np.clip(found, 0, peak))


def planar(cut: dict[str, Array]) -> Array:
    """What the standard's planar mode leaves, (n, 8, 8)."""
    out = np.empty(cut["block"].shape, np.int64)
    for depth in np.unique(cut["bit_depth"]):
        mine = cut["bit_depth"] == depth
        for part in np.array_split(np.flatnonzero(mine), -(-int(mine.sum()) // 1024)):
            parts = split_lines(cut["line"][part], SIDE)
            out[part] = cut["block"][part] - np.asarray(predict_modes(*parts, SIDE, SIDE, int(depth)))[:, 0]
    return out


def main(argv: list[str] | None = None) -> None:
    """Train, judge, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="to train on, split train")
    parser.add_argument("--test", type=Path, required=True, help="to judge by, split test")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--blocks", type=int, default=60, help="a picture and QP [60]")
    parser.add_argument("--steps", type=int, default=2000, help="of 128 blocks [2000]")
    parser.add_argument("--seeds", type=int, default=3, help="[3]")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    cut, _ = draw_blocks(open_store(args.store), "train", SIDE, args.blocks, QPS)
    test, picture = draw_blocks(open_store(args.test), "test", SIDE, args.blocks, QPS)
    counts = np.zeros((int(picture.max()) + 1, len(QPS)))
    np.add.at(counts, (picture, np.searchsorted(QPS, test["qp"])), 1)
    found = {"planar": [judge(planar(test), test, picture)]}
    for kind in LOSSES:
        seeds = range(1, args.seeds + 1)
        found[kind] = [judge(left_by(train(kind, cut, args.steps, seed), test), test, picture) for seed in seeds]
    text = table(found, counts)
    write_text(args.output / "table.md", text)
    print(text)


def scores(sums: Array, counts: Array, times: Array) -> Array:
    """Mean over the QPs of each judge's mean over the blocks, (resamples, judges), dB of the first."""
    means = np.einsum("rp,jpq->rjq", times, sums) / np.einsum("rp,pq->rq", times, counts)[:, None]
    means[:, 0] = -10 * np.log10(means[:, 0])
    return np.asarray(means.mean(2))


def table(found: dict[str, list[Array]], counts: Array) -> str:
    """Every judge's figures, and beside them how far from those of pixel L2, in dB and %."""
    times = bootstrap_counts(len(counts), RESAMPLES, np.random.default_rng(1))
    whole = np.ones((1, len(counts)))

    def both(runs: list[Array]) -> tuple[Array, Array]:
        return (
            np.mean([scores(run, counts, whole)[0] for run in runs], 0),
            np.mean([scores(run, counts, times) for run in runs], 0),
        )

    base, base_times = both(found["pixel L2"])
    lines = [f"| trained by | {' | '.join(JUDGES)} |", "|---|" + "---|" * len(JUDGES)]
    for name, runs in found.items():
        mean, resampled = both(runs)
        spread = np.std([scores(run, counts, whole)[0] for run in runs], 0, ddof=1) if len(runs) > 1 else mean * 0
        cells = []
        for index, value in enumerate(mean):
            cell = f"{value:.2f}" + (f" ± {spread[index]:.2f}" if len(runs) > 1 else "")
            if name != "pixel L2":
                one, many = (
                    (mean[0] - base[0], resampled[:, 0] - base_times[:, 0])
                    if index == 0
                    else (100 * (value / base[index] - 1), 100 * (resampled[:, index] / base_times[:, index] - 1))
                )
                low, high = bootstrap_interval(many) or [np.nan, np.nan]
                unit = " dB" if index == 0 else " %"
                cell += f", {one:+.2f}{unit} ({low:+.2f} to {high:+.2f})"
            cells.append(cell)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
