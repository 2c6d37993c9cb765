"""Log of parsed slice data: the syntax elements that reconstruction needs, in decoding order, as one row of numbers.

A coding unit is a header, the record `CodingUnit`, and its transform units. A transform unit is a header, the record
`TransformUnit`, and the non-zero levels of Y, Cb and Cr, one number each, packed as in `keep_level`.
"""

from typing import Annotated

from codecnn.base.compiled import compiled
from codecnn.base.records import Array, Record, record_at, record_dtype
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.state import Work


class MotionVector(Record):
    """Motion vector, or the difference of two.

    Attributes:
        x: Horizontal component, mvLX[0].
        y: Vertical component, mvLX[1].
    """

    x: int
    y: int


class CodingUnit(Record):
    """Header of a coding unit in the log.

    Positions and sizes are in luma samples. From `ciip_flag` on the fields are 0 unless the unit is an inter unit. In a
    palette unit the samples of each component follow the header row by row, -1 - palette_escape_val for an escape
    value.

    Attributes:
        length: Numbers of the unit in the log, with its transform units.
        x: x0.
        y: y0.
        width: cbWidth.
        height: cbHeight.
        tree: treeType: SINGLE, DUAL_LUMA or DUAL_CHROMA of `state`.
        region: Slice and tile: 1 + tile + (MAX_TILES + 1) * slice.
        pred_mode: CuPredMode: MODE_INTER, MODE_INTRA, MODE_IBC or MODE_PALETTE of `state`.
        intra_pred_mode_y: IntraPredModeY, or intra_mip_mode.
        intra_mip_flag: intra_mip_flag.
        intra_mip_transposed_flag: intra_mip_transposed_flag.
        isp_split_type: IntraSubPartitionsSplitType.
        intra_luma_ref_idx: intra_luma_ref_idx.
        intra_bdpcm_luma_flag: intra_bdpcm_luma_flag.
        intra_bdpcm_chroma_flag: intra_bdpcm_chroma_flag.
        intra_pred_mode_c: IntraPredModeC with CCLM as 67 to 69, or DERIVED_MIP.
        colocated_mode: Luma mode at the centre of a chroma block, with which CCLM selects the LFNST set.
        lfnst_idx: lfnst_idx.
        mts_idx: mts_idx.
        qp_y: QpY.
        chroma_qp_offset_idx: cu_chroma_qp_offset_idx + 1, 0 without offset.
        num_transform_units: Number of transform units.
        cu_act_enabled_flag: cu_act_enabled_flag.
        bv: Block vector of IBC, in luma samples.
        tr_type_hor: trTypeHor of luma.
        tr_type_ver: trTypeVer of luma.
        general_merge_flag: general_merge_flag, also of IBC.
        ciip_flag: ciip_flag.
        subblock_flag: merge_subblock_flag, or inter_affine_flag.
        motion_model_idc: MotionModelIdc of an affine unit without merge: number of control points - 1.
        merge_idx: merge_idx, merge_subblock_idx, mmvd_cand_flag, or merge_gpm_idx0.
        mmvd_merge_flag: mmvd_merge_flag.
        mmvd_distance_idx: mmvd_distance_idx.
        mmvd_direction_idx: mmvd_direction_idx.
        gpm_flag: 1 with geometric partitions.
        merge_gpm_partition_idx: merge_gpm_partition_idx.
        merge_gpm_idx1: merge_gpm_idx1 as coded.
        inter_pred_idc: inter_pred_idc.
        ref_idx: ref_idx_l0 and ref_idx_l1.
        mvp_flag: mvp_l0_flag and mvp_l1_flag.
        sym_mvd_flag: sym_mvd_flag.
        amvr_shift: AmvrShift.
        bcw_idx: bcw_idx.
        mvd: Motion vector differences as coded, of L0 and L1 and of up to three control points.
    """

    length: int
    x: int
    y: int
    width: int
    height: int
    tree: int
    region: int
    pred_mode: int
    intra_pred_mode_y: int
    intra_mip_flag: int
    intra_mip_transposed_flag: int
    isp_split_type: int
    intra_luma_ref_idx: int
    intra_bdpcm_luma_flag: int
    intra_bdpcm_chroma_flag: int
    intra_pred_mode_c: int
    colocated_mode: int
    lfnst_idx: int
    mts_idx: int
    qp_y: int
    chroma_qp_offset_idx: int
    num_transform_units: int
    cu_act_enabled_flag: int
    bv: MotionVector
    tr_type_hor: int
    tr_type_ver: int
    general_merge_flag: int
    ciip_flag: int
    subblock_flag: int
    motion_model_idc: int
    merge_idx: int
    mmvd_merge_flag: int
    mmvd_distance_idx: int
    mmvd_direction_idx: int
    gpm_flag: int
    merge_gpm_partition_idx: int
    merge_gpm_idx1: int
    inter_pred_idc: int
    ref_idx: Annotated[Array[int], 2]
    mvp_flag: Annotated[Array[int], 2]
    sym_mvd_flag: int
    amvr_shift: int
    bcw_idx: int
    mvd: Annotated[Array[MotionVector], 2, 3]


class TransformUnit(Record):
    """Header of a transform unit in the log; the levels of Y, Cb and Cr follow.

    Attributes:
        x: x0, in luma samples as the following.
        y: y0.
        width: tbWidth.
        height: tbHeight.
        has_chroma: 1 if the unit has chroma blocks.
        coded: Coded block flags of Y, Cb and Cr, a bit each.
        joint: 2 if Cb is coded for joint coding of chroma, 1 if Cr is, 3 if both are, 0 without joint coding.
        transform_skip: transform_skip_flag of Y, Cb and Cr, a bit each.
        num_levels: Number of levels of Y, Cb and Cr.
    """

    x: int
    y: int
    width: int
    height: int
    has_chroma: int
    coded: int
    joint: int
    transform_skip: int
    num_levels: Annotated[Array[int], 3]


CODING_UNIT, TRANSFORM_UNIT = record_dtype(CodingUnit), record_dtype(TransformUnit)

UNIT_HEADER, BLOCK_HEADER = CODING_UNIT.itemsize // 8, TRANSFORM_UNIT.itemsize // 8
"""Numbers of the header of a coding unit and of a transform unit."""

CTU_LOG_SIZE = 1 << 18
"""Upper bound of the log of a CTU of 128x128: 3 * 16,384 levels, 2,048 coding units and as many transform units."""

DERIVED_MIP = 70
"""`intra_pred_mode_c` if chroma uses the same MIP matrix as luma: derived mode of 4:4:4 in a single tree."""

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
    cu: CodingUnit = record_at(n, n[st.UNIT_AT], CODING_UNIT)
    cu.length = n[st.LOG] - n[st.UNIT_AT]
    cu.x, cu.y, cu.width, cu.height = n[st.X], n[st.Y], n[st.W], n[st.H]
    cu.tree, cu.region, cu.pred_mode = n[st.TREE], n[st.CTU_REGION], n[st.PRED_MODE]
    cu.intra_pred_mode_y, cu.intra_mip_flag = n[st.INTRA_MODE], n[st.MIP_FLAG]
    cu.intra_mip_transposed_flag = n[st.MIP_TRANSPOSED]
    cu.isp_split_type, cu.intra_luma_ref_idx = n[st.ISP_SPLIT], n[st.MRL_IDX]
    cu.intra_bdpcm_luma_flag, cu.intra_bdpcm_chroma_flag = n[st.BDPCM_LUMA], n[st.BDPCM_CHROMA]
    cu.intra_pred_mode_c, cu.colocated_mode = n[st.CHROMA_MODE], n[st.COLOCATED_MODE]
    cu.lfnst_idx, cu.mts_idx, cu.qp_y = n[st.LFNST_IDX], n[st.MTS_IDX], n[st.QP_Y]
    cu.chroma_qp_offset_idx, cu.num_transform_units = n[st.CHROMA_QP_IDX], n[st.UNITS]
    cu.cu_act_enabled_flag, cu.bv.x, cu.bv.y = n[st.ACT_FLAG], n[st.VECTOR_X], n[st.VECTOR_Y]
    cu.tr_type_hor, cu.tr_type_ver = n[st.KERNEL_H], n[st.KERNEL_V]
    cu.general_merge_flag, cu.ciip_flag = n[st.MERGE], n[st.CIIP_FLAG]
    cu.subblock_flag, cu.motion_model_idc, cu.merge_idx = n[st.SUBBLOCK], n[st.POINTS], n[st.MERGE_IDX]
    cu.mmvd_merge_flag = n[st.MMVD_FLAG]
    cu.mmvd_distance_idx, cu.mmvd_direction_idx = n[st.MMVD_DISTANCE], n[st.MMVD_DIRECTION]
    cu.gpm_flag, cu.merge_gpm_partition_idx, cu.merge_gpm_idx1 = n[st.GPM_FLAG], n[st.GPM_PARTITION], n[st.GPM_SECOND]
    cu.inter_pred_idc, cu.sym_mvd_flag = n[st.DIRECTION], n[st.SYMMETRIC]
    cu.amvr_shift, cu.bcw_idx = n[st.AMVR_SHIFT], n[st.BCW_IDX]
    for list_x in range(2):
        cu.ref_idx[list_x], cu.mvp_flag[list_x] = n[st.REF_IDX + list_x], n[st.MVP + list_x]
        for point in range(3):
            mvd = st.MVDS + 6 * list_x + 2 * point
            cu.mvd[list_x, point].x, cu.mvd[list_x, point].y = n[mvd], n[mvd + 1]
    if n[st.TREE] == st.DUAL_CHROMA:
        # A chroma block has the QP of the luma block at its centre (clause 8.7.1).
        cu.qp_y = w.maps[st.CU_QP, (n[st.Y] + n[st.H] // 2) >> 2, (n[st.X] + n[st.W] // 2) >> 2]


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
    tu: TransformUnit = record_at(n, at, TRANSFORM_UNIT)
    tu.x, tu.y, tu.width, tu.height = x, y, width, height
    tu.has_chroma, tu.coded, tu.transform_skip = int(has_chroma), coded, 0
    tu.joint = (coded & 2) + (coded >> 2) if joint else 0
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
    tu: TransformUnit = record_at(w.n, unit, TRANSFORM_UNIT)
    tu.transform_skip |= skip << component
    tu.num_levels[component] = levels


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
