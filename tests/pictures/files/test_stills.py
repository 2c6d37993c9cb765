"""Still pictures and colour: R'G'B' to Y'CbCr against published values, each kind of file."""

import gc
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skimage
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image
from skimage.color import rgb2ycbcr
from skimage.io import imsave

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, FormatError, MissingFileError
from codecnn.pictures.files import VideoFormat, open_video, read_still, rgb_to_ycbcr, ycbcr_to_rgb
from tests.helpers.video_files import assert_same, random_samples, write_png

# White, yellow, cyan, green, magenta, red, blue, black.
BAR_RGB = np.array([(1, 1, 1), (1, 1, 0), (0, 1, 1), (0, 1, 0), (1, 0, 1), (1, 0, 0), (0, 0, 1), (0, 0, 0)])
# 10-bit Y'CbCr code words of BT.709 colour bars; those of 75 % are the table of SMPTE RP 219.
LEFT_100, RIGHT_100 = (
    ((940, 512, 512), (877, 64, 553), (754, 615, 64), (691, 167, 105)),
    ((313, 857, 919), (250, 409, 960), (127, 960, 471), (64, 512, 512)),
)
LEFT_75, RIGHT_75 = (
    ((721, 512, 512), (674, 176, 543), (581, 589, 176), (534, 253, 207)),
    ((251, 771, 817), (204, 435, 848), (111, 848, 481), (64, 512, 512)),
)


@pytest.mark.parametrize(("level", "expected"), [(65535, LEFT_100 + RIGHT_100), (49151, LEFT_75 + RIGHT_75)])
def test_colour_bars_bt709(level: int, expected: tuple[tuple[int, int, int], ...]) -> None:
    picture = rgb_to_ycbcr((BAR_RGB * level).astype(np.uint16)[None], chroma="444", bit_depth=10)
    np.testing.assert_array_equal(np.stack(picture.planes, axis=2)[0], expected)


@pytest.mark.parametrize(
    ("matrix", "red"), [("bt601", (76, 85, 255)), ("bt709", (54, 99, 255)), ("bt2020", (67, 92, 255))]
)
def test_full_range_red(matrix: str, red: tuple[int, int, int]) -> None:
    """H.273: 255·KR; 128 - 255·KR / (2 (1 - KB)); 128 + 127.5 clipped. The values of BT.601 are also those of JFIF."""
    rgb = np.array([[(255, 0, 0), (255, 255, 255), (0, 0, 0)]], np.uint8)
    picture = rgb_to_ycbcr(rgb, chroma="444", bit_depth=8, matrix=matrix, full_range=True)
    assert np.stack(picture.planes, axis=2)[0].tolist() == [list(red), [255, 128, 128], [0, 128, 128]]


@given(npst.arrays(np.uint8, (3, 4, 3)))
def test_bt601_agrees_with_skimage(rgb: np.ndarray) -> None:
    picture = rgb_to_ycbcr(rgb, chroma="444", bit_depth=8, matrix="bt601")
    # scikit-image's coefficients are rounded to a thousandth of a code word.
    np.testing.assert_allclose(np.stack(picture.planes, axis=2), rgb2ycbcr(rgb), atol=0.505)


def reference_chroma(rgb: np.ndarray, chroma: str) -> tuple[np.ndarray, np.ndarray]:
    """Compute BT.709 limited 10-bit Cb and Cr sample by sample, with the divisors 1.8556 and 1.5748."""
    height, width, _ = rgb.shape
    sub_w, sub_h = {"420": (2, 2), "422": (2, 1), "444": (1, 1)}[chroma]
    shape = (ceil_div(height, sub_h), ceil_div(width, sub_w))
    planes = (np.zeros(shape, int), np.zeros(shape, int))
    taps = ((-1, 0.25), (0, 0.5), (1, 0.25)) if sub_w == 2 else ((0, 1.0),)
    for row, column in np.ndindex(shape):
        total = np.zeros(2)
        for dy in range(sub_h):
            for dx, weight in taps:
                y, x = min(row * sub_h + dy, height - 1), min(max(column * sub_w + dx, 0), width - 1)
                r, g, b = (float(value) / 255 for value in rgb[y, x])
                luma = 0.2126 * r + 0.7152 * g + 0.0722 * b
                total += weight / sub_h * np.array([(b - luma) / 1.8556, (r - luma) / 1.5748])
        for plane, value in zip(planes, total, strict=True):
            plane[row, column] = int(896 * value + 512 + 0.5)
    return planes


@given(
    npst.arrays(np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 6), st.just(3))),
    st.sampled_from(("420", "422", "444")),
)
def test_subsampling(rgb: np.ndarray, chroma: str) -> None:
    picture = rgb_to_ycbcr(rgb, chroma=chroma)
    height, width, _ = rgb.shape
    assert tuple(plane.shape for plane in picture.planes) == VideoFormat(width, height, chroma).plane_shapes
    for expected, actual in zip(reference_chroma(rgb, chroma), picture.planes[1:], strict=True):
        # The order of float sums may change the rounding by one code word.
        assert np.abs(expected - actual.astype(int)).max() <= 1
        assert np.mean(expected != actual) < 0.3


@pytest.mark.parametrize("matrix", ["bt601", "bt709", "bt2020"])
@pytest.mark.parametrize("full_range", [False, True])
def test_conversion_back_to_rgb(matrix: str, full_range: bool) -> None:
    rgb = np.random.default_rng(3).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    deep = rgb_to_ycbcr(rgb, chroma="444", bit_depth=12, matrix=matrix, full_range=full_range)
    np.testing.assert_array_equal(ycbcr_to_rgb(deep, matrix=matrix, full_range=full_range), rgb)
    grey = np.repeat(rgb[:, :, :1], 3, axis=2)
    for chroma in ("400", "420", "422", "444"):
        picture = rgb_to_ycbcr(grey, chroma=chroma, matrix=matrix, full_range=full_range)
        np.testing.assert_array_equal(ycbcr_to_rgb(picture, matrix=matrix, full_range=full_range), grey)


def test_chroma_positions_agree_in_both_directions() -> None:
    """A linear slope of colour survives 4:2:0 only if both directions place the samples at the same positions."""
    rows, columns = np.mgrid[0:19, 0:23]
    for slope in (rows, columns, 19 - rows, rows + columns):
        part = slope / slope.max()
        rgb = np.stack((20 + 200 * part, 100 + 0 * part, 235 - 200 * part), axis=2).round().astype(np.uint8)
        back = ycbcr_to_rgb(rgb_to_ycbcr(rgb, chroma="420", bit_depth=14), matrix="bt709").astype(int)
        assert np.abs(back - rgb)[2:-3, 2:-3].max() <= 1


def test_invalid_colour_arguments_are_refused() -> None:
    rgb = np.zeros((2, 2, 3), np.uint8)
    with pytest.raises(ConfigError, match="bt470"):
        rgb_to_ycbcr(rgb, matrix="bt470")
    with pytest.raises(FormatError, match="float64"):
        rgb_to_ycbcr(rgb.astype(float))  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=r"\(2, 2, 4\)"):
        rgb_to_ycbcr(np.zeros((2, 2, 4), np.uint8))
    with pytest.raises(FormatError, match="7"):
        rgb_to_ycbcr(rgb, bit_depth=7)


def assert_reads_as(path: Path, rgb: np.ndarray, **options: Any) -> None:
    assert_same(read_still(path, **options), rgb_to_ycbcr(rgb, **options))


COLOUR = ["a.png", "a.PNG", "a.tif", "a.tiff", "a.bmp", "a.jpg", "deep.png", "deep.tif"]


@pytest.mark.parametrize("name", [*COLOUR, "grey.png", "grey.jpg", "grey16.tif"])
def test_kinds_of_stills(tmp_path: Path, name: str) -> None:
    """The result is the conversion of the stored samples; those of a JPEG are read with Pillow."""
    dtype = np.uint16 if name.startswith(("deep", "grey16")) else np.uint8
    samples = random_samples((7, 10, 3) if name in COLOUR else (7, 10), dtype)
    path = tmp_path / name
    if name == "deep.png":
        write_png(path, samples, 2)
    else:
        imsave(path, samples, check_contrast=False)
    if name.endswith("jpg"):
        with Image.open(path) as opened:
            samples = np.asarray(opened)
    with open_video(path, bit_depth=8) as video:
        assert (len(video), video.format) == (1, VideoFormat(10, 7, "420" if name in COLOUR else "400", 8))
        if name not in COLOUR:
            scaled = 219.0 * samples / np.iinfo(dtype).max + 16
            np.testing.assert_array_equal(video[0].y, np.floor(scaled + 0.5))
            return
        assert_same(video[0], rgb_to_ycbcr(samples, bit_depth=8))
    assert_reads_as(path, samples)
    assert_reads_as(path, samples, bit_depth=16)
    assert_reads_as(path, samples, chroma="444", bit_depth=8, matrix="bt2020", full_range=True)
    assert read_still(path, chroma="400").u is None


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".webp"])
def test_lossy_stills(tmp_path: Path, suffix: str) -> None:
    rgb = np.zeros((16, 24, 3), np.uint8)
    rgb[:, :12] = (200, 40, 60)
    path = tmp_path / f"a{suffix}"
    imsave(path, rgb, check_contrast=False)
    assert np.abs(read_still(path).y.astype(int) - rgb_to_ycbcr(rgb).y).mean() < 16


@pytest.mark.parametrize(("colour_type", "channels"), [(2, 3), (6, 4)])
def test_16_bit_colour_png_keeps_its_depth(tmp_path: Path, colour_type: int, channels: int) -> None:
    samples = random_samples((5, 6, channels), np.uint16)
    path = tmp_path / "a%03d.png"
    write_png(path, samples, colour_type)
    write_png(tmp_path / "a000.png", 0 * samples, colour_type)
    assert_reads_as(path, samples[:, :, :3], chroma="444", bit_depth=16)


@pytest.mark.parametrize(("colour_type", "channels"), [(0, 1), (4, 2)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_grey_png(tmp_path: Path, colour_type: int, channels: int, dtype: Any) -> None:
    samples = random_samples((5, 6, channels), dtype)
    path = tmp_path / "grey.png"
    write_png(path, samples, colour_type)
    picture = read_still(path, bit_depth=16, full_range=True)
    assert picture.u is None
    np.testing.assert_array_equal(picture.y, samples[:, :, 0] * np.uint16(257 if dtype is np.uint8 else 1))
    picture = read_still(path, chroma="420")
    top = np.iinfo(dtype).max
    np.testing.assert_array_equal(picture.y, np.floor(samples[:, :, 0] / top * 876 + 64.5))
    for plane in picture.planes[1:]:
        np.testing.assert_array_equal(plane, np.full((3, 3), 512))


def test_palette_alpha_and_1_bit(tmp_path: Path) -> None:
    palette = random_samples((4, 3), np.uint8)
    indices = np.array([[0, 1, 2], [3, 3, 1]], np.uint8)
    write_png(tmp_path / "palette.png", indices, 3, palette.tobytes())
    assert_reads_as(tmp_path / "palette.png", palette[indices], chroma="444")
    rgba = random_samples((4, 5, 4), np.uint8)
    rgba[:, :, 3] = 0
    write_png(tmp_path / "alpha.png", rgba, 6)
    assert_reads_as(tmp_path / "alpha.png", rgba[:, :, :3], chroma="444")
    write_png(tmp_path / "bits.png", np.array([[0b10100000]], np.uint8).repeat(2, axis=0), 0, bit_depth=1)
    assert read_still(tmp_path / "bits.png").y.tolist() == [[940, 64, 940, 64, 64, 64, 64, 64]] * 2


def test_open_video_of_a_still(tmp_path: Path) -> None:
    rgb = random_samples((7, 9, 3), np.uint8)
    path = tmp_path / "a_9x7_50_8bit.png"
    imsave(path, rgb, check_contrast=False)
    video = open_video(path)
    assert (video.format, len(video)) == (VideoFormat(9, 7, "420", 10), 1)
    assert_same(video[0], rgb_to_ycbcr(rgb))
    assert not any(plane.flags.writeable for plane in video[0].planes)
    assert open_video(path, bit_depth=8, chroma="422", size=(9, 7)).format == VideoFormat(9, 7, "422", 8)
    with pytest.raises(FormatError, match=r"width 9 .* 10"):
        open_video(path, size="10x7")
    write_png(path, rgb[:, :, 0], 0)
    assert open_video(path).format.chroma == "400"
    assert open_video(path, chroma="420")[0].u is not None


@pytest.mark.filterwarnings("ignore")
def test_damaged_stills_are_refused(tmp_path: Path) -> None:
    good = tmp_path / "good.png"
    write_png(good, random_samples((40, 40, 3), np.uint8), 2)
    deep = tmp_path / "deep.png"
    write_png(deep, random_samples((40, 40, 3), np.uint16), 2)
    contents = {
        "text.png": b"hello",
        "empty.jpg": b"",
        "jpeg.png": b"\xff\xd8\xff\xe0" + bytes(40),
        "cut.png": good.read_bytes()[:500],
        "cut_deep.png": deep.read_bytes()[:500],
        "garbage.png": b"\x89PNG\r\n\x1a\n" + b"x" * 60,
        "garbage.jpg": b"\xff\xd8\xff" + b"x" * 60,
        "garbage.tif": b"II*\0" + b"\xff" * 60,
        "garbage.bmp": b"BM" + b"\xff" * 60,
        "garbage.webp": b"RIFF" + b"\xff" * 60,
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match=name):
            read_still(tmp_path / name)
    with pytest.raises(MissingFileError, match="absent"):
        read_still(tmp_path / "absent.png")
    gc.collect()  # imageio leaves files open when none of its readers fits


def test_unsupported_stills_are_refused(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "float.tif", np.zeros((6, 8), np.float32))
    tifffile.imwrite(tmp_path / "pages.tif", np.zeros((5, 6, 8), np.uint8), photometric="minisblack")
    Image.new("CMYK", (8, 6)).save(tmp_path / "cmyk.jpg")
    for name, message in {"float.tif": "float32", "pages.tif": "5 pictures", "cmyk.jpg": "CMYK"}.items():
        with pytest.raises(FormatError, match=message):
            read_still(tmp_path / name)


def test_real_picture(shared_data: Path) -> None:
    path = min((shared_data / "images" / "val").glob("*.png"))
    picture = read_still(path)
    height, width = picture.y.shape
    assert tuple(plane.shape for plane in picture.planes) == VideoFormat(width, height).plane_shapes
    assert 64 <= picture.y.min() < 300 < 500 < picture.y.max() <= 940


def test_sample_pictures_of_scikit_image_are_not_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its rocket.jpg has the profile Adobe RGB; a copy is a picture of the user."""
    sample = Path(skimage.__file__).parent / "data" / "rocket.jpg"
    with open_video(sample) as video:
        assert video[0].y.any()
    assert not caplog.records
    with open_video(shutil.copy(sample, tmp_path)) as video:
        assert video[0].y.any()
    assert "colour profile 'Adobe RGB (1998)'" in caplog.text
