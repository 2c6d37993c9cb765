"""CU tables that a build reads from VVC bitstreams, against VTM's trace of the same bitstreams."""

import json
from dataclasses import replace

import numpy as np
import pytest

from codecnn.api.config import load_recipe
from codecnn.base.errors import EncoderError, FormatError, UnsupportedError
from codecnn.base.planes import BLOCK_PLANES
from codecnn.codec import (
    CodecSettings,
    CodecTools,
    block_planes,
    block_reader_version,
    block_table,
    ctu_depths,
    get_codec,
    read_blocks,
)
from codecnn.dataset import build_store, open_store, unit_coding
from codecnn.pictures.files import VideoFormat
from tests.helpers.block_tables import as_rows

GOLDEN = {
    # name: source, configuration, CTU size, parameters, QP; the preset is medium
    "tiny136x72_ai_qp32": ("tiny_136x72_8b420", "ai", 128, "", 32),
    "tinyclip128x64_ra_qp37": ("tinyclip_128x64_17f_8b420", "ra", 64, "IntraPeriod: 16, DecodingRefreshType: idr", 37),
    "tinyclip128x64_ld_qp37": ("tinyclip_128x64_9f_8b420", "ldb", 64, "", 37),
}
"""Golden streams that recipes reproduce byte for byte, with VTM's trace of each."""


def write_recipe(folder, golden, name):
    source, configuration, ctu_size, params, qp = GOLDEN[name]
    path = folder / "recipe.yaml"
    size = name.removeprefix("tiny").removeprefix("clip").split("_")[0]
    path.write_text(
        f"name: golden\npreset: medium\nconfiguration: {configuration}\nctu_size: {ctu_size}\nqp: [{qp}]\n"
        f"root: {golden / 'sources'}\nparams: {{{params}}}\n"
        f"sequences: [{{source: {source}.yuv, size: {size}, fps: {1 if configuration == 'ai' else 30}, name: tiny}}]\n"
    )
    return path


@pytest.mark.parametrize("name", GOLDEN)
def test_cus_planes_and_depths_equal_vtms_trace(own_golden, tmp_path, name):
    golden = own_golden / "vvc"
    recipe = write_recipe(tmp_path, own_golden, name)
    store = build_store(load_recipe(recipe), tmp_path, tmp_path / "store")
    (unit,) = store.units
    assert (unit.path("bitstream")).read_bytes() == (golden / f"{name}.266").read_bytes()
    traced = read_blocks(golden / f"{name}.vtmbmsstats.gz")
    assert sorted(as_rows(read_blocks(unit.path("blocks")))) == sorted(as_rows(traced))
    form, pocs = unit.format, range(len(unit.pictures))
    np.testing.assert_array_equal(unit.block_planes(), block_planes(traced, pocs, form.width, form.height))
    table = store.ctus()
    for poc in pocs:
        rows = table.filter(np.asarray(table["poc"]) == poc)
        mean, largest = ctu_depths(traced, poc, form.width, form.height, store.manifest.recipe.ctu_size)
        assert rows["depth_mean"].to_pylist() == mean.tolist()
        assert rows["depth_max"].to_pylist() == largest.tolist()


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coded")
    video = VideoFormat(64, 48, "420", 8)
    rng = np.random.default_rng(1)
    (folder / "noise.yuv").write_bytes(rng.integers(90, 140, 3 * video.picture_bytes, np.uint8).tobytes())
    settings = CodecSettings(37, preset="faster")
    return get_codec("vvc").encode(folder / "noise.yuv", video, settings, folder)


@pytest.mark.parametrize("wrong", [{"qp": 36}, {"slice_type": "B"}, {"poc": 7}])
def test_picture_that_differs_from_the_log_is_an_error(coded, wrong):
    assert set(block_table(coded).poc.tolist()) == {0, 1, 2}
    pictures = (*coded.pictures[:2], replace(coded.pictures[2], **wrong))
    with pytest.raises(EncoderError, match=r"^bitstream\.266 .* \(2, \'I\', \(37,\)\)"):
        block_table(replace(coded, pictures=pictures))


def test_missing_picture_is_an_error(coded):
    with pytest.raises(EncoderError, match=r"\(2, 'I', \(37,\)\), the encoder's log None"):
        block_table(replace(coded, pictures=coded.pictures[:2]))
    with pytest.raises(EncoderError, match=r"None, the encoder's log \(2, 'I', 37\)"):
        block_table(replace(coded, pictures=(*coded.pictures, coded.pictures[2])))


def test_unsupported_stream_has_no_depth_and_a_reason(tiny_recipe, tmp_path, monkeypatch, run):
    def refuse(sequence):
        raise UnsupportedError("bitstream.266: it allows palette mode, which codecnn does not read")

    monkeypatch.setattr(unit_coding, "block_table", refuse)
    argv = ["dataset", "build", tiny_recipe, "qp=[42]", "-o", tmp_path / "store"]
    (plain, text, _), (machine, json_text, _) = run(*argv), run(*argv, "--json")
    assert not plain
    assert not machine
    reason = "a at QP 42 has no depth: bitstream.266: it allows palette mode, which codecnn does not read"
    assert reason in text.splitlines()
    assert json.loads(json_text)["no_blocks"][0] == reason
    store = open_store(tmp_path / "store")
    assert store.ctus()["depth_mean"].null_count == store.ctus().num_rows
    assert [unit.block_planes() for unit in store.units] == [None] * 3
    assert not list(store.folder.glob("coded/*/block*"))


def test_damaged_stream_ends_the_build(tiny_recipe, tmp_path, monkeypatch):
    def fail(sequence):
        raise FormatError("bitstream.266, POC 0: slice 0, CTU 3: its data ends early")

    monkeypatch.setattr(unit_coding, "block_table", fail)
    with pytest.raises(FormatError, match=r"^a at QP 42: bitstream\.266, POC 0: slice 0, CTU 3: "):
        build_store(load_recipe(tiny_recipe, ["qp=[42]"]), tiny_recipe.parent, tmp_path / "store")


def test_version_of_the_reader_is_part_of_the_key(tiny_recipe, tiny_store, tmp_path, monkeypatch):
    """The CU table is part of a unit, so its reader's version is part of the key; HEVC encoders write the table."""
    readers = {name: block_reader_version(name, CodecTools()) for name in ("vvc", "vtm", "vvencapp", "hevc", "hm")}
    assert readers == {"vvc": 1, "vtm": 1, "vvencapp": 1, "hevc": None, "hm": None}
    assert block_reader_version("vtm", CodecTools(trace=True)) is None
    monkeypatch.setattr("codecnn.codec.registry.READER_VERSION", 2)
    again = build_store(load_recipe(tiny_recipe), tiny_recipe.parent, tmp_path / "store")
    assert not {unit.key for unit in again.units} & {unit.key for unit in tiny_store.units}
    for unit, original in zip(again.units, tiny_store.units, strict=True):
        np.testing.assert_array_equal(unit.block_planes(), original.block_planes())
        assert (unit.block_planes()[:, BLOCK_PLANES.index("qp")] == unit.qp).all()
