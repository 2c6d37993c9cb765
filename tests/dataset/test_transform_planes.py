"""Planes of the transforms of CUs against VTM, and their way through stores, loader, filter and files."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from codecnn.api.config import load_recipe
from codecnn.base.errors import ConfigError, StoreError, TableError, UnsupportedError
from codecnn.base.planes import BLOCK_PLANES, CELL_PLANES, TRANSFORM_PLANES, TREE_PLANES
from codecnn.codec import COLUMNS, TOOL_COLUMNS, block_planes, read_blocks, stream_table, write_blocks
from codecnn.dataset import CtuPatches, build_store
from codecnn.filtering import unit_planes
from codecnn.models import create_model, save_weights
from codecnn.pictures.files import open_video
from tests.helpers.commands import result_of
from tests.helpers.intra_pictures import golden_pictures
from tests.helpers.networks import SMALL, awaken

KERNELS = {0: 0, 1: 2, 2: 1}
"""Number of a transform in codecnn by its number in VTM."""


@pytest.fixture(scope="module")
def transform_store(tiny_recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("transforms")
    return build_store(load_recipe(tiny_recipe, ["qp=[42]", "planes=[cbf_y]"]), tiny_recipe.parent, folder / "store")


def paint_planes(golden, height, width):
    """Return TRANSFORM_PLANES by sample from VTM's transform blocks: the largest value of each CU."""
    planes = {name: np.zeros((height, width), int) for name in TRANSFORM_PLANES}
    for text in golden.blocks:
        row = {name: int(value) for name, value in text.items()}
        if row["comp"]:
            continue
        kernels = (row["trHor"], row["trVer"]) if row["cbf"] and not row["ts"] else (0, 0)
        values = (
            row["cbf"],
            row["ts"],
            max(row["mtsIdx"] - 1, 0),
            *(KERNELS[kernel] for kernel in kernels),
            row["lfnst"],
        )
        x, y, w, h = (row[f"cu{name}"] for name in "XYWH")
        for plane, value in zip(planes.values(), (*values, row["bdpcm"]), strict=True):
            area = plane[y : y + h, x : x + w]
            area[...] = np.maximum(area, value)
    return planes


@pytest.mark.parametrize(
    "name", ["ai_mts_explicit_all", "ai_420_12b", "ai_420_screen_ibc_plt_ts", "ai_gbr_act_natural"]
)
def test_planes_equal_the_transform_blocks_of_vtm(run, golden_file, tmp_path, name):
    (golden, *_) = golden_pictures(golden_file(f"intra_pictures/{name}.npz"))
    planes = ",".join(TRANSFORM_PLANES)
    written = result_of(
        run, "partition", golden_file(f"vvc_vtm/{name}.266"), "--planes", planes, "-o", tmp_path / "planes"
    )
    expected = paint_planes(golden, golden.meta["height"], golden.meta["width"])
    for plane, file in written["files"].items():
        with open_video(file) as video:
            assert (video.format.chroma, video.format.bit_depth) == ("400", 8)
            height, width = video[0].y.shape
            np.testing.assert_array_equal(video[0].y, expected[plane][:height, :width], plane)
    assert sum(plane.any() for plane in expected.values()) >= 3


def test_tree_planes_of_inter_pictures(run, golden_file, tmp_path):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    written = result_of(run, "partition", stream, "--planes", ",".join(TREE_PLANES), "-o", tmp_path / "tree")
    assert written["pictures"] == 17
    table = stream_table(stream)
    for name, file in written["files"].items():
        cells = block_planes(table, range(17), 128, 64, [CELL_PLANES[name].column])[:, 0]
        if name == "qp_depth":
            cells = cells + 4 * block_planes(table, range(17), 128, 64, ["depth"])[:, 0]
        with open_video(file) as video:
            for stored, picture in zip(cells, video, strict=True):
                np.testing.assert_array_equal(picture.y, np.maximum(stored, 0).repeat(4, axis=0).repeat(4, axis=1))
    written = result_of(run, "partition", stream, "--planes", "cbf_y,unf_y", "-o", tmp_path / "both")
    assert written["pictures"] == 17


def test_store_holds_transforms_if_the_recipe_requests_them(transform_store, tiny_store):
    plain = {unit.name: unit for unit in tiny_store.units if unit.qp == 42}
    seen = set()
    for unit in transform_store.units:
        table = stream_table(unit.path("bitstream"))
        cells = unit.cells("transforms")
        form = unit.format
        np.testing.assert_array_equal(cells, block_planes(table, [0], form.width, form.height, TRANSFORM_PLANES))
        seen |= {name for name, plane in zip(TRANSFORM_PLANES, cells[0], strict=True) if len(np.unique(plane)) > 1}
        assert read_blocks(unit.path("blocks")).has_values("lfnst")
        without = plain[unit.name]
        assert (unit.key != without.key, without.has("transforms")) == (True, False)
        assert unit.path("bitstream").read_bytes() == without.path("bitstream").read_bytes()
        assert pq.read_schema(without.path("blocks")).names == [*COLUMNS, *TOOL_COLUMNS]
        assert without.block_planes().shape[1] == len(BLOCK_PLANES)
        np.testing.assert_array_equal(unit.block_planes(), without.block_planes())
        assert "transforms" not in json.loads((without.path("blocks").parent / "unit.json").read_text())
    assert {"cbf_y", "tr_hor", "tr_ver"} <= seen


def test_loader_store_stream_and_table_provide_the_same_planes(run, transform_store, tmp_path):
    (unit, *_) = transform_store.split("val")
    names = ["rec_y", "qp", *TRANSFORM_PLANES]
    of_store = unit_planes(unit, 0, names)
    patch = CtuPatches([unit], size=64, halo=0, planes=names)[0]
    for name in TRANSFORM_PLANES:
        np.testing.assert_array_equal(patch[name][0], of_store[name][:64, :64])
        assert of_store[name].max() <= 1
    assert {of_store[name].max() > 0 for name in ("cbf_y", "tr_hor")} == {True}
    save_weights(tmp_path / "w.safetensors", awaken(create_model("rdn", **SMALL, planes=names)), "rdn", {})
    argv = ("filter", "-m", tmp_path / "w.safetensors", "-i", unit.path("bitstream"))
    assert run(*argv, "-o", tmp_path / "stream.y4m")[0] == 0
    assert run(*argv, "--blocks", unit.path("blocks"), "-o", tmp_path / "table.y4m")[0] == 0
    assert (tmp_path / "stream.y4m").read_bytes() == (tmp_path / "table.y4m").read_bytes()
    write_blocks(tmp_path / "old.parquet", read_blocks(unit.path("blocks")).without_transforms())
    status, _, err = run(*argv, "--blocks", tmp_path / "old.parquet", "-o", tmp_path / "old.y4m")
    assert status == 1
    assert "cbf_y, ts_y, mts" in " ".join(err.split())


def test_missing_transform_planes_are_errors(transform_store, tiny_store, tiny_recipe, tmp_path, monkeypatch):
    hint = r"the key planes: \[mts\] of its recipe provides it"
    with pytest.raises(StoreError, match=f"has no plane 'mts': {hint}"):
        unit_planes(tiny_store.units[0], 0, ["mts"])
    with pytest.raises(StoreError, match=f"has no plane mts: {hint}"):
        CtuPatches(tiny_store.units, planes=["mts"])
    with pytest.raises(TableError, match="values of mts"):
        block_planes(read_blocks(tiny_store.units[0].path("blocks")), [0], 8, 8, ["mts"])
    with pytest.raises(ConfigError, match=r"mts are .* hevc"):
        load_recipe(tiny_recipe, ["planes=[mts]", "codec=hevc"])
    assert load_recipe(tiny_recipe, ["planes=[mts,pred_y]", "configuration=ra"]).rebuilt_planes == ["pred_y"]
    assert load_recipe(tiny_recipe, ["planes=[mts]", "configuration=ra"]).rebuilt_files == ["transforms"]

    def refuse(sequence):
        raise UnsupportedError("bitstream.266: its SPS has an extension")

    monkeypatch.setattr("codecnn.dataset.unit_coding.block_table", refuse)
    with pytest.raises(UnsupportedError, match=r"a at QP 42: bitstream\.266"):
        build_store(load_recipe(tiny_recipe, ["qp=[42]", "planes=[mts]"]), tiny_recipe.parent, tmp_path / "store")
