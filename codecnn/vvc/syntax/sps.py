"""Sequence parameter sets (H.266 clauses 7.3.2.4 and 7.4.3.4), as far as parsing pictures needs them."""

from itertools import pairwise
from typing import NamedTuple

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError, UnsupportedError
from codecnn.vvc.syntax.bitstream import Bits, SyntaxStructure
from codecnn.vvc.syntax.tiles import Subpicture, read_subpictures

MAX_LUMA_SAMPLES = 80_216_064
"""MaxLumaPs of level 6.3, the highest of table A.1; a larger picture is treated as damage."""

MAX_SLICES = 1000
"""MaxSlicesPerAu of level 6.3 (table A.1), the largest of all levels."""

MAX_DPB_SIZE = 16
"""Upper bound of the pictures in the decoded picture buffer: 2 * maxDpbPicBuf (clause A.4.2)."""

MAX_REF_ENTRIES = 29
"""Upper bound of num_ref_entries: MaxDpbSize + 13, where MaxDpbSize is 16."""

CHROMA_FORMATS = ("400", "420", "422", "444")
"""Chroma formats in the order of sps_chroma_format_idc (table 2)."""


class ConformanceWindow(NamedTuple):
    """Margins that a decoder crops from a picture.

    Attributes:
        left: Columns cropped on the left, in units of SubWidthC luma samples.
        right: Columns cropped on the right, in the same unit.
        top: Rows cropped at the top, in units of SubHeightC luma samples.
        bottom: Rows cropped at the bottom, in the same unit.
    """

    left: int = 0
    right: int = 0
    top: int = 0
    bottom: int = 0


class PartitionConstraints(NamedTuple):
    """Limits of the block partition (clause 7.4.3.4).

    Attributes:
        log2_min_qt: log2 of the smallest quadtree leaf in luma samples.
        max_mtt_depth: Largest depth of the multi-type tree below a quadtree leaf.
        log2_max_bt: log2 of the largest block that a binary split divides.
        log2_max_tt: log2 of the largest block that a ternary split divides.
    """

    log2_min_qt: int
    max_mtt_depth: int
    log2_max_bt: int
    log2_max_tt: int


class DpbParameters(NamedTuple):
    """Parameters of the decoded picture buffer (clause 7.4.5).

    Attributes:
        size: Number of pictures that the buffer holds, the current one included.
        reorder: Largest number of pictures that precede a picture in decoding order and follow it in output order.
        latency_plus1: dpb_max_latency_increase_plus1; 0 sets no limit.
    """

    size: int
    reorder: int
    latency_plus1: int


VirtualBoundaries = tuple[tuple[int, ...], tuple[int, ...]]
"""Columns and rows of luma samples across whose left or upper edge no in-loop filter reaches."""

NO_BOUNDARIES: VirtualBoundaries = ((), ())

RefPicListStruct = tuple[tuple[bool, int | None], ...]
"""ref_pic_list_struct() (clause 7.3.10): entries (is long-term, POC difference or LSBs of the POC).

The LSBs of a long-term entry are None if the picture or slice header holds them (ltrp_in_header_flag).
"""


class SequenceParameterSet(SyntaxStructure):
    """Sequence parameter set, seq_parameter_set_rbsp().

    Raises:
        FormatError: The data is damaged.
        UnsupportedError: A tool is used that this parser does not support; the message names it.
    """

    def __init__(self, rbsp: bytes) -> None:
        r = Bits(rbsp)
        self.sps_seq_parameter_set_id = r.u(4)
        self.sps_video_parameter_set_id = r.u(4)
        sublayers = r.u(3) + 1
        self.sps_chroma_format_idc = r.u(2)
        self.ctb_log2_size_y = r.u(2) + 5
        if self.ctb_log2_size_y > 7:
            raise FormatError("sps_log2_ctu_size_minus5 is 3, which is reserved")
        self.log2_sub_width_c = int(self.sps_chroma_format_idc in (1, 2))
        self.log2_sub_height_c = int(self.sps_chroma_format_idc == 1)
        ptl_dpb_hrd_params_present = r.flag()
        if ptl_dpb_hrd_params_present:
            skip_profile_tier_level(r, sublayers)
        r.skip(1)  # sps_gdr_enabled_flag
        if r.flag():  # sps_ref_pic_resampling_enabled_flag
            r.skip(1)  # sps_res_change_in_clvs_allowed_flag
        width = self.sps_pic_width_max_in_luma_samples = r.ue("sps_pic_width_max_in_luma_samples", 2**16 - 1)
        height = self.sps_pic_height_max_in_luma_samples = r.ue("sps_pic_height_max_in_luma_samples", 2**16 - 1)
        if not 0 < width * height <= MAX_LUMA_SAMPLES:
            raise FormatError(f"pictures of {width}x{height} exceed the limit of every level")
        self.conformance_window = read_window(r, width, height)
        self._read_subpictures(r)
        self.bit_depth = r.ue("sps_bitdepth_minus8", 8) + 8
        self.sps_entropy_coding_sync_enabled_flag = r.flag()
        self.sps_entry_point_offsets_present_flag = r.flag()
        self.log2_max_pic_order_cnt_lsb = r.u(4) + 4
        if self.log2_max_pic_order_cnt_lsb > 16:
            text = f"sps_log2_max_pic_order_cnt_lsb_minus4 is {self.log2_max_pic_order_cnt_lsb - 4}, more than 12"
            raise FormatError(text)
        self.sps_poc_msb_cycle_flag = r.flag()
        self.poc_msb_cycle_len = r.ue("sps_poc_msb_cycle_len_minus1", 31) + 1 if self.sps_poc_msb_cycle_flag else 0
        self.num_extra_ph_bits = sum(r.flag() for _ in range(8 * r.u(2)))
        self.num_extra_sh_bits = sum(r.flag() for _ in range(8 * r.u(2)))
        self.dpb = DpbParameters(MAX_DPB_SIZE, MAX_DPB_SIZE, 0)
        if ptl_dpb_hrd_params_present:
            self.dpb = read_dpb_parameters(r, sublayers, all_sublayers=sublayers > 1 and r.flag())
        self._read_partition_constraints(r)
        self._read_transform_tools(r)
        self._read_filters(r)
        self._read_reference_lists(r)
        self._read_inter_tools(r)
        self._read_intra_tools(r)
        self._read_quantization(r)
        self._read_rest(r, sublayers, ptl_dpb_hrd_params_present)
        self.freeze()

    def _read_subpictures(self, r: Bits) -> None:
        size = 1 << self.ctb_log2_size_y
        wide = ceil_div(self.sps_pic_width_max_in_luma_samples, size)
        high = ceil_div(self.sps_pic_height_max_in_luma_samples, size)
        self.subpic_id_len = 0
        self.subpictures: tuple[Subpicture, ...] = (Subpicture(0, 0, wide, high, True),)
        self.subpic_ids: tuple[int, ...] = (0,)
        if not r.flag():
            return
        count = r.ue("sps_num_subpics_minus1", min(wide * high, MAX_SLICES) - 1) + 1
        if count > 1:
            self.subpictures = read_subpictures(r, count, wide, high)
        self.subpic_id_len = r.ue("sps_subpic_id_len_minus1", 15) + 1
        self.subpic_ids = tuple(range(count))
        if r.flag() and r.flag():
            self.subpic_ids = tuple(r.u(self.subpic_id_len) for _ in range(count))

    def _read_partition_constraints(self, r: Bits) -> None:
        top = min(4, self.ctb_log2_size_y - 2)
        self.min_cb_log2_size_y = r.ue("sps_log2_min_luma_coding_block_size_minus2", top) + 2
        self.sps_partition_constraints_override_enabled_flag = r.flag()
        self.intra_luma = self.read_constraints(r, chroma=False)
        self.sps_qtbtt_dual_tree_intra_flag = self.sps_chroma_format_idc != 0 and r.flag()
        separate = self.sps_qtbtt_dual_tree_intra_flag
        self.intra_chroma = self.read_constraints(r, chroma=True) if separate else self.intra_luma
        self.inter = self.read_constraints(r, chroma=False)

    def read_constraints(self, r: Bits, chroma: bool) -> PartitionConstraints:
        """Read one set of partition constraints of the SPS or a picture header.

        Args:
            r: Reader at the first element, log2_diff_min_qt_min_cb.
            chroma: The constraints are those of a separate chroma tree.

        Returns:
            The constraints.
        """
        top = min(6, self.ctb_log2_size_y)
        min_qt = self.min_cb_log2_size_y + r.ue("log2_diff_min_qt_min_cb", top - self.min_cb_log2_size_y)
        depth = r.ue("max_mtt_hierarchy_depth", 2 * (self.ctb_log2_size_y - self.min_cb_log2_size_y))
        max_bt = max_tt = min_qt
        if depth:
            max_bt += r.ue("log2_diff_max_bt_min_qt", (top if chroma else self.ctb_log2_size_y) - min_qt)
            max_tt += r.ue("log2_diff_max_tt_min_qt", top - min_qt)
        return PartitionConstraints(min_qt, depth, max_bt, max_tt)

    def _read_transform_tools(self, r: Bits) -> None:
        self.max_tb_log2_size_y = 6 if self.ctb_log2_size_y > 5 and r.flag() else 5
        skip = self.sps_transform_skip_enabled_flag = r.flag()
        self.log2_max_ts_size = r.ue("sps_log2_transform_skip_max_size_minus2", 3) + 2 if skip else 0
        self.sps_bdpcm_enabled_flag = skip and r.flag()
        self.sps_mts_enabled_flag = r.flag()
        self.sps_explicit_mts_intra_enabled_flag = self.sps_mts_enabled_flag and r.flag()
        self.sps_explicit_mts_inter_enabled_flag = self.sps_mts_enabled_flag and r.flag()
        self.sps_lfnst_enabled_flag = r.flag()
        self.sps_joint_cbcr_enabled_flag = self.sps_chroma_format_idc != 0 and r.flag()
        self.chroma_qp_tables: tuple[tuple[int, ...], ...] = ()
        if self.sps_chroma_format_idc == 0:
            return
        same_qp_table_for_chroma = r.flag()
        tables = [
            read_chroma_qp_table(r, 6 * (self.bit_depth - 8))
            for _ in range(1 if same_qp_table_for_chroma else 2 + self.sps_joint_cbcr_enabled_flag)
        ]
        self.chroma_qp_tables = tuple((tables * 3)[:3] if same_qp_table_for_chroma else tables)

    def _read_filters(self, r: Bits) -> None:
        self.sps_sao_enabled_flag = r.flag()
        self.sps_alf_enabled_flag = r.flag()
        self.sps_ccalf_enabled_flag = self.sps_alf_enabled_flag and self.sps_chroma_format_idc != 0 and r.flag()
        self.sps_lmcs_enabled_flag = r.flag()

    def _read_reference_lists(self, r: Bits) -> None:
        self.sps_weighted_pred_flag = r.flag()
        self.sps_weighted_bipred_flag = r.flag()
        self.sps_long_term_ref_pics_flag = r.flag()
        if self.sps_video_parameter_set_id > 0 and r.flag():
            raise UnsupportedError("it uses inter-layer prediction, which codecnn does not support")
        self.sps_idr_rpl_present_flag = r.flag()
        rpl1_same_as_rpl0 = r.flag()
        lists = [
            [self.read_ref_pic_list_struct(r, in_sps=True) for _ in range(r.ue("sps_num_ref_pic_lists", 64))]
            for _ in range(1 if rpl1_same_as_rpl0 else 2)
        ]
        self.ref_pic_lists = (tuple(lists[0]), tuple(lists[-1]))

    def read_ref_pic_list_struct(self, r: Bits, in_sps: bool) -> RefPicListStruct:
        """Read ref_pic_list_struct() of the SPS or of a picture or slice header (clauses 7.3.10 and 7.4.11).

        Args:
            r: Reader at num_ref_entries.
            in_sps: The structure is part of the SPS.

        Returns:
            The entries of the list.
        """
        count = r.ue("num_ref_entries", MAX_REF_ENTRIES)
        long_term = self.sps_long_term_ref_pics_flag
        ltrp_in_header = r.flag() if long_term and in_sps and count else not in_sps
        entries: list[tuple[bool, int | None]] = []
        delta = 0
        for i in range(count):
            if long_term and not r.flag():
                entries.append((True, None if ltrp_in_header else r.u(self.log2_max_pic_order_cnt_lsb)))
                continue
            # AbsDeltaPocSt (clause 7.4.11): without weighted prediction a list holds no picture twice, so 0 means 1.
            difference = r.ue("abs_delta_poc_st", 2**15 - 1)
            if not (self.sps_weighted_pred_flag or self.sps_weighted_bipred_flag) or i == 0:
                difference += 1
            # strp_entry_sign_flag is 1 if the picture precedes the one that the difference refers to.
            delta += -difference if difference and r.flag() else difference
            entries.append((False, delta))
        return tuple(entries)

    def _read_inter_tools(self, r: Bits) -> None:
        self.sps_ref_wraparound_enabled_flag = r.flag()
        self.sps_temporal_mvp_enabled_flag = r.flag()
        self.sps_sbtmvp_enabled_flag = self.sps_temporal_mvp_enabled_flag and r.flag()
        self.sps_amvr_enabled_flag = r.flag()
        self.sps_bdof_enabled_flag = r.flag()
        self.sps_bdof_control_present_in_ph_flag = self.sps_bdof_enabled_flag and r.flag()
        self.sps_smvd_enabled_flag = r.flag()
        self.sps_dmvr_enabled_flag = r.flag()
        self.sps_dmvr_control_present_in_ph_flag = self.sps_dmvr_enabled_flag and r.flag()
        self.sps_mmvd_enabled_flag = r.flag()
        self.sps_mmvd_fullpel_only_enabled_flag = self.sps_mmvd_enabled_flag and r.flag()
        self.max_num_merge_cand = 6 - r.ue("sps_six_minus_max_num_merge_cand", 5)
        self.sps_sbt_enabled_flag = r.flag()
        affine = self.sps_affine_enabled_flag = r.flag()
        self.max_num_subblock_merge_cand = 5 - r.ue("sps_five_minus_max_num_subblock_merge_cand", 5) if affine else 0
        self.sps_6param_affine_enabled_flag = affine and r.flag()
        self.sps_affine_amvr_enabled_flag = affine and self.sps_amvr_enabled_flag and r.flag()
        self.sps_affine_prof_enabled_flag = affine and r.flag()
        self.sps_prof_control_present_in_ph_flag = self.sps_affine_prof_enabled_flag and r.flag()
        self.sps_bcw_enabled_flag = r.flag()
        self.sps_ciip_enabled_flag = r.flag()
        self.sps_gpm_enabled_flag = self.max_num_merge_cand >= 2 and r.flag()
        self.max_num_gpm_merge_cand = 2 if self.sps_gpm_enabled_flag else 0
        if self.sps_gpm_enabled_flag and self.max_num_merge_cand >= 3:
            reduction = r.ue("sps_max_num_merge_cand_minus_max_num_gpm_cand", self.max_num_merge_cand - 2)
            self.max_num_gpm_merge_cand = self.max_num_merge_cand - reduction
        self.log2_parallel_merge_level = r.ue("sps_log2_parallel_merge_level_minus2", self.ctb_log2_size_y - 2) + 2

    def _read_intra_tools(self, r: Bits) -> None:
        self.sps_isp_enabled_flag = r.flag()
        self.sps_mrl_enabled_flag = r.flag()
        self.sps_mip_enabled_flag = r.flag()
        self.sps_cclm_enabled_flag = self.sps_chroma_format_idc != 0 and r.flag()
        self.sps_chroma_horizontal_collocated_flag = self.sps_chroma_vertical_collocated_flag = True
        if self.sps_chroma_format_idc == 1:
            self.sps_chroma_horizontal_collocated_flag = r.flag()
            self.sps_chroma_vertical_collocated_flag = r.flag()
        self.sps_palette_enabled_flag = r.flag()
        self.sps_act_enabled_flag = self.sps_chroma_format_idc == 3 and self.max_tb_log2_size_y < 6 and r.flag()
        self.min_qp_prime_ts = 4
        if self.sps_transform_skip_enabled_flag or self.sps_palette_enabled_flag:
            self.min_qp_prime_ts += 6 * r.ue("sps_min_qp_prime_ts", 8)
        ibc = self.sps_ibc_enabled_flag = r.flag()
        self.max_num_ibc_merge_cand = 6 - r.ue("sps_six_minus_max_num_ibc_merge_cand", 5) if ibc else 0

    def _read_quantization(self, r: Bits) -> None:
        # LADF: intervals of luma as (largest value below the interval, QP offset), the first of which begins at 0.
        self.ladf: tuple[tuple[int, int], ...] = ()
        if r.flag():  # sps_ladf_enabled_flag
            intervals = r.u(2) + 1
            bounds = [(0, r.se("sps_ladf_lowest_interval_qp_offset", -63, 63))]
            for _ in range(intervals):
                offset = r.se("sps_ladf_qp_offset", -63, 63)
                bounds.append((bounds[-1][0] + r.ue("sps_ladf_delta_threshold_minus1", 2**17) + 1, offset))
            self.ladf = tuple(bounds)
        self.sps_explicit_scaling_list_enabled_flag = r.flag()
        lists_and_lfnst = self.sps_lfnst_enabled_flag and self.sps_explicit_scaling_list_enabled_flag
        self.sps_scaling_matrix_for_lfnst_disabled_flag = lists_and_lfnst and r.flag()
        # Scaling lists may be disabled for coding units with, or for those without, the adaptive colour transform.
        lists_and_act = self.sps_act_enabled_flag and self.sps_explicit_scaling_list_enabled_flag
        self.lists_disabled_for_act = (r.flag(),) if lists_and_act and r.flag() else ()
        self.sps_dep_quant_enabled_flag = r.flag()
        self.sps_sign_data_hiding_enabled_flag = r.flag()

    def _read_rest(self, r: Bits, sublayers: int, hrd_params_present: bool) -> None:
        self.log2_transform_range = 15
        self.sps_ts_residual_coding_rice_present_in_sh_flag = False
        self.sps_rrc_rice_extension_flag = self.sps_persistent_rice_adaptation_enabled_flag = False
        self.sps_reverse_last_sig_coeff_enabled_flag = False
        boundaries = r.flag()
        positions_in_sps = boundaries and r.flag()
        self.virtual_boundaries_in_ph = boundaries and not positions_in_sps
        self.virtual_boundaries = read_virtual_boundaries(r) if positions_in_sps else NO_BOUNDARIES
        if hrd_params_present and r.flag():
            skip_timing_hrd(r, sublayers)
        self.sps_field_seq_flag = r.flag()
        if r.flag():
            size = r.ue("sps_vui_payload_size_minus1", 1023) + 1
            r.align()
            r.skip(8 * size)
        if r.flag():
            range_extension, extension_7bits = r.flag(), r.u(7)
            if extension_7bits:
                raise UnsupportedError("it has an SPS extension of a later version, which codecnn does not support")
            if range_extension:
                self._read_range_extension(r)

    def _read_range_extension(self, r: Bits) -> None:
        """Read sps_range_extension() (clauses 7.3.2.22 and 7.4.3.22)."""
        if r.flag():  # sps_extended_precision_flag
            self.log2_transform_range = max(15, min(20, self.bit_depth + 6))
        self.sps_ts_residual_coding_rice_present_in_sh_flag = self.sps_transform_skip_enabled_flag and r.flag()
        self.sps_rrc_rice_extension_flag = r.flag()
        self.sps_persistent_rice_adaptation_enabled_flag = r.flag()
        self.sps_reverse_last_sig_coeff_enabled_flag = r.flag()
        if self.sps_persistent_rice_adaptation_enabled_flag and self.bit_depth <= 10:
            raise FormatError(f"persistent Rice adaptation needs a bit depth above 10, and that is {self.bit_depth}")


def read_chroma_qp_table(r: Bits, qp_bd_offset: int) -> tuple[int, ...]:
    """Read one ChromaQpTable (clause 7.4.3.4): the chroma QP of each luma QP from -`qp_bd_offset` to 63."""
    start = 26 + r.se("sps_qp_table_start_minus26", -26 - qp_bd_offset, 36)
    points = [(start, start)]
    for _ in range(r.ue("sps_num_points_in_qp_table_minus1", 110) + 1):
        delta_minus1 = r.ue("sps_delta_qp_in_val_minus1", 255)
        step = r.ue("sps_delta_qp_diff_val", 255) ^ delta_minus1
        points.append((points[-1][0] + delta_minus1 + 1, points[-1][1] + step))
    if max(points[-1]) > 63:
        raise FormatError(f"the table of chroma QPs has the value {max(points[-1])}, more than 63")
    table = {start: start}
    for (low, first), (high, last) in pairwise(points):
        for qp in range(low + 1, high + 1):
            table[qp] = first + ((last - first) * (qp - low) + ((high - low) >> 1)) // (high - low)
    for qp in range(start - 1, -qp_bd_offset - 1, -1):
        table[qp] = max(-qp_bd_offset, table[qp + 1] - 1)
    for qp in range(points[-1][0] + 1, 64):
        table[qp] = min(63, table[qp - 1] + 1)
    return tuple(table[qp] for qp in range(-qp_bd_offset, 64))


def read_window(r: Bits, width: int, height: int) -> ConformanceWindow:
    """Read the flag of a conformance window and, if it is set, the offsets."""
    if not r.flag():
        return ConformanceWindow()
    left, right = (r.ue("conf_win_offset", width) for _ in range(2))
    top, bottom = (r.ue("conf_win_offset", height) for _ in range(2))
    return ConformanceWindow(left, right, top, bottom)


def read_virtual_boundaries(r: Bits) -> VirtualBoundaries:
    """Read the positions of vertical and horizontal virtual boundaries of the SPS or a picture header."""
    columns, rows = (
        tuple(8 * (r.ue("virtual_boundary_pos_minus1", 2**13) + 1) for _ in range(r.ue("num_virtual_boundaries", 3)))
        for _ in range(2)
    )
    return columns, rows


def skip_profile_tier_level(r: Bits, sublayers: int) -> None:
    """Skip profile_tier_level(1, sublayers - 1) (clause 7.3.3); nothing in it changes parsing."""
    # general_profile_idc, general_tier_flag, general_level_idc, frame only and multilayer flags
    r.skip(7 + 1 + 8 + 1 + 1)
    if r.flag():
        # general_constraints_info(): 71 bits of constraints, then gci_num_additional_bits and those bits.
        r.skip(71)
        r.skip(r.u(8))
    r.align()
    present = [r.flag() for _ in range(sublayers - 1)]
    r.align()
    r.skip(8 * sum(present))
    r.skip(32 * r.u(8))


def read_dpb_parameters(r: Bits, sublayers: int, all_sublayers: bool) -> DpbParameters:
    """Read dpb_parameters() (clause 7.3.4): three codes for each sublayer, or for the last one only.

    Args:
        r: Reader at the first code.
        sublayers: Number of sublayers.
        all_sublayers: The codes of every sublayer follow.

    Returns:
        The parameters of the last sublayer.
    """
    for _ in range(sublayers if all_sublayers else 1):
        size = r.ue("dpb_max_dec_pic_buffering_minus1", 2**32 - 2) + 1
        reorder = r.ue("dpb_max_num_reorder_pics", 2**32 - 2)
        latency = r.ue("dpb_max_latency_increase_plus1", 2**32 - 2)
    return DpbParameters(min(size, MAX_DPB_SIZE), min(reorder, MAX_DPB_SIZE), latency)


def skip_timing_hrd(r: Bits, sublayers: int) -> None:
    """Skip general_timing_hrd_parameters(), sps_sublayer_cpb_params_present_flag and ols_timing_hrd_parameters()."""
    r.skip(64)
    nal, vcl = r.flag(), r.flag()
    decoding_units, counts = False, 1
    if nal or vcl:
        r.skip(1)
        decoding_units = r.flag()
        r.skip(8 * decoding_units + 4 + 4 + 4 * decoding_units)
        counts = r.ue("hrd_cpb_cnt_minus1", 31) + 1
    all_sublayers = sublayers > 1 and r.flag()
    for _ in range(sublayers if all_sublayers else 1):
        fixed_general = r.flag()
        fixed_cvs = fixed_general or r.flag()
        if fixed_cvs:
            r.ue("elemental_duration_in_tc_minus1", 2047)
        elif (nal or vcl) and counts == 1:
            r.skip(1)
        for _ in range((nal + vcl) * counts):
            for _ in range(4 if decoding_units else 2):
                r.ue("bit_rate_value_minus1", 2**32 - 2)
            r.skip(1)
