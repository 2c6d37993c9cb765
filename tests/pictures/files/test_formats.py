"""Geometry of raw pictures and the grammar of file names."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecnn.base.errors import FormatError
from codecnn.pictures.files import NameFields, VideoFormat, frame_rate, guess_format, parse_name, parse_size

UHD_420: dict[str, Any] = {"size": (3840, 2160), "depth": 10, "chroma": "420"}
NAMES: dict[str, dict[str, Any]] = {
    # JVET and HEVC test sequences
    "BasketballPass_416x240_50.yuv": {"size": (416, 240), "fps": 50},
    "BasketballPass_416x240_50": {"size": (416, 240), "fps": 50},
    "BlowingBubbles_416x240_50.yuv": {"size": (416, 240), "fps": 50},
    "BQMall_832x480_60.yuv": {"size": (832, 480), "fps": 60},
    "RaceHorsesC_832x480_30.yuv": {"size": (832, 480), "fps": 30},
    "FourPeople_1280x720_60.yuv": {"size": (1280, 720), "fps": 60},
    "Kimono1_1920x1080_24.yuv": {"size": (1920, 1080), "fps": 24},
    "BQTerrace_1920x1080_60.yuv": {"size": (1920, 1080), "fps": 60},
    "Traffic_2560x1600_30_crop.yuv": {"size": (2560, 1600), "fps": 30},
    "NebutaFestival_2560x1600_60_10bit_crop.yuv": {"size": (2560, 1600), "fps": 60, "depth": 10},
    "SlideEditing_1280x720_30.yuv": {"size": (1280, 720), "fps": 30},
    "ChinaSpeed_1024x768_30.yuv": {"size": (1024, 768), "fps": 30},
    "Tango2_3840x2160_60fps_10bit_420.yuv": UHD_420 | {"fps": 60},
    "Tango2_3840x2160_60fps_10bit_420": UHD_420 | {"fps": 60},
    "CatRobot_3840x2160_60fps_10bit_420_jvet.yuv": UHD_420 | {"fps": 60},
    "Campfire_3840x2160_30fps_10bit_420_bt709_videoRange.yuv": UHD_420 | {"fps": 30},
    "MarketPlace_1920x1080_60fps_10bit_420.yuv": {"size": (1920, 1080), "fps": 60, "depth": 10, "chroma": "420"},
    "ArenaOfValor_1920x1080_60_8bit_420.yuv": {"size": (1920, 1080), "fps": 60, "depth": 8, "chroma": "420"},
    "sc_flyingGraphics_1920x1080_60_8bit_444.yuv": {"size": (1920, 1080), "fps": 60, "depth": 8, "chroma": "444"},
    "Market3_1920x1080p_50_10b_pq_P444.yuv": {"size": (1920, 1080), "fps": 50, "depth": 10, "chroma": "444"},
    # BVI-DVC, UVG, AOM, MCL-JCV
    "ABangkokMarketVidevo_3840x2176_25fps_10bit_420.yuv": UHD_420 | {"size": (3840, 2176), "fps": 25},
    "DBookcaseBVITexture_480x272_120fps_10bit_420.yuv": {"size": (480, 272), "fps": 120, "depth": 10, "chroma": "420"},
    "Beauty_1920x1080_120fps_420_8bit_YUV.yuv": {"size": (1920, 1080), "fps": 120, "depth": 8, "chroma": "420"},
    "Netflix_Aerial_1920x1080_60fps_10bit_420.y4m": {"size": (1920, 1080), "fps": 60, "depth": 10, "chroma": "420"},
    "videoSRC01_1920x1080_30.yuv": {"size": (1920, 1080), "fps": 30},
    # test clips of vvenc and of this project
    "RTn23_80x44p15_f15.yuv": {"size": (80, 44), "fps": 15, "frames": 15},
    "RTn23_80x44p15_f15": {"size": (80, 44), "fps": 15, "frames": 15},
    "name_1920x1080_30Hz_8bit_P420.yuv": {"size": (1920, 1080), "fps": 30, "depth": 8, "chroma": "420"},
    "astronaut_512x512_10b420.yuv": {"size": (512, 512), "depth": 10, "chroma": "420"},
    "camera_512x512_8b400.yuv": {"size": (512, 512), "depth": 8, "chroma": "400"},
    "clip_416x240_17f_8b420.yuv": {"size": (416, 240), "frames": 17, "depth": 8, "chroma": "420"},
    "city_704x576_25_8f.y4m": {"size": (704, 576), "fps": 25, "frames": 8},
    "CiscoVT2people_320x192_12fps.yuv": {"size": (320, 192), "fps": 12},
    "water_176x96_25.yuv": {"size": (176, 96), "fps": 25},
    # fractional rates, and other notations of units
    "crew_704x576_59.94.yuv": {"size": (704, 576), "fps": Fraction(60000, 1001)},
    "crew_704x576_59.94": {"size": (704, 576), "fps": Fraction(60000, 1001)},
    "film_1920x1080_23.976.yuv": {"size": (1920, 1080), "fps": Fraction(24000, 1001)},
    "film_1920x1080_23976fps.yuv": {"size": (1920, 1080), "fps": Fraction(24000, 1001)},
    "film_1280x720_29.97fps_8bit.yuv": {"size": (1280, 720), "fps": Fraction(30000, 1001), "depth": 8},
    "stockholm_1280x720_5994p.yuv": {"size": (1280, 720), "fps": Fraction(60000, 1001)},
    "park_1920x1080_50p.yuv": {"size": (1920, 1080), "fps": 50},
    "park-1920x1080-50-10-bit-422p.yuv": {"size": (1920, 1080), "fps": 50, "depth": 10, "chroma": "422"},
    "park 1920x1080 60 fps yuv422p10le.yuv": {"size": (1920, 1080), "fps": 60, "depth": 10, "chroma": "422"},
    "x_64x64_gray12le.yuv": {"size": (64, 64), "depth": 12, "chroma": "400"},
    "x_64x64_i420.yuv": {"size": (64, 64), "chroma": "420"},
    "x_65x33_444p.yuv": {"size": (65, 33), "chroma": "444"},
    "seq_8bit_416x240_100frames.yuv": {"size": (416, 240), "frames": 100, "depth": 8},
    "twice_416x240_25_30fps.yuv": {"size": (416, 240), "fps": 25},
    # a size is a token of its own
    "water_2x2binning_176x96_25.yuv": {"size": (176, 96), "fps": 25},
    "a_32x32block_64x48.yuv": {"size": (64, 48)},
    "foo_4x4blocks.yuv": {},
    # numbers that are not a frame rate, and names without a size
    "PartyScene_832x480_500.yuv": {"size": (832, 480)},
    "PartyScene_832x480_0.yuv": {"size": (832, 480)},
    "PartyScene_832x480_qp_37.yuv": {"size": (832, 480)},
    "x_416x240_99bit_1000fps.yuv": {"size": (416, 240)},
    "vidyo1_720p.yuv": {},
    "old_town_cross_444_720p50.y4m": {},
    "akiyo_cif.yuv": {},
    "scale2x2_wide.yuv": {},
    "face_0x240_25.yuv": {},
    "a_416x240_50/plain.yuv": {},
}


@pytest.mark.parametrize("name", NAMES)
def test_parse_name(name: str) -> None:
    expected = NAMES[name]
    size = expected.get("size", (None, None))
    rest = {key: expected.get(key) for key in ("chroma", "fps", "frames")}
    assert parse_name(name) == NameFields(*size, bit_depth=expected.get("depth"), **rest)
    assert parse_name(Path("/data_1920x1080_60/10bit") / name) == parse_name(name)


@given(st.text(max_size=40))
def test_parse_name_accepts_any_text(text: str) -> None:
    fields = parse_name(f"{text}_416x240_{text}_10bit")
    assert fields.width is None or fields.width > 0
    assert fields.bit_depth is None or 8 <= fields.bit_depth <= 16
    assert fields.fps is None or 1 <= fields.fps <= 240


def test_options_override_names_and_defaults() -> None:
    name = "Tango2_3840x2160_60fps_10bit_422.yuv"
    assert guess_format(name) == VideoFormat(3840, 2160, "422", 10, Fraction(60))
    explicit = guess_format(name, size="416x240", bit_depth=8, chroma="400", fps=29.97)
    assert explicit == VideoFormat(416, 240, "400", 8, Fraction(30000, 1001))
    assert guess_format("x.yuv", size=(34, 18)) == VideoFormat(34, 18, "420", 8, None)
    with pytest.raises(FormatError, match=r"akiyo_cif\.yuv.*-s WxH"):
        guess_format("akiyo_cif.yuv")


@pytest.mark.parametrize(
    ("name", "stated", "option"),
    [
        ("twice_416x240_25_10bit_8bit.yuv", "the bit depths 10 and 8", {"bit_depth": 8}),
        ("hdr_10bit_416x240_8bit.yuv", "the bit depths 8 and 10", {"bit_depth": 10}),
        ("a_64x48_420_422.yuv", "the chroma formats 420 and 422", {"chroma": "422"}),
    ],
)
def test_contradictory_names_need_an_option(name: str, stated: str, option: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=stated):
        guess_format(name)
    form = guess_format(name, **option)
    assert {key: getattr(form, key) for key in option} == option


@pytest.mark.parametrize(
    ("chroma", "chroma_shapes"), [("400", ()), ("420", ((2, 3),) * 2), ("422", ((3, 3),) * 2), ("444", ((3, 5),) * 2)]
)
def test_plane_shapes_of_odd_sizes(chroma: str, chroma_shapes: tuple[tuple[int, int], ...]) -> None:
    shapes = ((3, 5), *chroma_shapes)
    samples = sum(h * w for h, w in shapes)
    eight, ten = VideoFormat(5, 3, chroma), VideoFormat(5, 3, chroma, 10)
    assert eight.plane_shapes == ten.plane_shapes == shapes
    assert (eight.picture_bytes, ten.picture_bytes) == (samples, 2 * samples)
    assert (eight.dtype, ten.dtype) == (np.dtype("u1"), np.dtype("<u2"))


def test_ffmpeg_pix_fmt() -> None:
    assert VideoFormat(8, 8).ffmpeg_pix_fmt == "yuv420p"
    assert VideoFormat(8, 8, "422", 10).ffmpeg_pix_fmt == "yuv422p10le"
    assert VideoFormat(8, 8, "400").ffmpeg_pix_fmt == "gray"
    assert VideoFormat(8, 8, "400", 16).ffmpeg_pix_fmt == "gray16le"
    with pytest.raises(FormatError, match="11-bit"):
        _ = VideoFormat(8, 8, "420", 11).ffmpeg_pix_fmt


GEOMETRIES = [(0, 8), (8, -1), (8.0, 8), (True, 8), (8, 8, "411"), (8, 8, "420", 7), (8, 8, "420", 17)]
RATES = (0, float("nan"), "fast")


@pytest.mark.parametrize("values", [*GEOMETRIES, *((8, 8, "420", 8, rate) for rate in RATES)])
def test_invalid_video_formats_are_refused(values: tuple[Any, ...]) -> None:
    with pytest.raises(FormatError):
        VideoFormat(*values)


def test_frame_rate() -> None:
    assert frame_rate("30") == 30
    assert frame_rate("60000/1001") == frame_rate("59.94") == Fraction(60000, 1001)
    assert frame_rate("12.5") == Fraction(25, 2)
    assert frame_rate("119.88") == Fraction(120000, 1001)
    assert frame_rate(23.98) == frame_rate(23.976) == Fraction(24000, 1001)
    assert frame_rate(24) == 24
    for bad in ("1/0", "-5", "inf", ""):
        with pytest.raises(FormatError):
            frame_rate(bad)


def test_parse_size() -> None:
    assert parse_size("416x240") == (416, 240)
    for bad in ("416", "416x", "0x240", "-4x4", "4x4x4", "416 x 240", "1e3x10", "9999999x2"):
        with pytest.raises(FormatError, match="WxH"):
            parse_size(bad)
