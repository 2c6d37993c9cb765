"""Reconstruction before the in-loop filters, compared with streams coded without them and with VTM's traces."""

import gzip
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from codecnn.base.errors import ConfigError, EncoderError, UnsupportedError
from codecnn.codec import CodecSettings, get_codec
from codecnn.codec.blocks.vvc_stream import stream_units
from codecnn.codec.encoders import unfiltered
from codecnn.codec.encoders.libvvenc import NO_LOOP_FILTERS, vvenc_params
from codecnn.codec.encoders.unfiltered import MAX_CHANGE, SQUARE, code_unfiltered, verify_same_cus, verify_similar
from codecnn.pictures.files import VideoFormat, open_raw, pad_to_even, read_still
from codecnn.vvc.syntax import CU_COLUMNS
from tests.helpers.clips import traced, write_clip, write_planes

SMALL = VideoFormat(64, 64, "420", 10)

CLIP = VideoFormat(160, 96, "420", 10)
NO_SAO_NO_ALF = {"SAO": "0", "ALF": "0", "CCALF": "0"}


def real_picture(shared_data, tmp_path, name):
    picture = pad_to_even(read_still(shared_data / "images" / "val" / f"{name}.png"), "420")
    height, width = picture.y.shape
    video_format = VideoFormat(width, height, "420", 10)
    return write_planes(tmp_path / "picture.yuv", video_format, [picture.planes]), video_format


def slice_data(bitstream):
    """Return the VCL NAL units of a VVC stream (nal_unit_type below 12, H.266 table 5)."""
    units = [unit.rstrip(b"\0") for unit in re.split(b"\0\0\1", bitstream.read_bytes())[1:]]
    return [unit for unit in units if unit[1] >> 3 < 12]


def luma(path, video_format):
    with open_raw(path, video_format) as video:
        return np.array([picture.y for picture in video], np.int64)


# --- VVC ---------------------------------------------------------------------------------------------------------


def test_vvc_switches_the_encoders_deblocking_decision_off():
    assert "EDO" not in vvenc_params(CodecSettings(32), SMALL)
    assert vvenc_params(CodecSettings(32, unfiltered=True), SMALL)["EDO"] == "0"


@pytest.mark.parametrize("params", [{"EDO": "2"}, {"sao": "1"}, {"LoopFilterDisable": "0"}])
def test_vvc_refuses_parameters_that_would_filter_the_second_stream(params):
    with pytest.raises(ConfigError, match=next(iter(params))):
        vvenc_params(CodecSettings(32, unfiltered=True, params=params), SMALL)
    assert vvenc_params(CodecSettings(32, params=params), SMALL)[next(iter(params))] == next(iter(params.values()))
    harmless = {"SAO": "0", "MTS": "0"}
    assert vvenc_params(CodecSettings(32, unfiltered=True, params=harmless), SMALL)["SAO"] == "0"


def test_vvc_streams_with_equal_vtm_traces_are_reproduced(golden_file, tmp_path):
    """Both streams are golden files, and VTM traces the same CUs from them."""
    cus = [gzip.decompress(golden_file(f"vvc/edo0_{name}_qp37.cu.csv.gz").read_bytes()) for name in ("all", "nolf")]
    assert cus[0] == cus[1]
    source = golden_file("sources/astronaut_512x512_8b420.yuv")
    settings = CodecSettings(37, preset="medium", ctu_size=128, unfiltered=True)
    coded = get_codec("vvc").encode(source, VideoFormat(512, 512, "420", 8, fps=1), settings, tmp_path)
    assert coded.bitstream.read_bytes() == golden_file("vvc/edo0_all_qp37.266").read_bytes()
    for path, name in ((coded.decoded, "all"), (coded.unfiltered, "nolf")):
        assert path is not None
        md5 = golden_file(f"vvc/edo0_{name}_qp37.md5").read_text().split()[0]
        assert hashlib.md5(path.read_bytes()).hexdigest() == md5
    assert coded.unfiltered == tmp_path / "unfiltered.yuv"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"bitstream.266", "decoded.yuv", "log.txt", "unfiltered.yuv"}


def test_vvc_filter_flags_of_both_streams(tmp_path):
    source = write_clip(tmp_path / "clip.yuv", CLIP)
    codec = get_codec("vvc")
    for on in (True, False):
        settings = CodecSettings(32, preset="faster", loop_filters=on)
        # The last value of a parameter set that is traced twice.
        coded = codec.encode(source, CLIP, settings, tmp_path / str(on))
        flags = {name: values[-1] for name, values in traced(coded.bitstream).items()}
        assert (flags["sps_sao_enabled_flag"], flags["sps_alf_enabled_flag"]) == (on, on)
        assert flags["sps_lmcs_enabled_flag"] == 0
        assert flags.get("pps_deblocking_filter_disabled_flag", 0) == 1 - on


@pytest.mark.parametrize("bit_depth", [8, 10])
def test_vvc_deblocking_does_not_change_the_slice_data(tmp_path, bit_depth):
    """The flag of the deblocking filter is in the PPS, so equal slice data proves equal decisions."""
    source = write_clip(tmp_path / "clip.yuv", CLIP)
    settings = CodecSettings(32, preset="faster", internal_bit_depth=bit_depth, unfiltered=True)
    coded = {}
    for name, params in (("all", {}), ("deblocked", NO_SAO_NO_ALF)):
        coded[name] = get_codec("vvc").encode(source, CLIP, replace(settings, params=params), tmp_path / name)
    none = replace(settings, unfiltered=False, loop_filters=False)
    coded["none"] = get_codec("vvc").encode(source, CLIP, none, tmp_path / "none")
    assert slice_data(coded["deblocked"].bitstream) == slice_data(coded["none"].bitstream)
    assert slice_data(coded["all"].bitstream) != slice_data(coded["none"].bitstream)
    plain = coded["none"].decoded.read_bytes()
    assert coded["all"].unfiltered.read_bytes() == coded["deblocked"].unfiltered.read_bytes() == plain
    assert coded["deblocked"].decoded.read_bytes() not in (plain, coded["all"].decoded.read_bytes())


def test_vvc_different_decisions_of_the_second_stream_are_detected(golden_file, tmp_path, monkeypatch):
    """EDO, on by default at medium, makes the decisions depend on deblocking."""
    source = golden_file("sources/chelsea_178x130_8b420.yuv")
    source_format, settings = VideoFormat(178, 130, "420", 8), CodecSettings(37, preset="medium")
    codec = get_codec("vvc")
    coded = codec.encode(source, source_format, settings, tmp_path)
    arguments = (codec, source, source_format, settings, coded.bitstream, coded.decoded)
    with pytest.raises(EncoderError, match=r"chelsea_178x130_8b420 at QP 37, picture 0"):
        code_unfiltered(*arguments)

    def refuse(path):
        raise UnsupportedError("palette mode")

    monkeypatch.setattr(unfiltered, "stream_units", refuse)
    with pytest.raises(EncoderError, match=r"at QP 37, picture 0: .* plane [YUV]"):
        code_unfiltered(*arguments)
    assert not (tmp_path / "unfiltered").exists()
    assert not (tmp_path / "unfiltered.yuv").exists()


def test_vvc_streams_with_equal_tables_differ_in_the_hash_of_their_bins(tmp_path):
    """Another chroma value gives the same coding tree, modes and QPs, and another residual in the first CU."""
    small = VideoFormat(64, 64, "420", 8)
    streams = []
    for name, chroma in (("one", 140), ("two", 150)):
        (tmp_path / name).mkdir()
        planes = [np.full(shape, value) for shape, value in zip(small.plane_shapes, (90, chroma, chroma), strict=True)]
        source = write_planes(tmp_path / name / "flat.yuv", small, [planes])
        settings = CodecSettings(32, preset="faster", loop_filters=False)
        streams.append(get_codec("vvc").encode(source, small, settings, tmp_path / name).bitstream)
    first, second = (stream_units(stream)[0] for stream in streams)
    bins = CU_COLUMNS.index("bins")
    np.testing.assert_array_equal(np.delete(first, bins, axis=1), np.delete(second, bins, axis=1))
    with pytest.raises(EncoderError, match=r"flat, picture 0 .* \(0, 0\)"):
        verify_same_cus("flat", *streams)
    verify_same_cus("flat", streams[0], streams[0])


def test_vvc_streams_with_different_numbers_of_pictures_are_an_error(golden_file):
    streams = [golden_file(f"vvc/tinyclip128x64_{name}_qp37.266") for name in ("ld", "ra")]
    with pytest.raises(EncoderError, match="clip: 9 pictures were coded and 17 without"):
        verify_same_cus("clip", *streams)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["king_penguin", "canyon-wren", "pencils"])
def test_vvc_on_real_pictures(shared_data, tmp_path, name):
    source, video_format = real_picture(shared_data, tmp_path, name)
    for preset in ("fast", "medium"):
        for qp in (22, 37):
            folder = tmp_path / f"{preset}{qp}"
            settings = CodecSettings(qp, preset=preset, unfiltered=True)
            coded = get_codec("vvc").encode(source, video_format, settings, folder)
            original, after, before = (luma(p, video_format) for p in (source, coded.decoded, coded.unfiltered))
            assert np.mean((after - original) ** 2) < np.mean((before - original) ** 2)
            assert 0.3 < np.mean(after != before) < 0.9


# --- HEVC --------------------------------------------------------------------------------------------------------


def test_hevc_equals_a_stream_without_filters_if_the_decisions_are_equal(tmp_path):
    """SAO changes some decisions of x265, which the analysis files show; equal decisions give equal pictures."""
    small = VideoFormat(96, 64, "420", 10)
    source = write_clip(tmp_path / "clip.yuv", small, pictures=1, edges=0)
    alike = with_sao = 0
    for preset in ("veryfast", "medium", "slower"):
        for qp in (22, 37):
            coded = {}
            base = CodecSettings(qp, preset=preset)
            for name, settings in (
                ("all", replace(base, unfiltered=True)),
                ("deblocked", replace(base, unfiltered=True, params={"no-sao": "1"})),
                ("none", replace(base, loop_filters=False)),
            ):
                coded[name] = get_codec("hevc").encode(source, small, settings, tmp_path / f"{preset}{qp}{name}")
            analysis = {name: sequence.block_statistics.read_bytes() for name, sequence in coded.items()}
            plain = coded["none"].decoded.read_bytes()
            assert coded["none"].unfiltered is None
            assert analysis["deblocked"] == analysis["none"]
            assert coded["deblocked"].unfiltered.read_bytes() == plain
            if analysis["all"] == analysis["none"]:
                alike += 1
                with_sao += coded["all"].decoded.read_bytes() != coded["deblocked"].decoded.read_bytes()
                assert coded["all"].unfiltered.read_bytes() == plain
                assert coded["all"].decoded.read_bytes() != plain
    assert alike == 6
    assert with_sao == 3


def test_hevc_deblocking_changes_three_samples_at_8x8_edges(tmp_path):
    """Deblocking changes up to 3 samples on each side of an edge of the 8x8 grid (H.265 clause 8.7.2)."""
    source = write_clip(tmp_path / "clip.yuv", CLIP, pictures=1)
    settings = CodecSettings(37, unfiltered=True, params={"no-sao": "1"})
    coded = get_codec("hevc").encode(source, CLIP, settings, tmp_path / "coded")
    changed = (luma(coded.decoded, CLIP) != luma(coded.unfiltered, CLIP))[0]
    y, x = np.mgrid[: CLIP.height, : CLIP.width] % 8
    inner = np.isin(y, (3, 4)) & np.isin(x, (3, 4))
    assert not changed[inner].any()
    assert changed[~inner].mean() > 0.02


def test_hevc_decodes_streams_with_a_hash_of_the_filtered_picture(tmp_path):
    source = write_clip(tmp_path / "clip.yuv", CLIP, pictures=1)
    settings = CodecSettings(37, unfiltered=True, params={"hash": "1"})
    coded = get_codec("hevc").encode(source, CLIP, settings, tmp_path / "coded")
    assert coded.unfiltered.stat().st_size == CLIP.picture_bytes


# --- what both share ---------------------------------------------------------------------------------------------


def test_a_failed_second_run_leaves_no_files(tmp_path):
    source = write_clip(tmp_path / "clip.yuv", CLIP)

    class Broken:
        name = "broken"

        def identity(self):
            return "broken"

        def encode(self, source, source_format, settings, folder):
            assert not settings.loop_filters
            assert not settings.unfiltered
            (folder / "bitstream").write_bytes(b"half")
            raise EncoderError("no")

    (tmp_path / "unit").mkdir()
    settings, stream = CodecSettings(32, unfiltered=True), tmp_path / "unit" / "bitstream.266"
    with pytest.raises(EncoderError, match="no"):
        code_unfiltered(Broken(), source, CLIP, settings, stream, tmp_path / "unit" / "decoded.yuv")
    assert list((tmp_path / "unit").iterdir()) == []


def test_verify_similar_checks_all_squares_planes_and_pictures(tmp_path):
    """With a coding error of 4, the change of one square may have up to MAX_CHANGE of the MSE."""
    grey = VideoFormat(3 * SQUARE, 2 * SQUARE + 8, "420", 10)
    rng = np.random.default_rng(3)
    original = [[rng.integers(300, 700, shape) for shape in grey.plane_shapes] for _ in range(2)]
    plain = [[plane + 4 * rng.choice((-1, 1), plane.shape) for plane in planes] for planes in original]
    source, before = (
        write_planes(tmp_path / name, grey, clip) for name, clip in (("source.yuv", original), ("before.yuv", plain))
    )
    for picture, plane, square in ((0, 0, np.s_[:SQUARE, SQUARE : 2 * SQUARE]), (1, 2, np.s_[SQUARE:, SQUARE:])):
        for change, fails in ((2, False), (4, True)):
            after = [[samples.copy() for samples in planes] for planes in plain]
            after[picture][plane][square] += change
            decoded = write_planes(tmp_path / "after.yuv", grey, after)
            arguments = ("unit", source, grey, decoded, before, grey)
            assert (change**2 > 16 * MAX_CHANGE + 1) == fails
            if fails:
                with pytest.raises(EncoderError, match=rf"picture {picture}: .* plane {'YUV'[plane]} .* 16\.0"):
                    verify_similar(*arguments)
            else:
                verify_similar(*arguments)
    with pytest.raises(EncoderError, match="2 pictures were coded and 1 without"):
        verify_similar("unit", source, grey, before, write_planes(tmp_path / "one.yuv", grey, plain[:1]), grey)


def test_a_chroma_free_sequence_of_one_flat_picture_passes(tmp_path):
    grey = VideoFormat(64, 64, "400", 8)
    source = write_planes(tmp_path / "flat.yuv", grey, [[np.full((64, 64), 90)]])
    settings = CodecSettings(32, preset="faster", unfiltered=True)
    coded = get_codec("vvc").encode(source, grey, settings, tmp_path / "coded")
    assert coded.unfiltered.read_bytes() == coded.decoded.read_bytes()
    assert set(NO_LOOP_FILTERS) >= {"EDO", "SAO", "ALF", "CCALF"}
