"""The `avc` back end: command line of x264, checks of its results, headers of AVC streams.

Independent references: ffmpeg's trace_headers, x264's reconstruction (the back end compares it sample by sample), and
PSNR from plain numpy on the raw files.
"""

from fractions import Fraction
from pathlib import Path

import pytest

from codecnn.base.errors import EncoderError, FormatError
from codecnn.codec import CodecSettings, CodedSequence, avc_info, read_avc, x264_encode_argv
from codecnn.codec.encoders.libx264 import verify_avc_stream
from codecnn.pictures.files import VideoFormat
from tests.helpers.clips import traced
from tests.helpers.encodes import encode_clip

CLIP = VideoFormat(96, 64, fps=Fraction(30))


def encode(tmp_path: Path, video_format: VideoFormat = CLIP, pictures: int = 2, **settings) -> CodedSequence:
    return encode_clip(tmp_path, "avc", video_format, pictures, **{"qp": 37, "preset": "fast", **settings})


# --- the command ---------------------------------------------------------------------------------------------------


def argv_of(video_format: VideoFormat = CLIP, **settings) -> list[str]:
    return x264_encode_argv("ffmpeg", "in.yuv", video_format, CodecSettings(**{"qp": 32, **settings}), "out.264")


def test_command_line():
    argv = argv_of(preset="slow", threads=4)
    params = argv.pop(argv.index("-x264-params") + 1)
    assert " ".join(argv) == (
        "ffmpeg -hide_banner -nostdin -y -loglevel debug -nostats -f rawvideo -pix_fmt yuv420p -s 96x64 -r 30 "
        "-i in.yuv -fps_mode passthrough -pix_fmt yuv420p10le -c:v libx264 -preset slow -x264-params "
        "-bsf:v filter_units=remove_types=6 -f h264 out.264"
    )
    assert params == (
        "qp=44:keyint=1:ipratio=1:pbratio=1:aq-mode=0:mbtree=0:scenecut=0:psy=0:threads=1:dump-yuv=x264.yuv"
    )
    assert "qp=32:" in argv_of(internal_bit_depth=8)[argv.index("-x264-params") + 1]


# --- coding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("qp", "depth"), [(0, 10), (37, 10), (1, 8), (51, 8)])
def test_all_intra_has_the_requested_slice_qp(tmp_path, qp, depth):
    sequence = encode(tmp_path, qp=qp, internal_bit_depth=depth)
    values = traced(sequence.bitstream)
    assert len(set(values["pic_init_qp_minus26"])) == 1
    assert [26 + values["pic_init_qp_minus26"][0] + delta for delta in values["slice_qp_delta"]] == [qp] * 2
    assert [(picture.slice_type, picture.qp) for picture in sequence.pictures] == [("I", qp)] * 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["bitstream.264", "decoded.yuv", "log.txt"]
    assert str(tmp_path) not in sequence.log.read_text() + " ".join(sequence.argv)


@pytest.mark.parametrize(("configuration", "types"), [("ra", "IBBBBBBBP"), ("ldb", "IPPPPPPPP")])
def test_inter_configurations(tmp_path, configuration, types):
    """Check QP, types and order; `encode` has compared all pictures by PSNR."""
    sequence = encode(tmp_path, pictures=9, configuration=configuration)
    assert "".join(picture.slice_type for picture in sequence.pictures) == types
    stream = read_avc(sequence.bitstream)
    assert {qp for picture in stream.pictures for qp in picture.qps} == {37}
    assert (stream.output == list(stream.pictures)) == (configuration == "ldb")


def test_periods_of_random_access(tmp_path):
    sequence = encode(tmp_path, VideoFormat(32, 32), pictures=7, configuration="ra", params={"keyint": "3"})
    assert "".join(picture.slice_type for picture in sequence.pictures) == "IBPIBPI"


def test_unfiltered_pictures_are_those_of_a_stream_without_deblocking(tmp_path):
    both = encode(tmp_path / "both", unfiltered=True)
    plain = encode(tmp_path / "plain", loop_filters=False)
    assert both.unfiltered.read_bytes() == plain.decoded.read_bytes()
    assert both.unfiltered.read_bytes() != both.decoded.read_bytes()
    assert set(traced(plain.bitstream)["disable_deblocking_filter_idc"]) == {1}


def test_coding_is_reproducible(tmp_path):
    first, second = (
        encode(tmp_path / name, pictures=5, configuration="ra", threads=n) for n, name in ((1, "a"), (2, "b"))
    )
    assert first.bitstream.read_bytes() == second.bitstream.read_bytes()
    assert first.log.read_text() == second.log.read_text()


def test_other_quantisers_of_macroblocks_are_an_error(tmp_path):
    stream = read_avc(encode(tmp_path).bitstream)
    verify_avc_stream(stream, [37.0, 37.0], CodecSettings(37), "clip")
    with pytest.raises(EncoderError, match=r"picture 1 .* 37\.20"):
        verify_avc_stream(stream, [37.0, 37.2], CodecSettings(37), "clip")
    with pytest.raises(EncoderError, match="x264 states 1 pictures and its bitstream has 2"):
        verify_avc_stream(stream, [37.0], CodecSettings(37), "clip")


# --- headers -------------------------------------------------------------------------------------------------------


def test_headers(tmp_path):
    info = avc_info(read_avc(encode(tmp_path, VideoFormat(90, 50, "422")).bitstream), "clip")
    assert (info.width, info.height, info.chroma, info.bit_depth, info.ctu_size) == (90, 50, "422", 10, 16)
    assert [(picture.position, picture.slice_qps) for picture in info.pictures] == [(0, (37,)), (1, (37,))]


def test_damaged_streams_are_errors(tmp_path):
    data = encode(tmp_path).bitstream.read_bytes()
    start = data.index(b"\0\0\1\x65")
    (tmp_path / "headless.264").write_bytes(data[start - 1 :])
    (tmp_path / "empty.264").write_bytes(b"")
    for name in ("headless.264", "empty.264"):
        with pytest.raises(FormatError, match=name):
            read_avc(tmp_path / name)
