"""tools/zoo.py: figures of evaluations and of mode networks go into the cards they belong to."""

import json
import shutil

import numpy as np
import pytest
import torch

from codecnn.models import create_model, load_partial, weights_path
from codecnn.modes.labels import likeliest_modes, read_inputs, store_inputs
from codecnn.modes.networks import load_mode_network
from codecnn.vvc.intra import block_costs_reference, block_positions, blocks_at, reference_lines
from tools import zoo


def test_lost_cost_of_all_blocks(tiny_store):
    """Compare with the plain reference of the costs, on all blocks of the picture."""
    model, _ = load_mode_network("modes_8")
    lost = zoo.lost_cost(model, tiny_store.folder, blocks=10**6)
    (unit,) = [unit for unit in store_inputs(tiny_store, ("test",)) if unit.qps == (32,)]
    picture = next(read_inputs([unit]))
    height, width = picture.original.shape
    positions = block_positions(width, height, 8, 8)
    line = reference_lines(picture.references, positions, 8, 8, picture.bit_depth)
    block = blocks_at(picture.original, positions, 8, 8)
    costs = block_costs_reference(line, block, picture.bit_depth, "dct")
    modes, _ = likeliest_modes(model, line, block, picture.bit_depth, 32, 16)
    for count in (1, 3, 8, 16):
        chosen = np.take_along_axis(costs, modes[:, :count].astype(np.int64), 1).min(1).sum()
        assert lost[count] == pytest.approx(100 * (chosen / costs.min(1).sum() - 1), rel=1e-3, abs=1e-4)
    assert lost[1] > lost[3] > lost[16] >= 0


def test_lost_cost_is_written_into_the_card(tiny_store, tmp_path, capsys):
    source = weights_path("modes_8")
    for suffix in (".safetensors", ".json"):
        shutil.copy(source.with_suffix(suffix), tmp_path / f"mine{suffix}")
    before = json.loads((tmp_path / "mine.json").read_text())
    zoo.main(["modes", str(tmp_path / "mine.safetensors"), "--store", str(tiny_store.folder), "--blocks", "4"])
    after = json.loads((tmp_path / "mine.json").read_text())
    assert after.keys() == before.keys()
    assert after["lost_percent"].keys() == before["lost_percent"].keys()
    assert after["lost_percent"] != before["lost_percent"]
    assert f"{after['lost_percent']['1']:.2f} % with 1 modes" in capsys.readouterr().out


def test_figures_are_kept_by_weights_that_compute_the_same():
    model = create_model("low_cost_5", qp_range=[22, 42])
    load_partial(model, "low_cost_5", adapt_first=True)
    torch.nn.init.ones_(model.modulations[0].beyond.weight)
    same = [
        zoo.computes_the_same(model, weights_path("low_cost_5"), {"settings": {"qp": qp}})
        for qp in ([22, 42], [32, 17])
    ]
    assert same == [True, False]


def test_figures_of_other_weights_are_refused(tmp_path):
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"name": "low_cost_5", "kmac_per_pixel": 5.0, "weights_sha256": "other"}))
    with pytest.raises(SystemExit, match=r"is an evaluation of other weights than .*low_cost_5\.safetensors"):
        zoo.write_figures(results)
