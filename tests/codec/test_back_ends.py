"""Common behaviour of all back ends of the bundled ffmpeg: identity, formats, and the settings that they refuse."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest

from codecnn.base.errors import ConfigError, EncoderError, FormatError
from codecnn.codec import (
    CodecSettings,
    aom_encode_argv,
    get_codec,
    kvazaar_encode_argv,
    svt_encode_argv,
    x264_encode_argv,
)
from codecnn.codec.encoders.libx265 import hevc_encode_argv
from codecnn.pictures.files import VideoFormat
from tests.helpers.encodes import encode_clip

CLIP = VideoFormat(96, 64, fps=Fraction(30))
DEEP = replace(CLIP, bit_depth=10)
SETTINGS = {
    "kvazaar": {"preset": "fast", "internal_bit_depth": 8, "ctu_size": 64},
    "avc": {"preset": "fast"},
    "av1": {"preset": "faster", "ctu_size": 64},
    "svtav1": {"preset": "faster", "ctu_size": 64},
    "hevc": {},
}
ARGV = {
    "kvazaar": kvazaar_encode_argv,
    "avc": x264_encode_argv,
    "av1": aom_encode_argv,
    "svtav1": svt_encode_argv,
    "hevc": lambda *arguments: hevc_encode_argv(*arguments, "analysis.dat", "statistics.csv"),
}
LIBRARIES = {"kvazaar": "libkvazaar", "avc": "libx264", "av1": "libaom-av1", "svtav1": "libsvtav1", "hevc": "libx265"}


@pytest.mark.parametrize("name", SETTINGS)
def test_identity(name):
    codec = get_codec(name)
    assert codec.name == name
    assert re.fullmatch(rf"{LIBRARIES[name]} .*, ffmpeg \S+", codec.identity())


@pytest.mark.parametrize(
    ("name", "settings", "video_format", "message"),
    [
        ("kvazaar", {"qp": 52}, CLIP, "QP 52 .* 0 to 51"),
        ("kvazaar", {"ctu_size": 32}, CLIP, "32 is not one of kvazaar's 64"),
        ("kvazaar", {"preset": "best"}, CLIP, "preset 'best'"),
        ("kvazaar", {"configuration": "ra"}, CLIP, "all intra only, not ra"),
        ("kvazaar", {"params": {"rd": "1,qp=1"}}, CLIP, "rd='1,qp=1'"),
        ("kvazaar", {"internal_bit_depth": 10}, CLIP, "not 420 of 10 bit"),
        ("kvazaar", {}, replace(CLIP, chroma="400"), "not 400 of 8 bit"),
        ("kvazaar", {}, VideoFormat(100, 64), "multiples of 8, not 100x64"),
        ("avc", {"qp": 52}, CLIP, "QP 52 .* 0 to 51"),
        ("avc", {"qp": 0, "internal_bit_depth": 8}, CLIP, "QP 0 .* 1 to 51 .*without loss"),
        ("avc", {"preset": "best"}, CLIP, "preset 'best'"),
        ("avc", {"params": {"ref": "1:qp=1"}}, CLIP, "ref='1:qp=1'"),
        ("avc", {"internal_bit_depth": 8}, DEEP, "10 bit cannot be coded at 8"),
        ("avc", {}, VideoFormat(95, 64), "95x64 cannot be coded: pad to even"),
        ("av1", {"ctu_size": 32}, DEEP, "32 is not one of AV1's 64, 128"),
        ("av1", {"preset": "9"}, DEEP, "no preset '9': one of slower, .*, 8"),
        ("av1", {"params": {"aq-mode": "1:x=2"}}, DEEP, "aq-mode='1:x=2'"),
        ("av1", {"internal_bit_depth": 8}, DEEP, "10 bit cannot be coded at 8"),
        *(("av1", {"qp": qp}, CLIP, f"no quantiser for QP {qp}: take ") for qp in (0, 8, 14, 52, 63)),
        ("svtav1", {"ctu_size": 32}, DEEP, "32 is not one of AV1's 64, 128"),
        ("svtav1", {"preset": "12"}, DEEP, "no preset '12': one of slower, .*, 11"),
        ("svtav1", {"internal_bit_depth": 8}, DEEP, "10 bit cannot be coded at 8"),
        ("svtav1", {}, replace(CLIP, chroma="400"), "codes 4:2:0, not 400"),
        ("hevc", {"ctu_size": 128}, CLIP, "128 is not one of HEVC's 16, 32, 64"),
        ("hevc", {"qp": 52}, CLIP, "QP 52 .* 0 to 51"),
        ("hevc", {"preset": "faster-still"}, CLIP, "preset 'faster-still'"),
        ("hevc", {"params": {"ref": "1:qp=1"}}, CLIP, "ref='1:qp=1'"),
        ("hevc", {"params": {"a b": "1"}}, CLIP, "a b"),
        ("hevc", {"internal_bit_depth": 8}, DEEP, "10 bit cannot be coded at 8"),
        ("hevc", {}, VideoFormat(95, 64), "even .* 95x64"),
        ("hevc", {}, VideoFormat(96, 63, "444"), "even .* 96x63"),
    ],
)
def test_unsupported_settings_are_refused(name, settings, video_format, message):
    values = {"qp": 32, "internal_bit_depth": 8 if name == "kvazaar" else 10} | settings
    with pytest.raises((ConfigError, FormatError), match=message):
        ARGV[name]("ffmpeg", "in.yuv", video_format, CodecSettings(**values), "out.bin")


@pytest.mark.parametrize(
    ("name", "settings", "error", "message"),
    [
        ("kvazaar", {"params": {"no-such-thing": "1"}}, ConfigError, "no-such-thing=1"),
        ("kvazaar", {"params": {"qp": "30"}}, EncoderError, "POC 0 .* I slice at QP 30"),
        ("kvazaar", {"params": {"period": "3"}}, EncoderError, "not as AI"),
        ("kvazaar", {"params": {"vaq": "5"}}, EncoderError, "blocks may change the QP"),
        ("kvazaar", {"params": {"sao": "full"}, "loop_filters": False}, EncoderError, "although they are off"),
        ("avc", {"params": {"no-such-thing": "1"}}, ConfigError, "no-such-thing=1"),
        ("avc", {"params": {"me": "bad"}}, ConfigError, "me=bad"),
        ("avc", {"params": {"qp": "30"}}, EncoderError, "source at QP 37 POC 0 .* I slice at QP 18"),
        ("avc", {"params": {"keyint": "9"}}, EncoderError, "not as AI"),
        ("avc", {"params": {"cqm": "jvt"}}, EncoderError, "scaling matrices"),
        ("avc", {"params": {"crf": "30", "aq-mode": "1"}}, EncoderError, "macroblocks of mean QP"),
        ("av1", {"params": {"no-such-thing": "1"}}, ConfigError, "no-such-thing"),
        ("av1", {"params": {"aq-mode": "bad"}}, ConfigError, "Option aq-mode=bad"),
        ("av1", {"params": {"enable-qm": "1"}}, EncoderError, "using_qmatrix"),
        ("av1", {"params": {"film-grain-test": "1"}}, EncoderError, "film grain"),
        ("av1", {"params": {"superres-mode": "1"}}, ConfigError, "superres-mode"),
        ("svtav1", {"params": {"no-such-thing": "1"}}, ConfigError, "no-such-thing=1"),
        ("svtav1", {"params": {"key-frame-qindex-offset": "-20"}}, EncoderError, "148, not as AI at index 168"),
        ("svtav1", {"params": {"enable-qm": "1"}}, EncoderError, "using_qmatrix"),
        ("svtav1", {"params": {"film-grain": "10"}}, EncoderError, "film grain"),
        ("hevc", {"params": {"no-such-thing": "1"}}, ConfigError, "no-such-thing"),
        ("hevc", {"params": {"aq-mode": "bad"}}, ConfigError, "aq-mode=bad"),
        ("hevc", {"params": {"qp": "30"}}, EncoderError, "source at QP 37 POC 0 .* I slice at QP 30"),
        ("hevc", {"params": {"keyint": "9"}}, EncoderError, "not as AI"),
        ("hevc", {"params": {"lossless": "1"}}, EncoderError, "do not contain an integer QP"),
    ],
)
def test_parameters_that_contradict_the_settings_are_errors(tmp_path, name, settings, error, message):
    with pytest.raises(error, match=message):
        encode_clip(tmp_path, name, CLIP, 2, **{"qp": 37} | SETTINGS[name] | settings)
    folder = tmp_path / "out"
    assert not any((folder / left).exists() for left in ("x264.yuv", "x265.csv", "statistics.txt"))


@pytest.mark.parametrize(
    ("name", "video_format", "internal"),
    [
        ("avc", CLIP, 8),
        ("avc", DEEP, 10),
        ("avc", VideoFormat(98, 66), 10),
        ("avc", VideoFormat(16, 16), 8),
        ("avc", VideoFormat(97, 63, "400"), 8),
        ("avc", VideoFormat(97, 63, "400"), 10),
        ("avc", VideoFormat(90, 51, "422"), 10),
        ("avc", VideoFormat(91, 51, "444"), 8),
        ("av1", CLIP, 8),
        ("av1", CLIP, 10),
        ("av1", VideoFormat(35, 21, bit_depth=10), 10),
        ("av1", VideoFormat(16, 16), 8),
        ("av1", VideoFormat(96, 64, "400"), 8),
        ("av1", VideoFormat(97, 63, "400"), 10),
        ("av1", VideoFormat(96, 64, "422"), 10),
        ("av1", VideoFormat(96, 64, "444"), 8),
        ("svtav1", VideoFormat(97, 65), 10),
        ("svtav1", VideoFormat(16, 16, bit_depth=10), 10),
    ],
    ids=lambda value: str(value).replace(" ", "-"),
)
def test_formats(tmp_path, name, video_format, internal):
    """Code odd and small sizes, all chroma formats, and 8 bit at 10 bit; `encode_clip` checks the samples' PSNR."""
    settings = {"qp": 37} | SETTINGS[name] | {"internal_bit_depth": internal}
    sequence = encode_clip(tmp_path, name, video_format, 2, **settings)
    assert sequence.format == replace(video_format, bit_depth=internal)
    assert {path.stem for path in (tmp_path / "out").iterdir()} == {"bitstream", "decoded", "log"}
