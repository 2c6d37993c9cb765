"""The page docs/reference/inputs.md and what codecnn does with files: every row of its tables is tried here."""

import logging
import re
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from codecnn.base.errors import CodecnnError, ConfigError, FormatError
from codecnn.codec.encoders import libsvtav1, libvvenc, libx265
from codecnn.pictures.files import (
    VideoFormat,
    check_video,
    create_video,
    open_video,
    parse_name,
    stream_codec,
    summarise_video,
)
from tests.helpers.documentation import ROOT
from tests.helpers.still_kinds import KINDS, RGB, Kind
from tests.helpers.video_files import FFMPEG

PAGE = (ROOT / "docs/reference/inputs.md").read_text("utf-8")
RESULTS = ("read", "warning", "refused")


def table(first_column: str) -> list[list[str]]:
    """Return the rows of the page's table whose first heading is `first_column`."""
    match = re.search(rf"^\| {re.escape(first_column)} \|.*\n\|[-| :]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert match, first_column
    return [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in match[1].splitlines()]


def results(first_column: str) -> dict[str, str]:
    """Return the result of each row of a table whose second column is one of `RESULTS`."""
    rows = {row[0]: row[1] for row in table(first_column)}
    assert set(rows.values()) <= set(RESULTS)
    return rows


# --- still pictures ------------------------------------------------------------------------------------------------

TIFF_ROWS = {
    "RGB or grey of 1 to 16 bits": "rgb grey16 bits grey2bit grey4bit grey6bit grey10bit grey12bit grey14bit rgb12bit",
    "WhiteIsZero": "white_is_zero white_is_zero_16 white_is_zero_bits white_is_zero_4",
    "palette of 8- or 16-bit colours": "palette palette_lzw palette_shifted palette_8bit palette_4 palette_16bit "
    "palette_of_65536 palette_pillow",
    "JPEG-compressed YCbCr, any subsampling": "jpeg_444 jpeg_422 jpeg_420 jpeg_411 jpeg_tiles jpeg",
    "other YCbCr": "ycbcr jpeg_alpha",
    "CMYK, with or without alpha": "cmyk cmyk16 cmyk_alpha cmyk_planar cmyk_jpeg cmyk_lzw",
    "Lab": "lab lab16 icc_lab itu_lab",
    "raw camera samples, LogLuv, masks, unknown interpretation": "raw_camera logluv mask no_photometric",
    "float, signed, complex, or more than 16 bits": "float float16 float64 signed signed8 signed32 uint32 complex",
    "channels that are not red, green and blue": "bands three_bands",
    "transparency or a further channel": "alpha grey_alpha planar_alpha infrared jpeg_rgba",
    "colours multiplied by alpha": "premultiplied",
    "LZW, Deflate, PackBits, JPEG, ZSTD, LZMA, WebP, JPEG 2000, fax": "lzw zlib packbits zstd lzma webp jpeg2000 lzw16 "
    "deflate_tiles libtiff_lzw libtiff_deflate libtiff_old_deflate libtiff_packbits libtiff_zstd jpeg_rgb jpeg_grey "
    "fax fax3",
    "planar configuration, tiles, big-endian, BigTIFF": "planar planar_tiles planar16 tiled big_endian bigtiff",
    "several pages of one size": "pages2 pages3 pages4 pages_rgb pages_appended pages_pillow imagej",
    "pages of different sizes": "pages_of_sizes",
    "a reduced copy beside the picture": "page_and_thumbnail",
    "nothing but a reduced copy": "only_thumbnail",
    "stack that the pages do not list (ImageJ, MetaMorph)": "imagej_one_page",
    "orientation tag": " ".join(f"orientation{value}" for value in range(1, 9)),
    "colour profile other than sRGB": "profile",
    "16-bit samples that are nearly black": "dark16",
    "damaged or cut": "cut",
}
OPAQUE_TIFFS = "opaque premultiplied_opaque srgb_profile"
"""Files that notes of the page name as read without a message."""

STILL_ROWS = {
    "PNG of 1 to 16 bits, grey, RGB or palette, interlaced or not": "rgb.png grey.png interlaced.png "
    "interlaced_grey.png interlaced_deep.png interlaced_palette.png deep.png deep_grey.png grey1.png grey2.png "
    "grey4.png palette.png palette4.png",
    "JPEG, WebP, BMP, one GIF picture": "rgb.jpg grey.jpg progressive.jpg trailing_data.jpg lossless.webp lossy.webp "
    "rgb.bmp grey.bmp palette.bmp one.gif",
    "animated PNG, WebP or GIF": "animated.png animated_behind_a_picture.png animated_disposal.png animated.webp "
    "animated.gif",
    "damaged or foreign metadata": "text.png text_checksum.png text_raw_exif.png text_not_compressed.png "
    "text_method.png text_international.png text_bomb.png exif_damaged.png profile_damaged.png physical_damaged.png "
    "deep_text_checksum.png exif_damaged.jpg",
    "Exif orientation": " ".join(
        [f"orientation{value}.{kind}" for value in range(1, 9) for kind in ("jpg", "png", "webp")]
        + [f"deep_orientation{value}.png" for value in (1, 6, 8)]
    ),
    "transparent samples": "rgba.png palette_alpha.png grey_key.png rgb_key.png deep_key.png deep_alpha.png "
    "interlaced_deep_alpha.png deep_grey_alpha.png alpha.webp",
    "gamma, primaries or coding (cICP) other than sRGB": "gamma.png primaries.png hdr.png",
    "colour profile or Exif colour space other than sRGB": "profile.png profile.jpg adobe_rgb.jpg",
    "16-bit samples of a PNG that are nearly black": "deep_dark.png",
    "JPEG with a gain map": "gain_map.jpg",
    "JPEG with a thumbnail": "thumbnail.jpg",
    "stereo pair, or several JPEG pictures in one file": "stereo.jpg several.jpg",
    "CMYK JPEG": "cmyk.jpg",
    "JPEG-LS, PNG with chunks of another standard": "lossless.jls critical.png",
    "damaged samples": "samples_damaged.png deep_samples_damaged.png cut.jpg",
}
OPAQUE_STILLS = "opaque.png deep_opaque.png palette_opaque.png gamma_srgb.png sdr.png srgb_profile.png"


def result_of(kind: Kind) -> str:
    return "refused" if kind.samples is None else "warning" if kind.warning else "read"


@pytest.mark.parametrize(
    ("heading", "rows", "silent", "suffix"),
    [
        ("TIFF file", TIFF_ROWS, OPAQUE_TIFFS, ".tif"),
        ("still picture", STILL_ROWS, OPAQUE_STILLS, ""),
    ],
)
def test_still_pictures(heading: str, rows: dict[str, str], silent: str, suffix: str) -> None:
    """`test_inputs_stills` tries every kind; here the page is compared with the kinds, and all kinds are there."""
    kinds = {kind.name: kind for kind in KINDS if (Path(kind.name).suffix == ".tif") == (suffix == ".tif")}
    listed = {name + suffix: results(heading)[row] for row, names in rows.items() for name in names.split()}
    listed |= {name + suffix: "read" for name in silent.split()}
    assert listed == {name: result_of(kind) for name, kind in kinds.items()}
    assert set(results(heading)) == set(rows)


# --- raw files -----------------------------------------------------------------------------------------------------


def tokens(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_pixel_formats_that_are_read(tmp_path: Path) -> None:
    count = 0
    for names, chroma, bits, _ in table("pixel formats"):
        for name in tokens(names):
            if chroma == "by name":
                numbers = {"i010": "420", "i210": "422", "i410": "444", "y16": "400"}
                wanted = numbers.get(name) or ("400" if name.startswith("gray") else name[3:6])
            else:
                wanted = chroma
            form = VideoFormat(8, 4, wanted, int(bits))
            for file in (f"a_8x4_{name}.yuv", f"A.8X4.{name.upper()}.YUV", f"a-8x4.{name}"):
                path = tmp_path / file
                path.write_bytes(bytes(2 * form.picture_bytes))
                video = open_video(path)
                assert (video.format, len(video)) == (form, 2), file
                assert not video[1].y.any()
            if name not in ("mono", "luma"):
                assert open_video(path, packing=name).format == form
            count += 1
    assert count > 90


def test_pixel_formats_that_are_refused(tmp_path: Path) -> None:
    for names, _ in table("refused pixel formats and words"):
        for name in tokens(names):
            path = tmp_path / f"a_24x16_25_{name}.yuv"
            path.write_bytes(bytes(24 * 16 * 12))
            with pytest.raises(FormatError, match=f"pixel format {name}"):
                open_video(path)
            with pytest.raises(FormatError, match="convert the file"):
                check_video(path)


PROPERTIES = {
    "size": [("a_416x240.yuv", {"width": 416, "height": 240})],
    "frame rate": [(f"a_416x240{text}.yuv", {"fps": 50}) for text in ("_50", "_50fps", "_50Hz", "p50")],
    "bit depth": [(f"a_416x240_{text}.yuv", {"bit_depth": 10}) for text in ("10bit", "10b", "yuv420p10le")],
    "chroma format": [(f"a_416x240_{text}.yuv", {"chroma": "422"}) for text in ("422", "P422", "yuv422p", "4-2-2")],
    "layout": [("a_416x240_p010.yuv", {"packing": "p010"})],
    "number of pictures": [(f"a_416x240{text}.yuv", {"frames": 17}) for text in ("_17f", "_f17", "_17frames", "x17")],
}


def test_properties_of_names() -> None:
    assert {row[0] for row in table("property")} == set(PROPERTIES)
    for property_, _, name, _ in table("property"):
        for file, expected in PROPERTIES[property_]:
            assert parse_name(file)._asdict().items() >= expected.items(), file
        for token in tokens(name):
            assert any(token in file for file, _ in PROPERTIES[property_]), token


def zeros(name: str, size: int, message: str, **options: Any) -> tuple[str, bytes, str, dict[str, Any]]:
    return name, bytes(size), message, options


RAW_ROWS = {
    "size of the file is not a whole number of pictures": zeros("a_8x4.yuv", 50, "whole pictures would be|no common"),
    "the number of pictures in the name fits another format only": zeros("a_8x4x2.yuv", 192, "fits 8x4 420 10 bit"),
    "two pixel formats, or a bit depth that contradicts the pixel format": zeros(
        "a_8x4_8bit_p010.yuv", 96, "contradicts"
    ),
    "a sample is larger than the bit depth allows": ("a_8x4_10bit.yuv", b"\xff" * 96, "more than the 1023", {}),
    "low bits of `p010` and similar words are not zero": ("a_8x4_p010.yuv", b"\1" * 96, "lower 6 bits are zero", {}),
    "no size in the name": zeros("a_10bit.yuv", 96, "give it as -s WxH"),
    "two different sizes in the name, such as `16x9` and `1920x1080`": zeros(
        "a_16x9_1920x1080.yuv", 1920 * 1080 * 3 // 2, "states the sizes 16x9 and 1920x1080: give .* -s WxH"
    ),
}


def test_raw_files_that_are_refused(tmp_path: Path) -> None:
    assert results("raw file") == dict.fromkeys(RAW_ROWS, "refused")
    for name, content, message, options in RAW_ROWS.values():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(FormatError, match=message) as error:
            list(open_video(path, **options))
        assert name in str(error.value)


def test_several_sizes_in_a_name(tmp_path: Path) -> None:
    path = tmp_path / "crop_8x4_of_16x8.yuv"
    path.write_bytes(bytes(48))
    assert open_video(path, size="8x4").format == VideoFormat(8, 4)
    path = path.rename(tmp_path / "crop_8x4_again_8x4.yuv")
    assert open_video(path).format == VideoFormat(8, 4)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("filtered_nv12.yuv", "nv12"),
        ("filtered.p010", "p010"),
        ("filtered_8x4_v210.yuv", "v210"),
        ("filtered_16x4.yuv", "16x4"),
        ("filtered_8x4_8bit.yuv", "8 bit"),
        ("filtered_8x4_yuv422p10le.yuv", "422"),
    ],
)
def test_output_names_that_readers_would_misread_are_refused(tmp_path: Path, name: str, stated: str) -> None:
    form = VideoFormat(8, 4, "420", 10)
    message = rf"{re.escape(name)} would hold planar .* states {stated}( and .*)?: name it .*/filtered_8x4_10bit_420"
    with pytest.raises(ConfigError, match=message), create_video(tmp_path / name, form):
        pass
    assert list(tmp_path.iterdir()) == []
    # Names that state what is written, or nothing, are taken, and so is everything that is no name of a raw file.
    for good in (
        "a.yuv",
        "a_8x4.yuv",
        "a_16x8_crop_8x4.yuv",
        "a_8x4_yuv420p10le.yuv",
        "a_8x4_50_10bit_420.yuv",
        "nv12.y4m",
    ):
        with create_video(tmp_path / good, form) as out:
            out.write([np.zeros(shape, np.uint16) for shape in form.plane_shapes])
    for good in ("a_8x4_yuv420p10le.yuv", "a_8x4_50_10bit_420.yuv", "nv12.y4m"):
        with open_video(tmp_path / good) as video:
            assert (video.format.bit_depth, len(video)) == (10, 1)


# --- Y4M -----------------------------------------------------------------------------------------------------------

Y4M_ROWS = {
    "header and pictures are whole": b"YUV4MPEG2 W4 H2 F25:1 C420jpeg\nFRAME\n" + bytes(12),
    "the last picture is cut off": b"YUV4MPEG2 W4 H2\nFRAME\n" + bytes(12) + b"FRAME\n" + bytes(5),
    "no `FRAME` line where one must be": b"YUV4MPEG2 W4 H2\n" + bytes(12),
    "no picture": b"YUV4MPEG2 W4 H2\n",
    "no size, or a size of 0": b"YUV4MPEG2 W0 H2\nFRAME\n" + bytes(12),
}


def outcome_of(path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """Read all pictures of a file; return one of `RESULTS`, and check that all messages name the file."""
    caplog.clear()
    refusal: list[str] = []
    try:
        with caplog.at_level(logging.WARNING):
            list(open_video(path))
    except CodecnnError as error:
        refusal.append(str(error))
    messages = refusal or [record.getMessage() for record in caplog.records]
    assert all(str(path) in message and "\n" not in message for message in messages)
    return "refused" if refusal else "warning" if messages else "read"


def test_y4m_headers(tmp_path: Path) -> None:
    path = tmp_path / "a.y4m"
    rows = {row[0]: row[1] for row in table("field of the header")}
    others = ["no `C`", "`F`", "`I`, `A`", "`X`", "parameters of `FRAME` lines"]
    assert list(rows) == ["`C`, read", "`C`, refused", *others]
    for tag in tokens(rows["`C`, read"]):
        depth = re.fullmatch(r"C(?:4..p|mono)(\d+)", tag)
        form = VideoFormat(4, 2, "400" if "mono" in tag else tag[1:4], int(depth[1]) if depth else 8)
        path.write_bytes(b"YUV4MPEG2 W4 H2 F0:0 It A4:3 %b\nFRAME Itn\n" % tag.encode() + bytes(form.picture_bytes))
        with open_video(path) as video:
            assert (video.format, len(video)) == (form, 1)
            with create_video(tmp_path / "copy.y4m", form, like=video) as out:
                out.write(video[0])
        assert (tmp_path / "copy.y4m").read_bytes() == path.read_bytes()
    for tag in tokens(rows["`C`, refused"]):
        path.write_bytes(b"YUV4MPEG2 W4 H2 %b\nFRAME\n" % tag.encode() + bytes(48))
        with pytest.raises(FormatError, match=f"colour space {tag}, .*: convert it, e.g. with ffmpeg"):
            open_video(path)


def test_y4m_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert set(results("Y4M file")) == set(Y4M_ROWS)
    for row, content in Y4M_ROWS.items():
        path = tmp_path / f"{len(content)}.y4m"
        path.write_bytes(content)
        assert outcome_of(path, caplog) == results("Y4M file")[row], row


# --- streams and containers ----------------------------------------------------------------------------------------

SOURCE = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=10:d=0.3")
SOUND = ("-f", "lavfi", "-i", "sine=d=0.1")


@dataclass(frozen=True)
class File:
    """A file to make: its name, and the arguments of ffmpeg or the content; `source` is what ffmpeg reads."""

    name: str
    arguments: tuple[str, ...] = ()
    source: tuple[str, ...] = SOURCE
    content: bytes | None = None
    golden: str | None = None


def by_ffmpeg(name: str, *arguments: str, source: tuple[str, ...] = SOURCE) -> File:
    return File(name, arguments, source)


def still(suffix: str) -> File:
    return File(f"a{suffix}", ("-frames:v", "1", "-strict", "-2"))


STREAM_ROWS = {
    "VVC or HEVC byte stream under any suffix": [
        File("a.bin", golden="vvc/tiny64x64_ai_qp32.266"),
        File("b.bit", golden="hevc/chelsea178x130_ai_qp32_mincu16.265"),
    ],
    "VVC, HEVC, AVC, AV1, VP9, ProRes, FFV1, Motion JPEG and others in a container": [
        by_ffmpeg("a.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p"),
        by_ffmpeg("a.ts", "-c:v", "libx265", "-x265-params", "log-level=none"),
        by_ffmpeg("b.mkv", "-c:v", "libvvenc", "-preset", "faster", "-pix_fmt", "yuv420p10le"),
        by_ffmpeg("a.webm", "-c:v", "libvpx-vp9", "-pix_fmt", "yuv420p"),
        by_ffmpeg("a.ivf", "-c:v", "libaom-av1", "-cpu-used", "8", "-pix_fmt", "yuv420p"),
        by_ffmpeg("a.mov", "-c:v", "prores_ks", "-pix_fmt", "yuv422p10le"),
        by_ffmpeg("a.mkv", "-c:v", "ffv1", "-pix_fmt", "gray16le"),
        by_ffmpeg("a.avi", "-c:v", "mjpeg", "-pix_fmt", "yuvj422p"),
        by_ffmpeg("a.mjpeg", "-c:v", "mjpeg", "-pix_fmt", "yuvj420p"),
        by_ffmpeg("a.mpg", "-c:v", "mpeg2video", "-pix_fmt", "yuv420p", "-r", "25"),
    ],
    "interlaced frames": [
        by_ffmpeg(
            "i.mkv", "-vf", "setfield=tff,setsar=2", "-c:v", "libx264", "-flags", "+ilme+ildct", "-pix_fmt", "yuv420p"
        )
    ],
    "transparency in the video": [
        by_ffmpeg("t.mov", "-c:v", "prores_ks", "-profile:v", "4444", "-pix_fmt", "yuva444p10le"),
        by_ffmpeg("t.mkv", "-c:v", "ffv1", "-pix_fmt", "yuva420p"),
    ],
    "rotation tag": [File("r.mp4", ("-c", "copy"), ("-display_rotation", "90", "-i", "a.mp4"))],
    "film grain": [
        by_ffmpeg(
            "g.mkv", "-c:v", "libaom-av1", "-cpu-used", "8", "-pix_fmt", "yuv420p", "-aom-params", "film-grain-test=1"
        )
    ],
    "playlists and scripts (concat, HLS, DASH, SDP)": [
        File("a.ffconcat", content=b"ffconcat version 1.0\nfile a.mp4\n"),
        File("a.m3u8", content=b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\na.ts\n#EXT-X-ENDLIST\n"),
    ],
    "encrypted video, or an initialisation segment alone": [
        by_ffmpeg(
            "e.mp4",
            *("-c:v", "libx264", "-pix_fmt", "yuv420p", "-encryption_scheme", "cenc-aes-ctr"),
            *("-encryption_key", "76" * 16, "-encryption_kid", "a7" * 16),
        )
    ],
    "RGB, palette, 4:1:1 or 4:4:0 video": [
        by_ffmpeg("rgb.mp4", "-c:v", "libx264rgb"),
        by_ffmpeg("pal.avi", "-c:v", "rawvideo", "-pix_fmt", "pal8"),
        by_ffmpeg("y411.avi", "-c:v", "rawvideo", "-pix_fmt", "yuv411p"),
        by_ffmpeg("y440.mkv", "-c:v", "ffv1", "-pix_fmt", "yuv440p"),
    ],
    "sound, or a container without video": [by_ffmpeg("a.wav", source=SOUND), by_ffmpeg("a.mp3", source=SOUND)],
    "PPM, PGM, TGA, EXR, JPEG 2000, ICO": [
        *map(still, (".ppm", ".pgm", ".pbm", ".pam", ".pfm", ".tga", ".exr", ".jp2", ".j2k", ".ico", ".dpx", ".sgi")),
        *map(still, (".pcx", ".xbm", ".xwd", ".qoi", ".hdr", ".fits", ".jxl", ".ras", ".wbmp")),
    ],
    "HEIF or AVIF": [
        still(".avif"),
        File("a.heic", content=struct.pack(">I", 24) + b"ftypheic" + bytes(4) + b"mif1heic" + bytes(40)),
    ],
    "PDF": [File("a.pdf")],
    "text and other foreign files": [
        File("a.txt", content=b"some text\n" * 30),
        File("a.nfo", content=b"some text\n" * 30),
        File("a.html", content=b"<html><body>" * 30),
        File("a.zip", content=b"PK\3\4" + bytes(100)),
        File("a.npy", content=b"\x93NUMPY\1\0" + bytes(120)),
        File("a_64x48.dat", content=bytes(range(256)) * 18),
        File("noise", content=np.random.default_rng(3).bytes(3000)),
    ],
    "damaged stream": [File("damaged.266", golden="vvc/tiny64x64_ai_qp32.266")],
}


MADE_ELSEWHERE = {
    "clean aperture or PixelCrop of the container",
    "a container that states more pictures than it has",
    "pictures that lack their references at the start",
    "a track with several sample descriptions of VVC or HEVC",
    "AVC with a gap in frame_num that its SPS does not allow",
    "file that is cut inside a picture",
}
"""Rows whose files `tests/pictures/files/test_damage.py` makes."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, golden_file: Callable[[str], Path]) -> dict[str, list[Path]]:
    """Write the files of `STREAM_ROWS` and return their paths by row."""
    folder = tmp_path_factory.mktemp("made")
    paths: dict[str, list[Path]] = {}
    for row, files in STREAM_ROWS.items():
        for file in files:
            path = folder / file.name
            if file.golden is not None:
                data = golden_file(file.golden).read_bytes()
                path.write_bytes(data[:-40] + bytes(40) if "damaged" in file.name else data)
            elif file.content is not None:
                path.write_bytes(file.content)
            elif path.suffix == ".pdf":
                Image.fromarray(RGB).save(path)
            else:
                subprocess.run([*FFMPEG, *file.source, *file.arguments, path], check=True, cwd=folder)
            paths.setdefault(row, []).append(path)
    return paths


def test_every_row_of_streams_has_a_file() -> None:
    assert set(results("stream or container")) == set(STREAM_ROWS) | MADE_ELSEWHERE


@pytest.mark.parametrize("row", STREAM_ROWS)
def test_streams_and_containers(made: dict[str, list[Path]], row: str, caplog: pytest.LogCaptureFixture) -> None:
    expected = results("stream or container")[row]
    for path in made[row]:
        outcome = outcome_of(path, caplog)
        assert outcome == expected, path
        if outcome != "refused" and not path.suffix.startswith(".bi"):
            summary = summarise_video(path)
            assert (summary.format.width, summary.format.height) == (64, 48)
            assert summary.pictures in (None, len(open_video(path)))
            check_video(path)
    names = {path.name for path in made[row]}
    if "a.ppm" in names:
        for path in made[row]:
            with pytest.raises(FormatError, match="PNG"):
                open_video(path, full_range=True)
    if "rgb.mp4" in names:
        for path in made[row]:
            with pytest.raises(FormatError, match=r"convert it first, e\.g\. with ffmpeg -i IN -pix_fmt yuv444p"):
                check_video(path)
    if "a.bin" in names:
        assert [stream_codec(path) for path in made[row]] == ["vvc", "hevc"]


def test_properties_of_streams_are_written_to_y4m(made: dict[str, list[Path]], tmp_path: Path) -> None:
    files = {path.name: path for paths in made.values() for path in paths}
    for name, header in (("i.mkv", rb" I[tb] A2:1 C420mpeg2\n"), ("a.avi", rb" Ip A1:1 C422 XCOLORRANGE=FULL\n")):
        with open_video(files[name]) as video, create_video(tmp_path / "a.y4m", video.format, like=video) as out:
            out.write(video[0])
        assert re.search(header, (tmp_path / "a.y4m").read_bytes()[:100]), name


# --- sizes, and the files of users ---------------------------------------------------------------------------------


def test_sizes_of_the_page_are_those_of_the_back_ends() -> None:
    """`tests/codec/test_sizes.py` codes them."""
    sizes = {row[0]: row[1] for row in table("back end")}
    assert sizes["`vvc`"] == f"even, at least {libvvenc.SMALLEST}x{libvvenc.SMALLEST}"
    assert sizes["`svtav1`"] == f"at least {libsvtav1.SvtAv1Codec.smallest}x{libsvtav1.SvtAv1Codec.smallest}"
    assert sizes["`hevc`"] == f"even, at least {libx265.SMALLEST}x{libx265.SMALLEST} and one CTU"


def luma_mean(path: Path) -> float:
    with open_video(path, chroma="444", bit_depth=8, full_range=True) as video:
        assert len(video) == 1
        return float(video[0].y.mean())


def rgb_mean(path: Path) -> None:
    assert luma_mean(path) == pytest.approx(167.2, abs=0.2)


def palette_mean(path: Path) -> None:
    assert luma_mean(path) == pytest.approx(167.2, abs=1)


def not_inverted(path: Path) -> None:
    with open_video(path, bit_depth=8, full_range=True) as video:
        grey = video[0].y.astype(float)
    with open_video(path.with_name("rgb.tif"), chroma="400", bit_depth=8, full_range=True) as video:
        reference = video[0].y.astype(float)
    assert np.corrcoef(grey.ravel(), reference.ravel())[0, 1] > 0.9


def three_pictures(path: Path) -> None:
    with open_video(path, bit_depth=8, full_range=True) as video:
        assert [set(np.unique(picture.y)) for picture in video] == [{20}, {120}, {220}]


def equal_to_reference(path: Path) -> None:
    with open_video(path) as video, open_video(path.with_name("ref_64x48_yuv420p.yuv")) as reference:
        assert len(video) == len(reference) == 1
        for plane, expected in zip(video[0].planes, reference[0].planes, strict=True):
            np.testing.assert_array_equal(plane, expected)


def ten_bits(path: Path) -> None:
    with open_video(path) as video:
        assert (video.format, len(video)) == (VideoFormat(64, 48, "420", 10), 1)
        assert video[0].y.max() > 255


def top_field_first(path: Path) -> None:
    tags = open_video(path).tags
    assert tags is not None
    assert (tags.interlacing, tags.aspect, tags.colour, tags.comments) == (
        "t",
        "128:117",
        "420jpeg",
        ("COLORRANGE=FULL",),
    )


def small(path: Path) -> None:
    assert open_video(path).format.width == 32


@dataclass(frozen=True)
class UserFile:
    """A file of ../shared/data/inputs: the table and row of the page that describe it, and a check of its samples."""

    heading: str
    row: str
    check: Callable[[Path], None] | None = None


USER_FILES = {
    "rgb.tif": UserFile("TIFF file", "RGB or grey of 1 to 16 bits", rgb_mean),
    "palette.tif": UserFile("TIFF file", "palette of 8- or 16-bit colours", palette_mean),
    "cmyk.tif": UserFile("TIFF file", "CMYK, with or without alpha"),
    "miniswhite.tif": UserFile("TIFF file", "WhiteIsZero", not_inverted),
    "pages3.tif": UserFile("TIFF file", "several pages of one size", three_pictures),
    "lzw.tif": UserFile("TIFF file", "LZW, Deflate, PackBits, JPEG, ZSTD, LZMA, WebP, JPEG 2000, fax", rgb_mean),
    "rawexif.png": UserFile("still picture", "damaged or foreign metadata", rgb_mean),
    "ref_64x48_yuv420p.yuv": UserFile("pixel formats", "yuv420p", equal_to_reference),
    "clip_64x48_nv12.yuv": UserFile("pixel formats", "nv12", equal_to_reference),
    "clip_64x48.yuv420p10le.yuv": UserFile("pixel formats", "yuv420p10le", ten_bits),
    "full_tff.y4m": UserFile("Y4M file", "header and pictures are whole", top_field_first),
    "small_32x32.y4m": UserFile("Y4M file", "header and pictures are whole", small),
}


def test_files_of_users(shared_data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each file is read or refused as its row of the page says, and its samples are right."""
    folder = shared_data / "inputs"
    assert {path.name for path in folder.iterdir()} - {"README.md"} == set(USER_FILES)
    for name, file in USER_FILES.items():
        if file.heading == "pixel formats":
            assert any(file.row in tokens(row[0]) for row in table(file.heading))
            expected = "read"
        else:
            expected = results(file.heading)[file.row]
        assert outcome_of(folder / name, caplog) == expected, name
        if file.check is not None:
            file.check(folder / name)


def test_a_small_picture_is_coded_as_the_page_says(shared_data: Path, tmp_path: Path, run) -> None:
    source, output = shared_data / "inputs" / "small_32x32.y4m", tmp_path / "out"
    options = ("-m", "low_cost_5", "-q", "37", "--codec", "hevc", "--preset", "ultrafast", "-o", output)
    status, _, errors = run("evaluate", source, *options)
    assert status == 0, errors
    assert len(list((output / "store" / "coded").glob("small_32x32_qp37_*/decoded.yuv"))) == 1
