"""Architectures: cost against closed forms, identity at the start, planes, radius, folding, memory, weights files."""

import copy
import json
import resource
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from codecnn.base.division import ceil_div
from codecnn.base.errors import MissingFileError, ModelError
from codecnn.filtering import filter_outputs
from codecnn.models import (
    KNOWN_PLANES,
    PLANE_SETS,
    QpModulation,
    complexity,
    complexity_table,
    create_model,
    fold,
    inference_peak,
    load_model,
    named_outputs,
    peak_memory,
    prepare,
    probe_planes,
    save_weights,
    training_peak,
)
from codecnn.models.blocks import Block, InPlace
from codecnn.models.inference import Scratch
from tests.helpers.networks import (
    ABLATIONS,
    CASES,
    QP,
    SMALL,
    awaken,
    create_case,
    learn,
    random_picture,
    random_planes,
    zoo_model,
)


def rdn_macs(features, blocks, layers, growth, shuffle, planes, head="3x3"):
    """Return the multiply-accumulates per pixel of an RDN, layer by layer."""
    cells = shuffle**2
    block = sum(9 * (features + index * growth) * growth for index in range(layers))
    block += (features + layers * growth) * features
    total = 9 * planes * cells * features + 9 * features**2 if head == "3x3" else 25 * planes * cells * features
    total += blocks * block
    total += blocks * features * features + 9 * features**2 + 9 * features * cells
    return total / cells


def rdn_yuv_macs():
    """Return the cost for seven input channels (four of luma, two of chroma, the QP) and six output channels."""
    trunk = rdn_macs(32, 3, 6, 16, 1, planes=7)
    return (trunk - 9 * 32 + 9 * 32 * 6) / 4


def low_cost_macs(features, blocks, block, components=1, planes=None):
    """Return the multiply-accumulates per pixel; a luma plane has four channels, a chroma plane one."""
    outputs = {1: 4, 3: 6}[components]
    inputs = outputs + 4 * (planes or 1) - 4
    return (9 * inputs * features + blocks * block + 9 * features * outputs) / 4


def lop_macs(groups, width=176, narrow=32, attention=32, shuffle=4, planes=5):
    """Return the multiply-accumulates per pixel; the pooled part of an attention has a quarter of the samples."""
    cells = shuffle**2
    ends = 9 * planes * cells * narrow + 2 * width * narrow + 6 * narrow + narrow**2 + narrow * cells
    blocks = sum(groups) * (2 * width * narrow + 6 * narrow)
    pooled = (6 * attention + attention**2) / 4
    attentions = len(groups) * (2 * width * attention + attention**2 + pooled)
    return (ends + blocks + attentions) / cells


MACS = {
    "lop_14": lop_macs((2, 2, 2, 2, 3)),
    "lop_17": lop_macs((3, 3, 3, 3, 3)),
    "rdn": rdn_macs(32, 3, 6, 16, 1, planes=2),
    "rdn_32_3_6_16": rdn_macs(32, 3, 6, 16, 1, planes=2),
    "rdn_32_4_6_24": rdn_macs(32, 4, 6, 24, 1, planes=2),
    "rdn_64_4_6_24_shuffle": rdn_macs(64, 4, 6, 24, 2, planes=2),
    "rdn_yuv": rdn_yuv_macs(),
    "quarter_unshuffle": rdn_macs(64, 4, 6, 26, 2, planes=1),
    "quarter_haar": rdn_macs(64, 4, 6, 26, 2, planes=1),
    "quarter_light": rdn_macs(32, 2, 3, 16, 2, planes=1),
    "low_cost_5": low_cost_macs(24, 6, 9 * 24 + 2 * 2 * 24**2),
    "low_cost_17": low_cost_macs(32, 5, 2 * 3 * 32**2 + 2 * 3 * 32**2),
    "low_cost_17 unfiltered": low_cost_macs(32, 5, 2 * 3 * 32**2 + 2 * 3 * 32**2, planes=2),
    "low_cost_17 slice_type": low_cost_macs(32, 5, 2 * 3 * 32**2 + 2 * 3 * 32**2, planes=2),
    "low_cost_17 decoder+neighbours2": low_cost_macs(32, 5, 2 * 3 * 32**2 + 2 * 3 * 32**2, planes=10),
    "low_cost_17 slice_type+neighbours2": low_cost_macs(32, 5, 2 * 3 * 32**2 + 2 * 3 * 32**2, planes=6),
    "low_cost_75": low_cost_macs(64, 6, 2 * 3 * 64**2 + 2 * 3 * 64**2),
    "low_cost_75 unfiltered": low_cost_macs(64, 6, 2 * 3 * 64**2 + 2 * 3 * 64**2, planes=2),
    "low_cost_75 decoder+neighbours2": low_cost_macs(64, 6, 2 * 3 * 64**2 + 2 * 3 * 64**2, planes=10),
    "low_cost_400": low_cost_macs(128, 8, 2 * 3 * 128**2 + 2 * 3 * 128**2),
    "low_cost_400 unfiltered": low_cost_macs(128, 8, 2 * 3 * 128**2 + 2 * 3 * 128**2, planes=2),
    "low_cost_yuv_17": low_cost_macs(32, 5, 2 * 3 * 32**2 + 2 * 3 * 32**2, 3),
    "low_cost_yuv_17 unfiltered": low_cost_macs(32, 5, 2 * 3 * 32**2 + 2 * 3 * 32**2, 3, planes=2),
    "low_cost_yuv_17 slice_type": low_cost_macs(32, 5, 2 * 3 * 32**2 + 2 * 3 * 32**2, 3, planes=2),
    "low_cost_yuv_17 decoder+neighbours": low_cost_macs(32, 5, 2 * 3 * 32**2 + 2 * 3 * 32**2, 3, planes=8),
    "low_cost_yuv_75": low_cost_macs(64, 6, 2 * 3 * 64**2 + 2 * 3 * 64**2, 3),
    "vrcnn": 25 * 64 + 64 * (25 * 16 + 9 * 32) + 48 * (9 * 16 + 32) + 9 * 48,
    "arcnn": 81 * 64 + 49 * 64 * 32 + 32 * 16 + 25 * 16,
    "dncnn": 9 * 64 + 15 * 9 * 64**2 + 9 * 64,
    "edsr": 9 * 64 + 33 * 9 * 64**2 + 9 * 64,
}
"""Multiply-accumulates per luma pixel by the definition of each network."""


@pytest.mark.parametrize("name", CASES)
def test_the_cost_is_the_closed_form(name):
    cost = complexity(create_case(name, {}))
    assert cost.kmac_per_pixel == pytest.approx(MACS[name] / 1000, rel=1e-12)
    assert cost.kmac_per_pixel_with_halo >= cost.kmac_per_pixel
    assert cost.rdb_macs == cost.rdb_macs_counted


@pytest.mark.parametrize("name", ["low_cost_17", "rdn_32_3_6_16"])
def test_the_context_of_a_ctu_alone_is_sufficient_and_necessary(name):
    """The context that `kmac_per_pixel_alone` counts gives the same CTU as a larger one; a smaller one does not."""
    model, size = awaken(create_model(name)).double(), 32
    cost, step = complexity(model, size), model.stride
    context = ceil_div(model.radius - model.halo, step) * step

    wide = torch.rand(1, 1, 192 + size, 192 + size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def inner(around):
        cut = slice(96 - around - model.halo, 96 + size + around + model.halo)
        window = wide[..., cut, cut]
        filtered = model({"rec_y": window, "qp": torch.full((1, 1, 1, 1), 0.5, dtype=torch.float64)})
        return named_outputs(filtered)["y"][..., around : around + size, around : around + size]

    assert torch.allclose(inner(context), inner(context + 2 * step), rtol=0, atol=1e-12)
    assert not torch.allclose(inner(context - 2 * step), inner(context), rtol=0, atol=1e-12)
    assert cost.kmac_per_pixel_alone > cost.kmac_per_pixel_with_halo


def test_low_cost_networks_have_the_cost_in_their_names():
    for limit in (5, 17, 75, 400):
        assert complexity(create_model(f"low_cost_{limit}")).kmac_per_pixel <= limit
    for limit in (17, 75):
        assert complexity(create_model(f"low_cost_yuv_{limit}")).kmac_per_pixel < limit + 1


@pytest.mark.parametrize("options", ABLATIONS)
def test_ablations_have_the_cost_of_the_closed_form(options):
    cost = complexity(create_model("rdn", **SMALL, **options))
    expected = rdn_macs(8, 2, 2, 4, options.get("shuffle", 1), 2, options.get("head", "3x3"))
    assert cost.kmac_per_pixel == pytest.approx(expected / 1000, rel=1e-12)


def test_the_table_has_every_network(monkeypatch):
    monkeypatch.setattr("codecnn.models.cost.list_models", lambda: ["rdn_32_3_6_16", "low_cost_5"])
    lines = complexity_table().splitlines()
    assert lines[2].startswith("| `low_cost_5` | 4.2 |")
    assert lines[3].startswith("| `rdn_32_3_6_16` | 221.3 | 221.3 | 381.2 | 221,810 | 45 |")


@pytest.mark.parametrize("name", CASES)
def test_networks_fulfil_the_contract(name, tmp_path):
    """Shapes, identity at the start, finite gradients, tiles, odd sizes, the prepared copy and weights on disk."""
    model = zoo_model(name)
    planes = random_planes(model, 16, 24)
    filtered = named_outputs(model(planes))
    assert tuple(filtered) == model.outputs
    for output, plane in filtered.items():
        halo = model.halo // (1 if output == "y" else 2)
        rec = planes[f"rec_{output}"]
        assert torch.equal(plane, rec[:, :, halo : rec.shape[2] - halo, halo : rec.shape[3] - halo])

    awaken(model, std=0.1)
    for index in range(3):  # running statistics of batch normalisation
        model.train()(random_planes(model, 16, 24, seed=index))
    outputs = named_outputs(model(planes))
    sum((plane - 0.5).square().mean() for plane in outputs.values()).backward()
    for parameter_name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name

    model.eval()
    picture = random_picture(model, 33, 47)
    with torch.inference_mode():
        whole = filter_outputs(model, picture, None)
        scale = max((whole[output] - picture[f"rec_{output}"]).abs().max().item() for output in whole)
        assert scale > 1e-3
        fast = filter_outputs(prepare(model), picture, None)
        tiles = filter_outputs(prepare(model), picture, 14)
    for output, plane in whole.items():
        assert plane.shape == picture[f"rec_{output}"].shape
        tolerance = 1e-5 * max(1, scale)
        torch.testing.assert_close(fast[output], plane, rtol=0, atol=tolerance)
        torch.testing.assert_close(tiles[output], plane, rtol=0, atol=tolerance)

    save_weights(tmp_path / "w.safetensors", model, name.partition(" ")[0], {})
    loaded, _ = load_model(tmp_path / "w.safetensors")
    assert loaded.options == model.options
    again = filter_outputs(loaded, picture, None)
    assert all(torch.equal(again[output], plane) for output, plane in whole.items())


def test_a_network_that_predicts_pictures_does_not_start_as_the_identity():
    model = create_model("rdn", **SMALL, output="picture")
    planes = random_planes(model, 16, 16)
    filtered = model(planes)
    assert (filtered - model.crop(planes["rec_y"])).abs().max() > 0.1
    filtered.square().mean().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


@pytest.mark.parametrize("network", ["rdn", "rdn_yuv"])
def test_the_default_initialisation_of_torch(network, tmp_path):
    torch.manual_seed(1)
    model = create_model(network, **SMALL, initialisation="torch")
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Conv2d):
            bound = (layer.in_channels * layer.kernel_size[0] ** 2) ** -0.5  # uniform, weights and biases
            assert 0.9 * bound < layer.weight.abs().max() <= bound, name
            assert 0 < layer.bias.abs().max() <= bound, name
    assert model.head.weight[:, :1].mean(dim=(1, 2, 3)).abs().max() > 1e-3
    planes = random_planes(model, 16, 16)
    assert (named_outputs(model(planes))["y"] - model.crop(planes["rec_y"])).abs().max() > 1e-5
    save_weights(tmp_path / "w.safetensors", model, network, {})
    assert load_model(tmp_path / "w.safetensors")[0].options["initialisation"] == "torch"
    with pytest.raises(ModelError, match="'ones'"):
        create_model(network, initialisation="ones")


@pytest.mark.parametrize("name", ["low_cost_17", "low_cost_5", "quarter_light"])
def test_a_low_cost_network_learns_in_a_few_steps(name):
    model = zoo_model(name)
    planes = random_planes(model, 32, 32)
    target = model.crop(torch.nn.functional.avg_pool2d(planes["rec_y"], 3, 1, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = learn(optimiser, lambda _: (model(planes) - target).square().mean(), 25)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("name", ["low_cost_5", "dncnn"])
def test_folding_is_exact(name):
    model = awaken(zoo_model(name), std=0.1).double()
    model.train()(random_planes(model, 16, 16, dtype=torch.float64))
    planes = random_planes(model, 16, 16, seed=1, dtype=torch.float64)
    folded = fold(model)
    assert not any("branches" in key or "norm" in key for key in folded.state_dict())
    torch.testing.assert_close(folded(planes), model.eval()(planes), rtol=0, atol=1e-6)


def test_synchronised_batch_normalisation_folds():
    """Training on several GPUs converts batch normalisation; the network must still fold, and its cost be right."""
    plain = awaken(create_model("dncnn", layers=5), std=0.1)
    for seed in range(2):  # running statistics
        plain.train()(random_planes(plain, 16, 16, seed=seed))
    converted = torch.nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain)).eval()
    assert any(isinstance(module, torch.nn.SyncBatchNorm) for module in converted.modules())
    folded, planes = fold(converted), random_planes(plain, 16, 16, seed=2)
    assert not any("norm" in key for key in folded.state_dict())
    torch.testing.assert_close(folded(planes), converted(planes), rtol=0, atol=1e-5)
    assert complexity(converted) == complexity(plain)


@pytest.fixture(params=[True, False])
def fuses(request, monkeypatch):
    """Run a test with and without oneDNN's fused operators."""
    if not request.param:
        monkeypatch.setattr("codecnn.models.inference.FUSES", False)


@pytest.mark.usefixtures("fuses")
@pytest.mark.parametrize("options", [{}, {"growth": 48, "layers": 2}, {"growth": 5, "layers": 4}, {"layers": 1}])
def test_grouped_blocks_equal_the_blocks(options):
    """Groups may have one layer or all layers, and the last group may be incomplete."""
    for local_residual in (True, False):
        model = create_model("rdn", **SMALL | {"growth": 16, "layers": 5} | options, local_residual=local_residual)
        model = awaken(model, std=0.1)
        planes = random_planes(model, 12, 16)
        with torch.inference_mode():
            torch.testing.assert_close(prepare(model)(planes), model(planes), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("fuses")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("conditioning", ["film", "se", "plane"])
@pytest.mark.parametrize("network", ["low_cost_17", "low_cost_5", "rdn"])
def test_fused_blocks_equal_the_blocks(network, conditioning, dtype):
    """They overwrite their inputs but no plane, and a second picture through the same network is correct as well."""
    model = awaken(create_model(network, features=12, blocks=3, conditioning=conditioning), std=0.1).to(dtype)
    ready = prepare(model)
    assert not any(isinstance(child, Block) for child in [*ready.blocks, *(ready.modulations or [])])
    fused = [module.block for module in ready.modules() if isinstance(module, InPlace)]
    assert any(isinstance(block, QpModulation) for block in fused) == (conditioning != "plane")
    with torch.inference_mode():
        for seed in range(2):
            planes = random_planes(model, 12, 16, seed=seed, dtype=dtype)
            given = {name: plane.clone() for name, plane in planes.items()}
            expected = model(planes)
            assert float((expected - model.crop(planes["rec_y"])).abs().max()) > 1e-3
            error = 1e-5 if dtype == torch.float32 else 1e-6 if network == "low_cost_5" else 1e-12
            torch.testing.assert_close(ready(planes), expected, rtol=0, atol=error)
            assert all(torch.equal(planes[name], plane) for name, plane in given.items())


def test_threads_have_separate_scratch_memory():
    scratch, x = Scratch(), torch.zeros(1, 3, 8, 8)
    tensor = scratch.like(x, "sum", 2)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(scratch.like, x, "sum", 2).result()
    assert other.data_ptr() != tensor.data_ptr()
    assert scratch.like(x, "sum", 2) is tensor


def test_a_prepared_network_does_not_change_with_its_source():
    model = awaken(create_model("rdn", **SMALL))
    ready = prepare(model)
    planes = random_planes(model, 12, 16)
    before = ready(planes)
    awaken(model, seed=1)
    assert torch.equal(ready(planes), before)
    assert not any(parameter.requires_grad for parameter in ready.parameters())


def test_counted_memory_is_equal_on_cpu_and_meta_device():
    """Checkpointing saves memory in training, and the shared buffer in inference."""
    plain, saving = (create_model("rdn_32_3_6_16", checkpoint=value) for value in (False, True))
    planes = probe_planes(plain, 32, 32, "cpu")
    on_meta = probe_planes(plain, 32, 32)
    counted = training_peak(plain, planes)
    assert counted == training_peak(create_model("rdn_32_3_6_16").to("meta"), on_meta)
    assert training_peak(saving, planes) < 0.6 * counted
    assert inference_peak(plain.eval(), planes) < 0.2 * counted
    assert peak_memory(plain, 32)["training_bytes"] == counted
    torch.testing.assert_close(plain(planes), saving(planes))


def test_a_known_computation_has_a_known_peak():
    class Doubling(torch.nn.Module):
        def forward(self, planes):
            first = planes["rec_y"] * 2  # one plane
            second = torch.cat([first, first])  # and two more
            del first
            return second * 2  # two and two

    planes = {"rec_y": torch.zeros(1, 1, 64, 64)}
    assert inference_peak(Doubling(), planes) == 4 * 64 * 64 * 4


@pytest.mark.slow
def test_counted_memory_agrees_with_the_process():
    """The peak of resident memory grows by the counted bytes, except for memory inside operations."""
    model = create_model("rdn_32_4_6_24")
    planes = probe_planes(model, 512, 512, "cpu")
    training_peak(model, probe_planes(model, 32, 32, "cpu"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    counted = training_peak(model, planes)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    assert 0.8 * counted < grown < 1.5 * counted


@pytest.mark.gpu
def test_checkpointing_saves_on_cuda():
    """Compare the measured saving of activation checkpointing with the counted one.

    Measured is the peak of the allocator in a forward and backward pass of one 512x512 patch, where activations
    dominate (4.1 GB). It includes the workspaces of cuDNN, which are about the same with and without checkpointing.
    Therefore the difference of the peaks is compared with the difference of the bytes in activations and gradients.
    """
    measured, counted = [], []
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):
        for checkpoint in (False, True):
            torch.cuda.empty_cache()
            model = create_model("rdn_32_4_6_24", checkpoint=checkpoint)
            counted.append(training_peak(copy.deepcopy(model).to("meta"), probe_planes(model, 512, 512)))
            measured.append(training_peak(model.cuda(), probe_planes(model, 512, 512, "cuda")))
            del model
    assert measured[1] < measured[0]
    assert measured[0] - measured[1] > 0.6 * (counted[0] - counted[1])


def test_the_head_takes_132_to_128():
    model = create_model("rdn")
    assert model.halo == 2
    assert model({"rec_y": torch.zeros(1, 1, 132, 132), "qp": torch.zeros(1, 1, 1, 1)}).shape == (1, 1, 128, 128)


REACH = [
    ("rdn", SMALL),
    ("rdn", SMALL | {"shuffle": 2}),
    ("rdn", SMALL | {"head": "5x5"}),
    ("rdn", SMALL | {"shuffle": 2, "upsampling": "transposed"}),
    ("quarter_haar", SMALL),
    ("low_cost_17", {"features": 8, "blocks": 2}),
    ("low_cost_5", {"features": 8, "blocks": 2}),
    ("vrcnn", {}),
    ("arcnn", {}),
    ("dncnn", {"features": 8, "layers": 5}),
    ("edsr", {"features": 8, "blocks": 2}),
    ("rdn_yuv", SMALL),
    ("low_cost_yuv_17", {"features": 8, "blocks": 2}),
]


@pytest.mark.parametrize(("name", "options"), REACH)
def test_the_radius_agrees_with_gradients(name, options):
    """The gradient of samples at several positions of a cell is zero beyond the radius."""
    model = awaken(create_model(name, **options)).double()
    planes = random_planes(model, 96, 96, dtype=torch.float64)
    planes["rec_y"].requires_grad_()
    filtered, reach = named_outputs(model(planes))["y"], 0
    for y, x in ((48, 48), (49, 49)):
        (gradient,) = torch.autograd.grad(filtered[0, 0, y, x], planes["rec_y"], retain_graph=True)
        rows, columns = torch.nonzero(gradient[0, 0], as_tuple=True)
        far = [
            abs(int(index) - model.halo - centre)
            for centre, seen in ((y, rows), (x, columns))
            for index in (seen.min(), seen.max())
        ]
        assert max(far) <= model.radius
        assert int(rows.max() - rows.min()) + 1 == complexity(model).receptive_field
        reach = max(reach, *far)
    assert reach == model.radius, "a radius larger than it is would only cost time, but says something untrue"


def test_upsampled_chroma_reaches_two_samples_further():
    model = awaken(create_model("rdn", **SMALL, planes=["rec_y", "rec_u"])).double()
    planes = random_planes(model, 64, 64, dtype=torch.float64)
    planes["rec_u"].requires_grad_()
    for y in (32, 33):
        (gradient,) = torch.autograd.grad(model(planes)[0, 0, y, y], planes["rec_u"])
        rows = torch.nonzero(gradient[0, 0])[:, 0]
        first, last = 2 * int(rows.min()) - model.halo, 2 * int(rows.max()) + 1 - model.halo
        assert y - first <= model.radius + 1
        assert last - y <= model.radius + 1
        assert max(y - first, last - y) >= model.radius


@pytest.mark.parametrize("conditioning", ["film", "se", "plane"])
def test_the_qp_matters(conditioning):
    model = awaken(create_model("rdn", **SMALL, conditioning=conditioning))
    assert model.head.in_channels == (2 if conditioning == "plane" else 1)
    planes = random_planes(model, 16, 16)
    other = planes | {"qp": torch.full((1, 1, 1, 1), 27 / 64)}
    assert not torch.allclose(model(planes), model(other), atol=1e-4)
    model.gain = None
    assert not torch.allclose(model(planes), model(other), atol=1e-4)


def test_every_known_plane_can_be_declared_and_matters():
    model = awaken(create_model("rdn", **SMALL, shuffle=2, planes=KNOWN_PLANES), std=0.1)
    planes = random_planes(model, 16, 16)
    before = model(planes)
    for name in model.planes:
        assert not torch.allclose(model(planes | {name: planes[name] * 0.5}), before, atol=1e-6), name
        with pytest.raises(ModelError, match=f"needs the plane '{name}'"):
            model({other: plane for other, plane in planes.items() if other != name})


BASE = ("rec_y", "qp")
DECODER = ("slice_type", "unf_y", "pred_y", "bs_v", "bs_h")


@pytest.mark.parametrize(
    ("name", "option", "planes"),
    [
        ("low_cost_17", "unfiltered", (*BASE, "unf_y")),
        ("low_cost_17", "decoder+neighbours", (*BASE, *DECODER, "prev_mc_y", "next_mc_y")),
        ("low_cost_17", ["slice_type", "neighbours2"], (*BASE, "slice_type", *PLANE_SETS["neighbours2"])),
        ("low_cost_17", "unfiltered + decoder", (*BASE, "unf_y", "slice_type", "pred_y", "bs_v", "bs_h")),
        ("low_cost_17", ["rec_y", "unfiltered", "qp"], ("rec_y", "unf_y", "qp")),
        ("low_cost_17", "qp+depth", (*BASE, "depth")),
        ("low_cost_17.vvc_video", "neighbours", (*BASE, "slice_type", "prev_mc_y", "next_mc_y")),
        ("low_cost_yuv_17", "unfiltered", ("rec_y", "rec_u", "rec_v", "qp", "unf_y")),
        ("arcnn", "qp", BASE),
        ("lop_14", "rec_y + qp", BASE),
    ],
)
def test_planes_are_named_alone_or_as_sets(name, option, planes):
    """Without `rec_y` they are added to the default planes."""
    model = create_model(name, planes=option)
    assert model.planes == planes
    assert model.options["planes"] == list(planes)


def test_the_names_of_networks_do_not_name_planes():
    for old, new in {
        "low_cost_17_unf": "low_cost_17 with planes=unfiltered",
        "low_cost_75_dec_mc4": r"low_cost_75 with planes=decoder\+neighbours2",
        "low_cost_17_mc": r"low_cost_17 with planes=slice_type\+neighbours",
        "low_cost_yuv_17_dec_mc": r"low_cost_yuv_17 with planes=decoder\+neighbours",
    }.items():
        with pytest.raises(ModelError, match=f"planes are an option: instead of {old} write {new}$"):
            create_model(old)


def test_a_constant_plane_is_the_same_as_a_filled_one():
    model = awaken(create_model("rdn", **SMALL))
    planes = random_planes(model, 16, 16)
    filled = planes | {"qp": torch.full_like(planes["rec_y"], QP)}
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
def test_missing_planes_and_wrong_shapes_are_refused(planes, message):
    with pytest.raises(ModelError, match=message):
        create_model("rdn", **SMALL)(planes)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rnd", {}, "unknown network 'rnd'"),
        ("rdn", {"depth": 3}, "depth"),
        ("rdn", {"blocks": 0}, "blocks"),
        ("rdn", {"planes": ["rec_y", "colour"]}, "'colour'"),
        ("rdn", {"planes": "decodr"}, "unknown plane 'decodr': did you mean 'decoder'"),
        ("rdn", {"planes": "unfiltered+unfiltered"}, "once"),
        ("rdn", {"planes": [["rec_y"]]}, "unknown plane"),
        ("rdn", {"planes": 3}, "does not take these options"),
        ("rdn", {"planes": ["rec_y"], "conditioning": "film"}, "must name qp"),
        ("rdn", {"planes": ["rec_y", "rec_y"]}, "once"),
        ("rdn", {"conditioning": "magic"}, "'magic'"),
        ("rdn", {"output": "sound"}, "'sound'"),
        ("rdn", {"transform": "haar"}, "shuffle 2"),
        ("rdn_yuv", {"shuffle": 4}, "'shuffle'"),
        ("rdn_yuv", {"planes": ["rec_y", "rec_u"]}, "rec_v"),
        ("low_cost_yuv_17", {"shuffle": 2}, "'shuffle'"),
        ("low_cost_17", {"kind": "round"}, "'round'"),
        ("low_cost_17", {"shuffle": 1, "planes": ["rec_y", "rec_u", "qp"]}, "even"),
        ("edsr", {"blocks": 0}, "blocks"),
    ],
)
def test_networks_that_cannot_be_built(name, options, message):
    with pytest.raises(ModelError, match=message):
        create_model(name, **options)


def test_weights_are_restored(tmp_path):
    model = awaken(create_model("rdn", **SMALL))
    save_weights(tmp_path / "w.safetensors", model, "rdn", {"note": "x"})
    loaded, card = load_model(tmp_path / "w.safetensors")
    planes = random_planes(model, 16, 16)
    assert torch.equal(model(planes), loaded(planes))
    assert card["note"] == "x"
    assert card["parameters"] == sum(parameter.numel() for parameter in model.parameters())


def test_weights_that_do_not_match_their_card_are_refused(tmp_path):
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


def test_other_pictures_enter_as_differences_to_the_decoded_one():
    model = create_model("low_cost_17", planes=["rec_y", "qp", "unf_y", "depth"])
    decoded, step = torch.full((1, 1, 16, 16), 0.25), torch.zeros(1, 1, 16, 16)
    step[..., 3, 5] = 3 / 1024
    planes = {"rec_y": decoded, "qp": torch.full((1, 1, 1, 1), 0.5), "unf_y": decoded + step, "depth": decoded}
    channels = model.stack(planes)
    torch.testing.assert_close(channels[:, :1], torch.full_like(decoded, -1.0))
    torch.testing.assert_close(channels[:, 1:2], step * 64)
    torch.testing.assert_close(channels[:, 2:], torch.full_like(decoded, -1.0))
