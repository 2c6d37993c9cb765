"""Figures of docs/labels.md: python tools/label_worth.py DATA [--pictures N], DATA with images/val and golden/.

Originals against what libvvenc (all intra, medium) decoded of them, and its modes where block statistics tell them.
"""

import argparse
import csv
import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from codecnn.labels import (
    CostComparison,
    EncoderAgreement,
    LabelSettings,
    Source,
    add_up,
    compare_costs,
    encoder_agreement,
)
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
    compared: dict[tuple[str, int], list[CostComparison]] = defaultdict(list)
    by_qp: dict[tuple[str, int], list[EncoderAgreement]] = defaultdict(list)
    by_size: dict[tuple[str, str], list[EncoderAgreement]] = defaultdict(list)
    for name in names:
        original = options.data / "images" / "val" / f"{name}.png"
        for qp in QPS:
            source, _ = source_of(original, golden / "val_vvc" / f"{name}_QP{qp}.266")
            for found in compare_costs(source, settings):
                compared[found.size, qp].append(found)
    for stream in sorted((golden / "vvc").glob("astronaut_ai_*qp*.266")):
        if "ibd8" not in stream.name:
            source, table = source_of(golden / "sources" / "astronaut_512x512_8b420.yuv", stream)
            kind = "without loop filters" if "nolf" in stream.name else "finished"
            for agreed in encoder_agreement(source, *plain_blocks(table), settings):
                by_qp[kind, int(stream.stem[-2:])].append(agreed)
                if len(set(agreed.size.split("x"))) == 1:
                    by_size[kind, agreed.size].append(agreed)
    print(f"{len(names)} pictures: {', '.join(names)}\n")
    print(_lost(compared), "\n")
    print(_agreement(by_qp, "qp"), "\n")
    print(_agreement(by_size, "size"))


def source_of(original: Path, stream: Path) -> tuple[Source, Path]:
    """Luma of a first picture and its decoded version, whose encoder cut odd sizes down to even ones."""
    with open_video(original) as video, open_video(stream) as decoded:
        references = decoded[0]
        picture = convert(video[0], references.bit_depth)
    height, width = references.y.shape
    source = Source(stream.stem, 0, picture.y[:height, :width], references.y, references.bit_depth)
    return source, stream.with_suffix(".cu.csv.gz")


def plain_blocks(table: Path) -> tuple[np.ndarray, np.ndarray]:
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


def _lost(compared: dict[tuple[str, int], list[CostComparison]]) -> str:
    lines = ["| size | QP | blocks | another mode | DCT cost lost |", "|---|---|---|---|---|"]
    for (size, qp), parts in compared.items():
        found = add_up(parts)
        lost = f"{100 * (found.dct_of_hadamard / found.dct_of_dct - 1):.2f} %"
        lines.append(f"| {size} | {qp} | {found.blocks} | {_share(found.another, found.blocks)} | {lost} |")
    return "\n".join(lines)


def _agreement(agreed: dict[tuple[str, Any], list[EncoderAgreement]], by: str) -> str:
    lines = [
        f"| decoded | {by} | CUs | best by DCT | among 3 | best by Hadamard | among 3 | DCT cost over the least |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (decoded, value), parts in agreed.items():
        found = add_up(parts)
        counts = (found.same_dct, found.top_dct, found.same_hadamard, found.top_hadamard)
        shares = " | ".join(_share(count, found.blocks) for count in counts)
        over = 100 * (found.dct_of_encoder / found.dct_of_dct - 1)
        lines.append(f"| {decoded} | {value} | {found.blocks} | {shares} | {over:.1f} % |")
    return "\n".join(lines)


def _share(count: int, blocks: int) -> str:
    return f"{100 * count / blocks:.1f} %"


if __name__ == "__main__":
    main()
