"""Picture headers (H.266 clauses 7.3.2.8 and 7.4.3.8), and elements that they share with slice headers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from codecnn.vvc.syntax.bitstream import Bits, SyntaxStructure
from codecnn.vvc.syntax.pps import DeblockingOffsets, PictureParameterSet
from codecnn.vvc.syntax.ref_lists import NO_REF_PICS, read_ref_pic_lists
from codecnn.vvc.syntax.sps import PartitionConstraints, SequenceParameterSet, read_virtual_boundaries


class EntryWeights(NamedTuple):
    """Explicit weights of one entry of a reference picture list (clause 7.4.9).

    Attributes:
        weighted: Luma or chroma is weighted.
        values: LumaWeight and luma_offset, then ChromaWeight and ChromaOffset of Cb and of Cr; the offsets are those of
            samples of 8 bit. Weights that the table does not state are 1 << denominator.
    """

    weighted: bool
    values: tuple[int, int, int, int, int, int]


class PredictionWeights(NamedTuple):
    """pred_weight_table().

    Attributes:
        log2_denominator: luma_log2_weight_denom.
        log2_denominator_c: ChromaLog2WeightDenom.
        lists: Weights of the entries of L0 and of L1.
    """

    log2_denominator: int
    log2_denominator_c: int
    lists: tuple[tuple[EntryWeights, ...], tuple[EntryWeights, ...]]


NO_WEIGHTS = PredictionWeights(0, 0, ((), ()))
"""No entry is weighted."""


@dataclass(frozen=True)
class AlfSelection:
    """ALF elements that picture and slice headers share, named without their prefix ph_ or sh_.

    The id of a parameter set is None if it is not used.
    """

    alf_enabled_flag: bool = False
    alf_aps_id_luma: tuple[int, ...] = ()
    alf_cb_enabled_flag: bool = False
    alf_cr_enabled_flag: bool = False
    alf_aps_id_chroma: int | None = None
    alf_cc_cb_aps_id: int | None = None
    alf_cc_cr_aps_id: int | None = None


class PictureHeader(SyntaxStructure):
    """Picture header, picture_header_structure().

    Attributes:
        in_slice: The structure is part of a slice header instead of a NAL unit.
        sps: Active SPS.
        pps: Active PPS.
        alf: ALF elements.
        ref_pic_lists: L0 and L1 if the picture header holds them.
        weights: Weights of the entries of L0 and L1 if the picture header holds them.
        virtual_boundaries: Virtual boundaries of the picture.
        deblocking_offsets: Offsets of the deblocking filter.
        intra_luma: Partition constraints of I slices, of luma if trees are separate.
        intra_chroma: Partition constraints of chroma in I slices.
        inter: Partition constraints of P and B slices.
        intra_subdivs: CuQpDeltaSubdiv and CuChromaQpOffsetSubdiv of I slices.
        inter_subdivs: The same of P and B slices.
    """

    def __init__(
        self,
        r: Bits,
        parameter_sets: Callable[[int], tuple[SequenceParameterSet, PictureParameterSet]],
        in_slice: bool,
    ) -> None:
        """Read a picture header.

        Args:
            r: Reader at ph_gdr_or_irap_pic_flag.
            parameter_sets: Function that returns the SPS and PPS for a ph_pic_parameter_set_id.
            in_slice: The structure is part of a slice header.
        """
        self.in_slice = in_slice
        gdr_or_irap = r.flag()
        self.ph_non_ref_pic_flag = r.flag()
        gdr = gdr_or_irap and r.flag()
        self.ph_inter_slice_allowed_flag = r.flag()
        intra_slice_allowed = not self.ph_inter_slice_allowed_flag or r.flag()
        sps, pps = self.sps, self.pps = parameter_sets(r.ue("ph_pic_parameter_set_id", 63))
        self.ph_pic_order_cnt_lsb = r.u(sps.log2_max_pic_order_cnt_lsb)
        self.ph_recovery_poc_cnt = r.ue("ph_recovery_poc_cnt", 2**16) if gdr else 0
        r.skip(sps.num_extra_ph_bits)
        msb_present = sps.sps_poc_msb_cycle_flag and r.flag()
        self.ph_poc_msb_cycle_val = r.u(sps.poc_msb_cycle_len) if msb_present else None
        self.alf = read_alf(r, sps) if sps.sps_alf_enabled_flag and pps.pps_alf_info_in_ph_flag else AlfSelection()
        self.ph_lmcs_enabled_flag = sps.sps_lmcs_enabled_flag and r.flag()
        self.ph_lmcs_aps_id = r.u(2) if self.ph_lmcs_enabled_flag else 0
        scaled = self.ph_lmcs_enabled_flag and sps.sps_chroma_format_idc != 0
        self.ph_chroma_residual_scale_flag = scaled and r.flag()
        self.ph_explicit_scaling_list_enabled_flag = sps.sps_explicit_scaling_list_enabled_flag and r.flag()
        self.ph_scaling_list_aps_id = r.u(3) if self.ph_explicit_scaling_list_enabled_flag else 0
        self.virtual_boundaries = sps.virtual_boundaries
        if sps.virtual_boundaries_in_ph and r.flag():
            self.virtual_boundaries = read_virtual_boundaries(r)
        self.ph_pic_output_flag = not pps.pps_output_flag_present_flag or self.ph_non_ref_pic_flag or r.flag()
        self.ref_pic_lists = read_ref_pic_lists(r, sps, pps) if pps.pps_rpl_info_in_ph_flag else NO_REF_PICS
        self._read_partition(r, intra_slice_allowed)
        self.ph_temporal_mvp_enabled_flag = self.ph_mvd_l1_zero_flag = self.ph_mmvd_fullpel_only_flag = False
        self.ph_collocated_from_l0_flag, self.ph_collocated_ref_idx = True, 0
        self.ph_bdof_disabled_flag = self.ph_dmvr_disabled_flag = self.ph_prof_disabled_flag = True
        self.weights = NO_WEIGHTS
        if self.ph_inter_slice_allowed_flag:
            self._read_inter(r)
        self.ph_qp_delta = r.se("ph_qp_delta", -128, 127) if pps.pps_qp_delta_info_in_ph_flag else 0
        self.ph_joint_cbcr_sign_flag = sps.sps_joint_cbcr_enabled_flag and r.flag()
        sao = sps.sps_sao_enabled_flag and pps.pps_sao_info_in_ph_flag
        self.ph_sao_luma_enabled_flag = sao and r.flag()
        self.ph_sao_chroma_enabled_flag = sao and sps.sps_chroma_format_idc != 0 and r.flag()
        self.ph_deblocking_filter_disabled_flag = pps.pps_deblocking_filter_disabled_flag
        self.deblocking_offsets = pps.deblocking_offsets
        if pps.pps_dbf_info_in_ph_flag and r.flag():
            self.ph_deblocking_filter_disabled_flag, self.deblocking_offsets = read_deblocking(r, pps)
        if pps.pps_picture_header_extension_present_flag:
            r.skip(8 * r.ue("ph_extension_length", 256))
        self.freeze()

    def _read_partition(self, r: Bits, intra_slice_allowed: bool) -> None:
        """Read partition constraints and the depths down to which QPs change, for intra and inter slices."""
        sps = self.sps
        override = sps.sps_partition_constraints_override_enabled_flag and r.flag()
        self.intra_luma, self.intra_chroma, self.inter = sps.intra_luma, sps.intra_chroma, sps.inter
        self.intra_subdivs = self.inter_subdivs = (0, 0)
        if intra_slice_allowed:
            if override:
                # With separate trees log2_diff_max_bt is limited to 64 samples here, but not in the SPS.
                separate = sps.sps_qtbtt_dual_tree_intra_flag
                self.intra_luma = sps.read_constraints(r, chroma=separate)
                self.intra_chroma = sps.read_constraints(r, chroma=True) if separate else self.intra_luma
            self.intra_subdivs = self._read_subdivs(r, self.intra_luma)
        if self.ph_inter_slice_allowed_flag:
            if override:
                self.inter = sps.read_constraints(r, chroma=False)
            self.inter_subdivs = self._read_subdivs(r, self.inter)

    def _read_subdivs(self, r: Bits, constraints: PartitionConstraints) -> tuple[int, int]:
        """Read CuQpDeltaSubdiv and CuChromaQpOffsetSubdiv of one kind of slice."""
        top = 2 * (self.sps.ctb_log2_size_y - constraints.log2_min_qt + constraints.max_mtt_depth)
        luma = r.ue("ph_cu_qp_delta_subdiv", top) if self.pps.pps_cu_qp_delta_enabled_flag else 0
        chroma = self.pps.pps_cu_chroma_qp_offset_list_enabled_flag
        return luma, r.ue("ph_cu_chroma_qp_offset_subdiv", top) if chroma else 0

    def _read_inter(self, r: Bits) -> None:
        sps, in_ph = self.sps, self.pps.pps_rpl_info_in_ph_flag
        counts = [len(entries) for entries in self.ref_pic_lists]
        self.ph_temporal_mvp_enabled_flag = sps.sps_temporal_mvp_enabled_flag and r.flag()
        if self.ph_temporal_mvp_enabled_flag and in_ph:
            from_l0 = self.ph_collocated_from_l0_flag = not counts[1] or r.flag()
            if counts[0 if from_l0 else 1] > 1:
                self.ph_collocated_ref_idx = r.ue("ph_collocated_ref_idx", counts[0 if from_l0 else 1] - 1)
        self.ph_mmvd_fullpel_only_flag = sps.sps_mmvd_fullpel_only_enabled_flag and r.flag()
        self.ph_mvd_l1_zero_flag = True
        if not in_ph or counts[1]:
            self.ph_mvd_l1_zero_flag = r.flag()
            self.ph_bdof_disabled_flag = sps.sps_bdof_control_present_in_ph_flag and r.flag()
            self.ph_dmvr_disabled_flag = sps.sps_dmvr_control_present_in_ph_flag and r.flag()
        # An absent flag has the value 1 if the SPS announces it; otherwise the SPS alone decides.
        self.ph_bdof_disabled_flag &= sps.sps_bdof_control_present_in_ph_flag
        self.ph_dmvr_disabled_flag &= sps.sps_dmvr_control_present_in_ph_flag
        self.ph_prof_disabled_flag = sps.sps_prof_control_present_in_ph_flag and r.flag()
        if self.pps.pps_wp_info_in_ph_flag:
            self.weights = read_pred_weight_table(r, sps, self.pps, counts, None)


def read_deblocking(r: Bits, pps: PictureParameterSet) -> tuple[bool, DeblockingOffsets]:
    """Read the elements after deblocking_params_present_flag of a picture or slice header.

    Args:
        r: Reader after the flag.
        pps: Active PPS. If it disables the filter, the header enables it.

    Returns:
        True if the deblocking filter is disabled, and its offsets.
    """
    if not pps.pps_deblocking_filter_disabled_flag and r.flag():
        return True, DeblockingOffsets()
    return False, pps.read_deblocking_offsets(r)


def read_alf(r: Bits, sps: SequenceParameterSet) -> AlfSelection:
    """Read the ALF elements that picture and slice headers share."""
    if not r.flag():
        return AlfSelection()
    luma_ids = tuple(r.u(3) for _ in range(r.u(3)))
    chroma = sps.sps_chroma_format_idc != 0
    cb, cr = chroma and r.flag(), chroma and r.flag()
    return AlfSelection(
        alf_enabled_flag=True,
        alf_aps_id_luma=luma_ids,
        alf_cb_enabled_flag=cb,
        alf_cr_enabled_flag=cr,
        alf_aps_id_chroma=r.u(3) if cb or cr else None,
        alf_cc_cb_aps_id=r.u(3) if sps.sps_ccalf_enabled_flag and r.flag() else None,
        alf_cc_cr_aps_id=r.u(3) if sps.sps_ccalf_enabled_flag and r.flag() else None,
    )


def read_pred_weight_table(
    r: Bits, sps: SequenceParameterSet, pps: PictureParameterSet, entries: list[int], active: list[int] | None
) -> PredictionWeights:
    """Read pred_weight_table() (clause 7.3.8) of a picture or slice header.

    Args:
        r: Reader at luma_log2_weight_denom.
        sps: Active SPS.
        pps: Active PPS.
        entries: Number of entries of L0 and of L1.
        active: Number of active entries of each list; None in a picture header, which states the number of weights.

    Returns:
        The table.
    """
    chroma = sps.sps_chroma_format_idc != 0
    denominator = denominator_c = r.ue("luma_log2_weight_denom", 7)
    if chroma:
        denominator_c += r.se("delta_chroma_log2_weight_denom", -denominator, 7 - denominator)
    lists: list[tuple[EntryWeights, ...]] = []
    for i in range(2):
        if i == 1 and not (pps.pps_weighted_bipred_flag and entries[1]):
            lists.append(())
            continue
        count = r.ue("num_weights", min(15, entries[i])) if active is None else active[i]
        luma = [r.flag() for _ in range(count)]
        colour = [chroma and r.flag() for _ in range(count)]
        entries_of_list = []
        for has_luma, has_colour in zip(luma, colour, strict=True):
            values = [1 << denominator, 0, 1 << denominator_c, 0, 1 << denominator_c, 0]
            if has_luma:
                values[0] += r.se("delta_luma_weight", -128, 127)
                values[1] = r.se("luma_offset", -128, 127)
            for at in (2, 4) if has_colour else ():
                values[at] += r.se("delta_chroma_weight", -128, 127)
                # The offset is coded as a difference to the one that keeps the middle of the range (clause 7.4.9).
                offset = 128 + r.se("delta_chroma_offset", -512, 508) - (128 * values[at] >> denominator_c)
                values[at + 1] = min(127, max(-128, offset))
            y, y_offset, cb, cb_offset, cr, cr_offset = values
            weights = (y, y_offset, cb, cb_offset, cr, cr_offset)
            entries_of_list.append(EntryWeights(has_luma or has_colour, weights))
        lists.append(tuple(entries_of_list))
    return PredictionWeights(denominator, denominator_c, (lists[0], lists[1]))
