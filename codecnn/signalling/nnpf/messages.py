"""Neural-network post-filter SEI messages as records: characteristics (NNPFC) and activation (NNPFA) of H.274.

Attributes have the names of the syntax elements. An element that the syntax does not have under the conditions of the
others is None, so that a message that is written and read again is equal to itself. `codecnn.signalling.nnpf.syntax`
holds order, conditions and ranges of the elements.
"""

from dataclasses import dataclass, fields
from typing import Any

NNPFC, NNPFA = 210, 211
"""payloadType of the two messages, the same in VVC and HEVC."""

MODE_NNC, MODE_URI = 0, 1
"""nnpfc_mode_idc: the payload is a bitstream of ISO/IEC 15938-17, or a URI names the network."""

PURPOSES = {
    0x01: "visual quality improvement",
    0x02: "chroma upsampling",
    0x04: "resolution resampling",
    0x08: "picture rate upsampling",
    0x10: "bit depth upsampling",
    0x20: "colourization",
    0x40: "temporal extrapolation",
    0x80: "spatial extrapolation",
}
"""Purposes by the bit of nnpfc_purpose."""


class _Fields:
    """Base class of the messages."""

    def present(self) -> dict[str, Any]:
        """Return the syntax elements that the message has, by name in the order of the syntax; bytes as hexadecimal."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {
            name: value.hex() if isinstance(value, bytes) else list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None
        }


@dataclass(frozen=True, kw_only=True)
class Characteristics(_Fields):
    """Characteristics of a neural-network post-filter, NNPFC (H.274 clause 8.28.1).

    The comments divide the elements by what they describe. Arrays are tuples.
    """

    nnpfc_purpose: int
    nnpfc_id: int
    nnpfc_base_flag: bool
    nnpfc_mode_idc: int
    nnpfc_tag_uri: str | None = None
    nnpfc_uri: str | None = None
    nnpfc_property_present_flag: bool = True
    # Input pictures
    nnpfc_num_input_pics_minus1: int | None = None
    nnpfc_input_pic_filtering_flag: tuple[bool, ...] | None = None
    nnpfc_absent_input_pic_zero_flag: bool | None = None
    # Output pictures, by purpose
    nnpfc_out_sub_c_flag: bool | None = None
    nnpfc_out_colour_format_idc: int | None = None
    nnpfc_pic_width_num_minus1: int | None = None
    nnpfc_pic_width_denom_minus1: int | None = None
    nnpfc_pic_height_num_minus1: int | None = None
    nnpfc_pic_height_denom_minus1: int | None = None
    nnpfc_interpolated_pics: tuple[int, ...] | None = None
    nnpfc_extrapolated_pics_minus1: int | None = None
    nnpfc_spatial_extrapolation_left_offset: int | None = None
    nnpfc_spatial_extrapolation_right_offset: int | None = None
    nnpfc_spatial_extrapolation_top_offset: int | None = None
    nnpfc_spatial_extrapolation_bottom_offset: int | None = None
    # Tensors
    nnpfc_component_last_flag: bool | None = None
    nnpfc_inp_format_idc: int | None = None
    nnpfc_auxiliary_inp_idc: int | None = None
    nnpfc_inband_prompt_flag: bool | None = None
    nnpfc_prompt: str | None = None
    nnpfc_inband_seed_flag: bool | None = None
    nnpfc_seed: int | None = None
    nnpfc_inp_order_idc: int | None = None
    nnpfc_inp_tensor_luma_bitdepth_minus8: int | None = None
    nnpfc_inp_tensor_chroma_bitdepth_minus8: int | None = None
    nnpfc_out_format_idc: int | None = None
    nnpfc_out_order_idc: int | None = None
    nnpfc_out_tensor_luma_bitdepth_minus8: int | None = None
    nnpfc_out_tensor_chroma_bitdepth_minus8: int | None = None
    # Colour
    nnpfc_separate_colour_description_present_flag: bool | None = None
    nnpfc_colour_primaries: int | None = None
    nnpfc_transfer_characteristics: int | None = None
    nnpfc_matrix_coeffs: int | None = None
    nnpfc_full_range_flag: bool | None = None
    nnpfc_chroma_loc_info_present_flag: bool | None = None
    nnpfc_chroma_sample_loc_type_frame: int | None = None
    # Patches
    nnpfc_overlap: int | None = None
    nnpfc_constant_patch_size_flag: bool | None = None
    nnpfc_patch_width_minus1: int | None = None
    nnpfc_patch_height_minus1: int | None = None
    nnpfc_extended_patch_width_cd_delta_minus1: int | None = None
    nnpfc_extended_patch_height_cd_delta_minus1: int | None = None
    nnpfc_padding_type: int | None = None
    nnpfc_luma_padding_val: int | None = None
    nnpfc_cb_padding_val: int | None = None
    nnpfc_cr_padding_val: int | None = None
    # Complexity
    nnpfc_complexity_info_present_flag: bool | None = None
    nnpfc_parameter_type_idc: int | None = None
    nnpfc_log2_parameter_bit_length_minus3: int | None = None
    nnpfc_num_parameters_idc: int | None = None
    nnpfc_num_kmac_operations_idc: int | None = None
    nnpfc_total_kilobyte_size: int | None = None
    # Extension
    nnpfc_metadata_extension_num_bits: int | None = None
    nnpfc_application_purpose_tag_uri_present_flag: bool | None = None
    nnpfc_application_purpose_tag_uri: str | None = None
    nnpfc_scan_type_idc: int | None = None
    nnpfc_for_human_viewing_idc: int | None = None
    nnpfc_for_machine_analysis_idc: int | None = None
    nnpfc_reserved_metadata_extension: int | None = None
    # Network
    nnpfc_payload_byte: bytes | None = None

    @property
    def purposes(self) -> list[str]:
        """Names of the purposes; "unknown" if no bit is set."""
        return [name for bit, name in PURPOSES.items() if self.nnpfc_purpose & bit] or ["unknown"]


@dataclass(frozen=True, kw_only=True)
class Activation(_Fields):
    """Activation of a neural-network post-filter for pictures, NNPFA (H.274 clause 8.28.2).

    The elements from nnpfa_prompt_update_flag on came after the edition of 2023-09; messages of that edition end before
    them, and they are None.
    """

    nnpfa_target_id: int
    nnpfa_cancel_flag: bool
    nnpfa_persistence_flag: bool | None = None
    nnpfa_target_base_flag: bool | None = None
    nnpfa_no_prev_clvs_flag: bool | None = None
    nnpfa_no_foll_clvs_flag: bool | None = None
    nnpfa_num_output_entries: int | None = None
    nnpfa_output_flag: tuple[bool, ...] | None = None
    nnpfa_prompt_update_flag: bool | None = None
    nnpfa_prompt: str | None = None
    nnpfa_seed_update_flag: bool | None = None
    nnpfa_seed: int | None = None
    nnpfa_selected_input_flag: bool | None = None
    nnpfa_num_input_pic_shift: int | None = None


Message = Characteristics | Activation
"""One message."""
