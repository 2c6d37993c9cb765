"""Headers of VVC streams: codes, NAL units, parameter sets, tiles and picture order counts."""

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError
from codecnn.pictures.files import open_video
from codecnn.vvc.syntax import SCAN, SequenceParameterSet, bitstream, read_pictures
from codecnn.vvc.syntax.bitstream import Bits, nal_units
from codecnn.vvc.syntax.contexts import initial_contexts
from codecnn.vvc.syntax.ref_lists import list_pocs
from codecnn.vvc.syntax.scans import SCAN_INDEX
from codecnn.vvc.syntax.tiles import Rectangle, TileGrid, slice_ctus, slice_parts
from tests.helpers.cut_streams import starting_with_gdr, units_of, vvc_type


def bits(text: str) -> Bits:
    """Return a reader of a string of zeros and ones, padded with zeros to whole bytes."""
    text = text.replace(" ", "")
    return Bits(int(text.ljust(ceil_div(len(text), 8) * 8, "0"), 2).to_bytes(ceil_div(len(text), 8), "big"))


def test_codes():
    """The bit strings and values are those of table 3 of clause 9.2."""
    for value, code in enumerate(["1", "010", "011", "00100", "00101", "00110", "00111", "0001000"]):
        assert bits(code).ue("x", 10) == value
    for value, code in [(0, "1"), (1, "010"), (-1, "011"), (2, "00100"), (-2, "00101"), (3, "00110")]:
        assert bits(code).se("x", -5, 5) == value
    r = bits("1011 0000 1111 1111 1")
    assert (r.u(3), r.u(5), r.u(9), r.position) == (5, 16, 511, 17)


def test_codes_out_of_range_are_refused():
    with pytest.raises(FormatError, match="pps_size is 6, more than 5"):
        bits("00111").ue("pps_size", 5)
    with pytest.raises(FormatError, match="x is -2, not in -1 to 1"):
        bits("00101").se("x", -1, 1)
    with pytest.raises(FormatError, match="ends early"):
        bits("1").u(9)
    with pytest.raises(FormatError, match="no valid code"):
        bits("0" * 80).ue("x", 5)


def test_nal_units():
    stream = b"\0\0\0\1" + b"\0\x79" + b"\1\0\0\3\1\0\0\3\0\x80" + b"\0\0\0\1" + b"\0\x81" + b"\x80" + b"\0\0\3" * 2
    units = list(nal_units(stream))
    assert [(unit.type, unit.layer, unit.temporal_id) for unit in units] == [
        (bitstream.SPS, 0, 0),
        (bitstream.PPS, 0, 0),
    ]
    assert units[0].rbsp == b"\1\0\0\1\0\0\0\x80"
    assert units[1].rbsp == b"\x80"


@pytest.mark.parametrize("stream", [b"", b"RIFF", b"\1\0\0\1\0\x79\x80"])
def test_data_without_start_code_is_refused(stream):
    with pytest.raises(FormatError, match="does not begin with a start code"):
        list(nal_units(stream))


def test_pictures_equal_the_log_of_the_encoder(golden):
    checked = 0
    for path in sorted(golden.glob("vvc/*.266")):
        frames = json.loads(path.with_suffix(".json").read_text())["frames"]
        pictures = list(read_pictures(path.read_bytes()))
        headers = [
            (p.poc, p.temporal_id, part.header.slice_type, part.header.slice_qp_y)
            for p in pictures
            for part in p.slices
        ]
        assert headers == [(frame["poc"], frame["tid"], frame["type"], frame["qp"]) for frame in frames], path.name
        checked += len(frames)
    assert checked == (116 if golden.name == "golden" else 57)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("tinyclip128x64_ra_qp37", 31),
        ("tinyclip128x64_ld_qp37", 8),
        ("clip416x240_ra_qp37", 39),
        ("clip416x240_ra_default_qp32", 32),
    ],
)
def test_reference_pictures_precede_in_decoding_order(golden_file, name, count):
    decoded = set()
    checked = 0
    for picture in read_pictures(golden_file(f"vvc/{name}.266").read_bytes()):
        references = {poc for part in picture.slices for entries in part.references for _, poc in entries}
        assert references <= decoded
        checked += len(references)
        decoded.add(picture.poc)
    assert checked == count


@pytest.mark.parametrize("recovery", [0, 1, 5])
def test_pictures_before_the_recovery_point_of_gdr_are_not_output(golden_file, tmp_path, recovery):
    whole = golden_file("vvc/tinyclip128x64_ld_qp37.266")
    path = tmp_path / "gdr.266"
    path.write_bytes(starting_with_gdr(whole.read_bytes(), recovery))
    pictures = list(read_pictures(path.read_bytes()))
    assert [(picture.poc, picture.output) for picture in pictures] == [(poc, poc >= recovery) for poc in range(9)]
    # ffmpeg decodes the same pictures.
    decoded, original = open_video(path), open_video(whole)
    assert len(decoded) == 9 - recovery
    for picture, expected in zip(decoded, list(original)[recovery:], strict=True):
        np.testing.assert_array_equal(picture.y, expected.y)


def test_gdr_pictures_within_a_sequence_change_no_output(golden_file):
    """A GDR picture after other pictures of its sequence needs no recovery, because decoding did not start there."""
    stream = golden_file("vvc/tinyclip128x64_ld_qp37.266").read_bytes()
    gdr = starting_with_gdr(stream, 5)
    pictures = list(read_pictures(stream + gdr))
    assert [picture.output for picture in pictures] == [True] * 18
    end_of_sequence = b"\0\0\1\0\xa9"
    pictures = list(read_pictures(stream + end_of_sequence + gdr))
    assert [picture.output for picture in pictures] == [True] * 9 + [False] * 5 + [True] * 4


def test_idr_slices_of_pictures_with_mixed_types_begin_no_sequence(golden_file):
    stream = golden_file("vvc/tinyclip128x64_ld_qp37.266").read_bytes()
    units = [bytearray(unit) for unit in units_of(stream)]
    (pps,) = (unit for unit in units if vvc_type(unit) == bitstream.PPS)
    pps[6] |= 0x20  # pps_mixed_nalu_types_in_pic_flag
    mixed = b"".join(units)
    pictures = list(read_pictures(stream + mixed))
    assert [picture.first for picture in pictures] == [True] + [False] * 17
    assert {picture.cvs for picture in pictures} == {0}
    assert [picture.first for picture in read_pictures(stream + stream)] == [True, *[False] * 8] * 2
    with pytest.raises(FormatError, match="does not begin with an IRAP or GDR picture"):
        list(read_pictures(mixed))


def sps_rbsp(golden_file) -> bytes:
    """Return the payload of the SPS of a golden stream."""
    stream = golden_file("vvc/tiny64x64_ai_qp32.266").read_bytes()
    return next(unit.rbsp for unit in nal_units(stream) if unit.type == bitstream.SPS)


def test_damaged_sps_is_parsed_or_refused(golden_file):
    """Flip each bit of a parameter set: it is parsed or refused with a message, and no other exception occurs."""
    rbsp = sps_rbsp(golden_file)
    intact = SequenceParameterSet(rbsp)
    assert (intact.sps_pic_width_max_in_luma_samples, intact.sps_pic_height_max_in_luma_samples) == (64, 64)
    assert (intact.bit_depth, intact.sps_chroma_format_idc) == (10, 1)
    with pytest.raises(FrozenInstanceError, match="bit_depth of a SequenceParameterSet"):
        intact.bit_depth = 8
    refusals = []
    for bit in range(8 * len(rbsp)):
        damaged = bytearray(rbsp)
        damaged[bit // 8] ^= 128 >> bit % 8
        try:
            SequenceParameterSet(bytes(damaged))
        except FormatError as error:
            refusals.append(str(error))
    assert any("sps_num_subpics_minus1 is 2" in text for text in refusals)
    assert any("table of chroma QPs" in text for text in refusals)


def test_streams_with_layers_are_refused(golden_file):
    data = bytearray(golden_file("vvc/tiny64x64_ai_qp32.266").read_bytes())
    at = data.index(b"\0\0\1") + 3
    data[at] |= 1
    with pytest.raises(FormatError, match="layer 1"):
        list(read_pictures(bytes(data)))


def test_ctus_of_tiles():
    """A picture of 3x2 CTUs has four tiles and two raster-scan slices: decoding order goes tile by tile."""
    grid = TileGrid([0, 2, 3], [0, 1, 2], None)
    first = slice_ctus(grid, slice_parts(grid, 0, 2), False)
    second = slice_ctus(grid, slice_parts(grid, 2, 2), False)
    assert first["address"].tolist() == [0, 1, 2]
    assert first["tile"].tolist() == [0, 0, 1]
    assert first["ends"].tolist() == [0, 2, 3]
    assert second["address"].tolist() == [3, 4, 5]
    with pytest.raises(FormatError, match="tile 3"):
        slice_parts(grid, 3, 2)


def test_ctus_of_rectangular_slices():
    """One slice is the left column of tiles, the other the lower CTU row of a tile; a wavefront ends each row."""
    grid = TileGrid([0, 2, 4], [0, 2, 4], [Rectangle(0, 0, 1, 2, None), Rectangle(1, 0, 1, 1, (1, 2))])
    left = slice_ctus(grid, slice_parts(grid, 0, 1), False)
    assert left["address"].tolist() == [0, 1, 4, 5, 8, 9, 12, 13]
    assert left["ends"].tolist() == [0, 0, 0, 2, 0, 0, 0, 3]
    part = slice_ctus(grid, slice_parts(grid, 1, 1), True)
    assert part["address"].tolist() == [6, 7]
    rows = slice_ctus(grid, slice_parts(grid, 0, 1), True)
    assert rows["ends"].tolist() == [0, 1, 0, 2, 0, 1, 0, 3]
    assert rows["first_in_row"].tolist() == [1, 0] * 4


def test_reference_pictures():
    """POC 40 with LSBs of 4 bits: a short-term picture by its difference, long-term ones by LSBs and by MSB cycles."""
    entries = [(False, -8, None), (True, 3, None), (True, 3, 2)]
    assert list_pocs(entries, 40, 4, [0, 19, 35]) == [(False, 32), (True, 35), (True, 3)]
    assert list_pocs(entries, 40, 4, [0])[1] == (True, 3), "a missing picture has the POC of its LSBs"


def test_diagonal_scan():
    """The scan of 4x4 and 2x8 blocks follows diagonals from bottom left to top right (clause 6.5.2)."""
    assert SCAN[2, 2, :6].tolist() == [[0, 0], [0, 1], [1, 0], [0, 2], [1, 1], [2, 0]]
    assert SCAN[1, 3, :5].tolist() == [[0, 0], [0, 1], [1, 0], [0, 2], [1, 1]]
    for a, b in ((2, 2), (0, 4), (3, 3), (1, 3)):
        places = SCAN[a, b, : 1 << (a + b)]
        index = SCAN_INDEX[a, b][(places[:, 1] << a) + places[:, 0]]
        assert index.tolist() == list(range(1 << (a + b)))


def test_initial_contexts():
    """Values computed by hand (clause 9.3.2.2) for variables of alf_ctb_flag (62 and 39) in an I slice at QP 32."""
    states = initial_contexts("I", False, 32).T
    # 62: slope 3, offset 109, (3 * 16 >> 1) + 109 = 133 -> 127. 39: slope 0, offset 127.
    assert states[0].tolist() == [127 << 3, 127 << 7, 2, 5]
    assert states[1].tolist() == [127 << 3, 127 << 7, 2, 5]
    # sao_type_idx 13 with shiftIdx 4: slope -3, offset 91, (-48 >> 1) + 91 = 67.
    assert np.any((states == [67 << 3, 67 << 7, 3, 6]).all(axis=1))
    swapped = initial_contexts("P", True, 32)
    np.testing.assert_array_equal(swapped, initial_contexts("B", False, 32))
