"""Slice headers (H.266 clauses 7.3.7 and 7.4.8)."""

from types import SimpleNamespace

from codecnn.errors import FormatError
from codecnn.vvc.bits import Bits
from codecnn.vvc.nal import CRA, GDR, IDR_N_LP, IDR_W_RADL
from codecnn.vvc.picture_header import no_weights, read_alf, read_deblocking, read_pred_weight_table
from codecnn.vvc.ref_lists import read_ref_pic_lists
from codecnn.vvc.tiles import slice_parts

SLICE_TYPES = ("B", "P", "I")
"""By sh_slice_type (table 9)."""


def read_slice_header(
    r: Bits, nal_type: int, h: SimpleNamespace, sps: SimpleNamespace, pps: SimpleNamespace
) -> SimpleNamespace:
    """slice_header() from behind its picture header `h`: its elements by their names without `sh_`.

    `parts` are the tiles of the slice as `tiles.slice_parts` gives them. The reader then stands at the slice data.
    """
    s = SimpleNamespace()
    r.skip(sps.subpic_id_len)
    _read_address(r, s, h, sps, pps)
    s.slice_type = SLICE_TYPES[r.ue("sh_slice_type", 2)] if h.inter_slice_allowed_flag else "I"
    idr = nal_type in (IDR_W_RADL, IDR_N_LP)
    if idr or nal_type in (CRA, GDR):
        r.skip(1)  # sh_no_output_of_prior_pics_flag
    s.alf = read_alf(r, sps) if sps.alf_enabled_flag and not pps.alf_info_in_ph_flag else h.alf
    if not s.header_in_slice:
        r.skip(h.lmcs_enabled_flag + h.explicit_scaling_list_enabled_flag)
    s.ref_pic_lists = h.ref_pic_lists
    if not pps.rpl_info_in_ph_flag and (not idr or sps.idr_rpl_present_flag):
        s.ref_pic_lists = read_ref_pic_lists(r, sps, pps)
    _read_active_references(r, s, pps)
    s.cabac_init_flag = False
    s.weights = h.weights
    if s.slice_type != "I":
        _read_inter(r, s, h, sps, pps)
    _read_qp(r, s, h, sps, pps)
    s.sao_luma_used_flag, s.sao_chroma_used_flag = h.sao_luma_enabled_flag, h.sao_chroma_enabled_flag
    if sps.sao_enabled_flag and not pps.sao_info_in_ph_flag:
        s.sao_luma_used_flag = r.flag()
        s.sao_chroma_used_flag = sps.chroma_format_idc != 0 and r.flag()
    if pps.deblocking_filter_override_enabled_flag and not pps.dbf_info_in_ph_flag and r.flag():
        read_deblocking(r, pps)
    s.dep_quant_used_flag = sps.dep_quant_enabled_flag and r.flag()
    s.sign_data_hiding_used_flag = sps.sign_data_hiding_enabled_flag and not s.dep_quant_used_flag and r.flag()
    plain = not s.dep_quant_used_flag and not s.sign_data_hiding_used_flag
    s.ts_residual_coding_disabled_flag = sps.transform_skip_enabled_flag and plain and r.flag()
    if pps.slice_header_extension_present_flag:
        r.skip(8 * r.ue("sh_slice_header_extension_length", 256))
    wavefront = sps.entropy_coding_sync_enabled_flag
    entry_points = sum(part.bottom - part.top if wavefront else 1 for part in s.parts) - 1
    if sps.entry_point_offsets_present_flag and entry_points:
        r.skip((r.ue("sh_entry_offset_len_minus1", 31) + 1) * entry_points)
    r.byte_alignment()
    return s


def _read_address(r: Bits, s: SimpleNamespace, h: SimpleNamespace, sps: SimpleNamespace, pps: SimpleNamespace) -> None:
    s.header_in_slice = h.in_slice
    tiles = (len(pps.columns) - 1) * (len(pps.rows) - 1)
    choices = len(pps.slices) if pps.rect_slice_flag else tiles
    s.slice_address = r.u((choices - 1).bit_length())
    if s.slice_address >= choices:
        raise FormatError(f"sh_slice_address is {s.slice_address}, of {choices}")
    r.skip(sps.extra_sh_bits)
    count = 1
    if not pps.rect_slice_flag and tiles - s.slice_address > 1:
        count = r.ue("sh_num_tiles_in_slice_minus1", tiles - 1) + 1
    s.parts = slice_parts(pps, s.slice_address, count)


def _read_active_references(r: Bits, s: SimpleNamespace, pps: SimpleNamespace) -> None:
    """NumRefIdxActive (clause 7.4.8): how many entries of L0 and L1 the slice uses."""
    lists = {"I": 0, "P": 1, "B": 2}[s.slice_type]
    counts = [len(entries) for entries in s.ref_pic_lists]
    override = True
    if any(count > 1 for count in counts[:lists]):
        override = r.flag()
    s.active = [0, 0]
    for i in range(lists):
        if not override:
            s.active[i] = min(counts[i], pps.num_ref_idx_default_active[i])
        elif counts[i] > 1:
            s.active[i] = r.ue("sh_num_ref_idx_active_minus1", 14) + 1
        else:
            s.active[i] = 1
        if not 0 < s.active[i] <= counts[i]:
            raise FormatError(f"{s.active[i]} reference pictures are used of {counts[i]} in list {i}")


def _read_inter(r: Bits, s: SimpleNamespace, h: SimpleNamespace, sps: SimpleNamespace, pps: SimpleNamespace) -> None:
    if pps.cabac_init_present_flag:
        s.cabac_init_flag = r.flag()
    if h.temporal_mvp_enabled_flag and not pps.rpl_info_in_ph_flag:
        from_l0 = s.slice_type == "P" or r.flag()
        if s.active[0 if from_l0 else 1] > 1:
            r.ue("sh_collocated_ref_idx", 14)
    weighted = pps.weighted_pred_flag if s.slice_type == "P" else pps.weighted_bipred_flag
    if not weighted:
        s.weights = no_weights()
    elif not pps.wp_info_in_ph_flag:
        counts = [len(entries) for entries in s.ref_pic_lists]
        s.weights = read_pred_weight_table(r, sps, pps, counts, s.active)


def _read_qp(r: Bits, s: SimpleNamespace, h: SimpleNamespace, sps: SimpleNamespace, pps: SimpleNamespace) -> None:
    delta = h.qp_delta if pps.qp_delta_info_in_ph_flag else r.se("sh_qp_delta", -128, 127)
    s.qp = pps.init_qp + delta
    if not -6 * (sps.bit_depth - 8) <= s.qp <= 63:
        raise FormatError(f"the slice QP is {s.qp}, beyond {-6 * (sps.bit_depth - 8)} to 63")
    if pps.slice_chroma_qp_offsets_present_flag:
        for _ in range(2 + sps.joint_cbcr_enabled_flag):
            r.se("sh_chroma_qp_offset", -12, 12)
    s.cu_chroma_qp_offset_enabled_flag = pps.cu_chroma_qp_offset_list_enabled_flag and r.flag()
