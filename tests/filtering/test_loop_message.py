"""The message of a filter in the coding loop: its syntax, its size, and the picture that its decision gives."""

import dataclasses

import numpy as np
import pytest

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError, UnsupportedError
from codecnn.filtering import LoopParameters, decide_picture, write_message
from codecnn.filtering.decisions import SignalledDecision, SignalledPicture, apply_decision, flag_bits, read_message
from codecnn.pictures.files import Picture

LUMA = LoopParameters("int8", "ab" * 32, 10, 128, ("y",), (0,))
COLOUR = LoopParameters("int16", "0f" * 32, 8, 16, ("y", "u", "v"), (0, -5, 5))
SIZE = (150, 270)


def decision(parameters, rng, size=SIZE):
    """Return a random decision; runs of equal flags are frequent, as in those of an encoder."""
    rows, columns = (ceil_div(length, parameters.ctu_size) for length in size)
    names = parameters.components
    modes = dict(zip(names, rng.choice(["off", "on", "ctu"], len(names)), strict=True))
    flags = {
        name: np.full((rows, columns), mode == "on")
        if mode != "ctu"
        else (rng.random((rows, columns)) < rng.choice([0.05, 0.5, 0.9]))
        for name, mode in modes.items()
    }
    scales = {name: 1.0 if mode == "off" else rng.choice([16, 100, 256, 320]) / 256 for name, mode in modes.items()}
    off = set(modes.values()) == {"off"}
    return SignalledDecision(modes, flags, scales, 0 if off else int(rng.choice(parameters.qp_offsets or (0,))))


@pytest.mark.parametrize("parameters", [LUMA, COLOUR], ids=["luma", "colour"])
def test_decisions_are_read_as_they_were_written(parameters):
    rng = np.random.default_rng(1)
    seen = set()
    for number in range(200):
        written = decision(parameters, rng)
        active = parameters if number % 3 else None
        message = write_message(parameters, written, activate=active is None)
        read = read_message(message.payload, SIZE, active)
        again = read.decision
        assert (read.parameters, read.output_md5) == (parameters, None)
        assert (again.modes, again.scales, again.qp_offset) == (written.modes, written.scales, written.qp_offset)
        assert all(np.array_equal(again.flags[name], written.flags[name]) for name in parameters.components)
        parameter_bits = 0 if active else 273 + 7 * len(parameters.qp_offsets)
        assert len(message.payload) == ceil_div(5 + parameter_bits + message.decision_bits, 8)
        seen |= set(written.modes.values())
    assert seen == {"off", "on", "ctu"}


def test_flags_take_the_bits_of_their_estimate():
    """The engine rounds probabilities, so that it differs by a few per cent from the entropy that decisions count."""
    rng = np.random.default_rng(2)
    parameters = dataclasses.replace(LUMA, ctu_size=16)
    for share in (0.02, 0.3, 0.5, 0.97):
        flags = rng.random((68, 120)) < share
        written = SignalledDecision({"y": "ctu"}, {"y": flags}, {"y": 1.0}, 0)
        bits = write_message(parameters, written, activate=False).decision_bits - 3
        assert bits == pytest.approx(flag_bits(flags), rel=0.06)


def test_a_message_without_decisions_has_no_decision_bits():
    parameters = dataclasses.replace(LUMA, qp_offsets=())
    first = write_message(parameters, None, activate=True)
    assert read_message(first.payload, SIZE, None) == SignalledPicture(parameters, None, None)
    later = write_message(parameters, None, activate=False)
    assert (later.decision_bits, len(later.payload)) == (0, 1)
    assert read_message(later.payload, SIZE, parameters) == SignalledPicture(parameters, None, None)


@pytest.mark.parametrize("offsets", [(), (0, -5, 5)])
@pytest.mark.parametrize("placement", ["behind", "by_picture"])
def test_pictures_behind_the_loop_carry_their_md5(placement, offsets):
    """The MD5 follows the flags, of which the last zeros are left out."""
    rng = np.random.default_rng(5)
    parameters = dataclasses.replace(COLOUR, placement=placement, qp_offsets=offsets)
    for number in range(100):
        written = decision(parameters, rng) if offsets else None
        is_on = written is None or set(written.modes.values()) != {"off"}
        is_behind = is_on and (placement == "behind" or number % 2 == 0)
        md5 = rng.bytes(16) if is_behind else None
        message = write_message(parameters, written, activate=False, output_md5=md5)
        read = read_message(message.payload, SIZE, parameters)
        assert read.output_md5 == md5
        if written is None:
            assert message.decision_bits == (placement == "by_picture")
        else:
            assert read.decision.modes == written.modes
            assert all(np.array_equal(read.decision.flags[name], written.flags[name]) for name in "yuv")
        if is_behind:
            with pytest.raises(FormatError):
                read_message(message.payload[:10], SIZE, parameters)


@pytest.mark.parametrize("names", ["y", "yuv"])
def test_the_decided_picture_follows_from_the_message(names):
    """Edges of the picture inside a CTU included; the network helps in one half only."""
    rng = np.random.default_rng(3)
    shapes = {"y": SIZE, "u": (75, 135), "v": (75, 135)}
    original = {name: rng.integers(100, 900, shape).astype(np.uint16) for name, shape in shapes.items()}
    decoded = {name: np.clip(plane + rng.integers(-60, 60, plane.shape), 0, 1023) for name, plane in original.items()}
    decoded = {name: plane.astype(np.uint16) for name, plane in decoded.items()}
    samples = {}
    for name in names:
        repaired = decoded[name] + np.rint(0.7 * (original[name].astype(int) - decoded[name]))
        repaired[:, shapes[name][1] // 2 :] += 40
        samples[name] = np.clip(repaired, 0, 1023)
    picture = Picture(tuple(decoded.values()), 10)
    candidates = {0: samples, -5: {name: plane + 1 for name, plane in samples.items()}}
    decided, taken = decide_picture(Picture(tuple(original.values()), 10), picture, candidates, qp=37, ctu=64)
    assert taken.mode == "ctu"
    parameters = LoopParameters("int8", "0" * 64, 10, 64, tuple(names), (0, -5))
    message = write_message(parameters, taken, activate=True)
    read = read_message(message.payload, SIZE, None).decision
    again = apply_decision(picture, candidates[read.qp_offset], read, 64)
    for a, b in zip(again.planes, decided.planes, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert abs(message.decision_bits - taken.bits) < 4


def test_damaged_messages_are_refused():
    rng = np.random.default_rng(4)
    whole = write_message(COLOUR, decision(COLOUR, rng), activate=True).payload
    with pytest.raises(FormatError, match="ends early"):
        read_message(whole[:20], SIZE, None)
    with pytest.raises(FormatError, match="has no parameters"):
        read_message(write_message(COLOUR, decision(COLOUR, rng), activate=False).payload, SIZE, None)
    with pytest.raises(UnsupportedError, match="has version 9, and codecnn reads version 1"):
        read_message(b"\x90" + whole[1:], SIZE, None)
    off = SignalledDecision(dict.fromkeys("yuv", "off"), {}, {}, 0)
    with pytest.raises(FormatError, match="more bits than its decision"):
        read_message(write_message(COLOUR, off, activate=True).payload + b"\x01", SIZE, None)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        try:
            read_message(bytes(damaged), SIZE, None)
        except FormatError:
            continue
