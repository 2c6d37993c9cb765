"""The back ends `av1` and `svtav1`: quantiser scale, commands of libaom and SVT-AV1, checks of their bitstreams.

Independent references: the decoders of ffmpeg (libdav1d and libaom must agree), PSNR from plain numpy on the raw files,
and trace_headers of ffmpeg.
"""

import math
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from skimage.data import camera

from codecnn.base.errors import EncoderError, FormatError, MissingFileError
from codecnn.codec import (
    CodecSettings,
    CodedSequence,
    aom_encode_argv,
    av1_qp,
    get_codec,
    output_pictures,
    read_av1,
    read_headers,
    svt_encode_argv,
)
from codecnn.codec.encoders.av1 import verify_av1_stream
from codecnn.codec.encoders.av1_unfiltered import uses_restoration, verify_same_headers, without_filters
from codecnn.codec.trace import Element
from codecnn.pictures.files import VideoFormat
from tests.helpers.clips import traced, write_planes
from tests.helpers.encodes import encode_clip
from tests.helpers.video_files import FFMPEG

CLIP = VideoFormat(96, 64, fps=Fraction(30))
ENCODERS = ("av1", "svtav1")


def encode(
    tmp_path: Path, video_format: VideoFormat = CLIP, pictures: int = 2, codec: str = "av1", **settings
) -> CodedSequence:
    """Code a clip, and compare the stated PSNR with that of the raw files in plain numpy."""
    values = {"qp": 37, "preset": "faster", "ctu_size": 64, **settings}
    return encode_clip(tmp_path, codec, video_format, pictures, **values)


# --- the quantiser scale -------------------------------------------------------------------------------------------


def test_qp_scale_is_that_of_the_quantiser_step():
    """A step that doubles is 6 QPs more, and a step of 1 (16 of the scaled 8) is QP 4 (10)."""
    assert [av1_qp(index) for index in (1, 9, 57, 255)] == [4, 10, 22, 51]
    qps = [av1_qp(index) for index in range(256)]
    assert qps == sorted(qps)
    # The steps at indices 9, 57, 145 and 194: 16, 64, 239 and 640 eighths.
    assert 4 + 6 * math.log2(640 / 8) == pytest.approx(41.93, abs=0.01)
    assert av1_qp(200) == 42


@pytest.mark.parametrize("codec", ENCODERS)
@pytest.mark.parametrize("qp", [7, 15, 22, 37, 51])
def test_the_stream_has_the_index_of_the_qp(tmp_path, qp, codec):
    sequence = encode(tmp_path, qp=qp, codec=codec)
    indices = traced(sequence.bitstream)["base_q_idx"]
    assert indices == [{7: 4, 15: 20, 22: 56, 37: 168, 51: 255}[qp]] * 2
    assert [(picture.slice_type, picture.qp) for picture in sequence.pictures] == [("I", qp)] * 2
    assert f"base_q_idx {indices[0]}, QP {qp}\n" in sequence.log.read_text()


def test_every_qp_from_15_to_51_has_a_quantiser():
    levels = [int(argv[argv.index("-crf") + 1]) for argv in (argv_of(qp=qp) for qp in range(15, 52))]
    assert levels == sorted(set(levels))
    assert levels[-1] == 63


# --- the command ---------------------------------------------------------------------------------------------------


def argv_of(video_format: VideoFormat = CLIP, command=aom_encode_argv, **settings) -> list[str]:
    return command("ffmpeg", "in.yuv", video_format, CodecSettings(**{"qp": 32, **settings}), "out.obu")


def test_command_line_of_libaom():
    argv = argv_of(preset="fast", ctu_size=64)
    params = argv.pop(argv.index("-aom-params") + 1)
    assert " ".join(argv) == (
        "ffmpeg -hide_banner -nostdin -y -loglevel info -nostats -f rawvideo -pix_fmt yuv420p -s 96x64 -r 30 "
        "-i in.yuv -fps_mode passthrough -pix_fmt yuv420p10le -c:v libaom-av1 -usage allintra -g 0 -cpu-used 6 "
        "-threads 1 -row-mt 0 -b:v 0 -crf 34 -qmin 34 -qmax 34 -flags +psnr -vstats_file statistics.txt -aom-params "
        "-f obu out.obu"
    )
    assert params == (
        "aq-mode=0:deltaq-mode=0:enable-tpl-model=0:enable-chroma-deltaq=0:enable-qm=0:tune=psnr:"
        "denoise-noise-level=0:film-grain-test=0:arnr-maxframes=0:arnr-strength=0:enable-keyframe-filtering=0:"
        "enable-cdef=1:enable-restoration=1:sb-size=64"
    )


def test_command_line_of_svt_av1():
    argv = argv_of(command=svt_encode_argv, preset="4", internal_bit_depth=8, configuration="ldb", threads=2)
    params = argv.pop(argv.index("-svtav1-params") + 1)
    assert " ".join(argv) == (
        "ffmpeg -hide_banner -nostdin -y -loglevel info -nostats -f rawvideo -pix_fmt yuv420p -s 96x64 -r 30 "
        "-i in.yuv -fps_mode passthrough -pix_fmt yuv420p -c:v libsvtav1 -preset 4 -qp 34 -g 9999 "
        "-vstats_file statistics.txt -svtav1-params -f obu out.obu"
    )
    assert params == (
        "aq-mode=0:use-fixed-qindex-offsets=1:key-frame-qindex-offset=0:key-frame-chroma-qindex-offset=0:"
        "qindex-offsets=[0,0,0,0,0,0]:chroma-qindex-offsets=[0,0,0,0,0,0]:enable-qm=0:enable-variance-boost=0:"
        "luminance-qp-bias=0:enable-tf=0:enable-overlays=0:film-grain=0:scd=0:pred-struct=1:lp=2"
    )


# --- coding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ENCODERS)
def test_one_picture_and_threads_give_the_same_stream(tmp_path, codec):
    first = encode(tmp_path / "one", pictures=1, codec=codec)
    second = encode(tmp_path / "two", pictures=1, codec=codec, threads=2)
    assert first.bitstream.read_bytes() == second.bitstream.read_bytes()
    assert str(tmp_path) not in first.log.read_text() + " ".join(first.argv)


@pytest.mark.parametrize("codec", ENCODERS)
@pytest.mark.parametrize("configuration", ["ra", "ldb"])
def test_inter_configurations(tmp_path, codec, configuration):
    """All frames have one quantiser index; `encode` compares order, bits and PSNR of all pictures."""
    sequence = encode(tmp_path, VideoFormat(64, 64), pictures=18, codec=codec, configuration=configuration)
    frames = read_av1(sequence.bitstream).frames
    assert {frame.quantiser for frame in frames} == {168}
    positions = [frame.position for frame in frames if frame.position is not None]
    assert (positions == sorted(positions)) == (configuration == "ldb")
    types = "".join(picture.slice_type for picture in sequence.pictures)
    assert types[0] == "I"
    assert "I" not in types[1:]


def test_the_superblocks_of_svt_av1_are_those_of_the_settings(tmp_path):
    with pytest.raises(EncoderError, match="ctu_size: 64"):
        encode(tmp_path, codec="svtav1", ctu_size=128)


@pytest.mark.parametrize(("ctu_size", "flag"), [(64, 0), (128, 1)])
def test_superblock_size(tmp_path, ctu_size, flag):
    assert set(traced(encode(tmp_path, ctu_size=ctu_size).bitstream)["use_128x128_superblock"]) == {flag}


@pytest.mark.parametrize("codec", ENCODERS)
def test_loop_filters_are_on_or_off_in_the_bitstream(tmp_path, codec):
    on = encode(tmp_path / "on", preset="medium", codec=codec)
    off = encode(tmp_path / "off", preset="medium", codec=codec, loop_filters=False)
    levels = [
        [frame.value(f"loop_filter_level[{n}]") for frame in read_av1(s.bitstream).frames for n in (0, 1)]
        for s in (on, off)
    ]
    assert max(levels[0]) > 0
    assert levels[1] == [0] * 4
    for sequence, value in ((on, 1), (off, 0)):
        values = traced(sequence.bitstream)
        assert set(values["enable_cdef"]) == set(values["enable_restoration"]) == {value}


def test_another_quantiser_or_width_is_an_error(tmp_path):
    """The encoders are told not to reduce it, so the flag is set in the headers that were read."""
    stream = read_av1(encode(tmp_path, pictures=1).bitstream)
    elements = (*stream.frames[0].elements, Element(0, "use_superres", 1, 1))
    changed = replace(stream, frames=(replace(stream.frames[0], elements=elements),))
    verify_av1_stream(stream, CodecSettings(37), "clip")
    with pytest.raises(EncoderError, match=r"168, not .* 164"):
        verify_av1_stream(stream, CodecSettings(36), "clip")
    with pytest.raises(EncoderError, match="frame 0"):
        verify_av1_stream(changed, CodecSettings(37), "clip")


def test_filters_although_they_are_off_are_an_error(tmp_path):
    with pytest.raises(EncoderError, match="enable_cdef"):
        encode(tmp_path, loop_filters=False, params={"enable-cdef": "1"})


# --- the reconstruction before the filters -------------------------------------------------------------------------


def encode_photograph(folder: Path, codec: str, **settings) -> CodedSequence:
    """Code a crop of a photograph, for which the encoders choose loop restoration."""
    crop = camera()[100:236, 150:350]
    chroma = np.full((68, 100), 128)
    source = write_planes(folder / "source.yuv", VideoFormat(200, 136), [[crop, chroma, chroma]])
    return get_codec(codec).encode(source, VideoFormat(200, 136), CodecSettings(ctu_size=64, **settings), folder)


@pytest.mark.parametrize("codec", ENCODERS)
@pytest.mark.parametrize(("restoration", "depth"), [("1", 10), ("0", 8)])
def test_unfiltered_pictures_are_those_of_a_stream_without_filters(tmp_path, codec, restoration, depth):
    """With and without loop restoration, which needs a second encode; the decisions do not depend on the filters."""
    settings = {"codec": codec, "preset": "medium", "qp": 42, "internal_bit_depth": depth}
    both = encode_photograph(tmp_path / "both", unfiltered=True, params={"enable-restoration": restoration}, **settings)
    plain = encode_photograph(tmp_path / "plain", loop_filters=False, **settings)
    assert uses_restoration(read_av1(both.bitstream)) == (restoration == "1")
    assert both.unfiltered.read_bytes() == plain.decoded.read_bytes()
    assert both.unfiltered.read_bytes() != both.decoded.read_bytes()
    names = sorted(path.name for path in (tmp_path / "both").iterdir())
    assert names == ["bitstream.obu", "decoded.yuv", "log.txt", "source.yuv", "unfiltered.yuv"]


def test_other_decisions_are_an_error(tmp_path):
    """Streams of different presets have other headers, as if loop restoration had changed the decisions."""
    first = read_av1(encode(tmp_path / "first", preset="6", pictures=1).bitstream)
    second = read_av1(encode(tmp_path / "second", preset="6", pictures=1, qp=42).bitstream)
    verify_same_headers("clip", first, first)
    with pytest.raises(EncoderError, match="200 instead of 168"):
        verify_same_headers("clip", first, second)


def test_the_filters_of_inter_frames_stay(tmp_path):
    sequence = encode(tmp_path, VideoFormat(64, 64), configuration="ldb")
    with pytest.raises(EncoderError, match="with inter frames"):
        without_filters(sequence.bitstream.read_bytes(), read_av1(sequence.bitstream))


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


def test_a_still_picture_with_the_reduced_header(tmp_path):
    path = tmp_path / "a.obu"
    source = ["-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25:duration=0.04", "-pix_fmt", "yuv420p"]
    still = ["-c:v", "libaom-av1", "-cpu-used", "8", "-crf", "40", "-still-picture", "1"]
    subprocess.run([*FFMPEG, *source, *still, path], check=True)
    stream = read_av1(path)
    assert stream.sequence["reduced_still_picture_header"] == 1
    (frame,) = stream.frames
    assert (frame.position, frame.slice_type, frame.bits) == (0, "I", 8 * path.stat().st_size)
    info = read_headers(path)
    assert (info.width, info.height, len(output_pictures(info))) == (64, 48, 1)
    assert info.pictures[0].slice_qps == (av1_qp(frame.quantiser),)
