"""Modes predicted by networks: columns of the table, costs of the predicted modes, the command."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from codecnn.base.errors import ConfigError, MissingFileError, ModelError
from codecnn.base.files import sha256_file
from codecnn.models import weights_path
from codecnn.modes.labels import label_blocks, predict_block_modes
from codecnn.modes.networks import create_mode_network, load_integer_sketch, save_mode_network
from codecnn.modes.networks.integer_sketch import sketch_reference
from codecnn.vvc.intra import block_costs, block_positions, blocks_at, reference_lines
from tests.helpers.commands import result_of


@pytest.fixture
def pictures(tmp_path):
    """Two pictures of waves, and a noisy version of them in place of decoded pictures."""
    y, x = np.mgrid[:48, :80]
    rng = np.random.default_rng(0)
    planes = [np.rint(500 + 300 * np.sin((x + k * y) / 5) + rng.normal(0, 9, x.shape)) for k in (1, 3)]
    planes = np.clip(np.stack(planes), 0, 1023).astype("<u2")
    planes.tofile(tmp_path / "o_80x48_400_10bit.yuv")
    noisy = np.clip(planes + rng.integers(-9, 10, planes.shape), 0, 1023).astype("<u2")
    noisy.tofile(tmp_path / "d_80x48_400_10bit.yuv")
    return tmp_path / "o_80x48_400_10bit.yuv", tmp_path / "d_80x48_400_10bit.yuv", planes, noisy


@pytest.fixture
def network(tmp_path):
    model = create_mode_network("mode_sketch", side=8, coefficients=6, hidden=8)
    torch.nn.init.normal_(model.tail.weight, std=0.3)
    save_mode_network(tmp_path / "m.safetensors", model, "mode_sketch", {"ctu_size": 32})
    return tmp_path / "m.safetensors", model


def test_modes_are_the_likeliest_and_the_cheapest_of_them(pictures, network):
    original, decoded, planes, noisy = pictures
    weights, model = network
    labels = predict_block_modes(original, models=[weights], top=5, cost="rate", decoded=decoded, qp=27)
    assert (labels.pictures, labels.blocks, labels.table.num_rows) == (2, 120, 120)
    rows = labels.table.to_pylist()
    for frame in (0, 1):
        positions = block_positions(80, 48, 8, 8)
        frame_rows = [row for row in rows if row["frame"] == frame]
        assert [(row["x"], row["y"], row["w"], row["h"], row["qp"]) for row in frame_rows] == [
            (x, y, 8, 8, 27) for x, y in positions.tolist()
        ]
        line = reference_lines(noisy[frame], positions, 8, 8, 10, 32)
        block = blocks_at(planes[frame], positions, 8, 8)
        samples = torch.from_numpy(line), torch.from_numpy(block.astype(np.int32)), torch.full((60,), 10)
        with torch.no_grad():
            logits = model(*model.inputs(*samples, torch.full((60,), 27))).numpy()
        order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
        assert [row["modes"] for row in frame_rows] == order.tolist()
        first = np.take_along_axis(logits, order, 1)
        np.testing.assert_allclose([row["margins"] for row in frame_rows], first[:, :1] - first, atol=1e-4)
        costs = np.take_along_axis(block_costs(line, block, 10, "rate", qp=27), order, 1)
        np.testing.assert_allclose([row["cost_rate"] for row in frame_rows], costs.min(1))
        assert [row["mode_rate"] for row in frame_rows] == order[np.arange(60), costs.argmin(1)].tolist()
    labelled = label_blocks(original, block_sizes="8", ctu_size=32, decoded=decoded, qp=27).table
    all_modes = predict_block_modes(original, models=[weights], top=67, cost="dct", decoded=decoded, qp=27).table
    np.testing.assert_allclose(all_modes["cost_dct"].to_numpy(), labelled["cost_dct"].to_numpy())


def test_command_uses_the_shipped_weights(run, pictures, tmp_path):
    out = tmp_path / "modes.parquet"
    result = result_of(run, "modes", "predict", "-i", pictures[0], "-o", out, "--top", "3", "--cost", "dct")
    assert result == {"modes": str(out), "pictures": 2, "blocks": 2 * (60 + 15)}
    table = pq.read_table(out)
    assert set(table["w"].to_pylist()) == {8, 16}
    assert all(row["mode_dct"] in row["modes"] and row["margins"][0] == 0 for row in table.to_pylist())


def test_exact_modes_use_the_integer_network(run, pictures, network, tmp_path):
    original, decoded, planes, noisy = pictures
    weights, model = network
    with pytest.raises(MissingFileError, match=r"m\.safetensors --format int16"):
        predict_block_modes(original, models=[weights], exact=True)
    integers = tmp_path / "m.int16.safetensors"
    result_of(run, "export", "--model", weights, "--format", "int16", "-o", integers)
    exact = predict_block_modes(original, models=[weights], top=5, exact=True, decoded=decoded, qp=27).table
    line = reference_lines(noisy[1], block_positions(80, 48, 8, 8), 8, 8, 10, 32)
    block = blocks_at(planes[1], block_positions(80, 48, 8, 8), 8, 8)
    sketch, _ = load_integer_sketch(integers)
    logits = sketch_reference(sketch, line, block, 10, 27)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    second = [row for row in exact.to_pylist() if row["frame"] == 1]
    assert [row["modes"] for row in second] == order.tolist()
    first = np.take_along_axis(logits, order, 1)
    margins = (first[:, :1] - first) * 2.0 ** -sketch.values["logit_bits"]
    np.testing.assert_array_equal([row["margins"] for row in second], margins.astype(np.float32))
    named = predict_block_modes(original, models=[integers], top=5, decoded=decoded, qp=27).table
    assert named.equals(exact)
    shipped = tmp_path / "modes.parquet"
    result_of(run, "modes", "predict", "-i", original, "-o", shipped, "--exact")
    facts = json.loads(pq.read_schema(shipped).metadata[b"codecnn"])["networks"]
    assert facts[1]["sha256"] == sha256_file(weights_path("modes_8").with_suffix(".int16.safetensors"))
    torch.nn.init.normal_(model.tail.bias)
    save_mode_network(weights, model, "mode_sketch", {"ctu_size": 32})
    with pytest.raises(ModelError, match="was not made from"):
        predict_block_modes(original, models=[weights], exact=True)


def test_invalid_arguments_are_refused(pictures, network, tmp_path):
    with pytest.raises(ConfigError, match="top 68 is not in 1 to 67"):
        predict_block_modes(pictures[0], models=[network[0]], top=68)
    with pytest.raises(ConfigError, match="'rate' needs the QP"):
        predict_block_modes(pictures[0], models=[network[0]], cost="rate")
    save_mode_network(tmp_path / "any.safetensors", create_mode_network(), "modes", {})
    with pytest.raises(ModelError, match="one size"):
        predict_block_modes(pictures[0], models=[tmp_path / "any.safetensors"])
