"""Byte streams of VVC and HEVC: recognised by content, extracted from containers, begun where decoding can start."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from codecnn.base.errors import FormatError
from codecnn.pictures.files import byte_stream, count_packets, open_video, probe_stream, stream_codec, summarise_video
from tests.helpers.cut_streams import START, hevc_type, units_of, vvc_type
from tests.helpers.golden import GoldenFile
from tests.helpers.video_files import FFMPEG

VVC, HEVC = "vvc/tinyclip128x64_ra_qp37.266", "hevc/clip_rab_amp_qp32.265"
CLIPS = [(VVC, "vvc"), (HEVC, "hevc")]


def remux(source: Path, target: Path, *options: str) -> Path:
    """Copy a stream into a container; those that need time stamps get them from MP4."""
    middle = target.with_name("with_times.mp4")
    subprocess.run([*FFMPEG, "-i", source, "-c", "copy", middle], check=True)
    subprocess.run([*FFMPEG, "-ignore_editlist", "1", *options, "-i", middle, "-c", "copy", target], check=True)
    return target


def coded_by(target: Path, codec: str, *options: str, count: int = 10) -> Path:
    source = ["-f", "lavfi", "-i", f"testsrc2=size=64x48:rate=25:duration={count / 25}", "-pix_fmt", "yuv420p"]
    subprocess.run([*FFMPEG, *source, "-c:v", codec, *options, target], check=True)
    return target


def same_pictures(first: Path, second: Path) -> bool:
    a, b = open_video(first), open_video(second)
    return len(a) == len(b) and all(
        np.array_equal(p, q) for x, y in zip(a, b, strict=True) for p, q in zip(x.planes, y.planes, strict=True)
    )


@pytest.mark.parametrize("suffix", [".bit", ".bin", ".h266", ".hevc", ".vvc", ".265", ".266", ""])
@pytest.mark.parametrize(("name", "codec"), CLIPS)
def test_codec_is_recognised_by_content(tmp_path: Path, golden_file: GoldenFile, name: str, codec: str, suffix: str):
    path = tmp_path / f"stream{suffix}"
    path.write_bytes(golden_file(name).read_bytes())
    assert stream_codec(path) == codec
    assert byte_stream(path) == (path.absolute(), codec, 0)
    assert len(open_video(path)) == 17


def test_every_golden_stream_is_recognised(golden: Path):
    paths = [path for folder in ("vvc", "hevc") for path in golden.glob(f"{folder}/*.26[56]")]
    assert len(paths) > 15
    assert [stream_codec(path) for path in paths] == [path.parent.name for path in paths]


def test_other_codecs_are_named(tmp_path: Path):
    names = {"libvpx-vp9": ("a.mkv", "VP9"), "mpeg2video": ("a.m2v", "mpeg2video")}
    for codec, (name, standard) in names.items():
        path = coded_by(tmp_path / name, codec)
        assert stream_codec(path) is None
        assert len(open_video(path)) == 10
        message = rf"{name} holds {standard} video, but VVC, HEVC, AVC or AV1 is needed here"
        with pytest.raises(FormatError, match=message):
            byte_stream(path)


def test_another_codec_than_the_needed_one_is_named(golden_file: GoldenFile):
    with pytest.raises(FormatError, match=r"HEVC .* VVC"):
        byte_stream(golden_file(HEVC), ("vvc",))


def test_files_without_a_stream_are_refused(tmp_path: Path):
    subprocess.run([*FFMPEG, "-f", "lavfi", "-i", "sine=d=0.1", tmp_path / "sound.mp4"], check=True)
    (tmp_path / "picture_16x8.yuv").write_bytes(bytes(192))
    (tmp_path / "text.bin").write_text("no stream")
    for name, sentence in {
        "sound.mp4": "sound.mp4 has no video",
        "picture_16x8.yuv": "is a file of pictures, not a coded stream",
        "text.bin": "text.bin is not a video that ffmpeg can read: .*; name a video or a picture",
    }.items():
        assert stream_codec(tmp_path / name) is None
        with pytest.raises(FormatError, match=sentence):
            byte_stream(tmp_path / name)
    assert stream_codec(tmp_path) is None
    assert stream_codec(tmp_path / "absent.266") is None


@pytest.mark.parametrize("container", ["mp4", "mov", "mkv", "ts"])
@pytest.mark.parametrize(("name", "codec"), CLIPS)
def test_streams_in_containers(tmp_path: Path, golden_file: GoldenFile, name: str, codec: str, container: str):
    path = remux(golden_file(name), tmp_path / f"x.{container}")
    assert stream_codec(path) == codec
    stream = byte_stream(path)
    assert (stream.codec, stream.skipped) == (codec, 0)
    assert byte_stream(path) == stream  # extracted once
    types = {"vvc": vvc_type, "hevc": hevc_type}[codec]
    slices = [units_of(file.read_bytes()) for file in (golden_file(name), stream.path)]
    last = {"vvc": 11, "hevc": 31}[codec]
    first, second = ([unit.rstrip(b"\0") for unit in units if types(unit) <= last] for units in slices)
    assert first == second
    assert same_pictures(path, golden_file(name))


def test_a_changed_file_is_extracted_again(tmp_path: Path, golden_file: GoldenFile):
    path = remux(golden_file(VVC), tmp_path / "x.mkv")
    before = byte_stream(path)
    remux(golden_file(HEVC), path)
    assert byte_stream(path).codec == "hevc"
    assert before.codec == "vvc"


@pytest.mark.parametrize("name", [VVC, HEVC])
def test_edit_lists_hide_no_pictures(tmp_path: Path, golden_file: GoldenFile, caplog, name: str):
    """A copy of a part begins at the key picture before it, and an edit list hides the pictures in between."""
    path = tmp_path / "whole.mp4"
    subprocess.run([*FFMPEG, "-i", golden_file(name), "-c", "copy", path], check=True)
    cut = tmp_path / "cut.mp4"
    subprocess.run([*FFMPEG, "-ss", "0.2", "-i", path, "-c", "copy", cut], check=True)
    slices = {"vvc": range(12), "hevc": range(32)}[stream_codec(cut)]
    kind = {"vvc": vvc_type, "hevc": hevc_type}[stream_codec(cut)]
    coded = sum(kind(unit) in slices for unit in units_of(byte_stream(cut).path.read_bytes()))
    assert len(open_video(cut)) == coded > 12
    (message,) = [record.getMessage() for record in caplog.records if "cut.mp4" in record.getMessage()]
    assert "cut.mp4" in message
    assert f"{coded} pictures" in message


def test_edit_lists_of_other_codecs_hide_no_pictures(tmp_path: Path, caplog):
    path = coded_by(tmp_path / "whole.mp4", "libx264", count=20)
    assert len(open_video(path)) == summarise_video(path).pictures == 20
    assert not caplog.records
    cut = tmp_path / "cut.mp4"
    subprocess.run([*FFMPEG, "-ss", "0.4", "-i", path, "-c", "copy", cut], check=True)
    assert len(open_video(cut)) == summarise_video(cut).pictures == 20
    assert "hides 10 of its 20 pictures" in caplog.text


def without_first_picture(stream: bytes, codec: str) -> bytes:
    """Leave out the slices and headers before the second picture, as if the file began there; keep parameter sets."""
    units = units_of(stream)
    types = [(vvc_type if codec == "vvc" else hevc_type)(unit) for unit in units]
    sets = {"vvc": (15, 16), "hevc": (32, 33, 34)}[codec]
    last = {"vvc": 11, "hevc": 31}[codec]
    first = next(number for number, kind in enumerate(types) if kind <= last)
    return b"".join(unit for unit, kind in zip(units[:first], types, strict=False) if kind in sets) + b"".join(
        units[first + 1 :]
    )


@pytest.fixture(scope="module")
def long_streams(golden_file: GoldenFile, tmp_path_factory) -> Path:
    """Return a folder with a.vvc and a.hevc: three times the same 9 or 17 pictures, of which the first is IDR."""
    folder = tmp_path_factory.mktemp("long")
    for name, codec in (("vvc/tinyclip128x64_ld_qp37.266", "vvc"), (HEVC, "hevc")):
        (folder / f"a.{codec}").write_bytes(golden_file(name).read_bytes() * 3)
    return folder


COUNTS = [("vvc", 9), ("hevc", 17)]


@pytest.mark.parametrize(("codec", "count"), COUNTS)
def test_a_stream_without_its_start_begins_at_the_next_one(
    long_streams: Path, tmp_path: Path, caplog, codec: str, count: int
):
    path = tmp_path / f"cut.{codec}"
    path.write_bytes(without_first_picture((long_streams / f"a.{codec}").read_bytes(), codec))
    assert byte_stream(path).skipped == count - 1
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(
        f"codecnn: {path}: {count - 1} pictures precede the first one at which decoding can start"
    )
    cut, pictures = open_video(path), open_video(long_streams / f"a.{codec}")
    assert (len(cut), len(pictures)) == (2 * count, 3 * count)
    for picture, original in zip(cut, list(pictures)[count:], strict=True):
        assert np.array_equal(picture.y, original.y)


@pytest.mark.parametrize(("codec", "count"), COUNTS)
def test_a_container_without_its_start_begins_at_the_next_one(
    long_streams: Path, tmp_path: Path, codec: str, count: int
):
    """ffmpeg alone drops the pictures before the first key picture without a message."""
    path = remux(long_streams / f"a.{codec}", tmp_path / "cut.ts")
    packets = path.read_bytes()
    path.write_bytes(packets[188 * (len(packets) // 188 // 6) :])
    assert 1 <= byte_stream(path).skipped < count
    assert len(open_video(path)) == 2 * count


def test_a_stream_without_any_start_is_refused(long_streams: Path, tmp_path: Path):
    units = units_of((long_streams / "a.vvc").read_bytes())
    path = tmp_path / "never.vvc"
    path.write_bytes(b"".join(unit for unit in units if vvc_type(unit) not in (7, 8, 9)))
    with pytest.raises(FormatError, match=r"never\.vvc .* 24 pictures"):
        open_video(path)


def test_what_belongs_to_the_first_kept_picture_stays(long_streams: Path, tmp_path: Path):
    """Headers and SEI before the slice belong to its picture; those after a slice to the one before."""
    units = units_of((long_streams / "a.vvc").read_bytes())
    suffix_sei, prefix_sei = (START + bytes([0, kind << 3 | 1]) + b"content" for kind in (24, 23))
    first, second, _ = (number for number, unit in enumerate(units) if vvc_type(unit) in (7, 8, 9))
    last = max(number for number in range(second) if vvc_type(units[number]) <= 11)
    path = tmp_path / "cut.vvc"
    middle = [*units[first + 1 : last + 1], suffix_sei, prefix_sei, *units[last + 1 :]]
    path.write_bytes(b"".join(units[:first] + middle))
    kept = units_of(byte_stream(path).path.read_bytes())
    assert prefix_sei in kept
    assert suffix_sei not in kept
    assert kept[-1] == units[-1]
    assert next(unit for unit in kept if vvc_type(unit) <= 11) == units[second]
    assert [unit for unit in kept if vvc_type(unit) in (15, 16)][:2] == [
        unit for unit in units if vvc_type(unit) in (15, 16)
    ][:2]


def test_interlaced_video_is_reported(tmp_path: Path, caplog):
    path = coded_by(tmp_path / "a.mp4", "libx264", "-x264-params", "tff=1")
    assert probe_stream(path).fields == "top field first"
    assert len(open_video(path)) == 10
    assert "a.mp4 is interlaced (top field first)" in caplog.text
    summary = summarise_video(path)
    assert (summary.codec, summary.pictures, summary.fields) == ("avc", None, "top field first")
    plain = coded_by(tmp_path / "b.mp4", "libx264")
    assert probe_stream(plain).fields is None


@pytest.mark.parametrize("codec", ["libx264", "libaom-av1", "libvpx-vp9", "mpeg4", "ffv1"])
def test_pictures_are_counted_without_decoding(tmp_path: Path, monkeypatch, codec: str):
    path = coded_by(tmp_path / "a.mkv", codec, *(["-cpu-used", "8"] if codec.startswith("libaom") else []), count=40)
    assert len(open_video(path)) == 40
    monkeypatch.setattr("codecnn.pictures.files.streams.decode", None)
    assert summarise_video(path).pictures == count_packets(path, probe_stream(path)) == 40
