"""Picture parameter sets (H.266 clauses 7.3.2.5 and 7.4.3.5)."""

from types import SimpleNamespace

from codecnn.errors import FormatError, UnsupportedError
from codecnn.vvc.bits import Bits
from codecnn.vvc.sps import read_window
from codecnn.vvc.tiles import read_slices, read_tiles


def read_pps(rbsp: bytes, sps: SimpleNamespace) -> SimpleNamespace:
    """The syntax elements of a picture parameter set by their names without `pps_`, and its tiles and slices in CTUs.

    Raises FormatError for damage, and by name for what this reader does not know.
    """
    r = Bits(rbsp)
    p = SimpleNamespace()
    p.id = r.u(6)
    p.sps_id = r.u(4)
    r.skip(1)  # pps_mixed_nalu_types_in_pic_flag
    p.width = r.ue("pps_pic_width_in_luma_samples", sps.width)
    p.height = r.ue("pps_pic_height_in_luma_samples", sps.height)
    unit = max(8, 1 << sps.log2_min_cb)
    if not p.width or not p.height or p.width % unit or p.height % unit:
        raise FormatError(f"a picture of {p.width}x{p.height} is not made of whole blocks of {unit}")
    p.window = read_window(r, p.width, p.height) if r.flag() else (0, 0, 0, 0)
    if (p.width, p.height) == (sps.width, sps.height):
        p.window = sps.window
    if r.flag():
        for _ in range(4):
            r.se("pps_scaling_win_offset", -(2**20), 2**16)
    p.output_flag_present_flag = r.flag()
    p.no_pic_partition_flag = r.flag()
    if r.flag():  # subpicture ids: one subpicture, as the SPS was checked to have
        if not p.no_pic_partition_flag:
            r.ue("pps_num_subpics_minus1", 0)
        r.skip(r.ue("pps_subpic_id_len_minus1", 15) + 1)
    p.ctbs_wide = -(-p.width >> sps.log2_ctu)
    p.ctbs_high = -(-p.height >> sps.log2_ctu)
    read_tiles(r, p, sps)
    read_slices(r, p)
    p.cabac_init_present_flag = r.flag()
    p.num_ref_idx_default_active = [r.ue("pps_num_ref_idx_default_active_minus1", 14) + 1 for _ in range(2)]
    p.rpl1_idx_present_flag = r.flag()
    p.weighted_pred_flag = r.flag()
    p.weighted_bipred_flag = r.flag()
    if r.flag():
        r.ue("pps_pic_width_minus_wraparound_offset", 2**16)
    _read_qp(r, p, sps)
    _read_deblocking(r, p)
    names = ("rpl_info_in_ph_flag", "sao_info_in_ph_flag", "alf_info_in_ph_flag")
    for name in names:
        setattr(p, name, not p.no_pic_partition_flag and r.flag())
    weighted = p.weighted_pred_flag or p.weighted_bipred_flag
    p.wp_info_in_ph_flag = not p.no_pic_partition_flag and weighted and p.rpl_info_in_ph_flag and r.flag()
    p.qp_delta_info_in_ph_flag = not p.no_pic_partition_flag and r.flag()
    p.picture_header_extension_present_flag = r.flag()
    p.slice_header_extension_present_flag = r.flag()
    if r.flag():
        raise UnsupportedError("it has a PPS extension of a later version, which codecnn does not read")
    return p


def _read_qp(r: Bits, p: SimpleNamespace, sps: SimpleNamespace) -> None:
    p.init_qp = 26 + r.se("pps_init_qp_minus26", -(26 + 6 * (sps.bit_depth - 8)), 37)
    p.cu_qp_delta_enabled_flag = r.flag()
    p.chroma_tool_offsets_present_flag = r.flag()
    p.slice_chroma_qp_offsets_present_flag = p.cu_chroma_qp_offset_list_enabled_flag = False
    p.chroma_qp_offset_list_len = 0
    if not p.chroma_tool_offsets_present_flag:
        return
    offsets = ["pps_cb_qp_offset", "pps_cr_qp_offset"]
    for name in offsets:
        r.se(name, -12, 12)
    if r.flag():
        r.se("pps_joint_cbcr_qp_offset_value", -12, 12)
        offsets.append("pps_joint_cbcr_qp_offset")
    p.slice_chroma_qp_offsets_present_flag = r.flag()
    p.cu_chroma_qp_offset_list_enabled_flag = r.flag()
    if p.cu_chroma_qp_offset_list_enabled_flag:
        p.chroma_qp_offset_list_len = r.ue("pps_chroma_qp_offset_list_len_minus1", 5) + 1
        for _ in range(p.chroma_qp_offset_list_len):
            for name in offsets:
                r.se(name + "_list", -12, 12)


def _read_deblocking(r: Bits, p: SimpleNamespace) -> None:
    p.deblocking_filter_override_enabled_flag = p.deblocking_filter_disabled_flag = p.dbf_info_in_ph_flag = False
    if not r.flag():
        return
    p.deblocking_filter_override_enabled_flag = r.flag()
    p.deblocking_filter_disabled_flag = r.flag()
    if not p.no_pic_partition_flag and p.deblocking_filter_override_enabled_flag:
        p.dbf_info_in_ph_flag = r.flag()
    if not p.deblocking_filter_disabled_flag:
        skip_deblocking_offsets(r, p)


def skip_deblocking_offsets(r: Bits, p: SimpleNamespace) -> None:
    """Beta and tC offsets, of PPS, picture or slice header: of luma and, where the PPS has its own, of Cb and Cr."""
    for _ in range(6 if p.chroma_tool_offsets_present_flag else 2):
        r.se("deblocking_offset_div2", -12, 12)
