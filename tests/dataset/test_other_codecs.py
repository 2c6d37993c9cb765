"""Stores of AV1, AVC and kvazaar: what a unit records, and that two builds are equal."""

from pathlib import Path

import pytest

from codecnn.api.config import load_recipe
from codecnn.dataset import Store, build_store

RECIPE = """
schema: 1
name: other
codec: {codec}
preset: {preset}
configuration: ai
qp: [32]
ctu_size: 64
internal_bit_depth: 8
unfiltered: true
sequences: [{{source: "skimage:camera.png", scales: [0.125]}}]
"""


def build(folder: Path, codec: str, preset: str) -> Store:
    folder.mkdir()
    (folder / "recipe.yaml").write_text(RECIPE.format(codec=codec, preset=preset))
    return build_store(load_recipe(folder / "recipe.yaml"), folder, folder / "store")


@pytest.mark.parametrize(
    ("codec", "preset", "quantiser"),
    [("av1", "7", 136), ("svtav1", "8", 136), ("avc", "fast", None), ("kvazaar", "fast", None)],
)
def test_a_unit_records_qp_and_quantiser(tmp_path, codec, preset, quantiser):
    stores = [build(tmp_path / name, codec, preset) for name in ("first", "second")]
    (unit,) = stores[0].units
    (picture,) = unit.pictures
    assert (unit.qp, picture.qp, picture.quantiser) == (32, 32, quantiser)
    assert ("quantiser" in picture.to_json()) == (quantiser is not None)
    assert picture.bits == unit.bits
    assert unit.has("unfiltered")
    assert not unit.has("blocks")
    first, second = (tmp_path / name / "store" / "manifest.json" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
