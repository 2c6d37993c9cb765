"""ONNX files with the tensors of post-filter messages: decoders that follow the message get codecnn's samples."""

import numpy as np
import pytest

from codecnn import api as verbs
from codecnn.base.errors import ConfigError, ModelError
from codecnn.filtering import load_filter
from codecnn.models import create_model, load_model, save_weights
from codecnn.pictures.files import Picture
from codecnn.signalling.nnpf import (
    UPDATE_TENSORS,
    describe_weights,
    export_post_filter,
    filter_in_patches,
    read_messages,
)
from codecnn.signalling.updates import Part, Update, adapted, last_layers, real_change
from tests.helpers.networks import SMALL, awaken

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'codecnn[export]'")


BOTH = {"patch": (32, 32), "picture": (32, 32)}


def picture(height: int, width: int, bit_depth: int) -> Picture:
    rng = np.random.default_rng(8)
    y, x = np.mgrid[:height, :width]
    top = 2**bit_depth - 1
    luma = 0.5 + 0.4 * np.sin(x / 5) * np.cos(y / 7)
    planes = (luma, 0.5 + 0.2 * luma[::2, ::2], 0.5 - 0.3 * luma[1::2, 1::2])
    kind = np.uint8 if bit_depth == 8 else np.uint16
    noisy = (np.clip((plane + rng.normal(0, 0.02, plane.shape)) * top, 0, top).astype(kind) for plane in planes)
    return Picture(tuple(noisy), bit_depth)


def run(content, tensor):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == ["input"]
    return session.run(["output"], {"input": tensor})[0]


def largest(a: Picture, b: Picture, margin: int = 0) -> int:
    differences = []
    for plane, other in zip(a.planes, b.planes, strict=True):
        side = margin * len(plane) // len(a.y)
        inner = (slice(side, len(plane) - side), slice(side, plane.shape[1] - side))
        differences.append(int(np.abs(plane.astype(int) - other)[inner].max()))
    return max(differences)


@pytest.mark.parametrize(("bit_depth", "max_qp"), [(8, 51), (10, 63)])
def test_a_picture_as_one_patch_is_filtered_as_by_codecnn(bit_depth, max_qp, streams, yuv_weights, tmp_path):
    path = tmp_path / "n.onnx"
    facts = verbs.export(yuv_weights, path, "nnpfc", bit_depth=bit_depth, max_qp=max_qp)
    assert facts["largest_difference"] <= 1
    decoded, filter_ = picture(64, 64, bit_depth), load_filter(yuv_weights)
    message = describe_weights(yuv_weights, filter_, read_messages(streams["vvc_cra"]).info)
    content = path.read_bytes()
    for qp in (24, 40):
        filtered = filter_in_patches(decoded, message, qp / max_qp, lambda tensor: run(content, tensor))
        assert largest(filter_(decoded, qp), filtered) <= 1
        assert largest(decoded, filtered) > 3, "the network changes the picture"
    other = filter_in_patches(decoded, message, 24 / max_qp, lambda tensor: run(content, tensor))
    assert largest(filter_(decoded, 40), other) > 1, "the strength decides the QP"


def test_patches_with_overlap_differ_at_the_edge_of_the_picture_only(streams, yuv_weights, tmp_path):
    filter_ = load_filter(yuv_weights)
    info = read_messages(streams["vvc_cra"]).info
    message = describe_weights(yuv_weights, filter_, info, patch=(32, 16))
    path = tmp_path / "n.onnx"
    overlap = 2 * message.nnpfc_overlap
    facts = verbs.export(yuv_weights, path, "nnpfc", patch=(32, 16), overlap=overlap)
    assert facts["input"] == f"1x7x{8 + overlap}x{16 + overlap}"
    decoded, content = picture(96, 128, 10), path.read_bytes()
    filtered = filter_in_patches(decoded, message, 37 / 63, lambda tensor: run(content, tensor))
    assert largest(filter_(decoded, 37), filtered, filter_.geometry.radius + 1) <= 1


def test_a_picture_does_not_depend_on_the_rounding_and_the_surroundings_of_a_decoder(yuv_weights, tmp_path):
    path = tmp_path / "n.onnx"
    facts = verbs.export(yuv_weights, path, "nnpfc", picture=(64, 48), overlap=8, qp=32)
    assert facts["input"] == "1x7x32x40"
    decoded, content = picture(48, 64, 10), path.read_bytes()
    expected = load_filter(yuv_weights)(decoded, 32)
    phases = [decoded.y[row::2, column::2] for row in (0, 1) for column in (0, 1)]
    inner = np.stack([*phases, *decoded.planes[1:]]) / 1023
    for outside, strength in ((0.0, 1.0), (0.5, 0.1)):
        tensor = np.full((1, 7, 32, 40), outside, np.float32)
        tensor[0, :6, 4:-4, 4:-4], tensor[0, 6] = inner, strength
        steps = run(content, tensor)[0] * 1023
        for samples in (np.floor(steps + 0.5), np.floor(steps)):
            samples = samples.clip(0, 1023)
            luma = np.empty((48, 64))
            luma[::2, ::2], luma[::2, 1::2], luma[1::2, ::2], luma[1::2, 1::2] = samples[:4]
            assert largest(expected, Picture((luma, samples[4], samples[5]), 10)) <= 1
            assert np.mean(luma != expected.y) < 0.001, "only samples halfway between two steps may differ"


def test_an_adaptable_file_with_an_update_is_the_adapted_network(streams, yuv_weights, tmp_path):
    """Values that are added to the file's tensors change the samples as `codecnn filter --float --update` does."""
    onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'codecnn[export]'")
    path, filter_ = tmp_path / "n.onnx", load_filter(yuv_weights)
    verbs.export(yuv_weights, path, "nnpfc", adaptable=True)
    layers = last_layers(filter_, "weights")
    rng = np.random.default_rng(5)
    update = Update(tuple(Part(9, tuple(rng.integers(-60, 61, layer.size).tolist())) for layer in layers))
    model = onnx.load(path)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for layer, part in zip(layers, update.parts, strict=True):
        tensor = tensors[UPDATE_TENSORS[layer.output]]
        assert list(tensor.dims) == [1, layer.size]
        changed = onnx.numpy_helper.to_array(tensor) + real_change(layer, part).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(changed, tensor.name))
    decoded = picture(64, 64, 10)
    message = describe_weights(yuv_weights, filter_, read_messages(streams["vvc_cra"]).info)
    results = {}
    for content, expected in ((path.read_bytes(), filter_), (model.SerializeToString(), adapted(filter_, update, "w"))):
        filtered = filter_in_patches(decoded, message, 37 / 63, lambda tensor, content=content: run(content, tensor))
        assert largest(expected(decoded, 37), filtered) <= 1
        results[expected] = filtered
    assert largest(*results.values()) > 8, "the update changes the picture"


def test_luma_network_and_fixed_qp(tmp_path):
    weights = tmp_path / "w.safetensors"
    save_weights(weights, awaken(create_model("low_cost_5", features=8, blocks=2), std=0.1), "low_cost_5", {})
    path = tmp_path / "n.onnx"
    assert verbs.export(weights, path, "nnpfc", qp=30)["nnpfc_inp_order_idc"] == 0
    content, decoded = path.read_bytes(), picture(32, 48, 10)
    tensor = np.pad(decoded.y / 1023, 2, mode="edge")[None, None].astype(np.float32)
    results = [run(content, np.concatenate((tensor, np.full_like(tensor, s)), axis=1)) for s in (0, 0.3, 1)]
    assert (results[0] == results[1]).all()
    assert (results[0] == results[2]).all()
    expected = load_filter(weights)(decoded, 30)
    assert np.abs(np.rint(results[0][0, 0] * 1023).clip(0, 1023) - expected.y).max() <= 1


def test_refusals(yuv_weights, tmp_path):
    model, card = load_model(yuv_weights)
    for options in ({"overlap": 0}, {"overlap": 3}, {"patch": (33, 32)}, {"qp": 64}, {"max_qp": 0}, BOTH):
        with pytest.raises(ConfigError):
            export_post_filter(tmp_path / "n.onnx", model, card, **options)
    other = awaken(create_model("rdn", planes=["rec_y", "unf_y"], **SMALL))
    with pytest.raises(ModelError, match="unf_y"):
        export_post_filter(tmp_path / "n.onnx", other, card)
    with pytest.raises(ConfigError, match="nnpfc"):
        verbs.export(yuv_weights, tmp_path / "n.onnx", "onnx", bit_depth=8)
    assert not (tmp_path / "n.onnx").exists()
