"""A video that is filtered into a container, with chosen weights."""

import errno
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codecnn
from codecnn.base.errors import ConfigError, ConversionError, DiskFullError, EncoderError, FormatError
from codecnn.codec import read_encoder_settings
from codecnn.pictures.files import containers, ffmpeg_path, joining, streamed


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
    result = codecnn.filter(video, tmp_path / "out.mkv", effort="fast")
    assert (result.weights, result.qps, result.pictures) == ("low_cost_5.avc_video", (33,), 20)
    assert result.qp_source == "crf 30 of x264"
    codecnn.filter(video, tmp_path / "out.y4m", model="low_cost_5.avc_video")
    pairs = zip(codecnn.open_video(tmp_path / "out.mkv"), codecnn.open_video(tmp_path / "out.y4m"), strict=True)
    for ours, plain in pairs:
        assert all(np.array_equal(a, b) for a, b in zip(ours.planes, plain.planes, strict=True))


def test_the_best_filters_luma_and_chroma_with_two_networks(video: Path, tmp_path: Path) -> None:
    names = ["low_cost_75.avc_video_mc", "low_cost_yuv_17.avc_video_mc"]
    result = codecnn.filter(video, tmp_path / "best.y4m", effort="best", frames=3)
    assert result.weights == "{}, chroma {}".format(*names)
    for name in names:
        codecnn.filter(video, tmp_path / f"{name}.y4m", model=name, frames=3)
    luma, chroma = (codecnn.open_video(tmp_path / f"{name}.y4m") for name in names)
    for best, y, uv in zip(codecnn.open_video(tmp_path / "best.y4m"), luma, chroma, strict=True):
        assert np.array_equal(best.y, y.y)
        assert all(map(np.array_equal, best.planes[1:], uv.planes[1:]))


def test_effort_and_weights_exclude_each_other(video: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--effort chooses the weights, and -m names low_cost_5: leave out one"):
        codecnn.filter(video, tmp_path / "out.mkv", model="low_cost_5", effort="fast")


def test_an_interrupted_filtering_continues(video: Path, tmp_path: Path) -> None:
    whole, output = tmp_path / "whole.mkv", tmp_path / "out.mkv"
    codecnn.filter(video, whole, effort="fast")

    def interrupt(pictures: int, _total: int) -> None:
        if pictures == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        codecnn.filter(video, output, effort="fast", progress=interrupt)
    assert not output.exists()
    result = codecnn.filter(video, output, effort="fast")
    assert any("8 pictures were filtered before" in note for note in result.notes)
    assert output.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("*.segments"))


def test_several_processes_filter_the_same(tmp_path: Path) -> None:
    """A short video, of two segments."""
    path = tmp_path / "long.mp4"
    inputs = ["-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=1.2"]
    subprocess.run([ffmpeg_path(), "-v", "error", *inputs, "-pix_fmt", "yuv420p", "-crf", "35", path], check=True)
    result = codecnn.filter(path, tmp_path / "two.mkv", effort="fast", jobs=2)
    assert not result.notes
    codecnn.filter(path, tmp_path / "one.mkv", effort="fast")
    assert (tmp_path / "two.mkv").read_bytes() == (tmp_path / "one.mkv").read_bytes()


def test_segments_of_another_qp_are_not_continued(video: Path, tmp_path: Path) -> None:
    def interrupt(pictures: int, _total: int) -> None:
        if pictures == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        codecnn.filter(video, tmp_path / "out.mkv", effort="fast", progress=interrupt)
    codecnn.filter(video, tmp_path / "out.mkv", effort="fast", qp=25)
    codecnn.filter(video, tmp_path / "whole.mkv", effort="fast", qp=25)
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()


def test_a_folder_of_stills_becomes_a_video(tmp_path: Path) -> None:
    stills = tmp_path / "stills"
    stills.mkdir()
    subprocess.run(
        [ffmpeg_path(), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x48:r=5:d=0.6", stills / "%d.png"], check=True
    )
    result = codecnn.filter(stills, tmp_path / "out.mkv", effort="fast")
    assert result.pictures == len(codecnn.open_video(tmp_path / "out.mkv")) == 3
    assert result.qps == (24,)


def test_jobs_that_have_no_effect_are_said(video: Path, tmp_path: Path) -> None:
    for name, frames in (("out.y4m", None), ("out.mkv", 4)):
        result = codecnn.filter(video, tmp_path / name, effort="fast", jobs=2, frames=frames)
        assert any("-j has no effect" in note for note in result.notes)


def test_damage_leaves_nothing(video: Path, tmp_path: Path) -> None:
    """Damage behind the first segment, as a decoder reports it."""

    def fail(pictures: int, _total: int) -> None:
        if pictures == 12:
            raise FormatError("the video is damaged")

    with pytest.raises(FormatError):
        codecnn.filter(video, tmp_path / "out.mkv", effort="fast", progress=fail)
    assert list(tmp_path.iterdir()) == [video]


def test_an_encoder_that_ends_early_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder reads so much of the first plane that its last 3072 bytes stay in the buffer of the writer."""
    path = tmp_path / "video.mp4"
    inputs = ["-f", "lavfi", "-i", "testsrc2=s=416x240:r=10:d=0.4"]
    subprocess.run(
        [ffmpeg_path(), "-v", "error", *inputs, "-pix_fmt", "yuv420p10le", "-c:v", "libx265", path], check=True
    )
    script = "dd bs=4096 count=32 of=/dev/null 2>/dev/null; sleep 0.5; echo the encoder is ill >&2; exit 1"
    monkeypatch.setattr(containers.ContainerOutput, "_command", lambda _output, _file: ["sh", "-c", script])
    with pytest.raises(EncoderError, match=r"out\.mkv: the encoder is ill"):
        codecnn.filter(path, tmp_path / "out.mkv", effort="fast")


def test_damage_that_the_decoder_reports_at_its_end(
    video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pictures come out of the decoder, and then it says that one was concealed."""

    def decode_damaged(*arguments: Any, **options: Any) -> int:
        decode(*arguments, **options)
        raise EncoderError("a picture was concealed")

    decode = streamed.decode
    monkeypatch.setattr(streamed, "decode", decode_damaged)
    with pytest.raises(EncoderError, match="concealed"):
        codecnn.filter(video, tmp_path / "out.mkv", effort="fast")
    assert list(tmp_path.iterdir()) == [video]


def test_a_full_disk_keeps_the_segments(video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(joining, "_write_video", full)
        with pytest.raises(DiskFullError, match="run the same command again to continue"):
            codecnn.filter(video, tmp_path / "out.mkv", effort="fast")
    assert len(list((tmp_path / "out.mkv.segments").glob("*.mkv"))) == 3
    result = codecnn.filter(video, tmp_path / "out.mkv", effort="fast")
    assert any("20 pictures were filtered before" in note for note in result.notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.mkv", "video.mp4"]


def test_an_interrupt_before_the_first_segment_leaves_nothing(video: Path, tmp_path: Path) -> None:
    def interrupt(_pictures: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        codecnn.filter(video, tmp_path / "out.mkv", effort="fast", progress=interrupt)
    assert list(tmp_path.iterdir()) == [video]


@pytest.mark.parametrize(("codec", "encode"), [("wmav2", None), ("aac", "ffvhuff"), ("aac", "libx264 -crf many")])
def test_a_container_that_cannot_hold_the_streams_is_refused_before_any_picture(
    tmp_path: Path, codec: str, encode: str | None
) -> None:
    path = tmp_path / "video.mkv"
    inputs = ["-f", "lavfi", "-i", "testsrc2=s=64x48:r=10:d=0.5", "-f", "lavfi", "-i", "sine=d=0.5"]
    coding = ["-pix_fmt", "yuv420p", "-c:v", "libx264", "-c:a", codec]
    subprocess.run([ffmpeg_path(), "-v", "error", *inputs, *coding, path], check=True)

    def fail(_pictures: int, _total: int) -> None:
        raise AssertionError("a picture was filtered")

    with pytest.raises(EncoderError, match=r"out\.mp4 cannot be written"):
        codecnn.filter(path, tmp_path / "out.mp4", effort="fast", encode=encode, progress=fail)
    assert list(tmp_path.iterdir()) == [path]


def test_the_advice_to_convert_keeps_weights_and_qp(tmp_path: Path) -> None:
    path, converted = tmp_path / "fields.mkv", tmp_path / "converted.mkv"
    source = ["-f", "lavfi", "-i", "testsrc2=s=64x64:r=25:d=0.4", "-vf", "setfield=tff", "-pix_fmt", "yuv420p"]
    coding = ["-c:v", "libx265", "-x265-params", "log-level=error:crf=31", "-field_order", "tt"]
    subprocess.run([ffmpeg_path(), "-v", "error", *source, *coding, path], check=True)
    with pytest.raises(ConversionError, match=r"OUT\.mkv, and filter that with -m low_cost_5.hevc -q 31$"):
        codecnn.filter(path, tmp_path / "out.mkv", model="low_cost_5.hevc")
    with pytest.raises(ConversionError, match="filter that with") as error:
        codecnn.filter(path, tmp_path / "out.mkv")
    assert list(tmp_path.iterdir()) == [path]
    advice = re.search(r"ffmpeg -i IN (.*) OUT\.mkv, and filter that with (.*)", str(error.value))
    assert advice is not None
    conversion, options = advice.groups()
    assert options == "-m low_cost_yuv_17.hevc_video_mc -q 31 --slice-type B"
    subprocess.run([ffmpeg_path(), "-v", "error", "-i", path, *conversion.split(), converted], check=True)
    codecnn.filter(converted, tmp_path / "out.mkv", model="low_cost_yuv_17.hevc_video_mc", qp=31, slice_type="B")
    assert len(codecnn.open_video(tmp_path / "out.mkv")) == 20


def test_lossless_video_is_filtered_only_with_a_qp(video: Path, tmp_path: Path) -> None:
    lossless = tmp_path / "lossless.mkv"
    subprocess.run([ffmpeg_path(), "-v", "error", "-i", video, "-an", "-c:v", "ffv1", lossless], check=True)
    with pytest.raises(ConfigError, match="FFV1, which is lossless"):
        codecnn.filter(lossless, tmp_path / "out.mkv", effort="fast")
    assert not (tmp_path / "out.mkv").exists()
    assert codecnn.filter(lossless, tmp_path / "out.mkv", effort="fast", qp=32).pictures == 20


def test_a_folder_as_output_is_named_as_one(video: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a folder: name a file, e\.g\. .*better\.mkv"):
        codecnn.filter(video, tmp_path, effort="fast")


def test_the_time_of_a_picture_leaves_out_the_first(
    video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock gives the first picture a minute and each other one a second."""
    now = 0.0
    filter_video = codecnn.filtering.filter_video

    def by_the_clock(*arguments: Any, progress: Any, **options: Any) -> None:
        def report(pictures: int) -> None:
            nonlocal now
            now += 60 if now == 0 else 1
            progress(pictures)

        filter_video(*arguments, progress=report, **options)

    monkeypatch.setattr("codecnn.filtering.filter_video", by_the_clock)
    monkeypatch.setattr("codecnn.api.filtering.time.perf_counter", lambda: now)
    assert codecnn.filter(video, tmp_path / "out.mkv", effort="fast").seconds_per_picture == 1.0
    assert codecnn.filter(video, tmp_path / "one.mkv", effort="fast", frames=1).seconds_per_picture is None


def test_chroma_of_mp4_is_coded_finer_than_luma(video: Path, tmp_path: Path) -> None:
    codecnn.filter(video, tmp_path / "out.mp4", effort="fast")
    settings = read_encoder_settings(tmp_path / "out.mp4")
    assert settings is not None
    assert (settings.values["crf"], settings.values["chroma_qp_offset"]) == ("8.0", "-6")
