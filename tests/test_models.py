"""Networks: cost against the closed form, identity at the start, planes, radius, weights on disk."""

import json

import pytest
import torch

from codecnn.errors import MissingFileError, ModelError
from codecnn.models import complexity, create_model, list_models, load_model, save_weights

SMALL = {"features": 8, "blocks": 2, "layers": 2, "growth": 4}


def rdn_macs(features, blocks, layers, growth, shuffle, planes):
    """Multiply-accumulates a pixel of RDN, layer by layer."""
    cells = shuffle**2
    block = sum(9 * (features + index * growth) * growth for index in range(layers))
    block += (features + layers * growth) * features
    total = 9 * planes * cells * features + 9 * features**2 + blocks * block
    total += blocks * features * features + 9 * features**2 + 9 * features * cells
    return total / cells


@pytest.mark.parametrize(
    ("options", "published"),
    [
        ({"features": 32, "blocks": 3, "layers": 6, "growth": 16, "shuffle": 1}, 221),
        ({"features": 32, "blocks": 4, "layers": 6, "growth": 24, "shuffle": 1}, 523),
        ({"features": 64, "blocks": 4, "layers": 6, "growth": 24, "shuffle": 2}, 198),
    ],
)
def test_the_notebooks_networks_cost_what_it_says(options, published):
    cost = complexity(create_model("rdn", **options))
    assert cost.kmac_per_pixel == pytest.approx(rdn_macs(**options, planes=2) / 1000, rel=1e-12)
    assert round(cost.kmac_per_pixel) == published
    assert cost.kmac_per_pixel_with_halo > cost.kmac_per_pixel


def test_cost_without_a_qp_plane():
    cost = complexity(create_model("rdn", **SMALL, planes=["rec_y"]))
    assert cost.kmac_per_pixel == pytest.approx(rdn_macs(8, 2, 2, 4, 1, 1) / 1000, rel=1e-12)


def _planes(model, height, width, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shape = (1, 1, height + 2 * model.halo, width + 2 * model.halo)
    return {
        "rec_y": torch.rand(shape, generator=generator, dtype=dtype),
        "qp": torch.full((1, 1, 1, 1), 0.5, dtype=dtype),
    }


def awaken(model, seed=0):
    """Random weights everywhere, so that nothing is hidden by the zero start."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.mark.parametrize("shuffle", [1, 2, 4])
@pytest.mark.parametrize("name", list_models())
def test_an_untrained_network_is_the_identity_and_learns(name, shuffle):
    model = create_model(name, **SMALL, shuffle=shuffle)
    planes = _planes(model, 32, 48)
    filtered = model(planes)
    halo = model.halo
    assert torch.equal(filtered, planes["rec_y"][:, :, halo:-halo, halo:-halo])
    (filtered - 0.5).square().mean().backward()
    assert model.tail.weight.grad.abs().max() > 0
    awaken(model)
    (model(planes) - 0.5).square().mean().backward()
    for parameter_name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


def test_the_head_takes_132_to_128():
    model = create_model("rdn")
    assert model.halo == 2
    assert model({"rec_y": torch.zeros(1, 1, 132, 132), "qp": torch.zeros(1, 1, 1, 1)}).shape == (1, 1, 128, 128)


@pytest.mark.parametrize("shuffle", [1, 2])
def test_the_radius_is_what_a_sample_sees(shuffle):
    model = awaken(create_model("rdn", **SMALL, shuffle=shuffle)).double()
    planes = _planes(model, 96, 96, dtype=torch.float64)
    planes["rec_y"].requires_grad_()
    for y, x in ((48, 48), (49, 49)):
        (gradient,) = torch.autograd.grad(model(planes)[0, 0, y, x], planes["rec_y"])
        rows, columns = torch.nonzero(gradient[0, 0], as_tuple=True)
        reach = max(
            abs(int(index) - model.halo - centre)
            for centre, seen in ((y, rows), (x, columns))
            for index in (seen.min(), seen.max())
        )
        assert reach <= model.radius
        width = int(rows.max() - rows.min()) + 1
        assert width <= complexity(model).receptive_field
    assert reach == model.radius, "a radius larger than it is would only cost time, but says something untrue"


def test_the_qp_matters():
    model = awaken(create_model("rdn", **SMALL))
    planes = _planes(model, 16, 16)
    other = planes | {"qp": torch.full((1, 1, 1, 1), 0.6)}
    assert not torch.allclose(model(planes), model(other), atol=1e-4)


def test_a_constant_plane_is_the_same_as_a_filled_one():
    model = awaken(create_model("rdn", **SMALL))
    planes = _planes(model, 16, 16)
    filled = planes | {"qp": torch.full_like(planes["rec_y"], 0.5)}
    torch.testing.assert_close(model(planes), model(filled))


@pytest.mark.parametrize(
    ("planes", "message"),
    [
        ({"qp": torch.zeros(1, 1, 1, 1)}, "'rec_y'"),
        ({"rec_y": torch.zeros(1, 1, 20, 20)}, "'qp'"),
        ({"rec_y": torch.zeros(1, 1, 20, 20), "qp": torch.zeros(1, 1, 19, 20)}, "'qp' has shape"),
        ({"rec_y": torch.zeros(1, 1, 4, 20), "qp": torch.zeros(1, 1, 1, 1)}, "does not fit"),
    ],
)
def test_planes_that_do_not_fit_are_named(planes, message):
    with pytest.raises(ModelError, match=message):
        create_model("rdn", **SMALL)(planes)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rnd", {}, "unknown network 'rnd'"),
        ("rdn", {"depth": 3}, "depth"),
        ("rdn", {"blocks": 0}, "blocks"),
        ("rdn", {"planes": ["rec_y", "colour"]}, "'colour'"),
        ("rdn", {"planes": ["qp"]}, "rec_y"),
    ],
)
def test_networks_that_cannot_be_built(name, options, message):
    with pytest.raises(ModelError, match=message):
        create_model(name, **options)


def test_weights_come_back_as_they_were(tmp_path):
    model = awaken(create_model("rdn", **SMALL))
    save_weights(tmp_path / "w.safetensors", model, "rdn", {"note": "x"})
    loaded, card = load_model(tmp_path / "w.safetensors")
    planes = _planes(model, 16, 16)
    assert torch.equal(model(planes), loaded(planes))
    assert card["note"] == "x"
    assert card["parameters"] == sum(parameter.numel() for parameter in model.parameters())


def test_weights_that_are_not_what_the_card_says_are_refused(tmp_path):
    path, card_path = tmp_path / "w.safetensors", tmp_path / "w.json"
    with pytest.raises(MissingFileError):
        load_model(path)
    save_weights(path, create_model("rdn", **SMALL), "rdn", {})
    card = json.loads(card_path.read_text())

    def refused(message, **changes):
        card_path.write_text(json.dumps(card | changes))
        with pytest.raises(ModelError, match=message):
            load_model(path)

    refused("schema", schema=99)
    refused("sha256", sha256="0" * 64)
    refused("does not fit", options=card["options"] | {"features": 9})
    refused("unknown network", network="none")
    broken = create_model("rdn", **SMALL)
    torch.nn.init.constant_(broken.head.bias, float("nan"))
    save_weights(path, broken, "rdn", {})
    with pytest.raises(ModelError, match="not finite"):
        load_model(path)
    pickled = tmp_path / "w.pt"
    pickled.write_bytes(b"x")
    with pytest.raises(ModelError, match="pickled"):
        load_model(pickled)
