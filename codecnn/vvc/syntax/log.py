"""Log of parsed slice data: the syntax elements that reconstruction needs, in decoding order, as one row of numbers.

A coding unit is a header, the record `CodingUnit`, and its transform units. A transform unit is a header, the record
`TransformUnit`, and the non-zero levels of Y, Cb and Cr, one number each, packed as in `log_writer.keep_level`.
"""

from typing import Annotated

from codecnn.base.records import Array, Record, record_dtype


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
"""Bits of a packed level below the level itself, see `log_writer.keep_level`."""
