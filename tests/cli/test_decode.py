"""codecnn decode: pictures and planes in files and pipes, and the comparison with hashes."""

import hashlib
import json

import numpy as np
import pytest

from codecnn.codec import read_pictures
from codecnn.pictures.files import open_video
from codecnn.vvc.decoder import NO_REFERENCE
from tests.helpers.commands import codecnn, result_of
from tests.helpers.cut_streams import units_of, vvc_type

LOW_DELAY, RANDOM_ACCESS = "vvc/tinyclip128x64_ld_qp37.266", "vvc/tinyclip128x64_ra_qp37.266"


@pytest.fixture
def wrong_hash(golden_file, tmp_path):
    """A stream with one picture, POC 3, whose hash is not its own."""
    units = units_of(golden_file(LOW_DELAY).read_bytes())
    at = [i for i, unit in enumerate(units) if vvc_type(unit) == 24][3]
    broken = bytearray(units[at])
    broken[-3] ^= 1
    units[at] = bytes(broken)
    path = tmp_path / "wrong.266"
    path.write_bytes(b"".join(units))
    return path


@pytest.mark.parametrize("suffix", ["y4m", "yuv"])
def test_decoded_pictures_have_the_md5_of_the_reference_decoder(run, golden_file, tmp_path, suffix):
    stream, output = golden_file(RANDOM_ACCESS), tmp_path / f"out_128x64_10bit.{suffix}"
    facts = result_of(run, "decode", stream, "-o", output)
    assert (facts["ok"], facts["differs"], facts["none"], len(facts["pictures"])) == (17, 0, 0, 17)
    digest = hashlib.md5()
    with open_video(output) as video:
        for number in range(len(video)):
            for plane in video[number].planes:
                digest.update(plane.astype("<u2").tobytes())
    assert digest.hexdigest() == stream.with_suffix(".md5").read_text().split()[0]


def test_pipe_holds_what_the_file_holds(run, golden_file, tmp_path):
    stream, output = golden_file(LOW_DELAY), tmp_path / "out.y4m"
    assert run("decode", stream, "-o", output, "-f", 3)[0] == 0
    piped = codecnn("decode", stream, "-o", "-", "-f", 3, "--check", cwd=tmp_path)
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == output.read_bytes()
    assert piped.stderr.count(b"POC") == 3
    assert len(open_video(output)) == 3


def test_check_prints_a_line_for_each_picture(run, golden_file):
    stream = golden_file(LOW_DELAY)
    status, text, _ = run("decode", stream, "--check", "-f", 3)
    assert status == 0
    frames = json.loads(stream.with_suffix(".json").read_text())["frames"]
    lines = text.splitlines()
    for line, frame in zip(lines[:3], frames, strict=False):
        assert line.split() == ["POC", str(frame["poc"]), frame["type"], "QP", str(frame["qp"]), "ok"]
    assert "3; 3 equal their hash, 0 differ, 0 have none" in lines[-1]


def test_a_picture_that_differs_ends_with_status_1(run, wrong_hash, tmp_path):
    output = tmp_path / "out.y4m"
    status, _, err = run("decode", wrong_hash, "-o", output)
    assert status == 1
    assert "POC 3: the decoded picture differs from its hash in the stream; --check decodes all" in err
    assert not output.exists()
    status, text, err = run("decode", wrong_hash, "--check", "-o", output)
    assert status == 1
    assert "1 of 9 pictures differ from their hash, or have none and depend on missing pictures: POC 3" in err
    assert [line.split()[-1] for line in text.splitlines()[:9]] == ["ok"] * 3 + ["differs"] + ["ok"] * 5
    assert len(open_video(output)) == 9
    status, text, _ = run("decode", wrong_hash, "--check", "--json")
    facts = json.loads(text)
    assert (status, facts["ok"], facts["differs"]) == (1, 8, 1)
    wrong = facts["pictures"][3]
    assert (wrong["poc"], wrong["slice_type"], wrong["hash"], wrong["missing"]) == (3, "B", "differs", [])


def test_planes_are_written_into_a_folder(run, golden_file, tmp_path):
    stream, folder = golden_file(LOW_DELAY), tmp_path / "planes"
    names = ("unf_y", "resid_u", "bs_v", "mv_l0", "ref_idx_l0")
    result_of(run, "decode", stream, "--planes", ",".join(names), "-o", folder)
    expected = list(read_pictures(stream, names))
    unf = np.fromfile(folder / "unf_y_128x64_10bit_400.yuv", "<u2").reshape(9, 64, 128)
    resid = np.fromfile(folder / "resid_u_64x32_16bit_400.yuv", "<u2").reshape(9, 32, 64)
    strengths = np.fromfile(folder / "bs_v_128x64_8bit_400.yuv", np.uint8).reshape(9, 64, 128)
    for number, (_, planes) in enumerate(expected):
        np.testing.assert_array_equal(unf[number], planes["unf_y"])
        np.testing.assert_array_equal(resid[number].astype(np.int32) - 32768, planes["resid_u"])
        np.testing.assert_array_equal(strengths[number], planes["bs_v"])
        with np.load(folder / f"motion_{number:05}.npz") as motion:
            assert set(motion) == {"mv_l0", "ref_idx_l0"}
            np.testing.assert_array_equal(motion["mv_l0"], planes["mv_l0"])
            assert (motion["ref_idx_l0"] == NO_REFERENCE).all() == (number == 0)
    assert len(list(folder.iterdir())) == 3 + 9


def test_kinds_of_pictures_are_written_as_video(run, golden_file, tmp_path):
    stream = golden_file(LOW_DELAY)
    result_of(run, "decode", stream, "--planes", "dbf", "-o", tmp_path / "dbf.y4m")
    names = ("dbf_y", "dbf_u", "dbf_v")
    with open_video(tmp_path / "dbf.y4m") as video:
        for number, (_, planes) in enumerate(read_pictures(stream, names)):
            for plane, name in zip(video[number].planes, names, strict=True):
                np.testing.assert_array_equal(plane, planes[name])


def test_wrong_usage(run, golden_file, tmp_path):
    stream = golden_file(LOW_DELAY)
    for arguments in (("decode", stream), ("decode", stream, "--check", "--planes", "unf_y")):
        assert run(*arguments)[0] == 2
    status, _, err = run("decode", stream, "--planes", "unf_y,mv_l0", "-o", tmp_path / "a.y4m")
    assert status == 1
    assert "holds whole pictures of one kind" in err
    status, _, err = run("decode", stream, "--planes", "unfiltered", "-o", tmp_path / "a")
    assert status == 1
    assert "there is no plane 'unfiltered'" in err
    assert run("decode", stream, "-o", "-", "--json")[0] == 1


def test_pictures_of_changing_size_do_not_fit_one_file(run, golden_file, tmp_path):
    stream = golden_file("vvc_vtm/ldp_rpr.266")
    status, _, err = run("decode", stream, "-o", tmp_path / "out.y4m")
    assert status == 1
    assert "the pictures change their size from" in err
    assert run("decode", stream, "--check")[0] == 0
