"""Sequence parameter sets (H.266 clauses 7.3.2.4 and 7.4.3.4), as far as parsing pictures needs them."""

from types import SimpleNamespace

from codecnn.errors import FormatError, UnsupportedError
from codecnn.vvc.bits import Bits
from codecnn.vvc.profile import skip_dpb_parameters, skip_profile_tier_level, skip_timing_hrd
from codecnn.vvc.ref_lists import read_ref_pic_list_struct

MAX_LUMA_SAMPLES = 80_216_064
"""MaxLumaPs of level 6.3, the highest of table A.1; what is larger is taken for damage."""

CHROMA_FORMATS = ("400", "420", "422", "444")


def read_sps(rbsp: bytes) -> SimpleNamespace:
    """The syntax elements of a sequence parameter set by their names without `sps_`, and the sizes derived from them.

    Raises FormatError for damage, and by name for what this reader does not know.
    """
    r = Bits(rbsp)
    s = SimpleNamespace()
    s.id = r.u(4)
    s.vps_id = r.u(4)
    sublayers = r.u(3) + 1
    s.chroma_format_idc = r.u(2)
    s.log2_ctu = r.u(2) + 5
    if s.log2_ctu > 7:
        raise FormatError("sps_log2_ctu_size_minus5 is 3, a size without meaning")
    s.sub_width_log2 = int(s.chroma_format_idc in (1, 2))
    s.sub_height_log2 = int(s.chroma_format_idc == 1)
    dpb_hrd_present = r.flag()
    if dpb_hrd_present:
        skip_profile_tier_level(r, sublayers)
    s.gdr_enabled_flag = r.flag()
    if r.flag():
        s.res_change_in_clvs_allowed_flag = r.flag()
    s.width = r.ue("sps_pic_width_max_in_luma_samples", 2**16 - 1)
    s.height = r.ue("sps_pic_height_max_in_luma_samples", 2**16 - 1)
    if not 0 < s.width * s.height <= MAX_LUMA_SAMPLES:
        raise FormatError(f"pictures of {s.width}x{s.height} are beyond every level")
    s.window = read_window(r, s.width, s.height) if r.flag() else (0, 0, 0, 0)
    _read_subpictures(r, s)
    s.bit_depth = r.ue("sps_bitdepth_minus8", 8) + 8
    s.entropy_coding_sync_enabled_flag = r.flag()
    s.entry_point_offsets_present_flag = r.flag()
    s.log2_max_poc_lsb = r.u(4) + 4
    if s.log2_max_poc_lsb > 16:
        raise FormatError(f"sps_log2_max_pic_order_cnt_lsb_minus4 is {s.log2_max_poc_lsb - 4}, more than 12")
    s.poc_msb_cycle_flag = r.flag()
    s.poc_msb_cycle_len = r.ue("sps_poc_msb_cycle_len_minus1", 31) + 1 if s.poc_msb_cycle_flag else 0
    s.extra_ph_bits = sum(r.flag() for _ in range(8 * r.u(2)))
    s.extra_sh_bits = sum(r.flag() for _ in range(8 * r.u(2)))
    if dpb_hrd_present:
        skip_dpb_parameters(r, sublayers, every=sublayers > 1 and r.flag())
    _read_partition_constraints(r, s)
    _read_transform_tools(r, s)
    _read_filters(r, s)
    _read_reference_lists(r, s)
    _read_inter_tools(r, s)
    _read_intra_tools(r, s)
    _read_rest(r, s, sublayers, dpb_hrd_present)
    return s


def read_window(r: Bits, width: int, height: int) -> tuple[int, int, int, int]:
    """Left, right, top and bottom offset of a conformance window, in chroma units."""
    left, right = (r.ue("conf_win_offset", width) for _ in range(2))
    top, bottom = (r.ue("conf_win_offset", height) for _ in range(2))
    return left, right, top, bottom


def _read_subpictures(r: Bits, s: SimpleNamespace) -> None:
    s.subpic_id_len = 0
    if not r.flag():
        return
    if r.ue("sps_num_subpics_minus1", 10**6) > 0:
        raise UnsupportedError("it has subpictures, which codecnn does not read")
    s.subpic_id_len = r.ue("sps_subpic_id_len_minus1", 15) + 1
    if r.flag() and r.flag():
        r.skip(s.subpic_id_len)


def _read_partition_constraints(r: Bits, s: SimpleNamespace) -> None:
    s.log2_min_cb = r.ue("sps_log2_min_luma_coding_block_size_minus2", min(4, s.log2_ctu - 2)) + 2
    s.partition_constraints_override_enabled_flag = r.flag()
    s.intra_luma = read_constraints(r, s, chroma=False)
    s.qtbtt_dual_tree_intra_flag = s.chroma_format_idc != 0 and r.flag()
    s.intra_chroma = read_constraints(r, s, chroma=True) if s.qtbtt_dual_tree_intra_flag else s.intra_luma
    s.inter = read_constraints(r, s, chroma=False)


def read_constraints(r: Bits, s: SimpleNamespace, chroma: bool) -> tuple[int, int, int, int]:
    """One set of partition constraints, of SPS or picture header.

    They are log2 of the smallest quadtree leaf, the largest MTT depth, and log2 of the largest block for binary and
    for ternary splits.
    """
    top = min(6, s.log2_ctu)
    min_qt = s.log2_min_cb + r.ue("log2_diff_min_qt_min_cb", top - s.log2_min_cb)
    depth = r.ue("max_mtt_hierarchy_depth", 2 * (s.log2_ctu - s.log2_min_cb))
    max_bt = max_tt = min_qt
    if depth:
        max_bt += r.ue("log2_diff_max_bt_min_qt", (top if chroma else s.log2_ctu) - min_qt)
        max_tt += r.ue("log2_diff_max_tt_min_qt", top - min_qt)
    return min_qt, depth, max_bt, max_tt


def _read_transform_tools(r: Bits, s: SimpleNamespace) -> None:
    s.log2_max_tb = 6 if s.log2_ctu > 5 and r.flag() else 5
    s.transform_skip_enabled_flag = r.flag()
    s.log2_max_ts = r.ue("sps_log2_transform_skip_max_size_minus2", 3) + 2 if s.transform_skip_enabled_flag else 0
    s.bdpcm_enabled_flag = s.transform_skip_enabled_flag and r.flag()
    s.mts_enabled_flag = r.flag()
    s.explicit_mts_intra_enabled_flag = s.mts_enabled_flag and r.flag()
    s.explicit_mts_inter_enabled_flag = s.mts_enabled_flag and r.flag()
    s.lfnst_enabled_flag = r.flag()
    s.joint_cbcr_enabled_flag = False
    if s.chroma_format_idc == 0:
        return
    s.joint_cbcr_enabled_flag = r.flag()
    same_table = r.flag()
    for _ in range(1 if same_table else 2 + s.joint_cbcr_enabled_flag):
        r.se("sps_qp_table_start_minus26", -74, 36)
        for _ in range(r.ue("sps_num_points_in_qp_table_minus1", 110) + 1):
            r.ue("sps_delta_qp_in_val_minus1", 255)
            r.ue("sps_delta_qp_diff_val", 255)


def _read_filters(r: Bits, s: SimpleNamespace) -> None:
    s.sao_enabled_flag = r.flag()
    s.alf_enabled_flag = r.flag()
    s.ccalf_enabled_flag = s.alf_enabled_flag and s.chroma_format_idc != 0 and r.flag()
    s.lmcs_enabled_flag = r.flag()


def _read_reference_lists(r: Bits, s: SimpleNamespace) -> None:
    s.weighted_pred_flag = r.flag()
    s.weighted_bipred_flag = r.flag()
    s.long_term_ref_pics_flag = r.flag()
    if s.vps_id > 0 and r.flag():
        raise UnsupportedError("it predicts between layers, which codecnn does not read")
    s.idr_rpl_present_flag = r.flag()
    same_lists = r.flag()
    s.num_ref_pic_lists = [0, 0]
    s.ref_pic_lists = [[], []]
    for i in range(1 if same_lists else 2):
        s.num_ref_pic_lists[i] = r.ue("sps_num_ref_pic_lists", 64)
        s.ref_pic_lists[i] = [read_ref_pic_list_struct(r, s, in_sps=True) for _ in range(s.num_ref_pic_lists[i])]
    if same_lists:
        s.num_ref_pic_lists[1], s.ref_pic_lists[1] = s.num_ref_pic_lists[0], s.ref_pic_lists[0]


def _read_inter_tools(r: Bits, s: SimpleNamespace) -> None:
    r.skip(1)  # sps_ref_wraparound_enabled_flag
    s.temporal_mvp_enabled_flag = r.flag()
    s.sbtmvp_enabled_flag = s.temporal_mvp_enabled_flag and r.flag()
    s.amvr_enabled_flag = r.flag()
    s.bdof_control_present_in_ph_flag = r.flag() and r.flag()
    s.smvd_enabled_flag = r.flag()
    s.dmvr_control_present_in_ph_flag = r.flag() and r.flag()
    s.mmvd_enabled_flag = r.flag()
    s.mmvd_fullpel_only_enabled_flag = s.mmvd_enabled_flag and r.flag()
    s.max_num_merge_cand = 6 - r.ue("sps_six_minus_max_num_merge_cand", 5)
    s.sbt_enabled_flag = r.flag()
    s.affine_enabled_flag = r.flag()
    s.max_num_subblock_merge_cand = 0
    s.six_param_affine_enabled_flag = s.affine_amvr_enabled_flag = s.prof_control_present_in_ph_flag = False
    if s.affine_enabled_flag:
        s.max_num_subblock_merge_cand = 5 - r.ue("sps_five_minus_max_num_subblock_merge_cand", 5)
        s.six_param_affine_enabled_flag = r.flag()
        s.affine_amvr_enabled_flag = s.amvr_enabled_flag and r.flag()
        s.prof_control_present_in_ph_flag = r.flag() and r.flag()
    s.bcw_enabled_flag = r.flag()
    s.ciip_enabled_flag = r.flag()
    s.gpm_enabled_flag = s.max_num_merge_cand >= 2 and r.flag()
    s.max_num_gpm_merge_cand = 2 if s.gpm_enabled_flag else 0
    if s.gpm_enabled_flag and s.max_num_merge_cand >= 3:
        less = r.ue("sps_max_num_merge_cand_minus_max_num_gpm_cand", s.max_num_merge_cand - 2)
        s.max_num_gpm_merge_cand = s.max_num_merge_cand - less
    r.ue("sps_log2_parallel_merge_level_minus2", s.log2_ctu - 2)


def _read_intra_tools(r: Bits, s: SimpleNamespace) -> None:
    s.isp_enabled_flag = r.flag()
    s.mrl_enabled_flag = r.flag()
    s.mip_enabled_flag = r.flag()
    s.cclm_enabled_flag = s.chroma_format_idc != 0 and r.flag()
    if s.chroma_format_idc == 1:
        r.skip(2)  # chroma sample positions
    if r.flag():
        raise UnsupportedError("it allows palette mode, which codecnn does not read")
    if s.chroma_format_idc == 3 and s.log2_max_tb < 6 and r.flag():
        raise UnsupportedError("it allows the adaptive colour transform, which codecnn does not read")
    if s.transform_skip_enabled_flag:
        r.ue("sps_min_qp_prime_ts", 8)
    s.ibc_enabled_flag = r.flag()
    s.max_num_ibc_merge_cand = 6 - r.ue("sps_six_minus_max_num_ibc_merge_cand", 5) if s.ibc_enabled_flag else 0


def _read_rest(r: Bits, s: SimpleNamespace, sublayers: int, dpb_hrd_present: bool) -> None:
    if r.flag():  # luma-adaptive deblocking
        intervals = r.u(2) + 1
        r.se("sps_ladf_lowest_interval_qp_offset", -63, 63)
        for _ in range(intervals):
            r.se("sps_ladf_qp_offset", -63, 63)
            r.ue("sps_ladf_delta_threshold_minus1", 2**17)
    s.explicit_scaling_list_enabled_flag = r.flag()
    if s.lfnst_enabled_flag and s.explicit_scaling_list_enabled_flag:
        r.skip(1)
    s.dep_quant_enabled_flag = r.flag()
    s.sign_data_hiding_enabled_flag = r.flag()
    s.virtual_boundaries_in_ph = False
    if r.flag():
        s.virtual_boundaries_in_ph = not r.flag()
        if not s.virtual_boundaries_in_ph:
            skip_virtual_boundaries(r)
    if dpb_hrd_present and r.flag():
        skip_timing_hrd(r, sublayers)
    r.skip(1)  # sps_field_seq_flag
    if r.flag():
        size = r.ue("sps_vui_payload_size_minus1", 1023) + 1
        r.align()
        r.skip(8 * size)
    if r.flag():
        range_extension, others = r.flag(), r.u(7)
        if others:
            raise UnsupportedError("it has an SPS extension of a later version, which codecnn does not read")
        tools = 4 + s.transform_skip_enabled_flag
        if range_extension and r.u(tools):
            raise UnsupportedError("it uses operation range extensions, which codecnn does not read")


def skip_virtual_boundaries(r: Bits) -> None:
    """The positions of vertical and horizontal virtual boundaries, of SPS or picture header."""
    for _ in range(2):
        for _ in range(r.ue("num_virtual_boundaries", 3)):
            r.ue("virtual_boundary_pos_minus1", 2**13)
