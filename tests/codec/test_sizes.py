"""Pictures of every size through every back end: padded for the encoder, cropped after decoding.

Independent references: ffmpeg's decoder for the samples, and PSNR from plain numpy on the raw files.
"""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from codecnn.base.division import ceil_div
from codecnn.base.errors import EncoderError
from codecnn.codec import (
    CodecSettings,
    CodecTools,
    CodedSequence,
    add_rebuilt_planes,
    block_table,
    ctu_depths,
    decode_stream,
    get_codec,
)
from codecnn.pictures.files import Picture, VideoFormat, ffmpeg_path, open_raw, pad_to_size
from tests.helpers.clips import write_clip
from tests.helpers.standin_programs import write_program

VTM_OPTIONS = (
    "InputFile BitstreamFile ReconFile SourceWidth SourceHeight FrameRate FramesToBeEncoded InputBitDepth "
    "InternalBitDepth OutputBitDepth InputChromaFormat QP SEIDecodedPictureHash IntraQPOffset MaxDeltaQP "
    "TemporalFilter FrameSkip ConformanceWindowMode SAO ALF DeblockingFilterDisable LMCSEnable"
)


def check_sequence(source: Path, form: VideoFormat, sequence: CodedSequence, count: int, depth: int = 10) -> None:
    """Compare the files of a sequence with ffmpeg's decoding of its bitstream, cropped, and its PSNR with numpy's."""
    assert sequence.format == replace(form, bit_depth=depth)
    assert sequence.bits == 8 * sequence.bitstream.stat().st_size
    width, height = sequence.coded_size or (form.width, form.height)
    coded_format = replace(sequence.format, width=width, height=height)
    whole = source.with_name("whole.yuv")
    decode_stream(ffmpeg_path(), sequence.bitstream, whole, coded_format)
    with open_raw(whole, coded_format) as coded, open_raw(sequence.decoded, sequence.format) as decoded:
        pictures = list(zip(coded, decoded, open_raw(source, form), sequence.pictures, strict=True))
        assert len(pictures) == count
        for large, small, original, stated in pictures:
            for index, plane in enumerate(small.planes):
                rows, columns = plane.shape
                assert np.array_equal(large.planes[index][:rows, :columns], plane)
                error = np.mean((plane.astype(float) - original.planes[index] * 2.0 ** (depth - form.bit_depth)) ** 2)
                psnr = 10 * math.log10((255 * 2 ** (depth - 8)) ** 2 / error) if error else math.inf
                assert (stated.psnr_y, stated.psnr_u, stated.psnr_v)[index] == pytest.approx(psnr, abs=1e-4)
    table = block_table(sequence)
    if table is None:
        assert sequence.bitstream.suffix not in (".265", ".266") or sequence.encoder.startswith("libkvazaar")
        return
    if sequence.coded_size is not None:
        assert (table.x < form.width).all()
        assert (table.y < form.height).all()
    for poc in range(count):
        mean, largest = ctu_depths(table, poc, form.width, form.height, 64)
        assert np.isfinite(mean).all()
        assert len(largest) == ceil_div(form.width, 64) * ceil_div(form.height, 64)


CASES = [
    ("hevc", "8x8", {}, (16, 16)),
    ("hevc", "17x9", {"unfiltered": True}, (18, 16)),
    ("hevc", "33x31", {"ctu_size": 32}, (34, 32)),
    ("hevc", "62x130", {"ctu_size": 64}, (64, 130)),
    ("hevc", "62x130", {"params": {"ctu": "64"}}, (64, 130)),
    ("hevc", "1x1", {"configuration": "ra"}, (16, 16)),
    ("hevc", "16x16", {}, None),
    ("hevc", "62x130", {}, None),
    ("vvc", "8x8", {}, (32, 32)),
    ("vvc", "17x9", {"unfiltered": True}, (32, 32)),
    ("vvc", "33x31", {"configuration": "ra"}, (34, 32)),
    ("vvc", "1x1", {"configuration": "ldb"}, (32, 32)),
    ("vvc", "62x130", {"ctu_size": 128}, None),
    ("av1", "1x1", {}, None),
    ("av1", "17x9", {"configuration": "ra"}, None),
    ("svtav1", "1x1", {}, (2, 2)),
    ("svtav1", "1x9", {}, (2, 9)),
    ("svtav1", "17x9", {"unfiltered": True}, None),
    ("avc", "1x1", {}, (2, 2)),
    ("avc", "17x9", {"unfiltered": True}, (18, 10)),
    ("avc", "33x31", {"configuration": "ldb"}, (34, 32)),
    ("kvazaar", "1x1", {"internal_bit_depth": 8}, (8, 8)),
    ("kvazaar", "17x9", {"internal_bit_depth": 8, "unfiltered": True}, (24, 16)),
]


@pytest.mark.parametrize(("codec", "size", "settings", "coded_size"), CASES, ids=str)
def test_any_size_is_coded(tmp_path: Path, codec: str, size: str, settings: dict, coded_size: tuple | None) -> None:
    width, height = map(int, size.split("x"))
    form = VideoFormat(width, height, fps=Fraction(30))
    count = 2 if settings.get("configuration", "ai") == "ai" else 9
    source = write_clip(tmp_path / "clip.yuv", form, count)
    preset = "ultrafast" if codec in ("hevc", "avc", "kvazaar") else "faster"
    sequence = get_codec(codec).encode(source, form, CodecSettings(32, preset=preset, **settings), tmp_path / "out")
    assert sequence.coded_size == coded_size
    assert "clip.yuv" in " ".join(sequence.argv)
    check_sequence(source, form, sequence, count, settings.get("internal_bit_depth", 10))
    if settings.get("unfiltered"):
        assert sequence.unfiltered.stat().st_size == count * sequence.format.picture_bytes
    # No file of padded pictures remains.
    assert not any(path.is_dir() for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize("chroma", ["400", "422", "444"])
def test_odd_sizes_of_other_chroma_formats(tmp_path: Path, chroma: str) -> None:
    form = VideoFormat(17, 9, chroma, 10)
    source = write_clip(tmp_path / "clip.yuv", form, 1)
    sequence = get_codec("hevc").encode(source, form, CodecSettings(32, preset="ultrafast"), tmp_path / "out")
    check_sequence(source, form, sequence, 1)


def test_rebuilt_planes_have_the_size_of_the_source(tmp_path: Path) -> None:
    form = VideoFormat(17, 9)
    source = write_clip(tmp_path / "clip.yuv", form, 2)
    sequence = get_codec("vvc").encode(source, form, CodecSettings(32, preset="faster"), tmp_path / "out")
    rebuilt = add_rebuilt_planes(sequence, ["unf_y", "pred_y", "bs_v"], tmp_path / "out")
    for path in (rebuilt.unfiltered, rebuilt.prediction):
        assert path.stat().st_size == 2 * rebuilt.format.picture_bytes
    assert np.load(rebuilt.strengths).shape == (2, 2, 3, 5)


def test_external_programs_get_padded_pictures(tmp_path: Path) -> None:
    setup = {"kind": "vtm", "mode": "", "options": sorted(VTM_OPTIONS.split()), "ffmpeg": ffmpeg_path()}
    encoder = write_program(tmp_path / "vtm", "encoder", cache=str(tmp_path / "kept"), **setup)
    cfg = tmp_path / "encoder_intra_vtm.cfg"
    cfg.write_text("QP : 50\n")
    form = VideoFormat(63, 65)
    source = write_clip(tmp_path / "clip.yuv", form, 2)
    tools = CodecTools(encoder=encoder, cfg=(cfg,))
    sequence = get_codec("vtm", tools).encode(source, form, CodecSettings(37), tmp_path / "out")
    assert sequence.coded_size == (64, 66)
    assert "--SourceHeight=66" in sequence.argv
    check_sequence(source, form, sequence, 2)


def test_a_stream_that_ffmpeg_has_no_room_for_is_refused_with_a_reason(tmp_path: Path) -> None:
    form = VideoFormat(34, 32, bit_depth=10)
    noise = np.random.default_rng(1).integers(0, 1024, form.picture_bytes // 2, dtype=np.uint16)
    (tmp_path / "clip.yuv").write_bytes(noise.tobytes())
    with pytest.raises(EncoderError, match="34x32"):
        get_codec("vvc").encode(tmp_path / "clip.yuv", form, CodecSettings(0, preset="faster"), tmp_path / "out")


def test_the_encoder_s_own_reason_is_shown(tmp_path: Path) -> None:
    form = VideoFormat(64, 64)
    source = write_clip(tmp_path / "clip.yuv", form, 9)
    settings = CodecSettings(32, preset="ultrafast", configuration="ra", params={"bframes": "12"})
    with pytest.raises(EncoderError, match="Lookahead"):
        get_codec("hevc").encode(source, form, settings, tmp_path / "out")


def test_padding_repeats_the_last_column_and_row() -> None:
    planes = (np.arange(6, dtype=np.uint8).reshape(2, 3), np.array([[7, 8]], np.uint8), np.array([[9, 3]], np.uint8))
    padded = pad_to_size(Picture(planes, 8), "420", 6, 4)
    assert padded.y.tolist() == [[0, 1, 2, 2, 2, 2], *3 * [[3, 4, 5, 5, 5, 5]]]
    assert [plane.tolist() for plane in padded.planes[1:]] == [[[7, 8, 8]] * 2, [[9, 3, 3]] * 2]
    picture = Picture(planes, 8)
    assert pad_to_size(picture, "420", 4, 2) is not picture
    assert pad_to_size(picture, "420", 3, 2) is picture
