"""Sequences through a filter: QPs and planes from bitstreams, decisions, the command, and complete outputs only."""

import csv
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

import codecnn
from codecnn.base.errors import ConfigError, FormatError
from codecnn.codec import read_blocks
from codecnn.filtering import FloatFilter, auxiliary_planes, decide_video, filter_candidates, filter_video, stream_qps
from codecnn.models import create_model, save_weights
from codecnn.pictures.files import VideoFormat, create_video, forget_pages, map_file, open_video
from codecnn.pictures.metrics import psnr
from tests.helpers.networks import SMALL, awaken

FORM = VideoFormat(48, 32, "420", 10)


def network(std=0.12, **options):
    return awaken(create_model("rdn", **SMALL, **options), std=std)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, network(), "rdn", {})
    return path


@pytest.fixture
def filtering(run, weights, tmp_path):
    """Function that runs `codecnn filter`, and returns its text, the format of the output and the planes in it.

    With `refused` the command must fail without an output, and the function returns its message.
    """

    def call(source, *options, name="o_48x32_10bit.yuv", model=weights, refused=False):
        status, text, err = run("filter", "-m", model, "-i", source, "-o", tmp_path / name, *options)
        assert status == int(refused), err
        if refused:
            assert not list(tmp_path.glob(f"{name[:2]}*"))
            return err
        return text, *planes_of(tmp_path / name)

    return call


def write(path, form, pictures=3, seed=0):
    rng = np.random.default_rng(seed)
    with create_video(path, form) as out:
        for _ in range(pictures):
            low, high = 2**form.bit_depth // 4, 3 * 2**form.bit_depth // 4
            out.write([rng.integers(low, high, shape).astype(form.dtype) for shape in form.plane_shapes])
    return path


@pytest.fixture
def decoded(tmp_path):
    return write(tmp_path / "decoded_48x32_10bit.yuv", FORM)


def planes_of(path):
    """Read the format and all planes of a video."""
    with open_video(path) as video:
        return video.format, [[np.array(plane) for plane in picture.planes] for picture in video]


def same(first, second):
    """Compare the planes of pictures."""
    return all(
        np.array_equal(a, b)
        for planes, other_planes in zip(first, second, strict=True)
        for a, b in zip(planes, other_planes, strict=True)
    )


def traced_cus(stream):
    """Read the CUs of a golden stream as VTM traced them."""
    return csv.DictReader(gzip.decompress(stream.with_suffix(".cu.csv.gz").read_bytes()).decode().splitlines())


def test_the_qps_of_a_stream_come_in_output_order(golden_file):
    """The stream is coded in random access, with a QP for each picture; VTM's trace has the same QPs."""
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    traced = {int(row["poc"]): int(row["QP"]) for row in traced_cus(stream)}
    expected = [traced[poc] for poc in sorted(traced)]
    assert len(set(expected)) > 2
    assert stream_qps(stream, len(expected)) == expected
    assert stream_qps(stream, 3) == expected[:3]
    assert stream_qps(golden_file("hevc/clip_rab_amp_qp32.265"), 5) == [29, 34, 33, 34, 32]
    with pytest.raises(ConfigError, match=f"{len(expected)} .* 99"):
        stream_qps(stream, 99)


def test_a_stream_is_filtered_at_its_own_qps(filtering, golden_file):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    _, form, pictures = filtering(stream, "-f", 6, name="own.y4m")
    assert (form.width, form.height, form.bit_depth, len(pictures)) == (128, 64, 10, 6)
    assert same(pictures, expected(stream, stream_qps(stream, 6)))
    assert not same(pictures[1:2], expected(stream, [37] * 6)[1:2])


def expected(path, qps):
    """Filter the first pictures of a video, each at its QP, and return their planes."""
    filter_ = FloatFilter(network())
    with open_video(path, frames=len(qps)) as video:
        return [filter_(picture, qp).planes for picture, qp in zip(video, qps, strict=True)]


def test_qps_from_a_list_and_a_file(filtering, decoded, tmp_path):
    (tmp_path / "qps.txt").write_text("22\n32, 42\n")
    for qps in ("22,32,42", tmp_path / "qps.txt"):
        assert same(filtering(decoded, "-q", qps)[2], expected(decoded, (22, 32, 42)))


@pytest.mark.parametrize(("suffix", "bit_depth"), [("yuv", 8), ("y4m", 8), ("y4m", 10)])
def test_the_output_has_the_inputs_format(filtering, tmp_path, suffix, bit_depth):
    form = VideoFormat(33, 21, "420", bit_depth, 25)
    source = write(tmp_path / f"in_33x21_25_{bit_depth}bit.{suffix}", form)
    _, output_format, after = filtering(source, "-q", 32, "--tile", 16, name=f"out_33x21_25_{bit_depth}bit.{suffix}")
    assert output_format == form
    before = planes_of(source)[1]
    assert not same([p[:1] for p in before], [p[:1] for p in after])
    assert same([p[1:] for p in before], [p[1:] for p in after])


def test_the_summary_states_the_mean_psnr_before_and_after(filtering, decoded, tmp_path):
    original = tmp_path / "original_48x32_10bit.yuv"
    filter_ = FloatFilter(network())
    with open_video(decoded) as video, create_video(original, FORM) as out:
        for picture in video:
            y = filter_(picture, 37).y.astype(np.int64)
            y[::2, ::2] += 3
            out.write([np.clip(y, 0, 1023).astype(np.uint16), *picture.planes[1:]])
    text, _, pictures = filtering(decoded, "-q", 37, "--original", original)
    originals = planes_of(original)[1]
    before, after = (
        np.mean([psnr(one[0], other[0], 10) for one, other in zip(originals, each, strict=True)])
        for each in (planes_of(decoded)[1], pictures)
    )
    assert after > before
    assert f"{before:.2f} to {after:.2f} dB ({after - before:+.3f})" in text
    assert "PSNR Y" in text
    assert "PSNR U" not in text, "the network filters luma alone"


def test_decisions_of_a_sequence(filtering, decoded, tmp_path):
    """The filter is right in the left CTU of the first picture, nowhere in the second, everywhere in the third."""
    filter_ = FloatFilter(network())
    original = tmp_path / "original_48x32_10bit.yuv"
    with open_video(decoded) as video, create_video(original, FORM) as out:
        for number, picture in enumerate(video):
            y = np.array(picture.y)
            right = (slice(None), [slice(32), slice(0), slice(48)][number])
            y[right] = filter_(picture, 37).y[right]
            out.write([y, *picture.planes[1:]])
    stats = tmp_path / "d.vtmbmsstats"
    argv = (decoded, "-q", 37, "--ctu", 32, "--original", original, "--qp-offsets", "-5,5", "--decisions", stats)
    text, _, pictures = filtering(*argv, "--json")
    assert same(pictures, planes_of(original)[1])
    decisions = json.loads(text)["decisions"]
    assert decisions["pictures"] == {"off": 1, "on": 1, "ctu": 1}
    assert decisions["psnr_after"] == {"y": None}, "the pictures are equal to the originals"
    assert decisions["qp_offsets"] == {"0": 2}
    assert decisions["ctus_on"] == {"y": 0.5}
    assert decisions["pays"]
    assert decisions["rd_cost_after"] < decisions["rd_cost_before"]

    lines = stats.read_text().splitlines()
    assert "# Sequence size: [48x 32]" in lines
    flags = {}
    for line in lines:
        if match := re.fullmatch(r"BlockStat: POC (\d+) @\( *(\d+), *0\) \[(\d+)x32\] filter_y=([01])", line):
            flags[int(match[1]), int(match[2]), int(match[3])] = int(match[4])
    assert flags == {
        (poc, x, w): on
        for poc, left, right in ((0, 1, 0), (1, 0, 0), (2, 1, 1))
        for x, w, on in ((0, 32, left), (32, 16, right))
    }
    assert sum("scale_y=256" in line for line in lines) == 3
    assert sum("qp_offset=0" in line for line in lines) == 6

    text, _, _ = filtering(*argv)
    assert re.search(r"pictures +1 off, 1 on, 1 by CTU", text)
    assert re.search(r"CTUs on +Y 50.0%", text)


def test_the_number_of_originals_must_fit(filtering, decoded, tmp_path):
    longer = write(tmp_path / "longer_48x32_10bit.yuv", FORM, 4, seed=1)
    argv = (decoded, "-q", 37, "--original", longer)
    assert "longer_48x32_10bit.yuv has 4 pictures" in filtering(*argv, refused=True)
    assert len(filtering(*argv, "-f", 2)[2]) == 2


def test_an_original_without_a_format_in_its_name_has_that_of_the_input(filtering, decoded, tmp_path):
    silent = tmp_path / "original.yuv"
    silent.write_bytes(decoded.read_bytes())
    text, _, _ = filtering(decoded, "-q", 37, "--original", silent, "--json")
    assert json.loads(text)["decisions"]["pictures"]["off"] == 3


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ((), "decoded_48x32_10bit.yuv does not hold its slice QPs"),
        (("-q", "22,32"), "2 QPs were given for 3 pictures"),
        (("-q", "x"), "QP 'x' is not a whole number"),
        (("-q", "32", "--decisions", "d.vtmbmsstats"), "d.vtmbmsstats needs --original"),
        (("-q", "32", "--memory", "2 gigs"), "memory '2 gigs' is not a size"),
        (("-q", "32", "--memory", "1KiB"), "too little for pictures of 48x32"),
        (("-q", "32", "--plane", "unf_y"), "'unf_y' is not NAME=FILE"),
        (("-q", "32", "--plane", "unf_y={decoded}"), "the network takes no plane 'unf_y'"),
        (("-q", "32", "--original", "{decoded}", "--ctu", "48"), "CTU size 48"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(filtering, decoded, extra, sentence):
    extra = [text.replace("{decoded}", str(decoded)) for text in extra]
    assert sentence in filtering(decoded, *extra, refused=True)


def test_qps_are_read_from_hevc_streams(filtering, golden_file):
    stream = golden_file("hevc/chelsea178x130_ai_qp32_ctu32.265")
    from_stream, same_qp, other_qp = (filtering(stream, *q, name="o.y4m")[2][0] for q in ((), ("-q", 32), ("-q", 27)))
    assert same([from_stream], [same_qp])
    assert not same([from_stream], [other_qp])


def depth_plane(stream, poc, width, height):
    """Draw the depth of each sample as VTM traced it, in the loader's scale."""
    plane = np.zeros((height, width), np.float32)
    for row in traced_cus(stream):
        if row["channel"] == "L" and int(row["poc"]) == poc:
            x, y, w, h = (int(row[name]) for name in "xywh")
            plane[y : y + h, x : x + w] = int(row["depth"]) / 8
    return plane


@pytest.mark.parametrize("source", ["table", pytest.param("stream", marks=pytest.mark.slow)])
def test_planes_of_the_coding_tree_and_further_pictures(filtering, golden_file, tmp_path, source):
    """The CUs come from a table, or from the stream itself, which is slow because it may compile."""
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    model = network(planes=["rec_y", "unf_y", "depth", "qp"])
    save_weights(tmp_path / "w.safetensors", model, "rdn", {})
    unfiltered = write(tmp_path / "unf_128x64_10bit.yuv", VideoFormat(128, 64, "420", 10), 2)
    table = ("--blocks", stream.with_suffix(".vtmbmsstats.gz")) if source == "table" else ()
    options = ("-f", 2, "--plane", f"unf_y={unfiltered}", *table)
    _, _, pictures = filtering(stream, *options, name="o.y4m", model=tmp_path / "w.safetensors")
    filter_ = FloatFilter(model)
    qps = stream_qps(stream, 2)
    with open_video(stream, frames=2) as video, open_video(unfiltered) as unfiltered_video:
        for number, planes_out in enumerate(pictures):
            depth = depth_plane(stream, number, 128, 64)
            assert len(np.unique(depth)) > 2
            planes = {"unf_y": unfiltered_video[number].y, "depth": depth}
            np.testing.assert_array_equal(planes_out[0], filter_(video[number], qps[number], planes).y)


def test_qp_and_depth_form_one_plane(golden_file):
    table = read_blocks(golden_file("vvc/tinyclip128x64_ra_qp37.vtmbmsstats.gz"))
    form = VideoFormat(128, 64, "420", 10)
    planes = auxiliary_planes(["rec_y", "qp_depth", "depth", "cu_qp"], form, {}, table)(1)
    expected = (planes["cu_qp"] * 64 + 4 * planes["depth"] * 8) / 95
    assert len(np.unique(planes["depth"])) > 2
    np.testing.assert_allclose(planes["qp_depth"], expected, rtol=1e-6)


def test_planes_that_are_missing_or_do_not_fit(decoded, tmp_path):
    other = write(tmp_path / "other_48x32_8bit.yuv", VideoFormat(48, 32))
    with pytest.raises(ConfigError, match=r"'unf_y', the reconstruction before .* --plane unf_y=FILE"):
        auxiliary_planes(["rec_y", "unf_y"], FORM, {}, None)
    with pytest.raises(ConfigError, match=r"'depth' of the coding tree"):
        auxiliary_planes(["rec_y", "depth"], FORM, {}, None)
    with open_video(other) as video, pytest.raises(ConfigError, match=r"other_48x32_8bit.yuv for 'pred_y' is 48x32"):
        auxiliary_planes(["rec_y", "pred_y"], FORM, {"pred_y": video}, None)


def test_candidates_differ_in_qp_only_if_the_network_takes_it(decoded):
    with open_video(decoded) as video:
        picture = video[0]
    filter_ = FloatFilter(network())
    by_offset = filter_candidates(filter_, picture, 60, (-5, 5, 0))
    assert list(by_offset) == [0, -5]
    np.testing.assert_array_equal(by_offset[-5]["y"], filter_.samples(picture, 55)["y"])
    without_qp = FloatFilter(awaken(create_model("arcnn"), std=0.01))
    assert "qp" not in without_qp.planes
    assert list(filter_candidates(without_qp, picture, 37, (5,))) == [0]


def test_a_network_that_takes_no_qp_needs_none(filtering, decoded, tmp_path):
    model = tmp_path / "w.safetensors"
    save_weights(model, awaken(create_model("arcnn"), std=0.01), "arcnn", {})
    assert "slice QPs" in filtering(decoded, "--original", decoded, model=model, refused=True)
    filtering(decoded, model=model)


def test_a_sequence_that_fails_has_no_output(decoded, tmp_path):
    def broken(_number):
        raise RuntimeError

    output = tmp_path / "out" / "o_48x32_10bit.yuv"
    with open_video(decoded) as video, pytest.raises(RuntimeError):
        filter_video(FloatFilter(network()), video, [32], output, beside=broken)
    assert not list(output.parent.glob("*"))


def test_a_decision_that_fails_in_the_second_thread_is_raised(decoded, tmp_path):
    original = write(tmp_path / "original_40x32_10bit.yuv", VideoFormat(40, 32, "420", 10))
    output = tmp_path / "out" / "o_48x32_10bit.yuv"
    with open_video(decoded) as video, open_video(original) as originals, pytest.raises(FormatError, match="40x32"):
        decide_video(FloatFilter(network()), video, originals, [32], output)
    assert not list(output.parent.glob("*"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux: it reads /proc")
def test_the_command_leaves_chroma_of_one_value(tmp_path):
    planes = [
        np.random.default_rng(0).integers(90, 160, size, dtype=np.uint8) for size in ((64, 64), (32, 32), (32, 32))
    ]
    planes[1][:] = 128
    path = tmp_path / "in_64x64_8bit.yuv"
    path.write_bytes(b"".join(plane.tobytes() for plane in planes))
    with open_video(path) as video:
        filter_video(codecnn.load_filter("low_cost_yuv_17"), video, [37], tmp_path / "network_64x64_8bit.yuv")
    codecnn.filter(path, tmp_path / "command_64x64_8bit.yuv", model="low_cost_yuv_17", qp=37, exact=False)
    with (
        open_video(tmp_path / "network_64x64_8bit.yuv") as network,
        open_video(tmp_path / "command_64x64_8bit.yuv") as command,
    ):
        by_network, by_command = network[0], command[0]
    assert (by_network.u != 128).any()
    assert (by_command.u == 128).all()
    for plane, of_network, decoded in zip(by_command.planes[::2], by_network.planes[::2], planes[::2], strict=True):
        assert (plane == of_network).all()
        assert (plane != decoded).any()


def test_pages_that_were_read_can_be_released(tmp_path):
    def resident():
        return int(re.search(r"RssFile:\s+(\d+)", Path("/proc/self/status").read_text())[1])

    path = tmp_path / "big_2048x2048.yuv"
    rng = np.random.default_rng(0)
    path.write_bytes(rng.integers(0, 256, 2048 * 2048 * 3 // 2 * 4, dtype=np.uint8).tobytes())
    samples = map_file(path)
    before = resident()
    total = int(samples.sum())
    assert resident() - before > 10_000
    forget_pages(samples[:100])
    assert resident() - before < 2_000
    assert int(samples.sum()) == total
    forget_pages(np.zeros((2, 2)))
