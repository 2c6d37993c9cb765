"""Figures of docs/labels.md: python tools/label_worth.py DATA [--pictures N], DATA with images/val and golden/.

Originals against what libvvenc (all intra, medium) decoded of them, and its modes where block statistics tell them.
"""

import argparse
import csv
import gzip
from pathlib import Path

import numpy as np

from codecnn.labels.statistics import Row, add_rows, compare_costs, encoder_agreement
from codecnn.labels.table import LabelSettings, Source
from codecnn.video import convert, open_video

QPS = (22, 27, 32, 37)


def main() -> None:
    """Print three tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--pictures", type=int, default=4, help="of images/val, by name [4]")
    options = parser.parse_args()
    golden = options.data / "golden"
    names = sorted({path.name.rsplit("_QP", 1)[0] for path in (golden / "val_vvc").glob("*.266")})[: options.pictures]
    settings = LabelSettings()
    compared: list[Row] = []
    agreed: list[Row] = []
    for name in names:
        original = options.data / "images" / "val" / f"{name}.png"
        for qp in QPS:
            source, _ = _source(original, golden / "val_vvc" / f"{name}_QP{qp}.266")
            compared += [{"qp": qp, **row} for row in compare_costs(source, settings)]
    for stream in sorted((golden / "vvc").glob("astronaut_ai_*qp*.266")):
        if "ibd8" not in stream.name:
            source, table = _source(golden / "sources" / "astronaut_512x512_8b420.yuv", stream)
            kind = "without loop filters" if "nolf" in stream.name else "finished"
            rows = encoder_agreement(source, *_plain_blocks(table), settings)
            agreed += [{"qp": int(stream.stem[-2:]), "decoded": kind, **row} for row in rows]
    print(f"{len(names)} pictures: {', '.join(names)}\n")
    print(_worth(add_rows(compared, "size", "qp")), "\n")
    print(_agreement(add_rows(agreed, "decoded", "qp"), "qp"), "\n")
    squares = [row for row in agreed if len(set(row["size"].split("x"))) == 1]
    print(_agreement(add_rows(squares, "decoded", "size"), "size"))


def _source(original: Path, stream: Path) -> tuple[Source, Path]:
    """Luma of a first picture and its decoded version, whose encoder cut odd sizes down to even ones."""
    with open_video(original) as video, open_video(stream) as decoded:
        references = decoded[0]
        picture = convert(video[0], references.bit_depth)
    height, width = references.y.shape
    source = Source(stream.stem, 0, picture.y[:height, :width], references.y, references.bit_depth)
    return source, stream.with_suffix(".cu.csv.gz")


def _plain_blocks(table: Path) -> tuple[np.ndarray, np.ndarray]:
    """x, y, w, h and mode of the luma CUs that are predicted whole and by a mode of the 67."""
    with gzip.open(table, "rt") as file:
        rows = [
            [int(row[name]) for name in ("x", "y", "w", "h", "intraLumaMode")]
            for row in csv.DictReader(file)
            if row["channel"] == "L"
            and row["predMode"] == "1"
            and not any(int(row[tool]) > 0 for tool in ("mip", "isp", "mrl", "bdpcm"))
        ]
    values = np.array(rows)
    return values[:, :4], values[:, 4]


def _worth(rows: list[Row]) -> str:
    lines = ["| size | QP | blocks | another mode | DCT cost lost |", "|---|---|---|---|---|"]
    for row in rows:
        lost = row["dct_of_hadamard"] / row["dct_of_dct"] - 1
        lines.append(
            f"| {row['size']} | {row['qp']} | {row['blocks']} | {_share(row, 'another')} | {100 * lost:.2f} % |"
        )
    return "\n".join(lines)


def _agreement(rows: list[Row], by: str) -> str:
    lines = [
        f"| decoded | {by} | CUs | best by DCT | among 3 | best by Hadamard | among 3 | DCT cost over the least |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        names = ("same_dct", "top_dct", "same_hadamard", "top_hadamard")
        over = 100 * (row["dct_of_encoder"] / row["dct_of_dct"] - 1)
        shares = " | ".join(_share(row, name) for name in names)
        lines.append(f"| {row['decoded']} | {row[by]} | {row['blocks']:.0f} | {shares} | {over:.1f} % |")
    return "\n".join(lines)


def _share(row: Row, name: str) -> str:
    return f"{100 * row[name] / row['blocks']:.1f} %"


if __name__ == "__main__":
    main()
