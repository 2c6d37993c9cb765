"""Streams through ffmpeg: each picture once and exact, for any file name; damage is an error."""

import shutil
import subprocess
import tempfile
from fractions import Fraction
from pathlib import Path

import pytest

from codecnn.base.errors import EncoderError, FormatError, MissingFileError
from codecnn.pictures.files import VideoFormat, open_stream, open_video, probe_stream
from tests.helpers.golden import GoldenFile
from tests.helpers.video_files import FFMPEG, joined, random_pictures


def encode(
    folder: Path, name: str, video_format: VideoFormat, options: list[str], count: int = 6, tag: str = "tv"
) -> bytes:
    """Code random pictures with the colour range `tag` into folder/name; return their bytes."""
    source = joined(random_pictures(video_format, count))
    (folder / "source.yuv").write_bytes(source)
    size = f"{video_format.width}x{video_format.height}"
    options_in = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        video_format.ffmpeg_pix_fmt,
        "-s",
        size,
        "-r",
        str(video_format.fps or 25),
    ]
    options_in += ["-color_range", tag, "-i", str(folder / "source.yuv"), *options, "-color_range", tag]
    subprocess.run([*FFMPEG, *options_in, folder / name], check=True)
    return source


def test_probe_of_golden_streams(golden_file: GoldenFile) -> None:
    info = probe_stream(golden_file("vvc/camera_ai_400_qp37.266"))
    assert (info.codec, info.pix_fmt) == ("vvc", "gray10le")
    assert info.format == VideoFormat(512, 512, "400", 10, Fraction(1))
    info = probe_stream(golden_file("hevc/clip_rab_amp_qp32.265"))
    assert (info.codec, info.format) == ("hevc", VideoFormat(416, 240, "420", 8, Fraction(30)))
    assert len(open_video(golden_file("hevc/clip_rab_amp_qp32.265"))) == 17


LOSSLESS = [
    VideoFormat(18, 10, "420", 8, Fraction(60000, 1001)),
    VideoFormat(17, 9, "422", 8, Fraction(24)),
    VideoFormat(16, 8, "444", 8, Fraction(24)),
    VideoFormat(16, 8, "400", 8, Fraction(24)),
    VideoFormat(17, 9, "420", 10, Fraction(50)),
    VideoFormat(16, 8, "422", 12, Fraction(50)),
    VideoFormat(16, 8, "444", 16, Fraction(50)),
    VideoFormat(16, 8, "400", 10, Fraction(50)),
    VideoFormat(16, 8, "400", 16, Fraction(50)),
]


@pytest.mark.parametrize("video_format", LOSSLESS, ids=str)
@pytest.mark.parametrize("colour_range", ["tv", "pc"])
def test_lossless_streams_are_exact(tmp_path: Path, video_format: VideoFormat, colour_range: str) -> None:
    source = encode(tmp_path, "a.mkv", video_format, ["-c:v", "ffv1"], tag=colour_range)
    video = open_video(tmp_path / "a.mkv")
    assert video.format == video_format
    assert len(video) == 6
    assert joined(video) == source


def test_no_picture_is_repeated_or_dropped(tmp_path: Path) -> None:
    """With time stamps 0, 1, 4, 9, ... ffmpeg would fill the gaps at a constant frame rate."""
    video_format = VideoFormat(16, 8, "420", 8, Fraction(25))
    options = ["-vf", "setpts=N*N/25/TB", "-fps_mode", "passthrough", "-c:v", "ffv1"]
    source = encode(tmp_path, "vfr.mkv", video_format, options)
    video = open_video(tmp_path / "vfr.mkv")
    assert len(video) == 6
    assert joined(video) == source
    assert joined(open_video(tmp_path / "vfr.mkv", frames=2)) == source[: len(source) // 3]


def test_full_range_mjpeg_is_not_converted(tmp_path: Path) -> None:
    make = ["-f", "lavfi", "-i", "color=white:s=16x16:d=0.1,format=yuvj420p", "-c:v", "mjpeg"]
    subprocess.run([*FFMPEG, *make, tmp_path / "white.avi"], check=True)
    video = open_video(tmp_path / "white.avi")
    assert (video.format.chroma, video.format.bit_depth) == ("420", 8)
    assert int(video[0].y.min()) == 255


@pytest.mark.parametrize("name", ["a.mp4", "a.264", "a.265"])
@pytest.mark.parametrize("fps", [Fraction(24), Fraction(60000, 1001)])
def test_frame_rates(tmp_path: Path, name: str, fps: Fraction) -> None:
    codec = ["-c:v", "libx265", "-x265-params", "log-level=none"] if name == "a.265" else ["-c:v", "libx264"]
    encode(tmp_path, name, VideoFormat(64, 64, "420", 8, fps), codec, count=3)
    video = open_video(tmp_path / name)
    assert video.format == VideoFormat(64, 64, "420", 8, fps)
    assert len(video) == 3
    assert open_video(tmp_path / name, fps=10).format.fps == 10


def test_rotation_is_not_applied(tmp_path: Path) -> None:
    video_format = VideoFormat(32, 16, "420", 8, Fraction(25))
    encode(tmp_path, "a.mp4", video_format, ["-c:v", "libx264"], count=2)
    rotate = ["-display_rotation", "90", "-i", tmp_path / "a.mp4", "-c", "copy", tmp_path / "rotated.mp4"]
    subprocess.run([*FFMPEG, *rotate], check=True)
    assert joined(open_video(tmp_path / "rotated.mp4")) == joined(open_video(tmp_path / "a.mp4"))
    assert open_video(tmp_path / "rotated.mp4").format == video_format


UNUSUAL_NAMES = [
    "-i.mkv",
    "a b'c\"d.mkv",
    "a\nOutput #0, null, to 'x':\n  Stream #0:0: Video: vvc (Main 10), yuv420p10le(tv), 8x8, 25 fps.mkv",
    "pipe:0.mkv",
    "http:x.mkv",
    "concat:a|b.mkv",
    "subfile,,start,0,end,9,,:x.mkv",
    "%03d.mkv",
    "ünï\udcff.mkv",
    "$(touch x).mkv",
    "no_extension",
    "strange.extension",
]


@pytest.mark.parametrize("name", UNUSUAL_NAMES, ids=range(len(UNUSUAL_NAMES)))
def test_file_names_have_no_special_meaning(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    video_format = VideoFormat(16, 8, "420", 8, Fraction(25))
    folder = tmp_path_factory.mktemp("names")
    source = encode(tmp_path, "a.mkv", video_format, ["-c:v", "ffv1"])
    shutil.copy(tmp_path / "a.mkv", folder / name)
    monkeypatch.chdir(folder)
    video = open_video(name)
    assert video.format == video_format
    assert joined(video) == source
    assert len(list(folder.iterdir())) == 1


def test_temporary_folder_is_empty_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    source = encode(tmp_path, "a.mkv", VideoFormat(16, 8, "420", 10, Fraction(25)), ["-c:v", "ffv1"])
    with open_video(tmp_path / "a.mkv") as video:
        assert list(scratch.iterdir()) == []
        assert joined(video) == source
        last = video[-1]
    assert last.y.tobytes() == source[-384:-128]
    (tmp_path / "a.mkv").write_bytes((tmp_path / "a.mkv").read_bytes()[:700])
    with pytest.raises((FormatError, EncoderError)):
        open_video(tmp_path / "a.mkv")
    assert list(scratch.iterdir()) == []


def test_files_without_video_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video at all\n" * 20)
    (tmp_path / "empty.266").touch()
    (tmp_path / "zero.266").write_bytes(bytes(4000))
    sound = ["-f", "lavfi", "-i", "sine=d=0.1", tmp_path / "sound.wav"]
    subprocess.run([*FFMPEG, *sound], check=True)
    for name in ("text.mp4", "empty.266", "zero.266", "sound.wav"):
        with pytest.raises(FormatError, match=name):
            open_video(tmp_path / name)
    with pytest.raises(MissingFileError, match=r"absent\.266"):
        open_video(tmp_path / "absent.266")
    with pytest.raises(FormatError, match="directory"):
        open_video(tmp_path)
    encode(tmp_path, "rgb.mkv", VideoFormat(16, 8, "444", 8), ["-c:v", "ffv1", "-pix_fmt", "gbrp"])
    with pytest.raises(FormatError, match="only YCbCr"):
        open_video(tmp_path / "rgb.mkv")


def test_damaged_streams_are_refused(tmp_path: Path, golden_file: GoldenFile) -> None:
    whole = golden_file("vvc/clip416x240_ra_qp37.266").read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes(b ^ 0x5A for b in whole[middle : middle + 40]) + whole[middle + 40 :]
    for name, content in (("cut.266", whole[:middle]), ("flipped.266", flipped)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(EncoderError, match=name):
            open_video(tmp_path / name)


def test_hevc_picture_hashes_are_verified(tmp_path: Path) -> None:
    options = ["-c:v", "libx265", "-x265-params", "log-level=none:hash=1:qp=10"]
    encode(tmp_path, "a.265", VideoFormat(64, 64, "420", 8), options, count=2)
    assert len(open_video(tmp_path / "a.265")) == 2
    content = bytearray((tmp_path / "a.265").read_bytes())
    content[len(content) // 2] ^= 0x5A
    (tmp_path / "a.265").write_bytes(content)
    with pytest.raises(EncoderError, match=r"a\.265"):
        open_video(tmp_path / "a.265")


@pytest.mark.parametrize("second", [(64, 128), (32, 32), (128, 32), (64, 64, "422"), (64, 64, "420", 10)], ids=str)
def test_streams_of_changing_format_are_refused(tmp_path: Path, second: tuple[int, int]) -> None:
    """This includes streams whose bytes are whole pictures of the first format."""
    options = ["-c:v", "libx265", "-x265-params", "log-level=none"]
    encode(tmp_path, "first.265", VideoFormat(64, 64), options, count=2)
    encode(tmp_path, "second.265", VideoFormat(*second), options, count=4)
    both = tmp_path / "both.265"
    both.write_bytes((tmp_path / "first.265").read_bytes() + (tmp_path / "second.265").read_bytes())
    with pytest.raises((FormatError, EncoderError), match=r"both\.265"):
        open_video(both)


def test_options_that_contradict_the_header_are_refused(tmp_path: Path) -> None:
    encode(tmp_path, "a.mkv", VideoFormat(16, 8, "420", 8), ["-c:v", "ffv1"])
    path = tmp_path / "a.mkv"
    assert len(open_video(path, size="16x8", bit_depth=8, chroma="420")) == 6
    for options in ({"size": (8, 16)}, {"bit_depth": 10}, {"chroma": "444"}):
        with pytest.raises(FormatError, match=r"a\.mkv has .* by its own header"):
            open_video(path, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 frames"):
        open_stream(path, frames=0)
