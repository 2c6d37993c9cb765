"""What the compiled functions of reconstruction work on: a few arrays in a tuple, and the names of their indices.

As in `codecnn.vvc.state`, no index may leave its array whatever a stream says: blocks lie inside the picture, modes and
sizes are those that the parser bounds.
"""

from itertools import count, islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.vvc import MAX_TILES


class Frame(NamedTuple):
    """A picture while it is reconstructed, and the slice at hand.

    `p` int64: numbers and tables, from the offsets below on; `s` int32: scratch and tables; `planes` int32:
    reconstruction, prediction and residual of each component, row after row, from p[RECON], p[PRED], p[RESI] on;
    `known` int32 (KNOWN, rows, columns): what is known of 4x4 luma samples; `log` as in `codecnn.vvc.log`.
    """

    p: npt.NDArray[np.int64]
    s: npt.NDArray[np.int32]
    planes: npt.NDArray[np.int32]
    known: npt.NDArray[np.int32]
    log: npt.NDArray[np.int64]


_free = count()


def _next(number: int) -> list[int]:
    """The next `number` indices of `Frame.p`."""
    return list(islice(_free, number))


# Of the picture: luma samples, log2 of chroma's subsampling, sps_chroma_format_idc.
WIDTH, HEIGHT, SUB_X, SUB_Y, CHROMA, BIT_DEPTH, LOG2_CTU, WAVEFRONT = _next(8)
RECON, PRED, RESI, STRIDE = (_next(3)[0] for _ in range(4))

# Of the slice and its parameter sets; coefficients have log2 of their range in bits, and a sign.
TRANSFORM_RANGE = _next(1)[0]
DEP_QUANT, MIN_QP_TS, JOINT_SIGN, COLLOCATED = _next(4)
LMCS, LMCS_CHROMA, LMCS_MIN, LMCS_MAX, LISTS, LISTS_FOR_LFNST = _next(6)
LISTS_NOT_FOR_ACT, DEBLOCKED, ACROSS_TILES, ACROSS_SLICES = _next(4)

# Of the coding unit and the transform block at hand: where the unit lies in the log; the slice and tile, how far the
# levels of a block reach, the VPDU that VPDU_SCALE holds for; whether a block vector leads nowhere.
UNIT, REGION, LAST_X, LAST_Y, VPDU_X, VPDU_Y, VPDU_SCALE, FAULT = _next(8)

COLUMNS, ROWS = (_next(3)[0] for _ in range(2))
"""Virtual boundaries of the picture, 0 where there are fewer than three."""
QP_OFFSET = _next(3)[0]
"""Offsets of the QPs of Cb, Cr and joint Cb and Cr, of PPS and slice."""
QP_LIST = _next(7 * 3)[0]
"""The same by U_CHROMA_QP."""
QP_TABLE = _next(3 * 160)[0]
"""ChromaQpTable from -QpBdOffset on, of Cb, Cr and joint Cb and Cr."""
QP_TABLE_SIZE = 160
PIVOT = _next(17)[0]
"""LmcsPivot."""
CHROMA_SCALE = _next(16)[0]
"""ChromaScaleCoeff."""
LISTS_AT = _next(28 * 64)[0]
"""The 28 scaling lists as matrices of 8x8, row after row; smaller ones repeat their entries."""
LISTS_DC = _next(28)[0]
NUMBERS = _next(1)[0]

# Offsets in `s`, a block of 64x64 each.
BLOCK = 64 * 64
COEFFICIENTS, HALF, RESIDUALS = (BLOCK * i for i in range(3))
"""Scaled coefficients, the same after the transform's first stage, and residuals of Y, Cb and Cr, a block each."""
LINE = 5 * BLOCK
"""References of a block in the order of substitution, then the same smoothed, then those of the mode's main side."""
LINE_SIZE = 640
SIDE = LINE + 2 * LINE_SIZE
MIP = SIDE + 2 * LINE_SIZE
SCRATCH = MIP + 256
"""From here on the tables of `_tables.TABLES`."""
DCT2_AT = SCRATCH
"""transMatrix of 64 samples, (64, 64)."""
DST7_AT = DCT2_AT + 64 * 64
DCT8_AT = DST7_AT + 4 * 32 * 32
"""Those of 4 to 32 samples, 32 * 32 numbers each."""
LFNST_16_AT = DCT8_AT + 4 * 32 * 32
LFNST_48_AT = LFNST_16_AT + 4 * 2 * 16 * 16
MIP_AT = LFNST_48_AT + 4 * 2 * 16 * 48
"""mWeight by mipSizeId, mode, result and input, (3, 16, 64, 8)."""
SCRATCH_AND_TABLES = MIP_AT + 3 * 16 * 64 * 8

LUMA, CHROMA_TOO, BLOCKS, VECTORS, STRENGTH_V, STRENGTH_H, KNOWN = range(7)
"""Planes of `known`: slice and tile (`log.U_REGION`) whose luma is reconstructed, and whose chroma, 0 before;
prediction mode, BDPCM and coded of the luma block as `_boundaries` packs them, its block vector; boundary strengths of
the left and of the upper edge."""

SLICE_REGIONS = MAX_TILES + 1
"""U_REGION is 1 + tile + SLICE_REGIONS * slice."""
