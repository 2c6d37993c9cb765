"""Commands on streams as users have them: in containers, without their start, from GDR pictures, and pipes."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from codecnn.codec import read_blocks, read_pictures, stream_table
from codecnn.pictures.files import files, open_video
from tests.helpers.commands import codecnn, result_of
from tests.helpers.cut_streams import starting_with_gdr, units_of, vvc_type
from tests.helpers.video_files import FFMPEG

VVC, INTRA, HEVC = "vvc/tinyclip128x64_ra_qp37.266", "vvc/tiny136x72_ai_qp32.266", "hevc/clip_rab_amp_qp32.265"


@pytest.fixture(scope="module")
def contained(golden_file, tmp_path_factory):
    """Return a function that copies a golden stream into a container."""
    folder = tmp_path_factory.mktemp("contained")

    def remux(name: str, container: str) -> Path:
        middle, path = folder / f"{Path(name).stem}.mp4", folder / f"{Path(name).stem}.{container}"
        if not path.is_file():
            if not middle.is_file():
                subprocess.run([*FFMPEG, "-i", golden_file(name), "-c", "copy", middle], check=True)
            if path != middle:
                subprocess.run([*FFMPEG, "-ignore_editlist", "1", "-i", middle, "-c", "copy", path], check=True)
        return path

    return remux


@pytest.mark.parametrize("container", ["mp4", "mkv", "ts"])
def test_partition_and_info_of_containers(run, golden_file, contained, tmp_path, container):
    path = contained(VVC, container)
    facts = result_of(run, "partition", path, "-o", tmp_path / "cus.parquet")
    assert facts["pictures"] == 17
    expected = stream_table(golden_file(VVC))
    assert read_blocks(tmp_path / "cus.parquet").to_arrow().equals(expected.to_arrow())
    assert read_blocks(path).to_arrow().equals(expected.to_arrow())
    of_stream, of_container = result_of(run, "info", golden_file(VVC)), result_of(run, "info", path)
    assert {**of_container, "file": "", "fps": 0} == {**of_stream, "file": "", "fps": 0}
    assert (of_container["codec"], of_container["pictures"], of_container["not_output"]) == ("vvc", 17, 0)


def test_planes_of_containers(run, golden_file, contained, tmp_path):
    result_of(run, "partition", contained(INTRA, "mkv"), "--planes", "unf_y", "-o", tmp_path / "a")
    ((_, planes),) = read_pictures(golden_file(INTRA), ["unf_y"])
    assert (tmp_path / "a/unf_y_136x72_10bit_400.yuv").read_bytes() == planes["unf_y"].tobytes()
    ((_, contained_planes),) = read_pictures(contained(INTRA, "ts"), ["unf_y"])
    np.testing.assert_array_equal(contained_planes["unf_y"], planes["unf_y"])


@pytest.mark.parametrize(("name", "container"), [(VVC, "mp4"), (HEVC, "mkv"), (HEVC, "ts")])
def test_filter_of_containers(run, weights, golden_file, contained, tmp_path, name, container):
    """The slice QPs come from the headers of the contained stream."""
    for path, output in ((golden_file(name), "a.yuv"), (contained(name, container), "b.yuv")):
        status, _, err = run("filter", "-m", weights, "-i", path, "-o", tmp_path / output)
        assert status == 0, err
    assert (tmp_path / "a.yuv").read_bytes() == (tmp_path / "b.yuv").read_bytes()


def test_view_of_containers(run, golden_file, contained, tmp_path):
    of_stream = result_of(run, "view", golden_file(INTRA), "-o", tmp_path / "a.html")
    of_container = result_of(run, "view", contained(INTRA, "mp4"), "-o", tmp_path / "b.html")
    assert of_container["cus"] == of_stream["cus"] > 0
    assert of_container["layers"] == of_stream["layers"]


def test_hevc_is_named_where_vvc_is_needed(run, contained, golden_file, tmp_path):
    for path in (golden_file(HEVC), contained(HEVC, "mp4")):
        status, _, err = run("partition", path, "-o", tmp_path / "a.csv")
        assert status == 1
        assert f"{path} holds HEVC video, but VVC is needed here" in err
        facts = result_of(run, "info", path)
        assert (facts["codec"], facts["pictures"], facts["width"], facts["fields"]) == ("hevc", 17, 416, None)
    assert list(tmp_path.iterdir()) == []


def test_files_without_video_are_named(run, weights, tmp_path):
    path = tmp_path / "sound.mp4"
    subprocess.run([*FFMPEG, "-f", "lavfi", "-i", "sine=d=0.1", path], check=True)
    output = ("-o", tmp_path / "o.html")
    for command in (
        ("info", path),
        ("view", path, *output),
        ("partition", path, *output),
        ("filter", "-m", weights, "-i", path, "-q", 30, "-o", tmp_path / "o.yuv"),
    ):
        status, _, err = run(*command)
        assert status == 1
        assert "sound.mp4 has no video" in err


def test_gdr_pictures_are_shown_with_their_own_cus(run, weights, golden_file, tmp_path):
    """The stream outputs the last four of nine pictures: the first of them has the CUs of the sixth."""
    whole, path = golden_file("vvc/tinyclip128x64_ld_qp37.266"), tmp_path / "gdr.266"
    path.write_bytes(starting_with_gdr(whole.read_bytes(), 5))
    facts = result_of(run, "info", path)
    assert (facts["pictures"], facts["not_output"]) == (4, 5)
    lines = [" ".join(line.split()) for line in run("info", path)[1].splitlines()]
    assert {"pictures not shown 5", "QP within a slice the same in all blocks"} <= set(lines)
    table, expected = stream_table(path), stream_table(whole)
    for number in range(4):
        units = int((expected.poc == number + 5).sum())
        assert int((table.poc == number).sum()) == units
        assert result_of(run, "view", path, "--picture", number, "-o", tmp_path / "v.html")["cus"] == units
    status, _, err = run("view", path, "--picture", 4, "-o", tmp_path / "v.html")
    assert status == 1
    assert "has 4 pictures; use --picture 0 to 3, not 4" in err
    assert run("filter", "-m", weights, "-i", path, "-o", tmp_path / "o.yuv")[0] == 0
    assert (tmp_path / "o.yuv").stat().st_size == 4 * 128 * 64 * 3


def test_a_stream_that_decodes_to_other_pictures_than_its_headers_tell_is_refused(
    run, weights, golden_file, tmp_path, monkeypatch
):
    decoded = open_video(golden_file(VVC), frames=16)
    monkeypatch.setattr("codecnn.pictures.files.open_video", lambda *_, **__: decoded)
    status, _, err = run("filter", "-m", weights, "-i", golden_file(VVC), "-o", tmp_path / "o.yuv")
    assert status == 1
    assert "holds the slice QPs of 17 pictures and decodes to 16 pictures: give -q QP" in err


def test_a_cut_stream_is_read_with_a_warning(run, golden_file, tmp_path, caplog):
    units = units_of(golden_file("vvc/tinyclip128x64_ld_qp37.266").read_bytes() * 2)
    first = next(number for number, unit in enumerate(units) if vvc_type(unit) in (7, 8))
    path = tmp_path / "cut.bit"
    path.write_bytes(b"".join(units[:first] + units[first + 1 :]))
    facts = result_of(run, "info", path)
    assert facts["pictures"] == 9
    assert "8 pictures precede the first one at which decoding can start" in caplog.text
    assert result_of(run, "partition", path, "-o", tmp_path / "cus.csv")["pictures"] == 9


def test_info_counts_packets_and_decodes_nothing(run, tmp_path, monkeypatch):
    path = tmp_path / "long.mp4"
    source = ["-f", "lavfi", "-i", "testsrc2=size=64x48:rate=50:duration=6", "-pix_fmt", "yuv420p"]
    subprocess.run([*FFMPEG, *source, "-c:v", "mpeg4", path], check=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr("codecnn.pictures.files.streams.decode", None)
    facts = result_of(run, "info", path)
    assert (facts["pictures"], facts["codec"], facts["counted"], facts["fps"]) == (300, "mpeg4", "packets", 50)
    assert list(scratch.iterdir()) == []
    status, _, err = run("info", path, "-s", "32x32")
    assert status == 1
    assert "has width 64 by its own header" in err


def test_info_describes_avc_whose_headers_are_not_read(run, tmp_path, caplog):
    """Frames of fields (PAFF) have slices of fields; their pictures are counted as packets instead."""
    path = tmp_path / "fields.mp4"
    source = ["-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25:duration=0.4", "-pix_fmt", "yuv420p"]
    subprocess.run([*FFMPEG, *source, "-c:v", "libx264", "-x264-params", "tff=1", path], check=True)
    progressive = tmp_path / "frames.mp4"
    subprocess.run([*FFMPEG, *source, "-c:v", "libx264", "-qp", "30", progressive], check=True)
    assert result_of(run, "info", progressive)["coded_pictures"][0]["slice_type"] == "I"
    cut = tmp_path / "cut.264"
    subprocess.run([*FFMPEG, *source, "-c:v", "libx264", "-x264-params", "keyint=5:scenecut=0", cut], check=True)
    assert result_of(run, "info", progressive)["fields"] is None
    assert result_of(run, "info", path)["fields"] == "top field first"
    stream = cut.read_bytes()
    cut.write_bytes(stream.replace(b"\0\0\1\x65", b"\0\0\1\x61", 1))
    facts = result_of(run, "info", cut)
    assert (facts["codec"], "coded_pictures" in facts) == ("avc", False)


@pytest.fixture(scope="module")
def y4m(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("pipe") / "in.y4m"
    source = ["-f", "lavfi", "-i", "testsrc2=size=48x32:rate=25:duration=0.12", "-pix_fmt", "yuv420p"]
    subprocess.run([*FFMPEG, *source, path], check=True)
    return path


@pytest.fixture
def standard_input(monkeypatch):
    """Return a function that puts bytes into the standard input of this process."""

    def put(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        monkeypatch.setattr(files, "standard_input", files.standard_input.__wrapped__)  # it is read once in a process

    return put


def test_pipes(run, standard_input, weights, y4m, tmp_path):
    """Y4M goes through standard input and output, and all else that is printed goes to stderr."""
    status, _, err = run("filter", "-m", weights, "-q", 37, "-i", y4m, "-o", tmp_path / "file.y4m")
    assert status == 0, err
    filter_pipe = ("filter", "-m", weights, "-q", 37, "-i", "-", "-o", "-")
    piped = codecnn(*filter_pipe, input=y4m.read_bytes(), cwd=tmp_path)
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == (tmp_path / "file.y4m").read_bytes()
    decided = codecnn(*filter_pipe, "--original", y4m, input=y4m.read_bytes(), cwd=tmp_path)
    assert decided.returncode == 0, decided.stderr
    assert len(decided.stdout) == len(piped.stdout)
    standard_input(y4m.read_bytes())
    assert result_of(run, "info", "-")["pictures"] == 3
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("info -", "standard input does not begin with YUV4MPEG2: only Y4M is read from it"),
        ("filter -m {weights} -q 37 -i - -s 48x32 -o {tmp}/o.yuv", "standard input does not begin with YUV4MPEG2"),
        ("filter -m {weights} -q 37 -i {y4m} -o - --json", "standard output (-o -) holds the pictures"),
        ("labels -i {y4m} -o -", "only codecnn filter and codecnn decode write to standard output (-o -)"),
        ("partition {y4m} --output=-", "only codecnn filter and codecnn decode write to standard output (-o -)"),
        ("dataset build {y4m} -o -", "only codecnn filter and codecnn decode write to standard output (-o -)"),
        ("labels -i - -o {tmp}/l.parquet", "only codecnn filter and codecnn info read standard input (-)"),
        ("evaluate - -m {weights} -o {tmp}/results", "only codecnn filter and codecnn info read standard input (-)"),
        ("partition - -o {tmp}/o.csv", "only codecnn filter and codecnn info read standard input (-)"),
    ],
)
def test_what_does_not_go_through_a_pipe_is_refused(
    run, standard_input, weights, y4m, tmp_path, monkeypatch, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    standard_input(b"raw samples")
    status, out, err = run(*(word.format(weights=weights, y4m=y4m, tmp=tmp_path) for word in arguments.split()))
    assert status == 1
    assert sentence in " ".join(err.split())
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_qps_below_0_are_filtered_as_the_nearest_known_one(run, tmp_path):
    """At 10 bit a slice QP can be -12 (H.266 clause 7.4.3.4)."""
    rng = np.random.default_rng(1)
    path = tmp_path / "in_64x48_10bit.yuv"
    path.write_bytes(rng.integers(0, 1024, 64 * 48 * 3 // 2, dtype=np.uint16).tobytes())
    for qp, name in ((-12, "a.yuv"), (17, "b.yuv")):
        status, _, err = run("filter", "-m", "low_cost_5", "--float", "-q", qp, "-i", path, "-o", tmp_path / name)
        assert status == 0, err
        assert ("QP -12 is filtered as QP 17" in err) == (qp < 0)
    assert (tmp_path / "a.yuv").read_bytes() == (tmp_path / "b.yuv").read_bytes()
    status, _, err = run("filter", "-m", "low_cost_5", "-q", -13, "-i", path, "-o", tmp_path / "c.yuv")
    assert status == 1
    assert "QP -13 is out of range: -12 to 63 at 10 bit" in err


def test_deep_samples_go_through_float_networks(run, tmp_path):
    path = tmp_path / "in_64x48_12bit.yuv"
    path.write_bytes(np.full(64 * 48 * 3 // 2, 3000, np.uint16).tobytes())
    command = ("filter", "-m", "low_cost_5", "-q", 32, "-i", path, "-o", tmp_path / "o.yuv")
    status, _, err = run(*command)
    assert status == 1
    assert "the picture has 12: compute it in float (--float)" in err
    assert run(*command, "--float")[0] == 0
    assert (tmp_path / "o.yuv").stat().st_size == path.stat().st_size
