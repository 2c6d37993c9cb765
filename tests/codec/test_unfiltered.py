"""Pictures before the loop filters, against streams coded without filters and against what VTM read of both streams."""

import gzip
import hashlib
import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from codecnn.codec import CodecSettings, get_codec
from codecnn.codec.blocks.vvc_partition import stream_units
from codecnn.codec.encoders import unfiltered
from codecnn.codec.encoders.libvvenc import NO_LOOP_FILTERS, vvenc_params
from codecnn.codec.encoders.unfiltered import CELL, MAX_CHANGE, code_unfiltered, prove_alike, prove_same_cus
from codecnn.errors import ConfigError, EncoderError, UnsupportedError
from codecnn.video import VideoFormat, create_video, open_raw, pad_to_even, read_still
from codecnn.video.process import ffmpeg_path
from codecnn.vvc.state import CU_BINS

CLIP = VideoFormat(160, 96, "420", 10)
NO_SAO_NO_ALF = {"SAO": "0", "ALF": "0", "CCALF": "0"}


def write_clip(path, video_format=CLIP, pictures=2, seed=0, edges=30):
    """Waves with noise that move, and a board of `edges` in height."""
    rng = np.random.default_rng(seed)
    scale = 2 ** (video_format.bit_depth - 8)
    with create_video(path, video_format) as video:
        for number in range(pictures):
            planes = []
            for height, width in video_format.plane_shapes:
                y, x = np.mgrid[:height, :width]
                wave = 128 + 50 * np.sin((x + 3 * number) / 9) * np.cos(y / 7) + edges * ((x // 20 + y // 13) % 2)
                plane = (wave + rng.normal(0, 5, wave.shape)).clip(0, 255) * scale
                planes.append(plane.astype(video_format.dtype))
            video.write(planes)
    return path


def real_picture(shared_data, tmp_path, name):
    picture = pad_to_even(read_still(shared_data / "images" / "val" / f"{name}.png"), "420")
    height, width = picture.y.shape
    video_format = VideoFormat(width, height, "420", 10)
    with create_video(tmp_path / "picture.yuv", video_format) as video:
        video.write(picture)
    return tmp_path / "picture.yuv", video_format


def slice_data(bitstream):
    """The VCL NAL units of a VVC stream (nal_unit_type below 12, H.266 table 5)."""
    units = [unit.rstrip(b"\0") for unit in re.split(b"\0\0\1", bitstream.read_bytes())[1:]]
    return [unit for unit in units if unit[1] >> 3 < 12]


def traced(bitstream):
    """Filter flags of parameter sets and slices as ffmpeg's trace_headers reads them."""
    argv = [ffmpeg_path(), "-hide_banner", "-loglevel", "verbose", "-i", bitstream, "-c", "copy"]
    log = subprocess.run([*argv, "-bsf:v", "trace_headers", "-f", "null", "-"], capture_output=True, text=True).stderr
    return {name: int(value) for name, value in re.findall(r" ([a-z]+_\w+_flag) +[01]+ = (\d+)", log)}


def luma(path, video_format):
    with open_raw(path, video_format) as video:
        return np.array([picture.y for picture in video], np.int64)


# --- VVC ---------------------------------------------------------------------------------------------------------


def test_vvc_switches_the_encoders_deblocking_decision_off():
    assert "EDO" not in vvenc_params(CodecSettings(32), "420")
    assert vvenc_params(CodecSettings(32, unfiltered=True), "420")["EDO"] == "0"


@pytest.mark.parametrize("params", [{"EDO": "2"}, {"sao": "1"}, {"LoopFilterDisable": "0"}])
def test_vvc_refuses_parameters_that_would_filter_the_second_stream(params):
    with pytest.raises(ConfigError, match=next(iter(params))):
        vvenc_params(CodecSettings(32, unfiltered=True, params=params), "420")
    assert vvenc_params(CodecSettings(32, params=params), "420")[next(iter(params))] == next(iter(params.values()))
    harmless = {"SAO": "0", "MTS": "0"}
    assert vvenc_params(CodecSettings(32, unfiltered=True, params=harmless), "420")["SAO"] == "0"


def test_vvc_gives_the_picture_that_vtm_finds_the_same_cus_in(shared_data, tmp_path):
    """Both streams are known byte for byte, and VTM's own trace of the two is the same, CU by CU."""
    golden = shared_data / "golden" / "vvc"
    cus = [gzip.decompress((golden / f"edo0_{name}_qp37.cu.csv.gz").read_bytes()) for name in ("all", "nolf")]
    assert cus[0] == cus[1]
    source = shared_data / "golden" / "sources" / "astronaut_512x512_8b420.yuv"
    settings = CodecSettings(37, preset="medium", ctu_size=128, unfiltered=True)
    coded = get_codec("vvc").encode(source, VideoFormat(512, 512, "420", 8, fps=1), settings, tmp_path)
    assert coded.bitstream.read_bytes() == (golden / "edo0_all_qp37.266").read_bytes()
    for path, name in ((coded.decoded, "all"), (coded.unfiltered, "nolf")):
        assert path is not None
        assert hashlib.md5(path.read_bytes()).hexdigest() == (golden / f"edo0_{name}_qp37.md5").read_text().split()[0]
    assert coded.unfiltered == tmp_path / "unfiltered.yuv"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"bitstream.266", "decoded.yuv", "log.txt", "unfiltered.yuv"}


def test_vvc_second_stream_has_no_filter_and_the_first_has_all(tmp_path):
    source = write_clip(tmp_path / "clip.yuv")
    codec = get_codec("vvc")
    for name, settings in (("on", CodecSettings(32, preset="faster")), ("off", CodecSettings(32, loop_filters=False))):
        (tmp_path / name).mkdir()
        coded = codec.encode(source, CLIP, replace(settings, preset="faster"), tmp_path / name)
        flags = traced(coded.bitstream)
        on = int(name == "on")
        assert (flags["sps_sao_enabled_flag"], flags["sps_alf_enabled_flag"]) == (on, on)
        assert flags["sps_lmcs_enabled_flag"] == 0
        assert flags.get("pps_deblocking_filter_disabled_flag", 0) == 1 - on


@pytest.mark.parametrize("bit_depth", [8, 10])
def test_vvc_deblocking_leaves_the_coded_slices_as_they_are_to_the_byte(tmp_path, bit_depth):
    """A proof without a parser for one of the filters: its flag lies in the PPS, the decisions in the slices."""
    source = write_clip(tmp_path / "clip.yuv")
    settings = CodecSettings(32, preset="faster", internal_bit_depth=bit_depth, unfiltered=True)
    coded = {}
    for name, params in (("all", {}), ("deblocked", NO_SAO_NO_ALF)):
        (tmp_path / name).mkdir()
        coded[name] = get_codec("vvc").encode(source, CLIP, replace(settings, params=params), tmp_path / name)
    (tmp_path / "none").mkdir()
    none = replace(settings, unfiltered=False, loop_filters=False)
    coded["none"] = get_codec("vvc").encode(source, CLIP, none, tmp_path / "none")
    assert slice_data(coded["deblocked"].bitstream) == slice_data(coded["none"].bitstream)
    assert slice_data(coded["all"].bitstream) != slice_data(coded["none"].bitstream)
    plain = coded["none"].decoded.read_bytes()
    assert coded["all"].unfiltered.read_bytes() == coded["deblocked"].unfiltered.read_bytes() == plain
    assert coded["deblocked"].decoded.read_bytes() not in (plain, coded["all"].decoded.read_bytes())


def test_vvc_finds_a_second_stream_that_was_decided_otherwise(shared_data, tmp_path, monkeypatch):
    """With EDO, on by default at medium, deblocking takes part in the decisions, and these change."""
    source = shared_data / "golden" / "sources" / "chelsea_178x130_8b420.yuv"
    source_format, settings = VideoFormat(178, 130, "420", 8), CodecSettings(37, preset="medium")
    codec = get_codec("vvc")
    coded = codec.encode(source, source_format, settings, tmp_path)
    arguments = (codec, source, source_format, settings, coded.bitstream, coded.decoded)
    with pytest.raises(
        EncoderError, match=r"chelsea_178x130_8b420 at QP 37, picture 0 .* decided otherwise, \w+ differs"
    ):
        code_unfiltered(*arguments)

    def refuse(path):
        raise UnsupportedError("palette mode")

    monkeypatch.setattr(unfiltered, "stream_units", refuse)
    with pytest.raises(EncoderError, match=r"at QP 37, picture 0: .* decided otherwise, plane [YUV] differs by an MSE"):
        code_unfiltered(*arguments)
    assert not (tmp_path / "unfiltered").exists()
    assert not (tmp_path / "unfiltered.yuv").exists()


def test_vvc_streams_whose_tables_are_equal_are_told_apart_by_their_bins(tmp_path):
    """Chroma of another brightness: the same partition, modes and QPs, and another residual in the first CU."""
    small = VideoFormat(64, 64, "420", 8)
    streams = []
    for name, chroma in (("one", 128), ("two", 150)):
        (tmp_path / name).mkdir()
        planes = [
            np.full(shape, 90 if index == 0 else chroma, np.uint8) for index, shape in enumerate(small.plane_shapes)
        ]
        with create_video(tmp_path / name / "flat.yuv", small) as video:
            video.write(planes)
        settings = CodecSettings(32, preset="faster", loop_filters=False)
        streams.append(
            get_codec("vvc").encode(tmp_path / name / "flat.yuv", small, settings, tmp_path / name).bitstream
        )
    one, two = (stream_units(stream)[0] for stream in streams)
    np.testing.assert_array_equal(np.delete(one, CU_BINS, axis=1), np.delete(two, CU_BINS, axis=1))
    with pytest.raises(EncoderError, match=r"flat, picture 0 in decoding order: .* bins differs at the CU at \(0, 0\)"):
        prove_same_cus("flat", *streams)
    prove_same_cus("flat", streams[0], streams[0])


def test_vvc_streams_of_other_numbers_of_pictures_are_told_apart(shared_data):
    golden = shared_data / "golden" / "vvc"
    with pytest.raises(EncoderError, match="clip: 9 pictures were coded and 17 without"):
        prove_same_cus("clip", golden / "tinyclip128x64_ld_qp37.266", golden / "tinyclip128x64_ra_qp37.266")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["king_penguin", "canyon-wren", "pencils"])
def test_vvc_on_real_pictures(shared_data, tmp_path, name):
    source, video_format = real_picture(shared_data, tmp_path, name)
    for preset in ("fast", "medium"):
        for qp in (22, 37):
            folder = tmp_path / f"{preset}{qp}"
            folder.mkdir()
            settings = CodecSettings(qp, preset=preset, unfiltered=True)
            coded = get_codec("vvc").encode(source, video_format, settings, folder)
            original, after, before = (luma(p, video_format) for p in (source, coded.decoded, coded.unfiltered))
            assert np.mean((after - original) ** 2) < np.mean((before - original) ** 2)
            assert 0.3 < np.mean(after != before) < 0.9


# --- HEVC --------------------------------------------------------------------------------------------------------


def test_hevc_equals_a_stream_coded_without_filters_wherever_x265_decided_alike(tmp_path):
    """x265's analysis files tell where: SAO changes some decisions, and never is a picture unlike with equal ones."""
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
            analysis = {name: one.block_statistics.read_bytes() for name, one in coded.items()}
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


def test_hevc_deblocking_touches_three_samples_at_edges_of_8x8(tmp_path):
    """H.265 clause 8.7.2: up to 3 samples on each side of an edge of the 8x8 grid, so columns and rows 3 and 4 stay."""
    source = write_clip(tmp_path / "clip.yuv", pictures=1)
    settings = CodecSettings(37, unfiltered=True, params={"no-sao": "1"})
    coded = get_codec("hevc").encode(source, CLIP, settings, tmp_path / "coded")
    changed = (luma(coded.decoded, CLIP) != luma(coded.unfiltered, CLIP))[0]
    y, x = np.mgrid[: CLIP.height, : CLIP.width] % 8
    inner = np.isin(y, (3, 4)) & np.isin(x, (3, 4))
    assert not changed[inner].any()
    assert changed[~inner].mean() > 0.02


def test_hevc_takes_streams_that_state_a_hash_of_the_filtered_picture(tmp_path):
    source = write_clip(tmp_path / "clip.yuv", pictures=1)
    settings = CodecSettings(37, unfiltered=True, params={"hash": "1"})
    coded = get_codec("hevc").encode(source, CLIP, settings, tmp_path / "coded")
    assert coded.unfiltered.stat().st_size == CLIP.picture_bytes


# --- what both share ---------------------------------------------------------------------------------------------


def test_a_second_run_that_fails_leaves_nothing(tmp_path):
    source = write_clip(tmp_path / "clip.yuv")

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


def test_the_evidence_weighs_every_square_of_every_plane_and_picture(tmp_path):
    """Change in one square of one plane, an error of 4 everywhere: allowed up to MAX_CHANGE of its MSE."""
    grey = VideoFormat(3 * CELL, 2 * CELL + 8, "420", 10)
    rng = np.random.default_rng(3)

    def write(name, pictures):
        with create_video(tmp_path / name, grey) as video:
            for planes in pictures:
                video.write([plane.astype(np.uint16) for plane in planes])
        return tmp_path / name

    original = [[rng.integers(300, 700, shape) for shape in grey.plane_shapes] for _ in range(2)]
    plain = [[plane + 4 * rng.choice((-1, 1), plane.shape) for plane in planes] for planes in original]
    source, before = write("source.yuv", original), write("before.yuv", plain)
    for picture, plane, square in ((0, 0, np.s_[:CELL, CELL : 2 * CELL]), (1, 2, np.s_[CELL:, CELL:])):
        for change, fails in ((2, False), (4, True)):
            after = [[samples.copy() for samples in planes] for planes in plain]
            after[picture][plane][square] += change
            decoded = write("after.yuv", after)
            arguments = ("unit", source, grey, decoded, before, grey)
            assert (change**2 > 16 * MAX_CHANGE + 1) == fails
            if fails:
                with pytest.raises(EncoderError, match=rf"picture {picture}: .* plane {'YUV'[plane]} .* 16\.0"):
                    prove_alike(*arguments)
            else:
                prove_alike(*arguments)
    with pytest.raises(EncoderError, match="2 pictures were coded and 1 without"):
        prove_alike("unit", source, grey, before, write("one.yuv", plain[:1]), grey)


def test_a_chroma_free_sequence_of_one_flat_picture_passes(tmp_path):
    grey = VideoFormat(64, 64, "400", 8)
    with create_video(tmp_path / "flat.yuv", grey) as video:
        video.write([np.full((64, 64), 90, np.uint8)])
    settings = CodecSettings(32, preset="faster", unfiltered=True)
    (tmp_path / "coded").mkdir()
    coded = get_codec("vvc").encode(tmp_path / "flat.yuv", grey, settings, tmp_path / "coded")
    assert coded.unfiltered.read_bytes() == coded.decoded.read_bytes()
    assert set(NO_LOOP_FILTERS) >= {"EDO", "SAO", "ALF", "CCALF"}
