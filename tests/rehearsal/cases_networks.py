"""Networks, filters, integer engines, labels and commands compute the same on the rehearsal device and on the CPU."""

import copy
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from codecnn.filtering import decide_picture, load_filter
from codecnn.filtering.integer import ExactFilter, engines, load_integer
from codecnn.models import (
    complexity,
    create_model,
    fold,
    named_outputs,
    peak_memory,
    prepare,
    save_weights,
)
from codecnn.modes.networks import create_mode_network, mode_loss
from codecnn.pictures.files import Picture
from codecnn.vvc.intra import block_costs, predict_modes
from tests.helpers.integer_zoo import save_sixteen_bits
from tests.helpers.networks import DISTINCT, SMALL, awaken, random_planes, zoo_model
from tests.helpers.rehearsal import operations

OPTIONS = SMALL | {"conditioning": "film", "shuffle": 2}


def assert_near(actual, expected, share=1e-4):
    """Assert that tensors are equal up to a share of the largest sample."""
    assert (actual.cpu() - expected).abs().max() <= share * expected.abs().max()


def on(device, planes):
    return {name: plane.to(device) for name, plane in planes.items()}


@pytest.mark.parametrize("name", DISTINCT)
def test_a_network_forward_backward_and_folded(name, device):
    model = awaken(zoo_model(name), std=0.1)
    there = copy.deepcopy(model).to(device)
    planes = random_planes(model, 32, 32)
    for form in (lambda network: network, fold, prepare):
        with torch.no_grad():
            expected, actual = named_outputs(form(model)(planes)), named_outputs(form(there)(on(device, planes)))
        for output, plane in expected.items():
            assert actual[output].device.type == device
            assert_near(actual[output], plane)
    for network, batch in ((model, planes), (there, on(device, planes))):
        network.train()
        sum(plane.square().mean() for plane in named_outputs(network(batch)).values()).backward()
    gradients = dict(there.named_parameters())
    for key, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert gradients[key].grad.device.type == device
            assert_near(gradients[key].grad, parameter.grad, 1e-3)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **OPTIONS), std=0.05), "rdn", {"qps": [32, 42]})
    return path


@pytest.fixture(scope="module")
def luma():
    return np.random.default_rng(2).integers(0, 1024, (83, 101)).astype(np.uint16)


@pytest.mark.parametrize("options", [{}, {"tile": 32}, {"memory": 3 * 2**20}, {"precision": "bfloat16"}], ids=str)
def test_a_filter_with_tiles_and_a_memory_limit(weights, luma, device, options):
    there, here = (load_filter(weights, device=name, **options) for name in (device, "cpu"))
    picture = Picture((luma,), 10)
    actual, expected = (filter_.samples(picture, 37)["y"] for filter_ in (there, here))
    np.testing.assert_allclose(actual, expected, atol=2 if "precision" in options else 0.05)
    if "memory" in options:
        assert there.tiles(luma.shape)[0] is not None
    original = Picture((np.clip(np.rint(expected), 0, 1023).astype(np.uint16),), 10)
    decisions = [decide_picture(original, picture, {0: {"y": y}}, qp=37, ctu=32)[1] for y in (actual, expected)]
    assert decisions[0].modes == decisions[1].modes == {"y": "on"}


@pytest.mark.parametrize("name", ["low_cost_17", "low_cost_17.int8", "low_cost_yuv_17"])
def test_integer_engines(luma, device, name, tmp_path):
    from codecnn.models import weights_path

    path = weights_path(name) if ".int8" in name else save_sixteen_bits(tmp_path / "a.int16.safetensors", name)
    network, card = load_integer(path)
    picture = Picture((luma, luma[::2, ::2], luma[::2, ::2] // 2), 10)
    for engine in engines(network, device):
        here = ExactFilter(network, engine="float64", card=card).samples(picture, 37)
        there = ExactFilter(network, engine=engine, card=card, device=device).samples(picture, 37)
        for component, samples in here.items():
            np.testing.assert_array_equal(there[component], samples)


@pytest.mark.parametrize("cost", ["sad", "sse", "hadamard", "dct", "rate"])
def test_costs_of_intra_modes(device, cost):
    rng = np.random.default_rng(0)
    lines = rng.integers(0, 1024, (7, 2 * 8 + 1 + 2 * 16)).astype(np.int32)
    blocks = rng.integers(0, 1024, (7, 8, 16)).astype(np.uint16)
    there, here = (block_costs(lines, blocks, 10, cost, device=name, qp=32) for name in (device, "cpu"))
    np.testing.assert_allclose(there, here, rtol=1e-4)


@pytest.mark.parametrize("standard", ["vvc", "hevc"])
def test_intra_prediction_of_tensors(device, standard):
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 1024, shape).astype(np.int32) for shape in ((5,), (5, 16), (5, 16))]
    expected = predict_modes(*parts, 8, 8, 10, standard)
    predicted = predict_modes(*(torch.from_numpy(part).to(device) for part in parts), 8, 8, 10, standard)
    assert predicted.device.type == device
    np.testing.assert_array_equal(predicted.cpu().numpy(), expected)


@pytest.mark.parametrize("name", ["modes", "mode_sketch"])
def test_a_mode_network_forward_and_backward(device, name):
    torch.manual_seed(0)
    here = create_mode_network(name)
    there = copy.deepcopy(here).to(device)
    line, block = torch.randint(1024, (5, 2 * 8 + 1 + 2 * 8)), torch.randint(1024, (5, 8, 8))
    facts = torch.full((5,), 10), torch.full((5,), 32)
    results = []
    for network, place in ((here, "cpu"), (there, device)):
        logits = network(*network.inputs(*(part.to(place) for part in (line, block, *facts))))
        mode_loss(logits, torch.arange(5, device=place)).backward()
        results.append([logits.detach(), *(parameter.grad for parameter in network.parameters())])
    for expected, actual in zip(*results, strict=True):
        assert actual.device.type == device
        assert_near(actual, expected, 1e-3)


@pytest.fixture
def both(run, device, tmp_path):
    """Run a command on both devices, with a folder for each as {folder}, and return folders and outputs.

    The command has to compute on its device: one that ignores it gives the right result as well. `operation` is the
    name of what the device has to compute.
    """

    def call(*argv, operation="convolution"):
        results = []
        for name in (device, "cpu"):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            arguments = [str(argument).format(folder=folder) for argument in argv]
            with operations() as computed:
                status, out, err = run(*arguments, "--device", name)
            assert status == 0, err
            assert (computed[operation] > 0) == (name == device), computed
            results.append((folder, out))
        return results

    return call


@pytest.mark.parametrize("exact", ["--float", "--exact"])
def test_evaluate(both, tiny_store, exact):
    command = ("evaluate", tiny_store.folder, "-m", "low_cost_5", "-q", 42, exact, "-o", "{folder}/e", "--json")
    results = [json.loads(out) for _, out in both(*command)]  # --exact evaluates the float network as well
    there, here = (result.get("models", [result])[-1]["gain_db"]["y"]["mean"] for result in results)
    assert there == pytest.approx(here, abs=1e-3)
    assert here != 0


@pytest.mark.parametrize("exact", ["--float", "--exact"])
def test_filter(both, luma, tmp_path, exact):
    luma.tofile(tmp_path / "a_101x83_400_10bit.yuv")
    command = ("filter", "-m", "low_cost_5", "-i", tmp_path / "a_101x83_400_10bit.yuv", "-q", 37, exact)
    folders = [folder for folder, _ in both(*command, "-o", "{folder}/f_101x83_400_10bit.yuv")]
    there, here = (np.fromfile(next(folder.glob("f_*.yuv")), np.uint16).astype(int) for folder in folders)
    assert abs(there - here).max() <= (0 if exact == "--exact" else 1)
    assert (here != luma.ravel()).any()


def test_export_calibrates(both, tiny_store, weights):
    command = ("export", "-m", weights, "--format", "int8", "--store", tiny_store.folder, "--pictures", 1)
    folders = [folder for folder, _ in both(*command, "--split", "train", "-o", "{folder}/w.int8.safetensors")]
    there, here = (load_integer(folder / "w.int8.safetensors")[0] for folder in folders)
    assert [node.name for node in there.graph.nodes] == [node.name for node in here.graph.nodes]


def test_compare_and_complexity(run, device, weights):
    status, _, err = run("compare", weights, weights, "--device-b", device)
    assert status == 0, err
    rows = complexity(create_model("rdn", **OPTIONS).to(device))
    assert rows == complexity(create_model("rdn", **OPTIONS))
    memory = peak_memory(create_model("rdn", **OPTIONS).to(device))
    assert memory == peak_memory(create_model("rdn", **OPTIONS))


def test_labels(both, luma, tmp_path):
    luma.tofile(tmp_path / "a_101x83_400_10bit.yuv")
    command = (
        "labels",
        "-i",
        tmp_path / "a_101x83_400_10bit.yuv",
        "--block-sizes",
        "8,16x8",
        "-o",
        "{folder}/l.parquet",
    )
    there, here = (pq.read_table(folder / "l.parquet").to_pylist() for folder, _ in both(*command, operation="bmm"))
    assert [row["mode_dct"] for row in there] == [row["mode_dct"] for row in here]
