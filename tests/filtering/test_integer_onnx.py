"""Integer networks as ONNX: ONNX Runtime and ONNX's reference evaluator compute the samples of the reference."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from codecnn.base.errors import ConfigError, ModelError
from codecnn.cli import app
from codecnn.filtering.integer import load_integer, run_reference, save_integer
from codecnn.models.graph import Graph
from tests.helpers.integer_zoo import (
    OPTIONS,
    assert_same_samples,
    formula_eight,
    formula_network,
    random_integers,
    two_convolutions,
)
from tests.helpers.networks import DISTINCT, WITH_GRAPH

onnx = pytest.importorskip("onnx", reason="needs onnx and onnxruntime: pip install 'codecnn[export]'")
pytest.importorskip("onnxruntime", reason="needs onnx and onnxruntime: pip install 'codecnn[export]'")
onnx_file = pytest.importorskip("codecnn.filtering.integer.onnx_file")
export_integers, onnx_integers, run_samples = (
    onnx_file.export_integers,
    onnx_file.onnx_integers,
    onnx_file.run_samples,
)


def planes_for(network, height=24, width=32, **options):
    """Draw planes with the halo for a height and width rounded up to multiples of the stride."""
    height, width = (side + -side % network.graph.stride + 2 * network.graph.halo for side in (height, width))
    return random_integers(network, height, width, **options)


def assert_runs_as(network, content, qp=37, bit_depth=None, **options):
    planes = planes_for(network, **options)
    bit_depth = bit_depth or network.bit_depth
    planes = {name: plane % 2**bit_depth if plane.dtype.kind in "iu" else plane for name, plane in planes.items()}
    expected = run_reference(network, planes, qp, bit_depth)
    for plain in (False, True):
        assert_same_samples(run_samples(content, network, planes, qp, bit_depth, plain=plain), expected)


@pytest.mark.parametrize(("name", "options"), [*((name, None) for name in WITH_GRAPH if name in DISTINCT), *OPTIONS])
def test_networks_compute_the_same_samples(name, options):
    for wide in (0, 2):
        network = formula_eight(name, options, wide=wide)
        content = onnx_integers(network).SerializeToString()
        assert_runs_as(network, content, qp=22 if wide else 37, seed=wide, count=1 + bool(wide))


@pytest.mark.parametrize("skip", [2, 9])
def test_the_added_tensor_may_be_coarser_or_finer_than_the_sums(skip):
    network = two_convolutions(np.random.default_rng(skip).integers(-127, 128, (1, 1, 3, 3)), 5, skip=skip)
    assert_runs_as(network, onnx_integers(network).SerializeToString())


def test_another_bit_depth():
    network = formula_eight("rdn_yuv", bit_depth=12)
    assert_runs_as(network, onnx_integers(network).SerializeToString(), qp=63)


@pytest.mark.parametrize("name", ["low_cost_5", "rdn_yuv"])
def test_pictures_of_fewer_bits_than_the_integers(name):
    network = formula_eight(name)
    assert_runs_as(network, onnx_integers(network, 8).SerializeToString(), bit_depth=8)
    with pytest.raises(ConfigError, match="8 to 10, that of the integers"):
        onnx_integers(network, 12)


@pytest.mark.parametrize("name", ["low_cost_5", "rdn"])
def test_onnxs_reference_evaluator_computes_the_same_samples(name):
    """The evaluator multiplies and rounds in NumPy."""
    from onnx.reference import ReferenceEvaluator

    network = formula_eight(name, wide=3)
    planes = planes_for(network, 8, 8)
    inputs = {plane: (array / np.float32(1024)).astype(np.float32) for plane, array in planes.items()}
    inputs["qp"] = np.full((1, 1, 1, 1), 37 / 64, np.float32)
    model = onnx_integers(network)
    model.opset_import[0].version = 19  # the evaluator knows DequantizeLinear from here on, which is the same
    evaluator = ReferenceEvaluator(model)
    outputs = evaluator.run(None, {name: inputs[name] for name in evaluator.input_names})
    assert_same_samples(
        {output: plane * 1024 for output, plane in zip(evaluator.output_names, outputs, strict=True)},
        run_reference(network, planes, 37, 10),
    )


def test_features_are_quantised():
    """Convolutions between bytes have quantised inputs and weights, so that a runtime may fuse them."""
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
    with pytest.raises(ModelError, match="ONNX"):
        export_integers(tmp_path / "a.onnx", formula_network("low_cost_5"))


def test_a_file_with_other_samples_is_not_written(tmp_path, monkeypatch):
    network = formula_eight("low_cost_5")
    nodes = list(network.graph.nodes)
    place = next(index for index, node in enumerate(nodes) if node.op == "conv")
    shifted = {**nodes[place].tensors, "shift": nodes[place].tensors["shift"] - 1}
    nodes[place] = replace(nodes[place], tensors=shifted)
    other = onnx_integers(replace(network, graph=Graph(tuple(nodes))))
    monkeypatch.setattr(onnx_file, "onnx_integers", lambda *arguments: other)
    with pytest.raises(ModelError, match=r"a\.onnx is not written"):
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
    result = CliRunner().invoke(app, [*command, "--bit-depth", "8"])
    assert json.loads(result.stdout)["bit_depth"] == 8
    content = (tmp_path / "w.onnx").read_bytes()
    assert_runs_as(network, content, bit_depth=8)
    facts = {each.key: each.value for each in onnx.load_from_string(content).metadata_props}
    assert (facts["planes"], facts["halo"], facts["bit_depth"]) == ("rec_y", str(network.graph.halo), "8")
    for more, message in (
        (["--format", "sadl", "-q", "30"], "already holds integers: use --format onnx"),
        (["-q", "30"], "takes the QP as an input"),
        (["--fp16"], "have no float16"),
        (["--format", "vapoursynth"], "name the float weights for --format vapoursynth"),
    ):
        result = CliRunner().invoke(app, [*command, *more])
        assert message in str(result.exception)
