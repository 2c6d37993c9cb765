"""State of the slice parser: the arrays that its compiled functions work on, and the names of their indices.

Numba checks no array index, so no index may leave its array, whatever a stream contains. Positions lie inside the
picture's grid of 4x4 samples, because only nodes that begin inside the picture are visited and their area is clipped to
it; levels and scans are bounded by the 32x32 coefficients of the largest block.
"""

from itertools import count, islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.vvc.syntax.contexts import CONTEXT_NUMBERS

Ints = npt.NDArray[np.int64]
CtbMaps = npt.NDArray[np.int32]


class Work(NamedTuple):
    """State of one slice while it is parsed.

    Attributes:
        n: All numbers, int64: scalars, then from the offsets below on context variables, tree nodes, levels and
            palettes; if n[KEEP] is set, the log (`codecnn.vvc.syntax.log`) follows at NUMBERS. It is one array because
            each array that a compiled function takes lengthens compilation.
        data: Slice data, uint8.
        maps: Properties of the picture's blocks, shape (MAPS, rows, columns), int16; a cell is 4x4 luma samples.
    """

    n: Ints
    data: npt.NDArray[np.uint8]
    maps: npt.NDArray[np.int16]


_free = count()


def _indices(number: int) -> list[int]:
    """Return the next `number` indices of `Work.n`; numba compiles constants of a module in as numbers."""
    return list(islice(_free, number))


# Arithmetic decoder (clause 9.3.4.3): range and value, bits until the next byte, position of that byte, end of the
# data, fault, hash of the bins so far.
RANGE, VALUE, NEEDED, POSITION, END, FAULT, BINS = _indices(7)

# Slice and parameter sets (`slice_data` names the syntax elements); sizes in luma samples unless a name says log2.
WIDTH, HEIGHT, LOG2_CTU, LOG2_MIN_CB, CHROMA, SUB_WIDTH, SUB_HEIGHT, BIT_DEPTH, IS_I, IS_B, DUAL_TREE = _indices(11)
MIN_QT_Y, MIN_QT_C, MAX_BT_Y, MAX_BT_C, MAX_TT_Y, MAX_TT_C, MAX_MTT_Y, MAX_MTT_C, MAX_TB, MAX_TS = _indices(10)
TRANSFORM_SKIP, BDPCM, MTS, MTS_INTRA, MTS_INTER, LFNST, JOINT_CBCR, SBT, ISP, MRL, MIP, CCLM = _indices(12)
IBC, MAX_IBC_MERGE, PALETTE, ACT, QP_DELTA, QP_DELTA_SUBDIV = _indices(6)
CHROMA_QP_OFFSET, CHROMA_QP_OFFSET_SUBDIV, CHROMA_QP_OFFSET_LIST = _indices(3)
SLICE_QP, DEP_QUANT, SIGN_HIDING, TS_RESIDUAL_OFF, SAO_LUMA, SAO_CHROMA = _indices(6)
ALF, ALF_CB, ALF_CR, ALF_APS_LUMA, ALF_CHROMA_FILTERS, CC_CB_FILTERS, CC_CR_FILTERS, WAVEFRONT = _indices(8)
AFFINE, AFFINE_TYPE, AFFINE_AMVR, AMVR, SMVD, MMVD, BCW, CIIP, GPM = _indices(9)
MAX_MERGE, MAX_GPM_MERGE, MAX_SUBBLOCK_MERGE = _indices(3)
TRANSFORM_RANGE, TS_RICE, RRC_RICE, RICE_BASE, PERSISTENT_RICE, REVERSE_LAST = _indices(6)
MVD_L1_ZERO, NO_BACKWARD, ACTIVE_L0, ACTIVE_L1, WEIGHTED_L0, WEIGHTED_L1 = _indices(6)

# Position of the parser: CTU and CU counts, neighbours of the CTU, log, quantization group.
CTU, CU_COUNT, REGION, TOP_AVAILABLE, LEFT_AVAILABLE, CTB_X, CTB_Y = _indices(7)
KEEP, LOG, UNIT_AT, CTU_REGION, CHROMA_QP_IDX = _indices(5)
QG_X, QG_Y, QG_NEW, QG_FIRST, QG_ROW_FIRST, QP_CODED, CHROMA_QP_CODED, QP_Y, PRED_MODE = _indices(9)

# Current coding unit: all numbers from CU_FIRST to CU_LAST are set to 0 at its beginning.
SKIP, ISP_SPLIT, BDPCM_LUMA, BDPCM_CHROMA, MIP_FLAG, MRL_IDX, INTRA_MODE = _indices(7)
SBT_FLAG, SBT_HORIZONTAL, SBT_POS, SBT_QUAD, CIIP_FLAG, LFNST_IDX, MERGE = _indices(7)
CBF_ANY, PREVIOUS_CBF, INFER_CBF, TS_LUMA, TS_ANY, JOINT_ANY, KERNEL_H, KERNEL_V = _indices(8)
MIP_TRANSPOSED, CHROMA_MODE, COLOCATED_MODE, MTS_IDX, UNITS, ACT_FLAG, VECTOR_X, VECTOR_Y = _indices(8)
LFNST_DC_ONLY, LFNST_ZERO_OUT, MTS_DC_ONLY, MTS_ZERO_OUT = _indices(4)

# Motion of the current inter unit, see `log.CodingUnit`.
SUBBLOCK, POINTS, MERGE_IDX, MMVD_FLAG, MMVD_DISTANCE, MMVD_DIRECTION, GPM_FLAG, GPM_PARTITION = _indices(8)
GPM_SECOND, DIRECTION, REF_IDX, MVP, SYMMETRIC, AMVR_SHIFT, BCW_IDX = (_indices(k)[0] for k in (1, 1, 2, 2, 1, 1, 1))
MVDS = _indices(12)[0]

CU_FIRST, CU_LAST = SKIP, MVDS + 11
"""CBF_ANY and TS_ANY have one bit for each component (1 Y, 2 Cb, 4 Cr); JOINT_ANY is the largest joint Cb-Cr mode."""

# Current transform block: context coded bins left (RemCcbs), state of dependent quantization, columns and rows of
# coefficients, component, substitute for levels outside the block (HistValue), and a flag that is set until the block
# has updated StatCoeff.
BUDGET, QSTATE, TB_WIDTH, TB_HEIGHT, COMPONENT, HIST_VALUE, HIST_NEW = _indices(7)

STAT_COEFF = _indices(3)[0]
"""StatCoeff of Y, Cb and Cr."""

# Block vectors of the last IBC units of a row of CTUs (clause 8.6.2.6), oldest first; size of the current palette.
VECTORS = _indices(1)[0]
VECTOR_TABLE = _indices(2 * 5)[0]
PALETTE_SIZE = _indices(1)[0]

# Current node of the coding tree (clause 7.3.11.4), at a leaf the coding unit. TREE is IMPLICIT above separate trees.
X, Y, W, H, TREE, MODE_TYPE, QG_LUMA, QG_CHROMA, SUBDIV = _indices(9)
DEPTH_QT, DEPTH_MTT, DEPTH_OFFSET, PART, LAST_SPLIT = _indices(5)
NODE, NODE_SIZE = X, LAST_SPLIT + 1 - X

# Offsets in `n`.
NODES = NODE + NODE_SIZE
"""Stack of the nodes not yet visited, NODE_SIZE numbers each."""

MAX_NODES = 128
"""Size of the stack: a tree of 128x128 leaves at most 4 nodes unvisited on each of 5 quadtree and 10 MTT levels."""

LEVELS = NODES + NODE_SIZE * MAX_NODES
"""Three planes of levels of the current transform block."""
LEVEL_STRIDE = 36

LEVEL_PLANE = LEVEL_STRIDE * LEVEL_STRIDE
"""A plane has 32x32 levels with a border: one to the left and above, two to the right and below."""

CODED = LEVELS + 3 * LEVEL_PLANE
"""sb_coded_flag of the sub-blocks of the current transform block."""

CODED_STRIDE = 10
"""The grid has at most 8x8 sub-blocks with a border of one on each side."""

PALETTE_ENTRIES = CODED + CODED_STRIDE * CODED_STRIDE
"""CurrentPaletteEntries of Y, Cb and Cr."""
MAX_PALETTE = 64

PREDICTOR = PALETTE_ENTRIES + 3 * MAX_PALETTE
"""PredictorPaletteEntries of Y, Cb and Cr, then PredictorPaletteSize of luma or all components and of a chroma tree."""
PREDICTOR_SIZE = PREDICTOR + 3 * MAX_PALETTE
PREDICTOR_NUMBERS = 3 * MAX_PALETTE + 2

KEPT_PREDICTOR = PREDICTOR_SIZE + 2
"""Copy of the palette predictor and its sizes for the next row of a wavefront."""

REUSED = KEPT_PREDICTOR + PREDICTOR_NUMBERS
"""PalettePredictorEntryReuseFlags."""

INDICES = REUSED + MAX_PALETTE
"""PaletteIndexMap of 64x64 samples, then copy-above flags, then escape values of Y, Cb and Cr."""
COPIED = INDICES + 4096
ESCAPES = COPIED + 4096

CONTEXTS = ESCAPES + 3 * 4096
"""Context variables, four numbers each: pStateIdx0, pStateIdx1, shift0, shift1."""

KEPT = CONTEXTS + CONTEXT_NUMBERS
"""Copy of the context variables for the next row of a wavefront."""

INITIAL = KEPT + CONTEXT_NUMBERS
"""Context variables at the beginning of a substream."""

NUMBERS = INITIAL + CONTEXT_NUMBERS
"""Numbers of the state; the log follows here, because every call would have to pass a second array."""

# Planes of `maps`; _C are those of a separate chroma tree, which follows the luma tree.
CB_WIDTH, CB_WIDTH_C, CB_HEIGHT, CB_HEIGHT_C, QT_DEPTH, QT_DEPTH_C, CU_PRED_MODE, CU_PRED_MODE_C = range(8)
CU_SKIP, CU_MIP, CU_INTRA_MODE, CU_SUBBLOCK, CU_QP, CU_ISP, MTT_SPLIT_0, MTT_SPLIT_1 = range(8, 16)
CU_VECTOR_X, CU_VECTOR_Y, MAPS = range(16, 19)

CTB_REGION, CTB_ALF, CTB_CC, CTB_SAO = 0, 1, 4, 6
"""Planes of `CtbMaps`.

`CTB_REGION` is slice and tile of a CTU, 0 if it is not parsed. `CTB_ALF` is the filter of Y, Cb and Cr, `CTB_CC` the
cross-component filter of Cb and Cr: 0 none, else 1 plus its index. The luma filter sets are the 16 fixed ones, then
those of the parameter sets of the slice. `CTB_SAO` is SAO of Y, Cb and Cr, SAO_NUMBERS planes each.
"""

SAO_TYPE, SAO_CLASS, SAO_OFFSETS, SAO_NUMBERS = 0, 1, 2, 6
"""Numbers of SAO of a component: SaoTypeIdx, SaoEoClass or the band position, and four offsets (SaoOffsetVal)."""

CTB_MAPS = CTB_SAO + 3 * SAO_NUMBERS

SINGLE, DUAL_LUMA, DUAL_CHROMA, IMPLICIT = range(4)
MODE_ALL, MODE_INTER_ONLY, MODE_INTRA_ONLY = range(3)

MODE_INTER, MODE_INTRA, MODE_IBC, MODE_PALETTE = range(4)
"""Values of PRED_MODE, as VTM numbers pred_mode."""

NO_SPLIT, QT, BT_HOR, BT_VER, TT_HOR, TT_VER = range(6)
ISP_NONE, ISP_HOR, ISP_VER = range(3)

DCT2, DST7, DCT8 = range(3)
"""Values of trType (clause 8.7.4.1); VTM numbers the last two the other way round."""

_TRANSFORM_COLUMNS = "cbf_y cbf_cb cbf_cr ts_y ts_cb ts_cr mts tr_hor tr_ver lfnst bdpcm bdpcm_chroma joint_cbcr"
TRANSFORM_COLUMNS = tuple(_TRANSFORM_COLUMNS.split())
_CU_COLUMNS = "channel x y w h qt_depth mt_depth pred_mode intra_mode qp mip isp mrl skip"

CU_COLUMNS = (*_CU_COLUMNS.split(), *TRANSFORM_COLUMNS, "bins", "merge", "ciip", "gpm")
"""Columns of the array of coding units.

`bins` is a hash of all bins of the slice so far except those of the in-loop filters. `merge` (also of IBC), `ciip` and
`gpm` (geometric partitions) are flags of inter units, -1 for others.
"""
CU_TRANSFORM, CU_BINS = CU_COLUMNS.index(TRANSFORM_COLUMNS[0]), CU_COLUMNS.index("bins")
CU_MERGE = CU_COLUMNS.index("merge")

# Values of n[FAULT].
FAULT_NONE, FAULT_END, FAULT_SPLIT, FAULT_TERMINATE, FAULT_QP, FAULT_LEVEL, FAULT_PALETTE = range(7)
