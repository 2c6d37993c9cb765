"""Planes of intra pictures as files: rebuilt from a bitstream and read back as raw videos."""

import numpy as np
import pytest

from codecnn.codec import RESIDUAL_ZERO, read_pictures
from codecnn.pictures.files import open_video
from codecnn.vvc.decoder import PLANES
from tests.helpers.commands import result_of


@pytest.mark.parametrize(
    ("stream", "number"), [("vvc/chelsea178x130_ai_qp32.266", 1), ("vvc/tinyclip128x64_ra_qp37.266", 17)]
)
def test_planes_are_written_as_rebuilt(run, golden_file, tmp_path, stream, number):
    path = golden_file(stream)
    result = result_of(run, "partition", path, "--planes", ",".join(PLANES), "-o", tmp_path / "planes")
    assert result["pictures"] == number
    assert set(result["files"]) == set(PLANES)
    pictures = dict(read_pictures(path, PLANES))
    compared = 0
    for name, file in result["files"].items():
        # Size and bit depth come from the file name.
        with open_video(file) as video:
            assert video.format.chroma == "400"
            for picture, poc in zip(video, sorted(pictures), strict=True):
                wanted = pictures[poc][name].astype(np.int64)
                wanted += RESIDUAL_ZERO if name.startswith("resid") else 0
                np.testing.assert_array_equal(picture.y, wanted)
                compared += wanted.size
    height, width = pictures[0]["unf_y"].shape
    luma, chroma = 8 * height * width, 12 * (height // 2) * (width // 2)
    assert compared == number * (luma + chroma)


def test_planes_of_inter_pictures_are_written(run, golden_file, tmp_path):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    _, text, _ = run("partition", stream, "--planes", "unf_y, bs_h", "-o", tmp_path)
    assert "17" in text
    planes = [planes["unf_y"] for _, planes in read_pictures(stream, ("unf_y",))]
    with open_video(tmp_path / "unf_y_128x64_10bit_400.yuv") as video:
        for picture, plane in zip(video, planes, strict=True):
            np.testing.assert_array_equal(picture.y, plane)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == [
        "bs_h_128x64_8bit_400.yuv",
        "unf_y_128x64_10bit_400.yuv",
    ]


@pytest.mark.parametrize(
    ("stream", "planes", "output", "sentence"),
    [
        ("vvc/tiny64x64_ai_qp32.266", "pred_y,unf", "{tmp}/o", "there is no plane 'unf': one of pred_y, pred_u"),
        ("vvc/tiny64x64_ai_qp32.266", "", "{tmp}/o", "there is no plane '': one of pred_y, pred_u"),
        ("vvc/camera_ai_400_qp37.266", "pred_y,unf_v", "{tmp}/o", "the picture has no chroma, so no plane unf_v"),
        ("vvc/tiny64x64_ai_qp32.266", "pred_y", "{tmp}/file", "file is a file: planes are written into a folder"),
        ("none.266", "pred_y", "{tmp}/o", "none.266 does not exist"),
    ],
)
def test_an_error_is_one_sentence_and_writes_no_file(run, golden_file, tmp_path, stream, planes, output, sentence):
    (tmp_path / "file").write_text("content")
    path = golden_file(stream) if "/" in stream else stream
    status, _, err = run("partition", path, "--planes", planes, "-o", output.format(tmp=tmp_path))
    assert status == 1
    assert sentence in err.replace("\n", " ")
    assert len(err.strip().splitlines()) == 1
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["file"]


def test_help_lists_the_planes(run):
    _, text, _ = run("partition", "--help")
    for part in ("pred_y", "unf_y", "resid_y", "bs_v", "32768", "loop filters", "P or B slices"):
        assert part in " ".join(text.split())
