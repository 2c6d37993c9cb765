"""Large still pictures: read in bands of rows, in bounded memory, up to a limit of samples."""

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tifffile import imwrite

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, FormatError
from codecnn.pictures.files import check_video, open_video, read_still, summarise_video
from tests.helpers.commands import result_of

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
RNG = np.random.default_rng(5)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, colour: int, depth: int, *others: bytes, data: bytes | None = None) -> bytes:
    """Return a PNG of random scanlines, each with a random filter, or of the given compressed data."""
    if data is None:
        size = ceil_div(width * CHANNELS[colour] * depth, 8)
        rows = RNG.integers(0, 256, (height, 1 + size), np.uint8)
        rows[:, 0] = RNG.integers(0, 5, height)
        data = zlib.compress(rows.tobytes())
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    # Image data may be divided anywhere.
    parts = [chunk(b"IDAT", data[: len(data) // 3]), chunk(b"IDAT", b""), chunk(b"IDAT", data[len(data) // 3 :])]
    return b"\x89PNG\r\n\x1a\n" + b"".join([header, *others, *parts, chunk(b"IEND", b"")])


def zeros(width: int, height: int, channels: int) -> bytes:
    """Return compressed scanlines of zeros without memory for them."""
    stream, row = zlib.compressobj(), bytes(1 + width * channels)
    return b"".join([*(stream.compress(row) for _ in range(height)), stream.flush()])


@pytest.mark.parametrize(
    ("colour", "depth", "transparent"),
    [
        (colour, depth, transparent)
        for colour in DEPTHS
        for depth in DEPTHS[colour]
        for transparent in ((False, True) if colour < 4 else (False,))
    ],
)
def test_bands_of_a_png_equal_the_whole(
    tmp_path: Path, colour: int, depth: int, transparent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [chunk(b"PLTE", RNG.integers(0, 256, 3 << depth, np.uint8).tobytes())] if colour == 3 else []
    if transparent:
        others.append(chunk(b"tRNS", bytes(range(2)) if colour == 3 else b"\0\1" * CHANNELS[colour]))
    path = tmp_path / "a.png"
    path.write_bytes(png(37, 23, colour, depth, *others))
    whole = read_still(path, bit_depth=16)
    for samples in (1, 150, 37 * 22):
        monkeypatch.setattr("codecnn.pictures.files.bands.WHOLE_SAMPLES", 0)
        monkeypatch.setattr("codecnn.pictures.files.bands.BAND_SAMPLES", samples)
        for expected, plane in zip(whole.planes, read_still(path, bit_depth=16).planes, strict=True):
            np.testing.assert_array_equal(plane, expected)


@pytest.mark.parametrize("options", [{"rowsperstrip": 3}, {"tile": (16, 32)}, {"rowsperstrip": 1, "predictor": 2}])
@pytest.mark.parametrize("shape", [(23, 37), (23, 37, 3), (23, 37, 4)])
def test_bands_of_a_tiff_equal_the_whole(
    tmp_path: Path, shape: tuple[int, ...], options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tif"
    kind = "minisblack" if len(shape) == 2 else "rgb"
    imwrite(path, RNG.integers(0, 1 << 16, shape, np.uint16), photometric=kind, compression="zlib", **options)
    whole = read_still(path, bit_depth=16)
    for samples in (1, 150, 37 * 22):
        monkeypatch.setattr("codecnn.pictures.files.bands.WHOLE_SAMPLES", 0)
        monkeypatch.setattr("codecnn.pictures.files.bands.BAND_SAMPLES", samples)
        for expected, plane in zip(whole.planes, read_still(path, bit_depth=16).planes, strict=True):
            np.testing.assert_array_equal(plane, expected)


@pytest.mark.parametrize("depth", [8, 16])
def test_damaged_image_data_are_refused_in_bands(tmp_path: Path, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codecnn.pictures.files.bands.WHOLE_SAMPLES", 0)
    monkeypatch.setattr("codecnn.pictures.files.bands.BAND_SAMPLES", 150)
    whole = png(37, 23, 2, depth)
    path = tmp_path / "damaged.png"
    wrong = bytearray(whole)
    wrong[len(whole) // 2] ^= 0x10
    rows = zlib.compress(bytes(22 * (1 + 37 * 3 * depth // 8)))
    checksum = zlib.compress(bytes(23 * (1 + 37 * 3 * depth // 8)))[:-1] + b"x"
    for content in (
        wrong,
        whole[: len(whole) // 2],
        png(37, 23, 2, depth, data=rows),
        png(37, 23, 2, depth, data=checksum),
    ):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"damaged\.png"):
            read_still(path)


def test_headers_without_a_picture_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.png"
    path.write_bytes(b"".join(png(5, 5, 2, 8).split(b"\0\0\0\0IDAT")[:1]).partition(b"IDAT")[0][:-4])
    with pytest.raises(FormatError, match=r"empty\.png .* no image data"):
        check_video(path)
    path = tmp_path / "size.tif"
    imwrite(path, np.zeros((5, 6), np.uint8))
    content = bytearray(path.read_bytes())
    # The width (tag 256) becomes two values.
    at = (
        content.index(struct.pack("<HH", 256, 4))
        if struct.pack("<HH", 256, 4) in content
        else content.index(struct.pack("<HH", 256, 3))
    )
    content[at + 4] = 2
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"size\.tif"):
        check_video(path)


def write_kinds(folder: Path) -> dict[str, Path]:
    """Write a picture of 40x30 with three channels of each kind."""
    rgb = np.full((30, 40, 3), 90, np.uint8)
    paths = {}
    for suffix in ("png", "jpg", "tif", "bmp", "webp", "gif"):
        paths[suffix] = folder / f"a.{suffix}"
        Image.fromarray(rgb).save(paths[suffix])
    paths["deep"] = folder / "deep.png"
    paths["deep"].write_bytes(png(40, 30, 2, 16))
    paths["deep_tif"] = folder / "deep.tif"
    imwrite(paths["deep_tif"], rgb.astype(np.uint16), photometric="rgb")
    return paths


def test_one_limit_holds_for_all_stills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in write_kinds(tmp_path).values():
        monkeypatch.setenv("CODECNN_MAX_SAMPLES", "3600")
        assert summarise_video(path).format.width == open_video(path).format.width == 40
        monkeypatch.setenv("CODECNN_MAX_SAMPLES", "3599")
        sentence = (
            rf"{path} has 3600 samples \(40x30, 3 channels\), more than the limit of 3599: set "
            r"CODECNN_MAX_SAMPLES=3600 to read it nevertheless"
        )
        for read in (open_video, read_still, summarise_video, check_video):
            with pytest.raises(FormatError, match=sentence):
                read(path)
    monkeypatch.setenv("CODECNN_MAX_SAMPLES", "many")
    with pytest.raises(ConfigError, match="CODECNN_MAX_SAMPLES is 'many'"):
        open_video(path)


def test_pillows_own_limit_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow refuses pictures of two times its limit, which is that of the user after each call."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    for path in write_kinds(tmp_path).values():
        assert summarise_video(path).pictures == 1
        assert open_video(path)[0].y.shape == (30, 40)
        assert Image.MAX_IMAGE_PIXELS == 100


def test_huge_headers_are_refused(tmp_path: Path, run) -> None:
    path = tmp_path / "huge.png"
    for width, height, reason in (
        (2**31 - 1, 1, "at most 999999"),
        (0, 5, "its size is 0x5"),
        (60_000, 60_000, "10800000000 samples"),
    ):
        path.write_bytes(png(width, height, 2, 8, data=b"x"))
        status, _, err = run("info", path)
        assert (status, reason in err) == (1, True), err


@pytest.mark.parametrize("kind", ["png", "deep", "tiff"])
def test_memory_is_that_of_the_planes(tmp_path: Path, kind: str) -> None:
    """A picture of 3000x3000 whose file is small: its header needs no memory, its conversion that of its planes."""
    path = tmp_path / ("a.tif" if kind == "tiff" else "a.png")
    if kind == "tiff":
        imwrite(path, np.zeros((3000, 3000, 3), np.uint16), photometric="rgb", compression="zlib", rowsperstrip=7)
    else:
        depth = 8 if kind == "png" else 16
        path.write_bytes(png(3000, 3000, 2, depth, data=zeros(3000, 3000, 3 * depth // 8)))
    script = f"""
import resource, sys
import tifffile, imagecodecs
from codecnn.pictures.files import open_video, summarise_video
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
summarise_video({str(path)!r})
header = peak()
open_video({str(path)!r})[0]
print(header - before, peak() - header)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    header, conversion = map(int, done.stdout.split())
    # The planes have 27 MB, the samples in float64 more than 400 MB.
    assert header < 30
    assert conversion < 180


def test_info_does_not_decode(tmp_path: Path, run) -> None:
    """Image data that no decoder reads do not matter to `info`."""
    path = tmp_path / "a.png"
    path.write_bytes(png(13_000, 13_000, 2, 8, data=b"no zlib data"))
    facts = result_of(run, "info", path)
    assert (facts["width"], facts["height"], facts["chroma"], facts["bit_depth"]) == (13_000, 13_000, "420", 10)
    assert facts["pictures"] == 1
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("1.png", "2.png"):
        path.replace(folder / name) if name == "1.png" else (folder / name).write_bytes((folder / "1.png").read_bytes())
    assert result_of(run, "info", folder)["pictures"] == 2
