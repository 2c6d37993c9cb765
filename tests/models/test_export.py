"""Exports: ONNX in onnxruntime and programs of torch.export against PyTorch, operators of SADL, the command line."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from codecnn.base.errors import ConfigError, ModelError, StoreError, ToolMissingError
from codecnn.cli import app
from codecnn.filtering.integer import load_integer
from codecnn.models import (
    HALF_TOLERANCE,
    as_filter_network,
    build_graph,
    create_model,
    export_onnx,
    export_program,
    load_model,
    named_outputs,
    save_weights,
)
from tests.helpers import own_networks
from tests.helpers.integer_zoo import OPTIONS, formula_model
from tests.helpers.networks import CASES, SMALL, WITH_GRAPH, awaken, random_planes, zoo_model

onnx = pytest.importorskip("onnx", reason="needs onnx and onnxruntime: pip install 'codecnn[export]'")
pytest.importorskip("onnxruntime", reason="needs onnx and onnxruntime: pip install 'codecnn[export]'")
graph = pytest.importorskip("codecnn.models.graph.onnx_file")
SADL_OPERATORS, onnx_model, run_onnx = graph.SADL_OPERATORS, graph.onnx_model, graph.run_onnx

WITHOUT_GRAPH = sorted(set(CASES) - set(WITH_GRAPH))
ZOO = [*((name, None) for name in WITH_GRAPH), *OPTIONS]


def assert_runs_as(model, content, planes):
    """Check that the results agree to 1e-5 of full scale, or of the range of the samples if that is larger."""
    with torch.inference_mode():
        expected = named_outputs(model(planes))
    outputs = run_onnx(content, {name: plane.numpy() for name, plane in planes.items()})
    assert tuple(outputs) == model.outputs
    for output, plane in expected.items():
        span = float(plane.max() - plane.min())
        np.testing.assert_allclose(outputs[output], plane.numpy(), rtol=0, atol=1e-5 * max(1, span))


@pytest.mark.parametrize(("name", "options"), ZOO)
def test_onnx_of_any_size_qp_and_batch_equals_the_network(name, options, tmp_path):
    model = formula_model(name, options)
    assert export_onnx(tmp_path / "m.onnx", model) < 1e-5
    content = (tmp_path / "m.onnx").read_bytes()
    unit = model.stride * 4
    for height, width, count, qps in ((unit, unit, 1, (22,)), (2 * unit, 3 * unit, 2, (22, 42))):
        planes = random_planes(model, height, width)
        planes = {plane: tensor.expand(count, -1, -1, -1).clone() for plane, tensor in planes.items()}
        if "qp" in planes:
            planes["qp"] = (torch.tensor(qps) / 64).reshape(-1, 1, 1, 1)
        assert_runs_as(model, content, planes)


@pytest.mark.parametrize(("name", "options"), ZOO)
def test_onnx_for_sadl_has_only_its_operators_and_equals_the_network(name, options, tmp_path):
    model = formula_model(name, options)
    export_onnx(tmp_path / "m.onnx", model, qp=27)
    proto = onnx.load(tmp_path / "m.onnx")
    assert {node.op_type for node in proto.graph.node} <= SADL_OPERATORS
    constants = {tensor.name for tensor in proto.graph.initializer}
    assert {value.name for value in proto.graph.input} == set(model.planes) - {"qp"}
    for node in proto.graph.node:
        if node.op_type == "Mul":
            assert len(constants & set(node.input)) == 1, node.name
        if node.op_type in ("Conv", "Slice"):
            assert set(node.input[1:]) <= constants, node.name
    planes = random_planes(model, 4 * model.stride, 6 * model.stride, qp=27)
    assert_runs_as(model, proto.SerializeToString(), planes)


def test_a_difference_is_an_error_and_no_file_is_written(tmp_path, monkeypatch):
    other = build_graph(formula_model("vrcnn"))
    monkeypatch.setattr("codecnn.models.export.build_graph", lambda model: other)
    with pytest.raises(ModelError, match=r"m\.onnx is not written"):
        export_onnx(tmp_path / "m.onnx", create_model("vrcnn"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["Net", "Shuffled", "Strided", "Colour", "PaddedInside", *WITHOUT_GRAPH])
def test_a_network_without_a_graph_is_traced(name, tmp_path):
    """The file computes other sizes, QPs and numbers of pictures than the module was traced with."""
    torch.manual_seed(1)
    model = (
        awaken(zoo_model(name), std=0.05)
        if name in WITHOUT_GRAPH
        else as_filter_network(getattr(own_networks, name)()).eval()
    )
    assert not model.has_graph
    assert export_onnx(tmp_path / "m.onnx", model) < 1e-5
    content = (tmp_path / "m.onnx").read_bytes()
    unit = model.stride * 8
    for height, width, count, qps in ((3 * unit, 2 * unit, 1, (22,)), (unit, 5 * unit, 2, (12, 42))):
        planes = random_planes(model, height, width)
        planes = {plane: tensor.expand(count, -1, -1, -1).clone() for plane, tensor in planes.items()}
        if "qp" in planes:
            planes["qp"] = (torch.tensor(qps) / 64).reshape(-1, 1, 1, 1)
        assert_runs_as(model, content, planes)


def reads_values(self, planes):
    factor = 1.0 if planes["qp"].mean() > 0.5 else 0.5
    return own_networks.Net.residual(self, planes) * factor + planes["rec_y"][:, :, 2:-2, 2:-2]


def reads_values_by_numpy(self, planes):
    """PyTorch does not notice it."""
    factor = 1.0 if planes["qp"].numpy().mean() > 0.5 else 0.5
    return own_networks.Net.residual(self, planes) * factor + planes["rec_y"][:, :, 2:-2, 2:-2]


def uses_unknown_operations(self, planes):
    return 0.01 * torch.special.i0e(own_networks.Net.residual(self, planes)) + planes["rec_y"][:, :, 2:-2, 2:-2]


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (reads_values, "^Own cannot be written as ONNX: its forward reads values of tensors"),
        (reads_values_by_numpy, r"m\.onnx is not written: onnxruntime's result differs"),
        (uses_unknown_operations, "^Own cannot be written as ONNX .*i0e.*: use operations that torch.onnx knows"),
    ],
)
def test_a_module_that_cannot_be_traced_is_refused(forward, message, tmp_path, capfd):
    kind = type("Own", (own_networks.Net,), {"forward": forward, "radius": 2})
    with pytest.raises(ModelError, match=message):
        export_onnx(tmp_path / "m.onnx", as_filter_network(kind()))
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("name", ["low_cost_5", "Net"])
def test_older_libraries_read_the_file(name, tmp_path):
    """ONNX Runtime 1.17 and OpenVINO 2024 read opset 17 and IR version 8."""
    model = formula_model(name) if name in WITH_GRAPH else as_filter_network(own_networks.Net())
    export_onnx(tmp_path / "m.onnx", model)
    proto = onnx.load(tmp_path / "m.onnx")
    assert [(each.domain, each.version) for each in proto.opset_import] == [("", 17)]
    assert proto.ir_version <= 8


def test_the_file_says_how_to_feed_it(tmp_path):
    model, card = load_model("low_cost_yuv_17.vvc_video")
    export_onnx(tmp_path / "m.onnx", model, card=card)
    facts = {each.key: each.value for each in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert facts == {
        "planes": "rec_u,rec_y,rec_v,slice_type",  # in the order of the inputs
        "scale": "sample / 2^bit_depth",
        "halo": "2",
        "stride": "2",
        "padding": "edge",
        "qp_input": "QP / 64, clipped to qp_range",
        "qp_range": "22,51",
        "codec": "vvc",
        "license": "BSD-3-Clause",
        "weights_sha256": card.sha256,
    }


@pytest.mark.parametrize("name", ["low_cost_5", "low_cost_yuv_17", "rdn"])
def test_float16_keeps_samples_and_sums_with_them_in_float32(name, tmp_path):
    model = formula_model(name)
    assert 1e-5 < export_onnx(tmp_path / "m.onnx", model, half=True) < HALF_TOLERANCE
    proto = onnx.load(tmp_path / "m.onnx")
    types = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    weights = {types[node.input[1]] for node in proto.graph.node if node.op_type == "Conv"}
    assert weights == {onnx.TensorProto.FLOAT16}
    for value in (*proto.graph.input, *proto.graph.output):
        assert value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_float16_that_overflows_is_refused(tmp_path):
    model = formula_model("vrcnn")
    with torch.no_grad():
        next(model.parameters()).mul_(1e7)
    with pytest.raises(ModelError, match=r"m\.onnx is not written: float16 differs .* leave out --fp16"):
        export_onnx(tmp_path / "m.onnx", model, half=True)
    with pytest.raises(ModelError, match="has no float16 form without a method draw"):
        export_onnx(tmp_path / "m.onnx", as_filter_network(own_networks.Net()), half=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "options"), [("low_cost_5", None), ("low_cost_yuv_17", {"blocks": 1}), ("Colour", None)]
)
def test_a_program_of_torch_export_takes_any_size_qp_and_batch(name, options, tmp_path):
    model = (
        formula_model(name, options) if name in WITH_GRAPH else as_filter_network(getattr(own_networks, name)()).eval()
    )
    assert export_program(tmp_path / "m.pt2", model) < 1e-5
    program = torch.export.load(tmp_path / "m.pt2").module()
    unit = model.stride * 8
    for height, width, count, qp in ((3 * unit, 2 * unit, 1, 22), (unit, 5 * unit, 3, 42)):
        planes = random_planes(model, height, width, qp=qp)
        planes = {plane: tensor.expand(count, -1, -1, -1).clone() for plane, tensor in planes.items()}
        with torch.inference_mode():
            expected, outputs = named_outputs(model(planes)), program(*(planes[plane] for plane in model.planes))
        for output, plane in zip(model.outputs, outputs, strict=True):
            torch.testing.assert_close(plane, expected[output], rtol=0, atol=1e-5)


def test_a_program_that_depends_on_values_is_refused(tmp_path):
    kind = type("Own", (own_networks.Net,), {"forward": reads_values, "radius": 2})
    with pytest.raises(ModelError, match=r"^Own cannot be written as a program of torch\.export"):
        export_program(tmp_path / "m.pt2", as_filter_network(kind()))
    assert not list(tmp_path.iterdir())


def test_a_qp_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="QP 64"):
        onnx_model(build_graph(formula_model("low_cost_5")), 64)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, formula_model("rdn", SMALL | {"shuffle": 2}), "rdn", {"data_key": "x", "qps": [32, 42]})
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_the_command_writes_each_format(weights, tiny_store, tmp_path):
    result = invoke("export", "--model", weights, "-o", tmp_path / "m.onnx", "--json")
    assert json.loads(result.stdout)["largest_difference_to_pytorch"] < 1e-5
    assert json.loads(result.stdout)["halo"] == 4
    result = invoke("export", "--model", weights, "-o", tmp_path / "h.onnx", "--fp16", "--json")
    assert 1e-5 < json.loads(result.stdout)["largest_difference_to_pytorch"] < HALF_TOLERANCE
    result = invoke("export", "--model", weights, "-o", tmp_path / "m.pt2", "--format", "pt2", "--json")
    assert json.loads(result.stdout)["inputs"] == "rec_y, qp"
    assert torch.export.load(tmp_path / "m.pt2")
    invoke("export", "--model", weights, "-o", tmp_path / "v.onnx", "--format", "vapoursynth")
    assert (tmp_path / "v.vpy").is_file()
    invoke("export", "--model", weights, "-o", tmp_path / "s.onnx", "--format", "sadl", "-q", "37")
    assert {node.op_type for node in onnx.load(tmp_path / "s.onnx").graph.node} <= SADL_OPERATORS

    output = tmp_path / "m.int16.safetensors"
    result = invoke("export", "--model", weights, "-o", output, "--format", "int16", "--store", tiny_store.folder)
    assert result.exit_code == 0
    _, card = load_integer(output)
    assert card["source_sha256"] == json.loads(weights.with_suffix(".json").read_text())["sha256"]
    assert card["calibration"]["qps"] == [32, 42]
    assert card["calibration"]["data_keys"] == [tiny_store.data_key]
    assert (card["network"], card["qps"]) == ("rdn", [32, 42])
    again = tmp_path / "again.safetensors"
    invoke("export", "--model", weights, "-o", again, "--format", "int16", "--store", tiny_store.folder)
    assert again.read_bytes() == output.read_bytes()
    both = ("--store", tiny_store.folder, "--store", tiny_store.folder)
    invoke("export", "--model", weights, "-o", again, "--format", "int16", *both)
    assert load_integer(again)[1]["calibration"]["data_keys"] == [tiny_store.data_key] * 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["-o", "m.bin"], ConfigError, r"written to a file that ends in \.onnx"),
        (["-o", "m.onnx", "--format", "int16"], ConfigError, r"ends in \.safetensors"),
        (["-o", "m.safetensors", "--format", "int16"], ConfigError, "need a store to calibrate on"),
        (["-o", "m.onnx", "--store", "x"], ConfigError, "the others take none"),
        (["-o", "m.onnx", "--format", "sadl"], ConfigError, "is made for one QP: give it with --qp"),
        (["-o", "m.onnx", "-q", "37"], ConfigError, "takes the QP as an input"),
        (["-o", "m.pt2"], ConfigError, r"written to a file that ends in \.onnx"),
        (["-o", "m.pt2", "--format", "pt2", "-q", "37"], ConfigError, "takes the QP as an input"),
        (["-o", "m.onnx", "--format", "sadl", "-q", "37", "--fp16"], ConfigError, "sadl has no float16"),
        (["-o", "m.onnx", "--bit-depth", "8"], ConfigError, "the bit depth is an option of nnpfc, and of integers"),
        (["-o", "m.onnx", "--patch", "64x64"], ConfigError, "options of the format nnpfc"),
    ],
)
def test_impossible_options_of_the_command_are_errors(arguments, error, message, weights):
    with pytest.raises(error, match=message):
        invoke("export", "--model", weights, *arguments)


def test_weights_are_not_overwritten(weights, tiny_store):
    before = weights.read_bytes()
    with pytest.raises(ConfigError, match="the same file"):
        invoke("export", "--model", weights, "-o", weights, "--format", "int16", "--store", tiny_store.folder)
    assert weights.read_bytes() == before
    arguments = ["-o", weights.with_name("i.safetensors"), "--format", "int16", "--store", tiny_store.folder]
    with pytest.raises(StoreError, match="no pictures in the split 'none'"):
        invoke("export", "--model", weights, *arguments, "--split", "none")


def test_a_missing_package_is_named(weights, monkeypatch, tmp_path):
    monkeypatch.setattr("codecnn.api.networks.find_spec", lambda name: None)
    with pytest.raises(ToolMissingError, match=r"needs the package onnx: pip install 'codecnn\[export\]'"):
        invoke("export", "--model", weights, "-o", tmp_path / "m.onnx")
