"""Values of slice header, picture header and parameter sets on which the syntax of slice data depends."""

from typing import Annotated

from codecnn.base.records import Array, Record


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
        no_backward_pred_flag: NoBackwardPredFlag of the active entries, the only ones that VTM considers.
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
