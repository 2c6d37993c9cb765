"""Picture parameter sets (H.266 clauses 7.3.2.5 and 7.4.3.5)."""

from typing import NamedTuple

from codecnn.base.errors import FormatError
from codecnn.vvc.syntax.bitstream import Bits, SyntaxStructure
from codecnn.vvc.syntax.sps import ConformanceWindow, SequenceParameterSet, read_window
from codecnn.vvc.syntax.tiles import read_tile_grid


class DeblockingOffsets(NamedTuple):
    """Offsets of the deblocking filter.

    Attributes:
        beta: beta_offset_div2 of Y, Cb and Cr.
        tc: tc_offset_div2 of Y, Cb and Cr.
    """

    beta: tuple[int, int, int] = (0, 0, 0)
    tc: tuple[int, int, int] = (0, 0, 0)


class PictureParameterSet(SyntaxStructure):
    """Picture parameter set, pic_parameter_set_rbsp().

    `tiles` holds its tiles and slices in CTUs, `scaling_window` the margins outside its scaling window in the unit of
    the conformance window, `wraparound_offset` PpsRefWraparoundOffset in luma samples, 0 without wraparound.

    Raises:
        FormatError: The data is damaged.
    """

    def __init__(self, rbsp: bytes, sps: SequenceParameterSet) -> None:
        r = Bits(rbsp)
        r.skip(6)  # pps_pic_parameter_set_id
        self.pps_seq_parameter_set_id = r.u(4)
        self.pps_mixed_nalu_types_in_pic_flag = r.flag()
        full_size = (sps.sps_pic_width_max_in_luma_samples, sps.sps_pic_height_max_in_luma_samples)
        width = self.pps_pic_width_in_luma_samples = r.ue("pps_pic_width_in_luma_samples", full_size[0])
        height = self.pps_pic_height_in_luma_samples = r.ue("pps_pic_height_in_luma_samples", full_size[1])
        unit = max(8, 1 << sps.min_cb_log2_size_y)
        if not width or not height or width % unit or height % unit:
            raise FormatError(f"the picture size {width}x{height} is not a multiple of {unit}")
        window = read_window(r, width, height)
        self.conformance_window = sps.conformance_window if (width, height) == full_size else window
        self.scaling_window = self.conformance_window
        if r.flag():
            left, right, top, bottom = (r.se("pps_scaling_win_offset", -(2**20), 2**16) for _ in range(4))
            self.scaling_window = ConformanceWindow(left, right, top, bottom)
        self.pps_output_flag_present_flag = r.flag()
        partitioned = not r.flag()  # pps_no_pic_partition_flag
        self.subpic_ids = sps.subpic_ids
        count = len(sps.subpictures)
        if r.flag():
            if partitioned and r.ue("pps_num_subpics_minus1", 999) + 1 != count:
                raise FormatError(f"the PPS has another number of subpictures than the SPS, which has {count}")
            length = r.ue("pps_subpic_id_len_minus1", 15) + 1
            self.subpic_ids = tuple(r.u(length) for _ in range(count))
        self.tiles = read_tile_grid(r, width, height, sps.ctb_log2_size_y, partitioned, sps.subpictures)
        self.pps_cabac_init_present_flag = r.flag()
        self.num_ref_idx_default_active = [r.ue("pps_num_ref_idx_default_active_minus1", 14) + 1 for _ in range(2)]
        self.pps_rpl1_idx_present_flag = r.flag()
        self.pps_weighted_pred_flag = r.flag()
        self.pps_weighted_bipred_flag = r.flag()
        self.wraparound_offset = 0
        if r.flag():
            units = width >> sps.min_cb_log2_size_y
            rest = r.ue("pps_pic_width_minus_wraparound_offset", units - 1)
            self.wraparound_offset = (units - rest) << sps.min_cb_log2_size_y
        self._read_qp(r, sps)
        self._read_deblocking(r, partitioned)
        self.pps_rpl_info_in_ph_flag = partitioned and r.flag()
        self.pps_sao_info_in_ph_flag = partitioned and r.flag()
        self.pps_alf_info_in_ph_flag = partitioned and r.flag()
        weighted = self.pps_weighted_pred_flag or self.pps_weighted_bipred_flag
        self.pps_wp_info_in_ph_flag = partitioned and weighted and self.pps_rpl_info_in_ph_flag and r.flag()
        self.pps_qp_delta_info_in_ph_flag = partitioned and r.flag()
        self.pps_picture_header_extension_present_flag = r.flag()
        self.pps_slice_header_extension_present_flag = r.flag()
        # pps_extension_flag and extension data follow, which decoders of this version ignore (clause 7.4.3.5).
        self.freeze()

    def _read_qp(self, r: Bits, sps: SequenceParameterSet) -> None:
        self.init_qp = 26 + r.se("pps_init_qp_minus26", -(26 + 6 * (sps.bit_depth - 8)), 37)
        self.pps_cu_qp_delta_enabled_flag = r.flag()
        self.pps_chroma_tool_offsets_present_flag = r.flag()
        self.pps_slice_chroma_qp_offsets_present_flag = self.pps_cu_chroma_qp_offset_list_enabled_flag = False
        self.chroma_qp_offset_list_len = 0
        self.chroma_qp_offsets = (0, 0, 0)
        self.chroma_qp_offset_list: tuple[tuple[int, ...], ...] = ()
        if not self.pps_chroma_tool_offsets_present_flag:
            return
        offsets = ["pps_cb_qp_offset", "pps_cr_qp_offset"]
        cb, cr = (r.se(name, -12, 12) for name in offsets)
        joint = 0
        if r.flag():
            joint = r.se("pps_joint_cbcr_qp_offset_value", -12, 12)
            offsets.append("pps_joint_cbcr_qp_offset")
        self.chroma_qp_offsets = (cb, cr, joint)
        self.pps_slice_chroma_qp_offsets_present_flag = r.flag()
        self.pps_cu_chroma_qp_offset_list_enabled_flag = r.flag()
        if self.pps_cu_chroma_qp_offset_list_enabled_flag:
            self.chroma_qp_offset_list_len = r.ue("pps_chroma_qp_offset_list_len_minus1", 5) + 1
            self.chroma_qp_offset_list = tuple(
                tuple(r.se(name + "_list", -12, 12) for name in offsets) for _ in range(self.chroma_qp_offset_list_len)
            )

    def _read_deblocking(self, r: Bits, partitioned: bool) -> None:
        control = r.flag()  # pps_deblocking_filter_control_present_flag
        self.pps_deblocking_filter_override_enabled_flag = control and r.flag()
        self.pps_deblocking_filter_disabled_flag = control and r.flag()
        override = self.pps_deblocking_filter_override_enabled_flag
        self.pps_dbf_info_in_ph_flag = partitioned and override and r.flag()
        self.deblocking_offsets = DeblockingOffsets()
        if control and not self.pps_deblocking_filter_disabled_flag:
            self.deblocking_offsets = self.read_deblocking_offsets(r)

    def read_deblocking_offsets(self, r: Bits) -> DeblockingOffsets:
        """Read the beta and tC offsets in a PPS, picture header or slice header.

        They are those of luma and, if pps_chroma_tool_offsets_present_flag is set, of Cb and Cr; otherwise those of
        luma apply to all components.
        """
        values = [r.se("deblocking_offset_div2", -12, 12) for _ in range(2)] * 3
        if self.pps_chroma_tool_offsets_present_flag:
            values[2:] = [r.se("deblocking_offset_div2", -12, 12) for _ in range(4)]
        return DeblockingOffsets((values[0], values[2], values[4]), (values[1], values[3], values[5]))
