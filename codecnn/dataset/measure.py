"""The rows of ctus.parquet for one coded unit, and its block statistics as files."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from codecnn.codec import CodedSequence
from codecnn.codec.blocks.planes import block_planes
from codecnn.codec.blocks.table import BlockTable, ctu_depths, write_table
from codecnn.dataset.store import UNIT_SCHEMA
from codecnn.quality.grid import ctu_grid, ctu_sums
from codecnn.runs import atomic_path
from codecnn.video import open_raw

BLOCKS, BLOCK_PLANES_FILE = "blocks.parquet", "block_planes.npy"


def write_blocks(folder: Path, blocks: BlockTable, sequence: CodedSequence) -> None:
    """Write a unit's CUs as a table and, rasterised, as planes of 4x4 cells that the loader maps into memory."""
    write_table(folder / BLOCKS, blocks)
    form = sequence.format
    pocs = [picture.poc for picture in sequence.pictures]
    with atomic_path(folder / BLOCK_PLANES_FILE) as part, part.open("wb") as file:
        np.save(file, block_planes(blocks, pocs, form.width, form.height))


def measure(
    unit: str, name: str, sequence: CodedSequence, original: Path, ctu_size: int, blocks: BlockTable | None
) -> pa.Table:
    """The rows of one unit; see UNIT_SCHEMA for what each column is. `original` has the decoded pictures' format."""
    form = sequence.format
    grid = ctu_grid(form.width, form.height, ctu_size)
    area = (grid[:, 2] * grid[:, 3]).astype(np.float64)
    peak = 255.0 * 2 ** (form.bit_depth - 8)
    unknown = np.full(len(grid), np.nan)
    columns: dict[str, list[npt.NDArray[Any]]] = {field: [] for field in UNIT_SCHEMA.names}
    with open_raw(original, form) as originals, open_raw(sequence.decoded, form) as decoded:
        for coded, source, output in zip(sequence.pictures, originals, decoded, strict=True):
            samples = source.y.astype(np.float64)
            mse = ctu_sums((samples - output.y) ** 2, ctu_size) / area
            mean = ctu_sums(samples, ctu_size) / area
            with np.errstate(divide="ignore"):
                psnr = 10 * np.log10(peak**2 / mse)
            depth_mean, depth_max = (
                (unknown, unknown)
                if blocks is None
                else ctu_depths(blocks, coded.poc, form.width, form.height, ctu_size)
            )
            values = {
                "unit": np.full(len(grid), unit),
                "sequence": np.full(len(grid), name),
                "poc": np.full(len(grid), coded.poc),
                **{field: grid[:, index] for index, field in enumerate(("x", "y", "w", "h"))},
                "qp": np.full(len(grid), coded.qp),
                "mse_y": mse,
                "psnr_y": psnr,
                "depth_mean": depth_mean,
                "depth_max": depth_max,
                "variance": np.maximum(ctu_sums(samples**2, ctu_size) / area - mean**2, 0),
                "bits": unknown,
            }
            for field, value in values.items():
                columns[field].append(value)
    arrays = [
        pa.array(np.concatenate(columns[field.name]), type=field.type, from_pandas=pa.types.is_floating(field.type))
        for field in UNIT_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=UNIT_SCHEMA)
