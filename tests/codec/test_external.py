"""External encoder programs: their command lines, their logs, and complete runs with stand-in programs.

The stand-ins have the command line of the real programs and code with the ffmpeg of imageio-ffmpeg, so bitstreams,
hashes and PSNR are real. They compute hashes and PSNR without codecnn.
"""

import gzip
import hashlib
import re
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from codecnn.base.errors import ConfigError, EncoderError, FormatError, MissingFileError, ToolMissingError
from codecnn.codec import VTM, VVENC, CodecSettings, CodecTools, VvcCodec, block_table, get_codec
from codecnn.codec.checks import verify_slice_qp
from codecnn.codec.encoders.external import Job, find_program, program_info
from codecnn.codec.encoders.jvet_log import parse_log
from codecnn.codec.encoders.program_arguments import hm_arguments, vtm_arguments, vvenc_arguments
from codecnn.pictures.files import VideoFormat, ffmpeg_path, open_raw
from tests.helpers.clips import write_clip
from tests.helpers.standin_programs import write_program

VIDEO, SMALL = VideoFormat(416, 240, "420", 8, Fraction(50)), VideoFormat(64, 64, "420", 8)
AT_37 = CodecSettings(37)


def words(text: str) -> list[str]:
    """Split a text into words; ~ is a space inside a word."""
    return [word.replace("~", " ") for word in text.split()]


ALWAYS = words("""
    InputFile BitstreamFile ReconFile SourceWidth SourceHeight FrameRate FramesToBeEncoded InputBitDepth
    InternalBitDepth OutputBitDepth InputChromaFormat QP SEIDecodedPictureHash
""")
VTM_15 = frozenset(ALWAYS) | set(
    words("""
    IntraQPOffset MaxDeltaQP DeltaQpRD RateControl AdaptiveQP PerceptQPA TemporalFilter LumaLevelToDeltaQPMode FrameSkip
    TemporalSubsampleRatio ConformanceWindowMode SAO ALF CCALF DeblockingFilterDisable LMCSEnable EncDbOpt CTUSize
""")
)
VTM_10 = (VTM_15 - {"DeblockingFilterDisable"}) | {"LoopFilterDisable"}
HM_16 = frozenset(ALWAYS) | set(
    words("""
    MaxDeltaQP DeltaQpRD RateControl AdaptiveQP FrameSkip ConformanceWindowMode SAO LoopFilterDisable MaxCUWidth
    MaxCUHeight MaxPartitionDepth QuadtreeTULog2MaxSize
""")
)
VVENCAPP = words("""
    input size format framerate framescale frames preset qp qpa threads verbosity stats output additional
""")


def job(options, *, cfg=(), video=VIDEO, source="/a.yuv", frames=1, **settings) -> Job:
    """Create a job; the default QP is 32."""
    return Job(frozenset(options), source, video, frames, CodecSettings(**{"qp": 32, **settings}), list(cfg))


def test_vtm_arguments():
    settings = {"qp": 37, "ctu_size": 128, "params": {"MTT": "1 2"}}
    three = job(VTM_15, cfg=["/c/intra.cfg", "/c/class.cfg"], source="/v/-a b.yuv", frames=3, **settings)
    assert vtm_arguments(three) == words("""
        -c /c/intra.cfg -c /c/class.cfg --SourceWidth=416 --SourceHeight=240 --FrameRate=50 --FramesToBeEncoded=3
        --InputBitDepth=8 --InternalBitDepth=10 --OutputBitDepth=10 --InputChromaFormat=420 --QP=37 --IntraQPOffset=0
        --MaxDeltaQP=0 --DeltaQpRD=0 --RateControl=0 --AdaptiveQP=0 --PerceptQPA=0 --LumaLevelToDeltaQPMode=0
        --TemporalFilter=0 --FrameSkip=0 --TemporalSubsampleRatio=1 --ConformanceWindowMode=1 --CTUSize=128 --MTT=1~2
        --InputFile=/v/-a~b.yuv --BitstreamFile=bitstream.266 --ReconFile=reconstruction.yuv --SEIDecodedPictureHash=1
    """)


@pytest.mark.parametrize(("configuration", "period"), [("ra", ["--IntraPeriod=64"]), ("ldb", []), ("ai", [])])
def test_vtm_takes_the_common_test_conditions_from_its_files(configuration, period):
    """Only the intra QP offset and the temporal pre-filter are not switched off."""
    options = VTM_15 | {"IntraPeriod"}
    plain, ctc = (set(vtm_arguments(job(options, configuration=configuration, ctc=value))) for value in (False, True))
    assert plain - ctc == {"--IntraQPOffset=0", "--TemporalFilter=0"}
    assert sorted(ctc - plain) == period


@pytest.mark.parametrize(
    ("ctu_size", "more"),
    [
        (128, set()),
        (64, {"--MaxBTNonISlice=64"}),
        (32, {"--MaxBTNonISlice=32", "--MaxBTChromaISlice=32", "--MaxTTNonISlice=32", "--Log2MaxTbSize=5"}),
    ],
)
def test_vtm_splits_no_block_larger_than_a_ctu(ctu_size, more):
    """VTM 23 exits if its largest splits exceed the CTU; the options of VTM 15 here do not include them."""
    names = {"MaxBTNonISlice", "MaxBTChromaISlice", "MaxTTNonISlice", "Log2MaxTbSize", "MaxBTLumaISlice"}
    plain = set(vtm_arguments(job(VTM_15, ctu_size=ctu_size)))
    assert f"--CTUSize={ctu_size}" in plain
    assert set(vtm_arguments(job(VTM_15 | names, ctu_size=ctu_size))) - plain == more


def test_hm_arguments():
    grey = VideoFormat(416, 240, "400", 10, Fraction(30000, 1001))
    settings = {"qp": 22, "ctu_size": 16, "loop_filters": False}
    assert hm_arguments(job(HM_16, cfg=["/c/x.cfg"], video=grey, source="/v/a.yuv", **settings)) == words("""
        -c /c/x.cfg --SourceWidth=416 --SourceHeight=240 --FrameRate=30 --FramesToBeEncoded=1 --InputBitDepth=10
        --InternalBitDepth=10 --OutputBitDepth=10 --InputChromaFormat=400 --QP=22 --MaxDeltaQP=0 --DeltaQpRD=0
        --RateControl=0 --AdaptiveQP=0 --FrameSkip=0 --ConformanceWindowMode=1 --LoopFilterDisable=1 --SAO=0
        --MaxCUWidth=16 --MaxCUHeight=16 --MaxPartitionDepth=2 --QuadtreeTULog2MaxSize=4
        --InputFile=/v/a.yuv --BitstreamFile=bitstream.265 --ReconFile=reconstruction.yuv --SEIDecodedPictureHash=1
    """)


@pytest.mark.parametrize(("ctu", "depth", "transform"), [(64, "4", "5"), (32, "3", "5"), (16, "2", "4")])
def test_hm_coding_tree_ends_at_8x8(ctu, depth, transform):
    arguments = hm_arguments(job(HM_16, ctu_size=ctu))
    assert {f"--MaxPartitionDepth={depth}", f"--QuadtreeTULog2MaxSize={transform}"} <= set(arguments)


@pytest.mark.parametrize(("options", "name"), [(VTM_15, "Deblocking"), (VTM_10, "Loop")])
def test_vtm_loop_filters_off(options, name):
    on = set(vtm_arguments(job(options)))
    off = set(vtm_arguments(job(options, loop_filters=False)))
    filters = {"--SAO=0", "--ALF=0", "--CCALF=0", "--LMCSEnable=0", "--EncDbOpt=0"}
    assert off - on == {f"--{name}FilterDisable=1", *filters}
    unfiltered = set(vtm_arguments(job(options, unfiltered=True)))
    assert unfiltered - on == {"--LMCSEnable=0", "--EncDbOpt=0"}


def test_loop_filters_that_cannot_be_switched_off_are_an_error():
    with pytest.raises(EncoderError, match="LoopFilterDisable"):
        vtm_arguments(job(ALWAYS, loop_filters=False))


VVENC_PARAMS = (
    "IntraPeriod=1:DecodingRefreshType=idr:IntraQPOffset=0:GOPQPA=0:MCTF=0:BIM=0:LookAhead=0:STA=0:"
    "CTUSize=64:SEIDecodedPictureHash=md5"
)


def test_vvencapp_arguments():
    rate = replace(VIDEO, fps=Fraction(30000, 1001))
    settings = {"source": "/v/a.yuv", "frames": 4, "qp": 27, "preset": "fast", "ctu_size": 64, "threads": 2}
    assert vvenc_arguments(job({"additional", "stats"}, video=rate, **settings)) == words(f"""
        --input=/v/a.yuv --size=416x240 --format=yuv420 --framerate=30000 --framescale=1001 --frames=4 --preset=fast
        --qp=27 --qpa=0 --threads=2 --verbosity=6 --stats=0 --output=bitstream.266 --additional={VVENC_PARAMS}
    """)
    ten = vvenc_arguments(job({"additional"}, video=replace(VIDEO, bit_depth=10), **settings))
    assert "--format=yuv420_10" in ten
    assert "--stats=0" not in ten


def test_vvencffapp_arguments():
    settings = {"qp": 27, "preset": "fast", "ctu_size": 64}
    params = VVENC_PARAMS.replace(":", " --")
    four = job({"InputFile"}, cfg=["/c/x.cfg"], source="/v/a.yuv", frames=4, **settings)
    assert vvenc_arguments(four) == words(f"""
        --preset=fast -c /c/x.cfg --InputFile=/v/a.yuv --Size=416x240 --InputBitDepth=8 --InputChromaFormat=420
        --FramesToBeEncoded=4 --FrameRate=50 --FrameScale=1 --QP=27 --PerceptQPA=0 --Threads=1 --{params} --Verbosity=6
        --BitstreamFile=bitstream.266
    """)
    grey = vvenc_arguments(job({"InputFile"}, video=replace(VIDEO, chroma="400"), **settings))
    assert {"--InputChromaFormat=400", "--ChromaFormatIDC=400"} <= set(grey)


@pytest.mark.parametrize("settings", [{"unfiltered": True}, {"loop_filters": False}])
def test_vvenc_switches_edo_off_with_and_without_filters(settings):
    arguments = vvenc_arguments(job({"InputFile"}, **settings))
    assert "--EDO=0" in arguments
    assert ("--LoopFilterDisable=1" in arguments) == ("loop_filters" in settings)


@pytest.mark.parametrize(
    ("options", "video", "settings", "error", "words"),
    [
        ({"additional"}, VIDEO, {"cfg": ["/c/x.cfg"]}, ConfigError, "vvencFFapp"),
        ({"additional"}, replace(VIDEO, chroma="400"), {}, ConfigError, "4:2:0, not 400"),
        (set(), VIDEO, {}, ToolMissingError, "--additional"),
        ({"additional"}, VIDEO, {"preset": "placebo"}, ConfigError, "placebo"),
        ({"additional"}, VideoFormat(63, 64, "420", 8), {}, FormatError, "63x64"),
        (VTM_15, VIDEO, {"preset": "slow"}, ConfigError, "slow"),
        (VTM_15, VideoFormat(64, 63, "420", 8), {}, FormatError, "64x63"),
        (VTM_15, VideoFormat(64, 64, "420", 10), {"internal_bit_depth": 8}, ConfigError, "10 bit"),
        (VTM_15, VIDEO, {"params": {"A B": "1"}}, ConfigError, "A B"),
        (VTM_15, VIDEO, {"params": {"A": "1\n2"}}, ConfigError, "plain"),
        (VTM_15, VIDEO, {"ctu_size": 16}, ConfigError, "16"),
        (HM_16, VIDEO, {"qp": 52}, ConfigError, "52"),
        (HM_16, VIDEO, {"ctu_size": 128}, ConfigError, "128"),
    ],
)
def test_unsupported_settings_are_refused(options, video, settings, error, words):
    arguments = {VTM_15: vtm_arguments, HM_16: hm_arguments}.get(frozenset(options), vvenc_arguments)
    with pytest.raises(error, match=words):
        arguments(job(options, video=video, **settings))


def test_odd_sizes_are_coded_if_the_chroma_format_allows_them():
    assert "--SourceHeight=63" in vtm_arguments(job(VTM_15, video=VideoFormat(64, 63, "422", 8)))


# The forms of EncGOP.cpp (VTM 19) and TEncGOP.cpp (HM 16) with plausible figures, in coding order.
VTM_LOG = """
VVCSoftware: VTM Encoder Version 19.0 [Linux][GCC 11.3.0][64 bit] [SIMD=AVX2]

TOOL CFG: IBD:1 HAD:1 RDQ:1
 started @ Sat Jul 29 22:33:37 2023
POC    0 LId:  0 TId: 0 ( IDR_N_LP, I-SLICE, QP 32 )     398392 bits [Y 36.6308 dB    U 46.5007 dB    V 47.0050 dB] \
[ET   144 ] [L0] [L1] [MD5:0a,1b,2c]
POC    4 LId:  0 TId: 0 ( STSA, B-SLICE, QP 33 )      18392 bits [Y 35.6308 dB    U 45.5007 dB    V 46.0050 dB] \
[ET     4 ] [L0 0] [L1 0] [MD5:3a,4b,5c]
POC    2 LId:  0 TId: 1 ( TRAIL, B-SLICE, QP 36 )       8392 bits [Y 34.6308 dB    U 44.5007 dB    V 45.0050 dB] \
[ET     2 ] [L0 0 4] [L1 4 0]
POC    1 LId:  0 TId: 2 ( TRAIL, b-SLICE, QP 38 )       1392 bits [Y 33.6308 dB    U 43.5007 dB    V    inf dB] \
[Y MSE 12.0000  U MSE 1.0000  V MSE 0.0000] [ET     1 ] [L0 0 2] [L1 2 4] [MD5:6a,7b,8c]
POC    3 LId:  0 TId: 2 ( TRAIL, b-SLICE, QP 38 )       1400 bits [Y 33.0308 dB    U 43.0007 dB    V 44.0000 dB] \
[ET     1 ] [L0 2 0] [L1 4 2] [MD5:9a,ab,bc]

 finished @ Sat Jul 29 22:36:13 2023
"""


def test_a_random_access_log_is_read_in_output_order():
    pictures = parse_log(VTM_LOG, 3)
    assert [picture.poc for picture in pictures] == [0, 1, 2, 3, 4]
    assert [picture.qp for picture in pictures] == [32, 38, 36, 38, 33]
    assert [picture.slice_type for picture in pictures] == ["I", "B", "B", "B", "B"]
    assert [picture.bits for picture in pictures] == [398392, 1392, 8392, 1400, 18392]
    assert pictures[1].psnr_v == float("inf")
    assert pictures[1].md5 == ("6a", "7b", "8c")
    assert pictures[2].md5 == ()
    verify_slice_qp(pictures, CodecSettings(32, configuration="ra"), "x")
    with pytest.raises(EncoderError, match="POC 0"):
        verify_slice_qp(pictures, CodecSettings(35, configuration="ra"), "x")


HM_LINE = "POC {:4d} TId: 0 ( {}-SLICE, {}QP {} ) {:10d} bits [Y {:6.4f} dB    U {:6.4f} dB    V {:6.4f} dB]"


@pytest.mark.parametrize("base", ["", "nQP 22 "])
def test_hm_and_older_vtm_state_no_nal_type(base):
    line = HM_LINE.format(7, "P", base, 25, 12345, 40.5, 0.0, 0.0) + " [ET     0 ] [L0 0 ] [L1 ] [MD5:aa]"
    (picture,) = parse_log(line, 1)
    assert (picture.poc, picture.slice_type, picture.qp, picture.bits) == (7, "P", 25, 12345)
    assert (picture.psnr_y, picture.psnr_u, picture.psnr_v, picture.md5) == (40.5, None, None, ("aa",))


def test_hm_restarts_poc_at_idr_pictures():
    lines = [
        HM_LINE.format(poc, kind, "", 32, bits, 1, 1, 1)
        for poc, kind, bits in ((0, "I", 9), (2, "B", 8), (1, "b", 7), (0, "I", 6), (1, "P", 5))
    ]
    pictures = parse_log("\n".join(lines), 3)
    assert [(picture.poc, picture.bits) for picture in pictures] == [(0, 9), (1, 7), (2, 8), (3, 6), (4, 5)]
    with pytest.raises(EncoderError, match="POC 2 twice"):
        parse_log("\n".join([*lines[:2], lines[1]]), 3)


def test_a_wrong_number_of_hashes_is_an_error():
    with pytest.raises(EncoderError, match="3 MD5 for 1 planes"):
        parse_log(VTM_LOG, 1)


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Return the folder in which the stand-ins keep coded streams."""
    return str(tmp_path_factory.mktemp("coded"))


@pytest.fixture
def make(tmp_path, cache):
    """Return a function that creates a back end with a stand-in for its encoder."""

    def codec(name="vtm", mode="", options=VTM_15, **tools):
        setup = {"kind": name, "mode": mode, "options": sorted(options), "ffmpeg": ffmpeg_path(), "cache": cache}
        encoder = write_program(tmp_path / "bin" / f"{name} {mode}", "encoder", **setup)
        return get_codec(name, CodecTools(encoder=encoder, **tools))

    return codec


def _decoder(path, mode="", options=("TraceFile", "TraceRule", "prediction")):
    return write_program(path, "decoder", mode=mode, options=options, ffmpeg=ffmpeg_path())


@pytest.fixture
def cfg(tmp_path):
    """Write a configuration file whose QP the settings must override."""
    path = tmp_path / "cfg" / "encoder_intra_vtm.cfg"
    path.parent.mkdir()
    path.write_text("QP : 50\n")
    return (path,)


@pytest.fixture
def source(tmp_path):
    """Write two pictures of the format SMALL."""
    return write_clip(tmp_path / "a.yuv", SMALL)


@pytest.fixture
def coded(tmp_path, make, cfg, source):
    """Return a function that codes `source` with a stand-in for VTM into the folder `o`."""

    def encode(mode="", settings=AT_37, folder="o", **tools):
        return make(mode=mode, cfg=cfg, **tools).encode(source, SMALL, settings, tmp_path / folder)

    return encode


def test_vtm_codes_files_with_unusual_names(tmp_path, make, cfg):
    source = write_clip(tmp_path / "-my videos" / "-a 64x64.yuv", SMALL)
    codec = make(cfg=cfg)
    sequence = codec.encode(source, SMALL, AT_37, tmp_path / "-out put")
    program = hashlib.sha256(Path(codec.tools.encoder).read_bytes()).hexdigest()[:12]
    assert sequence.format == VideoFormat(64, 64, "420", 10)
    assert [(each.poc, each.slice_type, each.qp) for each in sequence.pictures] == [(0, "I", 37), (1, "I", 37)]
    with open_raw(sequence.decoded, sequence.format) as decoded:
        assert hashlib.md5(decoded[1].planes[2].tobytes()).hexdigest() == sequence.pictures[1].md5[2]
    digest = hashlib.sha256(cfg[0].read_bytes()).hexdigest()[:12]
    assert sequence.encoder.startswith(f"VTM 23.13 ({program}), cfg {digest}, ffmpeg ")
    assert sequence.argv[:3] == ("vtm ", "-c", "encoder_intra_vtm.cfg")
    assert "--InputFile=-a 64x64.yuv" in sequence.argv
    assert not any("/" in part for part in sequence.argv)
    files = sorted(path.name for path in (tmp_path / "-out put").iterdir())
    assert files == ["bitstream.266", "decoded.yuv", "log.txt"]
    table = block_table(sequence)
    assert set(table.poc.tolist()) == {0, 1}
    assert set(table.qp.tolist()) == {37}


def test_the_log_is_reproducible(tmp_path, coded):
    logs = [coded(folder=name).log.read_text() for name in ("one", "two")]
    assert logs[0] == logs[1]
    assert "TOOL CFG: IBD:1" in logs[0]
    assert "I-SLICE, QP 37" in logs[0]
    assert not any(word in logs[0] for word in (str(tmp_path), "SIMD", "started", "[ET"))


@pytest.mark.parametrize(("chroma", "depth", "internal"), [("420", 8, 8), ("420", 8, 10), ("400", 10, 10)])
def test_hm_codes_all_bit_depths(tmp_path, make, cfg, chroma, depth, internal):
    video = VideoFormat(72, 56, chroma, depth)
    settings = CodecSettings(30, internal_bit_depth=internal)
    codec = make("hm", options=HM_16, cfg=cfg)
    sequence = codec.encode(write_clip(tmp_path / "a.yuv", video), video, settings, tmp_path / "o")
    assert sequence.bitstream.name == "bitstream.265"
    assert sequence.encoder.startswith("HM 16.20 (")
    assert sequence.format.bit_depth == internal
    assert len(sequence.pictures[0].md5) == len(video.plane_shapes)
    assert block_table(sequence) is None


def test_vvencapp_codes_the_same_pictures_as_libvvenc(tmp_path, make, source):
    settings = CodecSettings(37, preset="faster", params={"EDO": "0"})
    sequence = make("vvencapp", options=VVENCAPP).encode(source, SMALL, settings, tmp_path / "o")
    bundled = VvcCodec().encode(source, SMALL, settings, tmp_path / "b")
    assert sequence.decoded.read_bytes() == bundled.decoded.read_bytes()
    assert block_table(sequence).to_arrow() == block_table(bundled).to_arrow()
    assert re.match(r"vvenc 1\.13\.0 \([0-9a-f]{12}\), ffmpeg ", sequence.encoder)


@pytest.mark.parametrize(("name", "options"), [("vtm", VTM_10), ("hm", HM_16)])
def test_unfiltered_pictures_are_those_of_an_encode_without_filters(tmp_path, make, cfg, name, options):
    video = VideoFormat(136, 72, "420", 8)
    codec, source = make(name, options=options, cfg=cfg), write_clip(tmp_path / "a.yuv", video, 1)
    both = codec.encode(source, video, CodecSettings(42, unfiltered=True), tmp_path / "both")
    plain = codec.encode(source, video, CodecSettings(42, loop_filters=False), tmp_path / "plain")
    assert both.unfiltered == tmp_path / "both" / "unfiltered.yuv"
    assert both.unfiltered.read_bytes() == plain.decoded.read_bytes()
    assert both.unfiltered.read_bytes() != both.decoded.read_bytes()
    assert plain.unfiltered is None
    assert not [path for path in (tmp_path / "both").iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("fails", "exit status 1.*not to my liking"),
        ("garbage", "lists no picture"),
        ("qp", "QP 36, not as AI at QP 37"),
        ("md5", "POC 0: plane V decodes to another MD5"),
        ("psnr", "POC 0: PSNR Y"),
        ("reconstruction", "not those that the encoder wrote"),
        ("nostream", "no bitstream"),
        ("fewer", "2 pictures, the encoder's log 1"),
    ],
)
def test_a_faulty_encoder_is_detected(tmp_path, coded, mode, words):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "bitstream.266").write_text("left by an earlier run")
    with pytest.raises(EncoderError, match=words) as error:
        coded(mode)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "o" / "reconstruction.yuv").exists()


def test_a_log_without_hashes_is_accepted(coded):
    assert coded("nohash").pictures[0].md5 == ()


def test_an_unknown_option_of_the_program_is_an_error(coded):
    with pytest.raises(EncoderError, match="Unknown option: `Wrong'"):
        coded(settings=CodecSettings(37, params={"Wrong": "1"}))


def test_the_users_decoder_traces_and_predicts(tmp_path, coded):
    tools = {"decoder": _decoder(tmp_path / "bin" / "d"), "trace": True, "prediction": ("--prediction={output}",)}
    first, second = (coded(folder=name, **tools) for name in ("one", "two"))
    assert ", VTM Decoder Version 23.13 (" in first.encoder
    assert first.prediction == tmp_path / "one" / "prediction.yuv"
    with open_raw(first.prediction, first.format) as prediction:
        assert len(prediction) == 2
    assert first.block_statistics == tmp_path / "one" / "blocks.vtmbmsstats.gz"
    assert first.block_statistics.read_bytes() == second.block_statistics.read_bytes()
    assert gzip.decompress(first.block_statistics.read_bytes()).startswith(b"# VTMBMS")
    table = block_table(first)
    assert (table.x[0], table.w[0], table.depth[0], table.qp[0]) == (32, 32, 1, 37)
    assert not (tmp_path / "one" / "blocks.vtmbmsstats").exists()


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("notrace", "ENABLE_TRACING"),
        ("noprediction", "wrote no prediction"),
        ("short", "not raw YUV"),
        ("fewer", "has 1 pictures, 2 were coded"),
    ],
)
def test_a_faulty_decoder_is_detected(tmp_path, coded, mode, words):
    decoder = _decoder(tmp_path / "bin" / "d", mode)
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "prediction.yuv").write_bytes(bytes(2 * 64 * 64 * 3))
    with pytest.raises(EncoderError, match=words):
        coded(decoder=decoder, trace=True, prediction=("--prediction={output}",))


def test_a_decoder_built_without_tracing_is_refused(tmp_path, coded):
    with pytest.raises(EncoderError, match="TraceFile"):
        coded(decoder=_decoder(tmp_path / "bin" / "d", options=()), trace=True)


@pytest.mark.parametrize(("name", "program"), [("vtm", "EncoderApp"), ("hm", "TAppEncoder"), ("vvencapp", "vvencapp")])
def test_a_missing_encoder_is_an_error(tmp_path, monkeypatch, cfg, name, program):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match=rf"{program}\b.*not in PATH.*tools: {{encoder: FILE}}.*https://"):
        get_codec(name, CodecTools(cfg=cfg)).identity()
    with pytest.raises(ToolMissingError, match=r"nowhere, which is not an executable"):
        get_codec(name, CodecTools(encoder="/nowhere")).identity()


def test_usual_names_are_looked_up_in_path(tmp_path, monkeypatch, make, cfg):
    encoder = Path(make().tools.encoder)
    for name in ("EncoderApp", "EncoderAppStatic"):
        (encoder.parent / name).symlink_to(encoder)
    _decoder(encoder.parent / "DecoderApp")
    monkeypatch.setenv("PATH", str(encoder.parent))
    path = find_program(VTM, "encoder", None)
    assert path == str(encoder.parent / "EncoderAppStatic")
    plain, traced = (get_codec("vtm", CodecTools(cfg=cfg, trace=trace)).identity() for trace in (False, True))
    assert "ffmpeg" in plain
    assert re.search(r"VTM Decoder Version 23\.13 \([0-9a-f]{12}\)$", traced)


def test_another_program_is_refused(tmp_path, cfg):
    with pytest.raises(ToolMissingError, match="another program"):
        get_codec("vtm", CodecTools(encoder=sys.executable, cfg=cfg)).identity()
    empty = tmp_path / "empty"
    empty.write_text("not a program")
    empty.chmod(0o755)
    with pytest.raises(ToolMissingError, match="cannot be started"):
        get_codec("vtm", CodecTools(encoder=str(empty), cfg=cfg)).identity()


@pytest.mark.parametrize(("configuration", "kind"), [("ai", "intra"), ("ra", "randomaccess"), ("ldb", "lowdelay")])
@pytest.mark.parametrize(("name", "suffix"), [("vtm", "vtm"), ("hm", "main10")])
def test_test_models_need_their_configuration_files(tmp_path, source, name, suffix, configuration, kind):
    codec = get_codec(name, CodecTools(encoder="x"))
    with pytest.raises(ConfigError, match=f"encoder_{kind}_{suffix}.cfg"):
        codec.encode(source, SMALL, CodecSettings(32, configuration=configuration), tmp_path / "o")


def test_a_missing_configuration_file_is_an_error(tmp_path, make, source):
    codec = make(cfg=(tmp_path / "none.cfg",))
    with pytest.raises(MissingFileError, match=r"none\.cfg"):
        codec.identity()
    with pytest.raises(MissingFileError, match=r"none\.cfg"):
        codec.encode(source, SMALL, CodecSettings(32), tmp_path / "o")


def test_the_identity_depends_on_the_cfg_content(make, cfg):
    codec = make(cfg=cfg)
    before = codec.identity()
    cfg[0].write_text("QP : 50\nALF : 0\n")
    assert codec.identity() != before


def test_the_identity_depends_on_the_file_of_the_program(make, cfg):
    """A patched encoder can have the banner of the original."""
    codec = make(cfg=cfg)
    before = codec.identity()
    program = Path(codec.tools.encoder)
    program.write_text(f"{program.read_text()}# patched\n")
    after = codec.identity()
    assert after != before
    assert after.split(" (")[0] == before.split(" (")[0] == "VTM 23.13"


def test_unsupported_tools_are_refused():
    for name in ("vvc", "hevc"):
        assert get_codec(name, CodecTools()).name == name
        with pytest.raises(ConfigError, match=f"{name} takes no tools"):
            get_codec(name, CodecTools(decoder="x"))
    for name in ("hm", "vvencapp"):
        with pytest.raises(ConfigError, match="only vtm"):
            get_codec(name, CodecTools(trace=True))
    with pytest.raises(ConfigError, match="output"):
        get_codec("vtm", CodecTools(prediction=("--pred",)))
    with pytest.raises(ConfigError, match="vvencapp"):
        get_codec("x264")


def test_the_help_of_vvenc_is_read(tmp_path):
    """The lines are those of vvencFFapp 1.10.0."""
    program = tmp_path / "vvencFFapp"
    program.write_text(
        f"#!{sys.executable}\nprint('''vvencFFapp: VVenC, the Fraunhofer H.266/VVC Encoder, version 1.10.0 [Linux]\n"
        "#======== Input Options ================\n  -i,   --InputFile []               Original YUV\n"
        "  -fr,  --FrameRate [0]              Temporal rate\n        --FrameScale [1]             see --Nothing\n"
        "  -c   []                            configuration file name\n''')\n"
    )
    program.chmod(0o755)
    info = program_info(str(program), VVENC.help_option, VVENC.version)
    assert info.version == "1.10.0"
    assert info.options == {"InputFile", "FrameRate", "FrameScale"}
