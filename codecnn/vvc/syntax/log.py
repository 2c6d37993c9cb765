"""Log of parsed slice data: the syntax elements that reconstruction needs, in decoding order, as one row of numbers.

A coding unit is a header of UNIT_HEADER numbers (the first, U_SIZE, is the size of the whole unit) and its transform
units. A transform unit is a header of BLOCK_HEADER numbers and the non-zero levels of Y, Cb and Cr, one number each,
packed as in `keep_level`.
"""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.state import Work

U_SIZE, U_X, U_Y, U_W, U_H, U_TREE, U_REGION, U_PRED_MODE, U_MODE, U_MIP, U_MIP_TRANSPOSED = range(11)
U_ISP, U_MRL, U_BDPCM, U_BDPCM_C, U_MODE_C, U_COLOCATED_MODE, U_LFNST, U_MTS, U_QP, U_CHROMA_QP, U_UNITS = range(11, 22)
U_ACT, U_VECTOR_X, U_VECTOR_Y, U_KERNEL_H, U_KERNEL_V, U_MERGE, U_CIIP = range(22, 29)
U_SUBBLOCK, U_POINTS, U_MERGE_IDX, U_MMVD, U_MMVD_DISTANCE, U_MMVD_DIRECTION, U_GPM, U_GPM_PARTITION = range(29, 37)
U_GPM_SECOND, U_DIRECTION, U_REF, U_MVP, U_SYMMETRIC, U_AMVR, U_BCW, U_MVD = 37, 38, 39, 41, 43, 44, 45, 46

UNIT_HEADER = U_SUBBLOCK + st.MOTION_SIZE
"""Size of the header of a coding unit; the names above are positions in it.

Positions and sizes are in luma samples. `U_MODE` is IntraPredModeY or the MIP index, `U_MODE_C` IntraPredModeC with
CCLM as 67 to 69, `U_QP` QpY, `U_CHROMA_QP` cu_chroma_qp_offset_idx + 1, `U_UNITS` the number of transform units,
`U_ACT` cu_act_enabled_flag, `U_VECTOR_X` and `U_VECTOR_Y` the block vector of IBC, `U_KERNEL_H` and `U_KERNEL_V` the
transform kernels of luma. In a palette unit the samples of each component follow row by row, -1 - palette_escape_val
for an escape value.

The rest is 0 unless the unit is an inter unit; `U_MERGE` is set for IBC, too. `U_MERGE` is general_merge_flag, `U_CIIP`
ciip_flag, `U_SUBBLOCK` merge_subblock_flag or inter_affine_flag, `U_POINTS` the number of control points minus 1 of an
affine unit without merge, and `U_MERGE_IDX` merge_idx, merge_subblock_idx, mmvd_cand_flag or merge_gpm_idx0. `U_MMVD`,
`U_MMVD_DISTANCE` and `U_MMVD_DIRECTION` are mmvd_merge_flag, mmvd_distance_idx and mmvd_direction_idx; `U_GPM` is set
with geometric partitions, `U_GPM_PARTITION` and `U_GPM_SECOND` are merge_gpm_partition_idx and merge_gpm_idx1 as coded.
Without merge, `U_DIRECTION` is inter_pred_idc, `U_REF` and `U_MVP` are reference and predictor indices of L0 and L1,
`U_SYMMETRIC` is sym_mvd_flag, `U_AMVR` AmvrShift, `U_BCW` bcw_idx, and `U_MVD` the motion vector differences as coded:
x and y of up to three control points of L0, then of L1.
"""

T_X, T_Y, T_W, T_H, T_CHROMA, T_CODED, T_JOINT, T_SKIP, T_LEVELS = range(9)

BLOCK_HEADER = T_LEVELS + 3
"""Size of the header of a transform unit; the names above are positions in it.

Positions and sizes are in luma samples. `T_CHROMA` is 1 if the unit has chroma; `T_CODED` and `T_SKIP` have one bit for
each component (coded, transform skip); `T_JOINT` is, for joint coding of chroma, 2 if Cb is coded, 1 if Cr is, 3 if
both are. The numbers of levels of Y, Cb and Cr stand from `T_LEVELS` on.
"""

CTU_LOG_SIZE = 1 << 18
"""Upper bound of the log of a CTU of 128x128: 3 * 16,384 levels, 2,048 coding units and as many transform units."""

DERIVED_MIP = 70
"""U_MODE_C if chroma uses the same MIP matrix as luma: derived mode of 4:4:4 in a single tree."""

LEVEL_SHIFT = 11
"""Bits of a packed level below the level itself, see `keep_level`."""


@compiled
def begin_unit(w: Work) -> None:
    """Reserve the header of the current coding unit, which `end_unit` fills in."""
    w.n[st.UNIT_AT] = w.n[st.LOG]
    w.n[st.LOG] += UNIT_HEADER


@compiled
def end_unit(w: Work) -> None:
    """Fill in the header of the current coding unit."""
    n = w.n
    unit = n[n[st.UNIT_AT] :]
    unit[U_SIZE] = n[st.LOG] - n[st.UNIT_AT]
    unit[U_X], unit[U_Y], unit[U_W], unit[U_H] = n[st.X], n[st.Y], n[st.W], n[st.H]
    unit[U_TREE], unit[U_REGION], unit[U_PRED_MODE] = n[st.TREE], n[st.CTU_REGION], n[st.PRED_MODE]
    unit[U_MODE], unit[U_MIP], unit[U_MIP_TRANSPOSED] = n[st.INTRA_MODE], n[st.MIP_FLAG], n[st.MIP_TRANSPOSED]
    unit[U_ISP], unit[U_MRL], unit[U_BDPCM] = n[st.ISP_SPLIT], n[st.MRL_IDX], n[st.BDPCM_LUMA]
    unit[U_BDPCM_C], unit[U_MODE_C] = n[st.BDPCM_CHROMA], n[st.CHROMA_MODE]
    unit[U_COLOCATED_MODE], unit[U_LFNST], unit[U_MTS] = n[st.COLOCATED_MODE], n[st.LFNST_IDX], n[st.MTS_IDX]
    unit[U_QP], unit[U_CHROMA_QP], unit[U_UNITS] = n[st.QP_Y], n[st.CHROMA_QP_IDX], n[st.UNITS]
    unit[U_ACT], unit[U_VECTOR_X], unit[U_VECTOR_Y] = n[st.ACT_FLAG], n[st.VECTOR_X], n[st.VECTOR_Y]
    unit[U_KERNEL_H], unit[U_KERNEL_V] = n[st.KERNEL_H], n[st.KERNEL_V]
    unit[U_MERGE], unit[U_CIIP] = n[st.MERGE], n[st.CIIP_FLAG]
    unit[U_SUBBLOCK:UNIT_HEADER] = n[st.SUBBLOCK : st.SUBBLOCK + st.MOTION_SIZE]
    if n[st.TREE] == st.DUAL_CHROMA:
        # A chroma block has the QP of the luma block at its centre (clause 8.7.1).
        unit[U_QP] = w.maps[st.CU_QP, (n[st.Y] + n[st.H] // 2) >> 2, (n[st.X] + n[st.W] // 2) >> 2]


@compiled
def begin_transform_unit(
    w: Work, x: int, y: int, width: int, height: int, has_chroma: bool, coded: int, joint: int
) -> int:
    """Append the header of a transform unit, except for the results of its residual.

    Args:
        w: State of the parser.
        x: Column of its first luma sample.
        y: Row of its first luma sample.
        width: Width in luma samples.
        height: Height in luma samples.
        has_chroma: The unit has chroma blocks.
        coded: Coded block flags, one bit for each component.
        joint: tu_joint_cbcr_residual_flag.

    Returns:
        Position of the header in `Work.n`.
    """
    n = w.n
    at: int = n[st.LOG]
    n[st.LOG] += BLOCK_HEADER
    n[st.UNITS] += 1
    unit = n[at:]
    unit[T_X], unit[T_Y], unit[T_W], unit[T_H] = x, y, width, height
    unit[T_CHROMA], unit[T_CODED], unit[T_SKIP] = int(has_chroma), coded, 0
    unit[T_JOINT] = (coded & 2) + (coded >> 2) if joint else 0
    return at


@compiled
def keep_block(w: Work, unit: int, component: int, skip: int, levels: int) -> None:
    """Store the results of one component in the header of a transform unit.

    Args:
        w: State of the parser.
        unit: Position of the header.
        component: 0 Y, 1 Cb, 2 Cr.
        skip: transform_skip_flag.
        levels: Number of levels.
    """
    w.n[unit + T_SKIP] |= skip << component
    w.n[unit + T_LEVELS + component] = levels


@compiled
def keep_level(w: Work, at: int, level: int, odd: int) -> None:
    """Append one level, packed as the level, one bit `odd`, and y and x in five bits each.

    Args:
        w: State of the parser.
        at: Position in the planes of levels.
        level: The level; FAULT_LEVEL is set if it is out of range.
        odd: 1 if dependent quantization used the quantizer of odd multiples (QState > 1).
    """
    n = w.n
    if abs(level) > 1 << n[st.TRANSFORM_RANGE]:
        n[st.FAULT] = st.FAULT_LEVEL
        return
    y, x = at // st.LEVEL_STRIDE - 1, at % st.LEVEL_STRIDE - 1
    n[n[st.LOG]] = level << LEVEL_SHIFT | odd << 10 | y << 5 | x
    n[st.LOG] += 1


@compiled
def keep_palette(w: Work, first: int, last: int, width: int, height: int) -> None:
    """Append the samples of a palette unit.

    Args:
        w: State of the parser.
        first: First component.
        last: Last component + 1.
        width: Width in samples of the first component.
        height: Height in samples of the first component.
    """
    n = w.n
    size = n[st.PALETTE_SIZE]
    for component in range(first, last):
        sub_x, sub_y = (n[st.SUB_WIDTH], n[st.SUB_HEIGHT]) if component and not first else (0, 0)
        for y in range(0, height, 1 << sub_y):
            for x in range(0, width, 1 << sub_x):
                at = 64 * y + x
                index = n[st.INDICES + at]
                if index == size:
                    value = -1 - n[st.ESCAPES + 4096 * component + at]
                else:
                    value = n[st.PALETTE_ENTRIES + st.MAX_PALETTE * component + index]
                n[n[st.LOG]] = value
                n[st.LOG] += 1
