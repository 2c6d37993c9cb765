"""Raw YUV and Y4M: reading, writing, damaged files."""

import contextlib
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codecnn.base.errors import ConfigError, FormatError, MissingFileError
from codecnn.pictures.files import (
    Picture,
    VideoFormat,
    convert,
    create_video,
    open_raw,
    open_video,
    open_y4m,
    pad_to_even,
)
from tests.helpers.video_files import FFMPEG, assert_same, joined, random_pictures, write_video

CHROMAS = ("400", "420", "422", "444")

formats = st.builds(
    VideoFormat,
    st.integers(1, 19),
    st.integers(1, 19),
    chroma=st.sampled_from(CHROMAS),
    bit_depth=st.integers(8, 16),
    fps=st.sampled_from((None, Fraction(50), Fraction(60000, 1001))),
)
in_folder = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@in_folder
@given(video_format=formats, count=st.integers(1, 4), suffix=st.sampled_from((".yuv", ".y4m")))
def test_round_trip(tmp_path: Path, video_format: VideoFormat, count: int, suffix: str) -> None:
    pictures = random_pictures(video_format, count)
    path = tmp_path / f"clip{suffix}"
    write_video(path, video_format, pictures)
    # The bytes are compared because reader and writer could share a mistake.
    head = b"FRAME\n" if suffix == ".y4m" else b""
    body = path.read_bytes()
    assert body.endswith(b"".join(head + joined([picture]) for picture in pictures))
    video = open_y4m(path) if head else open_raw(path, video_format)
    assert video.format == video_format
    assert len(video) == count
    for expected, actual in zip(pictures, video, strict=True):
        assert_same(actual, expected)
        assert {plane.dtype for plane in actual.planes} == {video_format.dtype}


@pytest.fixture
def clip(tmp_path: Path) -> tuple[Path, list[Picture]]:
    """Raw clip of five 6x4 pictures, 420, 10 bit."""
    video_format = VideoFormat(6, 4, "420", 10)
    pictures = random_pictures(video_format, 5)
    path = tmp_path / "clip_6x4_25_10bit.yuv"
    path.write_bytes(joined(pictures))
    return path, pictures


def test_indexing(clip: tuple[Path, list[Picture]]) -> None:
    path, pictures = clip
    with open_video(path) as video:
        assert (len(video), video.format.fps) == (5, 25)
        np.testing.assert_array_equal(video[-1].y, pictures[4].y)
        assert [int(p.y.sum(dtype=int)) for p in video[1:4:2]] == [int(pictures[i].y.sum(dtype=int)) for i in (1, 3)]
        assert video[5:] == []
        assert video.path == path
        np.testing.assert_array_equal(video[2].u, pictures[2].planes[1])  # type: ignore[arg-type]
        for beyond in (5, -6):
            with pytest.raises(IndexError, match="5 pictures"):
                video[beyond]


def test_pictures_are_read_only_and_stay_valid(clip: tuple[Path, list[Picture]]) -> None:
    video = open_video(clip[0])
    picture = video[0]
    with pytest.raises(ValueError, match="read-only"):
        picture.y[0, 0] = 1
    video.close()
    assert picture.y[0, 0] == clip[1][0].y[0, 0]
    with pytest.raises(ConfigError, match="closed"):
        video[0]


def test_size_that_does_not_divide(tmp_path: Path) -> None:
    path = tmp_path / "x_416x240.yuv"
    path.write_bytes(bytes(3 * 176 * 144 * 3 // 2))
    with pytest.raises(FormatError, match=r"x_416x240\.yuv has 114048 bytes.*176x144 420 8 bit \(3\)"):
        open_video(path)
    path.write_bytes(bytes(2 * 416 * 240 * 2))
    with pytest.raises(FormatError) as error:
        open_raw(path, VideoFormat(416, 240, "444", 8))
    assert "416x240 422 8 bit (2)" in str(error.value)
    assert "416x240 400 10 bit (2)" in str(error.value)
    path.write_bytes(bytes(149761))
    with pytest.raises(FormatError, match="no common size"):
        open_video(path)


def test_missing_empty_and_folder_paths(tmp_path: Path) -> None:
    (tmp_path / "empty_8x8.yuv").touch()
    (tmp_path / "folder_8x8.yuv").mkdir()
    with pytest.raises(MissingFileError, match=r"absent_8x8\.yuv does not exist"):
        open_video(tmp_path / "absent_8x8.yuv")
    with pytest.raises(MissingFileError):
        open_video(tmp_path / ("long" * 100 + "_8x8.yuv"))
    for name, message in (("empty", r"empty_8x8\.yuv is empty"), ("folder", r"folder_8x8\.yuv is a directory")):
        with pytest.raises(FormatError, match=message):
            open_video(tmp_path / f"{name}_8x8.yuv")


def test_samples_beyond_the_bit_depth(tmp_path: Path) -> None:
    video_format = VideoFormat(4, 4, "420", 10)
    samples = np.zeros((2, 24), "<u2")
    samples[1, 23] = 1024
    path = tmp_path / "msb_4x4_10bit.yuv"
    path.write_bytes(samples.tobytes())
    video = open_raw(path, video_format)
    assert video[0].y.max() == 0
    for _ in range(2):
        with pytest.raises(FormatError, match=r"picture 1 .* 1024"):
            video[1]


def test_refused_pictures_leave_no_file(tmp_path: Path) -> None:
    video_format = VideoFormat(4, 2, "420", 10)
    good = random_pictures(video_format, 1)[0]
    y, u, v = good.planes
    bad: dict[str, tuple[np.ndarray, ...]] = {
        "planes of": (y, u),
        "planes of ": (y, u, v.T),
        "float64": (y.astype(float), u, v),
        "uint8": ((y >> 2).astype(np.uint8), u, v),
        "bool": (y > 3, u, v),
        "sample 1024": (y, u, v * 0 + 1024),
        "sample -1": (y.astype(np.int32) * 0 - 1, u, v),
    }

    def interrupted() -> Iterator[Picture]:
        yield good
        raise KeyboardInterrupt

    path = tmp_path / "deep" / "out.yuv"
    for message, planes in bad.items():
        with pytest.raises(FormatError, match=message):
            write_video(path, video_format, [good, planes])
        assert list(path.parent.iterdir()) == []
    with pytest.raises(FormatError, match="8 bit"):
        write_video(path, video_format, [convert(good, 8)])
    with pytest.raises(FormatError, match="no picture"):
        write_video(path, video_format, [])
    path.write_bytes(b"older")
    with pytest.raises(KeyboardInterrupt):
        write_video(path, video_format, interrupted())
    assert [file.name for file in path.parent.iterdir()] == ["out.yuv"]
    assert path.read_bytes() == b"older"
    with create_video(path, video_format) as out:
        out.write((y.astype(np.int64), u.astype(">u2"), np.asfortranarray(v)))
    assert path.read_bytes() == joined([good])


Y4M_HEADERS = {
    "W4 H2": VideoFormat(4, 2),
    "W4 H2 F25:1 Ip A0:0 C420jpeg": VideoFormat(4, 2, fps=Fraction(25)),
    "W4 H2 F30000:1001 C420paldv": VideoFormat(4, 2, fps=Fraction(30000, 1001)),
    "W4 H2 F0:0 C420mpeg2 It XCOLORRANGE=LIMITED": VideoFormat(4, 2),
    "C420p10 XYSCSS=420P10 W4 H2": VideoFormat(4, 2, "420", 10),
    "W4 H2 C422": VideoFormat(4, 2, "422"),
    "W4 H2 C422p10": VideoFormat(4, 2, "422", 10),
    "W4 H2 C444": VideoFormat(4, 2, "444"),
    "W4 H2  C444p12 ": VideoFormat(4, 2, "444", 12),
    "W4 H2 Cmono": VideoFormat(4, 2, "400"),
    "W4 H2 Cmono10": VideoFormat(4, 2, "400", 10),
    "W4 H2 XYSCSS=422P10": VideoFormat(4, 2, "422", 10),
    "W4 H2 C444 XYSCSS=420": VideoFormat(4, 2, "444"),
}


@pytest.mark.parametrize("header", Y4M_HEADERS)
def test_y4m_headers(tmp_path: Path, header: str) -> None:
    expected = Y4M_HEADERS[header]
    picture = random_pictures(expected, 1)[0]
    path = tmp_path / "a.y4m"
    head, samples = f"YUV4MPEG2 {header}\nFRAME Ip XA=1\n".encode(), joined([picture])
    path.write_bytes(head + samples + b"FRAME\n" + samples)
    video = open_y4m(path)
    assert video.format == expected
    assert len(video) == 2
    np.testing.assert_array_equal(video[1].planes[-1], picture.planes[-1])


INVALID_Y4M = {
    b"YUV4MPEG W4 H2\nFRAME\n": "not a Y4M",
    b"RIFF....": "not a Y4M",
    b"YUV4MPEG2": "not a Y4M",
    b"YUV4MPEG2 W4 H2" + b" Xa" * 4000: "not a Y4M",
    b"YUV4MPEG2 H2\nFRAME\n": "W is None",
    b"YUV4MPEG2 W4\nFRAME\n": "H is None",
    b"YUV4MPEG2 W-4 H2\nFRAME\n": "W is '-4'",
    b"YUV4MPEG2 W4 H0\nFRAME\n": "H is '0'",
    b"YUV4MPEG2 W4.5 H2\nFRAME\n": "W is '4.5'",
    b"YUV4MPEG2 W4 H" + b"9" * 3000 + b"\nFRAME\n": "H is ",
    b"YUV4MPEG2 W999999999 H999999999 C444p16\nFRAME\n12": "0 whole frames",
    b"YUV4MPEG2 W4 H2 F25\nFRAME\n": "F25",
    b"YUV4MPEG2 W4 H2 F25:0\nFRAME\n": "F25:0",
    b"YUV4MPEG2 W4 H2 F-25:1\nFRAME\n": "F-25:1",
    b"YUV4MPEG2 W4 H2 C411\nFRAME\n": "C411",
    b"YUV4MPEG2 W4 H2 C420p8\nFRAME\n": "C420p8",
    b"YUV4MPEG2 W4 H2 C420p17\nFRAME\n": "C420p17",
    b"YUV4MPEG2 W4 H2 C444alpha\nFRAME\n": "C444alpha",
    b"YUV4MPEG2 W\xff H2\nFRAME\n": "not ASCII",
    b"YUV4MPEG2 W\xd9\xa4 H2\nFRAME\n": "not ASCII",
    b"YUV4MPEG2 W4 H2\n": "no pictures",
    b"YUV4MPEG2 W4 H2\nFRAME": "cut off inside a FRAME line",
    b"YUV4MPEG2 W4 H2\nFRAME\n123456789012FR": "cut off inside a FRAME line.*1 whole frames",
    b"YUV4MPEG2 W4 H2\nFRAME\n12345678901": "0 whole frames and 11 of 12 bytes",
    b"YUV4MPEG2 W4 H2\nFRAME\n123456789012FRAME\n1234": "1 whole frames and 4 of 12 bytes",
    b"YUV4MPEG2 W4 H2\nFRAME\n123456789012FRAMES\n123456789012": "no FRAME line at byte 34: .*1 whole frames before",
    b"YUV4MPEG2 W4 H2\nFRAME\n123456789012frame\n123456789012": "no FRAME line",
}


@pytest.mark.parametrize("content", INVALID_Y4M, ids=range(len(INVALID_Y4M)))
def test_invalid_y4m(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "invalid.y4m"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=INVALID_Y4M[content]) as error:
        open_y4m(path)
    assert "invalid.y4m" in str(error.value)


@in_folder
@given(data=st.data())
def test_damaged_y4m_is_refused_or_readable_to_the_end(tmp_path: Path, data: st.DataObject) -> None:
    video_format = VideoFormat(4, 2, "420", 8)
    path = tmp_path / "d.y4m"
    write_video(path, video_format, random_pictures(video_format, 3))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    # Only FormatError may be raised, and a file that opens is readable to its end.
    with contextlib.suppress(FormatError), open_y4m(path) as video:
        shapes = [tuple(plane.shape for plane in picture.planes) for picture in video]
        assert shapes == [video.format.plane_shapes] * len(video)
        assert shapes


@pytest.mark.parametrize(
    ("chroma", "bit_depth"), [(c, b) for c in CHROMAS for b in (8, 10)] + [("422", 12), ("444", 16)]
)
def test_y4m_agrees_with_ffmpeg(tmp_path: Path, chroma: str, bit_depth: int) -> None:
    video_format = VideoFormat(17, 9, chroma, bit_depth, Fraction(60000, 1001))
    pictures = random_pictures(video_format, 2)
    written, raw, converted = tmp_path / "written.y4m", tmp_path / "raw.yuv", tmp_path / "converted.y4m"
    write_video(written, video_format, pictures)
    outputs = ["-f", "rawvideo", raw, "-strict", "-1", converted]
    subprocess.run([*FFMPEG, "-strict", "-1", "-i", written, *outputs], check=True)
    assert raw.read_bytes() == joined(pictures)
    video = open_y4m(converted)
    assert video.format == video_format
    assert joined(list(video)) == joined(pictures)


@given(video_format=formats, bit_depth=st.integers(8, 16))
def test_convert(video_format: VideoFormat, bit_depth: int) -> None:
    picture = random_pictures(video_format, 1)[0]
    converted = convert(picture, bit_depth)
    assert converted.bit_depth == bit_depth
    scale = Fraction(2**bit_depth, 2**video_format.bit_depth)
    for before, after in zip(picture.planes, converted.planes, strict=True):
        assert after.dtype == VideoFormat(1, 1, bit_depth=bit_depth).dtype
        for sample, actual in zip(before.ravel().tolist(), after.ravel().tolist(), strict=True):
            assert actual == min(int(sample * scale + Fraction(1, 2)), 2**bit_depth - 1)
    if bit_depth >= video_format.bit_depth:
        assert_same(convert(converted, video_format.bit_depth), picture)


@given(video_format=formats)
def test_pad_to_even(video_format: VideoFormat) -> None:
    picture = random_pictures(video_format, 1)[0]
    padded = pad_to_even(picture, video_format.chroma)
    width, height = (extent + extent % 2 for extent in (video_format.width, video_format.height))
    even = VideoFormat(width, height, video_format.chroma, video_format.bit_depth)
    assert tuple(plane.shape for plane in padded.planes) == even.plane_shapes
    for before, after in zip(picture.planes, padded.planes, strict=True):
        assert after.dtype == before.dtype
        rows = np.minimum(np.arange(after.shape[0]), before.shape[0] - 1)
        columns = np.minimum(np.arange(after.shape[1]), before.shape[1] - 1)
        np.testing.assert_array_equal(after, before[np.ix_(rows, columns)])


def test_convert_and_pad_refuse_invalid_arguments() -> None:
    picture = random_pictures(VideoFormat(5, 3, "420"), 1)[0]
    for bit_depth in (7, 17):
        with pytest.raises(FormatError, match=str(bit_depth)):
            convert(picture, bit_depth)
    with pytest.raises(FormatError, match="444"):
        pad_to_even(picture, "444")


def test_real_clips(shared_data: Path) -> None:
    clips = shared_data / "clips"
    videos = [open_video(path) for path in sorted(clips.iterdir())]
    geometry = {video.path.name: (str(video.format), video.format.fps, len(video)) for video in videos}
    assert geometry == {
        "CiscoVT2people_320x192_12fps.yuv": ("320x192 420 8 bit", 12, 9),
        "cars_320x240_30.yuv": ("320x240 420 8 bit", 30, 30),
        "city_704x576_25_8f.y4m": ("704x576 420 8 bit", 30, 8),
        "walk_720x480_25_8f.y4m": ("720x480 420 8 bit", 30, 8),
        "water_176x96_25.yuv": ("176x96 420 8 bit", 25, 50),
    }
