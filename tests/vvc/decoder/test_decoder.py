"""Decoded pictures of whole streams: MD5 of the output, hashes, output order, planes, missing references, damage."""

import hashlib
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from codecnn.base.errors import CodecnnError, ConfigError, FormatError, UnsupportedError
from codecnn.codec import decode_pictures, read_output_pictures, read_pictures, stream_info
from codecnn.vvc.decoder import NO_REFERENCE, DecodedPicture, Decoder, read_log, reconstruct
from codecnn.vvc.syntax import SeiMessage, md5_message
from codecnn.vvc.syntax import read_pictures as parsed_pictures
from codecnn.vvc.syntax.bitstream import nal_units
from codecnn.vvc.syntax.sei import sei_unit
from tests.helpers.cut_streams import starting_with_gdr, units_of, vvc_type
from tests.helpers.damage import mutated
from tests.helpers.golden import SHARED

STREAMS = sorted(path.relative_to(SHARED / "golden").as_posix() for path in SHARED.glob("golden/vvc*/*.266"))
QUICK = [
    "vvc/tiny64x64_ai_qp32.266",
    "vvc/tinyclip128x64_ld_qp37.266",
    "vvc/tinyclip128x64_ra_qp37.266",
    "vvc_vtm/ldb_422_allinter.266",
    "vvc_vtm/ldp_400_ibd8.266",
    "vvc_vtm/ldp_rpr.266",
    "vvc_vtm/ldb_weighted_fade.266",
    "vvc_vtm/ldp_444_natural_act.266",
]
RANDOM_ACCESS, LOW_DELAY = "vvc/tinyclip128x64_ra_qp37.266", "vvc/tinyclip128x64_ld_qp37.266"


def test_all_golden_streams_are_tested():
    assert len(STREAMS) == (76 if SHARED.is_dir() else 0)


def components(picture: DecodedPicture) -> Iterable[np.ndarray]:
    """Y, Cb and Cr as a decoder writes them: bytes of 8 bit, else 16 bit little-endian."""
    return (plane.astype(np.uint8 if picture.bit_depth == 8 else "<u2") for plane in picture.planes.values())


def rec_planes(stream: Path) -> list[str]:
    chroma = next(parsed_pictures(stream.read_bytes())).sps.sps_chroma_format_idc
    return [f"rec_{letter}" for letter in ("yuv" if chroma else "y")]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else (pytest.mark.slow,)) for name in STREAMS]
)
def test_decoded_pictures_have_the_md5_of_the_reference_decoder(golden_file, name):
    stream = golden_file(name)
    digest, states = hashlib.md5(), []
    for picture in decode_pictures(stream, rec_planes(stream)):
        states.append(picture.hash)
        for plane in components(picture):
            digest.update(plane.tobytes())
    assert set(states) == {"ok"}
    assert digest.hexdigest() == stream.with_suffix(".md5").read_text().split()[0]


def test_pictures_come_in_output_order_with_type_and_qp(golden_file):
    stream = golden_file(RANDOM_ACCESS)
    decoded = list(decode_pictures(stream))
    assert [picture.poc for picture in decoded] == list(range(17))
    coded = {picture.poc: picture for picture in stream_info(stream).pictures}
    for picture in decoded:
        expected = coded[picture.poc]
        assert (picture.slice_type, picture.slice_qps) == (expected.slice_type, expected.slice_qps)
        assert (picture.hash, picture.missing, picture.bit_depth, picture.chroma) == ("ok", (), 10, "420")


def test_sequences_follow_each_other_in_output_order(golden_file, tmp_path):
    stream = golden_file(RANDOM_ACCESS).read_bytes()
    twice = tmp_path / "twice.266"
    twice.write_bytes(stream + stream)
    pictures = list(decode_pictures(twice))
    assert [picture.poc for picture in pictures] == [*range(17), *range(17)]
    # The picture of POC 16 is an IDR picture with leading pictures: it begins a sequence, too.
    assert [picture.cvs for picture in pictures] == [0] + [1] * 16 + [2] + [3] * 16
    assert {picture.hash for picture in pictures} == {"ok"}


def test_planes_of_inter_pictures_fit_together(golden_file):
    kinds = ("pred", "resid", "unf")
    names = [f"{kind}_{letter}" for kind in kinds for letter in "yuv"]
    moved = 0
    for poc, planes in read_pictures(golden_file(LOW_DELAY), [*names, "bs_v", "mv_l0", "mv_l1", "ref_idx_l0"]):
        for letter in "uv":
            total = planes[f"pred_{letter}"].astype(np.int32) + planes[f"resid_{letter}"]
            np.testing.assert_array_equal(planes[f"unf_{letter}"], total.clip(0, 1023))
        assert planes["mv_l0"].shape == planes["mv_l1"].shape == (16, 32, 2)
        used = planes["ref_idx_l0"] != NO_REFERENCE
        assert (planes["ref_idx_l0"][used] < poc).all()
        assert (planes["mv_l0"][~used] == 0).all()
        moved += int(np.count_nonzero(planes["mv_l0"]))
        assert used.any() == (poc > 0)
    assert moved > 100


def test_intra_pictures_are_the_same_in_both_ways_of_reading(golden_file):
    stream = golden_file(RANDOM_ACCESS)
    names = ("pred_y", "unf_y", "unf_v", "bs_h", "rec_y")
    decoded = dict(read_pictures(stream, names))
    intra = dict(read_pictures(stream, names, pictures="intra"))
    assert list(decoded) == list(range(17))
    assert list(intra) == [0, 16]
    for poc, planes in intra.items():
        for name in names:
            np.testing.assert_array_equal(planes[name], decoded[poc][name])


def test_pictures_that_differ_from_their_hash_are_told(golden_file, tmp_path):
    """The hash of POC 3 is changed; the others stay equal to theirs."""
    units = units_of(golden_file(LOW_DELAY).read_bytes())
    suffixes = [i for i, unit in enumerate(units) if vvc_type(unit) == 24]
    assert len(suffixes) == 9
    broken = bytearray(units[suffixes[3]])
    broken[-3] ^= 1
    units[suffixes[3]] = bytes(broken)
    path = tmp_path / "hash.266"
    path.write_bytes(b"".join(units))
    states = {picture.poc: picture.hash for picture in decode_pictures(path)}
    assert states == {poc: "differs" if poc == 3 else "ok" for poc in range(9)}
    with pytest.raises(FormatError, match=r"hash\.266, POC 3: the decoded picture differs from its hash"):
        list(read_pictures(path, ("rec_y",)))
    without = tmp_path / "without.266"
    without.write_bytes(b"".join(unit for unit in units if vvc_type(unit) != 24))
    assert {picture.hash for picture in decode_pictures(without)} == {"none"}


def lose_second_picture(stream: bytes) -> bytes:
    """Return a low delay stream, in which each picture refers to the one before it, without POC 1 and its hash."""
    units = units_of(stream)
    lost = next(i for i, unit in enumerate(units) if vvc_type(unit) <= 3)
    assert vvc_type(units[lost + 1]) == 24
    return b"".join(unit for i, unit in enumerate(units) if i not in (lost, lost + 1))


def test_hashes_of_all_subpictures_prove_a_picture(golden_file, tmp_path):
    """The hash of each picture is replaced with those of its subpictures, of which one is wrong or one is missing."""
    stream = golden_file("vvc_vtm/ldp_subpics4.266")
    decoded = list(decode_pictures(stream, rec_planes(stream)))
    corners = {0: (0, 0, 256, 128), 1: (0, 128, 256, 240), 2: (256, 0, 416, 128), 3: (256, 128, 416, 240)}
    units = []
    remaining = iter(decoded)
    for unit in units_of(stream.read_bytes()):
        if vvc_type(unit) != 24:
            units.append(unit)
            continue
        picture = next(remaining)
        for number, (left, top, right, bottom) in corners.items():
            planes = [
                plane[top >> shift : bottom >> shift, left >> shift : right >> shift]
                for plane, shift in zip(picture.planes.values(), (0, 1, 1), strict=True)
            ]
            message = md5_message(planes, picture.bit_depth)
            if (picture.poc, number) == (1, 2):
                message = message._replace(payload=message.payload[:-1] + bytes([message.payload[-1] ^ 1]))
            if (picture.poc, number) == (2, 1):
                continue
            # scalable_nesting(): all layers, one subpicture with an ID of two bits, one message
            nesting = int(f"0111010{number:02b}1000000", 2).to_bytes(2, "big")
            nesting += bytes([message.type, len(message.payload)]) + message.payload
            units.append(sei_unit(24, 0, [SeiMessage(133, nesting)]))
    path = tmp_path / "subpictures.266"
    path.write_bytes(b"".join(units))
    states = {picture.poc: picture.hash for picture in decode_pictures(path)}
    assert states == {0: "ok", 1: "differs", 2: "none"}


def test_missing_reference_pictures_are_generated_and_named(golden_file, tmp_path):
    """POC 2 refers to the missing picture, and the later ones depend on it through POC 2."""
    path = tmp_path / "lost.266"
    path.write_bytes(lose_second_picture(golden_file(LOW_DELAY).read_bytes()))
    decoded = {picture.poc: picture for picture in decode_pictures(path)}
    missing = {poc: picture.missing for poc, picture in decoded.items()}
    assert missing == {0: (), **dict.fromkeys(range(2, 9), (1,))}
    assert (decoded[0].hash, decoded[2].hash) == ("ok", "differs")


def test_recovery_point_ends_the_dependence_on_missing_pictures(golden_file, tmp_path):
    path = tmp_path / "gdr.266"
    path.write_bytes(lose_second_picture(starting_with_gdr(golden_file(LOW_DELAY).read_bytes(), 3)))
    missing = {picture.poc: picture.missing for picture in decode_pictures(path)}
    assert missing == dict.fromkeys(range(3, 9), ())


def test_memory_of_reference_pictures_is_bounded(golden_file):
    stream = golden_file(RANDOM_ACCESS)
    decoder = Decoder(("rec_y",))
    waiting = 0
    for picture in parsed_pictures(stream.read_bytes()):
        decoder.decode(picture, read_log(picture))
        waiting = max(waiting, decoder.waiting)
        assert decoder.slots <= picture.sps.dpb.size
    assert 0 < waiting <= picture.sps.dpb.reorder


def outcome(stream: Path) -> tuple[list[tuple[object, ...]], str]:
    """Decode a stream; return all that is known of its pictures, and the error at which it ends."""
    kinds = ("pred", "unf", "resid", "dbf", "sao", "rec")
    names = [*(f"{kind}_y" for kind in kinds), "rec_u", "bs_v", "bs_h", "mv_l0", "ref_idx_l1", "motion_model"]
    pictures: list[tuple[object, ...]] = []
    try:
        for picture in decode_pictures(stream, names):
            digest = hashlib.md5(b"".join(picture.planes[name].tobytes() for name in names)).hexdigest()
            pictures.append((picture.poc, picture.cvs, picture.hash, picture.missing, digest))
    except FormatError as error:
        return pictures, str(error)
    return pictures, ""


@pytest.mark.parametrize("name", [RANDOM_ACCESS, LOW_DELAY, "vvc_vtm/ldb_422_allinter.266"])
def test_pictures_and_errors_do_not_depend_on_the_number_of_threads(golden_file, tmp_path, monkeypatch, name):
    stream = golden_file(name)
    rng = np.random.default_rng(11)
    path = tmp_path / "stream.266"
    errors = set()
    for number in range(12):
        path.write_bytes(stream.read_bytes() if number == 0 else mutated([stream.read_bytes()], rng))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        expected = outcome(path)
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert outcome(path) == expected, number
        errors.add(expected[1])
    assert len(errors) > 2


@pytest.mark.parametrize("stop", [0, 1, 5])
def test_no_thread_remains_when_a_reader_stops_or_a_stream_is_damaged(golden_file, tmp_path, monkeypatch, stop):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    stream = golden_file(RANDOM_ACCESS)
    path = tmp_path / "cut.266"
    path.write_bytes(stream.read_bytes()[: stream.stat().st_size // 2])
    before = threading.active_count()
    pictures = decode_pictures(stream, ("rec_y",))
    for _ in range(stop):
        next(pictures)
    assert threading.active_count() == before + 2 * (stop > 0)
    pictures.close()
    assert threading.active_count() == before
    damaged, error = outcome(path)
    assert "POC" in error
    assert threading.active_count() == before
    whole, error = outcome(stream)
    assert (len(whole), {state for _, _, state, _, _ in whole}, error) == (17, {"ok"}, "")
    assert whole[: len(damaged)] == damaged


def test_wrong_arguments_are_refused(golden_file):
    stream = golden_file(RANDOM_ACCESS)
    with pytest.raises(ConfigError, match="there is no plane 'mv'"):
        list(read_pictures(stream, ("mv",)))
    with pytest.raises(ConfigError, match="there is no plane 'mv_l0'"):
        list(read_pictures(stream, ("mv_l0",), pictures="intra"))
    with pytest.raises(ConfigError, match="'inter'"):
        list(read_pictures(stream, ("rec_y",), pictures="inter"))
    inter = next(picture for picture in read_output_pictures(stream) if not picture.is_intra)
    with pytest.raises(UnsupportedError, match="P or B slices"):
        reconstruct(inter, ("rec_y",))


@pytest.mark.parametrize(("seed", "count"), [(5, 40), pytest.param(6, 2000, marks=pytest.mark.slow)])
def test_damaged_inter_streams_give_an_error_or_pictures_that_are_not_proven(golden_file, tmp_path, seed, count):
    rng = np.random.default_rng(seed)
    names = ("vvc/tinyclip128x64_ld_qp37", RANDOM_ACCESS[:-4], "vvc_vtm/ldp_rpr", "vvc_vtm/ldb_422_allinter")
    streams = [golden_file(f"{name}.266").read_bytes() for name in names]
    luma = [planes["rec_y"] for name in names for _, planes in read_pictures(golden_file(f"{name}.266"), ("rec_y",))]
    whole, shapes = {plane.tobytes() for plane in luma}, {plane.shape for plane in luma}
    path = tmp_path / "damaged.266"
    messages: list[str] = []
    differing = 0
    for number in range(count):
        path.write_bytes(mutated(streams, rng))
        start = time.process_time()
        try:
            for picture in decode_pictures(path, ("rec_y",)):
                differing += picture.hash == "differs"
                plane = picture.planes["rec_y"]
                # A damaged conformance window crops a picture that is right.
                if picture.hash == "ok" and plane.shape in shapes:
                    assert plane.tobytes() in whole, (seed, number)
        except CodecnnError as error:
            messages.append(str(error))
        assert time.process_time() - start < 20, (seed, number)
    assert len(messages) > count // 4
    assert all(message.startswith(str(path)) and "\n" not in message for message in messages)
    assert differing > 0


def test_hashes_are_read_from_every_golden_stream(golden_file):
    for name in (RANDOM_ACCESS, LOW_DELAY):
        data = golden_file(name).read_bytes()
        assert all(len(picture.hashes) == 1 for picture in parsed_pictures(data))
        assert any(unit.type == 24 for unit in nal_units(data))
