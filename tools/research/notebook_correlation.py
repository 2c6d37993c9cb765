"""Correlation analysis of VVC streams and their originals, compared with the figures of the researcher's notebook.

    python tools/research/notebook_correlation.py STREAMS ORIGINALS -o OUT [--ctu-size 128]

STREAMS is a folder of NAME_QPnn.266, coded from ORIGINALS/NAME.png (4:2:0, BT.709 limited range, the bit depth of the
stream) or from any other file that codecnn opens. Depth is read from the streams, the error is that of the decoded
luma. OUT receives ctus.parquet, the files of `codecnn correlate`, and notebook.md, which compares the main figures with
those of the notebook (VVC, VTM 6, QP 22, 27, 32 and 37). Streams that an earlier run measured are not measured again.
"""

import argparse
import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from codecnn.analysis import Correlation, correlate, load_table, write_correlation
from codecnn.base.files import atomic_path, write_text
from codecnn.codec import LUMA, ctu_depths, stream_table
from codecnn.pictures.files import STILL_SUFFIXES, open_video
from codecnn.pictures.metrics import ctu_grid, ctu_means

PEARSON = {"qp": 0.5476, "depth": 0.1886}
"""Pearson's r of QP and of depth with the MSE in the notebook."""

PER_QP = {"22": 0.5369, "27": 0.4024, "32": 0.5617, "37": 0.6722}
"""Pearson's r of depth with the MSE at each QP in the notebook."""

BAYES = {"a": 0.2817, "b": 0.8561, "r": 0.6748}
"""Result of the notebook's Bayesian search for a and b."""

BAYES_B1 = {"a": 0.3290, "r": 0.6748}
"""Result of the notebook's Bayesian search for a with b = 1."""

_QP_DEVIATION = 31.25**0.5
"""Standard deviation of QP 22, 27, 32 and 37 in equal numbers."""


class Implied(NamedTuple):
    """Statistics of the notebook's data that its figures imply.

    Attributes:
        roots: The two possible correlations of QP with depth, the lower first.
        qp_depth: The root that is consistent with positive a and b.
        depth_deviation: Standard deviation of depth in splits.
    """

    roots: tuple[float, float]
    qp_depth: float
    depth_deviation: float


def implied_correlations(r_x: float, r_y: float, multiple: float) -> tuple[float, float] | None:
    """Compute the correlations ρ of x with y that are consistent with three other correlations.

    They solve R²·(1 - ρ²) = r_x² + r_y² - 2·r_x·r_y·ρ.

    Args:
        r_x: Pearson's r of x with a target.
        r_y: Pearson's r of y with the target.
        multiple: Multiple correlation R of x and y with the target.

    Returns:
        The two solutions, the lower first, or None if there are none.
    """
    spread = (multiple**2 - r_x**2) * (multiple**2 - r_y**2)
    if spread < 0 or multiple == 0:
        return None
    middle, half = r_x * r_y / multiple**2, math.sqrt(spread) / multiple**2
    return middle - half, middle + half


def implied() -> Implied:
    """Compute the correlation of QP with depth, and the deviation of depth, that the notebook's figures imply.

    With the upper root the slope of depth, which is proportional to r_depth - ρ·r_qp, would be negative, but the
    notebook's b is positive. With the lower root a / b = (β_qp / σ_qp) / (β_depth / σ_depth) gives the deviation.
    """
    roots = implied_correlations(PEARSON["qp"], PEARSON["depth"], BAYES["r"])
    if roots is None:
        raise AssertionError("the notebook's figures are consistent")
    slopes = [(PEARSON["qp"] - root * PEARSON["depth"], PEARSON["depth"] - root * PEARSON["qp"]) for root in roots]
    possible = [root for root, (a, b) in zip(roots, slopes, strict=True) if min(a, b) > 0]
    a, b = slopes[roots.index(possible[0])]
    return Implied(roots, possible[0], BAYES["a"] / BAYES["b"] * _QP_DEVIATION * b / a)


def compare(result: Correlation) -> str:
    """Return a Markdown table of the main figures and those of the notebook."""
    rows: list[tuple[str, float | None, float]] = [
        ("Pearson(QP, MSE)", result.pearson.qp, PEARSON["qp"]),
        ("Pearson(depth, MSE)", result.pearson.depth, PEARSON["depth"]),
    ]
    for name, value in PER_QP.items():
        depth = result.per_qp[name].depth if name in result.per_qp else None
        rows.append((f"Pearson(depth, MSE) at QP {name}", depth, value))
    best = result.combinations
    if best is not None:
        ratio = BAYES["a"] / BAYES["b"]
        rows += [
            ("search: a", best.bayes.a, BAYES["a"]),
            ("search: b", best.bayes.b, BAYES["b"]),
            ("search: a / b", best.bayes.a / best.bayes.b if best.bayes.b else None, ratio),
            ("search: r", best.bayes.r, BAYES["r"]),
            ("search with b = 1: a", best.bayes_b1.a, BAYES_B1["a"]),
            ("search with b = 1: r", best.bayes_b1.r, BAYES_B1["r"]),
            ("r with the notebook's a / b", _ratio_r(result, ratio), BAYES["r"]),
        ]
    rows += [
        ("Pearson(QP, depth), implied in the notebook", result.qp_depth, implied().qp_depth),
        ("deviation of depth in splits, implied in the notebook", result.deviation["depth"], implied().depth_deviation),
    ]
    lines = [f"| {name} | {'' if value is None else f'{value:.4f}'} | {other:.4f} |" for name, value, other in rows]
    return "\n".join(["| | here | notebook |", "|---|---:|---:|", *lines]) + "\n"


def _ratio_r(result: Correlation, ratio: float) -> float:
    """Return Pearson's r of ratio·QP + depth with the MSE."""
    covariance = result.covariance
    weights = np.array([ratio, 1.0])
    return float(weights @ covariance[:2, 2] / math.sqrt(weights @ covariance[:2, :2] @ weights * covariance[2, 2]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("streams", type=Path)
    parser.add_argument("originals", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument(
        "--ctu-size", type=int, default=128, help="size of the grid, not necessarily the encoder's [128]"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    parts = []
    for stream in tqdm(sorted(options.streams.glob("*_QP*.266")), unit="stream"):
        part = options.output / "parts" / f"{stream.stem}_{options.ctu_size}.parquet"
        if not part.exists():
            with atomic_path(part) as path:
                pq.write_table(measure_stream(stream, options.originals, options.ctu_size), path)
        parts.append(pq.read_table(part))
    with atomic_path(options.output / "ctus.parquet") as path:
        pq.write_table(pa.concat_tables(parts), path)
    columns = load_table(options.output / "ctus.parquet")
    result = correlate(columns, seed=options.seed)
    write_correlation(options.output, result, columns)
    write_text(options.output / "notebook.md", compare(result))
    print((options.output / "correlation.md").read_text(encoding="utf-8"))
    print(compare(result))


def measure_stream(stream: Path, originals: Path, ctu_size: int) -> pa.Table:
    """Measure the CTUs of one stream.

    Args:
        stream: The stream, NAME_QPnn.266.
        originals: Folder of the originals.
        ctu_size: Width and height of the grid in luma samples.

    Returns:
        One row per CTU: luma MSE and variance in sample units squared at the stream's bit depth, depth in splits.
    """
    name = re.sub(r"_QP\d+$", "", stream.stem)
    source = next(path for path in sorted(originals.iterdir()) if path.stem == name)
    blocks = stream_table(stream)
    tables = []
    with open_video(stream) as decoded:
        still = {"chroma": "420", "bit_depth": decoded.format.bit_depth} if source.suffix in STILL_SUFFIXES else {}
        with open_video(source, **still) as pictures:
            for poc, (output, picture) in enumerate(zip(decoded, pictures, strict=True)):
                height, width = output.y.shape
                luma = picture.y[:height, :width].astype(np.float64)  # a picture of odd size was cropped before coding
                grid = ctu_grid(width, height, ctu_size)
                depth_mean, depth_max = ctu_depths(blocks, poc, width, height, ctu_size)
                mean = ctu_means(luma, ctu_size)
                columns = {
                    "sequence": np.full(len(grid), name),
                    "poc": np.full(len(grid), poc),
                    **{field: grid[:, index] for index, field in enumerate("xywh")},
                    "qp": np.full(len(grid), blocks.qp[(blocks.poc == poc) & (blocks.channel == LUMA)][0]),
                    "mse_y": ctu_means((luma - output.y) ** 2, ctu_size),
                    "depth_mean": depth_mean,
                    "depth_max": depth_max,
                    "variance": np.maximum(ctu_means(luma**2, ctu_size) - mean**2, 0),
                }
                tables.append(pa.table(columns))
    return pa.concat_tables(tables)


if __name__ == "__main__":
    main()
