"""Picture headers (H.266 clauses 7.3.2.8 and 7.4.3.8)."""

from types import SimpleNamespace

from codecnn.vvc.bits import Bits
from codecnn.vvc.pps import skip_deblocking_offsets
from codecnn.vvc.ref_lists import read_ref_pic_lists
from codecnn.vvc.sps import read_constraints, skip_virtual_boundaries


def no_alf() -> SimpleNamespace:
    """What `read_alf` gives where ALF is off."""
    return SimpleNamespace(
        alf_enabled_flag=False,
        num_alf_aps_ids_luma=0,
        alf_cb_enabled_flag=False,
        alf_cr_enabled_flag=False,
        alf_aps_id_chroma=0,
        alf_cc_cb_aps_id=None,
        alf_cc_cr_aps_id=None,
    )


def read_pps_id(r: Bits) -> tuple[SimpleNamespace, int]:
    """The beginning of picture_header_structure(): a header to fill, and the id of the PPS the rest depends on."""
    h = SimpleNamespace()
    h.gdr_or_irap_pic_flag = r.flag()
    h.non_ref_pic_flag = r.flag()
    h.gdr_pic_flag = h.gdr_or_irap_pic_flag and r.flag()
    h.inter_slice_allowed_flag = r.flag()
    h.intra_slice_allowed_flag = not h.inter_slice_allowed_flag or r.flag()
    return h, r.ue("ph_pic_parameter_set_id", 63)


def read_picture_header(r: Bits, h: SimpleNamespace, sps: SimpleNamespace, pps: SimpleNamespace) -> None:
    """The rest of picture_header_structure() into `h`, by the names of its elements without `ph_`."""
    h.pic_order_cnt_lsb = r.u(sps.log2_max_poc_lsb)
    if h.gdr_pic_flag:
        r.ue("ph_recovery_poc_cnt", 2**16)
    r.skip(sps.extra_ph_bits)
    h.poc_msb_cycle_val = r.u(sps.poc_msb_cycle_len) if sps.poc_msb_cycle_flag and r.flag() else None
    h.alf = read_alf(r, sps) if sps.alf_enabled_flag and pps.alf_info_in_ph_flag else no_alf()
    h.lmcs_enabled_flag = sps.lmcs_enabled_flag and r.flag()
    if h.lmcs_enabled_flag:
        r.skip(2 + (sps.chroma_format_idc != 0))
    h.explicit_scaling_list_enabled_flag = sps.explicit_scaling_list_enabled_flag and r.flag()
    if h.explicit_scaling_list_enabled_flag:
        r.skip(3)
    if sps.virtual_boundaries_in_ph and r.flag():
        skip_virtual_boundaries(r)
    h.pic_output_flag = not pps.output_flag_present_flag or h.non_ref_pic_flag or r.flag()
    h.ref_pic_lists = read_ref_pic_lists(r, sps, pps) if pps.rpl_info_in_ph_flag else [[], []]
    _read_partition(r, h, sps, pps)
    h.temporal_mvp_enabled_flag = h.mvd_l1_zero_flag = False
    h.weights = no_weights()
    if h.inter_slice_allowed_flag:
        _read_inter(r, h, sps, pps)
    h.qp_delta = r.se("ph_qp_delta", -128, 127) if pps.qp_delta_info_in_ph_flag else 0
    r.skip(sps.joint_cbcr_enabled_flag)
    h.sao_luma_enabled_flag = sps.sao_enabled_flag and pps.sao_info_in_ph_flag and r.flag()
    chroma = sps.chroma_format_idc != 0
    h.sao_chroma_enabled_flag = sps.sao_enabled_flag and pps.sao_info_in_ph_flag and chroma and r.flag()
    if pps.dbf_info_in_ph_flag and r.flag():
        read_deblocking(r, pps)
    if pps.picture_header_extension_present_flag:
        r.skip(8 * r.ue("ph_extension_length", 256))


def read_deblocking(r: Bits, pps: SimpleNamespace) -> None:
    """What follows deblocking_params_present_flag in picture and slice headers; a filter the PPS has off is on here."""
    disabled = not pps.deblocking_filter_disabled_flag and r.flag()
    if not disabled:
        skip_deblocking_offsets(r, pps)


def read_alf(r: Bits, sps: SimpleNamespace) -> SimpleNamespace:
    """The ALF part that picture and slice headers share."""
    alf = no_alf()
    alf.alf_enabled_flag = r.flag()
    if not alf.alf_enabled_flag:
        return alf
    alf.num_alf_aps_ids_luma = r.u(3)
    r.skip(3 * alf.num_alf_aps_ids_luma)
    if sps.chroma_format_idc:
        alf.alf_cb_enabled_flag = r.flag()
        alf.alf_cr_enabled_flag = r.flag()
    if alf.alf_cb_enabled_flag or alf.alf_cr_enabled_flag:
        alf.alf_aps_id_chroma = r.u(3)
    if sps.ccalf_enabled_flag:
        alf.alf_cc_cb_aps_id = r.u(3) if r.flag() else None
        alf.alf_cc_cr_aps_id = r.u(3) if r.flag() else None
    return alf


def _read_partition(r: Bits, h: SimpleNamespace, sps: SimpleNamespace, pps: SimpleNamespace) -> None:
    """Partition constraints, and how far below the CTU QPs may change, of intra and inter slices."""
    override = sps.partition_constraints_override_enabled_flag and r.flag()
    h.intra_luma, h.intra_chroma, h.inter = sps.intra_luma, sps.intra_chroma, sps.inter
    h.intra_subdivs = h.inter_subdivs = (0, 0)
    if h.intra_slice_allowed_flag:
        if override:
            # Unlike in the SPS, log2_diff_max_bt is bounded by 64 samples here where trees are separate.
            h.intra_luma = read_constraints(r, sps, chroma=sps.qtbtt_dual_tree_intra_flag)
            h.intra_chroma = h.intra_luma
            if sps.qtbtt_dual_tree_intra_flag:
                h.intra_chroma = read_constraints(r, sps, chroma=True)
        h.intra_subdivs = _read_subdivs(r, h.intra_luma, sps, pps)
    if h.inter_slice_allowed_flag:
        if override:
            h.inter = read_constraints(r, sps, chroma=False)
        h.inter_subdivs = _read_subdivs(r, h.inter, sps, pps)


def _read_subdivs(
    r: Bits, constraints: tuple[int, int, int, int], sps: SimpleNamespace, pps: SimpleNamespace
) -> tuple[int, int]:
    """CuQpDeltaSubdiv and CuChromaQpOffsetSubdiv of one kind of slice."""
    top = 2 * (sps.log2_ctu - constraints[0] + constraints[1])
    luma = r.ue("ph_cu_qp_delta_subdiv", top) if pps.cu_qp_delta_enabled_flag else 0
    chroma = r.ue("ph_cu_chroma_qp_offset_subdiv", top) if pps.cu_chroma_qp_offset_list_enabled_flag else 0
    return luma, chroma


def _read_inter(r: Bits, h: SimpleNamespace, sps: SimpleNamespace, pps: SimpleNamespace) -> None:
    in_ph = pps.rpl_info_in_ph_flag
    counts = [len(entries) for entries in h.ref_pic_lists]
    h.temporal_mvp_enabled_flag = sps.temporal_mvp_enabled_flag and r.flag()
    if h.temporal_mvp_enabled_flag and in_ph:
        from_l0 = not counts[1] or r.flag()
        if counts[0 if from_l0 else 1] > 1:
            r.ue("ph_collocated_ref_idx", 28)
    r.skip(sps.mmvd_fullpel_only_enabled_flag)
    h.mvd_l1_zero_flag = True
    if not in_ph or counts[1]:
        h.mvd_l1_zero_flag = r.flag()
        r.skip(sps.bdof_control_present_in_ph_flag + sps.dmvr_control_present_in_ph_flag)
    r.skip(sps.prof_control_present_in_ph_flag)
    if pps.wp_info_in_ph_flag:
        h.weights = read_pred_weight_table(r, sps, pps, counts, None)


def no_weights() -> list[list[bool]]:
    """What `read_pred_weight_table` gives where no reference picture is weighted."""
    return [[], []]


def read_pred_weight_table(
    r: Bits, sps: SimpleNamespace, pps: SimpleNamespace, entries: list[int], active: list[int] | None
) -> list[list[bool]]:
    """pred_weight_table() (clause 7.3.8): for the entries of L0 and L1, whether luma or chroma is weighted.

    `entries` are the lengths of the lists; `active`, the numbers of active entries, is None in a picture header.
    """
    chroma = sps.chroma_format_idc != 0
    denominator = r.ue("luma_log2_weight_denom", 7)
    if chroma:
        r.se("delta_chroma_log2_weight_denom", -denominator, 7 - denominator)
    weights: list[list[bool]] = []
    for i in range(2):
        if i == 1 and not (pps.weighted_bipred_flag and entries[1]):
            weights.append([])
            continue
        count = r.ue("num_weights", min(15, entries[i])) if active is None else active[i]
        luma = [r.flag() for _ in range(count)]
        colour = [chroma and r.flag() for _ in range(count)]
        for has_luma, has_colour in zip(luma, colour, strict=True):
            for _ in range(2 * has_luma):
                r.se("luma_weight", -128, 127)
            for _ in range(4 * has_colour):
                r.se("chroma_weight", -512, 508)
        weights.append([a or b for a, b in zip(luma, colour, strict=True)])
    return weights
