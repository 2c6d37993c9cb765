"""Public filters in `benchmark.py rivals`: readers of foreign weights, networks, and the table."""

import struct
import sys
import types

import numpy as np
import pytest
import torch

from codecnn.base.errors import FormatError
from codecnn.pictures.files import Picture
from tools.bench._foreign import read_caffe, read_tensorflow
from tools.bench.rivals import (
    InsteadOfLoopFilters,
    LumaFilter,
    aom_filters,
    enhnet,
    inloop_filters,
    main,
    nrs_filters,
    sefcnn,
    vrcnn,
)


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """Encode a field of a protocol buffer: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def block(entries):
    """Encode a block of a table; keys share their first characters with the key before, as in LevelDB."""
    out, before = b"", b""
    for key, value in entries:
        shared = next(
            (i for i, (a, b) in enumerate(zip(key, before, strict=False)) if a != b), min(len(key), len(before))
        )
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return out + struct.pack("<II", 0, 1)


def write_tensorflow(prefix, tensors):
    """Write tensors as a checkpoint of one block, with an optimiser's moment beside each, which readers leave out."""
    data, entries = b"", [(b"", field(1, 1))]
    for name in sorted([*tensors, *(f"{name}/Adam" for name in tensors)]):
        values = tensors[name.removesuffix("/Adam")].astype("<f4")
        shape = b"".join(field(2, field(1, size)) for size in values.shape)
        entry = (
            field(1, 1)
            + field(2, shape)
            + field(4, len(data))
            + field(5, values.nbytes)
            + varint(6 << 3 | 5)
            + bytes(4)
        )
        entries.append((name.encode(), entry))
        data += values.tobytes()
    content = block(entries)
    index = block([(b"z", varint(0) + varint(len(content)))])
    file = content + bytes(5) + index + bytes(5)
    footer = varint(0) + varint(0) + varint(len(content) + 5) + varint(len(index))
    prefix.parent.mkdir(parents=True, exist_ok=True)
    (prefix.parent / f"{prefix.name}.index").write_bytes(
        file + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    )
    (prefix.parent / f"{prefix.name}.data-00000-of-00001").write_bytes(data)


def caffe(tensors):
    """Encode layers with weights and bias as a Caffe model; a layer without weights stands before them."""
    out = field(1, b"net") + field(100, field(1, b"data") + field(2, b"Input"))
    for name, blobs in tensors.items():
        layer = field(1, name.encode()) + field(2, b"Convolution")
        for blob in blobs:
            shape = field(1, b"".join(varint(size) for size in blob.shape))
            layer += field(7, field(5, blob.astype("<f4").tobytes()) + field(7, shape))
        out += field(100, layer)
    return out


def weights(seed, *shape):
    return np.random.default_rng(seed).normal(0, 0.05, shape).astype(np.float32)


VRCNN = {"conv1": (64, 1, 5), "unit1/5x5": (16, 64, 5), "unit1/3x3": (32, 64, 3), "unit2/3x3": (16, 48, 3)}
VRCNN |= {"unit2/1x1": (32, 48, 1), "conv2": (1, 48, 3)}
VRCNN_LAYERS = {
    name: [weights(seed, out, inputs, side, side), weights(seed + 99, out)]
    for seed, (name, (out, inputs, side)) in enumerate(VRCNN.items())
}


def tensorflow_layers(prefix, names, shapes):
    """Return weights (rows, columns, inputs, outputs) and bias of layers named as TensorFlow names them."""
    tensors = {}
    for seed, (name, (side, inputs, out)) in enumerate(zip(names, shapes, strict=True)):
        tensors[f"{prefix}{name.replace('*', 'w')}"] = weights(seed, side, side, inputs, out)
        tensors[f"{prefix}{name.replace('*', 'b')}"] = weights(seed + 99, out)
    return tensors


def enhnet_tensors():
    parts = {"1": (1, 40, 256), "2": (1, 256, 24), "3": (3, 24, 40)}
    names = ["conv_00_*", *(f"conv_{i:02d}_*{k}" for i in range(1, 9) for k in parts), "conv_09_*"]
    return tensorflow_layers("", names, [(3, 1, 40), *list(parts.values()) * 8, (3, 40, 1)])


def sefcnn_tensors(excitation):
    names = ["conv_00_*", "conv_01_*"]
    shapes = [(3, 1, 64), (3, 64, 64)]
    if excitation:
        names += [f"conv_02_{i:02d}_*" for i in range(6)]
        shapes += [(3, 64, 64)] * 3 + [(1, 64, 64)] * 3
    return tensorflow_layers("shared_model/", [*names, "conv_03_*"], [*shapes, (3, 64, 1)])


@pytest.fixture
def folders(tmp_path):
    """Folders as the repositories have them, with random weights."""
    for qp in (22, 27, 32, 37, 42):
        write_tensorflow(tmp_path / f"nrs/EnhNet/checkpoints/qp{qp}/CNN0/HEVC_RWARN_V2.ckpt", enhnet_tensors())
    names = ["VDSR12_qp22/VDSR12_qp22_420", "VDSR16_qp27/VDSR16_qp27_389", "sefcnn_I_qp32/sefcnn_I_qp32_599"]
    for name in [*names, "sefcnn_I_qp37/sefcnn_I_qp37_model_570"]:
        write_tensorflow(tmp_path / f"inloop/sefcnn/model/{name}.ckpt", sefcnn_tensors("sefcnn" in name))
    models = tmp_path / "inloop/vrcnn/model"
    models.mkdir(parents=True)
    for name in ("QP22", "QP27", "QP32", "QP37_I"):
        (models / f"{name}.caffemodel").write_bytes(caffe(VRCNN_LAYERS))
    return tmp_path


def test_foreign_tensors_are_read_as_they_were_written(folders):
    tensors = read_tensorflow(folders / "nrs/EnhNet/checkpoints/qp32/CNN0/HEVC_RWARN_V2.ckpt")
    expected = enhnet_tensors()
    assert tensors.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(tensors[name], values)
    layers = read_caffe(folders / "inloop/vrcnn/model/QP27.caffemodel")
    assert layers.keys() == {f"{name}/{i}" for name in VRCNN for i in range(2)}
    for name, blobs in VRCNN_LAYERS.items():
        for index, values in enumerate(blobs):
            np.testing.assert_array_equal(layers[f"{name}/{index}"], values)


def test_damaged_weights_are_refused(folders):
    prefix = folders / "nrs/EnhNet/checkpoints/qp32/CNN0/HEVC_RWARN_V2.ckpt"
    index = prefix.with_name(prefix.name + ".index")
    for content in (b"", index.read_bytes()[:-1], bytes(200)):
        index.write_bytes(content)
        with pytest.raises(FormatError, match="no checkpoint of TensorFlow"):
            read_tensorflow(prefix)
    model = folders / "inloop/vrcnn/model/QP27.caffemodel"
    for content in (b"", model.read_bytes()[:5000], b"\xff" * 30):
        model.write_bytes(content)
        with pytest.raises(FormatError, match="no model of Caffe"):
            read_caffe(model)


def test_networks_add_a_residual_of_the_layers():
    """With zeros in the last layer a network is the identity; its bias is then the residual."""
    x = torch.rand(1, 1, 20, 24)
    flat = {f"{name}/{i}": blob for name, blobs in VRCNN_LAYERS.items() for i, blob in enumerate(blobs)}
    built = (vrcnn, flat, "conv2/0", "conv2/1"), (enhnet, enhnet_tensors(), "conv_09_w", "conv_09_b")
    built += tuple(
        (sefcnn, sefcnn_tensors(e), "shared_model/conv_03_w", "shared_model/conv_03_b") for e in (False, True)
    )
    for build, tensors, last, bias in built:
        assert (build(tensors)(x) - x).abs().max() > 1e-3
        tensors = tensors | {last: np.zeros_like(tensors[last]), bias: np.full(1, 0.25, np.float32)}
        torch.testing.assert_close(build(tensors)(x), x + 0.25)


def test_a_picture_is_filtered_by_the_network_of_the_nearest_qp():
    shifted = LumaFilter("shifted", {22: lambda x: x + 1 / 255, 37: lambda x: x + 2})
    picture = Picture((np.full((4, 6), 200, np.uint8), *[np.full((2, 3), 90, np.uint8)] * 2), 8)
    assert (shifted(picture, 24).y == 201).all()
    assert (shifted(picture, 32).y == 255).all()
    assert (shifted(picture, 32).planes[1] == 90).all()


def test_a_filter_before_the_in_loop_filters_gets_the_unfiltered_luma():
    """The filtered picture has the chroma of the decoded one."""
    added = InsteadOfLoopFilters(LumaFilter("added", {22: lambda x: x + 3 / 255}))
    picture = Picture((np.full((4, 6), 200, np.uint8), *[np.full((2, 3), 90, np.uint8)] * 2), 8)
    filtered = added(picture, 24, {"unf_y": np.full((4, 6), 70, np.uint8)})
    assert (filtered.y == 73).all()
    assert (filtered.planes[1] == 90).all()
    assert added.__name__ == "added, before the in-loop filters"


def test_the_loaders_take_the_layout_of_the_repositories(folders):
    assert nrs_filters(folders / "nrs")["EnhNet"].networks.keys() == {22, 27, 32, 37, 42}
    filters = inloop_filters(folders / "inloop")
    assert {name: sorted(filters[name].networks) for name in filters} == {
        "VRCNN": [22, 27, 32, 37],
        "SEFCNN": [22, 27, 32, 37],
    }


class FakeInterpreter:
    """Stands for LiteRT: the residual of a model of two bytes is its second byte / 255, at every sample."""

    def __init__(self, model_content):
        assert model_content[0] == 0x1C
        self.residual = model_content[1] / 255

    def get_input_details(self):
        return [{"index": 3}]

    def get_output_details(self):
        return [{"index": 7}]

    def resize_tensor_input(self, index, shape):
        assert index == 3
        self.shape = tuple(shape)

    def allocate_tensors(self):
        pass

    def set_tensor(self, index, samples):
        assert index == 3
        assert samples.shape == self.shape

    def invoke(self):
        pass

    def get_tensor(self, index):
        assert index == 7
        return np.full(self.shape, self.residual, np.float32)


def test_networks_of_aom_serve_their_ranges_of_quantiser_indices(tmp_path, monkeypatch):
    """QP 25 is coded at quantiser index 84, QP 26 at 96, QP 51 at 255. Files hold the networks as arrays of bytes."""
    monkeypatch.setitem(sys.modules, "ai_edge_litert", types.ModuleType("ai_edge_litert"))
    module = types.ModuleType("ai_edge_litert.interpreter")
    module.Interpreter = FakeInterpreter
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", module)
    folder = tmp_path / "av1/tflite_models/intra_frame_model"
    folder.mkdir(parents=True)
    for number, name in enumerate(("0_90", "91_120", "121_145", "146_175", "176_205", "206_255"), 1):
        text = f"/* 2020 */\nconst unsigned char qp{name}_model_tflite_data[] = {{\n  0x1c, 0x{number:02x},\n}};\n"
        (folder / f"qp{name}.cc").write_text(text)
    rival = aom_filters(tmp_path)["aom_intra"]
    picture = Picture((np.full((4, 6), 200, np.uint8), *[np.full((2, 3), 90, np.uint8)] * 2), 8)
    added = {qp: int(rival(picture, qp).y[1, 2]) - 200 for qp in (22, 25, 26, 27, 32, 37, 42, 51)}
    assert added == {22: 1, 25: 1, 26: 2, 27: 2, 32: 3, 37: 4, 42: 5, 51: 6}
    (folder / "qp0_90.cc").write_text("no array")
    with pytest.raises(FormatError, match="holds no array of bytes"):
        aom_filters(tmp_path)


def test_a_rival_without_its_files_is_skipped_with_the_reason(tmp_path, capsys):
    with pytest.raises(Exception, match="store"):
        main([str(tmp_path / "store"), "--nrs", str(tmp_path), "-m", "low_cost_5"])
    printed = capsys.readouterr().out
    assert "skipped: EnhNet: [Errno 2]" in printed
    assert "skipped: VRCNN, SEFCNN: give the folder with --inloop" in printed
