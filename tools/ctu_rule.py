"""A rule for CTU on/off that needs no flag, held against flags at their real cost: a figure of docs/correlation.md.

    python tools/ctu_rule.py low_cost_5 low_cost_17 --store stores/diverse_test -o runs/rule [--ctu-size 64]

Both encoder and decoder know QP and the depth of the CTUs. The rule filters a CTU where a·QP + b·depth is above (or
below) a threshold; a, b and the threshold are fitted on four fifths of the pictures and tried on the others, five times
in turn. Every picture is filtered once, at full strength; what was measured is kept. table.md and rule.png are in OUT.
BD-rates are those of luma against the decoder's pictures, mean over the pictures' classes, with what flags cost;
intervals of 95 % by bootstrap over the pictures.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.analysis import bootstrap_counts, bootstrap_interval
from codecnn.dataset import Unit, open_store
from codecnn.filtering import NetworkFilter, load_filter, unit_planes
from codecnn.filtering.decisions import choose_flags, flag_bits, rd_lambda
from codecnn.planes import BLOCK_PLANES, BLOCK_SIZE
from codecnn.quality import bd_rate, ctu_grid, ctu_means, ctu_sums
from codecnn.runs import atomic_path, write_text

NOTEBOOK_RATIO = 0.2817 / 0.8561
FOLDS, ANGLES, RESAMPLES = 5, 60, 2000
PICTURE_FLAG = 1.0
Array = NDArray[Any]


class Rows(NamedTuple):
    """CTUs in raster order, picture after picture: the picture's number and QP, mean depth (splits), squared errors as
    decoded and as filtered (sums over `area` samples, sample²), and λ (sample² a bit)."""

    unit: Array
    qp: Array
    depth: Array
    before: Array
    after: Array
    area: Array
    lagrange: Array

    @property
    def saved(self) -> Array:
        """What filtering saves, in bits."""
        return (self.before - self.after) / self.lagrange


class Units(NamedTuple):
    """The coded pictures: sequence's number and class, bits, samples, QP, columns of CTUs, 10·log10 of peak²."""

    sequence: Array
    names: list[str]
    kinds: list[str]
    bits: Array
    samples: Array
    qp: Array
    columns: Array
    peak_db: Array


Rule = Callable[[Rows, Array], Array]
"""From all rows and those it may look at (n,) bool, which CTUs are filtered (n,) bool."""


def main(argv: list[str] | None = None) -> None:
    """Measure what is not measured yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="+")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--per-class", type=int, help="pictures of a class, at most [all]")
    parser.add_argument("--qps", default="22,27,32,37", help="[22,27,32,37]")
    parser.add_argument("--ctu-size", type=int, nargs="+", default=[128, 64], help="of the flags [128 64]")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    qps = [int(part) for part in args.qps.split(",")]
    units = chosen([unit for unit in open_store(args.store).split(args.split) if unit.qp in qps], args.per_class)
    found, told = {}, []
    for weights in args.weights:
        measure(weights, units, args.output, args.ctu_size)
        for size in args.ctu_size:
            rows, facts = measured(weights, units, args.output, size)
            title = f"{Path(weights).stem}, CTUs of {size}x{size}"
            found[title] = judged(rows, facts)
            told.append(table(title, found[title]))
            write_text(args.output / "table.md", "\n".join(told))
    figure(found, args.output / "rule.png")
    print("\n".join(told))


def chosen(units: Sequence[Unit], per_class: int | None) -> list[Unit]:
    """The units of the first `per_class` sequences of every class."""
    kept: dict[str, list[str]] = {}
    for unit in units:
        names = kept.setdefault(unit.class_ or "", [])
        if unit.name not in names and (per_class is None or len(names) < per_class):
            names.append(unit.name)
    return [unit for unit in units if unit.name in kept[unit.class_ or ""]]


def measure(weights: str, units: Sequence[Unit], output: Path, sizes: Sequence[int]) -> None:
    """Filter every picture once, and write its CTUs of every size that no earlier run has written."""
    missing = [size for size in sizes if not _path(weights, output, size).is_file()]
    if not missing:
        return
    filter_ = load_filter(weights)
    parts = [_ctus(filter_, unit, number, missing) for number, unit in enumerate(tqdm(units, unit="picture"))]
    for size, tables in zip(missing, zip(*parts, strict=True), strict=True):
        with atomic_path(_path(weights, output, size)) as part:
            pq.write_table(pa.concat_tables(tables), part)


def _path(weights: str, output: Path, size: int) -> Path:
    return output / f"{Path(weights).stem}_{size}.parquet"


def measured(weights: str, units: Sequence[Unit], output: Path, size: int) -> tuple[Rows, Units]:
    """The CTUs of all pictures, and the pictures."""
    path = _path(weights, output, size)
    content = pq.read_table(path).to_pydict()
    rows = Rows(*(np.array(content[name]) for name in Rows._fields))
    names = sorted({unit.name for unit in units})
    forms = [unit.format for unit in units]
    facts = Units(
        np.array([names.index(unit.name) for unit in units]),
        names,
        [next(unit.class_ or "" for unit in units if unit.name == name) for name in names],
        np.array([float(unit.bits) for unit in units]),
        np.array([form.width * form.height for form in forms]),
        np.array([unit.qp for unit in units]),
        np.array([-(-form.width // size) for form in forms]),
        np.array([20 * np.log10(255 * 2.0 ** (form.bit_depth - 8)) for form in forms]),
    )
    return rows, facts


def _ctus(filter_: NetworkFilter, unit: Unit, number: int, sizes: Sequence[int]) -> list[pa.Table]:
    """The CTUs of each size of the unit's first picture."""
    cells = unit.block_planes()
    assert cells is not None, f"{unit.name} has no depths"
    depth = np.asarray(cells[0, BLOCK_PLANES.index("depth")], np.float64)
    depth = depth.repeat(BLOCK_SIZE, 0).repeat(BLOCK_SIZE, 1)[: unit.format.height, : unit.format.width]
    with unit.originals() as originals, unit.decoded() as decoded:
        original, output, qp = originals[0].y.astype(np.float64), decoded[0], unit.pictures[0].qp
        filtered = filter_(output, qp, unit_planes(unit, 0, filter_.planes))
        errors = [np.square(original - plane) for plane in (output.y, filtered.y)]
    tables = []
    for size in sizes:
        area = ctu_grid(unit.format.width, unit.format.height, size)[:, 2:].prod(1)
        told: dict[str, Any] = {"unit": number, "qp": qp, "lagrange": rd_lambda(qp, unit.format.bit_depth)}
        columns = {name: np.full(len(area), value) for name, value in told.items()}
        before, after = (ctu_sums(error, size) for error in errors)
        columns |= {"depth": ctu_means(depth, size), "before": before, "after": after, "area": area}
        tables.append(pa.table(columns))
    return tables


def threshold(w: Array, worth: Array) -> tuple[float, float]:
    """The sign and the threshold with which filtering where sign · w ≥ threshold is worth most on these rows."""
    best = (-np.inf, 1.0, -np.inf)
    for sign in (1.0, -1.0):
        order = np.argsort(-sign * w, kind="stable")
        # Between equal values there is no threshold.
        last = np.append(np.diff((sign * w)[order]) != 0, True)
        sums = np.where(last, np.cumsum(worth[order]), -np.inf)
        at = int(sums.argmax())
        if sums[at] > best[0]:
            best = (float(sums[at]), sign, float((sign * w)[order][at]))
    return best[1:] if best[0] > 0 else (1.0, np.inf)


def rules(facts: Units) -> dict[str, Rule]:
    """The rules without a flag, by name."""

    def by(weigh: Callable[[Rows, Array], Array]) -> Rule:
        def rule(rows: Rows, known: Array) -> Array:
            w, worth = weigh(rows, known), rows.saved / facts.bits[rows.unit]
            sign, least = threshold(w[known], worth[known])
            return np.asarray(sign * w >= least)

        return rule

    def log_mse(rows: Rows, known: Array) -> Array:
        counted = known & (rows.before > 0)
        columns = np.stack([rows.qp, rows.depth, np.ones(len(rows.qp))], 1)
        error = np.log(rows.before[counted] / rows.area[counted])
        fitted = np.linalg.lstsq(columns[counted], error, rcond=None)[0]
        return np.asarray(columns @ fitted)

    def best_angle(rows: Rows, known: Array) -> Array:
        worth = rows.saved / facts.bits[rows.unit]

        def value(angle: float) -> float:
            w = np.cos(angle) * rows.qp + 10 * np.sin(angle) * rows.depth
            sign, least = threshold(w[known], worth[known])
            return float(worth[known][sign * w[known] >= least].sum())

        angle = max(np.arange(ANGLES) * np.pi / ANGLES, key=value)
        return np.asarray(np.cos(angle) * rows.qp + 10 * np.sin(angle) * rows.depth)

    def by_qp(rows: Rows, known: Array) -> Array:
        on, worth = np.zeros(len(rows.qp), bool), rows.saved / facts.bits[rows.unit]
        for qp in np.unique(rows.qp):
            mine = rows.qp == qp
            sign, least = threshold(rows.depth[mine & known], worth[mine & known])
            on[mine] = sign * rows.depth[mine] >= least
        return on

    return {
        "everywhere": lambda rows, known: np.ones(len(rows.qp), bool),
        "rule: the notebook's a/b, 0.329": by(lambda rows, known: NOTEBOOK_RATIO * rows.qp + rows.depth),
        "rule: a, b of ln MSE": by(log_mse),
        "rule: a, b that save most": by(best_angle),
        "rule: depth, a threshold a QP": by_qp,
    }


def judged(rows: Rows, facts: Units) -> dict[str, dict[str, Any]]:
    """By who decides: "on" the share of CTUs that are filtered, "percent" what is said in % of the stream's bits,
    "gain" BD-rates by sequence (n,), their mean over the classes "bd_rate" with "ci95", and "less" with "less_ci95", by
    how much that is below filtering everywhere."""
    fold = np.random.default_rng(1).permutation(len(facts.names)) % FOLDS
    decided: dict[str, tuple[Array, Array]] = {}
    for name, rule in rules(facts).items():
        on = np.zeros(len(rows.qp), bool)
        for number in range(FOLDS):
            mine = fold[facts.sequence[rows.unit]] == number
            on[mine] = rule(rows, ~mine)[mine]
        decided[name] = on, np.zeros(len(facts.bits))
    count = len(facts.bits)
    picture = np.bincount(rows.unit, rows.saved, count) > PICTURE_FLAG
    decided["a flag a picture"] = picture[rows.unit], np.full(count, PICTURE_FLAG)
    decided["flags, with their bits"] = _flags(rows, facts)
    decided["flags, if they were free"] = rows.saved > 0, np.zeros(count)
    anchor = _curves(rows, facts, np.zeros(len(rows.qp), bool), np.zeros(count))
    found: dict[str, dict[str, Any]] = {}
    times = _by_class(facts, bootstrap_counts(len(facts.names), RESAMPLES, np.random.default_rng(1)))
    whole = _by_class(facts, np.ones((1, len(facts.names))))
    for name, (on, bits) in decided.items():
        curves = _curves(rows, facts, on, bits)
        gain = np.array([bd_rate(a, b) for a, b in zip(anchor, curves, strict=True)])
        base = found["everywhere"]["gain"] if found else gain
        found[name] = {
            "on": on.mean(),
            "percent": 100 * bits.sum() / facts.bits.sum(),
            "gain": gain,
            "bd_rate": float((whole @ gain)[0]),
            "ci95": bootstrap_interval(times @ gain),
            "less": float((whole @ (gain - base))[0]),
            "less_ci95": bootstrap_interval(times @ (gain - base)),
        }
    return found


def _flags(rows: Rows, facts: Units) -> tuple[Array, Array]:
    """What an encoder that knows the original decides by RD cost, off, on or by CTU, and what it says, in bits: whether
    the picture is filtered, whether everywhere, and the flags of CTUs coded as VVC codes those of its own filter."""
    on, bits = np.zeros(len(rows.qp), bool), np.full(len(facts.bits), PICTURE_FLAG)
    for number in range(len(facts.bits)):
        mine = np.flatnonzero(rows.unit == number)
        saved = rows.saved[mine]
        flags = choose_flags(saved.reshape(-1, facts.columns[number]), 1.0)
        choices = [
            (0.0, PICTURE_FLAG, np.zeros(len(mine), bool)),
            (saved.sum(), PICTURE_FLAG + 1, np.ones(len(mine), bool)),
            (saved[flags.ravel()].sum(), PICTURE_FLAG + 1 + flag_bits(flags), flags.ravel()),
        ]
        _, bits[number], on[mine] = max(choices, key=lambda choice: choice[0] - choice[1])
    return on, bits


def _curves(rows: Rows, facts: Units, on: Array, bits: Array) -> list[list[tuple[float, float]]]:
    """(bits, PSNR in dB) at every QP, by sequence."""
    error = np.bincount(rows.unit, np.where(on, rows.after, rows.before), len(facts.bits))
    quality = facts.peak_db - 10 * np.log10(error / facts.samples)
    return [
        [(float(facts.bits[unit] + bits[unit]), float(quality[unit])) for unit in np.flatnonzero(facts.sequence == one)]
        for one in range(len(facts.names))
    ]


def _by_class(facts: Units, times: Array) -> Array:
    """Weights (resamples, sequences) of a mean over classes, each class counted as one."""
    kinds = sorted(set(facts.kinds))
    member = np.array([[kind == own for own in facts.kinds] for kind in kinds], float)
    share = times[:, None] * member
    counts = share.sum(2, keepdims=True)
    there = counts > 0
    return np.asarray((share / np.where(there, counts, 1)).sum(1) / there.sum(1))


def table(title: str, found: dict[str, dict[str, Any]]) -> str:
    """The results in Markdown."""
    lines = [
        f"| {title} | CTUs filtered | said, % of the bits | BD-rate Y | beside everywhere |",
        "|---|---|---|---|---|",
    ]
    for name, row in found.items():
        low, high = row["ci95"]
        less, more = row["less_ci95"]
        beside = "" if name == "everywhere" else f"{row['less']:+.3f} ({less:+.3f} to {more:+.3f})"
        rate = f"{row['bd_rate']:+.2f} % ({low:+.2f} to {high:+.2f})"
        lines.append(f"| {name} | {100 * row['on']:.1f} % | {row['percent']:.3f} | {rate} | {beside} |")
    return "\n".join(lines) + "\n"


def figure(found: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    """By how much each decision is better than filtering everywhere, a panel a network and size."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    image, axes = plt.subplots(1, len(found), figsize=(3 + 3 * len(found), 3), squeeze=False, sharex=True, sharey=True)
    for axis, (title, rows) in zip(axes[0], found.items(), strict=True):
        names = [name for name in rows if name != "everywhere"]
        for place, name in enumerate(reversed(names)):
            row = rows[name]
            low, high = row["less_ci95"]
            errors = [[max(row["less"] - low, 0)], [max(high - row["less"], 0)]]
            axis.errorbar(row["less"], place, xerr=errors, fmt="o", color="C0" if name.startswith("rule") else "C1")
        axis.set_yticks(range(len(names)), list(reversed(names)))
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(title, fontsize=9)
        axis.grid(axis="x", alpha=0.3)
        axis.set_xlabel("BD-rate beside everywhere, points")
        axis.locator_params(axis="x", nbins=5)
    image.tight_layout()
    image.savefig(path, dpi=110)
    plt.close(image)


if __name__ == "__main__":
    main()
