"""The `hevc` back end: command line of x265, checks of its results, and its coding tree.

Independent references: ffmpeg's trace_headers (slice QPs and filter flags read from the bitstream), libde265 (every
CU of the golden streams), and PSNR from plain numpy on the raw files.
"""

import math
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from codecnn.base.errors import CodecnnError, EncoderError, FormatError, MissingFileError
from codecnn.codec import (
    COLUMNS,
    CodecSettings,
    CodedPicture,
    CodedSequence,
    HevcCodec,
    coded_size,
    ctu_depths,
    read_x265_analysis,
    x265_tables,
)
from codecnn.codec.blocks.x265_analysis import clear_stale_entries
from codecnn.codec.checks import verify_slice_qp, verify_x265_bits, verify_x265_psnr
from codecnn.codec.encoders.libx265 import has_qp_offsets, hevc_encode_argv, parse_statistics
from codecnn.pictures.files import Picture, VideoFormat
from tests.helpers.clips import traced, write_clip
from tests.helpers.standin_programs import read_pictures

CLIP = VideoFormat(96, 64, fps=Fraction(30))


def numpy_psnr(source: Path, source_format: VideoFormat, sequence: CodedSequence) -> list[list[float]]:
    """Compute the PSNR of each picture and plane from the raw files; infinite for equal planes."""
    shift, peak = sequence.format.bit_depth - source_format.bit_depth, 255 * 2 ** (sequence.format.bit_depth - 8)
    values = []
    files = ((source, source_format), (sequence.decoded, sequence.format))
    pictures = (read_pictures(path, form.chroma, form.width, form.height, form.bit_depth) for path, form in files)
    for original, decoded in zip(*pictures, strict=True):
        errors = [np.mean((a.astype(float) * 2**shift - b) ** 2) for a, b in zip(original, decoded, strict=True)]
        values.append([20 * math.log10(peak) - 10 * math.log10(mse) if mse else math.inf for mse in errors])
    return values


def traced_slice_qps(sequence: CodedSequence) -> list[int]:
    values = traced(sequence.bitstream)
    assert len(set(values["init_qp_minus26"])) == 1
    return [26 + values["init_qp_minus26"][0] + delta for delta in values["slice_qp_delta"]]


def encode(tmp_path: Path, video_format: VideoFormat = CLIP, pictures: int = 3, **settings) -> CodedSequence:
    source = write_clip(tmp_path / "source.yuv", video_format, pictures, flat_v=True)
    sequence = HevcCodec().encode(source, video_format, CodecSettings(**{"qp": 37, **settings}), tmp_path / "out")
    assert [picture.poc for picture in sequence.pictures] == list(range(pictures))
    stated = [[p for p in (x.psnr_y, x.psnr_u, x.psnr_v) if p is not None] for x in sequence.pictures]
    np.testing.assert_allclose(stated, numpy_psnr(source, video_format, sequence), atol=1e-9)
    return sequence


# --- the command ---------------------------------------------------------------------------------------------------


def params_of(settings: CodecSettings, video_format: VideoFormat = CLIP) -> dict[str, str]:
    argv = hevc_encode_argv("ffmpeg", "in.yuv", video_format, settings, "o.265", "a.dat", "s.csv")
    return dict(pair.split("=", 1) for pair in argv[argv.index("-x265-params") + 1].split(":"))


def test_command_line():
    argv = hevc_encode_argv(
        "ffmpeg", "file:/pictures/in.yuv", CLIP, CodecSettings(27, preset="fast"), "out.265", "a.dat", "s.csv"
    )
    params = argv.pop(argv.index("-x265-params") + 1)
    assert " ".join(argv) == (
        "ffmpeg -hide_banner -nostdin -y -loglevel info -nostats -f rawvideo -pix_fmt yuv420p -s 96x64 -r 30 "
        "-i file:/pictures/in.yuv -fps_mode passthrough -pix_fmt yuv420p10le -c:v libx265 -preset fast -x265-params "
        "-f hevc out.265"
    )
    assert params == (
        "qp=27:keyint=1:ipratio=1:pbratio=1:aq-mode=0:cutree=0:scenecut=0:psy-rd=0:psy-rdoq=0:frame-threads=1:wpp=0:"
        "lookahead-slices=0:info=0:pools=none:csv=s.csv:analysis-save=a.dat:csv-log-level=2:psnr=1:"
        "analysis-save-reuse-level=10"
    )


def test_settings_become_parameters():
    assert params_of(CodecSettings(27, ctu_size=16))["ctu"] == "16"
    assert params_of(CodecSettings(27, threads=3))["pools"] == "3"
    without = params_of(CodecSettings(27, loop_filters=False))
    assert (without["no-deblock"], without["no-sao"]) == ("1", "1")
    assert params_of(CodecSettings(27, configuration="ldb"))["bframes"] == "0"
    assert params_of(CodecSettings(27, params={"psy-rd": "1.5", "ref": "2"})).items() >= {
        ("psy-rd", "1.5"),
        ("ref", "2"),
    }
    # What the proofs read is not up for choice.
    assert params_of(CodecSettings(27, params={"csv": "/elsewhere", "psnr": "0"}))["csv"] == "s.csv"


# --- coding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qp", [0, 37, 51])
def test_all_intra_has_the_requested_slice_qp(tmp_path, qp):
    sequence = encode(tmp_path, qp=qp)
    assert traced_slice_qps(sequence) == [qp] * 3
    assert traced(sequence.bitstream)["cu_qp_delta_enabled_flag"] == [0] * 4
    assert [(p.slice_type, p.qp) for p in sequence.pictures] == [("I", qp)] * 3
    assert sequence.format == replace(CLIP, bit_depth=10)
    # x265 leaves out 4 + 4 + 4 + 3 bytes of start codes a picture; the stream carries no SEI.
    assert sequence.bits - sum(p.bits for p in sequence.pictures) == 3 * 8 * 15
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["analysis.dat", "bitstream.265", "decoded.yuv", "log.txt"]


def test_argv_and_log_do_not_contain_folders(tmp_path):
    sequence = encode(tmp_path)
    assert sequence.argv[0] == "ffmpeg"
    assert "source.yuv" in sequence.argv
    assert sequence.argv[-1] == "bitstream.265"
    log = sequence.log.read_text()
    assert str(tmp_path) not in log + "".join(sequence.argv)
    first = sequence.pictures[0]
    assert f"0 I 37 {first.bits} {first.psnr_y:.3f} {first.psnr_u:.3f} 99.990\n" in log
    assert log.startswith(f"encoder: {sequence.encoder}\n")


@pytest.mark.parametrize("configuration", ["ai", "ra"])
def test_coding_is_reproducible_and_independent_of_threads(tmp_path, configuration):
    source = write_clip(tmp_path / "source.yuv", CLIP, 9, flat_v=True)
    # Rectangular PUs, because x265 does not initialise all of their entries.
    settings = CodecSettings(22, configuration=configuration, params={"rect": "1", "amp": "1"})
    files = {}
    for run, threads in {"once": 1, "again": 1, "more": 2}.items():
        folder = tmp_path / ("once" if run == "again" else run)
        HevcCodec().encode(source, CLIP, replace(settings, threads=threads), folder)
        files[run] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert files["once"] == files["again"] == files["more"]


def test_loop_filters_are_off_in_the_bitstream(tmp_path):
    on, off = encode(tmp_path / "on"), encode(tmp_path / "off", loop_filters=False)
    for sequence, sao, no_deblocking in ((on, [1] * 4, []), (off, [0] * 4, [1] * 4)):
        flags = traced(sequence.bitstream)
        assert flags["sample_adaptive_offset_enabled_flag"] == sao
        assert flags.get("pps_deblocking_filter_disabled_flag", []) == no_deblocking


@pytest.mark.parametrize(
    ("video_format", "internal"),
    [
        (VideoFormat(96, 64, bit_depth=8), 8),
        (VideoFormat(96, 64, bit_depth=10), 10),
        (VideoFormat(98, 66), 10),
        (VideoFormat(74, 60, bit_depth=10), 10),
        (VideoFormat(96, 64, "400"), 8),
        (VideoFormat(96, 64, "400"), 10),
        (VideoFormat(90, 50, "400", bit_depth=10), 10),
        (VideoFormat(90, 50, "422"), 10),
        (VideoFormat(90, 50, "444"), 8),
        (VideoFormat(16, 16), 10),
    ],
    ids=lambda value: str(value).replace(" ", "-"),
)
def test_formats(tmp_path, video_format, internal):
    """Code sizes that x265 pads to whole CUs, all chroma formats, and 8 bit at 10 bit; `encode` checks the PSNR."""
    sequence = encode(tmp_path, video_format, pictures=2, internal_bit_depth=internal)
    assert sequence.format == replace(video_format, bit_depth=internal)
    table = x265_tables(sequence)
    assert (table.x < video_format.width).all()
    assert (table.y < video_format.height).all()
    for poc in range(2):
        ctu_depths(table, poc, video_format.width, video_format.height, 64)


@pytest.mark.parametrize(
    ("configuration", "params", "types"),
    [
        ("ra", {}, "I" + 8 * "B"),
        ("ra", {"keyint": "4"}, "IBBBIBBBI"),
        ("ra", {"keyint": "4", "open-gop": "0"}, None),
        ("ra", {"keyint": "4", "open-gop": "0", "radl": "2"}, None),
        ("ldb", {}, "I" + 8 * "P"),
    ],
)
def test_inter_configurations(tmp_path, configuration, params, types):
    """Check QP, slice types and CU table; `encode` has compared all pictures by PSNR."""
    sequence = encode(tmp_path, pictures=9, configuration=configuration, params=params)
    assert traced_slice_qps(sequence) == [37] * 9
    slice_types = "".join(picture.slice_type for picture in sequence.pictures)
    if types is None:
        assert slice_types.count("I") > 1
    else:
        assert slice_types[1:-1] == types[1:-1]
        assert slice_types[0] == "I"
    table = x265_tables(sequence)
    assert set(table.qp.tolist()) == {37}
    for poc in range(9):
        ctu_depths(table, poc, CLIP.width, CLIP.height, 64)
        modes = set(table.pred_mode[table.poc == poc].tolist())
        assert modes == {1} if slice_types[poc] == "I" else 0 in modes


def test_requested_qp_offsets_are_in_stream_and_table(tmp_path):
    sequence = encode(tmp_path, pictures=9, configuration="ra", params={"pbratio": "1.3"})
    qps = {picture.poc: picture.qp for picture in sequence.pictures}
    assert Counter(traced_slice_qps(sequence)) == Counter(qps.values())
    assert qps[0] == 37
    assert max(qps.values()) > 37
    table = x265_tables(sequence)
    assert {poc: set(table.qp[table.poc == poc].tolist()) for poc in qps} == {poc: {qp} for poc, qp in qps.items()}


def test_missing_and_partial_sources_are_errors(tmp_path):
    with pytest.raises(MissingFileError, match="absent"):
        HevcCodec().encode(tmp_path / "absent.yuv", CLIP, CodecSettings(30), tmp_path)
    (tmp_path / "part.yuv").write_bytes(b"\0" * (CLIP.picture_bytes + 1))
    with pytest.raises(FormatError, match="part"):
        HevcCodec().encode(tmp_path / "part.yuv", CLIP, CodecSettings(30), tmp_path)


# --- the checks ----------------------------------------------------------------------------------------------------

STATISTICS_HEADER = (
    "Layer , Encode Order, Type, POC, QP, Bits, Scenecut, I/P cost ratio, Y PSNR, U PSNR, V PSNR, List 0"
)


def statistics(*rows: tuple) -> list[str]:
    lines = [
        f"0, {i}, {t}-SLICE, {poc:4d}, {qp}, {bits}, 0,0.00, 30.5, 40.25, 41.125, 0 8 -"
        for i, (t, poc, qp, bits) in enumerate(rows)
    ]
    return [STATISTICS_HEADER, *lines]


def test_statistics_are_sorted_in_output_order():
    """Two IDR periods, the second with a leading picture before its IDR (RADL, negative POC)."""
    first = [("I", 0, "32.00", 1), ("P", 2, "32.00", 2), ("b", 1, "34.00", 3)]
    rows = [*first, ("I", 0, "32.00", 4), ("B", -1, "33.00", 5)]
    pictures = parse_statistics(statistics(*rows), "420")
    parsed = [(p.poc, p.slice_type, p.qp, p.bits) for p in pictures]
    assert parsed[:3] == [(0, "I", 32, 1), (1, "B", 34, 3), (2, "P", 32, 2)]
    assert parsed[3:] == [(3, "B", 33, 5), (4, "I", 32, 4)]
    assert (pictures[0].psnr_y, pictures[0].psnr_u, pictures[0].psnr_v) == (30.5, 40.25, 41.125)
    assert parse_statistics(statistics(*rows), "400")[0].psnr_u is None


@pytest.mark.parametrize("row", [("I", 0, "31.52", 1), ("I", 0, "-", 1), ("", 0, "32", 1), ("I", 0, "32", "many")])
def test_statistics_without_integer_qp_or_bits_are_errors(row):
    with pytest.raises(EncoderError, match="integer QP"):
        parse_statistics([line.replace("-SLICE", "") for line in statistics(row)], "420")


def test_verify_slice_qp():
    settings = CodecSettings(32, configuration="ra")
    pictures = [CodedPicture(0, "I", 32, 1, 30, 30, 30), CodedPicture(1, "B", 33, 1, 30, 30, 30)]

    def verify(pictures, settings):
        verify_slice_qp(pictures, settings, "clip", hierarchy=has_qp_offsets(settings))

    verify(pictures[:1], settings)
    verify(pictures, replace(settings, params={"pbratio": "1.2"}))
    for wrong in (pictures, [replace(pictures[1], qp=31)], []):
        with pytest.raises(EncoderError, match="clip"):
            verify(wrong, settings)
    with pytest.raises(EncoderError, match="QP 31"):
        verify([replace(pictures[1], qp=31)], replace(settings, params={"pbratio": "1.2"}))
    with pytest.raises(EncoderError, match="B slice"):
        verify([replace(pictures[1], qp=32)], CodecSettings(32))


def test_verify_bits_excludes_sei_and_start_codes():
    slice_unit, sei = b"\x26\x01\xaf\x00\x00\x03\x01", b"\x4e\x01\x05\x80"
    stream = b"\0\0\0\1" + slice_unit + b"\0\0\1" + sei + b"\0\0\0\1" + slice_unit
    pictures = [CodedPicture(0, "I", 32, 8 * 7, 30, 30, 30)] * 2
    verify_x265_bits(stream, pictures, "clip")
    with pytest.raises(EncoderError, match="states 56 bits and its bitstream has 112"):
        verify_x265_bits(stream, pictures[:1], "clip")


def test_verify_psnr_detects_a_changed_sample_and_a_missing_picture():
    rng = np.random.default_rng(1)
    original = Picture((rng.integers(0, 256, (16, 16), dtype=np.uint8),), 8)
    output = Picture(((original.y.astype(np.uint16) << 2) ^ 1,), 10)
    stated = CodedPicture(0, "I", 32, 1, round(20 * math.log10(1020), 3), None, None)
    (verified,) = verify_x265_psnr([original], [output], [output], [stated], "clip")
    assert verified.psnr_y == pytest.approx(20 * math.log10(1020), abs=1e-12)
    assert (verified.psnr_u, verified.psnr_v) == (None, None)
    worse = output.y.copy()
    worse[3, 5] ^= 4
    with pytest.raises(EncoderError, match="POC 0: PSNR Y is"):
        verify_x265_psnr([original], [Picture((worse,), 10)], [Picture((worse,), 10)], [stated], "clip")
    with pytest.raises(EncoderError, match="1 were coded, 2 decoded"):
        verify_x265_psnr([original], [output] * 2, [output] * 2, [stated], "clip")


# --- x265's analysis file ------------------------------------------------------------------------------------------


def test_only_stale_bytes_are_cleared(tmp_path, golden_file):
    """x265 does not initialise the entries of further PUs of a CU; whatever they contain, the result is the same."""
    original = golden_file("hevc/clip_rab_amp_qp32.dat")
    before, path = np.fromfile(original, np.uint8), tmp_path / "a.dat"
    path.write_bytes(before.tobytes())
    clear_stale_entries(path)
    cleared = np.fromfile(path, np.uint8)
    stale = np.flatnonzero(cleared != before)
    assert stale.size > 0
    assert (cleared[stale] == 0).all()
    noisy = before.copy()
    noisy[stale] = np.random.default_rng(3).integers(0, 256, stale.size)
    table = read_x265_analysis(original)
    for content in (noisy, cleared):
        path.write_bytes(content.tobytes())
        again = read_x265_analysis(path)
        assert all(np.array_equal(getattr(table, name), getattr(again, name)) for name in COLUMNS)
        clear_stale_entries(path)
        assert np.array_equal(np.fromfile(path, np.uint8), cleared)


def test_coding_clears_stale_entries(tmp_path, monkeypatch):
    cleared = []
    monkeypatch.setattr("codecnn.codec.encoders.libx265.clear_stale_entries", cleared.append)
    assert encode(tmp_path).block_statistics in cleared


@pytest.fixture(scope="module")
def analysis(tmp_path_factory) -> bytes:
    """Return the analysis file of one I and two P pictures with padding to whole CUs."""
    folder = tmp_path_factory.mktemp("analysis")
    sequence = encode(folder, VideoFormat(90, 50), configuration="ldb", qp=27)
    return sequence.block_statistics.read_bytes()


def test_coded_size_and_missing_files(tmp_path, analysis):
    path = tmp_path / "a.dat"
    path.write_bytes(analysis)
    assert coded_size(path) == (96, 56)
    for read in (coded_size, read_x265_analysis):
        with pytest.raises(MissingFileError, match="absent"):
            read(tmp_path / "absent.dat")
    assert set(read_x265_analysis(path).qp.tolist()) == {-1}


def test_truncated_analysis_files_raise_one_clear_error(tmp_path, analysis):
    path = tmp_path / "a.dat"
    ends = {80}
    while max(ends) < len(analysis):
        ends.add(max(ends) + int.from_bytes(analysis[max(ends) : max(ends) + 4], "little"))
    for length in {0, 3, 79, 80, 81, 100, *range(117, len(analysis), 97)} - (ends - {80}):
        path.write_bytes(analysis[:length])
        with pytest.raises(FormatError, match=re.escape(str(path))):
            read_x265_analysis(path)
    # A file cut between pictures is a valid shorter file.
    path.write_bytes(analysis[: sorted(ends)[1]])
    assert set(read_x265_analysis(path).poc.tolist()) == {0}


def test_damaged_analysis_files_raise_format_error_or_are_read(tmp_path, analysis):
    path = tmp_path / "a.dat"
    rng = np.random.default_rng(2)
    refused = 0
    for trial in range(600):
        data = bytearray(analysis)
        # The first trials damage headers, the later ones any byte.
        limit = 160 if trial < 300 else len(data)
        for position in rng.integers(0, limit, 1 + trial % 3):
            data[position] = rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))])
        path.write_bytes(data)
        try:
            table = read_x265_analysis(path)
        except FormatError:
            refused += 1
            continue
        assert len(table) <= len(analysis)
    assert refused > 100
    path.write_bytes(rng.integers(0, 256, 50_000, dtype=np.uint8).tobytes())
    with pytest.raises(FormatError):
        read_x265_analysis(path)


def test_a_sequence_without_statistics_is_an_error(tmp_path):
    sequence = CodedSequence(tmp_path / "b.265", tmp_path / "d.yuv", CLIP, (), (), "x265", tmp_path / "log.txt")
    with pytest.raises(CodecnnError, match="no block statistics"):
        x265_tables(sequence)
