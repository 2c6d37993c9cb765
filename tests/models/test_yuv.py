"""Networks for luma and chroma: dependence between components, gain of chroma, growth from luma networks."""

import pytest
import torch

from codecnn.base.errors import ModelError
from codecnn.filtering import filter_outputs
from codecnn.models import complexity, create_model, grow, hidden_weights, load_model, prepare, save_weights
from tests.helpers.networks import awaken, random_picture, random_planes

SMALL = {
    "low_cost_yuv_17": {"features": 6, "blocks": 2, "expansion": 2},
    "rdn_yuv": {"features": 6, "blocks": 2, "layers": 2, "growth": 3},
}
LUMA = {"low_cost_yuv_17": ("low_cost_17", {}), "rdn_yuv": ("rdn", {"shuffle": 2})}
COLOUR = ["rec_y", "rec_u", "rec_v", "qp"]


@pytest.mark.parametrize("name", SMALL)
def test_each_output_depends_on_all_components(name):
    model = awaken(create_model(name, **SMALL[name])).double()
    planes = random_planes(model, 48, 48, dtype=torch.float64)
    for plane in COLOUR[:3]:
        planes[plane].requires_grad_()
    filtered = model(planes)
    for output, component in filtered.items():
        middle = component.shape[2] // 2
        gradients = torch.autograd.grad(
            component[0, 0, middle, middle], [planes[n] for n in COLOUR[:3]], retain_graph=True
        )
        for plane, gradient in zip(COLOUR[:3], gradients, strict=True):
            rows = torch.nonzero(gradient[0, 0].abs().sum(dim=1))
            assert len(rows) > 3, f"{output} depends on {plane}"
            # In luma samples, there is none beyond the radius; a chroma sample covers two.
            scale = 1 if plane == "rec_y" else 2
            at = middle * (1 if output == "y" else 2) + model.halo
            seen = [int(rows.min()) * scale, int(rows.max()) * scale + scale - 1]
            assert at - model.radius - 1 <= seen[0] <= seen[1] <= at + model.radius + 2, (output, plane)


def test_chroma_has_a_separate_gain():
    """It grows with the QP like the coding error of chroma, and does not affect luma."""
    model = awaken(create_model("low_cost_yuv_17", **SMALL["low_cost_yuv_17"]))
    fresh = create_model("low_cost_yuv_17")
    at = torch.tensor([22.0, 37.0, 52.0]) / 64
    assert fresh.chroma_gain(at).tolist() == pytest.approx([0.25, 0.5, 1.0], rel=0.02)
    assert fresh.gain(at)[1].item() == pytest.approx(1, rel=0.02)
    planes = random_planes(model, 16, 16)
    with torch.no_grad():
        before = model(planes)
        model.chroma_gain.log_gain.sub_(50)
        after = model(planes)
    assert torch.equal(before["y"], after["y"])
    for output in ("u", "v"):
        decoded = planes[f"rec_{output}"][:, :, 1:-1, 1:-1]
        assert float((before[output] - decoded).abs().max()) > 1e-4
        torch.testing.assert_close(after[output], decoded, rtol=0, atol=1e-12)


def test_an_rdn_has_one_gain_for_all():
    model = create_model("rdn_yuv", conditioning="film")
    assert model.chroma_gain is None
    assert model.gain_of("u") is model.gain


@pytest.mark.parametrize("size", [(33, 47), (5, 3)])
def test_odd_sizes_are_filtered_in_tiles_as_in_one_piece(size):
    model = awaken(create_model("low_cost_yuv_17", **SMALL["low_cost_yuv_17"], conditioning="plane"))
    picture = random_picture(model, *size)
    with torch.inference_mode():
        whole, tiles = filter_outputs(model, picture, None), filter_outputs(prepare(model), picture, 16)
    for output, plane in whole.items():
        assert plane.shape == picture[f"rec_{output}"].shape
        assert float((plane - picture[f"rec_{output}"]).abs().mean()) > 1e-4
        torch.testing.assert_close(tiles[output], plane, rtol=0, atol=1e-5)


def test_the_first_and_the_last_convolution_are_not_hidden():
    model = create_model("low_cost_yuv_17")
    hidden = {id(weight) for weight in hidden_weights(model)}
    assert id(model.head.weight) not in hidden
    assert id(model.tail.weight) not in hidden
    assert len(hidden) == 4 * 5


@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize("conditioning", ["film", "plane"])
@pytest.mark.parametrize("name", SMALL)
def test_a_network_with_chroma_grows_from_one_for_luma(name, conditioning, larger, tmp_path):
    luma, more = LUMA[name]
    options = SMALL[name] | {"conditioning": conditioning}
    small = awaken(create_model(luma, **options, **more, planes=["rec_y", "qp", "unf_y"]), 1)
    save_weights(tmp_path / "luma.safetensors", small, luma, {})
    sizes = {"features": 9, "blocks": 3} if larger else {}
    model = create_model(name, **options | sizes, planes=["rec_y", "rec_v", "qp", "unf_y", "rec_u"])
    report = grow(model, tmp_path / "luma.safetensors")
    assert {"head.weight", "tail.weight", "tail.bias"} <= set(report.names("adapted"))
    gain = {"chroma_gain.log_gain"} if name == "low_cost_yuv_17" else set()
    assert gain <= set(report.names("missing"))
    assert larger or set(report.names("missing")) == gain
    planes = random_planes(model, 24, 32, dtype=torch.float64)
    with torch.no_grad():
        filtered = model.double()(planes)
        expected = small.double()({plane: planes[plane] for plane in small.planes})
    assert float((expected - small.crop(planes["rec_y"])).abs().max()) > 1e-3
    # The weights of a QP plane are summed, in float32.
    error = 1e-12 if conditioning == "film" else 1e-6
    torch.testing.assert_close(filtered["y"], expected, rtol=0, atol=error * max(1, float(expected.abs().max())))
    halo = model.halo // 2
    for output in ("u", "v"):
        assert torch.equal(filtered[output], planes[f"rec_{output}"][:, :, halo:-halo, halo:-halo])
    # The weights from and to chroma learn.
    sum((plane - 0.5).square().mean() for plane in model(planes).values()).backward()
    assert float(model.tail.weight.grad[4:].abs().max()) > 0
    assert float(model.head.weight.grad[:, 4:5].abs().max()) > 0


def test_shipped_luma_weights_start_the_networks_with_chroma():
    for name, source in (("low_cost_yuv_17", "low_cost_17"), ("low_cost_yuv_75", "low_cost_75")):
        model = create_model(name).eval()
        grow(model, source)
        small, _ = load_model(source)
        planes = random_planes(model, 24, 32)
        with torch.no_grad():
            expected = small({plane: planes[plane] for plane in small.planes})
            torch.testing.assert_close(model(planes)["y"], expected, rtol=0, atol=1e-5)
        assert float((expected - small.crop(planes["rec_y"])).abs().max()) > 1e-4


def test_the_large_network_grows_from_the_small_one(tmp_path):
    small = awaken(create_model("low_cost_yuv_17"), 2, std=0.05)
    save_weights(tmp_path / "small.safetensors", small, "low_cost_yuv_17", {})
    model = create_model("low_cost_yuv_75").double()
    grow(model, tmp_path / "small.safetensors")
    planes = random_planes(model, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(planes), small.double()(planes), rtol=0, atol=1e-10)
    assert complexity(model).kmac_per_pixel == pytest.approx(75.456)


@pytest.mark.parametrize(
    ("name", "luma", "options", "message"),
    [
        (
            "low_cost_yuv_17",
            "low_cost_17",
            {"planes": ["rec_y", "qp", "unf_y"]},
            "has the planes rec_y, qp, unf_y, the",
        ),
        ("low_cost_yuv_17", "low_cost_17", {"shuffle": 4}, "has shuffle 4: a network for chroma grows from one with"),
        ("low_cost_yuv_17", "low_cost_17", {"features": 40}, "features 32, the one of .* 40"),
        ("low_cost_yuv_17", "rdn", {"shuffle": 2}, "YuvLowCost does not grow from RDN"),
        ("rdn_yuv", "rdn", {"shuffle": 2, "output": "picture"}, "has output picture"),
        ("rdn_yuv", "rdn", {"shuffle": 1}, "has shuffle 1"),
    ],
)
def test_luma_networks_that_do_not_fit_are_refused(name, luma, options, message, tmp_path):
    save_weights(tmp_path / "w.safetensors", create_model(luma, **options), luma, {})
    with pytest.raises(ModelError, match=message):
        grow(create_model(name), tmp_path / "w.safetensors")
