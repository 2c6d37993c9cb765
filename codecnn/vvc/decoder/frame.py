"""State of the reconstruction: the records and arrays that its compiled functions work on, and constant tables.

As in `codecnn.vvc.syntax.state`, no index may leave its array, whatever a stream contains: blocks lie inside the
picture, and the parser bounds modes and sizes.
"""

from importlib import resources
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled
from codecnn.base.records import Records, record_at
from codecnn.vvc.decoder.records import Candidates, InterUnit, PictureValues, Position, SliceValues
from codecnn.vvc.intra import CUBIC_FILTER, GAUSSIAN_DISTANCE, GAUSSIAN_FILTER, VVC_ANGLES, inverse_angle, kernel_matrix
from codecnn.vvc.syntax import MAX_TILES
from codecnn.vvc.syntax.log import CODING_UNIT, TRANSFORM_UNIT, CodingUnit, TransformUnit


class Frame(NamedTuple):
    """State of one picture while it is reconstructed, and of the current slice.

    Attributes:
        pic: Values of the picture.
        slice: Values of the current slice.
        current: Position in the log and state of the current block.
        s: Scratch memory, then `TABLES` from SCRATCH on, int32.
        planes: Reconstruction, prediction and residual of each component, row by row, from `pic.recon`, `pic.pred` and
            `pic.resid` on, int32.
        known: State of the blocks reconstructed so far, cells of type BLOCK_CELL, shape (rows, columns); a cell is 4x4
            luma samples.
        log: Log of the slice data, as in `codecnn.vvc.syntax.log`, int64.
        unit: Current inter unit.
        candidates: Candidates for its motion, and the history of earlier units.
        motion: Motion of the blocks reconstructed so far, cells of type MOTION_CELL, shape (rows, columns); a cell is
            4x4 luma samples.
        references: Decoded pictures that the slice may refer to, one after the other, uint16; `slice.ref_pic_list` has
            the positions.
        collocated: Motion of the collocated picture as `temporal_motion.stored_motion` returns it, cells of type
            COLLOCATED_CELL, shape (rows, columns); a cell is 8x8 luma samples. A slice without it has no cells here, or
            its ph_temporal_mvp_enabled_flag is 0.
    """

    pic: PictureValues
    slice: SliceValues
    current: Position
    s: npt.NDArray[np.int32]
    planes: npt.NDArray[np.int32]
    known: Records
    log: npt.NDArray[np.int64]
    unit: InterUnit
    candidates: Candidates
    motion: Records
    references: npt.NDArray[np.uint16]
    collocated: Records


# Offsets in `s`, a block of 64x64 each.
BLOCK = 64 * 64

COEFFICIENTS, HALF, RESIDUALS = (BLOCK * i for i in range(3))
"""Scaled coefficients, results of the first transform stage, and residuals of Y, Cb and Cr, a block each."""

LINE = 5 * BLOCK
"""Reference samples of a block in the order of substitution, LINE_SIZE numbers.

The smoothed reference samples follow, then, at SIDE, those of the main side of an angular mode.
"""
LINE_SIZE = 640
SIDE = LINE + 2 * LINE_SIZE
MIP = SIDE + 2 * LINE_SIZE

INTER_BLOCK = 72 * 72
"""Numbers of a block of inter prediction: 64x64 samples and the neighbours that a filter of eight taps needs."""

FETCHED, HALF_FILTERED, PREDICTED, EXTENDED, GRADIENTS = (MIP + 256 + i for i in (0, 5184, 10368, 20736, 22016))
"""Blocks of inter prediction.

Reference samples; results of the horizontal filter; predictions from L0 and L1 with 14 bits, INTER_BLOCK each; two
predictions with a border of one sample, EXTENDED_BLOCK each; gradients of these, four blocks of EXTENDED_BLOCK.
"""
EXTENDED_BLOCK = 640

SCRATCH = GRADIENTS + 4 * EXTENDED_BLOCK
"""The numbers of `TABLES` begin here."""

DCT2_AT = SCRATCH
"""transMatrix of DCT-II for 64 samples, (64, 64)."""

DST7_AT = DCT2_AT + 64 * 64
"""transMatrix of DST-VII for 4, 8, 16 and 32 samples, 32 * 32 numbers each."""

DCT8_AT = DST7_AT + 4 * 32 * 32
"""transMatrix of DCT-VIII for 4, 8, 16 and 32 samples, 32 * 32 numbers each."""

LFNST_16_AT = DCT8_AT + 4 * 32 * 32
"""LFNST matrices of 16 results by set and index, (4, 2, 16, 16)."""

LFNST_48_AT = LFNST_16_AT + 4 * 2 * 16 * 16
"""LFNST matrices of 48 results by set and index, (4, 2, 16, 48)."""

MIP_AT = LFNST_48_AT + 4 * 2 * 16 * 48
"""mWeight by mipSizeId, mode, result and input, (3, 16, 64, 8)."""

SLICE_REGIONS = MAX_TILES + 1
"""Number of regions of a slice: `log.CodingUnit.region` is 1 + tile + SLICE_REGIONS * slice."""


def _tables() -> npt.NDArray[np.int32]:
    """Load and compute the matrices of `TABLES`."""
    with resources.files(__package__).joinpath("tables.npz").open("rb") as file, np.load(file) as tables:
        lfnst = [tables["lfnst_16"], tables["lfnst_48"]]
        weights = np.zeros((3, 16, 64, 8), np.int32)
        for size in range(3):
            matrix = tables[f"mip_{size}"]
            # The largest size has no weight for the first input, which is 0.
            first = 1 if size == 2 else 0
            weights[size, : matrix.shape[0], : matrix.shape[1], first : first + matrix.shape[2]] = matrix
    kernels = np.zeros((2, 4, 32 * 32), np.int32)
    for index, size in enumerate((4, 8, 16, 32)):
        kernels[0, index, : size * size] = kernel_matrix("DST7", size).ravel()
        kernels[1, index, : size * size] = kernel_matrix("DCT8", size).ravel()
    parts = [kernel_matrix("DCT2", 64), kernels, *lfnst, weights]
    return np.concatenate([part.ravel().astype(np.int32) for part in parts])


TABLES = _tables()
"""Matrices of transforms (8.7.4.2 to 8.7.4.5), LFNST and MIP, int32, in the order of the offsets from SCRATCH on."""

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
