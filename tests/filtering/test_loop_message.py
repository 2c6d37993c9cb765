"""Parameters and decisions of a filter in the coding loop: their syntax, their size, and the picture that they give."""

import dataclasses

import numpy as np
import pytest

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError, UnsupportedError
from codecnn.filtering import LoopParameters, decide_picture
from codecnn.filtering.decisions import (
    DecisionReader,
    DecisionWriter,
    SignalledDecision,
    apply_decision,
    flag_bits,
    is_off,
    read_parameters,
    write_parameters,
)
from codecnn.pictures.files import Picture

LUMA = LoopParameters("int8", "ab" * 8, 128, ("y",), (0,))
COLOUR = LoopParameters("int16", "0f" * 8, 16, ("y", "u", "v"), (0, -5, 5))
SIZE = (150, 270)
OFF = SignalledDecision({"y": "off"}, {"y": np.zeros((2, 3), np.bool_)}, {"y": 1.0}, 0)


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
    scales = {name: 1.0 if mode == "off" else rng.choice([16, 96, 256, 320]) / 256 for name, mode in modes.items()}
    off = set(modes.values()) == {"off"}
    return SignalledDecision(modes, flags, scales, 0 if off else int(rng.choice(parameters.qp_offsets or (0,))))


def whole(scale=1.0):
    """Return the decision that filters all of a luma picture of SIZE."""
    return SignalledDecision({"y": "on"}, {"y": np.ones((2, 3), np.bool_)}, {"y": scale}, 0)


@pytest.mark.parametrize("placement", ["in_loop", "behind", "by_picture"])
@pytest.mark.parametrize("parameters", [LUMA, COLOUR], ids=["luma", "colour"])
def test_decisions_are_read_as_they_were_written(parameters, placement):
    rng = np.random.default_rng(1)
    parameters = dataclasses.replace(parameters, placement=placement)
    writer, reader = DecisionWriter(parameters), DecisionReader(parameters)
    seen = set()
    for number in range(200):
        written = decision(parameters, rng)
        behind = placement == "behind" or (placement == "by_picture" and number % 3 == 0)
        again, is_behind = reader.read(writer.write(written, 37, behind=behind), 37, SIZE)
        assert is_behind == (behind and not is_off(written))
        assert (again.modes, again.scales, again.qp_offset) == (written.modes, written.scales, written.qp_offset)
        assert all(np.array_equal(again.flags[name], written.flags[name]) for name in parameters.components)
        seen |= set(written.modes.values())
    assert seen == {"off", "on", "ctu"}


def test_usual_decisions_take_no_byte():
    """A picture that is filtered as a whole, at the scale of the picture before; others take one."""
    writer = DecisionWriter(LUMA)
    pictures = [whole(), whole(), whole(304 / 256), whole(304 / 256), OFF, whole(304 / 256)]
    assert [len(writer.write(picture, 37)) for picture in pictures] == [0, 0, 1, 0, 1, 0]


def test_flags_take_the_bits_of_their_estimate():
    """The engine rounds probabilities, so that it differs by a few per cent from the entropy that decisions count."""
    rng = np.random.default_rng(2)
    parameters = dataclasses.replace(LUMA, ctu_size=16)
    for share in (0.02, 0.3, 0.5, 0.97):
        flags = rng.random((68, 120)) < share
        written = SignalledDecision({"y": "ctu"}, {"y": flags}, {"y": 1.0}, 0)
        assert 8 * len(DecisionWriter(parameters).write(written, 37)) == pytest.approx(flag_bits(flags), rel=0.06)


def test_decisions_adapt_from_picture_to_picture():
    """Equal maps of flags take less in the third picture than in the first."""
    flags = np.add.outer(np.arange(10), np.arange(17)) % 5 > 0
    written = SignalledDecision({"y": "ctu"}, {"y": flags}, {"y": 1.0}, 0)
    writer = DecisionWriter(dataclasses.replace(LUMA, ctu_size=16))
    sizes = [len(writer.write(written, 37)) for _ in range(3)]
    assert sizes[2] < sizes[0]


def test_key_pictures_have_their_own_probabilities():
    """If key pictures are filtered and the others are not, as in low delay at high QPs, neither takes a byte."""
    writer = DecisionWriter(LUMA)
    sizes = [len(writer.write(OFF if number % 4 else whole(), 45 if number % 4 else 37)) for number in range(16)]
    assert sizes == [0, 1, *[0] * 14]


def test_without_decisions_only_the_place_is_coded():
    parameters = dataclasses.replace(LUMA, qp_offsets=())
    assert DecisionWriter(parameters).write(None, 37) == b""
    assert DecisionReader(parameters).read(b"", 37, SIZE) == (None, False)
    parameters = dataclasses.replace(parameters, placement="by_picture")
    writer, reader = DecisionWriter(parameters), DecisionReader(parameters)
    for behind in (False, True, True, False):
        assert reader.read(writer.write(None, 37, behind=behind), 37, SIZE) == (None, behind)


@pytest.mark.parametrize("parameters", [LUMA, COLOUR, dataclasses.replace(COLOUR, qp_offsets=())])
@pytest.mark.parametrize("placement", ["in_loop", "behind", "by_picture"])
def test_parameters_are_read_as_they_were_written(parameters, placement):
    parameters = dataclasses.replace(parameters, placement=placement)
    data = write_parameters(parameters)
    assert len(data) == 4 + ceil_div(80 + 7 * len(parameters.qp_offsets), 8)
    for rest in (b"", b"\0\1"):
        assert read_parameters(data + rest) == (parameters, rest)


@pytest.mark.parametrize("names", ["y", "yuv"])
def test_the_decided_picture_follows_from_the_code(names):
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
    decided, taken = decide_picture(
        Picture(tuple(original.values()), 10), picture, candidates, qp=37, ctu=64, scale_step=16
    )
    assert taken.mode == "ctu"
    parameters = LoopParameters("int8", "0" * 16, 64, tuple(names), (0, -5))
    code = DecisionWriter(parameters).write(taken, 37)
    read, _ = DecisionReader(parameters).read(code, 37, SIZE)
    again = apply_decision(picture, candidates[read.qp_offset], read, 64)
    for a, b in zip(again.planes, decided.planes, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert abs(8 * len(code) - taken.bits) < 8


def test_damaged_parameters_are_refused():
    data = write_parameters(LUMA)
    with pytest.raises(FormatError, match="there are no parameters"):
        read_parameters(b"CNNg" + data[4:])
    with pytest.raises(FormatError, match="end early"):
        read_parameters(data[:10])
    with pytest.raises(FormatError, match="ones in their padding"):
        read_parameters(data[:-1] + bytes([data[-1] | 1]))
    with pytest.raises(UnsupportedError, match="have version 1, and codecnn reads version 2"):
        read_parameters(data[:4] + b"\x20" + data[5:])
    with pytest.raises(FormatError, match="arithmetic of the filter in the loop is 3"):
        read_parameters(data[:4] + bytes([data[4] | 0b11000]) + data[5:])
    with pytest.raises(FormatError, match="place of the filter in the loop is 3"):
        read_parameters(data[:4] + bytes([data[4] | 0b110]) + data[5:])


def test_damaged_decisions_are_refused_or_have_other_values():
    rng = np.random.default_rng(4)
    with pytest.raises(FormatError, match="bits are not those of its values"):
        DecisionReader(LUMA).read(b"\0", 37, SIZE)
    with pytest.raises(FormatError, match="bits are not those of its values"):
        DecisionReader(LUMA).read(DecisionWriter(LUMA).write(whole(1.25), 37) + b"\1", 37, SIZE)
    refused = 0
    for _ in range(300):
        written = decision(COLOUR, rng)
        damaged = bytearray(DecisionWriter(COLOUR).write(written, 37) or b"\0")
        damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        try:
            again, _ = DecisionReader(COLOUR).read(bytes(damaged), 37, SIZE)
        except FormatError:
            refused += 1
            continue
        assert DecisionWriter(COLOUR).write(again, 37) == bytes(damaged) != DecisionWriter(COLOUR).write(written, 37)
    assert refused
