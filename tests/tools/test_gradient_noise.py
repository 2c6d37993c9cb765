"""Signal and noise of gradients, on gradients whose mean and scatter are known."""

import pytest
import torch

from codecnn.models import create_model, save_weights
from codecnn.training import FilterSettings
from codecnn.training.filter import filter_task
from tests.helpers.networks import SMALL, awaken
from tools.gradient_noise import noise, patch_gradients


def test_the_ratio_is_that_of_what_the_gradients_were_drawn_from():
    torch.manual_seed(0)
    mean = torch.randn(400)
    scales = torch.tensor([1.0, 3.0]).repeat(2000)[:, None]  # by turns of QP 22 and 37
    gradients = mean + 5 * scales * torch.randn(4000, 400)
    found = noise(gradients, [22, 37] * 2000)
    assert found.ratio == pytest.approx(float(mean.square().mean()) / (25 * 5), rel=0.1)
    assert found.by_qp == {22: pytest.approx(0.1, rel=0.05), 37: pytest.approx(0.9, rel=0.05)}


def test_no_signal_is_none_whatever_the_number():
    torch.manual_seed(1)
    assert abs(noise(torch.randn(64, 1000), [22] * 64).ratio) < 3e-3


def test_the_mean_gradient_of_patches_is_that_of_their_batch(tiny_store, tmp_path):
    weights = tmp_path / "awake.safetensors"
    save_weights(weights, awaken(create_model("rdn", **SMALL)), "rdn", {"qps": [32, 42]})
    settings = FilterSettings(batch=6, patch=48, seed=2, start={"weights": str(weights)})
    gradients, qps = patch_gradients(tiny_store, "rdn", str(weights), settings)
    assert set(qps) <= {32, 42}
    task = filter_task(tiny_store, "rdn", SMALL, settings)
    (batch,) = task.batches(range(1), 0, 1, torch.device("cpu"))
    task.loss(task.model.train(), batch).backward()
    whole = torch.cat([parameter.grad.flatten() for parameter in task.model.parameters()])
    torch.testing.assert_close(gradients.mean(dim=0), whole, rtol=1e-4, atol=1e-5 * float(whole.abs().max()))
