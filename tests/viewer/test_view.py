"""The page of the viewer: its samples, CUs and motion equal those of decoder, parser and network."""

import itertools
import zlib

import numpy as np
import pytest

import codecnn
from codecnn.base.errors import ConfigError, MissingFileError
from codecnn.codec import (
    decode_pictures,
    picture_bits,
    read_blocks,
    read_output_pictures,
    read_pictures,
    stream_info,
    stream_motion,
    stream_transform_blocks,
)
from codecnn.filtering import decide_picture, load_filter
from codecnn.pictures.files import Picture, VideoFormat, create_video, open_video
from codecnn.pictures.metrics import psnr
from codecnn.signalling.in_loop import LoopFilter
from codecnn.viewer import mode_of, pack_integers, pack_plane, shown_stream, view
from codecnn.vvc.decoder import MOTION_PLANES
from tests.helpers.commands import result_of
from tests.helpers.pages import Page, integers_of, samples_of

STREAM = "vvc/tiny136x72_ai_qp32.266"
LAYERS = ["original", "prediction", "unfiltered", "decoded", "filtered"]


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (16, 7)])
def test_planes_are_compressed_without_loss(shape):
    rng = np.random.default_rng(0)
    like = rng.integers(0, 65536, shape)
    for plane in (rng.integers(0, 65536, shape), rng.integers(0, 1024, shape), np.full(shape, 65535)):
        for base in (None, like):
            packed = pack_plane(plane.astype(np.uint16), None if base is None else base.astype(np.uint16))
            content = zlib.decompress(packed)
            np.testing.assert_array_equal(samples_of(content, shape, base), plane)


def test_integers_are_compressed_without_loss():
    limits = np.iinfo(np.int32)
    values = np.array([0, limits.max, limits.min, limits.max, -1, 5, 5, 5, limits.min], np.int32)
    np.testing.assert_array_equal(integers_of(zlib.decompress(pack_integers(values))), values)


def test_page_holds_compressed_bytes_as_characters(golden_file, tmp_path, monkeypatch):
    monkeypatch.setattr("codecnn.viewer.page.LARGE_PAGE", 10_000)
    viewed = view(golden_file(STREAM), tmp_path / "v.html")
    content = (tmp_path / "v.html").read_bytes()
    assert not {0, ord("\r")} & set(content)  # HTML replaces both
    page = Page(tmp_path / "v.html")
    texts = sum(map(len, page.chunks.values()))
    deflated = sum(len(zlib.compress(page.chunk(int(number)))) for number in page.chunks)
    assert texts < 1.06 * deflated
    assert viewed.notes[-1].endswith("MB: take fewer pictures with -f, or let --serve show them one by one")


def test_modes_have_names_and_directions_of_the_standard():
    assert [mode_of(1, mode).name for mode in (0, 1, 18, 34, 50, 66)] == [
        "planar",
        "DC",
        "angular 18, horizontal",
        "angular 34, diagonal",
        "angular 50, vertical",
        "angular 66",
    ]
    directions = {mode: (mode_of(1, mode).dx, mode_of(1, mode).dy) for mode in (2, 18, 34, 50, 66)}
    assert directions == {2: (-32, 32), 18: (-32, 0), 34: (-32, -32), 50: (0, -32), 66: (32, -32)}
    assert (mode_of(1, 7, mip=True).name, mode_of(1, 26, standard="hevc").name) == ("MIP 7", "angular 26, vertical")
    assert [mode_of(pred, -1).name for pred in (0, 2, 3)] == ["inter", "block copy (IBC)", "palette"]


def test_page_of_a_stream_equals_decoder_parser_and_network(golden_file, tmp_path):
    stream = golden_file(STREAM)
    with open_video(stream) as video:
        form, decoded = video.format, video[0]
    originals = tmp_path / "source_136x72_8bit.yuv"
    source = [(plane >> 2).astype(np.uint8) for plane in decoded.planes]
    with create_video(originals, VideoFormat(136, 72, "420", 8)) as out:
        out.write(source)
    viewed = view(stream, tmp_path / "v.html", model="low_cost_5", original=originals)
    page = Page(tmp_path / "v.html")
    layers, rows, text = page.layers(), page.rows(), page.text()
    assert list(page.data["layers"]) == list(viewed.layers) == LAYERS
    assert set(layers) == set(LAYERS)
    ((_, expected),) = read_pictures(stream, ("pred_y", "pred_u", "pred_v", "unf_y", "unf_u", "unf_v"))
    for name, planes in (
        ("original", [plane.astype(int) << 2 for plane in source]),
        ("prediction", [expected[f"pred_{letter}"] for letter in "yuv"]),
        ("unfiltered", [expected[f"unf_{letter}"] for letter in "yuv"]),
        ("decoded", decoded.planes),
        ("filtered", load_filter("low_cost_5")(decoded, 32).planes),
    ):
        for plane, reference in zip(layers[name], planes, strict=True):
            np.testing.assert_array_equal(plane, reference)
    unchanged = page.pictures[0]["layers"]["filtered"][1]
    assert unchanged == {"like": "decoded"}, "a plane that the network does not change is stored once"
    table = read_blocks(stream)
    columns = ("channel", "x", "y", "w", "h", "qt_depth", "mt_depth", "qp")
    np.testing.assert_array_equal(rows[:, :8], np.column_stack([getattr(table, name) for name in columns]))
    names = [text["modes"][number][0] for number in rows[:, 8]]
    for name, channel, mode in zip(names, table.channel, table.intra_mode, strict=True):
        assert channel or name == f"MIP {mode}" or name == mode_of(1, mode).name
    assert any(name.startswith("MIP") for name in names)
    assert any("ISP" in text["tools"][number] or "LFNST" in text["tools"][number] for number in rows[:, 9])
    assert (viewed.units, viewed.notes, form.bit_depth) == (len(table), (), page.pictures[0]["bitDepth"])
    for name in ("unfiltered", "decoded", "filtered"):
        for value, plane, original in zip(
            page.pictures[0]["psnr"][name], layers[name], layers["original"], strict=True
        ):
            assert value == pytest.approx(psnr(original.astype(np.uint16), plane.astype(np.uint16), 10), abs=1e-4)
    with create_video(tmp_path / "two_136x72_8bit.yuv", VideoFormat(136, 72, "420", 8)) as out:
        out.write(source)
        out.write(source)
    viewed = view(stream, tmp_path / "v.html", original=tmp_path / "two_136x72_8bit.yuv")
    assert viewed.notes == ("The original has 2 pictures and the stream 1: pictures of the same number are compared.",)


def test_cus_of_a_view_equal_those_of_the_parser(golden_file):
    stream = golden_file(STREAM)
    table = read_blocks(stream)
    units = list(shown_stream(stream).blocks)
    for name in ("channel", "x", "y", "w", "h", "qt_depth", "mt_depth", "qp"):
        assert [getattr(unit, name) for unit in units] == getattr(table, name).tolist()
    for unit, mode in zip(units, table.intra_mode, strict=True):
        assert unit.channel or unit.mode.name == f"MIP {mode}" or unit.mode == mode_of(1, mode)
    assert {unit.mode.kind for unit in units} >= {"planar", "angular", "MIP"}
    assert any("LFNST" in unit.tools or "ISP" in unit.tools for unit in units)


def test_pictures_of_random_access_have_motion_and_modes(golden_file, tmp_path):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    viewed = view(stream, tmp_path / "v.html", frames=5)
    page = Page(tmp_path / "v.html")
    assert (viewed.pictures, [picture["number"] for picture in page.pictures]) == (5, [0, 1, 2, 3, 4])
    assert viewed.notes == ()
    info = {picture.position: picture for picture in stream_info(stream).pictures}
    motion = stream_motion(stream).to_pandas()
    planes = ("rec_y", "pred_v", *MOTION_PLANES, "bs_v", "bs_h")
    kinds = set()
    for number, (poc, expected) in zip(range(5), read_pictures(stream, planes), strict=False):
        facts, layers = page.pictures[number], page.layers(number)
        header = info[number]
        assert (facts["poc"], facts["type"], facts["hash"]) == (poc, header.slice_type, "ok")
        assert (facts["qps"], facts["temporal"]) == (sorted(set(header.slice_qps)), header.temporal_id)
        assert facts["bits"] == picture_bits(stream)[number]
        np.testing.assert_array_equal(layers["decoded"][0], expected["rec_y"])
        np.testing.assert_array_equal(layers["prediction"][2], expected["pred_v"])
        strengths = np.stack([expected[name][::4, ::4] for name in ("bs_v", "bs_h")])
        np.testing.assert_array_equal(page.array("strengths", number), strengths)
        table, rows = motion[motion.poc == number], page.rows(number)
        np.testing.assert_array_equal(rows[:, 1:5], table[["x", "y", "w", "h"]])
        modes = [page.text(number)["modes"][mode] for mode in rows[:, 8]]
        if header.slice_type == "I":
            assert "vectors" not in facts["detail"]["arrays"]
            continue
        vectors, references = page.array("vectors", number), page.array("references", number)
        for which in range(2):
            np.testing.assert_array_equal(np.moveaxis(vectors[which], 0, -1), expected[f"mv_l{which}"])
            np.testing.assert_array_equal(references[which], expected[f"ref_idx_l{which}"])
        for mode, unit in zip(modes, table.itertuples(), strict=True):
            assert (mode[2] == "geometric", mode[2] == "CIIP") == (unit.gpm == 1, unit.ciip == 1)
            assert (mode[2] in ("affine", "affine merge")) == (unit.affine in (1, 2))
            assert (mode[2] == "temporal subblocks") == (unit.affine == 3)
            if unit.merge == 0:
                assert mode[2] in ("AMVP", "affine")
        kinds |= {mode[2] for mode in modes}
    assert kinds >= {"merge", "AMVP", "geometric", "temporal subblocks", "MMVD", "angular"}


def test_transforms_and_bits_of_a_page_equal_those_of_the_parser(golden_file, tmp_path):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    view(stream, tmp_path / "v.html", picture=2, frames=2)
    page = Page(tmp_path / "v.html")
    blocks = stream_transform_blocks(stream).to_pandas()
    pictures = read_output_pictures(stream)
    for index, number in enumerate((2, 3)):
        luma = blocks[(blocks.poc == number) & (blocks.component == "Y")]
        columns = ["x", "y", "w", "h", "cbf", "ts", "tr_hor", "tr_ver", "nonzero"]
        np.testing.assert_array_equal(page.array("transforms", index)[1:].T, luma[columns])
        coded = 8 * sum(len(part.rbsp) - part.start for part in pictures[number].slices)
        bits = page.text(index)["bits"]
        assert (len(bits), sum(bits)) == (2, coded)
        assert min(bits) > 0


def test_two_networks_are_compared_by_ctu(golden_file, tmp_path):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    original = tmp_path / "source_128x64_8bit.yuv"
    with open_video(stream, frames=17) as video, create_video(original, VideoFormat(128, 64, "420", 8)) as out:
        decoded = video[1]
        for picture in video:
            out.write([np.clip((plane >> 2) + 3, 0, 255).astype(np.uint8) for plane in picture.planes])
    viewed = view(stream, tmp_path / "v.html", picture=1, model=["low_cost_5", "low_cost_17"], original=original)
    page = Page(tmp_path / "v.html")
    layers, networks = page.layers(), page.text()["networks"]
    assert page.pictures[0]["layers"]["original"][0]["shift"] == 2, "8 of 10 bits are stored"
    assert viewed.layers[-2:] == ("filtered", "filtered 2")
    assert [page.data["layers"][name] for name in viewed.layers[-2:]] == ["low_cost_5", "low_cost_17"]
    qp = page.pictures[0]["qps"][0]
    for layer, name in (("filtered", "low_cost_5"), ("filtered 2", "low_cost_17")):
        network = load_filter(name)
        np.testing.assert_array_equal(layers[layer][0], network(decoded, qp).y)
        errors = [(layers[each][0] - layers["original"][0]) ** 2 for each in ("decoded", layer)]
        gains = [10 * np.log10(errors[0][:, x : x + 64].sum() / errors[1][:, x : x + 64].sum()) for x in (0, 64)]
        assert networks[layer]["gain"]["y"] == pytest.approx(gains, abs=6e-4)
        source = Picture(tuple(plane.astype(np.uint16) for plane in layers["original"]), 10)
        _, decision = decide_picture(source, decoded, {0: network.samples(decoded, qp)}, qp=qp, ctu=64)
        assert networks[layer]["on"]["y"] == decision.flags["y"].ravel().tolist()
        assert networks[layer]["scale"] == decision.scales


def test_cropped_picture_keeps_its_place_among_the_blocks(golden_file, tmp_path):
    """178x130 samples are coded as 184x136, and the margin is cut."""
    stream = golden_file("vvc/chelsea178x130_ai_qp32_ctu64.266")
    view(stream, tmp_path / "v.html")
    page = Page(tmp_path / "v.html")
    picture = page.pictures[0]
    assert (picture["width"], picture["height"], picture["offset"]) == (178, 130, [0, 0])
    rows = page.rows()
    assert (rows[:, 1] + rows[:, 3]).max() == 184
    assert page.array("strengths").shape == (2, 33, 45)


def test_stream_with_a_filter_in_the_loop_is_decoded_with_it(golden_file, tmp_path):
    stream, weights = golden_file("loop/loop.266"), golden_file("loop/small.int8.safetensors")
    with pytest.raises(MissingFileError):
        view(stream, tmp_path / "v.html")
    with pytest.raises(ConfigError, match="only its weights as -m"):
        view(stream, tmp_path / "v.html", model=[weights, "low_cost_5"])
    assert not (tmp_path / "v.html").exists()
    viewed = view(stream, tmp_path / "v.html", model=weights, picture=3)
    page = Page(tmp_path / "v.html")
    assert viewed.layers == ("prediction", "unfiltered", "decoded")
    pictures = [planes["rec_y"] for _, planes in read_pictures(stream, ["rec_y"], hook=LoopFilter(weights))]
    np.testing.assert_array_equal(page.plane(0, "decoded", 0), pictures[3])
    assert (
        page.pictures[0]["hash"] == next(itertools.islice(decode_pictures(stream, (), LoopFilter(weights)), 3, 4)).hash
    )


def test_hevc_stream_has_its_headers_and_pictures(golden_file, tmp_path):
    stream = golden_file("hevc/clip_rab_amp_qp32.265")
    viewed = view(stream, tmp_path / "v.html", frames=3)
    page = Page(tmp_path / "v.html")
    assert "VVC streams only" in viewed.notes[0]
    assert [picture["type"] for picture in page.pictures] == list("IBB")
    assert [picture["bits"] for picture in page.pictures] == picture_bits(stream)[:3]
    with open_video(stream, frames=3) as video:
        for number in range(3):
            np.testing.assert_array_equal(page.layers(number)["decoded"][1], video[number].u)


def test_picture_of_a_store_is_shown_with_its_original(run, tiny_store, tmp_path):
    unit = next(unit for unit in tiny_store.units if unit.qp == 32 and unit.split == "test")
    argv = ("view", tiny_store.folder, "-o", tmp_path / "v.html", "--sequence", unit.name, "-q", "32", "-f", "3")
    facts = result_of(run, *argv)
    page = Page(tmp_path / "v.html")
    layers, rows = page.layers(), page.rows()
    assert facts["layers"] == list(page.data["layers"]) == ["original", "prediction", "unfiltered", "decoded"]
    assert (facts["title"], facts["pictures"]) == (f"{unit.name} at QP 32, picture 0", 1)
    with unit.originals() as originals, unit.decoded() as decoded:
        np.testing.assert_array_equal(layers["original"][0], originals[0].y)
        np.testing.assert_array_equal(layers["decoded"][2], decoded[0].v)
    assert len(rows) == facts["cus"] > 0
    assert page.pictures[0]["ctu"] == tiny_store.manifest.recipe.ctu_size


def test_hevc_unit_is_shown_from_its_store(tiny_recipe, tmp_path):
    store = codecnn.build_dataset(tiny_recipe, tmp_path / "s", overrides=["codec=hevc", "qp=[32]", "ctu_size=32"])
    viewed = view(store.folder, tmp_path / "v.html")
    page = Page(tmp_path / "v.html")
    rows = page.rows()
    assert list(page.data["layers"]) == ["original", "decoded"]
    assert "VVC streams only" in viewed.notes[0]
    table = read_blocks(store.units[0].path("blocks"))
    assert len(rows) == (table.poc == 0).sum()
    names = [page.text()["modes"][number][0] for number in rows[:, 8]]
    assert names == [mode_of(1, mode, standard="hevc").name for mode in table.intra_mode[table.poc == 0]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"picture": 5}, "has 1 picture; use --picture 0, not 5"),
        ({"qp": 32}, "is a stream"),
        ({"original": "small_64x64_8bit.yuv"}, "64x64 samples, but the decoded picture 136x72"),
    ],
)
def test_options_that_do_not_fit_are_refused(golden_file, tmp_path, monkeypatch, options, sentence):
    monkeypatch.chdir(tmp_path)
    np.zeros(64 * 64 * 3 // 2, np.uint8).tofile("small_64x64_8bit.yuv")
    with pytest.raises(ConfigError, match=sentence):
        view(golden_file(STREAM), tmp_path / "v.html", **options)
    assert not (tmp_path / "v.html").exists()


def test_missing_sequence_or_qp_is_named(tiny_store, tmp_path):
    with pytest.raises(ConfigError, match=r"no sequence 'missing': it has \w+"):
        view(tiny_store.folder, tmp_path / "v.html", sequence="missing")
    with pytest.raises(ConfigError, match=r"at QP 33: it has \d+"):
        view(tiny_store.folder, tmp_path / "v.html", qp=33)
    with pytest.raises(MissingFileError, match=r"x\.mp4 does not exist"):
        view(tmp_path / "x.mp4", tmp_path / "v.html")
