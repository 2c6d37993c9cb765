"""The `vvc` back end: command line, log, check of the slice QP, and equality with streams coded elsewhere."""

import gzip
import hashlib
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from codecnn.base.errors import ConfigError, EncoderError, FormatError, ToolMissingError
from codecnn.codec import CodecSettings, CodedPicture, get_codec
from codecnn.codec.checks import verify_decoded, verify_slice_qp
from codecnn.codec.encoders import libvvenc
from codecnn.codec.encoders.jvet_log import normalise_library_log, parse_log
from codecnn.codec.encoders.libvvenc import encode_argv, vvenc_params
from codecnn.pictures.files import VideoFormat, convert, open_raw, run
from codecnn.pictures.metrics import psnr
from tests.helpers.clips import write_clip

SMALL = VideoFormat(64, 64, "420", 10)


def test_argv_switches_all_adaptations_off():
    argv = encode_argv("ffmpeg", "in.yuv", SMALL, CodecSettings(32, preset="fast"), "out.266")
    assert argv[argv.index("-qp") + 1] == "32"
    assert argv[argv.index("-qpa") + 1] == "0"
    params = dict(item.split("=") for item in argv[argv.index("-vvenc-params") + 1].split(":"))
    assert {params[name] for name in ("IntraQPOffset", "GOPQPA", "MCTF", "BIM", "LookAhead", "STA")} == {"0"}
    assert params["IntraPeriod"] == "1"
    assert argv[-1] == "out.266"


def test_loop_filters_off_needs_edo_off():
    params = vvenc_params(CodecSettings(32, loop_filters=False), SMALL)
    assert list(params).index("EDO") < list(params).index("LoopFilterDisable")
    assert (params["SAO"], params["ALF"], params["CCALF"]) == ("0", "0", "0")


def test_user_parameters_override():
    assert vvenc_params(CodecSettings(32, params={"MCTF": "1"}), SMALL)["MCTF"] == "1"


@pytest.mark.parametrize("bad", [{"A": "1:B=2"}, {"A B": "1"}, {"A": ""}])
def test_parameters_cannot_contain_separators(bad):
    with pytest.raises(ConfigError, match="plain name and value"):
        vvenc_params(CodecSettings(32, params=bad), SMALL)


@pytest.mark.parametrize(
    "values", [{"qp": -1}, {"qp": 64}, {"qp": 32, "configuration": "xx"}, {"qp": 32, "ctu_size": 48}]
)
def test_settings_out_of_range(values):
    with pytest.raises(ConfigError):
        CodecSettings(**values)


def test_unsupported_settings_are_refused():
    with pytest.raises(ConfigError, match="preset"):
        vvenc_params(CodecSettings(32, preset="placebo"), SMALL)
    with pytest.raises(FormatError, match="even"):
        encode_argv("ffmpeg", "i", VideoFormat(63, 64, "420", 10), CodecSettings(32), "o")
    with pytest.raises(ConfigError, match="422"):
        encode_argv("ffmpeg", "i", VideoFormat(64, 64, "422", 10), CodecSettings(32), "o")


LOG = (
    "POC     8 TId: 1 (      STSA, B-SLICE, QP 41)          2368 bits [Y 32.0342 dB    U 38.4234 dB    V 37.7838 dB] "
    "[ET     0 ] [L0 0 16 ] [L1 16 0 ] [MD5:aa,bb,cc]\n"
    "POC     0 TId: 0 (  IDR_N_LP, I-SLICE, QP 37)            19016 bits [Y 32.7110 dB    U    inf dB    V 38.4367 dB] "
    "[ET    12 ] [L0 ] [L1 ] [MD5:aa,bb,cc]\n"
)


def test_log_is_read_in_output_order():
    first, second = parse_log(LOG)
    assert (first.poc, first.slice_type, first.qp, first.bits, first.psnr_y) == (0, "I", 37, 19016, 32.7110)
    assert first.psnr_u == float("inf")
    assert (second.poc, second.slice_type, second.qp, second.bits) == (8, "B", 41, 2368)


def test_leading_pictures_of_an_idr_picture_precede_it():
    """HM counts POC from the IDR picture, and its log is in coding order."""
    line = (
        "POC {:4} TId: 0 ( {}-SLICE, nQP 32 QP 32 ) {:4} bits [Y 40.1 dB    U 42.2 dB    V 43.3 dB] [ET 1 ] [L0 ] [L1 ]"
    )
    pocs = (0, 2, 1, 0, -2, -1, 3, 1, 2, 0, 1)
    log = "\n".join(line.format(poc, "B" if poc else "I", 100 + n) for n, poc in enumerate(pocs))
    found = [(picture.poc, picture.bits - 100) for picture in parse_log(log, 3)]
    assert found == list(enumerate((0, 2, 1, 4, 5, 3, 7, 8, 6, 9, 10)))
    with pytest.raises(EncoderError, match="lists POC 5 twice"):
        parse_log(log.replace("POC   -1", "POC    0"), 3)


def test_log_without_times_and_addresses():
    first = normalise_library_log(
        LOG, "[libvvenc @ 0x55f0] vvenc [details]: QP : 37\nvvenc [details]: Threads : 2\nframe=1"
    )
    second = normalise_library_log(
        LOG.replace("[ET    12 ]", "[ET    99 ]"), "[libvvenc @ 0x77] vvenc [details]: QP : 37"
    )
    assert first == second
    assert "QP : 37" in first


def test_slice_qp_is_verified_from_the_log():
    pictures = parse_log(LOG)
    verify_slice_qp(pictures, CodecSettings(37, configuration="ra"), "clip")
    with pytest.raises(EncoderError, match="POC 8 was coded as B slice"):
        verify_slice_qp(pictures, CodecSettings(37), "clip")
    with pytest.raises(EncoderError, match="QP 37"):
        verify_slice_qp(pictures[:1], CodecSettings(38), "clip")
    with pytest.raises(EncoderError, match="lists no picture"):
        verify_slice_qp((), CodecSettings(38), "clip")


def test_log_lines_with_a_temporal_pre_filter_are_read():
    (picture,) = parse_log(LOG.splitlines()[1].replace("QP 37)", "QP 37, TF 2)"))
    assert (picture.qp, picture.bits) == (37, 19016)


@pytest.mark.parametrize(
    ("configuration", "rate", "wanted"),
    [
        ("ra", 30, {"GOPSize": "32", "IntraPeriod": "32", "IntraQPOffset": "-3", "MCTF": "1"}),
        ("ra", Fraction(60000, 1001), {"IntraPeriod": "64", "DecodingRefreshType": "cra"}),
        ("ldb", 60, {"GOPSize": "8", "IntraPeriod": "-1", "IntraQPOffset": "-1", "MCTFFutureReference": "0"}),
        ("ai", 60, {"IntraPeriod": "1", "IntraQPOffset": "0", "MCTF": "0"}),
    ],
)
def test_common_test_conditions(configuration, rate, wanted):
    """GOPSize, IntraPeriod, IntraQPOffset, TemporalFilter of the configuration files of VTM 23."""
    settings = CodecSettings(32, configuration=configuration, ctc=True)
    params = vvenc_params(settings, replace(SMALL, fps=rate))
    assert {name: params[name] for name in wanted} == wanted
    assert vvenc_params(replace(settings, ctc=False), SMALL)["IntraQPOffset"] == "0"


@pytest.mark.parametrize("configuration", ["ra", "ldb"])
def test_the_library_codes_the_common_test_conditions(configuration, tmp_path):
    """The slice QPs of 33 pictures are those of VTM's configuration files; `encode` verifies PSNR and MD5."""
    form = VideoFormat(64, 64, "420", 8, 30)
    source = write_clip(tmp_path / "clip.yuv", form, 33)
    settings = CodecSettings(32, preset="faster", configuration=configuration, ctc=True)
    pictures = get_codec("vvc").encode(source, form, settings, tmp_path / "out").pictures
    qps = {picture.poc: picture.qp for picture in pictures}
    wanted = {"ra": {0: 29, 32: 29, 16: 34, 8: 35, 24: 35}, "ldb": {0: 31, 8: 33, 16: 33, 24: 33, 32: 33}}[
        configuration
    ]
    assert {poc: qps[poc] for poc in wanted} == wanted
    assert sum(picture.slice_type == "I" for picture in pictures) == (2 if configuration == "ra" else 1)
    with pytest.raises(EncoderError, match="at QP 32"):
        verify_slice_qp(pictures, replace(settings, ctc=False), "clip")


def test_a_missing_or_unsuitable_ffmpeg_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CODECNN_FFMPEG", str(tmp_path / "none"))
    with pytest.raises(ToolMissingError, match="CODECNN_FFMPEG"):
        get_codec("vvc").identity()
    poor = tmp_path / "ffmpeg"
    poor.write_text("#!/bin/sh\necho 'ffmpeg version 1'\n")
    poor.chmod(0o755)
    monkeypatch.setenv("CODECNN_FFMPEG", str(poor))
    with pytest.raises(ToolMissingError, match="libvvenc"):
        get_codec("vvc").identity()


PARAMS = {"IntraPeriod": "16", "DecodingRefreshType": "idr"}
"""Parameters of the golden streams of tiny clips that differ from CONFIGURATION_PARAMS."""


def _coded_again(golden_file, name, tmp_path):
    """Code a golden stream's source with its recipe; returns the sequence and the golden file's stem."""
    stem = golden_file(f"vvc/{name}.json").with_suffix("")
    recipe = json.loads(stem.with_suffix(".json").read_text())
    form = VideoFormat(recipe["w"], recipe["h"], "420", 8, recipe["fps"])
    configuration = "ra" if "_ra_" in name else "ldb" if "_ld_" in name else "ai"
    settings = CodecSettings(
        recipe["qp"],
        preset=recipe["preset"],
        configuration=configuration,
        ctu_size=int(recipe["params"].split("CTUSize=")[1].split(":")[0]),
        internal_bit_depth=8 if "InternalBitDepth=8" in recipe["params"] else 10,
        loop_filters="LoopFilterDisable" not in recipe["params"],
        params={key: value for key, value in PARAMS.items() if f"{key}={value}" in recipe["params"]},
    )
    source = golden_file(f"sources/{recipe['src']}")
    return get_codec("vvc").encode(source, form, settings, tmp_path), stem, form, source


@pytest.mark.parametrize(
    "name",
    [
        "tiny64x64_ai_qp32",
        "tiny136x72_ai_qp32",
        "tinyclip128x64_ra_qp37",
        "tinyclip128x64_ld_qp37",
        "edo0_nolf_qp37",
        "astronaut_ai_ibd8_qp37",
    ],
)
def test_equal_to_a_stream_coded_elsewhere(golden_file, tmp_path, name):
    sequence, stem, form, source = _coded_again(golden_file, name, tmp_path)
    assert sequence.bitstream.read_bytes() == stem.with_suffix(".266").read_bytes()
    assert hashlib.md5(sequence.decoded.read_bytes()).hexdigest() == stem.with_suffix(".md5").read_text().split()[0]
    golden = parse_log(gzip.decompress(stem.with_suffix(".enclog.gz").read_bytes()).decode())
    assert sequence.pictures == golden
    with open_raw(source, form) as originals, open_raw(sequence.decoded, sequence.format) as outputs:
        for coded, original, output in zip(golden, originals, outputs, strict=True):
            luma, depth = convert(original, output.bit_depth).y, output.bit_depth
            assert psnr(luma, output.y, depth) == pytest.approx(coded.psnr_y, abs=1e-4)
            if depth > 8:
                assert psnr(luma, output.y, depth, peak="full") == pytest.approx(coded.psnr_y + 0.0255, abs=1e-3)


def test_argv_and_log_do_not_contain_folders(golden_file, tmp_path):
    sequence, _, _, source = _coded_again(golden_file, "tiny64x64_ai_qp32", tmp_path)
    text = " ".join(sequence.argv) + sequence.log.read_text()
    assert str(tmp_path) not in text
    assert str(source.parent) not in text


def test_threads_do_not_change_the_stream(golden_file, tmp_path):
    source = golden_file("sources/chelsea_178x130_8b420.yuv")
    form = VideoFormat(178, 130, "420", 8)
    streams = []
    for threads in (1, 2):
        settings = CodecSettings(37, preset="faster", threads=threads)
        sequence = get_codec("vvc").encode(source, form, settings, tmp_path / str(threads))
        streams.append((sequence.bitstream.read_bytes(), sequence.log.read_text()))
    assert streams[0] == streams[1]


def test_an_empty_stream_is_coded_again(monkeypatch, tmp_path):
    """ffmpeg sporadically writes an empty stream with 7 to 10 pictures; the second run gives the same results."""
    source = tmp_path / "noise.yuv"
    np.random.default_rng(0).integers(400, 600, 8 * 64 * 64 * 3 // 2).astype("<u2").tofile(source)
    runs = []

    def emptied(argv, *, what, cwd=None):
        done = run(argv, what=what, cwd=cwd)
        runs.append(" ".join(argv))
        if len(runs) == 1:
            (tmp_path / "again" / "bitstream.266").write_bytes(b"")
        return done

    settings = CodecSettings(42, preset="faster")
    once = get_codec("vvc").encode(source, SMALL, settings, tmp_path / "once")
    monkeypatch.setattr(libvvenc, "run", emptied)
    again = get_codec("vvc").encode(source, SMALL, settings, tmp_path / "again")
    assert len(runs) == 2
    assert "MaxParallelFrames=0" in runs[1]
    assert len(again.pictures) == 8
    for name in ("bitstream", "decoded", "log"):
        assert getattr(again, name).read_bytes() == getattr(once, name).read_bytes(), name
    assert again.argv == once.argv


def _written(path, value):
    np.full(64 * 64 * 3 // 2, value, "<u2").tofile(path)
    return path


def test_a_decoded_picture_that_contradicts_the_log_is_refused(tmp_path):
    source, decoded = _written(tmp_path / "a.yuv", 500), _written(tmp_path / "b.yuv", 502)
    psnrs = [psnr(np.full((2, 2), 500), np.full((2, 2), 502), 10)] * 3
    right = CodedPicture(0, "I", 32, 1, *psnrs)
    verify_decoded("x", source, SMALL, decoded, SMALL, [right])
    for wrong, message in (
        ([replace(right, psnr_y=right.psnr_y + 3e-4)], "PSNR Y"),
        ([replace(right, md5=("0",) * 3)], "MD5"),
        ([right] * 2, "2 pictures were coded and 1 decoded"),
    ):
        with pytest.raises(EncoderError, match=message):
            verify_decoded("x", source, SMALL, decoded, SMALL, wrong)


@pytest.mark.parametrize("bit_depth", [8, 10])
def test_grey_pictures_are_not_rescaled(tmp_path, bit_depth):
    # encode() itself refuses a decoded picture that does not have the PSNR that the encoder computed.
    rng = np.random.default_rng(3)
    form = VideoFormat(64, 48, "400", bit_depth)
    samples = np.linspace(0, 2**bit_depth - 1, 64)[None, :] + rng.integers(-1, 1, (48, 64))
    samples = np.clip(samples, 0, 2**bit_depth - 1)
    source = tmp_path / "grey.yuv"
    samples.astype(form.dtype).tofile(source)
    sequence = get_codec("vvc").encode(source, form, CodecSettings(12, preset="faster"), tmp_path)
    assert sequence.format.chroma == "400"
    with open_raw(sequence.decoded, sequence.format) as video:
        expected = samples.astype(int) * (4 if bit_depth == 8 else 1)
        assert np.abs(video[0].y.astype(int) - expected).max() <= 8
    assert sequence.pictures[0].psnr_u is None


def test_a_picture_that_exceeds_the_buffer_of_ffmpeg_is_an_error(tmp_path):
    source = tmp_path / "noise.yuv"
    np.random.default_rng(0).integers(0, 1024, 64 * 64 * 3 // 2).astype("<u2").tofile(source)
    with pytest.raises(EncoderError, match="low QPs"):
        get_codec("vvc").encode(source, SMALL, CodecSettings(0, preset="faster"), tmp_path)
