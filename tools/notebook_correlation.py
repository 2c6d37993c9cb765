"""The correlation analysis of VVC streams and the pictures they were coded from: the notebook's figures again.

    python tools/notebook_correlation.py STREAMS ORIGINALS -o OUT [--ctu-size 128]

STREAMS is a folder of NAME_QPnn.266, coded from ORIGINALS/NAME.png (4:2:0, BT.709 limited range, the bit depth of the
stream) or from any other file that codecnn opens. Depth is read from the streams themselves, the error is that of the
decoded luma. OUT gets ctus.parquet and what `codecnn correlate` writes; a stream that an earlier run measured is not
measured again.
"""

import argparse
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from codecnn.analysis import correlate, load_table, write_correlation
from codecnn.codec import LUMA, ctu_depths, stream_table
from codecnn.quality import ctu_grid, ctu_means
from codecnn.runs import atomic_path
from codecnn.video import STILL_SUFFIXES, open_video


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("streams", type=Path)
    parser.add_argument("originals", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--ctu-size", type=int, default=128, help="of the grid; need not be the encoder's [128]")
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
    write_correlation(options.output, correlate(columns, seed=options.seed), columns)
    print((options.output / "correlation.md").read_text(encoding="utf-8"))


def measure_stream(stream: Path, originals: Path, ctu_size: int) -> pa.Table:
    """The rows of one stream, one a CTU: luma MSE and variance in sample² at its bit depth, depth in splits."""
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
