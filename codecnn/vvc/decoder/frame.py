"""State of the reconstruction: the records and arrays that its compiled functions work on, and constant tables.

As in `codecnn.vvc.syntax.state`, no index may leave its array, whatever a stream contains: blocks lie inside the
picture, and the parser bounds modes and sizes.
"""

from importlib import resources
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled
from codecnn.base.records import Records, new_record, record_at
from codecnn.vvc.decoder.records import Candidates, InterUnit, PictureValues, Position, Scratch, SliceValues, Tables
from codecnn.vvc.intra import CUBIC_FILTER, GAUSSIAN_DISTANCE, GAUSSIAN_FILTER, VVC_ANGLES, inverse_angle, kernel_matrix
from codecnn.vvc.syntax import MAX_TILES
from codecnn.vvc.syntax.log import CODING_UNIT, TRANSFORM_UNIT, CodingUnit, TransformUnit

U = np.uint64
"""Type of indices of loops over samples."""


class Frame(NamedTuple):
    """State of one picture while it is reconstructed, and of the current slice.

    Attributes:
        pic: Values of the picture.
        slice: Values of the current slice.
        current: Position in the log and state of the current block.
        scratch: Memory for samples and coefficients of the current block.
        tables: Matrices of transforms and of intra prediction, `TABLES`.
        planes: Reconstruction, and prediction and residual if they are kept, of each component, row by row, from
            `pic.recon`, `pic.pred` and `pic.resid` on, int32.
        known: State of the blocks reconstructed so far, cells of type BLOCK_CELL, shape (rows, columns); a cell is 4x4
            luma samples.
        log: Log of the slice data, as in `codecnn.vvc.syntax.log`, int64.
        unit: Current inter unit.
        candidates: Candidates for its motion, and the history of earlier units.
        motion: Motion of the blocks reconstructed so far, cells of type MOTION_CELL, shape (rows, columns); a cell is
            4x4 luma samples.
        references: Decoded pictures that the slice may refer to, one after the other, uint16; `slice.ref_pic_list` has
            the positions.
        fetched: Memory for a block of a reference picture with padding, INTER_BLOCK samples, uint16.
        collocated: Motion of the collocated picture as `temporal_motion.stored_motion` returns it, cells of type
            COLLOCATED_CELL, shape (rows, columns); a cell is 8x8 luma samples. A slice without it has no cells here, or
            its ph_temporal_mvp_enabled_flag is 0.
    """

    pic: PictureValues
    slice: SliceValues
    current: Position
    scratch: Scratch
    tables: Tables
    planes: npt.NDArray[np.int32]
    known: Records
    log: npt.NDArray[np.int64]
    unit: InterUnit
    candidates: Candidates
    motion: Records
    references: npt.NDArray[np.uint16]
    fetched: npt.NDArray[np.uint16]
    collocated: Records


SLICE_REGIONS = MAX_TILES + 1
"""Number of regions of a slice: `log.CodingUnit.region` is 1 + tile + SLICE_REGIONS * slice."""


def _tables() -> Tables:
    """Load and compute the matrices of `TABLES`."""
    out = new_record(Tables, np.int32)
    with resources.files(__package__).joinpath("tables.npz").open("rb") as file, np.load(file) as tables:
        out.lfnst_16[:], out.lfnst_48[:] = tables["lfnst_16"], tables["lfnst_48"]
        for size in range(3):
            matrix = tables[f"mip_{size}"]
            # The largest size has no weight for the first input, which is 0.
            first = 1 if size == 2 else 0
            out.mip_weights[size, : matrix.shape[0], : matrix.shape[1], first : first + matrix.shape[2]] = matrix
    out.dct2[:] = kernel_matrix("DCT2", 64).ravel()
    for index, size in enumerate((4, 8, 16, 32)):
        out.dst7[index, : size * size] = kernel_matrix("DST7", size).ravel()
        out.dct8[index, : size * size] = kernel_matrix("DCT8", size).ravel()
    return out


TABLES = _tables()
"""Matrices of transforms (8.7.4.3, 8.7.4.5) and MIP, which all frames share."""

ANGLES = np.array(VVC_ANGLES, np.int64)
"""intraPredAngle by the distance from mode 18 or 50."""

INVERSE_ANGLES = np.array([0, *(inverse_angle(angle) for angle in VVC_ANGLES[1:])], np.int64)
"""invAngle by the distance from mode 18 or 50."""

CUBIC = np.array(CUBIC_FILTER, np.int64)
"""Cubic interpolation filter of luma by fraction, (32, 4)."""

GAUSSIAN = np.array(GAUSSIAN_FILTER, np.int64)
"""Smoothing interpolation filter of luma by fraction, (32, 4)."""

SMOOTH_FROM = np.array([99, 99, *(GAUSSIAN_DISTANCE[size] for size in (2, 3, 4, 5, 6))], np.int64)
"""intraHorVerDistThres by nTbS."""

LEVEL_SCALE = np.array([[40, 45, 51, 57, 64, 72], [57, 64, 72, 80, 90, 102]], np.int64)
"""levelScale by rectNonTsFlag (8.7.3)."""

LIST_OF_SIZE = np.array(
    [
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1],
        [2, 3, 4, 5, 6, 7],
        [8, 9, 10, 11, 12, 13],
        [14, 15, 16, 17, 18, 19],
        [20, 21, 22, 23, 24, 25],
        [26, 21, 22, 27, 24, 25],
    ],
    np.int64,
)
"""Scaling list by log2 of the longer side and component, plus 3 unless the unit is intra (table 38)."""


@compiled
def coding_unit(f: Frame) -> CodingUnit:
    """Return the header of the current coding unit in the log."""
    cu: CodingUnit = record_at(f.log, f.current.cu_at, CODING_UNIT)
    return cu


@compiled
def transform_unit(f: Frame, tu_at: int) -> TransformUnit:
    """Return the header of the transform unit at `tu_at` of the log."""
    tu: TransformUnit = record_at(f.log, tu_at, TRANSFORM_UNIT)
    return tu


@compiled
def residual_limit(f: Frame) -> int:
    """Return the limit of residuals, which are from -limit to limit - 1.

    Decoders store residuals in 16 bits; the standard has no limit. VTM for more than 12 bit stores 32 bits.
    """
    return 32768 if f.pic.bit_depth <= 12 else 1 << 30


@compiled
def clip(value: int, low: int, high: int) -> int:
    """Clip `value` to the range from `low` to `high` (Clip3).

    Part of clause 5.8, Mathematical functions.
    """
    return low if value < low else high if value > high else value
