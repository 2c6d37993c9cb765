"""SEI messages: written messages are read again, and insertion leaves all other NAL units as they are."""

import time

import numpy as np
import pytest

from codecnn.base.errors import FormatError
from codecnn.codec import read_pictures as decoded_pictures
from codecnn.vvc.syntax import (
    OUTPUT_MD5_UUID,
    USER_DATA_UNREGISTERED,
    SeiMessage,
    access_units,
    add_sei,
    md5_message,
    read_pictures,
)
from codecnn.vvc.syntax.picture_hash import read_picture_hashes
from codecnn.vvc.syntax.sei import read_sei
from tests.helpers.cut_streams import units_of, vvc_type

LOW_DELAY = "vvc/tinyclip128x64_ld_qp37.266"


@pytest.mark.parametrize("size", [1, 40, 255, 700])
def test_messages_are_read_again_and_nothing_else_changes(golden_file, size):
    stream = golden_file(LOW_DELAY).read_bytes()
    # Zeros would look like start codes without emulation prevention.
    payloads = [bytes([number, *[0] * size]) for number in range(9)]
    changed = b""
    for access_unit, payload in zip(access_units(stream), payloads, strict=True):
        message = SeiMessage(USER_DATA_UNREGISTERED, OUTPUT_MD5_UUID + payload)
        changed += add_sei(access_unit, [message, SeiMessage(0, b"\x05")], [message])
    kept = [unit.rstrip(b"\0") for unit in units_of(changed) if vvc_type(unit) not in (23, 24)]
    assert kept == [unit.rstrip(b"\0") for unit in units_of(stream) if vvc_type(unit) not in (23, 24)]
    assert len(units_of(changed)) == len(units_of(stream)) + 18
    pictures = list(read_pictures(changed))
    assert [picture.output_md5 for picture in pictures] == payloads
    assert [len(picture.hashes) for picture in pictures] == [1] * 9
    assert all(picture.output_md5 is None for picture in read_pictures(stream))


def test_written_hash_equals_that_of_the_encoder(golden_file):
    stream = golden_file(LOW_DELAY)
    parsed = list(read_pictures(stream.read_bytes()))
    decoded = dict(decoded_pictures(stream, ("rec_y", "rec_u", "rec_v")))
    for picture in parsed:
        planes = list(decoded[picture.poc].values())
        message = md5_message(planes, 10)
        rbsp = bytes([message.type, len(message.payload)]) + message.payload + b"\x80"
        assert read_picture_hashes(rbsp) == picture.hashes
        planes[1] = planes[1] ^ np.uint16(1)
        assert md5_message(planes, 10) != message


def test_damaged_units_give_the_messages_before_the_damage():
    good, cut = b"\x05\x03abc", b"\x84\x10ab"
    assert list(read_sei(good + cut + b"\x80")) == [(5, b"abc")]
    assert list(read_sei(good + b"\xff\xff")) == [(5, b"abc")]
    assert list(read_sei(b"\xff\x01\x00\x80")) == [(256, b"")]
    assert read_picture_hashes(b"\x84\x02\x00\x00\x80") == []


@pytest.mark.parametrize("name", ["tinyclip128x64_ra_qp37", "tinyclip128x64_ld_qp37", "tiny64x64_ai_qp32"])
def test_streams_are_split_into_access_units(golden_file, name):
    stream = golden_file(f"vvc/{name}.266").read_bytes()
    units = access_units(stream)
    assert b"".join(units) == stream
    assert len(units) == len(list(read_pictures(stream)))
    for unit in units:
        kinds = [vvc_type(each) for each in units_of(unit)]
        assert sum(kind <= 10 for kind in kinds) == 1
        assert kinds.count(24) == 1


def test_access_units_without_slices_are_refused():
    with pytest.raises(FormatError, match="types 20"):
        add_sei(b"\0\0\0\1\0\xa1\x10", [SeiMessage(5, b"x")], [])


def test_time_for_messages_in_front_of_a_picture_is_linear(golden_file):
    stream = golden_file("vvc/tiny64x64_ai_qp32.266").read_bytes()
    unit = b"\0\0\1" + bytes([0, 23 << 3 | 1, USER_DATA_UNREGISTERED, 20, *range(1, 21), 0x80])

    def seconds(count):
        start = time.process_time()
        picture = next(read_pictures(unit * count + stream))
        assert [len(picture.user_data), picture.user_data[-1]] == [count, bytes(range(1, 21))]
        return time.process_time() - start

    # A quadratic reader takes 10 to 16 times as long.
    assert seconds(40_000) < 8 * min(seconds(10_000) for _ in range(2))
