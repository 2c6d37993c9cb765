"""The `kvazaar` back end: command line of libkvazaar and checks of its bitstreams.

Independent references: ffmpeg's decoder, which compares every picture with its MD5, trace_headers, and PSNR from plain
numpy on the raw files.
"""

from fractions import Fraction
from pathlib import Path

import pytest

from codecnn.codec import CodecSettings, CodedSequence, kvazaar_encode_argv
from codecnn.pictures.files import VideoFormat
from tests.helpers.clips import traced
from tests.helpers.encodes import encode_clip

CLIP = VideoFormat(96, 64, fps=Fraction(30))


def encode(tmp_path: Path, video_format: VideoFormat = CLIP, **settings) -> CodedSequence:
    values = {"qp": 37, "preset": "fast", "internal_bit_depth": 8, "ctu_size": 64, **settings}
    return encode_clip(tmp_path, "kvazaar", video_format, 2, **values)


def argv_of(video_format: VideoFormat = CLIP, **settings) -> list[str]:
    values = {"qp": 32, "internal_bit_depth": 8, **settings}
    return kvazaar_encode_argv("ffmpeg", "in.yuv", video_format, CodecSettings(**values), "out.265")


def test_command_line():
    assert " ".join(argv_of(preset="slow", loop_filters=False, params={"rd": "2"})) == (
        "ffmpeg -hide_banner -nostdin -y -loglevel info -nostats -f rawvideo -pix_fmt yuv420p -s 96x64 -r 30 "
        "-i in.yuv -fps_mode passthrough -pix_fmt yuv420p -c:v libkvazaar -kvazaar-params "
        "preset=slow,qp=32,period=1,gop=0,no-deblock=1,sao=off,rd=2,threads=0,owf=0,no-info=1,hash=md5 "
        "-f hevc out.265"
    )


@pytest.mark.parametrize(("qp", "video_format"), [(0, CLIP), (37, VideoFormat(40, 24)), (51, VideoFormat(8, 8))])
def test_all_intra_has_the_requested_slice_qp(tmp_path, qp, video_format):
    sequence = encode(tmp_path, video_format, qp=qp)
    values = traced(sequence.bitstream)
    assert len(set(values["init_qp_minus26"])) == 1
    assert [26 + values["init_qp_minus26"][0] + delta for delta in values["slice_qp_delta"]] == [qp] * 2
    assert set(values["cu_qp_delta_enabled_flag"]) == {0}
    assert values["hash_type"] == [0, 0]
    assert [(picture.slice_type, picture.qp) for picture in sequence.pictures] == [("I", qp)] * 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["bitstream.265", "decoded.yuv", "log.txt"]
    assert str(tmp_path) not in sequence.log.read_text() + " ".join(sequence.argv)


def test_unfiltered_pictures_are_those_of_a_stream_without_filters(tmp_path):
    both = encode(tmp_path / "both", unfiltered=True, threads=2)
    again = encode(tmp_path / "again")
    plain = encode(tmp_path / "plain", loop_filters=False)
    assert both.bitstream.read_bytes() == again.bitstream.read_bytes()
    assert both.unfiltered.read_bytes() == plain.decoded.read_bytes()
    assert both.unfiltered.read_bytes() != both.decoded.read_bytes()
