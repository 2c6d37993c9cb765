"""The `av1` back end: quantiser scale, command of libaom, checks of its bitstreams.

Independent references: the decoders of ffmpeg (libdav1d and libaom must agree), PSNR from plain numpy on the raw files,
and trace_headers of ffmpeg.
"""

import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from codecnn.codec import Codec, CodecSettings, CodedSequence, aom_encode_argv, av1_qp, get_codec, read_av1
from codecnn.errors import CodecnnError, ConfigError, EncoderError, FormatError, MissingFileError
from codecnn.video import VideoFormat
from tests.helpers.clips import traced, write_clip

CLIP = VideoFormat(96, 64, fps=Fraction(30))


def raw_pictures(path: Path, video_format: VideoFormat) -> list[list[np.ndarray]]:
    """Return the flat planes of each picture; chroma of odd sizes is rounded up."""
    width, height = video_format.width, video_format.height
    across = {"400": 0, "420": (width + 1) // 2, "422": (width + 1) // 2, "444": width}[video_format.chroma]
    down = (height + 1) // 2 if video_format.chroma == "420" else height
    luma, chroma = width * height, across * down
    data = np.fromfile(path, "u1" if video_format.bit_depth == 8 else "<u2").reshape(-1, luma + 2 * chroma)
    return [np.split(row, [luma, luma + chroma] if chroma else []) for row in data]


def encode(tmp_path: Path, video_format: VideoFormat = CLIP, pictures: int = 2, **settings) -> CodedSequence:
    """Code a clip, and compare the stated PSNR with that of the raw files in plain numpy."""
    source = write_clip(tmp_path / "source.yuv", video_format, pictures)
    values = {"qp": 37, "preset": "faster", "ctu_size": 64, **settings}
    sequence = get_codec("av1").encode(source, video_format, CodecSettings(**values), tmp_path / "out")
    assert [picture.poc for picture in sequence.pictures] == list(range(pictures))
    shift = sequence.format.bit_depth - video_format.bit_depth
    read = (raw_pictures(source, video_format), raw_pictures(sequence.decoded, sequence.format))
    for picture, original, decoded in zip(sequence.pictures, *read, strict=True):
        stated = [psnr for psnr in (picture.psnr_y, picture.psnr_u, picture.psnr_v) if psnr is not None]
        for psnr, a, b in zip(stated, original, decoded, strict=True):
            mse = np.mean((a.astype(float) * 2**shift - b) ** 2)
            peak = 255 * 2 ** (sequence.format.bit_depth - 8)
            assert psnr == pytest.approx(10 * math.log10(peak**2 / mse), abs=1e-9)
    return sequence


# --- the quantiser scale -------------------------------------------------------------------------------------------


def test_qp_scale_is_that_of_the_quantiser_step():
    """A step that doubles is 6 QPs more, and a step of 1 (16 of the scaled 8) is QP 4 (10)."""
    assert [av1_qp(index) for index in (1, 9, 57, 255)] == [4, 10, 22, 51]
    qps = [av1_qp(index) for index in range(256)]
    assert qps == sorted(qps)
    # The steps at indices 9, 57, 145 and 194: 16, 64, 239 and 640 eighths.
    assert 4 + 6 * math.log2(640 / 8) == pytest.approx(41.93, abs=0.01)
    assert av1_qp(200) == 42


@pytest.mark.parametrize("qp", [7, 15, 22, 37, 51])
def test_the_stream_has_the_index_of_the_qp(tmp_path, qp):
    sequence = encode(tmp_path, qp=qp)
    indices = traced(sequence.bitstream)["base_q_idx"]
    assert indices == [{7: 4, 15: 20, 22: 56, 37: 168, 51: 255}[qp]] * 2
    assert [(picture.slice_type, picture.qp) for picture in sequence.pictures] == [("I", qp)] * 2
    assert sum(picture.bits for picture in sequence.pictures) == sequence.bits
    assert f"base_q_idx {indices[0]}, QP {qp}\n" in sequence.log.read_text()


@pytest.mark.parametrize("qp", [0, 8, 14, 52, 63])
def test_qps_without_a_quantiser_are_refused(qp):
    with pytest.raises(ConfigError, match=f"no quantiser for QP {qp}: take "):
        argv_of(qp=qp)


def test_every_qp_from_15_to_51_has_a_quantiser():
    levels = [int(argv[argv.index("-crf") + 1]) for argv in (argv_of(qp=qp) for qp in range(15, 52))]
    assert levels == sorted(set(levels))
    assert levels[-1] == 63


# --- the command ---------------------------------------------------------------------------------------------------


def argv_of(video_format: VideoFormat = CLIP, **settings) -> list[str]:
    return aom_encode_argv("ffmpeg", "in.yuv", video_format, CodecSettings(**{"qp": 32, **settings}), "out.obu")


def test_the_back_end_meets_the_protocol():
    codec: Codec = get_codec("av1")
    assert codec.name == "av1"
    assert re.fullmatch(r"libaom-av1 \d\S+, ffmpeg \S+", codec.identity())


def test_command_line():
    argv = argv_of(preset="fast", ctu_size=64)
    params = argv.pop(argv.index("-aom-params") + 1)
    assert " ".join(argv) == (
        "ffmpeg -hide_banner -nostdin -y -loglevel info -nostats -f rawvideo -pix_fmt yuv420p -s 96x64 -r 30 "
        "-i in.yuv -fps_mode passthrough -pix_fmt yuv420p10le -c:v libaom-av1 -usage allintra -g 0 -cpu-used 6 "
        "-b:v 0 -crf 34 -threads 1 -row-mt 0 -flags +psnr -vstats_file statistics.txt -aom-params -f obu out.obu"
    )
    assert params == (
        "aq-mode=0:deltaq-mode=0:enable-tpl-model=0:enable-chroma-deltaq=0:enable-qm=0:tune=psnr:"
        "denoise-noise-level=0:film-grain-test=0:enable-cdef=1:enable-restoration=1:sb-size=64"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ctu_size": 32}, "32 is not one of AV1's 64, 128"),
        ({"preset": "9"}, "no preset '9': one of slower, .*, 8"),
        ({"params": {"aq-mode": "1:x=2"}}, "aq-mode='1:x=2'"),
        ({"internal_bit_depth": 8}, "10 bit cannot be coded at 8"),
        ({"configuration": "ra"}, "all intra only, not ra"),
        ({"unfiltered": True}, "remove unfiltered"),
    ],
)
def test_unsupported_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        argv_of(replace(CLIP, bit_depth=10), **settings)


# --- coding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("video_format", "internal"),
    [
        (CLIP, 8),
        (CLIP, 10),
        (VideoFormat(97, 65), 10),
        (VideoFormat(35, 21, bit_depth=10), 10),
        (VideoFormat(16, 16), 8),
        (VideoFormat(96, 64, "400"), 8),
        (VideoFormat(97, 63, "400"), 10),
        (VideoFormat(96, 64, "422"), 10),
        (VideoFormat(96, 64, "444"), 8),
    ],
    ids=lambda value: str(value).replace(" ", "-"),
)
def test_formats(tmp_path, video_format, internal):
    """Code odd and small sizes, all chroma formats, and 8 bit at 10 bit; `encode` checks the samples' PSNR."""
    sequence = encode(tmp_path, video_format, internal_bit_depth=internal)
    assert sequence.format == replace(video_format, bit_depth=internal)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["bitstream.obu", "decoded.yuv", "log.txt"]


def test_one_picture_and_threads_give_the_same_stream(tmp_path):
    first, second = encode(tmp_path / "one", pictures=1), encode(tmp_path / "two", pictures=1, threads=2)
    assert first.bitstream.read_bytes() == second.bitstream.read_bytes()
    assert first.log.read_text() == second.log.read_text()
    assert str(tmp_path) not in first.log.read_text() + " ".join(first.argv)


@pytest.mark.parametrize(("ctu_size", "flag"), [(64, 0), (128, 1)])
def test_superblock_size(tmp_path, ctu_size, flag):
    assert set(traced(encode(tmp_path, ctu_size=ctu_size).bitstream)["use_128x128_superblock"]) == {flag}


def test_loop_filters_are_on_or_off_in_the_bitstream(tmp_path):
    on = encode(tmp_path / "on", preset="medium")
    off = encode(tmp_path / "off", preset="medium", loop_filters=False)
    levels = [
        [frame.value(f"loop_filter_level[{n}]") for frame in read_av1(s.bitstream).frames for n in (0, 1)]
        for s in (on, off)
    ]
    assert max(levels[0]) > 0
    assert levels[1] == [0] * 4
    for sequence, value in ((on, 1), (off, 0)):
        values = traced(sequence.bitstream)
        assert set(values["enable_cdef"]) == set(values["enable_restoration"]) == {value}


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"no-such-thing": "1"}, ConfigError, "does not take the parameter no-such-thing"),
        ({"aq-mode": "bad"}, ConfigError, "does not take the parameter aq-mode: Option aq-mode=bad"),
        ({"cq-level": "20"}, EncoderError, "I frame at quantiser index 80, not as AI at index 168"),
        ({"enable-qm": "1"}, EncoderError, "varies its quantiser: using_qmatrix"),
        ({"film-grain-test": "1"}, EncoderError, "has film grain parameters"),
        ({"superres-mode": "1"}, CodecnnError, "superres"),
    ],
)
def test_parameters_that_contradict_the_settings_are_errors(tmp_path, params, error, message):
    with pytest.raises(error, match=message):
        encode(tmp_path, params=params)
    assert not (tmp_path / "out" / "statistics.txt").exists()


def test_filters_although_they_are_off_are_an_error(tmp_path):
    with pytest.raises(EncoderError, match=r"has in-loop filters although they are off: .*enable_cdef"):
        encode(tmp_path, loop_filters=False, params={"enable-cdef": "1"})


# --- headers -------------------------------------------------------------------------------------------------------


def test_damaged_streams_are_errors(tmp_path):
    data = encode(tmp_path).bitstream.read_bytes()
    (tmp_path / "cut.obu").write_bytes(data[:-5])
    (tmp_path / "other.obu").write_bytes(b"\x12\x00" + bytes(range(200)))
    for name in ("cut.obu", "other.obu"):
        with pytest.raises(FormatError, match=name):
            read_av1(tmp_path / name)
    with pytest.raises(MissingFileError, match=r"absent\.obu"):
        read_av1(tmp_path / "absent.obu")
