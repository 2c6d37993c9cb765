"""Raw files: pixel formats in names and options are read right, or refused."""

import os
import re
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from codecnn.base.errors import CodecnnError, ConfigError, FormatError
from codecnn.pictures.files import (
    NameFields,
    VideoFormat,
    ffmpeg_path,
    guess_format,
    open_like,
    open_video,
    parse_name,
)
from tests.helpers.video_files import FFMPEG, joined, random_pictures

READ = {
    **dict.fromkeys(("nv12", "nv21", "yuvj420p"), ("420", 8)),
    **dict.fromkeys(("nv16", "yuyv422", "uyvy422", "yvyu422", "yuvj422p"), ("422", 8)),
    **dict.fromkeys(("nv24", "nv42", "yuvj444p"), ("444", 8)),
    "nv20le": ("422", 10),
    "nv20be": ("422", 10),
    "gray": ("400", 8),
    **{
        f"p{layout}{depth}{order}": (chroma, depth)
        for layout, chroma in ((0, "420"), (2, "422"), (4, "444"))
        for depth in (10, 12, 16)
        for order in ("le", "be")
    },
    **{f"y2{depth}le": ("422", depth) for depth in (10, 12, 16)},
    **{
        f"{name}{depth}{order}": (chroma, depth)
        for name, chroma in (("gray", "400"), ("yuv420p", "420"), ("yuv422p", "422"), ("yuv444p", "444"))
        for depth in (9, 10, 12, 14, 16)
        for order in ("le", "be")
    },
    **{f"yuv{chroma}p": (chroma, 8) for chroma in ("420", "422", "444")},
}
"""ffmpeg's name of each pixel format that is read -> chroma format and bit depth."""


SWAPPED = [f"y2{depth}be" for depth in (10, 12, 16)]
"""Formats that are read, but that ffmpeg does not write."""


def ffmpeg_formats() -> list[str]:
    """Return the pixel formats of the bundled ffmpeg that are formats of samples in memory."""
    listed = subprocess.run([ffmpeg_path(), "-hide_banner", "-pix_fmts"], capture_output=True, text=True, check=True)
    return [match[2] for match in re.finditer(r"^([I.][O.])\.[P.][B.] (\w+)", listed.stdout, re.MULTILINE)]


def write_raw(path: Path, pix_fmt: str, form: VideoFormat, planar: bytes) -> None:
    """Convert planar pictures to a pixel format by ffmpeg, without scaling, dithering or a change of range."""
    source = path.with_name("planar.bin")
    source.write_bytes(planar)
    size = ["-s", f"{form.width}x{form.height}"]
    flags = ["-sws_flags", "accurate_rnd+full_chroma_int", "-src_range", "1", "-dst_range", "1"]
    flags = flags if pix_fmt.startswith("gray") else flags[:2]
    # The same samples in full range, which ffmpeg would otherwise convert to it.
    given = pix_fmt if pix_fmt.startswith("yuvj") else form.ffmpeg_pix_fmt
    raw = ["-f", "rawvideo", "-pix_fmt", given, *size, "-i", source]
    subprocess.run([*FFMPEG, *raw, *flags, "-f", "rawvideo", "-pix_fmt", pix_fmt, path], check=True)


@pytest.mark.parametrize("pix_fmt", READ)
def test_ffmpeg_formats_are_read_by_name(tmp_path: Path, pix_fmt: str) -> None:
    chroma, depth = READ[pix_fmt]
    form = VideoFormat(18, 10, chroma, depth, Fraction(25))
    planar = joined(random_pictures(form, 3))
    path = tmp_path / "clip.yuv"
    write_raw(path, pix_fmt, form, planar)
    with open_video(path, packing=pix_fmt, size="18x10") as video:
        assert joined(video) == planar
    for name in (
        f"clip_18x10_25_{pix_fmt}.yuv",
        f"clip_18x10_25.{pix_fmt}.yuv",
        f"clip.{pix_fmt.upper()}.18x10.25fps.yuv",
        f"{pix_fmt}-18x10-25.raw",
        f"clip_18x10_25.{pix_fmt}",
    ):
        path = path.rename(tmp_path / name)
        if pix_fmt == "gray" and "_gray" not in name and ".gray" not in name:
            continue  # in front of the size it may be a word of the title
        with open_video(path) as video:
            assert (video.format, len(video)) == (form, 3)
            assert joined(video) == planar


@pytest.mark.parametrize("pix_fmt", [name for name in ffmpeg_formats() if name not in READ and name not in SWAPPED])
def test_other_ffmpeg_formats_are_refused(tmp_path: Path, pix_fmt: str) -> None:
    """The files hold whole pictures of 4:2:0, 4:4:4 and 4:2:2, of 8 bits and more, so that none is refused by size."""
    for name in (f"clip_24x16_25_{pix_fmt}.yuv", f"clip_24x16.{pix_fmt}.yuv", f"{pix_fmt}_24x16.yuv"):
        path = tmp_path / name
        path.write_bytes(bytes(24 * 16 * 12))
        with pytest.raises(FormatError, match=f"pixel format {pix_fmt.partition('_')[0]}") as error:
            open_video(path)
        assert name in str(error.value)
        assert open_video(path, packing="planar").format.chroma in ("400", "420", "422", "444")


@pytest.mark.parametrize("pix_fmt", SWAPPED)
def test_big_endian_packed_words(tmp_path: Path, pix_fmt: str) -> None:
    little = pix_fmt.replace("be", "le")
    form = VideoFormat(18, 10, *READ[little])
    planar = joined(random_pictures(form, 2))
    write_raw(tmp_path / "little.yuv", little, form, planar)
    path = tmp_path / f"a_18x10_{pix_fmt}.yuv"
    path.write_bytes(np.fromfile(tmp_path / "little.yuv", "<u2").byteswap().tobytes())
    assert joined(open_video(path)) == planar


OTHER_NAMES = {
    # other names of formats that are read
    "a_8x4_yv12.yuv": "yv12",
    "a_8x4_yv16.yuv": "yv16",
    "a_8x4_yuy2.yuv": "yuyv422",
    "a_8x4_p010be.yuv": "p010be",
    "a_8x4_i010.yuv": None,
    "a_8x4_y800.yuv": None,
    "a_8x4_i420.yuv": None,
    "a_8x4_gray10be.yuv": "gray10be",
    # words that state a layout
    "a_8x4_10bit_be.yuv": "be",
    "a_8x4_10be.yuv": "10be",
    "a_8x4_packed.yuv": "packed",
    "a_8x4_rgb.yuv": "rgb",
    "a_8x4_60_8bit_gbr444.yuv": "gbr444",
    "a_8x4_yuv420sp.yuv": "yuv420sp",
    "a_8x4_nv12m.yuv": "nv12m",
    "a_8x4_p013.yuv": "p013",
    "a_8x4_v210.yuv": "v210",
    "a_8x4_yuv411p.yuv": "yuv411p",
    "a_8x4_yuva420p.yuv": "yuva420p",
    "a_8x4_yuv420p10msble.yuv": "yuv420p10msble",
    # two layouts
    "nv12_8x4_yuv420p.yuv": "nv12 and yuv420p",
    "a_8x4_nv12_nv21.yuv": "nv12 and nv21",
    # words that are no layouts
    "be_8x4.yuv": None,
    "rgb_8x4.yuv": None,
    "packed_8x4.yuv": None,
    "a_8x4_p420_nv.yuv": None,
    "nvidia_8x4.yuv": None,
    "a_8x4_480p.yuv": None,
    "a_8x4_yuv.yuv": None,
    "p2100_8x4.yuv": None,
}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_layouts_in_names(name: str) -> None:
    assert parse_name(name).packing == OTHER_NAMES[name]


FIELDS = {
    "clip_64x48.yuv420p10le.yuv": NameFields(64, 48, "420", 10),
    "clip_64x48.yuv420p10le": NameFields(64, 48, "420", 10),
    "clip.64x48.10bit.422.yuv": NameFields(64, 48, "422", 10),
    "clip_64x48_25.10bit.yuv": NameFields(64, 48, None, 10, Fraction(25)),
    "clip_64x48_50.444.yuv": NameFields(64, 48, "444", None, Fraction(50)),
    "clip_64x48_59.94.yuv": NameFields(64, 48, None, None, Fraction(60000, 1001)),
    "clip_64x48_12.5fps.10bit.yuv": NameFields(64, 48, None, 10, Fraction(25, 2)),
    "clip_10bit_64x48.yuv": NameFields(64, 48, None, 10),
    "clip_10-bit_64x48_8bit.yuv": NameFields(64, 48, None, 8, bit_depths=(8, 10)),
    "clip_yuv422p10le_64x48_30.yuv": NameFields(64, 48, "422", 10, Fraction(30)),
    "clip_yuv420p_64x48_10bit.yuv": NameFields(64, 48, "420", 10),
    "clip_yuv420p10le.yuv": NameFields(chroma="420", bit_depth=10),
    "nv12.yuv": NameFields(chroma="420", bit_depth=8, packing="nv12"),
    "foreman_444_64x48.yuv": NameFields(64, 48),
    "clip_64x48_mono10.yuv": NameFields(64, 48, "400", 10),
    "clip_64x48_8bit_yuv420p10le.yuv": NameFields(64, 48, "420", 8, packing="yuv420p10le", bit_depths=(8, 10)),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_names(name: str) -> None:
    assert parse_name(name) == FIELDS[name]


def write_zeros(path: Path, form: VideoFormat, count: int = 1) -> Path:
    path.write_bytes(bytes(count * form.picture_bytes))
    return path


def test_layout_of_a_name_without_size_counts(tmp_path: Path) -> None:
    path = tmp_path / "clip_nv12.yuv"
    path.write_bytes(np.arange(24, dtype=np.uint8).tobytes())
    assert open_video(path, size="4x4")[0].u.tolist() == [[16, 18], [20, 22]]  # type: ignore[union-attr]
    path = path.rename(tmp_path / "clip_v210.yuv")
    with pytest.raises(FormatError, match="v210"):
        open_video(path, size="4x4")
    with pytest.raises(FormatError, match="v210"):
        open_like(path, VideoFormat(4, 4))


def test_options_beat_names(tmp_path: Path) -> None:
    planar = write_zeros(tmp_path / "a_8x4.yuv420p10le.yuv", VideoFormat(8, 4, "420", 10))
    assert open_video(planar).format == VideoFormat(8, 4, "420", 10)
    assert open_video(planar, bit_depth=8).format == VideoFormat(8, 4, "420", 8)
    assert open_video(planar, bit_depth=8, chroma="400").format == VideoFormat(8, 4, "400", 8)
    assert open_video(planar, packing="nv12").format == VideoFormat(8, 4, "420", 8)
    assert open_video(planar, packing="gray16be", size="4x2").format == VideoFormat(4, 2, "400", 16)
    packed = write_zeros(tmp_path / "a_8x4_yuyv422.yuv", VideoFormat(8, 4, "422"))
    assert open_video(packed, packing="planar", chroma="422").format == VideoFormat(8, 4, "422")
    assert open_video(packed, packing="yuv422p").format == VideoFormat(8, 4, "422")
    assert open_video(packed, packing="yuv400p").format == VideoFormat(8, 4, "400")
    with pytest.raises(FormatError, match="yuyv422"):
        open_video(packed, chroma="420")
    for unknown in ("v210", "nv12x", "rgb24", ""):
        if unknown:
            with pytest.raises(ConfigError, match=unknown):
                open_video(packed, packing=unknown)
    with pytest.raises(FormatError, match="packing yuv420p10le holds"):
        open_video(write_zeros(tmp_path / "a_8x4_8bit_yuv420p10le.yuv", VideoFormat(8, 4)))


@pytest.mark.parametrize("name", ["yuyv422", "uyvy422", "yvyu422"])
def test_packed_rows_of_odd_width(tmp_path: Path, name: str) -> None:
    """A row of five samples has three groups, of which the last luma sample is unused."""
    order = {"yuyv422": "YUYV", "uyvy422": "UYVY", "yvyu422": "YVYU"}[name]
    groups = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / f"a_5x2_{name}.yuv"
    path.write_bytes(groups.tobytes() * 2)
    with open_video(path) as video:
        assert len(video) == 2
        places = [place for place, component in enumerate(order) if component == "Y"]
        assert video[1].y.tolist() == groups[:, :, places].reshape(2, 6)[:, :5].tolist()
        assert video[1].planes[1].tolist() == groups[:, :, order.index("U")].tolist()
        assert video[1].planes[2].tolist() == groups[:, :, order.index("V")].tolist()
    path.write_bytes(bytes(25))
    with pytest.raises(FormatError, match=r"1\.042 pictures of 5x2 422 8 bit in packing"):
        open_video(path)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a_8x4_2f.yuv", VideoFormat(8, 4, "420", 10)),
        ("a_8x4_f2_420.yuv", VideoFormat(8, 4, "420", 10)),
        ("a_8x4_2frames_8bit.yuv", VideoFormat(8, 4, "444")),
        ("a_8x4_4frames.yuv", VideoFormat(8, 4, "444", 10)),
    ],
)
def test_number_of_pictures_in_the_name_excludes_another_format(tmp_path: Path, name: str, form: VideoFormat) -> None:
    path = write_zeros(tmp_path / name, form, 4 if "4f" in name else 2)
    with pytest.raises(FormatError, match=f"by its name, which fits .*{form}"):
        open_video(path)
    assert open_video(path, chroma=form.chroma, bit_depth=form.bit_depth).format == form


def test_other_numbers_of_pictures_are_read(tmp_path: Path) -> None:
    for count in (1, 3, 5):
        assert len(open_video(write_zeros(tmp_path / "a_8x4_f7.yuv", VideoFormat(8, 4), count))) == count


def test_files_of_users(shared_data: Path) -> None:
    folder = shared_data / "inputs"
    reference = open_video(folder / "ref_64x48_yuv420p.yuv")[0]
    clip = open_video(folder / "clip_64x48_nv12.yuv")
    assert len(clip) == 1
    for expected, plane in zip(reference.planes, clip[0].planes, strict=True):
        np.testing.assert_array_equal(plane, expected)
    deep = open_video(folder / "clip_64x48.yuv420p10le.yuv")
    assert (deep.format, len(deep)) == (VideoFormat(64, 48, "420", 10), 1)
    for expected, plane in zip(reference.planes, deep[0].planes, strict=True):
        # both come from one picture of higher precision or the same samples
        assert np.abs(plane.astype(int) - 4 * expected.astype(int)).max() <= 3
    assert guess_format("a_64x48.yuv420p10le.yuv").bit_depth == 10
    with pytest.raises(CodecnnError):
        open_video(folder / "clip_64x48_nv12.yuv", packing="p010")


@pytest.mark.parametrize(("order", "option"), [("<u2", "--bit-depth 10"), (">u2", "--packing yuv420p10be")])
def test_words_under_a_name_without_bit_depth_are_refused(tmp_path: Path, order: str, option: str) -> None:
    samples = np.random.default_rng(1).integers(64, 940, 2 * 64 * 48 * 3 // 2)
    path = tmp_path / "a_64x48.yuv"
    path.write_bytes(samples.astype(order).tobytes())
    with pytest.raises(FormatError, match=f"looks like samples of more than 8 bits.*{option}"):
        open_video(path)
    assert len(open_video(path, bit_depth=8)) == 4, "the option decides"
    assert len(open_video(path, bit_depth=10)) == 2 or order == ">u2"
    dark = tmp_path / "dark_64x48.yuv"
    dark.write_bytes(np.full(64 * 48 * 3, 15, np.uint8).tobytes())
    assert len(open_video(dark)) == 2, "a nearly black file of 8 bits is read"


@pytest.mark.parametrize("depth", [8, 10])
def test_an_original_without_bit_depth_in_its_name_has_that_of_its_samples(tmp_path: Path, depth: int) -> None:
    samples = np.random.default_rng(1).integers(0, 1 << depth, 4 * 64 * 48 * 3 // 2)
    path = tmp_path / "a_64x48_25.yuv"
    path.write_bytes(samples.astype("u1" if depth == 8 else "<u2").tobytes())
    with open_like(path, VideoFormat(64, 48, "420", 10)) as video:
        assert (video.format.bit_depth, len(video)) == (depth, 4)


@pytest.mark.parametrize("name", ["clip_64x48_8bit.yuv", "clip_64x48_nv12.yuv", "clip.y4m"])
def test_a_file_that_is_cut_short_while_it_is_read_is_an_error(tmp_path, name):
    """A memory map of such a file would kill the process (SIGBUS)."""
    path = tmp_path / name
    picture = bytes(64 * 48 * 3 // 2)
    frames = b"YUV4MPEG2 W64 H48 F25:1 C420\n" + 3 * (b"FRAME\n" + picture)
    path.write_bytes(frames if path.suffix == ".y4m" else 3 * picture)
    with open_video(path) as video:
        assert len(video) == 3
        os.truncate(path, 6000)
        assert not video[0].y.any()
        with pytest.raises(FormatError, match=f"{name} had .* 6000"):
            video[2]
