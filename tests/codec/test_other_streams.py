"""Streams of AV1 and AVC that the user has: headers, QPs and bits, also in containers, and stores of them."""

import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from codecnn.base.errors import ConfigError, FormatError
from codecnn.codec import (
    CodecSettings,
    CodedSequence,
    StreamsCodec,
    SuppliedStream,
    av1_qp,
    output_pictures,
    picture_bits,
    read_headers,
)
from codecnn.filtering import stream_qps, stream_slice_types
from codecnn.pictures.files import VideoFormat, byte_stream, ffmpeg_path, open_video, stream_codec
from tests.helpers.encodes import encode_clip

CLIP = VideoFormat(96, 64, fps=Fraction(25))
FFMPEG = (ffmpeg_path(), "-loglevel", "error", "-y")
PICTURES = 5


CONTAINERS = {"av1": ("", ".bin", ".mp4", ".mkv", ".ivf"), "avc": ("", ".bin", ".mp4", ".mkv", ".ts")}
"""Suffixes of containers by codec; ffmpeg writes IVF of AV1 and TS of AVC only."""

CASES = [(codec, suffix) for codec, suffixes in CONTAINERS.items() for suffix in suffixes]


@pytest.fixture(scope="module")
def sequences(tmp_path_factory) -> dict[str, CodedSequence]:
    """Return sequences in random access, whose coding order is not the output order, by codec."""
    return {
        codec: encode_clip(
            tmp_path_factory.mktemp(codec), codec, CLIP, PICTURES, qp=34, preset=preset, configuration="ra"
        )
        for codec, preset in (("av1", "8"), ("avc", "fast"))
    }


@pytest.fixture(params=CONTAINERS)
def coded(request, sequences) -> CodedSequence:
    return sequences[request.param]


@pytest.fixture(params=CASES, ids=lambda case: "".join(case))
def contained(request, sequences, tmp_path) -> tuple[CodedSequence, Path]:
    """Return a sequence, and its stream as it is, under another name, or in a container."""
    codec, suffix = request.param
    coded = sequences[codec]
    path = tmp_path / f"stream{suffix}"
    if suffix == "":
        return coded, coded.bitstream
    if suffix == ".bin":
        path.write_bytes(coded.bitstream.read_bytes())
        return coded, path
    # A byte stream of AVC has no times of the pictures.
    times = ["-bsf:v", "setts=ts=N"] if codec == "avc" else []
    subprocess.run([*FFMPEG, "-i", coded.bitstream, "-c", "copy", *times, path], check=True)
    return coded, path


def test_headers(contained):
    coded, container = contained
    codec = "avc" if coded.bitstream.suffix == ".264" else "av1"
    assert stream_codec(container) == codec
    info = read_headers(container)
    assert (info.width, info.height, info.chroma, info.bit_depth) == (96, 64, "420", 10)
    assert info.ctu_size == {"avc": 16, "av1": 64}[codec]
    pictures = output_pictures(info)
    stated = [(picture.poc, picture.slice_type, (picture.qp,)) for picture in coded.pictures]
    assert [(picture.position, picture.slice_type, picture.slice_qps) for picture in pictures] == stated
    positions = [picture.position for picture in info.pictures if picture.position is not None]
    assert positions != sorted(positions)


def test_qps_and_types_of_the_decoded_pictures(contained):
    coded, container = contained
    count = len(open_video(container))
    assert stream_qps(container, count, all_pictures=True) == [34] * PICTURES
    assert stream_slice_types(container, count) == [picture.slice_type for picture in coded.pictures]


def test_bits(coded):
    assert picture_bits(coded.bitstream) == [picture.bits for picture in coded.pictures]


def test_a_supplied_stream_becomes_the_coded_sequence(contained, tmp_path):
    coded, container = contained
    settings = CodecSettings(34, configuration="ra")
    source = coded.bitstream.parent.parent / "source10.yuv"
    # The originals have the bit depth of the stream.
    depth = ["-pix_fmt", "yuv420p", "-s", "96x64", "-i", source.with_name("source.yuv"), "-pix_fmt", "yuv420p10le"]
    subprocess.run([*FFMPEG, "-f", "rawvideo", *depth, "-f", "rawvideo", source], check=True)
    codec = StreamsCodec(SuppliedStream(container))
    sequence = codec.encode(source, replace(CLIP, bit_depth=10), settings, tmp_path / "out")
    assert sequence.decoded.read_bytes() == coded.decoded.read_bytes()
    assert [picture.qp for picture in sequence.pictures] == [34] * PICTURES
    assert [picture.psnr_y for picture in sequence.pictures] == [picture.psnr_y for picture in coded.pictures]
    assert sequence.bitstream.name == coded.bitstream.name
    assert sequence.supplied.codec == byte_stream(container).codec
    with pytest.raises(ConfigError, match="contradicts the recipe's configuration ai"):
        codec.encode(source, replace(CLIP, bit_depth=10), CodecSettings(34), tmp_path / "other")


def test_stated_qps_are_taken_instead_of_those_of_the_stream(coded):
    assert SuppliedStream(coded.bitstream).lowest_qp() == 34
    assert SuppliedStream(coded.bitstream, (40,)).lowest_qp() == 40


def test_the_qp_of_av1_is_that_of_the_frame_header(tmp_path):
    """libaom with its own settings codes the key frame and the frames of each layer with different indices."""
    path = tmp_path / "own.mkv"
    source = ["-f", "lavfi", "-i", "testsrc2=size=64x64:rate=25:duration=0.8", "-pix_fmt", "yuv420p"]
    subprocess.run([*FFMPEG, *source, "-c:v", "libaom-av1", "-cpu-used", "8", "-crf", "40", path], check=True)
    qps = stream_qps(path, 20, all_pictures=True)
    assert len(set(qps)) > 2
    assert qps[0] == min(qps) < av1_qp(160)


def test_data_partitions_of_avc_are_not_read(tmp_path):
    stream = encode_clip(tmp_path, "avc", VideoFormat(32, 32), 1, qp=30).bitstream.read_bytes()
    path = tmp_path / "partitions.264"
    path.write_bytes(stream + stream[stream.index(b"\0\0\1\x65") :].replace(b"\0\0\1\x65", b"\0\0\1\x62", 1))
    with pytest.raises(FormatError, match=r"partitions\.264"):
        read_headers(path)
