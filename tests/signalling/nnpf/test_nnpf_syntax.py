"""Neural-network post-filter messages: every element is written and read bit by bit as H.274 orders it."""

import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest

from codecnn.base.errors import ConfigError, FormatError
from codecnn.signalling.nnpf import NNPFA, NNPFC, Activation, Characteristics, read_message, write_message
from tests.helpers.nnpf_messages import BASE, random_activation, random_characteristics

# Written by hand from the syntax table: purpose 1, id ue(3), base, mode ue(1), alignment, two texts; then properties,
# inputs ue(0), component last, ue(0), ue(1), ue(3), ue(0), ue(3), colour, chroma location, overlap ue(1), constant,
# ue(2), ue(4), padding ue(1), complexity, extension ue(0), and the bits that end the payload.
BASE_BITS = (
    "0000000000000001"
    + "00100" + "1" + "010" + "0000000"
    + "".join(f"{byte:08b}" for byte in b"tag:a,2026:b\0u:c\0")
    + "1" + "1" + "0" + "1" + "010" + "00100" + "1" + "00100" + "0" + "0" + "010" + "1" + "011" + "00101" + "010"
    + "0" + "1"
)  # fmt: skip


def bits(data: bytes) -> str:
    return "".join(f"{byte:08b}" for byte in data)


def test_bits_of_a_message_are_those_of_the_syntax_table():
    ended = BASE_BITS + "1"
    assert bits(write_message(BASE)) == ended + "0" * (-len(ended) % 8)


def test_bits_of_an_activation():
    activation = Activation(
        nnpfa_target_id=3,
        nnpfa_cancel_flag=False,
        nnpfa_persistence_flag=True,
        nnpfa_target_base_flag=True,
        nnpfa_no_prev_clvs_flag=False,
        nnpfa_no_foll_clvs_flag=False,
        nnpfa_num_output_entries=0,
        nnpfa_output_flag=(),
    )
    assert bits(write_message(activation)) == "00100" + "0" + "1100" + "1" + "1" + "0000"
    later = replace(
        activation, nnpfa_prompt_update_flag=False, nnpfa_seed_update_flag=False, nnpfa_selected_input_flag=False
    )
    assert bits(write_message(later)) == "00100" + "0" + "1100" + "1" + "000" + "10"


def test_random_messages_are_read_as_written():
    rng = np.random.default_rng(11)
    seen = set()
    for number in range(1500):
        message = random_characteristics(rng) if number % 2 else random_activation(rng)
        payload = write_message(message)
        assert read_message(NNPFC if number % 2 else NNPFA, payload) == message
        assert write_message(read_message(NNPFC if number % 2 else NNPFA, payload)) == payload
        seen |= message.present().keys()
    assert seen == {field.name for kind in (Characteristics, Activation) for field in fields(kind)}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"nnpfc_purpose": 256}, "nnpfc_purpose"),
        ({"nnpfc_id": 300}, "nnpfc_id"),
        ({"nnpfc_id": 2**32 - 1}, "nnpfc_id"),
        ({"nnpfc_mode_idc": 2}, "nnpfc_mode_idc"),
        ({"nnpfc_uri": "a\0b"}, "nnpfc_uri"),
        ({"nnpfc_uri": None}, "nnpfc_uri is missing"),
        ({"nnpfc_property_present_flag": False}, "nnpfc_property_present_flag"),
        ({"nnpfc_num_input_pics_minus1": 64}, "nnpfc_num_input_pics_minus1"),
        ({"nnpfc_num_input_pics_minus1": 1}, "nnpfc_input_pic_filtering_flag is missing"),
        ({"nnpfc_inp_format_idc": 2}, "nnpfc_inp_format_idc"),
        ({"nnpfc_auxiliary_inp_idc": 8}, "nnpfc_auxiliary_inp_idc"),
        ({"nnpfc_inp_order_idc": 4}, "nnpfc_inp_order_idc"),
        ({"nnpfc_out_order_idc": -1}, "nnpfc_out_order_idc"),
        ({"nnpfc_overlap": 16384}, "nnpfc_overlap"),
        ({"nnpfc_patch_width_minus1": 32767}, "nnpfc_patch_width_minus1"),
        ({"nnpfc_padding_type": 5}, "nnpfc_padding_type"),
        ({"nnpfc_padding_type": 4}, "nnpfc_luma_padding_val is missing"),
        ({"nnpfc_seed": 1}, "nnpfc_seed is given"),
        ({"nnpfc_base_flag": 1}, "nnpfc_base_flag"),
        ({"nnpfc_purpose": 3}, "nnpfc_out_sub_c_flag is missing"),
        ({"nnpfc_purpose": 0x22, "nnpfc_out_sub_c_flag": True}, "nnpfc_purpose"),
        ({"nnpfc_purpose": 2, "nnpfc_out_sub_c_flag": True, "nnpfc_inp_order_idc": 0}, "nnpfc_inp_order_idc"),
        ({"nnpfc_metadata_extension_num_bits": 3, "nnpfc_for_human_viewing_idc": 0}, "nnpfc_for_machine_analysis_idc"),
    ],
)
def test_values_out_of_range_are_refused_by_name(changes, name):
    with pytest.raises(ConfigError, match=name) as refused:
        write_message(replace(BASE, **changes))
    assert "\n" not in str(refused.value)


def test_reserved_and_damaged_payloads_are_refused():
    payload = write_message(BASE)
    assert read_message(NNPFC, payload) == BASE
    with pytest.raises(FormatError, match="nnpfc_purpose"):
        read_message(NNPFC, b"\1" + payload[1:])
    for size in range(len(payload)):
        with pytest.raises(FormatError):
            read_message(NNPFC, payload[:size])
    with pytest.raises(FormatError, match="alignment"):
        read_message(NNPFC, payload + b"\0")
    assert read_message(NNPFC, payload + b"\x12\x80") == BASE, "data of an extension is ignored"


def test_syntax_needs_no_torch():
    code = (
        "import sys, codecnn.signalling.nnpf as n; n.write_message; n.read_messages; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
