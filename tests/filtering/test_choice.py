"""Choice of weights for streams."""

import subprocess
from pathlib import Path

import pytest

from codecnn.base.errors import ConfigError
from codecnn.filtering import candidates, check_lossy, choose_weights
from codecnn.filtering.choice import _COLOUR, _WEIGHTS
from codecnn.models import list_weights, weights_path
from codecnn.pictures.files import ffmpeg_path


def code(path: Path, encoder: str, *options: str) -> Path:
    argv = [ffmpeg_path(), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x64:r=10:d=0.5", "-pix_fmt", "yuv420p"]
    subprocess.run([*argv, "-c:v", encoder, *options, path], check=True)
    return path


def test_all_candidates_ship() -> None:
    for key, by_effort in _WEIGHTS.items():
        assert list(by_effort) == ["fast", "normal", "best"]
        assert all(weights_path(name).is_file() for name in by_effort.values())
        assert key not in _COLOUR or weights_path(_COLOUR[key]).is_file()
    assert set(_COLOUR) < set(_WEIGHTS)
    assert list_weights()


@pytest.mark.parametrize(
    ("encoder", "options", "name", "expected"),
    [
        ("libx265", ("-x265-params", "log-level=error"), "out.mp4", "low_cost_yuv_17.hevc_video_mc"),
        ("libx265", ("-x265-params", "log-level=error:keyint=1"), "out.265", "low_cost_17.hevc"),
        ("libx264", (), "out.mkv", "low_cost_yuv_17.avc_video_mc"),
        ("libx264", ("-g", "1"), "out.264", "low_cost_17.hevc"),
        ("libsvtav1", ("-preset", "12"), "out.mp4", "low_cost_yuv_17.av1_video_mc"),
    ],
)
def test_codec_and_structure_decide(
    tmp_path: Path, encoder: str, options: tuple[str, ...], name: str, expected: str
) -> None:
    path = code(tmp_path / name, encoder, *options)
    choice = choose_weights(path)
    assert choice.weights == expected
    assert ("no weights are trained for AVC" in choice.reason) == (encoder == "libx264" and "hevc" in expected)
    assert candidates(path)["normal"] == choice


def test_video_has_weights_of_its_codec_at_each_effort(tmp_path: Path) -> None:
    choices = candidates(code(tmp_path / "out.mp4", "libx264"))
    assert {choice.reason for choice in choices.values()} == {"AVC video"}
    names = {effort: choice.weights for effort, choice in choices.items()}
    assert names == {
        "fast": "low_cost_5.avc_video",
        "normal": "low_cost_yuv_17.avc_video_mc",
        "best": "low_cost_75.avc_video_mc",
    }
    assert [choice.chroma for choice in choices.values()] == [None, None, "low_cost_yuv_17.avc_video_mc"]


def test_the_best_for_av1_keeps_the_network_for_luma(tmp_path: Path) -> None:
    best = candidates(code(tmp_path / "out.mp4", "libsvtav1", "-preset", "12"))["best"]
    assert best.names == ("low_cost_17.av1_video_mc", "low_cost_yuv_17.av1_video_mc")


def test_luma_alone_is_filtered_where_chroma_is_finer(tmp_path: Path) -> None:
    choices = candidates(code(tmp_path / "out.mp4", "libx264", "-pix_fmt", "yuv422p"))
    assert choices["normal"].weights == "low_cost_17.avc_video_mc"
    assert choices["best"].names == ("low_cost_75.avc_video_mc",)


def test_pictures_without_a_stream_say_what_is_assumed(tmp_path: Path) -> None:
    path = tmp_path / "clip_64x64.yuv"
    path.write_bytes(bytes(64 * 64 * 3 // 2))
    choice = choose_weights(path)
    assert choice.weights == "low_cost_17.hevc"
    assert "pictures without a stream" in choice.reason
    assert choice.reason.endswith("taken as HEVC intra pictures")


def test_a_codec_without_weights_is_named(tmp_path: Path) -> None:
    choice = choose_weights(code(tmp_path / "out.webm", "libvpx-vp9"))
    assert choice.weights == "low_cost_17.hevc"
    assert choice.reason.startswith("VP9")
    assert choice.reason.endswith("taken as HEVC intra pictures")


@pytest.mark.parametrize(
    ("encoder", "options", "reason"),
    [
        ("ffv1", (), r"out\.mkv is FFV1, which is lossless"),
        ("libx264", ("-qp", "0"), r"x264 coded .*out\.mkv without loss"),
        ("libx264", ("-crf", "0"), r"x264 coded .*out\.mkv without loss"),
        ("libx265", ("-x265-params", "lossless=1:log-level=error"), r"x265 coded .*out\.mkv without loss"),
    ],
)
def test_video_without_coding_error_is_refused(
    tmp_path: Path, encoder: str, options: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ConfigError, match=f"{reason}: there is no coding error to repair"):
        check_lossy(code(tmp_path / "out.mkv", encoder, *options))


@pytest.mark.parametrize("encoder", ["libx264", "libx265", "libvpx-vp9", "mpeg2video"])
def test_lossy_video_is_not_refused(tmp_path: Path, encoder: str) -> None:
    options = ("-x265-params", "log-level=error") if encoder == "libx265" else ()
    check_lossy(code(tmp_path / "out.mkv", encoder, *options))
