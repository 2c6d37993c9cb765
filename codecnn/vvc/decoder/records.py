"""Records of the decoder: values of picture and slice, reference picture lists, motion and its candidates.

Names are those of H.266 in snake case. The two elements of `mv` and `ref_idx` of motion belong to L0 and L1, of
geometric partitions to parts A and B. Vectors are in units of 1/16 luma sample, positions and sizes in luma samples.
"""

from typing import Annotated

from codecnn.base.records import Array, Record
from codecnn.vvc.syntax.log import MotionVector


class PictureValues(Record):
    """Values of SPS and PPS that do not change within a picture, and places in `Frame.planes`.

    Attributes:
        width: pps_pic_width_in_luma_samples.
        height: pps_pic_height_in_luma_samples.
        log2_sub_width_c: log2 of SubWidthC.
        log2_sub_height_c: log2 of SubHeightC.
        sps_chroma_format_idc: sps_chroma_format_idc.
        bit_depth: BitDepth.
        ctb_log2_size_y: CtbLog2SizeY.
        sps_entropy_coding_sync_enabled_flag: sps_entropy_coding_sync_enabled_flag.
        sps_chroma_vertical_collocated_flag: sps_chroma_vertical_collocated_flag.
        log2_transform_range: Log2TransformRange, log2 of the range of coefficients without their sign.
        min_qp_prime_ts: QpPrimeTsMin.
        max_tb_size_y: MaxTbSizeY.
        recon: Position of the reconstruction of Y, Cb and Cr in `Frame.planes`.
        pred: Position of their prediction; that of the reconstruction if it is not kept.
        resid: Position of their residual, -1 if it is not kept.
        stride: Width of Y, Cb and Cr.
        num_ladf_intervals: Number of intervals of the luma adaptive deblocking filter; 0 without it.
        ladf_lower_bound: Luma level that each interval exceeds, SpsLadfIntervalLowerBound.
        ladf_qp_offset: QP offset of each interval.
        chroma_qp_table: ChromaQpTable of Cb, Cr and joint Cb-Cr, from -QpBdOffset on.
    """

    width: int
    height: int
    log2_sub_width_c: int
    log2_sub_height_c: int
    sps_chroma_format_idc: int
    bit_depth: int
    ctb_log2_size_y: int
    sps_entropy_coding_sync_enabled_flag: int
    sps_chroma_vertical_collocated_flag: int
    log2_transform_range: int
    min_qp_prime_ts: int
    max_tb_size_y: int
    recon: Annotated[Array[int], 3]
    pred: Annotated[Array[int], 3]
    resid: Annotated[Array[int], 3]
    stride: Annotated[Array[int], 3]
    num_ladf_intervals: int
    ladf_lower_bound: Annotated[Array[int], 5]
    ladf_qp_offset: Annotated[Array[int], 5]
    chroma_qp_table: Annotated[Array[int], 3, 160]


class Position(Record):
    """Current coding unit and transform block.

    Attributes:
        cu_at: Position of the header of the coding unit in the log.
        region: Slice and tile of the unit (`log.CodingUnit.region`).
        last_x: Last column of the transform block with a level.
        last_y: Last row with a level.
        vpdu_x: Column of the area of 64x64 luma samples that `vpdu_scale` belongs to; -1 at the beginning.
        vpdu_y: Row of that area.
        vpdu_scale: varScale (8.7.5.3).
        fault: Fault of the stream: FAULT_BLOCK_VECTOR, FAULT_REFERENCE or FAULT_SYMMETRIC; 0 if there is none.
    """

    cu_at: int
    region: int
    last_x: int
    last_y: int
    vpdu_x: int
    vpdu_y: int
    vpdu_scale: int
    fault: int


FAULT_BLOCK_VECTOR, FAULT_REFERENCE, FAULT_SYMMETRIC = 1, 2, 3
"""Invalid block vector, missing entry of a reference picture list, and sym_mvd_flag without a pair of references."""


class Motion(Record):
    """Motion of a block, or a motion candidate.

    Attributes:
        mv: mvL0 and mvL1; (0, 0) if the list is unused.
        ref_idx: refIdxL0 and refIdxL1; -1 if the list is unused (predFlagLX = 0).
        bcw_idx: bcwIdx.
        hpel_if_idx: hpelIfIdx.
    """

    mv: Annotated[Array[MotionVector], 2]
    ref_idx: Annotated[Array[int], 2]
    bcw_idx: int
    hpel_if_idx: int


class InterUnit(Record):
    """Motion of the current inter unit.

    Attributes:
        x: xCb.
        y: yCb.
        width: cbWidth.
        height: cbHeight.
        kind: KIND_REGULAR, KIND_AFFINE, KIND_TEMPORAL_SUBBLOCKS or KIND_GEOMETRIC.
        ciip_flag: ciip_flag.
        general_merge_flag: general_merge_flag.
        mmvd_merge_flag: mmvd_merge_flag.
        sym_mvd_flag: sym_mvd_flag.
        motion: Motion. With geometric partitions it is the uni-directional motion of part 0 and 1, not of L0 and L1.
        motion_model_idc: MotionModelIdc, 0 for translation, 1 or 2 for affine motion of four or six parameters.
        cp_mv: Control point vectors cpMvL0 and cpMvL1, of the upper left, upper right and lower left corner.
        merge_gpm_partition_idx: merge_gpm_partition_idx.
        pred_list_flag: predListFlagA and predListFlagB: with geometric partitions the lists of part 0 and 1.
    """

    x: int
    y: int
    width: int
    height: int
    kind: int
    ciip_flag: int
    general_merge_flag: int
    mmvd_merge_flag: int
    sym_mvd_flag: int
    motion: Motion
    motion_model_idc: int
    cp_mv: Annotated[Array[MotionVector], 2, 3]
    merge_gpm_partition_idx: int
    pred_list_flag: Annotated[Array[int], 2]


KIND_REGULAR, KIND_AFFINE, KIND_TEMPORAL_SUBBLOCKS, KIND_GEOMETRIC = range(4)
"""Kinds of motion; vectors of the 4x4 or 8x8 subblocks of the middle two are in `Frame.motion`."""


class Candidates(Record):
    """Candidates from which the motion of the current inter unit is derived.

    Attributes:
        merge_cand_list: mergeCandList; the candidates of regular merge are at most six.
        hmvp_cand_list: HmvpCandList, oldest first: five entries and space for one more.
        num_hmvp_cand: NumHmvpCand.
        hmvp_region: Slice and tile (`log.CodingUnit.region`) that hmvp_cand_list belongs to.
        hmvp_ctb_row: Row of CTUs that hmvp_cand_list belongs to.
        a1: Motion of the neighbour A1; its reference indices are -1 if it is not available.
        b1: Motion of the neighbour B1.
        neighbour: Motion of another neighbour, or of a subblock.
        part: With geometric partitions: motion of part 0, of part 1, and along the line between them.
        corner: Motion at the upper left, upper right, lower left and lower right corner (8.5.5.6).
        ctr: Collocated motion at the centre of the unit (ctrMvL0, ctrMvL1 of 8.5.5.4).
        temp_mv: tempMv of 8.5.5.4, in whole luma samples.
        mv: The last vector that was predicted: mvLXCol, or that of a neighbour.
        mvp_list: mvpListL0 or mvpListL1.
        cp_mv: Three control point vectors of the unit in one list, inherited from a neighbour or from the corners.
        cp_mvp_list: cpMvpListL0 or cpMvpListL1: two predictors of three control points each.
    """

    merge_cand_list: Annotated[Array[Motion], 6]
    hmvp_cand_list: Annotated[Array[Motion], 6]
    num_hmvp_cand: int
    hmvp_region: int
    hmvp_ctb_row: int
    a1: Motion
    b1: Motion
    neighbour: Motion
    part: Annotated[Array[Motion], 3]
    corner: Annotated[Array[Motion], 4]
    ctr: Motion
    temp_mv: MotionVector
    mv: MotionVector
    mvp_list: Annotated[Array[MotionVector], 2]
    cp_mv: Annotated[Array[MotionVector], 3]
    cp_mvp_list: Annotated[Array[MotionVector], 2, 3]


class Weight(Record):
    """Weight and offset of explicit weighted prediction.

    Attributes:
        weight: LumaWeightLX, or ChromaWeightLX.
        offset: luma_offset_lX, or ChromaOffsetLX, scaled to the bit depth.
    """

    weight: int
    offset: int


class RefPicListEntry(Record):
    """Entry of a reference picture list.

    Attributes:
        slot: Slot of the picture in the picture buffer.
        poc: PicOrderCntVal.
        long_term: 1 if it is marked as a long-term reference picture.
        width: Width of the picture; 0 if the entry does not exist.
        height: Height of the picture.
        start: Position of the first sample of Y, Cb and Cr in `Frame.references`.
        stride: Width of Y, Cb and Cr in samples.
        scale_x: RefPicScale[i][j][0], 14 fractional bits.
        scale_y: RefPicScale[i][j][1].
        scaled: RprConstraintsActiveFlag.
        window_left: Left offset of the scaling window of the picture.
        window_top: Top offset of its scaling window.
        weighting: Weight and offset of Y, Cb and Cr; a weight of 1 << denominator and an offset of 0 if none are coded.
        weighted: 1 if luma_weight_lX_flag or chroma_weight_lX_flag is set: BDOF and DMVR depend on the flags.
    """

    slot: int
    poc: int
    long_term: int
    width: int
    height: int
    start: Annotated[Array[int], 3]
    stride: Annotated[Array[int], 3]
    scale_x: int
    scale_y: int
    scaled: int
    window_left: int
    window_top: int
    weighting: Annotated[Array[Weight], 3]
    weighted: int


class SliceValues(Record):
    """Values of the headers of a slice, and of the parameter sets that it refers to.

    Those from `is_b` on are not set for an I slice.

    Attributes:
        loop_filter_across_tiles: pps_loop_filter_across_tiles_enabled_flag.
        loop_filter_across_slices: pps_loop_filter_across_slices_enabled_flag.
        virtual_boundary_pos_x: VirtualBoundaryPosX, 0 if there are fewer than three.
        virtual_boundary_pos_y: VirtualBoundaryPosY.
        sh_dep_quant_used_flag: sh_dep_quant_used_flag.
        ph_joint_cbcr_sign_flag: ph_joint_cbcr_sign_flag.
        chroma_qp_offset: QP offsets of Cb, Cr and joint Cb-Cr of PPS and slice.
        cu_chroma_qp_offset: CuQpOffset of Cb, Cr and joint Cb-Cr by `log.CodingUnit.chroma_qp_offset_idx`.
        sh_explicit_scaling_list_used_flag: sh_explicit_scaling_list_used_flag.
        scaling_matrix_for_lfnst: not sps_scaling_matrix_for_lfnst_disabled_flag.
        scaling_matrix_disabled_for_act: Value of cu_act_enabled_flag whose units have no scaling lists: 0 or 1, by
            sps_scaling_matrix_designated_colour_space_flag; -1 if all units have them.
        scaling_factor: The 28 scaling lists as matrices of 8x8 by row and column; smaller lists repeat their entries.
        scaling_factor_dc: Scaling factor of the DC coefficient by scaling list.
        sh_lmcs_used_flag: sh_lmcs_used_flag.
        chroma_residual_scale: sh_lmcs_used_flag and ph_chroma_residual_scale_flag.
        lmcs_min_bin_idx: lmcs_min_bin_idx.
        lmcs_max_bin_idx: LmcsMaxBinIdx.
        lmcs_pivot: LmcsPivot.
        scale_coeff: ScaleCoeff of the forward luma mapping.
        chroma_scale_coeff: ChromaScaleCoeff.
        is_b: 1 if sh_slice_type is B.
        poc: PicOrderCntVal of the picture.
        num_ref_idx_active: NumRefIdxActive of L0 and L1.
        ref_pic_list: RefPicList.
        bdof_enabled: sps_bdof_enabled_flag and not ph_bdof_disabled_flag.
        dmvr_enabled: sps_dmvr_enabled_flag and not ph_dmvr_disabled_flag.
        prof_enabled: sps_affine_prof_enabled_flag and not ph_prof_disabled_flag.
        weighted_pred_flag: weightedPredFlag: pps_weighted_pred_flag or pps_weighted_bipred_flag.
        log2_weight_denom: luma_log2_weight_denom, then ChromaLog2WeightDenom for Cb and for Cr.
        ph_temporal_mvp_enabled_flag: ph_temporal_mvp_enabled_flag.
        collocated_list: List of the collocated picture, 1 - sh_collocated_from_l0_flag.
        collocated_ref_idx: sh_collocated_ref_idx.
        no_backward_pred_flag: NoBackwardPredFlag of the active entries, the only ones that VTM considers.
        sps_sbtmvp_enabled_flag: sps_sbtmvp_enabled_flag.
        sps_affine_enabled_flag: sps_affine_enabled_flag.
        sps_6param_affine_enabled_flag: sps_6param_affine_enabled_flag.
        max_num_merge_cand: MaxNumMergeCand.
        log2_par_mrg_level: Log2ParMrgLevel.
        ph_mmvd_fullpel_only_flag: ph_mmvd_fullpel_only_flag.
        subpic_treated_as_pic: sps_subpic_treated_as_pic_flag of the subpicture, 0 if there is only one.
        subpic_left: First column of the subpicture if it is treated as a picture, else of the picture.
        subpic_top: First row.
        subpic_right: Last column + 1.
        subpic_bottom: Last row + 1.
        ref_wraparound_offset: Offset of horizontal wraparound, 0 if it is not used.
        window_left: Left offset of the scaling window of the picture.
        window_top: Top offset of its scaling window.
        sps_chroma_horizontal_collocated_flag: sps_chroma_horizontal_collocated_flag.
    """

    loop_filter_across_tiles: int
    loop_filter_across_slices: int
    virtual_boundary_pos_x: Annotated[Array[int], 3]
    virtual_boundary_pos_y: Annotated[Array[int], 3]
    sh_dep_quant_used_flag: int
    ph_joint_cbcr_sign_flag: int
    chroma_qp_offset: Annotated[Array[int], 3]
    cu_chroma_qp_offset: Annotated[Array[int], 7, 3]
    sh_explicit_scaling_list_used_flag: int
    scaling_matrix_for_lfnst: int
    scaling_matrix_disabled_for_act: int
    scaling_factor: Annotated[Array[int], 28, 8, 8]
    scaling_factor_dc: Annotated[Array[int], 28]
    sh_lmcs_used_flag: int
    chroma_residual_scale: int
    lmcs_min_bin_idx: int
    lmcs_max_bin_idx: int
    lmcs_pivot: Annotated[Array[int], 17]
    scale_coeff: Annotated[Array[int], 16]
    chroma_scale_coeff: Annotated[Array[int], 16]
    is_b: int
    poc: int
    num_ref_idx_active: Annotated[Array[int], 2]
    ref_pic_list: Annotated[Array[RefPicListEntry], 2, 16]
    bdof_enabled: int
    dmvr_enabled: int
    prof_enabled: int
    weighted_pred_flag: int
    log2_weight_denom: Annotated[Array[int], 3]
    ph_temporal_mvp_enabled_flag: int
    collocated_list: int
    collocated_ref_idx: int
    no_backward_pred_flag: int
    sps_sbtmvp_enabled_flag: int
    sps_affine_enabled_flag: int
    sps_6param_affine_enabled_flag: int
    max_num_merge_cand: int
    log2_par_mrg_level: int
    ph_mmvd_fullpel_only_flag: int
    subpic_treated_as_pic: int
    subpic_left: int
    subpic_top: int
    subpic_right: int
    subpic_bottom: int
    ref_wraparound_offset: int
    window_left: int
    window_top: int
    sps_chroma_horizontal_collocated_flag: int


INTER_BLOCK = 72 * 72
"""Numbers of a block of inter prediction: 64x64 samples and the neighbours that a filter of eight taps needs."""


class Scratch(Record):
    """Memory for the samples and coefficients of the current block, row by row; its numbers are int32.

    Attributes:
        coefficients: Scaled transform coefficients d.
        half_transformed: Results of the first stage of a transform (e, g), or of LFNST.
        residuals: Residuals of Y, Cb and Cr.
        reference: Reference samples of an intra block from the bottom left over the corner to the top right: unfiltered
            ones (refUnfilt), then filtered ones (p).
        main_reference: ref of an angular mode.
        cclm_luma: Luma of the pairs that the linear model is derived from (pSelDsY).
        cclm_chroma: Their chroma (pSelC).
        mip_input: pTemp, then p of matrix-based prediction.
        resampled: Rows of a scaled reference picture after the horizontal filter.
        half_filtered: Results of the horizontal filter.
        predicted: predSamplesL0 and predSamplesL1 with 14 bits; rows of narrow blocks have the margin of the filters.
        bordered: predSamplesL0 and predSamplesL1 with a border of one sample.
        diff_mv: diffMvL0 and diffMvL1 of PROF, horizontal and vertical, of the samples of a 4x4 subblock.
        gradient_sum: tempH and tempV of BDOF, with a border of one sample like the following.
        gradient_difference: gradientHL0 - gradientHL1 and gradientVL0 - gradientVL1 of BDOF.
        sample_difference: diff of BDOF.
        flow_terms: The terms of each sample that sGx2, sGy2, sGxGy, sGxdI and sGydI of BDOF add up.
        flow_columns: Sums of the terms in six rows by column.
        flow: vx and vy of BDOF by column.
    """

    coefficients: Annotated[Array[int], 64 * 64]
    half_transformed: Annotated[Array[int], 64 * 64]
    residuals: Annotated[Array[Array[int]], 3, 64 * 64]
    reference: Annotated[Array[Array[int]], 2, 640]
    main_reference: Annotated[Array[int], 1280]
    cclm_luma: Annotated[Array[int], 4]
    cclm_chroma: Annotated[Array[int], 4]
    mip_input: Annotated[Array[int], 8]
    resampled: Annotated[Array[int], 2 * INTER_BLOCK]
    half_filtered: Annotated[Array[int], INTER_BLOCK]
    predicted: Annotated[Array[Array[int]], 2, INTER_BLOCK]
    bordered: Annotated[Array[Array[int]], 2, 18 * 18]
    diff_mv: Annotated[Array[int], 2, 2, 16]
    gradient_sum: Annotated[Array[Array[int]], 2, 18 * 18]
    gradient_difference: Annotated[Array[Array[int]], 2, 18 * 18]
    sample_difference: Annotated[Array[int], 18 * 18]
    flow_terms: Annotated[Array[Array[int]], 5, 18 * 18]
    flow_columns: Annotated[Array[Array[int]], 5, 18]
    flow: Annotated[Array[Array[int]], 2, 16]


class Tables(Record):
    """Matrices of transforms and of intra prediction, row by row; its numbers are int32.

    Attributes:
        dct2: transMatrix of DCT-II for 64 samples.
        dst7: transMatrix of DST-VII for 4, 8, 16 and 32 samples.
        dct8: transMatrix of DCT-VIII for 4, 8, 16 and 32 samples.
        lfnst_16: lowFreqTransMatrix of 16 results by set and index.
        lfnst_48: lowFreqTransMatrix of 48 results by set and index.
        mip_weights: mWeight by mipSizeId, mode, result and input.
    """

    dct2: Annotated[Array[int], 64 * 64]
    dst7: Annotated[Array[Array[int]], 4, 32 * 32]
    dct8: Annotated[Array[Array[int]], 4, 32 * 32]
    lfnst_16: Annotated[Array[int], 4, 2, 16, 16]
    lfnst_48: Annotated[Array[int], 4, 2, 16, 48]
    mip_weights: Annotated[Array[int], 3, 16, 64, 8]
