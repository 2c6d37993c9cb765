"""A video that is filtered into a container, with chosen weights."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import codecnn
from codecnn.pictures.files import containers, ffmpeg_path


@pytest.fixture
def video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A video with sound, of three segments."""
    monkeypatch.setattr(containers, "_SEGMENT_PICTURES", (8, 8))
    path = tmp_path / "video.mp4"
    inputs = ["-f", "lavfi", "-i", "testsrc2=s=96x64:r=20:d=1", "-f", "lavfi", "-i", "sine=d=1"]
    coding = ["-pix_fmt", "yuv420p", "-c:v", "libx264", "-crf", "30", "-c:a", "aac"]
    subprocess.run([ffmpeg_path(), "-v", "error", *inputs, *coding, path], check=True)
    return path


def test_pictures_are_those_of_a_file_of_pictures(video: Path, tmp_path: Path) -> None:
    result = codecnn.filter_file(video, None, tmp_path / "out.mkv", effort="fast")
    assert (result.weights, result.qps, result.pictures) == ("low_cost_5.hevc", (33,), 20)
    assert result.qp_source == "crf 30 of x264"
    codecnn.filter_file(video, "low_cost_5.hevc", tmp_path / "out.y4m")
    pairs = zip(codecnn.open_video(tmp_path / "out.mkv"), codecnn.open_video(tmp_path / "out.y4m"), strict=True)
    for ours, plain in pairs:
        assert all(np.array_equal(a, b) for a, b in zip(ours.planes, plain.planes, strict=True))


def test_an_interrupted_filtering_continues(video: Path, tmp_path: Path) -> None:
    whole, output = tmp_path / "whole.mkv", tmp_path / "out.mkv"
    codecnn.filter_file(video, None, whole, effort="fast")

    def interrupt(pictures: int, _total: int) -> None:
        if pictures == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        codecnn.filter_file(video, None, output, effort="fast", progress=interrupt)
    assert not output.exists()
    result = codecnn.filter_file(video, None, output, effort="fast")
    assert any("8 pictures were filtered before" in note for note in result.notes)
    assert output.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("*.segments"))


def test_several_processes_filter_the_same(tmp_path: Path) -> None:
    """Two segments of the sizes that processes choose by themselves."""
    path = tmp_path / "long.mp4"
    inputs = ["-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=10"]
    subprocess.run([ffmpeg_path(), "-v", "error", *inputs, "-pix_fmt", "yuv420p", "-crf", "35", path], check=True)
    codecnn.filter_file(path, None, tmp_path / "two.mkv", effort="fast", jobs=2)
    codecnn.filter_file(path, None, tmp_path / "one.mkv", effort="fast")
    assert (tmp_path / "two.mkv").read_bytes() == (tmp_path / "one.mkv").read_bytes()


def test_segments_of_another_qp_are_not_continued(video: Path, tmp_path: Path) -> None:
    def interrupt(pictures: int, _total: int) -> None:
        if pictures == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        codecnn.filter_file(video, None, tmp_path / "out.mkv", effort="fast", progress=interrupt)
    codecnn.filter_file(video, None, tmp_path / "out.mkv", effort="fast", qp=25)
    codecnn.filter_file(video, None, tmp_path / "whole.mkv", effort="fast", qp=25)
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()


def test_a_folder_of_stills_becomes_a_video(tmp_path: Path) -> None:
    stills = tmp_path / "stills"
    stills.mkdir()
    subprocess.run(
        [ffmpeg_path(), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x48:r=5:d=0.6", stills / "%d.png"], check=True
    )
    result = codecnn.filter_file(stills, None, tmp_path / "out.mkv", effort="fast")
    assert result.pictures == len(codecnn.open_video(tmp_path / "out.mkv")) == 3
    assert result.qps == (24,)
