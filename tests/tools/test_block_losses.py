"""Losses through transforms: the example of 500, 100 and 450, and what a predictor trained by each leaves."""

import numpy as np
import pytest
import torch

from codecnn.intra import rate_cost
from tools.block_losses import LOSSES, error_of, judge, left_by, planar, table, train


def test_the_notebook_s_example_is_ordered_by_the_transform_and_not_by_the_pixels():
    """A block of 500s, predicted as 100, as 450, and as a checkerboard of 480 and 520 (docs/howto/labels.md)."""
    row, column = np.mgrid[:8, :8]
    predictions = np.stack((np.full((8, 8), 100), np.full((8, 8), 450), 500 + 20 * (-1) ** (row + column)))
    residuals = torch.from_numpy(500.0 - predictions)
    step = torch.ones(3)
    of = {kind: [error_of(kind, one[None], step[:1]).item() for one in residuals] for kind in LOSSES}
    assert of["pixel L2"] == [160_000, 2500, 400]
    assert of["pixel L1"] == [400, 50, 20]
    np.testing.assert_allclose(np.array(of["DCT"]) * 64, [3200, 400, 418.4], atol=0.1)
    np.testing.assert_allclose(np.array(of["SATD"]) * 64, [3200, 400, 160], rtol=1e-6)
    best = {kind: int(np.argmin(values)) for kind, values in of.items()}
    assert best == {"pixel L2": 2, "pixel L1": 2, "SATD": 2, "DCT": 1, "rate proxy": 1}


@pytest.mark.parametrize("kind", LOSSES)
def test_every_loss_has_a_gradient_that_leads_to_the_block(kind):
    residual = torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(1)).mul(20).requires_grad_()
    before = error_of(kind, residual, torch.full((4,), 8.0))
    before.backward()
    moved = residual - 0.1 * residual.grad / residual.grad.norm() * residual.norm()
    assert error_of(kind, moved, torch.full((4,), 8.0)) < before


def test_a_trained_predictor_is_judged_by_all(tmp_path):
    rng = np.random.default_rng(0)
    slope = rng.normal(0, 12, (2, 600, 1, 1))
    y, x = np.mgrid[-1:16, -1:16]
    plane = np.clip(np.rint(500 + slope[0] * x + slope[1] * y), 0, 1023).astype(np.int32)
    cut = {
        "line": np.concatenate((plane[:, :0:-1, 0], plane[:, 0]), 1),
        "block": np.ascontiguousarray(plane[:, 1:9, 1:9]),
        "bit_depth": np.full(600, 10, np.int32),
        "qp": np.tile(np.array([22, 27, 32, 37], np.int32), 150),
    }
    picture = np.arange(600) // 60
    left = left_by(train("DCT", cut, 300, 1), cut)
    untrained = left_by(train("DCT", cut, 1, 1), cut)
    assert np.abs(left).mean() < 0.5 * np.abs(untrained).mean()
    sums = judge(left, cut, picture)
    assert sums[3].sum() == pytest.approx(
        sum(rate_cost(left[cut["qp"] == qp], qp, 10).sum() for qp in (22, 27, 32, 37))
    )
    assert (sums[2] >= 0).all()
    assert judge(np.zeros_like(left), cut, picture).sum() == 0, "nothing left takes no bits"
    counts = np.full((10, 4), 15.0)
    text = table({"pixel L2": [judge(planar(cut), cut, picture)], "DCT": [sums, sums]}, counts)
    assert "| DCT |" in text
