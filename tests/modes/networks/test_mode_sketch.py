"""Mode sketch: equality with the search for all coefficients, invariance to offsets, errors, weights on disk."""

import numpy as np
import pytest
import torch

from codecnn.base.errors import ConfigError, ModelError
from codecnn.models import list_mode_weights, weights_path
from codecnn.modes.networks import ModeSketch, create_mode_network, load_mode_network, save_mode_network
from codecnn.vvc.intra import block_costs

SMALL = {"side": 8, "coefficients": 4, "hidden": 8}


def _blocks(side, count=60, seed=0):
    """Return reference lines (n, 4s+1) and blocks (n, s, s) of 10-bit slopes in random directions with noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[-1 : 2 * side, -1 : 2 * side]
    slope = rng.normal(0, 20, (2, count, 1, 1))
    plane = (
        500 + slope[0] * x + slope[1] * y + 60 * np.sin((x + slope[0] * y) / 3) + rng.normal(0, 3, (count, *x.shape))
    )
    plane = np.clip(np.rint(plane), 0, 1023).astype(np.int32)
    return np.concatenate((plane[:, :0:-1, 0], plane[:, 0]), 1), np.ascontiguousarray(
        plane[:, 1 : side + 1, 1 : side + 1]
    )


def _logits(model, line, block, qp=32):
    count = len(line)
    depth_and_qp = torch.full((count,), 10), torch.full((count,), qp)
    with torch.no_grad():
        return model(*model.inputs(torch.from_numpy(line), torch.from_numpy(block), *depth_and_qp))


@pytest.mark.parametrize(("side", "modes", "standard"), [(4, 67, "vvc"), (8, 67, "vvc"), (8, 35, "hevc")])
def test_an_untrained_sketch_with_all_coefficients_equals_the_search(side, modes, standard):
    line, block = _blocks(side)
    costs = block_costs(line, block, 10, "dct", standard)
    logits = _logits(create_mode_network("mode_sketch", side=side, coefficients=side**2, modes=modes), line, block)
    excess = costs - costs.min(1, keepdims=True)
    expected = -5 * excess / excess.mean(1, keepdims=True)
    # Predictions of the search are rounded to integers, those of the sketch are not.
    assert np.abs(logits.numpy() - expected).mean() < 0.1
    chosen = np.take_along_axis(costs, logits.argmax(1).numpy()[:, None], 1).sum()
    assert chosen < 1.002 * costs.min(1).sum()
    assert 1.5 * costs.min(1).sum() < costs.mean(1).sum(), "an average mode costs much more"


def test_logits_ignore_offsets_and_depend_on_the_qp_once_trained():
    line, block = _blocks(8)
    torch.manual_seed(1)
    model = create_mode_network("mode_sketch", **SMALL, informed=False)
    before = _logits(model, line, block)
    assert torch.allclose(before, _logits(model, line + 100, block + 100), atol=0.02)
    assert torch.equal(before, _logits(model, line, block, 22))
    torch.nn.init.normal_(model.tail.weight)
    assert not torch.equal(_logits(model, line, block), _logits(model, line, block, 22))


def test_wrong_sizes_and_options_are_refused():
    line, block = _blocks(16)
    with pytest.raises(ModelError, match="blocks of 8x8, not of 16x16"):
        _logits(create_mode_network("mode_sketch", **SMALL), line, block)
    with pytest.raises(ModelError, match="4x4 has no 17 coefficients"):
        ModeSketch(4, 17)
    with pytest.raises(ModelError, match="no standard has 66 modes: 67, 35"):
        ModeSketch(modes=66)
    with pytest.raises(ConfigError, match="vvc does not predict blocks of 12x12"):
        ModeSketch(12)
    with pytest.raises(ModelError, match="'sketch'"):
        create_mode_network("sketch")


def test_weights_are_restored(tmp_path):
    model = create_mode_network("mode_sketch", **SMALL)
    torch.nn.init.normal_(model.predictors)
    save_mode_network(tmp_path / "m.safetensors", model, "mode_sketch", {})
    loaded, card = load_mode_network(tmp_path / "m.safetensors")
    line, block = _blocks(8)
    assert torch.equal(_logits(model, line, block), _logits(loaded, line, block))
    assert (card.task, card.network, loaded.block_sizes) == ("modes", "mode_sketch", ((8, 8),))


@pytest.mark.parametrize("name", ["modes_8", "modes_16"])
def test_shipped_weights_choose_modes_of_low_cost(name):
    assert list_mode_weights() == ["modes_16", "modes_8"]
    assert weights_path(name).stat().st_size < 400_000
    model, card = load_mode_network(name)
    side = model.options["side"]
    line, block = _blocks(side, 200, seed=3)
    costs = block_costs(line, block, 10, "dct")
    order = _logits(model, line, block).topk(8, dim=1).indices.numpy()
    lost = [np.take_along_axis(costs, order[:, :k], 1).min(1).sum() / costs.min(1).sum() - 1 for k in (1, 8)]
    planar = costs[:, 0].sum() / costs.min(1).sum() - 1
    assert lost[0] < planar / 2, "also for content that is unlike the training pictures"
    assert lost[1] < planar / 5
    assert card["lost_percent"]["1"] < 4
    assert card["lost_percent"]["8"] < 1
