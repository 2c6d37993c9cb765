"""Planes of the transforms of CUs: from VTM's transform blocks to a store, the loader, the filter and files."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from codecnn.codec import COLUMNS, block_planes, read_blocks, stream_table, write_blocks
from codecnn.config import load_recipe
from codecnn.dataset import CtuPatches, build_store
from codecnn.errors import ConfigError, StoreError, TableError, UnsupportedError
from codecnn.filtering import unit_planes
from codecnn.models import create_model, save_weights
from codecnn.planes import BLOCK_PLANES, CELL_PLANES, TRANSFORM_PLANES, TREE_PLANES
from codecnn.video import open_video
from tests.helpers.commands import result_of
from tests.helpers.intra_pictures import golden_pictures
from tests.helpers.networks import SMALL, awaken

KERNELS = {0: 0, 1: 2, 2: 1}
"""VTM's numbers of transforms, and ours."""


@pytest.fixture(scope="module")
def told_store(tiny_recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("told")
    return build_store(load_recipe(tiny_recipe, ["qp=[42]", "planes=[cbf_y]"]), tiny_recipe.parent, folder / "store")


def painted(golden, height, width):
    """TRANSFORM_PLANES of a picture, sample by sample, from VTM's transform blocks: the largest value of each CU."""
    planes = {name: np.zeros((height, width), int) for name in TRANSFORM_PLANES}
    for text in golden.blocks:
        row = {name: int(value) for name, value in text.items()}
        if row["comp"]:
            continue
        kernels = (row["trHor"], row["trVer"]) if row["cbf"] and not row["ts"] else (0, 0)
        values = (row["cbf"], row["ts"], max(row["mtsIdx"] - 1, 0), *(KERNELS[one] for one in kernels), row["lfnst"])
        x, y, w, h = (row[f"cu{name}"] for name in "XYWH")
        for plane, value in zip(planes.values(), (*values, row["bdpcm"]), strict=True):
            area = plane[y : y + h, x : x + w]
            area[...] = np.maximum(area, value)
    return planes


@pytest.mark.parametrize(
    "name", ["ai_mts_explicit_all", "ai_420_12b", "ai_420_screen_ibc_plt_ts", "ai_gbr_act_natural"]
)
def test_planes_are_those_of_the_reference_decoders_blocks(run, golden_file, tmp_path, name):
    (golden, *_) = golden_pictures(golden_file(f"intra_pictures/{name}.npz"))
    planes = ",".join(TRANSFORM_PLANES)
    told = result_of(
        run, "partition", golden_file(f"vvc_vtm/{name}.266"), "--planes", planes, "-o", tmp_path / "planes"
    )
    wanted = painted(golden, golden.meta["height"], golden.meta["width"])
    for plane, file in told["files"].items():
        with open_video(file) as video:
            assert (video.format.chroma, video.format.bit_depth) == ("400", 8)
            height, width = video[0].y.shape
            np.testing.assert_array_equal(video[0].y, wanted[plane][:height, :width], plane)
    assert sum(plane.any() for plane in wanted.values()) >= 3


def test_planes_of_the_tree_come_of_inter_pictures_too(run, golden_file, tmp_path):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    told = result_of(run, "partition", stream, "--planes", ",".join(TREE_PLANES), "-o", tmp_path / "tree")
    assert (told["positions"], told["passed_over"]) == (list(range(17)), 0)
    table = stream_table(stream)
    for name, file in told["files"].items():
        cells = block_planes(table, range(17), 128, 64, [CELL_PLANES[name].column])[:, 0]
        if name == "qp_depth":
            cells = cells + 4 * block_planes(table, range(17), 128, 64, ["depth"])[:, 0]
        with open_video(file) as video:
            for mine, picture in zip(cells, video, strict=True):
                np.testing.assert_array_equal(picture.y, np.maximum(mine, 0).repeat(4, axis=0).repeat(4, axis=1))
    told = result_of(run, "partition", stream, "--planes", "cbf_y,unf_y", "-o", tmp_path / "both")
    assert (told["positions"], told["passed_over"]) == ([0, 16], 15)


def test_a_store_holds_what_its_bitstreams_tell_where_it_is_asked_to(told_store, tiny_store):
    plain = {unit.name: unit for unit in tiny_store.units if unit.qp == 42}
    seen = set()
    for unit in told_store.units:
        table = stream_table(unit.path("bitstream"))
        cells = unit.cells("transforms")
        form = unit.format
        np.testing.assert_array_equal(cells, block_planes(table, [0], form.width, form.height, TRANSFORM_PLANES))
        seen |= {name for name, plane in zip(TRANSFORM_PLANES, cells[0], strict=True) if len(np.unique(plane)) > 1}
        assert read_blocks(unit.path("blocks")).tells("lfnst")
        without = plain[unit.name]
        assert (unit.key != without.key, without.has("transforms")) == (True, False)
        assert unit.path("bitstream").read_bytes() == without.path("bitstream").read_bytes()
        # A store whose recipe does not ask is what it was before transforms were read.
        assert pq.read_schema(without.path("blocks")).names == list(COLUMNS)
        assert without.block_planes().shape[1] == len(BLOCK_PLANES)
        np.testing.assert_array_equal(unit.block_planes(), without.block_planes())
        assert "transforms" not in json.loads((without.path("blocks").parent / "unit.json").read_text())
    assert {"cbf_y", "tr_hor", "tr_ver"} <= seen


def test_networks_take_them_from_loader_store_stream_and_table(run, told_store, tmp_path):
    (unit, *_) = told_store.split("val")
    names = ["rec_y", "qp", *TRANSFORM_PLANES]
    of_store = unit_planes(unit, 0, names)
    patch = CtuPatches([unit], size=64, halo=0, planes=names)[0]
    for name in TRANSFORM_PLANES:
        np.testing.assert_array_equal(patch[name][0], of_store[name][:64, :64])
        assert of_store[name].max() <= 1
    assert {of_store[name].max() > 0 for name in ("cbf_y", "tr_hor")} == {True}
    save_weights(tmp_path / "w.safetensors", awaken(create_model("rdn", **SMALL, planes=names)), "rdn", {})
    argv = ("filter", "-m", tmp_path / "w.safetensors", "-i", unit.path("bitstream"))
    assert run(*argv, "-o", tmp_path / "told.y4m")[0] == 0
    assert run(*argv, "--blocks", unit.path("blocks"), "-o", tmp_path / "table.y4m")[0] == 0
    assert (tmp_path / "told.y4m").read_bytes() == (tmp_path / "table.y4m").read_bytes()
    write_blocks(tmp_path / "old.parquet", read_blocks(unit.path("blocks")).without_transforms())
    status, _, err = run(*argv, "--blocks", tmp_path / "old.parquet", "-o", tmp_path / "old.y4m")
    assert status == 1
    assert "the table of CUs has no values of cbf_y, ts_y, mts" in " ".join(err.split())


def test_what_lacks_them_is_told(told_store, tiny_store, tiny_recipe, tmp_path, monkeypatch):
    taught = r"the key planes: \[mts\] of its recipe provides it"
    with pytest.raises(StoreError, match=f"has no plane 'mts': {taught}"):
        unit_planes(tiny_store.units[0], 0, ["mts"])
    with pytest.raises(StoreError, match=f"has no plane mts: {taught}"):
        CtuPatches(tiny_store.units, planes=["mts"])
    with pytest.raises(TableError, match="the table of CUs has no values of mts"):
        block_planes(read_blocks(tiny_store.units[0].path("blocks")), [0], 8, 8, ["mts"])
    with pytest.raises(ConfigError, match="mts are rebuilt from VVC bitstreams, and hevc makes others"):
        load_recipe(tiny_recipe, ["planes=[mts]", "codec=hevc"])
    with pytest.raises(ConfigError, match="pred_y are those of intra pictures"):
        load_recipe(tiny_recipe, ["planes=[mts,pred_y]", "configuration=ra"])
    assert load_recipe(tiny_recipe, ["planes=[mts]", "configuration=ra"]).rebuilt_files == ["transforms"]

    def refuse(sequence):
        raise UnsupportedError("bitstream.266: its SPS has an extension")

    monkeypatch.setattr("codecnn.dataset.build.block_table", refuse)
    with pytest.raises(UnsupportedError, match=r"a at QP 42: bitstream\.266: its SPS has an extension"):
        build_store(load_recipe(tiny_recipe, ["qp=[42]", "planes=[mts]"]), tiny_recipe.parent, tmp_path / "store")
