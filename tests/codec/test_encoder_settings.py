"""Settings that x264 and x265 write into streams."""

import subprocess
from pathlib import Path

import pytest

from codecnn.codec.encoder_settings import read_encoder_settings
from codecnn.pictures.files import ffmpeg_path

CASES = [
    ("libx264", ("-crf", "21"), "out.mp4", "x264", "crf", 21.0),
    ("libx264", ("-qp", "33"), "out.264", "x264", "cqp", 33.0),
    ("libx264", ("-b:v", "50k"), "out.mkv", "x264", "abr", None),
    ("libx265", ("-crf", "27.5", "-x265-params", "log-level=error"), "out.mkv", "x265", "crf", 27.5),
    ("libx265", ("-x265-params", "log-level=error:qp=30"), "out.265", "x265", "cqp", 30.0),
]


@pytest.mark.parametrize(("encoder", "options", "name", "program", "rate_control", "quality"), CASES)
def test_what_the_encoder_was_asked_for(
    tmp_path: Path,
    encoder: str,
    options: tuple[str, ...],
    name: str,
    program: str,
    rate_control: str,
    quality: float | None,
) -> None:
    argv = [ffmpeg_path(), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x64:d=0.2", "-pix_fmt", "yuv420p"]
    subprocess.run([*argv, "-c:v", encoder, *options, tmp_path / name], check=True)
    settings = read_encoder_settings(tmp_path / name)
    assert settings is not None
    assert (settings.program, settings.rate_control, settings.quality) == (program, rate_control, quality)


def test_streams_without_settings(tmp_path: Path) -> None:
    argv = [ffmpeg_path(), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x64:d=0.2", "-pix_fmt", "yuv420p"]
    silent = tmp_path / "silent.265"
    subprocess.run([*argv, "-c:v", "libx265", "-x265-params", "log-level=error:info=0", silent], check=True)
    pictures = tmp_path / "pictures_64x64.yuv"
    pictures.write_bytes(bytes(64 * 64 * 3 // 2))
    assert read_encoder_settings(silent) is None
    assert read_encoder_settings(pictures) is None
