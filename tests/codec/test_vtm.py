"""The `vtm` back end with VTM; CODECNN_VTM names the folder of its sources, built with ENABLE_TRACING."""

import os
from pathlib import Path

import pytest

from codecnn.codec import VTM, CodecSettings, CodecTools, block_table, get_codec, read_blocks, stream_info
from codecnn.pictures.files import VideoFormat
from tests.helpers.clips import write_clip

FOLDER = Path(os.environ.get("CODECNN_VTM", "/nowhere"))
SIZE = VideoFormat(136, 72, "420", 8, 30)
QP = 37
ORDER = ["poc", "channel", "y", "x"]
TRACED = [*ORDER, "w", "h", "depth", "qt_depth", "mt_depth", "pred_mode", "intra_mode", "qp", "cbf_y", "ts_y", "mts"]
"""Columns that VTM traces for all CUs; the trace has all luma CUs of a CTU first."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="needs VTM: build it, and set CODECNN_VTM to its folder"),
]


@pytest.fixture
def code(tmp_path):
    """Return a function that codes a clip with VTM."""

    def encode(pictures=1, folder="o", video=SIZE, **settings):
        configuration = settings.get("configuration", "ai")
        bin_ = FOLDER / "bin"
        tools = CodecTools(
            encoder=str(bin_ / VTM.encoders[0]),
            decoder=str(bin_ / VTM.decoders[0]),
            cfg=(FOLDER / VTM.usual_cfg[configuration],),
            trace=True,
        )
        source = write_clip(tmp_path / "clip.yuv", video, pictures)
        return get_codec("vtm", tools).encode(source, video, CodecSettings(QP, **settings), tmp_path / folder)

    return encode


def _in_order(table):
    return table.to_arrow().sort_by([(name, "ascending") for name in ORDER])


@pytest.mark.parametrize(
    ("configuration", "ctc", "types", "first"),
    [
        ("ai", False, "II", QP),
        ("ra", False, "IBBBB", QP),
        ("ldb", False, "IBB", QP),
        ("ra", True, "IBBBB", QP - 3),
        ("ldb", True, "IBB", QP - 1),
    ],
)
def test_every_configuration_codes_and_traces_the_cus_of_its_stream(code, configuration, ctc, types, first):
    """`encode` also verifies hashes, PSNR and slice QPs."""
    coded = code(len(types), configuration=configuration, ctc=ctc)
    assert "".join(picture.slice_type for picture in coded.pictures) == types
    assert coded.pictures[0].qp == first
    assert all(picture.qp > first for picture in coded.pictures[1:] if picture.slice_type == "B")
    traced, read = (_in_order(table) for table in (block_table(coded), read_blocks(coded.bitstream)))
    for name in TRACED:
        assert traced[name] == read[name], name


@pytest.mark.parametrize("ctu_size", [32, 64, 128])
def test_every_ctu_size(code, ctu_size):
    coded = code(ctu_size=ctu_size)
    assert stream_info(coded.bitstream).ctu_size == ctu_size
    table = block_table(coded)
    assert max(table.w.max(), table.h.max()) <= ctu_size


@pytest.mark.parametrize(("depth", "internal", "chroma"), [(8, 8, "420"), (10, 10, "400"), (10, 10, "444")])
def test_depths_and_chroma_formats(code, depth, internal, chroma):
    video = VideoFormat(72, 56, chroma, depth, 30)
    coded = code(video=video, internal_bit_depth=internal)
    assert coded.format == VideoFormat(72, 56, chroma, internal, 30)
    assert len(coded.pictures[0].md5) == len(video.plane_shapes)


def test_unfiltered_pictures_are_those_of_an_encode_without_filters(code):
    both, plain = code(folder="both", unfiltered=True), code(folder="plain", loop_filters=False)
    assert both.unfiltered.read_bytes() == plain.decoded.read_bytes() != both.decoded.read_bytes()
