"""Quality of videos against their original."""

import csv
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

import codecnn
from codecnn.base.errors import ConfigError
from codecnn.pictures.files import ffmpeg_path
from codecnn.pictures.metrics import ms_ssim, psnr, ssim

SIZE = "192x176"


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """An original, and two streams of it: good and bad."""
    folder = tmp_path_factory.mktemp("videos")
    original = folder / "original.y4m"
    run = [ffmpeg_path(), "-v", "error"]
    subprocess.run(
        [*run, "-f", "lavfi", "-i", f"testsrc2=s={SIZE}:r=10:d=0.4", "-pix_fmt", "yuv420p", original], check=True
    )
    for name, crf in (("good.mp4", "15"), ("bad.mkv", "45")):
        subprocess.run([*run, "-i", original, "-c:v", "libx264", "-crf", crf, folder / name], check=True)
    return original, folder / "good.mp4", folder / "bad.mkv"


def test_values_are_those_of_each_metric(videos: tuple[Path, Path, Path]) -> None:
    original, good, bad = videos
    first, second = codecnn.measure(original, [good, bad])
    pictures = list(zip(codecnn.open_video(original), codecnn.open_video(good), strict=True))
    for name, plane in (("psnr_y", "y"), ("psnr_u", "u"), ("psnr_v", "v")):
        expected = [psnr(getattr(a, plane), getattr(b, plane), 8) for a, b in pictures]
        assert first.pictures[name] == pytest.approx(expected, abs=1e-9)
    assert first.pictures["ssim"] == pytest.approx([ssim(a.y, b.y, 8) for a, b in pictures])
    assert first.pictures["ms_ssim"] == pytest.approx([ms_ssim(a.y, b.y, 8) for a, b in pictures])
    assert first.mean["psnr_y"] == pytest.approx(np.mean(first.pictures["psnr_y"]))
    assert set(first.pictures) == set(second.pictures)
    assert {"xpsnr_y", "xpsnr_u", "xpsnr_v", "vmaf", "vmaf_neg"} < set(first.pictures)
    assert all(first.mean[name] > second.mean[name] for name in first.pictures)


def test_a_video_equals_itself(videos: tuple[Path, Path, Path]) -> None:
    (same,) = codecnn.measure(videos[0], videos[0], metrics=("psnr", "ssim"))
    assert all(math.isinf(value) for value in same.pictures["psnr_y"])
    assert same.mean["ssim"] == 1
    assert same.as_json()["mean"]["psnr_y"] is None


def test_reports(videos: tuple[Path, Path, Path], tmp_path: Path) -> None:
    for name in ("q.html", "q.csv", "q.json"):
        codecnn.measure(videos[0], videos[1:], metrics=("psnr",), output=tmp_path / name)
    rows = list(csv.DictReader((tmp_path / "q.csv").read_text().splitlines()))
    content = json.loads((tmp_path / "q.json").read_text())
    assert len(rows) == 8
    assert float(rows[0]["psnr_y"]) == pytest.approx(content["videos"][0]["values"]["psnr_y"][0])
    page = (tmp_path / "q.html").read_text()
    assert page.count("<svg") == 3
    assert "good.mp4" in page


def test_different_videos_are_refused(videos: tuple[Path, Path, Path], tmp_path: Path) -> None:
    original, good, _ = videos
    other = tmp_path / "other.y4m"
    subprocess.run([ffmpeg_path(), "-v", "error", "-i", good, "-vf", "scale=96:88", other], check=True)
    with pytest.raises(ConfigError, match="96x88"):
        codecnn.measure(original, other)
    subprocess.run([ffmpeg_path(), "-v", "error", "-y", "-i", good, "-frames:v", "2", other], check=True)
    with pytest.raises(ConfigError, match="-f 2"):
        codecnn.measure(original, other)
    assert len(codecnn.measure(original, other, frames=2, metrics=("psnr",))[0].pictures["psnr_y"]) == 2
    with pytest.raises(ConfigError, match="unknown metric"):
        codecnn.measure(original, good, metrics=("mos",))
    with pytest.raises(ConfigError, match="output"):
        codecnn.measure(original, good, output=original)


def test_a_smaller_bit_depth_is_raised(videos: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """An 8-bit original and its stream of 10 bit are compared at 10 bit."""
    deep = tmp_path / "deep.mkv"
    run = [ffmpeg_path(), "-v", "error", "-i", videos[1], "-pix_fmt", "yuv420p10le"]
    subprocess.run([*run, "-c:v", "libx265", "-x265-params", "log-level=error:lossless=1", deep], check=True)
    (quality,) = codecnn.measure(videos[0], deep, metrics=("psnr",))
    pairs = zip(codecnn.open_video(videos[0]), codecnn.open_video(deep), strict=True)
    expected = [psnr(a.y.astype(np.uint16) << 2, b.y, 10) for a, b in pairs]
    assert quality.pictures["psnr_y"] == pytest.approx(expected, abs=1e-9)
