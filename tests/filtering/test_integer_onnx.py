"""Integer networks as ONNX: the samples of the plain form, in onnxruntime and in ONNX's own reference."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from codecnn.cli import app
from codecnn.errors import ModelError
from codecnn.filtering.integer import load_integer, run_reference, save_integer
from codecnn.models import list_models
from codecnn.models.graph import Graph
from tests.filtering.test_eight_bits import eight
from tests.filtering.test_integer import OPTIONS, assert_same
from tests.helpers.integer_zoo import formula_eight, formula_network, random_integers

onnx = pytest.importorskip("onnx", reason="the extra 'export' is not installed")
pytest.importorskip("onnxruntime", reason="the extra 'export' is not installed")
onnx_file = pytest.importorskip("codecnn.filtering.integer.onnx_file")
export_integers, onnx_integers, run_samples = (
    onnx_file.export_integers,
    onnx_file.onnx_integers,
    onnx_file.run_samples,
)


def planes_for(network, height=24, width=32, **options):
    """Planes with the halo, of a height and width that are multiples of the stride."""
    height, width = (side + -side % network.graph.stride + 2 * network.graph.halo for side in (height, width))
    return random_integers(network, height, width, **options)


def assert_runs_as(network, content, qp=37, **options):
    planes = planes_for(network, **options)
    expected = run_reference(network, planes, qp, network.bit_depth)
    for plain in (False, True):
        assert_same(run_samples(content, network, planes, qp, plain=plain), expected)


@pytest.mark.parametrize(("name", "options"), [*((name, None) for name in list_models()), *OPTIONS])
def test_every_network_makes_the_same_samples(name, options):
    for wide in (0, 2):
        network = formula_eight(name, options, wide=wide)
        content = onnx_integers(network).SerializeToString()
        assert_runs_as(network, content, qp=22 if wide else 37, seed=wide, count=1 + bool(wide))


@pytest.mark.parametrize("skip", [2, 9])
def test_what_is_added_may_be_coarser_or_finer_than_the_sums(skip):
    network = eight(np.random.default_rng(skip).integers(-127, 128, (1, 1, 3, 3)), 5, skip=skip)
    assert_runs_as(network, onnx_integers(network).SerializeToString())


def test_another_bit_depth():
    network = formula_eight("rdn_yuv", bit_depth=12)
    assert_runs_as(network, onnx_integers(network).SerializeToString(), qp=63)


@pytest.mark.parametrize("name", ["low_cost_5", "rdn"])
def test_onnxs_own_reference_makes_the_same_samples(name):
    """Which multiplies and rounds in NumPy."""
    from onnx.reference import ReferenceEvaluator

    network = formula_eight(name, wide=3)
    planes = planes_for(network, 8, 8)
    given = {plane: (array / np.float32(1024)).astype(np.float32) for plane, array in planes.items()}
    given["qp"] = np.full((1, 1, 1, 1), 37 / 64, np.float32)
    evaluator = ReferenceEvaluator(onnx_integers(network))
    made = evaluator.run(None, {one: given[one] for one in evaluator.input_names})
    assert_same(
        {one: plane * 1024 for one, plane in zip(evaluator.output_names, made, strict=True)},
        run_reference(network, planes, 37, 10),
    )


def test_features_are_quantised():
    """Convolutions between bytes have quantised inputs and weights, so that a runtime may join them."""
    network = formula_eight("low_cost_17")
    model = onnx_integers(network)
    made_by = {output: node for node in model.graph.node for output in node.output}
    quantised = [
        node.name
        for node in model.graph.node
        if node.op_type == "Conv"
        and all(made_by[name].op_type == "DequantizeLinear" for name in node.input if name in made_by)
        and len([name for name in node.input if name in made_by]) == 3
    ]
    convolutions = [node for node in network.graph.nodes if node.op == "conv"]
    assert quantised == [f"{node.name}.sums" for node in convolutions[1:]]


def test_16_bits_are_refused(tmp_path):
    with pytest.raises(ModelError, match="networks of 16 bits have no form in ONNX"):
        export_integers(tmp_path / "a.onnx", formula_network("low_cost_5"))


def test_other_samples_are_told_and_nothing_written(tmp_path, monkeypatch):
    network = formula_eight("low_cost_5")
    nodes = list(network.graph.nodes)
    place = next(index for index, node in enumerate(nodes) if node.op == "conv")
    shifted = {**nodes[place].tensors, "shift": nodes[place].tensors["shift"] - 1}
    nodes[place] = replace(nodes[place], tensors=shifted)
    other = onnx_integers(replace(network, graph=Graph(tuple(nodes))))
    monkeypatch.setattr(onnx_file, "onnx_integers", lambda network: other)
    with pytest.raises(ModelError, match=r"a\.onnx is not written: onnxruntime computes other samples at QP 22"):
        export_integers(tmp_path / "a.onnx", network)
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path):
    path = tmp_path / "w.int8.safetensors"
    save_integer(path, formula_eight("low_cost_5"), {"network": "low_cost_5"})
    command = ["export", "-m", str(path), "-o", str(tmp_path / "w.onnx"), "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["bit_depth"] == 10
    network, _ = load_integer(path)
    assert_runs_as(network, (tmp_path / "w.onnx").read_bytes())
    for more, message in (
        (["--format", "sadl", "-q", "30"], "already holds integers: use --format onnx"),
        (["-q", "30"], "takes the QP as an input"),
    ):
        result = CliRunner().invoke(app, [*command, *more])
        assert message in str(result.exception)
