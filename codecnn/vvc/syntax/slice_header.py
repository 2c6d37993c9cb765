"""Slice headers (H.266 clauses 7.3.7 and 7.4.8)."""

from codecnn.base.errors import FormatError
from codecnn.vvc.syntax.bitstream import CRA, GDR, IDR_N_LP, IDR_W_RADL, Bits, SyntaxStructure
from codecnn.vvc.syntax.picture_header import (
    NO_WEIGHTS,
    PictureHeader,
    read_alf,
    read_deblocking,
    read_pred_weight_table,
)
from codecnn.vvc.syntax.ref_lists import read_ref_pic_lists
from codecnn.vvc.syntax.tiles import slice_parts, slices_of_subpictures

SLICE_TYPES = ("B", "P", "I")
"""Slice types in the order of sh_slice_type (table 9)."""


class SliceHeader(SyntaxStructure):
    """Slice header, slice_header() after the picture header.

    Attributes:
        slice_type: A letter of SLICE_TYPES.
        parts: Tiles of the slice, as `tiles.slice_parts` returns them.
        ref_pic_lists: L0 and L1.
        num_ref_idx_active: NumRefIdxActive of L0 and L1.
        weights: Explicit weights of the entries of L0 and L1.
        collocated: List and index of the collocated picture, sh_collocated_from_l0_flag and sh_collocated_ref_idx.
        alf: ALF elements.
        slice_qp_y: SliceQpY.
        chroma_qp_offsets: Slice QP offsets of Cb, Cr and joint Cb-Cr.
        deblocking_offsets: Offsets of the deblocking filter.
        subpicture: Index of the subpicture that the slice belongs to.
        extension: Bytes of sh_slice_header_extension_data_byte; None if the PPS says that there are none.
        extension_position: Position of sh_slice_header_extension_length in bits, present or not.
    """

    def __init__(self, r: Bits, nal_type: int, ph: PictureHeader) -> None:
        """Read a slice header; the reader then stands at the slice data.

        Args:
            r: Reader after the picture header or, if that is a NAL unit, after sh_picture_header_in_slice_header_flag.
            nal_type: nal_unit_type of the slice.
            ph: Picture header.
        """
        sps, pps = ph.sps, ph.pps
        self.subpicture = 0
        if sps.subpic_id_len:
            number = r.u(sps.subpic_id_len)
            if number not in pps.subpic_ids:
                raise FormatError(f"there is no subpicture {number}")
            self.subpicture = pps.subpic_ids.index(number)
        self._read_address(r, ph)
        self.slice_type = SLICE_TYPES[r.ue("sh_slice_type", 2)] if ph.ph_inter_slice_allowed_flag else "I"
        idr = nal_type in (IDR_W_RADL, IDR_N_LP)
        if idr or nal_type in (CRA, GDR):
            # Pictures that wait for output are output in any case, as a decoder of files may do.
            r.skip(1)  # sh_no_output_of_prior_pics_flag
        self.alf = read_alf(r, sps) if sps.sps_alf_enabled_flag and not pps.pps_alf_info_in_ph_flag else ph.alf
        self.sh_lmcs_used_flag = ph.ph_lmcs_enabled_flag and (ph.in_slice or r.flag())
        lists = ph.ph_explicit_scaling_list_enabled_flag
        self.sh_explicit_scaling_list_used_flag = lists and (ph.in_slice or r.flag())
        self.ref_pic_lists = ph.ref_pic_lists
        if not pps.pps_rpl_info_in_ph_flag and (not idr or sps.sps_idr_rpl_present_flag):
            self.ref_pic_lists = read_ref_pic_lists(r, sps, pps)
        self._read_active_references(r, ph)
        self.sh_cabac_init_flag = False
        self.weights = ph.weights
        self.collocated = (0, 0)
        if self.slice_type != "I":
            self._read_inter(r, ph)
        self._read_qp(r, ph)
        self.sh_sao_luma_used_flag = ph.ph_sao_luma_enabled_flag
        self.sh_sao_chroma_used_flag = ph.ph_sao_chroma_enabled_flag
        if sps.sps_sao_enabled_flag and not pps.pps_sao_info_in_ph_flag:
            self.sh_sao_luma_used_flag = r.flag()
            self.sh_sao_chroma_used_flag = sps.sps_chroma_format_idc != 0 and r.flag()
        self.sh_deblocking_filter_disabled_flag = ph.ph_deblocking_filter_disabled_flag
        self.deblocking_offsets = ph.deblocking_offsets
        if pps.pps_deblocking_filter_override_enabled_flag and not pps.pps_dbf_info_in_ph_flag and r.flag():
            self.sh_deblocking_filter_disabled_flag, self.deblocking_offsets = read_deblocking(r, pps)
        # Dependent quantization and sign data hiding both use the parity of levels and exclude each other.
        dep_quant = self.sh_dep_quant_used_flag = sps.sps_dep_quant_enabled_flag and r.flag()
        hiding = self.sh_sign_data_hiding_used_flag = (
            sps.sps_sign_data_hiding_enabled_flag and not dep_quant and r.flag()
        )
        skip_possible = sps.sps_transform_skip_enabled_flag and not dep_quant and not hiding
        self.sh_ts_residual_coding_disabled_flag = skip_possible and r.flag()
        has_rice = sps.sps_ts_residual_coding_rice_present_in_sh_flag and not self.sh_ts_residual_coding_disabled_flag
        self.ts_residual_coding_rice = 1 + (r.u(3) if has_rice else 0)
        self.sh_reverse_last_sig_coeff_flag = sps.sps_reverse_last_sig_coeff_enabled_flag and r.flag()
        self.extension: bytes | None = None
        self.extension_position = r.position
        if pps.pps_slice_header_extension_present_flag:
            length = r.ue("sh_slice_header_extension_length", 256)
            self.extension = r.u(8 * length).to_bytes(length, "big")
        wavefront = sps.sps_entropy_coding_sync_enabled_flag
        entry_points = sum(part.bottom - part.top if wavefront else 1 for part in self.parts) - 1
        if sps.sps_entry_point_offsets_present_flag and entry_points:
            # Entry points are needed for parallel decoding only: a substream begins where the one before it ends.
            r.skip((r.ue("sh_entry_offset_len_minus1", 31) + 1) * entry_points)
        r.byte_alignment()
        self.freeze()

    def _read_address(self, r: Bits, ph: PictureHeader) -> None:
        grid = ph.pps.tiles
        tiles = grid.num_columns * grid.num_rows
        slices = slices_of_subpictures(grid, ph.sps.subpictures)[self.subpicture]
        choices = tiles if grid.slices is None else len(slices)
        address = r.u((choices - 1).bit_length())
        if address >= choices:
            raise FormatError(f"sh_slice_address is {address}, but there are {choices} addresses")
        r.skip(ph.sps.num_extra_sh_bits)
        count = 1
        if grid.slices is None and tiles - address > 1:
            count = r.ue("sh_num_tiles_in_slice_minus1", tiles - 1) + 1
        self.parts = slice_parts(grid, address if grid.slices is None else slices[address], count)

    def _read_active_references(self, r: Bits, ph: PictureHeader) -> None:
        """Read NumRefIdxActive (clause 7.4.8): the number of entries of L0 and L1 that the slice uses."""
        lists = {"I": 0, "P": 1, "B": 2}[self.slice_type]
        counts = [len(entries) for entries in self.ref_pic_lists]
        override = True
        if any(count > 1 for count in counts[:lists]):
            override = r.flag()
        self.num_ref_idx_active = [0, 0]
        for i in range(lists):
            if not override:
                active = min(counts[i], ph.pps.num_ref_idx_default_active[i])
            else:
                active = r.ue("sh_num_ref_idx_active_minus1", 14) + 1 if counts[i] > 1 else 1
            if not 0 < active <= counts[i]:
                raise FormatError(f"{active} reference pictures of list {i} are active, which has {counts[i]}")
            self.num_ref_idx_active[i] = active

    def _read_inter(self, r: Bits, ph: PictureHeader) -> None:
        sps, pps = ph.sps, ph.pps
        if pps.pps_cabac_init_present_flag:
            self.sh_cabac_init_flag = r.flag()
        if ph.ph_temporal_mvp_enabled_flag:
            in_ph = pps.pps_rpl_info_in_ph_flag
            # The flag of the picture header applies to B slices only.
            number = 0 if self.slice_type == "P" or (ph.ph_collocated_from_l0_flag if in_ph else r.flag()) else 1
            active = self.num_ref_idx_active[number]
            index = ph.ph_collocated_ref_idx
            if not in_ph:
                index = r.ue("sh_collocated_ref_idx", 14) if active > 1 else 0
            if index >= active:
                raise FormatError(f"the collocated picture is entry {index} of list {number}, which has {active}")
            self.collocated = (number, index)
        weighted = pps.pps_weighted_pred_flag if self.slice_type == "P" else pps.pps_weighted_bipred_flag
        if not weighted:
            self.weights = NO_WEIGHTS
        elif not pps.pps_wp_info_in_ph_flag:
            counts = [len(entries) for entries in self.ref_pic_lists]
            self.weights = read_pred_weight_table(r, sps, pps, counts, self.num_ref_idx_active)

    def _read_qp(self, r: Bits, ph: PictureHeader) -> None:
        sps, pps = ph.sps, ph.pps
        delta = ph.ph_qp_delta if pps.pps_qp_delta_info_in_ph_flag else r.se("sh_qp_delta", -128, 127)
        lowest = -6 * (sps.bit_depth - 8)
        self.slice_qp_y = pps.init_qp + delta
        if not lowest <= self.slice_qp_y <= 63:
            raise FormatError(f"the slice QP is {self.slice_qp_y}, not in {lowest} to 63")
        self.chroma_qp_offsets = (0, 0, 0)
        if pps.pps_slice_chroma_qp_offsets_present_flag:
            cb, cr = (r.se("sh_chroma_qp_offset", -12, 12) for _ in range(2))
            joint = r.se("sh_joint_cbcr_qp_offset", -12, 12) if sps.sps_joint_cbcr_enabled_flag else 0
            self.chroma_qp_offsets = (cb, cr, joint)
        list_enabled = pps.pps_cu_chroma_qp_offset_list_enabled_flag
        self.sh_cu_chroma_qp_offset_enabled_flag = list_enabled and r.flag()
