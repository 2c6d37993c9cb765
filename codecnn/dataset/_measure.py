"""The rows of ctus.parquet for one coded unit, and its block statistics as files."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from codecnn.codec import BlockTable, CodedSequence, block_planes, ctu_depths
from codecnn.codec import write_blocks as write_table
from codecnn.dataset.store import UNIT_SCHEMA
from codecnn.planes import BLOCK_PLANES, TRANSFORM_PLANES
from codecnn.quality import ctu_grid, ctu_means, psnr_of_mse
from codecnn.runs import atomic_path
from codecnn.video import open_raw

BLOCKS, BLOCK_PLANES_FILE, TRANSFORMS_FILE = "blocks.parquet", "block_planes.npy", "transforms.npy"


def write_blocks(folder: Path, blocks: BlockTable, sequence: CodedSequence, *, transforms: bool) -> None:
    """Write a unit's CUs as a table and, rasterised, as planes of 4x4 cells that the loader maps into memory.

    Without `transforms` nothing is kept of those, so that a unit whose recipe does not ask for them is what it was
    before they were read.
    """
    write_table(folder / BLOCKS, blocks if transforms else blocks.without_transforms())
    form = sequence.format
    pocs = [picture.poc for picture in sequence.pictures]
    files = {BLOCK_PLANES_FILE: BLOCK_PLANES} | ({TRANSFORMS_FILE: TRANSFORM_PLANES} if transforms else {})
    for name, planes in files.items():
        with atomic_path(folder / name) as part, part.open("wb") as file:
            np.save(file, block_planes(blocks, pocs, form.width, form.height, planes))


def measure(
    unit: str, name: str, sequence: CodedSequence, original: Path, ctu_size: int, blocks: BlockTable | None
) -> pa.Table:
    """The rows of one unit; see UNIT_SCHEMA for what each column is. `original` has the decoded pictures' format."""
    form = sequence.format
    grid = ctu_grid(form.width, form.height, ctu_size)
    columns: dict[str, list[npt.NDArray[Any]]] = {field: [] for field in UNIT_SCHEMA.names}
    with open_raw(original, form) as originals, open_raw(sequence.decoded, form) as decoded:
        for coded, source, output in zip(sequence.pictures, originals, decoded, strict=True):
            samples = source.y.astype(np.float64)
            mse = ctu_means((samples - output.y) ** 2, ctu_size)
            mean = ctu_means(samples, ctu_size)
            depths: Any = (np.nan, np.nan)
            if blocks is not None:
                depths = ctu_depths(blocks, coded.poc, form.width, form.height, ctu_size)
            values: dict[str, Any] = {
                "unit": unit,
                "sequence": name,
                "poc": coded.poc,
                **dict(zip(("x", "y", "w", "h"), grid.T, strict=True)),
                "qp": coded.qp,
                "mse_y": mse,
                "psnr_y": psnr_of_mse(mse, form.bit_depth),
                "depth_mean": depths[0],
                "depth_max": depths[1],
                "variance": np.maximum(ctu_means(samples**2, ctu_size) - mean**2, 0),
                "bits": np.nan,
            }
            for field, value in values.items():
                columns[field].append(np.broadcast_to(value, len(grid)))
    arrays = [
        pa.array(np.concatenate(columns[field.name]), type=field.type, from_pandas=pa.types.is_floating(field.type))
        for field in UNIT_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=UNIT_SCHEMA)
