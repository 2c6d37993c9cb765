"""Tables of the commands are never cut: full width in files, wrapped or stacked on terminals."""

import io
import json
import subprocess
import sys

import pytest
from PIL import Image
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from codecnn.base.errors import ModelError
from codecnn.cli import console
from codecnn.pictures.files import ffmpeg_path

PLANES = "several words and a_long_name_without_spaces"
CELLS = ["row 1", PLANES, "-3.25 %", "row 2", "short", "+10.00 %"]


def printed(monkeypatch, width, *, terminal=True):
    """Print a table of two rows and return its lines without styles."""
    file = io.StringIO()
    monkeypatch.setattr(console, "out", Console(file=file, width=width, force_terminal=terminal, soft_wrap=True))
    table = Table("name", "planes", Column("BD-\nrate", no_wrap=True), title="a title")
    table.add_row(*CELLS[:3])
    table.add_row(*CELLS[3:])
    console.print_table(table)
    return [line.rstrip() for line in Text.from_ansi(file.getvalue()).plain.splitlines()]


def test_files_get_the_full_width(monkeypatch):
    lines = printed(monkeypatch, 20, terminal=False)
    assert any(PLANES in line and "-3.25 %" in line for line in lines)


@pytest.mark.parametrize("width", [100, 60, 54, 50])
def test_columns_wrap_between_words(monkeypatch, width):
    lines = printed(monkeypatch, width)
    assert max(map(len, lines)) <= width
    assert all(any(word in line for line in lines) for cell in CELLS for word in cell.split())
    assert any("row 1" in line and "-3.25 %" in line for line in lines)


@pytest.mark.parametrize("width", [46, 30, 16])
def test_rows_become_lists_on_narrow_terminals(monkeypatch, width):
    lines = printed(monkeypatch, width)
    assert max(map(len, lines)) <= width
    assert [lines[0], lines[1]] == ["a title", "name    row 1"]
    # Words that are too long continue in the next line.
    values = "".join("".join(line[8:].split()) for line in lines[1:])
    assert values == "".join("".join(cell.split()) for cell in CELLS)


def test_models_are_printed_whole_into_a_pipe(run):
    status, text, _ = run("models")
    assert (status, "…" in text) == (0, False)
    assert "prev_mc_y next_mc_y prev2_mc_y next2_mc_y" in text
    assert any(
        line.startswith("Architectures without weights") and line.endswith("vrcnn") for line in text.splitlines()
    )


def test_weights_are_described_with_the_qps_they_take(run):
    status, text, _ = run("models", "low_cost_5.hevc")
    assert status == 0
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "QP, HEVC, x265 -crf value of -crf" in lines
    assert "QP, AVC, x264 -crf value of -crf + 3" in lines
    assert not any("QP, VVC" in line for line in lines)
    assert run("models", "low_cost_17.nothing")[0] == 1
    assert run("models", "low_cost_17", "--for", "video.mp4")[0] == 2


def test_candidates_are_listed_before_they_are_timed(run, tmp_path, monkeypatch):
    def interrupted(source, names):
        yield next(iter(names)), 0.25
        raise ModelError("interrupted")

    monkeypatch.setattr("codecnn.api.filtering.time_weights", interrupted)
    picture = tmp_path / "picture.png"
    Image.new("RGB", (64, 48)).save(picture)
    status, text, err = run("models", "--for", picture)
    assert (status, "interrupted" in err) == (1, True)
    lines = [line.split() for line in text.splitlines()]
    assert [line[:2] for line in lines[1:4]] == [
        ["fast", "low_cost_5.hevc"],
        ["normal", "low_cost_17.hevc"],
        ["best", "low_cost_75.hevc"],
    ]
    assert lines[-1] == ["low_cost_5.hevc", "0.25"]


def test_the_time_of_the_best_is_that_of_its_two_networks(run, tmp_path, monkeypatch):
    monkeypatch.setattr("codecnn.api.filtering.time_weights", lambda _, names: ((name, 0.5) for name in names))
    path = tmp_path / "video.mp4"
    coding = ["-pix_fmt", "yuv420p", "-c:v", "libx264"]
    subprocess.run(
        [ffmpeg_path(), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x64:d=0.5", *coding, path], check=True
    )
    status, text, _ = run("models", "--for", path, "--json")
    assert status == 0
    chosen = [(each["effort"], each["chroma"], each["seconds_per_1080p_picture"]) for each in json.loads(text)]
    assert chosen == [("fast", None, 0.5), ("normal", None, 0.5), ("best", "low_cost_yuv_17.avc_video_mc", 1.0)]
    _, text, _ = run("models", "--for", path)
    columns = [line.split()[:3] for line in text.splitlines()[1:4]]
    assert columns == [
        ["fast", "low_cost_5.avc_video", "stays"],
        ["normal", "low_cost_yuv_17.avc_video_mc", "by"],
        ["best", "low_cost_75.avc_video_mc", "low_cost_yuv_17.avc_video_mc"],
    ]


@pytest.mark.slow
def test_candidates_for_pictures_without_a_stream(run, tmp_path):
    picture = tmp_path / "picture.png"
    Image.new("RGB", (64, 48)).save(picture)
    status, text, _ = run("models", "--for", picture)
    assert status == 0
    assert "low_cost_17.hevc" in text
    assert "pictures without a stream" in text
    assert [line.split()[0] for line in text.splitlines()[-3:]] == [
        "low_cost_5.hevc",
        "low_cost_17.hevc",
        "low_cost_75.hevc",
    ]
    assert all(float(line.split()[1]) > 0 for line in text.splitlines()[-3:])


@pytest.mark.slow
def test_candidates_for_a_stream_need_no_decoder_of_codecnn(run, golden_file, monkeypatch):
    """It would be compiled, which takes minutes."""
    monkeypatch.setitem(sys.modules, "codecnn.vvc.decoder", None)
    status, text, _ = run("models", "--for", golden_file("vvc/tinyclip128x64_ld_qp37.266"))
    assert status == 0
    assert "low_cost_75.vvc_video_mc" in text
