"""Mode network: planes from references, forward pass against NumPy, losses, learning, weights on disk."""

import json

import numpy as np
import pytest
import torch
from scipy.special import softmax

from codecnn.base.errors import MissingFileError, ModelError
from codecnn.models import create_model, load_model, save_weights
from codecnn.modes.networks import (
    create_mode_network,
    excess_cost,
    load_mode_network,
    mode_image,
    mode_loss,
    mode_side,
    save_mode_network,
)
from codecnn.modes.networks.architectures import MODE_PLANES
from tests.helpers.networks import awaken, learn
from tests.helpers.plain_blocks import convolve, linear, rdb, relu

SMALL = {"features": 6, "blocks": 2, "layers": 2, "growth": 4, "hidden": 12, "modes": 35}


def references(n, width, height, seed=0, bit_depth=8):
    """Return random corner, top, left and block."""
    rng = np.random.default_rng(seed)
    shapes = ((n,), (n, 2 * width), (n, 2 * height), (n, height, width))
    return [torch.from_numpy(rng.integers(0, 2**bit_depth, shape)) for shape in shapes]


@pytest.mark.parametrize(("width", "height"), [(4, 4), (8, 8), (4, 16), (16, 8), (64, 64)])
def test_planes_continue_the_reference_along_their_directions(width, height):
    corner, top, left, block = (tensor.numpy() for tensor in references(2, width, height, bit_depth=10))
    image = mode_image(*references(2, width, height, bit_depth=10), 10).numpy()
    assert image.shape == (2, len(MODE_PLANES), height, width)
    for n in range(2):

        def sample(x, y, n=n):
            """p[x][y] of H.266 8.4.5.2, the reference repeated beyond its end."""
            if x < 0 and y < 0:
                return corner[n]
            return top[n, min(x, 2 * width - 1)] if y < 0 else left[n, min(y, 2 * height - 1)]

        for y in range(height):
            for x in range(width):
                step = min(x, y) + 1
                expected = [
                    block[n, y, x],
                    sample(-1, y + x + 1),
                    sample(-1, y),
                    sample(x - step, y - step),
                    sample(x, -1),
                    sample(x + y + 1, -1),
                ]
                np.testing.assert_array_equal(image[n, :, y, x] * 1024, expected)


def test_planes_equal_unfiltered_predictions_of_hevc(golden):
    vectors = np.load(golden / "intra" / "intra_hevc_8bit.npz")
    # 4x4 references are never smoothed; the edge filter of the pure directions ends below 32x32 (H.265 8.4.4.2.6).
    for size, modes in (
        ("4x4", {"below_left": 2, "diagonal": 18, "above_right": 34}),
        ("32x32", {"left": 10, "above": 26}),
    ):
        parts = [torch.from_numpy(vectors[f"{size}_{part}"]) for part in ("corner", "top", "left", "orig")]
        image = mode_image(*parts, 8)
        for plane, mode in modes.items():
            predicted = vectors[f"{size}_pred"][:, mode] / 256
            np.testing.assert_array_equal(image[:, MODE_PLANES.index(plane)].numpy(), predicted, err_msg=plane)


def test_references_of_wrong_shape_are_refused():
    corner, top, left, block = references(2, 8, 4)
    with pytest.raises(ModelError, match=r"\(2, 8\), \(2, 16\) do not fit blocks of shape \(2, 4, 8\)"):
        mode_image(corner, left, top, block, 8)


def test_side_inputs():
    side = mode_side(torch.tensor([22, 37]), width=64, height=4)
    np.testing.assert_allclose(side, [[22 / 64, 1, 1 / 3], [37 / 64, 1, 1 / 3]], rtol=1e-6)


def reference_forward(model, image, side):
    """Compute the network in float64, block by block, with the correlation of scipy."""
    logits = []
    for planes, side_inputs in zip(image, side, strict=True):
        x = planes - planes.mean()
        contrast = np.sqrt(np.mean(x**2) + 2.0**-20)
        x = convolve(x / contrast, model.head)
        for block in model.blocks:
            x = rdb(x, block)
        c, h, w = x.shape
        cells = x.reshape(c, 4, h // 4, 4, w // 4).mean(axis=(2, 4)).ravel()
        features = np.concatenate([cells, side_inputs, [np.log2(contrast) / 10]])
        logits.append(linear(relu(linear(features, model.hidden)), model.tail))
    return np.stack(logits)


@pytest.mark.parametrize(("width", "height"), [(4, 4), (8, 16)])
def test_forward_equals_the_reference(width, height):
    model = awaken(create_mode_network(**SMALL)).double()
    image = mode_image(*references(3, width, height), 8).double()
    side = mode_side(torch.tensor([22, 32, 42]), width, height).double()
    expected = reference_forward(model, image.numpy(), side.numpy())
    np.testing.assert_allclose(model(image, side).detach().numpy(), expected, rtol=1e-10)


def test_gradients():
    model = awaken(create_mode_network(**SMALL | {"modes": 5, "growth": 2, "features": 2})).double()
    image = mode_image(*references(2, 4, 4), 8).double().requires_grad_()
    side = mode_side(torch.tensor([22, 42]), 4, 4).double().requires_grad_()
    assert torch.autograd.gradcheck(model, (image, side))
    model(torch.zeros(1, 6, 4, 4, dtype=torch.float64), side[:1]).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters()), "a flat block"


def test_logits_depend_on_contrast_and_side_but_not_on_offsets():
    model = awaken(create_mode_network(**SMALL)).double()
    image = mode_image(*references(2, 8, 8), 8).double()
    side = mode_side(torch.tensor([32, 32]), 8, 8).double()
    logits = model(image, side)
    torch.testing.assert_close(model(image + 0.25, side), logits)
    for other in (model(image / 2, side), model(image, side + torch.tensor([0.2, 0, 0])), model(image, side * 0.5)):
        assert (other - logits).abs().min() > 1e-6


@pytest.mark.parametrize("size", [4, 8, 16, 32, 64])
def test_an_untrained_network_gives_all_modes_equal_probability(size):
    model = create_mode_network(**SMALL | {"modes": 67})
    labels = torch.tensor([0, 66])
    logits = model(mode_image(*references(2, size, size), 8), mode_side(torch.tensor([22, 37]), size, size))
    assert logits.shape == (2, 67)
    assert mode_loss(logits, labels).item() == pytest.approx(np.log(67), rel=1e-6)
    assert not logits.argmax(dim=1).any(), "planar"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"growth": 0}, "growth"), ({"width": 3}, "width"), ({"hidden": 1.5}, "hidden")],
)
def test_networks_that_cannot_be_built(options, message):
    with pytest.raises(ModelError, match=message):
        create_mode_network(**options)


@pytest.mark.parametrize(
    ("image", "side", "message"),
    [((1, 5, 8, 8), (1, 3), "image"), ((1, 6, 2, 8), (1, 3), "image"), ((2, 6, 8, 8), (1, 3), "side")],
)
def test_inputs_of_wrong_shape_are_refused(image, side, message):
    with pytest.raises(ModelError, match=f"the {message} has shape"):
        create_mode_network(**SMALL)(torch.zeros(image), torch.zeros(side))


def test_losses_and_scores_against_numpy():
    rng = np.random.default_rng(1)
    logits, costs = rng.normal(size=(50, 67)), rng.integers(1, 10_000, (50, 67))
    best, rows = costs.min(axis=1), np.arange(50)
    labels = costs.argmin(axis=1)
    assert float(mode_loss(torch.from_numpy(logits), torch.from_numpy(labels))) == pytest.approx(
        -np.log(softmax(logits, axis=1)[rows, labels]).mean(), rel=1e-9
    )
    order = np.argsort(-logits, axis=1)
    for k in (1, 3):
        chosen = np.array([min(costs[row, order[row, :k]]) for row in rows])
        excess_of_best = excess_cost(torch.from_numpy(order[:, :k].copy()), torch.from_numpy(costs))
        assert float(excess_of_best) == pytest.approx(chosen.sum() / best.sum() - 1, rel=1e-12)
    assert float(excess_cost(torch.from_numpy(order.copy()), torch.from_numpy(costs))) == 0.0


def test_zero_costs_have_no_nan():
    costs = torch.tensor([[0, 5]])
    assert float(excess_cost(torch.tensor([[0]]), costs)) == 0.0
    assert float(excess_cost(torch.tensor([[1]]), costs)) == 5.0


def excess(logits, costs):
    return float(excess_cost(logits.argmax(dim=1, keepdim=True), costs))


def oriented_blocks(n, size, seed):
    """Return smooth random references, blocks that continue them along one of five directions, and labels 0..4."""
    rng = np.random.default_rng(seed)
    line = np.cumsum(rng.normal(0, 12, (n, 4 * size + 1)), axis=1) + 128
    corner, top, left = line[:, 2 * size], line[:, 2 * size + 1 :], line[:, 2 * size - 1 :: -1]
    labels = rng.integers(0, 5, n)
    y, x = np.mgrid[:size, :size]
    rows = np.arange(n)[:, None, None]
    centre = 2 * size
    index = np.stack([centre - 2 - x - y, centre - 1 - y, centre + x - y, centre + 1 + x, centre + 2 + x + y])
    block = line[rows, index[labels]] + rng.normal(0, 1, (n, size, size))
    return [torch.from_numpy(np.ascontiguousarray(part)) for part in (corner, top, left, block)], torch.from_numpy(
        labels
    )


def test_a_mode_network_learns_directions():
    torch.manual_seed(0)
    model = create_mode_network(features=8, blocks=1, layers=2, growth=8, hidden=32, modes=5)
    side = mode_side(torch.full((64,), 32), 8, 8)

    def batch(seed, n=64):
        parts, labels = oriented_blocks(n, 8, seed)
        image = mode_image(*parts, 8)
        return image, labels, 255 * (image[:, :1] - image[:, 1:]).abs().sum(dim=(2, 3))

    def loss(step):
        image, labels, _ = batch(step)
        return mode_loss(model(image, side), labels)

    learn(torch.optim.AdamW(model.parameters(), lr=4e-3), loss, 150)
    image, labels, costs = batch(10_000, 512)
    side = mode_side(torch.full((512,), 32), 8, 8)
    with torch.no_grad():
        logits = model(image, side)
    assert (logits.argmax(dim=1) == labels).double().mean() > 0.85
    assert excess(logits, costs) < 0.1 * excess(torch.zeros_like(logits), costs)


def test_one_network_learns_the_costs_of_vtm_for_all_sizes(shared_data):
    """The costs are SATDs of 67 modes from VTM, 7 blocks of each size."""
    vectors = np.load(shared_data / "golden" / "intra" / "intra_vvc_8bit.npz")
    measured = np.load(shared_data / "golden" / "intra" / "modecost_vvc_8bit.npz")
    batches = []
    for width, height in ((4, 4), (8, 8), (16, 16), (32, 32), (4, 16), (16, 8)):
        parts = [torch.from_numpy(vectors[f"{width}x{height}_{part}"]) for part in ("corner", "top", "left", "orig")]
        costs = torch.from_numpy(measured[f"{width}x{height}_satd"])
        assert costs.argmin(dim=1).tolist() == measured[f"{width}x{height}_best_satd_mode"].tolist()
        batches.append((mode_image(*parts, 8), mode_side(torch.full((7,), 32), width, height), costs))
    torch.manual_seed(0)
    model = create_mode_network(features=12, blocks=1, layers=2, growth=8, hidden=64)
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(80):
        logits = torch.cat([model(image, side) for image, side, _ in batches])
        costs = torch.cat([costs for _, _, costs in batches])
        optimiser.zero_grad()
        mode_loss(logits, costs.argmin(dim=1)).backward()
        optimiser.step()
    assert (logits.argmax(dim=1) == costs.argmin(dim=1)).double().mean() > 0.95
    assert excess(logits, costs) < 0.01 < excess(torch.zeros_like(logits), costs)


def test_weights_are_restored_and_each_task_has_its_loader(tmp_path):
    model = awaken(create_mode_network(**SMALL))
    path = tmp_path / "m.safetensors"
    save_mode_network(path, model, "modes", {"note": "x"})
    loaded, card = load_mode_network(path)
    image, side = mode_image(*references(2, 8, 8), 8), mode_side(torch.tensor([22, 37]), 8, 8)
    assert torch.equal(model(image, side), loaded(image, side))
    assert (card["task"], card["note"], loaded.training) == ("modes", "x", False)
    assert card["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    with pytest.raises(ModelError, match="holds a network of intra modes, not a filter: load_mode_network"):
        load_model(path)
    save_weights(tmp_path / "f.safetensors", create_model("rdn", features=4, blocks=1, layers=1, growth=2), "rdn", {})
    with pytest.raises(ModelError, match="holds a filter, not a network of intra modes: load_model"):
        load_mode_network(tmp_path / "f.safetensors")
    old = json.loads((tmp_path / "f.json").read_text())
    assert old.pop("task") == "filter"
    (tmp_path / "f.json").write_text(json.dumps(old))
    assert load_model(tmp_path / "f.safetensors")[1] == old, "cards without a task are of filters"
    (tmp_path / "m.json").unlink()
    with pytest.raises(MissingFileError, match=r"m\.json"):
        load_mode_network(path)
