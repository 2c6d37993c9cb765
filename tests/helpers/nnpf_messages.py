"""Random valid neural-network post-filter messages."""

from typing import Any

import numpy as np

from codecnn.base.division import ceil_div
from codecnn.signalling.nnpf import Activation, Characteristics

BASE = Characteristics(
    nnpfc_purpose=1,
    nnpfc_id=3,
    nnpfc_base_flag=True,
    nnpfc_mode_idc=1,
    nnpfc_tag_uri="tag:a,2026:b",
    nnpfc_uri="u:c",
    nnpfc_num_input_pics_minus1=0,
    nnpfc_component_last_flag=False,
    nnpfc_inp_format_idc=0,
    nnpfc_auxiliary_inp_idc=1,
    nnpfc_inp_order_idc=3,
    nnpfc_out_format_idc=0,
    nnpfc_out_order_idc=3,
    nnpfc_separate_colour_description_present_flag=False,
    nnpfc_chroma_loc_info_present_flag=False,
    nnpfc_overlap=1,
    nnpfc_constant_patch_size_flag=True,
    nnpfc_patch_width_minus1=2,
    nnpfc_patch_height_minus1=4,
    nnpfc_padding_type=1,
    nnpfc_complexity_info_present_flag=False,
    nnpfc_metadata_extension_num_bits=0,
)
"""A filter of 4:2:0 pictures that a URI names."""


class _Draw:
    """Random values of syntax elements; large values are as likely as small ones."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def flag(self) -> bool:
        return bool(self.rng.integers(2))

    def number(self, top: int) -> int:
        return min(int(self.rng.integers(1 << int(self.rng.integers(top.bit_length() + 1)))), top)

    def text(self, least: int = 0) -> str:
        letters = "abcXYZ:/.,0129-äß€𝄞"
        return "".join(letters[self.rng.integers(len(letters))] for _ in range(self.rng.integers(least, 40)))


def random_characteristics(rng: np.random.Generator) -> Characteristics:
    """A valid NNPFC message with any purposes, auxiliary inputs, patches, padding, complexity and network."""
    draw = _Draw(rng)
    purpose = int(rng.integers(256)) if rng.integers(8) else 0
    if purpose & 0x02:
        purpose &= ~0x20
    number = draw.number(2**31 - 1)
    fields: dict[str, Any] = {
        "nnpfc_purpose": purpose,
        "nnpfc_id": number + 256 if 256 <= number < 512 else number,
        "nnpfc_base_flag": draw.flag(),
        "nnpfc_mode_idc": int(rng.integers(2)),
    }
    if fields["nnpfc_mode_idc"] == 1:
        fields |= {"nnpfc_tag_uri": draw.text(), "nnpfc_uri": draw.text()}
    else:
        fields["nnpfc_payload_byte"] = rng.bytes(int(rng.integers(60))) + bytes(rng.integers(4))
    fields["nnpfc_property_present_flag"] = fields["nnpfc_base_flag"] or draw.flag()
    if fields["nnpfc_property_present_flag"]:
        fields |= _pictures(draw, purpose)
        fields |= _tensors(draw, purpose)
        fields |= _patches(draw, purpose, fields["nnpfc_inp_order_idc"])
        fields |= _complexity(draw)
        fields |= _extension(draw, purpose)
    return Characteristics(**fields)


def _pictures(draw: _Draw, purpose: int) -> dict[str, Any]:
    more = max(draw.number(63), 1 if purpose & 0x08 else 0)
    fields: dict[str, Any] = {"nnpfc_num_input_pics_minus1": more}
    if more:
        filtered = [draw.flag() for _ in range(more + 1)]
        filtered[int(draw.rng.integers(more + 1))] = True
        fields["nnpfc_input_pic_filtering_flag"] = tuple(filtered)
        fields["nnpfc_absent_input_pic_zero_flag"] = draw.flag()
    if purpose & 0x02:
        fields["nnpfc_out_sub_c_flag"] = draw.flag()
    if purpose & 0x20:
        fields["nnpfc_out_colour_format_idc"] = 1 + draw.number(2)
    if purpose & 0x04:
        for side in ("width", "height"):
            denominator = 1 + draw.number(4095)
            fields[f"nnpfc_pic_{side}_num_minus1"] = (
                max(ceil_div(denominator, 16), draw.number(16 * denominator - 1)) - 1
            )
            fields[f"nnpfc_pic_{side}_denom_minus1"] = denominator - 1
            fields[f"nnpfc_pic_{side}_num_minus1"] = max(fields[f"nnpfc_pic_{side}_num_minus1"], 0)
    if purpose & 0x08:
        added = [draw.number(63) for _ in range(more)]
        added[int(draw.rng.integers(more))] = 1
        fields["nnpfc_interpolated_pics"] = tuple(added)
    if purpose & 0x40:
        fields["nnpfc_extrapolated_pics_minus1"] = draw.number(63)
    if purpose & 0x80:
        for side in ("left", "right", "top", "bottom"):
            value = draw.number(2**15 - 1)
            fields[f"nnpfc_spatial_extrapolation_{side}_offset"] = -value if draw.flag() else value
    return fields


def _tensors(draw: _Draw, purpose: int) -> dict[str, Any]:
    auxiliary = draw.number(7)
    fields: dict[str, Any] = {"nnpfc_component_last_flag": draw.flag(), "nnpfc_auxiliary_inp_idc": auxiliary}
    if auxiliary & 2:
        fields["nnpfc_inband_prompt_flag"] = draw.flag()
        if fields["nnpfc_inband_prompt_flag"]:
            fields["nnpfc_prompt"] = draw.text()
    if auxiliary & 4:
        fields["nnpfc_inband_seed_flag"] = draw.flag()
        if fields["nnpfc_inband_seed_flag"]:
            fields["nnpfc_seed"] = draw.number(65535)
    orders = {"inp": int(draw.rng.integers(4)), "out": int(draw.rng.integers(4))}
    if purpose & 0x02:
        orders = {"inp": 1 + draw.number(2), "out": 1 + draw.number(1)}
    elif purpose & 0x20:
        orders["out"] = 1 + draw.number(2)
    for side, order in orders.items():
        fields[f"nnpfc_{side}_order_idc"] = order
        fields[f"nnpfc_{side}_format_idc"] = draw.number(1)
        if fields[f"nnpfc_{side}_format_idc"]:
            if order != 1:
                fields[f"nnpfc_{side}_tensor_luma_bitdepth_minus8"] = draw.number(24)
            if order != 0:
                fields[f"nnpfc_{side}_tensor_chroma_bitdepth_minus8"] = draw.number(24)
    fields["nnpfc_separate_colour_description_present_flag"] = draw.flag()
    if fields["nnpfc_separate_colour_description_present_flag"]:
        fields |= {"nnpfc_colour_primaries": draw.number(255), "nnpfc_transfer_characteristics": draw.number(255)}
        if fields["nnpfc_out_format_idc"]:
            fields |= {"nnpfc_matrix_coeffs": draw.number(255), "nnpfc_full_range_flag": draw.flag()}
    if orders["out"]:
        fields["nnpfc_chroma_loc_info_present_flag"] = draw.flag()
        if fields["nnpfc_chroma_loc_info_present_flag"]:
            fields["nnpfc_chroma_sample_loc_type_frame"] = draw.number(6)
    return fields


def _patches(draw: _Draw, purpose: int, order: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    constant = True
    if not purpose & 0x80:
        constant = draw.flag()
        fields |= {"nnpfc_overlap": draw.number(16383), "nnpfc_constant_patch_size_flag": constant}
    for side in ("width", "height"):
        if constant:
            fields[f"nnpfc_patch_{side}_minus1"] = draw.number(32766)
        else:
            fields[f"nnpfc_extended_patch_{side}_cd_delta_minus1"] = draw.number(65535)
    fields["nnpfc_padding_type"] = int(draw.rng.integers(5))
    if fields["nnpfc_padding_type"] == 4:
        if order != 1:
            fields["nnpfc_luma_padding_val"] = draw.number(65535)
        if order != 0:
            fields |= {"nnpfc_cb_padding_val": draw.number(65535), "nnpfc_cr_padding_val": draw.number(65535)}
    return fields


def _complexity(draw: _Draw) -> dict[str, Any]:
    fields: dict[str, Any] = {"nnpfc_complexity_info_present_flag": draw.flag()}
    if fields["nnpfc_complexity_info_present_flag"]:
        fields["nnpfc_parameter_type_idc"] = draw.number(2)
        if fields["nnpfc_parameter_type_idc"] != 2:
            fields["nnpfc_log2_parameter_bit_length_minus3"] = draw.number(3)
        fields["nnpfc_num_parameters_idc"] = draw.number(52)
        fields["nnpfc_num_kmac_operations_idc"] = draw.number(2**32 - 2)
        fields["nnpfc_total_kilobyte_size"] = draw.number(2**32 - 2)
    return fields


def _extension(draw: _Draw, purpose: int) -> dict[str, Any]:
    if draw.flag():
        return {"nnpfc_metadata_extension_num_bits": 0}
    fields: dict[str, Any] = {"nnpfc_for_human_viewing_idc": draw.number(3)}
    fields["nnpfc_for_machine_analysis_idc"] = draw.number(3)
    used = 4
    if purpose == 0:
        used += 1
        fields["nnpfc_application_purpose_tag_uri_present_flag"] = draw.flag()
        if fields["nnpfc_application_purpose_tag_uri_present_flag"]:
            fields["nnpfc_application_purpose_tag_uri"] = draw.text()
            used += 8 * (len(fields["nnpfc_application_purpose_tag_uri"].encode()) + 1)
    if purpose & 0x84:
        used += 2
        fields["nnpfc_scan_type_idc"] = draw.number(3)
    reserved = draw.number(300)
    if reserved:
        fields["nnpfc_reserved_metadata_extension"] = int.from_bytes(draw.rng.bytes(40), "big") >> (320 - reserved)
    return fields | {"nnpfc_metadata_extension_num_bits": used + reserved}


def random_activation(rng: np.random.Generator) -> Activation:
    """A valid NNPFA message of this or the edition of 2023-09."""
    draw = _Draw(rng)
    fields: dict[str, Any] = {"nnpfa_target_id": draw.number(2**32 - 2), "nnpfa_cancel_flag": draw.flag()}
    if fields["nnpfa_cancel_flag"]:
        return Activation(**fields)
    names = ("nnpfa_persistence_flag", "nnpfa_target_base_flag", "nnpfa_no_prev_clvs_flag")
    fields |= {name: draw.flag() for name in names}
    if fields["nnpfa_persistence_flag"]:
        fields["nnpfa_no_foll_clvs_flag"] = draw.flag()
    fields["nnpfa_num_output_entries"] = draw.number(64)
    fields["nnpfa_output_flag"] = tuple(draw.flag() for _ in range(fields["nnpfa_num_output_entries"]))
    if draw.flag():
        for part in ("prompt_update", "seed_update", "selected_input"):
            fields[f"nnpfa_{part}_flag"] = draw.flag()
        if fields["nnpfa_prompt_update_flag"]:
            fields["nnpfa_prompt"] = draw.text(1)
        if fields["nnpfa_seed_update_flag"]:
            fields["nnpfa_seed"] = draw.number(65535)
        if fields["nnpfa_selected_input_flag"]:
            fields["nnpfa_num_input_pic_shift"] = draw.number(1000)
    return Activation(**fields)
