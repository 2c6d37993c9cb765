"""Records of the slice parser: values of the slice, arithmetic decoder, coding tree, coding unit, transform block.

Names are those of H.266 in snake case. Positions and sizes are in luma samples unless a name says log2.
"""

from typing import Annotated

from codecnn.base.records import Array, Record
from codecnn.vvc.syntax.contexts import NUM_CONTEXTS
from codecnn.vvc.syntax.log import CodingUnit, MotionVector

LEVEL_STRIDE = 36
"""Columns and rows of a plane of levels: 32x32 levels, a border of one to the left and above, two beyond the others."""

LEVEL_POSITIONS = LEVEL_STRIDE * LEVEL_STRIDE

CODED_STRIDE = 10
"""Columns and rows of a plane of sub-blocks: at most 8x8 with a border of one on each side."""

MAX_PALETTE = 64
"""Entries of palettes and of their predictor: at most 31 and 63."""

PALETTE_STRIDE = 64
"""Columns of the maps of a palette unit of up to 64x64 samples."""

PALETTE_SAMPLES = 64 * PALETTE_STRIDE

MAX_NODES = 128
"""Size of the stack: a tree of 128x128 leaves at most 4 nodes unvisited on each of 5 quadtree and 10 MTT levels."""

MAX_IBC_CANDIDATES = 5
"""Largest number of entries of HmvpIbcCandList."""


class ArithmeticDecoder(Record):
    """State of the arithmetic decoder (9.3.4.3).

    Attributes:
        ivl_curr_range: ivlCurrRange.
        ivl_offset: ivlOffset, 9 bits, and 7 bits read ahead.
        bits_needed: -8 when a byte has just been read ahead, 0 when the next one is needed.
        position: Position of the next byte in the slice data.
        end: Size of the slice data in bytes.
        bins: Hash of the bins so far.
    """

    ivl_curr_range: int
    ivl_offset: int
    bits_needed: int
    position: int
    end: int
    bins: int


class ContextVariable(Record):
    """Context variable (9.3.2.2): two estimates of the probability that a bin is 1, and their adaptation rates.

    Attributes:
        p_state_idx0: pStateIdx0, 10 bits.
        p_state_idx1: pStateIdx1, 14 bits.
        shift0: shift0.
        shift1: shift1.
    """

    p_state_idx0: int
    p_state_idx1: int
    shift0: int
    shift1: int


class EntropyState(Record):
    """State that a row of a wavefront takes over from the row above (9.3.2).

    Attributes:
        variables: Context variables, in the order of `contexts`.
        predictor_palette_size: PredictorPaletteSize of luma or of all components, and of a chroma tree.
        predictor_palette_entries: PredictorPaletteEntries of Y, Cb and Cr.
    """

    variables: Annotated[Array[ContextVariable], NUM_CONTEXTS]
    predictor_palette_size: Annotated[Array[int], 2]
    predictor_palette_entries: Annotated[Array[int], 3, MAX_PALETTE]


class SliceValues(Record):
    """Values of the headers of a slice, and of the parameter sets that it refers to.

    Those from `sps_affine_enabled_flag` on are not set for an I slice.

    Attributes:
        pic_width: pps_pic_width_in_luma_samples.
        pic_height: pps_pic_height_in_luma_samples.
        ctb_log2_size_y: CtbLog2SizeY.
        min_cb_log2_size_y: MinCbLog2SizeY.
        sps_chroma_format_idc: sps_chroma_format_idc.
        log2_sub_width_c: log2 of SubWidthC.
        log2_sub_height_c: log2 of SubHeightC.
        bit_depth: BitDepth.
        is_i: 1 if sh_slice_type is I.
        is_b: 1 if sh_slice_type is B.
        slice_qp_y: SliceQpY.
        sps_qtbtt_dual_tree_intra_flag: sps_qtbtt_dual_tree_intra_flag.
        sps_entropy_coding_sync_enabled_flag: sps_entropy_coding_sync_enabled_flag.
        min_qt_size: MinQtSizeY and MinQtSizeC, by chType as the following three.
        max_bt_size: MaxBtSizeY and MaxBtSizeC.
        max_tt_size: MaxTtSizeY and MaxTtSizeC.
        max_mtt_depth: MaxMttDepthY and MaxMttDepthC.
        max_tb_size_y: MaxTbSizeY.
        max_ts_size: MaxTsSize.
        sps_transform_skip_enabled_flag: sps_transform_skip_enabled_flag.
        sps_bdpcm_enabled_flag: sps_bdpcm_enabled_flag.
        sps_mts_enabled_flag: sps_mts_enabled_flag.
        sps_explicit_mts_intra_enabled_flag: sps_explicit_mts_intra_enabled_flag.
        sps_explicit_mts_inter_enabled_flag: sps_explicit_mts_inter_enabled_flag.
        sps_lfnst_enabled_flag: sps_lfnst_enabled_flag.
        sps_joint_cbcr_enabled_flag: sps_joint_cbcr_enabled_flag.
        sps_sbt_enabled_flag: sps_sbt_enabled_flag.
        sps_isp_enabled_flag: sps_isp_enabled_flag.
        sps_mrl_enabled_flag: sps_mrl_enabled_flag.
        sps_mip_enabled_flag: sps_mip_enabled_flag.
        sps_cclm_enabled_flag: sps_cclm_enabled_flag.
        sps_ibc_enabled_flag: sps_ibc_enabled_flag.
        max_num_ibc_merge_cand: MaxNumIbcMergeCand.
        sps_palette_enabled_flag: sps_palette_enabled_flag.
        sps_act_enabled_flag: sps_act_enabled_flag.
        sps_amvr_enabled_flag: sps_amvr_enabled_flag.
        pps_cu_qp_delta_enabled_flag: pps_cu_qp_delta_enabled_flag.
        cu_qp_delta_subdiv: CuQpDeltaSubdiv.
        sh_cu_chroma_qp_offset_enabled_flag: sh_cu_chroma_qp_offset_enabled_flag.
        cu_chroma_qp_offset_subdiv: CuChromaQpOffsetSubdiv.
        chroma_qp_offset_list_len: pps_chroma_qp_offset_list_len_minus1 + 1, 0 without a list.
        sh_dep_quant_used_flag: sh_dep_quant_used_flag.
        sh_sign_data_hiding_used_flag: sh_sign_data_hiding_used_flag.
        sh_ts_residual_coding_disabled_flag: sh_ts_residual_coding_disabled_flag.
        log2_transform_range: Log2TransformRange.
        ts_residual_coding_rice: sh_ts_residual_coding_rice_idx_minus1 + 1.
        sps_rrc_rice_extension_flag: sps_rrc_rice_extension_flag.
        sum_base_level: 5 * baseLevel of abs_remainder (9.3.3.2).
        sps_persistent_rice_adaptation_enabled_flag: sps_persistent_rice_adaptation_enabled_flag.
        sh_reverse_last_sig_coeff_flag: sh_reverse_last_sig_coeff_flag.
        sh_sao_luma_used_flag: sh_sao_luma_used_flag.
        sh_sao_chroma_used_flag: sh_sao_chroma_used_flag.
        sh_alf_enabled_flag: sh_alf_enabled_flag.
        sh_alf_cb_enabled_flag: sh_alf_cb_enabled_flag.
        sh_alf_cr_enabled_flag: sh_alf_cr_enabled_flag.
        sh_num_alf_aps_ids_luma: sh_num_alf_aps_ids_luma.
        num_alf_chroma_filters: alf_chroma_num_alt_filters_minus1 + 1, 0 without chroma filters.
        num_cc_alf_filters: Number of cross-component filters of Cb and Cr, 0 without them.
        sps_affine_enabled_flag: sps_affine_enabled_flag.
        sps_6param_affine_enabled_flag: sps_6param_affine_enabled_flag.
        sps_affine_amvr_enabled_flag: sps_affine_amvr_enabled_flag.
        smvd_enabled: 1 if the condition of sym_mvd_flag on the slice and its reference picture lists holds.
        sps_mmvd_enabled_flag: sps_mmvd_enabled_flag.
        sps_bcw_enabled_flag: sps_bcw_enabled_flag.
        sps_ciip_enabled_flag: sps_ciip_enabled_flag.
        sps_gpm_enabled_flag: sps_gpm_enabled_flag.
        max_num_merge_cand: MaxNumMergeCand.
        max_num_gpm_merge_cand: MaxNumGpmMergeCand.
        max_num_subblock_merge_cand: MaxNumSubblockMergeCand.
        ph_mvd_l1_zero_flag: ph_mvd_l1_zero_flag.
        no_backward_pred_flag: NoBackwardPredFlag.
        num_ref_idx_active: NumRefIdxActive of L0 and L1.
        weighted: One bit for each entry of L0 and L1 that has a luma_weight_lX_flag or chroma_weight_lX_flag of 1.
    """

    pic_width: int
    pic_height: int
    ctb_log2_size_y: int
    min_cb_log2_size_y: int
    sps_chroma_format_idc: int
    log2_sub_width_c: int
    log2_sub_height_c: int
    bit_depth: int
    is_i: int
    is_b: int
    slice_qp_y: int
    sps_qtbtt_dual_tree_intra_flag: int
    sps_entropy_coding_sync_enabled_flag: int
    min_qt_size: Annotated[Array[int], 2]
    max_bt_size: Annotated[Array[int], 2]
    max_tt_size: Annotated[Array[int], 2]
    max_mtt_depth: Annotated[Array[int], 2]
    max_tb_size_y: int
    max_ts_size: int
    sps_transform_skip_enabled_flag: int
    sps_bdpcm_enabled_flag: int
    sps_mts_enabled_flag: int
    sps_explicit_mts_intra_enabled_flag: int
    sps_explicit_mts_inter_enabled_flag: int
    sps_lfnst_enabled_flag: int
    sps_joint_cbcr_enabled_flag: int
    sps_sbt_enabled_flag: int
    sps_isp_enabled_flag: int
    sps_mrl_enabled_flag: int
    sps_mip_enabled_flag: int
    sps_cclm_enabled_flag: int
    sps_ibc_enabled_flag: int
    max_num_ibc_merge_cand: int
    sps_palette_enabled_flag: int
    sps_act_enabled_flag: int
    sps_amvr_enabled_flag: int
    pps_cu_qp_delta_enabled_flag: int
    cu_qp_delta_subdiv: int
    sh_cu_chroma_qp_offset_enabled_flag: int
    cu_chroma_qp_offset_subdiv: int
    chroma_qp_offset_list_len: int
    sh_dep_quant_used_flag: int
    sh_sign_data_hiding_used_flag: int
    sh_ts_residual_coding_disabled_flag: int
    log2_transform_range: int
    ts_residual_coding_rice: int
    sps_rrc_rice_extension_flag: int
    sum_base_level: int
    sps_persistent_rice_adaptation_enabled_flag: int
    sh_reverse_last_sig_coeff_flag: int
    sh_sao_luma_used_flag: int
    sh_sao_chroma_used_flag: int
    sh_alf_enabled_flag: int
    sh_alf_cb_enabled_flag: int
    sh_alf_cr_enabled_flag: int
    sh_num_alf_aps_ids_luma: int
    num_alf_chroma_filters: int
    num_cc_alf_filters: Annotated[Array[int], 2]
    sps_affine_enabled_flag: int
    sps_6param_affine_enabled_flag: int
    sps_affine_amvr_enabled_flag: int
    smvd_enabled: int
    sps_mmvd_enabled_flag: int
    sps_bcw_enabled_flag: int
    sps_ciip_enabled_flag: int
    sps_gpm_enabled_flag: int
    max_num_merge_cand: int
    max_num_gpm_merge_cand: int
    max_num_subblock_merge_cand: int
    ph_mvd_l1_zero_flag: int
    no_backward_pred_flag: int
    num_ref_idx_active: Annotated[Array[int], 2]
    weighted: Annotated[Array[int], 2]


class Position(Record):
    """Position of the parser in the slice and in its results.

    Attributes:
        num_ctus: Number of CTUs of the slice that are parsed or begun.
        slice_region: Region of tile 0 of the slice (`log.CodingUnit.region`).
        region: Region of the current CTU.
        x_ctb: xCtb, first column of the CTU.
        y_ctb: yCtb, first row of the CTU.
        left_available: The CTU to the left belongs to the same slice and tile.
        above_available: The CTU above belongs to the same slice and tile.
        num_units: Number of coding units of the batch that have a row.
        keep_log: The log is kept.
        log_at: Size of the log.
        unit_at: Position of the header of the current coding unit in the log.
    """

    num_ctus: int
    slice_region: int
    region: int
    x_ctb: int
    y_ctb: int
    left_available: int
    above_available: int
    num_units: int
    keep_log: int
    log_at: int
    unit_at: int


class QuantizationGroup(Record):
    """Current quantization groups of luma and of chroma QP offsets (7.4.12.10, 8.7.1).

    Attributes:
        x: xQg.
        y: yQg.
        begins: The next coding unit is the first of its group.
        first_in_substream: The group is the first of a slice, of a tile or of a row of a wavefront.
        first_in_ctb_row: The group is the first of a row of CTUs in a tile.
        is_cu_qp_delta_coded: IsCuQpDeltaCoded.
        is_cu_chroma_qp_offset_coded: IsCuChromaQpOffsetCoded.
        qp_y: QpY of the last coding unit.
        chroma_qp_offset_idx: cu_chroma_qp_offset_idx + 1, 0 if cu_chroma_qp_offset_flag is 0.
    """

    x: int
    y: int
    begins: int
    first_in_substream: int
    first_in_ctb_row: int
    is_cu_qp_delta_coded: int
    is_cu_chroma_qp_offset_coded: int
    qp_y: int
    chroma_qp_offset_idx: int


class TreeNode(Record):
    """Node of the coding tree (7.3.11.4), at a leaf the coding unit.

    Attributes:
        x: x0.
        y: y0.
        width: cbWidth.
        height: cbHeight.
        tree: treeType: SINGLE, DUAL_LUMA or DUAL_CHROMA, or IMPLICIT above separate trees.
        mode_type: modeType: MODE_ALL, MODE_INTER_ONLY or MODE_INTRA_ONLY.
        qg_on_y: qgOnY.
        qg_on_c: qgOnC.
        cb_subdiv: cbSubdiv.
        cqt_depth: cqtDepth.
        mtt_depth: mttDepth.
        depth_offset: depthOffset.
        part_idx: partIdx.
        parent_split: Split of which the node is a part.
    """

    x: int
    y: int
    width: int
    height: int
    tree: int
    mode_type: int
    qg_on_y: int
    qg_on_c: int
    cb_subdiv: int
    cqt_depth: int
    mtt_depth: int
    depth_offset: int
    part_idx: int
    parent_split: int


class CurrentUnit(CodingUnit):
    """Current coding unit: its header in the log, and what its parsing needs besides.

    Attributes:
        cu_skip_flag: cu_skip_flag.
        cu_sbt_flag: cu_sbt_flag.
        cu_sbt_quad_flag: cu_sbt_quad_flag.
        cu_sbt_horizontal_flag: cu_sbt_horizontal_flag.
        cu_sbt_pos_flag: cu_sbt_pos_flag.
        coded: Components with a coded block, a bit each: 1 Y, 2 Cb, 4 Cr.
        transform_skip: Components with a transform-skip block, a bit each.
        luma_transform_skip: transform_skip_flag of the last luma block.
        joint: Largest value of 2 * tu_cb_coded_flag + tu_cr_coded_flag of blocks with joint coding of chroma.
        prev_tu_cbf_y: prevTuCbfY.
        infer_tu_cbf_luma: InferTuCbfLuma.
        lfnst_dc_only: LfnstDcOnly.
        lfnst_zero_out_sig_coeff_flag: LfnstZeroOutSigCoeffFlag.
        mts_dc_only: MtsDcOnly.
        mts_zero_out_sig_coeff_flag: MtsZeroOutSigCoeffFlag.
    """

    cu_skip_flag: int
    cu_sbt_flag: int
    cu_sbt_quad_flag: int
    cu_sbt_horizontal_flag: int
    cu_sbt_pos_flag: int
    coded: int
    transform_skip: int
    luma_transform_skip: int
    joint: int
    prev_tu_cbf_y: int
    infer_tu_cbf_luma: int
    lfnst_dc_only: int
    lfnst_zero_out_sig_coeff_flag: int
    mts_dc_only: int
    mts_zero_out_sig_coeff_flag: int


class TransformBlock(Record):
    """Current transform block (7.3.11.11, 7.3.11.12).

    A position (x, y) of the planes of levels is LEVEL_STRIDE * (y + 1) + x + 1, a sub-block of `sb_coded_flag`
    CODED_STRIDE * (ys + 1) + xs + 1.

    Attributes:
        width: Width in samples.
        height: Height in samples.
        c_idx: cIdx: 0 Y, 1 Cb, 2 Cr.
        rem_ccbs: RemCcbs, context coded bins left.
        q_state: QState of dependent quantization.
        hist_value: HistValue, substitute for levels outside the block.
        update_hist: 1 until the block has updated StatCoeff.
        abs_level_pass1: AbsLevelPass1.
        abs_level: AbsLevel.
        coeff_sign_level: CoeffSignLevel of a transform-skip block, -1, 0 or 1.
        sb_coded_flag: sb_coded_flag.
    """

    width: int
    height: int
    c_idx: int
    rem_ccbs: int
    q_state: int
    hist_value: int
    update_hist: int
    abs_level_pass1: Annotated[Array[int], LEVEL_POSITIONS]
    abs_level: Annotated[Array[int], LEVEL_POSITIONS]
    coeff_sign_level: Annotated[Array[int], LEVEL_POSITIONS]
    sb_coded_flag: Annotated[Array[int], CODED_STRIDE * CODED_STRIDE]


class Palette(Record):
    """Current palette unit (7.3.11.6, 7.4.12.6); the sample (x, y) of a map is at PALETTE_STRIDE * y + x.

    Attributes:
        current_palette_size: CurrentPaletteSize.
        current_palette_entries: CurrentPaletteEntries of Y, Cb and Cr.
        entry_reuse_flags: PalettePredictorEntryReuseFlags.
        index_map: PaletteIndexMap.
        copy_above: CopyAboveIndicesFlag.
        escape_val: PaletteEscapeVal of Y, Cb and Cr.
    """

    current_palette_size: int
    current_palette_entries: Annotated[Array[int], 3, MAX_PALETTE]
    entry_reuse_flags: Annotated[Array[int], MAX_PALETTE]
    index_map: Annotated[Array[int], PALETTE_SAMPLES]
    copy_above: Annotated[Array[int], PALETTE_SAMPLES]
    escape_val: Annotated[Array[int], 3, PALETTE_SAMPLES]


class Parser(Record):
    """State of the parser of one slice, without its arrays.

    Attributes:
        fault: Fault of the slice data, a value of `state.FAULT_END` and the following; 0 if there is none.
        slice: Values of the headers.
        cabac: Arithmetic decoder.
        entropy: Current context variables and palette predictor.
        wpp: Their copy for the next row of a wavefront.
        initial: Their values at the beginning of a slice or tile.
        stat_coeff: StatCoeff of Y, Cb and Cr.
        current: Position in the slice.
        qg: Current quantization groups.
        node: Current node of the coding tree.
        nodes: Stack of the nodes not yet visited.
        cu: Current coding unit.
        num_hmvp_ibc_cand: NumHmvpIbcCand.
        hmvp_ibc_cand_list: HmvpIbcCandList, oldest first.
        palette: Current palette unit.
        tb: Current transform block.
    """

    fault: int
    slice: SliceValues
    cabac: ArithmeticDecoder
    entropy: EntropyState
    wpp: EntropyState
    initial: EntropyState
    stat_coeff: Annotated[Array[int], 3]
    current: Position
    qg: QuantizationGroup
    node: TreeNode
    nodes: Annotated[Array[TreeNode], MAX_NODES]
    cu: CurrentUnit
    num_hmvp_ibc_cand: int
    hmvp_ibc_cand_list: Annotated[Array[MotionVector], MAX_IBC_CANDIDATES]
    palette: Palette
    tb: TransformBlock
