"""Headers of streams: slice QPs of HEVC compared with the CUs of libde265, and sizes of access units."""

import csv
import gzip
import os
import tracemalloc
from pathlib import Path

import pytest

from codecnn.base.errors import FormatError, MissingFileError
from codecnn.codec import StreamPicture, output_pictures, read_headers, slice_qp, stream_info
from codecnn.codec.headers import AccessUnit, access_units, hevc_pictures
from codecnn.pictures.files import ffmpeg_path


def test_slice_qps_of_hevc_equal_those_of_the_cus(golden):
    """At constant QP all CUs have the slice QP; streams with cu-tree are excluded, because it changes the QPs."""
    streams = [path for path in sorted((golden / "hevc").glob("*.265")) if "cutree" not in path.name]
    assert streams
    for path in streams:
        with gzip.open(path.with_suffix("").with_suffix(".cu.csv.gz"), "rt") as file:
            rows = list(csv.DictReader(file))
        qps: dict[int, set[int]] = {}
        for row in rows:
            qps.setdefault(int(row["frame"]), set()).add(int(row["QP"]))
        info = read_headers(path)
        output = output_pictures(info)
        assert [{slice_qp(picture, path)} for picture in output] == [qps[frame] for frame in sorted(qps)]
        assert max(int(row["size"]) for row in rows) <= info.ctu_size


def test_the_order_types_and_sizes_of_random_access(golden_file):
    path = golden_file("hevc/clip_rab_amp_qp32.265")
    info = read_headers(path)
    assert (info.width, info.height, info.chroma, info.bit_depth, info.ctu_size) == (416, 240, "420", 8, 64)
    assert [picture.position for picture in info.pictures][:6] == [0, 4, 2, 1, 3, 8]
    assert "".join(picture.slice_type for picture in output_pictures(info)) == "IBBBPBBBPBBBPBBBP"
    cropped = read_headers(golden_file("hevc/chelsea178x130_ai_qp32_ctu32.265"))
    assert (cropped.width, cropped.height, cropped.ctu_size) == (178, 130, 32)
    assert read_headers(golden_file("hevc/camera400_ai_qp37.265")).chroma == "400"


def test_access_units_match_pictures_and_file_size(golden_file):
    path = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    units = list(access_units(path))
    assert len(units) == len(stream_info(path).pictures) == 17
    assert sum(unit.bytes for unit in units) == path.stat().st_size
    assert all(unit.has_md5 for unit in units)
    assert not any(unit.has_md5 for unit in access_units(golden_file("hevc/clip_rab_amp_qp32.265")))


def test_bytes_outside_access_units_are_an_error(golden_file, tmp_path, monkeypatch):
    path = golden_file("vvc/tiny64x64_ai_qp32.266")
    copied = tmp_path / "longer.266"
    copied.write_bytes(path.read_bytes())
    # The stream grows while it is read.
    program = tmp_path / "ffmpeg"
    program.write_text(f"""#!/bin/sh\n"{ffmpeg_path()}" "$@"\nprintf "abc" >> "{copied}"\n""")
    program.chmod(0o755)
    monkeypatch.setenv("CODECNN_FFMPEG", str(program))
    size = path.stat().st_size
    with pytest.raises(FormatError, match=rf"longer\.266 has {size + 3} bytes, its access units {size}$"):
        list(access_units(copied))


def test_ffmpeg_ends_with_its_reader(golden_file, tmp_path, monkeypatch):
    """A reader that stops early leaves no process behind, and packets come before ffmpeg has ended."""
    program = tmp_path / "ffmpeg"
    program.write_text(f"""#!/bin/sh\necho $$ > {tmp_path}/pid\n"{ffmpeg_path()}" "$@"\nexec sleep 600\n""")
    program.chmod(0o755)
    monkeypatch.setenv("CODECNN_FFMPEG", str(program))
    units = access_units(golden_file("vvc/tinyclip128x64_ra_qp37.266"))
    assert next(units).has_md5
    units.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def peak(path):
    """Return the peak of Python's memory in bytes while the headers of a stream are read."""
    tracemalloc.start()
    try:
        read_headers(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["hevc/clip_rab_amp_qp32.265", "vvc/tinyclip128x64_ra_qp37.266"])
def test_memory_for_headers_is_that_of_one_picture(golden_file, tmp_path, name):
    """A stream of four times as many pictures needs memory for their records alone."""
    stream = golden_file(name).read_bytes()
    peaks = []
    for count in (1, 4):
        path = tmp_path / f"{count}{Path(name).suffix}"
        path.write_bytes(stream * count)
        peaks.append(peak(path))
        assert len(read_headers(path).pictures) == 17 * count
    # A record has some hundred bytes, the headers of a picture some thousands.
    assert peaks[1] - peaks[0] < 51 * 1000


def test_bytes_of_a_message_are_skipped(golden_file, tmp_path):
    stream = golden_file("hevc/clip_rab_amp_qp32.265").read_bytes()
    peaks = []
    for size in (2_000, 30_000):
        payload = b"\xff" * (size // 255) + bytes([size % 255]) + bytes([1] * size)
        path = tmp_path / f"{size}.265"
        path.write_bytes(b"\0\0\1" + bytes([39 << 1, 1, 5]) + payload + b"\x80" + stream)
        peaks.append(peak(path))
        assert len(read_headers(path).pictures) == 17
    assert peaks[1] < peaks[0] + 1_500_000


@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 4])
@pytest.mark.parametrize("suffix", [".265", ".266"])
def test_a_file_that_is_no_stream_is_an_error(tmp_path, content, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=str(path)):
        read_headers(path)
    with pytest.raises(FormatError, match=rf"the headers of {path} cannot be read" if content else rf"{path} is empty"):
        list(access_units(path))
    with pytest.raises(MissingFileError, match="does not exist"):
        read_headers(tmp_path / f"none{suffix}")


SPS = {"forbidden_zero_bit": 0, "nal_unit_type": 33, "sps_seq_parameter_set_id": 0, "chroma_format_idc": 1}
SPS |= {"pic_width_in_luma_samples": 64, "pic_height_in_luma_samples": 64, "bit_depth_luma_minus8": 0}
SPS |= {"log2_max_pic_order_cnt_lsb_minus4": 0, "log2_min_luma_coding_block_size_minus3": 0}
SPS |= {"log2_diff_max_min_luma_coding_block_size": 3}
PPS = {"nal_unit_type": 34, "pps_pic_parameter_set_id": 0, "pps_seq_parameter_set_id": 0, "init_qp_minus26": 4}

SEGMENT = {"nal_unit_type": 19, "nuh_temporal_id_plus1": 1, "slice_pic_parameter_set_id": 0}


def coded_slice(kind, lsb=0, *, delta=0, layer=1, slice_type=2, **more):
    facts = {"nal_unit_type": kind, "nuh_temporal_id_plus1": layer, "slice_pic_parameter_set_id": 0}
    return facts | {"slice_type": slice_type, "slice_pic_order_cnt_lsb": lsb, "slice_qp_delta": delta} | more


def pictures_of(*slices):
    units = [AccessUnit(1, (SPS, PPS, slices[0])), *(AccessUnit(1, (unit,)) for unit in slices[1:])]
    return hevc_pictures(units, "x.265").pictures


def test_poc_wraps_as_the_standard_says():
    """Four bits of POC are coded, relative to the last reference picture of temporal layer 0 (H.265 clause 8.3.1)."""
    idr, trail, non_reference = 19, 1, 0
    pocs = [0, 8, 15, 14, 17, 24, 31, 30]
    kinds = [idr, trail, trail, non_reference, trail, trail, trail, non_reference]
    pictures = pictures_of(*(coded_slice(kind, poc % 16) for kind, poc in zip(kinds, pocs, strict=True)))
    assert [picture.poc for picture in pictures] == pocs
    assert [picture.position for picture in pictures] == [sorted(pocs).index(poc) for poc in pocs]


def test_rasl_pictures_at_the_start_of_a_stream_are_skipped():
    cra, rasl, radl, trail = 21, 9, 7, 1
    pictures = pictures_of(coded_slice(cra, 8), coded_slice(rasl, 6), coded_slice(radl, 7), coded_slice(trail, 9))
    assert [picture.poc for picture in pictures] == [8, 7, 9]
    # They are output if another picture precedes the CRA picture.
    pictures = pictures_of(coded_slice(19, 0), coded_slice(cra, 8), coded_slice(rasl, 6))
    assert [picture.poc for picture in pictures] == [0, 8, 6]
    hidden = pictures_of(coded_slice(19), coded_slice(1, 1, pic_output_flag=0))
    assert [picture.position for picture in hidden] == [0, None]


def test_slices_may_have_different_qps_and_segments_use_that_of_their_slice():
    unit = AccessUnit(1, (SPS, PPS, coded_slice(19, delta=2), SEGMENT, coded_slice(19, delta=3)))
    (picture,) = hevc_pictures([unit], "x.265").pictures
    assert picture.slice_qps == (32, 33)
    with pytest.raises(FormatError, match=r"x\.265: .* 32, 33"):
        slice_qp(picture, Path("x.265"))
    assert slice_qp(StreamPicture(0, 0, 0, "I", (30, 30)), Path("x.266")) == 30


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ((), "there are no pictures in it"),
        ((coded_slice(19),), "there is no PPS 0"),
        ((PPS, coded_slice(19)), "there is no SPS 0"),
        ((SPS, PPS, SEGMENT), "a picture has dependent slice segments only"),
        ((SPS, PPS, coded_slice(1)), "the stream does not begin with an IRAP picture"),
    ],
)
def test_incomplete_streams_are_an_error(units, message):
    with pytest.raises(FormatError, match=rf"^x\.265: {message}$"):
        hevc_pictures([AccessUnit(1, tuple(units))], "x.265")
