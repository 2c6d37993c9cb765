"""Initialisation of the slice parser from parameter sets and headers."""

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import FormatError
from codecnn.base.records import Records, new_record
from codecnn.vvc.syntax.aps import AlfFilters
from codecnn.vvc.syntax.contexts import initial_contexts
from codecnn.vvc.syntax.maps import BLOCK_CELL, BlockCell
from codecnn.vvc.syntax.picture_header import AlfSelection
from codecnn.vvc.syntax.pictures import Slice
from codecnn.vvc.syntax.pps import PictureParameterSet
from codecnn.vvc.syntax.records import Parser
from codecnn.vvc.syntax.slice_header import SliceHeader
from codecnn.vvc.syntax.slice_values import SliceValues
from codecnn.vvc.syntax.sps import SequenceParameterSet
from codecnn.vvc.syntax.state import Work


def new_work(part: Slice, data: npt.NDArray[np.uint8], cells: Records, log_size: int) -> Work:
    """Allocate the state for the slice data of a slice.

    Args:
        part: The slice.
        data: Its slice data.
        cells: Properties of the picture's blocks, as in `Work`.
        log_size: Size of the log; 0 keeps no log.

    Raises:
        FormatError: The slice refers to filters that no parameter set has.
    """
    s = new_record(Parser)
    h = part.header
    sps, pps = part.picture_header.sps, part.picture_header.pps
    _put_sps(s.slice, sps)
    _put_header(s.slice, h, pps)
    _put_tree(s.slice, part)
    _put_alf(s.slice, h.alf, part.filters)
    if h.slice_type != "I":
        _put_inter(s.slice, part)
    variables = s.initial.variables
    contexts = initial_contexts(h.slice_type, h.sh_cabac_init_flag, h.slice_qp_y)
    variables["p_state_idx0"], variables["p_state_idx1"], variables["shift0"], variables["shift1"] = contexts
    s.qg.qp_y, s.cabac.end, s.current.keep_log = h.slice_qp_y, len(data), log_size > 0
    unavailable: BlockCell = np.zeros(1, BLOCK_CELL)[0]
    # No block is larger, so that a neighbour which is not available does not count as smaller.
    unavailable.cb_width[:] = unavailable.cb_height[:] = 128
    return Work(s, data, cells, unavailable, np.zeros(log_size, np.int64))


def _put_sps(v: SliceValues, sps: SequenceParameterSet) -> None:
    v.ctb_log2_size_y, v.min_cb_log2_size_y = sps.ctb_log2_size_y, sps.min_cb_log2_size_y
    v.sps_chroma_format_idc, v.bit_depth = sps.sps_chroma_format_idc, sps.bit_depth
    v.log2_sub_width_c, v.log2_sub_height_c = sps.log2_sub_width_c, sps.log2_sub_height_c
    v.sps_qtbtt_dual_tree_intra_flag = sps.sps_qtbtt_dual_tree_intra_flag
    v.sps_entropy_coding_sync_enabled_flag = sps.sps_entropy_coding_sync_enabled_flag
    v.max_tb_size_y, v.max_ts_size = 1 << sps.max_tb_log2_size_y, 1 << sps.log2_max_ts_size
    v.sps_transform_skip_enabled_flag = sps.sps_transform_skip_enabled_flag
    v.sps_bdpcm_enabled_flag = sps.sps_bdpcm_enabled_flag
    v.sps_mts_enabled_flag, v.sps_lfnst_enabled_flag = sps.sps_mts_enabled_flag, sps.sps_lfnst_enabled_flag
    v.sps_explicit_mts_intra_enabled_flag = sps.sps_explicit_mts_intra_enabled_flag
    v.sps_explicit_mts_inter_enabled_flag = sps.sps_explicit_mts_inter_enabled_flag
    v.sps_joint_cbcr_enabled_flag, v.sps_sbt_enabled_flag = sps.sps_joint_cbcr_enabled_flag, sps.sps_sbt_enabled_flag
    v.sps_isp_enabled_flag, v.sps_mrl_enabled_flag = sps.sps_isp_enabled_flag, sps.sps_mrl_enabled_flag
    v.sps_mip_enabled_flag, v.sps_cclm_enabled_flag = sps.sps_mip_enabled_flag, sps.sps_cclm_enabled_flag
    v.sps_ibc_enabled_flag, v.max_num_ibc_merge_cand = sps.sps_ibc_enabled_flag, sps.max_num_ibc_merge_cand
    v.sps_palette_enabled_flag, v.sps_act_enabled_flag = sps.sps_palette_enabled_flag, sps.sps_act_enabled_flag
    v.sps_amvr_enabled_flag = sps.sps_amvr_enabled_flag
    v.log2_transform_range = sps.log2_transform_range
    v.sps_rrc_rice_extension_flag = sps.sps_rrc_rice_extension_flag
    v.sps_persistent_rice_adaptation_enabled_flag = sps.sps_persistent_rice_adaptation_enabled_flag


def _put_header(v: SliceValues, h: SliceHeader, pps: PictureParameterSet) -> None:
    v.pic_width, v.pic_height = pps.pps_pic_width_in_luma_samples, pps.pps_pic_height_in_luma_samples
    v.is_i, v.is_b, v.slice_qp_y = h.slice_type == "I", h.slice_type == "B", h.slice_qp_y
    v.pps_cu_qp_delta_enabled_flag = pps.pps_cu_qp_delta_enabled_flag
    v.sh_cu_chroma_qp_offset_enabled_flag = h.sh_cu_chroma_qp_offset_enabled_flag
    v.chroma_qp_offset_list_len = pps.chroma_qp_offset_list_len
    v.sh_dep_quant_used_flag = h.sh_dep_quant_used_flag
    v.sh_sign_data_hiding_used_flag = h.sh_sign_data_hiding_used_flag
    v.sh_ts_residual_coding_disabled_flag = h.sh_ts_residual_coding_disabled_flag
    v.ts_residual_coding_rice = h.ts_residual_coding_rice
    v.sum_base_level = 5 * 4
    if v.sps_rrc_rice_extension_flag:
        v.sum_base_level = (5 if v.is_i else 10) + (5 if v.bit_depth <= 12 else 0)
    v.sh_reverse_last_sig_coeff_flag = h.sh_reverse_last_sig_coeff_flag
    v.sh_sao_luma_used_flag, v.sh_sao_chroma_used_flag = h.sh_sao_luma_used_flag, h.sh_sao_chroma_used_flag


def _put_tree(v: SliceValues, part: Slice) -> None:
    ph = part.picture_header
    intra = part.header.slice_type == "I"
    luma, chroma = (ph.intra_luma, ph.intra_chroma) if intra else (ph.inter, ph.inter)
    for ch_type, limits in enumerate((luma, chroma)):
        v.min_qt_size[ch_type], v.max_mtt_depth[ch_type] = 1 << limits.log2_min_qt, limits.max_mtt_depth
        v.max_bt_size[ch_type], v.max_tt_size[ch_type] = 1 << limits.log2_max_bt, 1 << limits.log2_max_tt
    v.cu_qp_delta_subdiv, v.cu_chroma_qp_offset_subdiv = ph.intra_subdivs if intra else ph.inter_subdivs


def _put_alf(v: SliceValues, alf: AlfSelection, filters: dict[int, AlfFilters]) -> None:
    names = ("chroma", "cc_cb", "cc_cr")
    used = (alf.alf_aps_id_chroma, alf.alf_cc_cb_aps_id, alf.alf_cc_cr_aps_id)
    wanted = [*(("luma", number) for number in alf.alf_aps_id_luma), *zip(names, used, strict=True)]
    for name, number in wanted:
        if number is not None and not (number in filters and len(getattr(filters[number], name))):
            raise FormatError(f"there is no ALF parameter set {number} with {name} filters")
    counts = [0 if number is None else len(getattr(filters[number], name)) for name, number in wanted[-3:]]
    v.sh_alf_enabled_flag, v.sh_num_alf_aps_ids_luma = alf.alf_enabled_flag, len(alf.alf_aps_id_luma)
    v.sh_alf_cb_enabled_flag, v.sh_alf_cr_enabled_flag = alf.alf_cb_enabled_flag, alf.alf_cr_enabled_flag
    v.num_alf_chroma_filters, v.num_cc_alf_filters[:] = counts[0], counts[1:]


def _put_inter(v: SliceValues, part: Slice) -> None:
    h, ph, sps = part.header, part.picture_header, part.picture_header.sps
    v.sps_affine_enabled_flag = sps.sps_affine_enabled_flag
    v.sps_6param_affine_enabled_flag = sps.sps_6param_affine_enabled_flag
    v.sps_affine_amvr_enabled_flag, v.sps_mmvd_enabled_flag = (
        sps.sps_affine_amvr_enabled_flag,
        sps.sps_mmvd_enabled_flag,
    )
    v.smvd_enabled = sps.sps_smvd_enabled_flag and not ph.ph_mvd_l1_zero_flag and _has_symmetric_references(part)
    v.sps_bcw_enabled_flag, v.sps_ciip_enabled_flag = sps.sps_bcw_enabled_flag, sps.sps_ciip_enabled_flag
    v.sps_gpm_enabled_flag = sps.sps_gpm_enabled_flag
    v.max_num_merge_cand, v.max_num_gpm_merge_cand = sps.max_num_merge_cand, sps.max_num_gpm_merge_cand
    v.max_num_subblock_merge_cand = sps.max_num_subblock_merge_cand
    if not sps.sps_affine_enabled_flag:
        # MaxNumSubblockMergeCand without affine: sub-block temporal prediction is the only candidate.
        v.max_num_subblock_merge_cand = sps.sps_sbtmvp_enabled_flag and ph.ph_temporal_mvp_enabled_flag
    v.ph_mvd_l1_zero_flag = ph.ph_mvd_l1_zero_flag
    v.no_backward_pred_flag = part.no_backward_pred_flag
    v.num_ref_idx_active[:] = h.num_ref_idx_active
    for list_x, entries in enumerate(h.weights.lists):
        v.weighted[list_x] = sum(entry.weighted << i for i, entry in enumerate(entries))


def _has_symmetric_references(part: Slice) -> bool:
    """Return True if RefIdxSymL0 and RefIdxSymL1 exist.

    Part of clause 8.3.5, Decoding process for symmetric motion vector difference reference indices.

    They need short-term pictures, those of one list before and those of the other after the current picture.
    """
    if part.header.slice_type != "B":
        return False
    before = [any(poc < part.poc and not long for long, poc in entries) for entries in part.references]
    after = [any(poc > part.poc and not long for long, poc in entries) for entries in part.references]
    return (before[0] and after[1]) or (before[1] and after[0])
