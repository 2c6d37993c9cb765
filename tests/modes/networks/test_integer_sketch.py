"""Integer mode networks: closeness to float, equality of both forms, golden logits, overflow proof and errors."""

import hashlib

import numpy as np
import pytest
import torch

from codecnn import api as verbs
from codecnn.base.errors import ConfigError, MissingFileError, ModelError
from codecnn.base.files import read_json, write_json
from codecnn.models import weights_path
from codecnn.modes.networks import (
    IntegerSketch,
    create_mode_network,
    load_integer_sketch,
    load_mode_network,
    quantise_sketch,
    save_integer_sketch,
    save_mode_network,
    sketch_logits,
    top_modes,
)
from codecnn.modes.networks.integer_sketch import check_blocks, sketch_reference
from tests.modes.networks.test_mode_sketch import _blocks, _logits

GOLDEN = {
    "modes_8": {"22": "5405f22bfa9c9f395a65f00e2a26bcce", "37": "7b68590066b626a3cbba79e464f6e1fc"},
    "modes_16": {"22": "7879a96ed54162bd6fccbc8647eed4a5", "37": "3f194e9ce74767045da3bbe268df3559"},
}
"""MD5s of the shipped networks' logits for the blocks of docs/explanation/integer_modes.md."""
GOLDEN_SMALL = "6ff71893cf49b2e5586082407e1d6956"


def _small(side=4, coefficients=3, hidden=5, modes=35):
    """Return an integer network with weights from formulas of indices."""

    def table(largest, *shape):
        flat = np.arange(np.prod(shape), dtype=np.int64)
        return ((flat * 7919 + flat**2 * 31) % (2 * largest) - largest).reshape(shape).astype(np.int16)

    return IntegerSketch(
        {
            "patterns": table(2000, side**2, coefficients),
            "predictors": table(1500, 4 * side + 1, coefficients, modes),
            "weight": np.abs(table(900, coefficients, modes)),
            "logarithm": np.rint(512 * np.log2(1 + (np.arange(256) + 0.5) / 256)).astype(np.int16),
            "hidden": table(300, hidden, modes),
            "hidden_log": table(200, hidden),
            "offset": table(5000, 64, hidden).astype(np.int32),
            "tail": table(400, modes, hidden),
            "bias": table(9000, modes).astype(np.int32),
        },
        {"residual_shift": 8, "flat": 9000, "hidden_shift": 9, "sharpness": 150, "logit_bits": 20},
    )


def test_logits_are_golden_in_both_forms_at_all_bit_depths():
    network = _small()
    line, block = check_blocks(4)
    digest = hashlib.md5(usedforsecurity=False)
    for depth, qp in ((8, 0), (10, 37), (12, 63)):
        samples = (line >> 2, block >> 2) if depth == 8 else (line << (depth - 10), block << (depth - 10))
        expected = sketch_reference(network, *samples, depth, qp)
        for chunk in (5, 128):
            logits = sketch_logits(network, *samples, depth, qp, chunk).numpy()
            np.testing.assert_array_equal(logits, expected)
        digest.update(expected.astype("<i4").tobytes())
    assert digest.hexdigest() == GOLDEN_SMALL


@pytest.mark.parametrize("name", ["modes_8", "modes_16"])
def test_shipped_integers_have_golden_logits_close_to_float(name):
    path = weights_path(name).with_suffix(".int16.safetensors")
    network, card = load_integer_sketch(path)
    model, source = load_mode_network(name)
    assert card["check"] == GOLDEN[name]
    assert (card.source_sha256, card.options) == (source.sha256, source.options)
    assert path.stat().st_size < 200_000
    line, block = _blocks(network.side, 300, seed=3)
    logits = sketch_reference(network, line, block, 10, 32) * 2.0 ** -network.values["logit_bits"]
    expected = _logits(model, line, block).numpy()
    assert np.abs(logits - expected).mean() < 0.01
    assert (logits.argmax(1) == expected.argmax(1)).mean() > 0.97


def test_quantised_sketches_are_close_to_float_and_invariant_to_offsets():
    torch.manual_seed(1)
    for options in ({"side": 8, "coefficients": 4}, {"side": 4, "coefficients": 5, "modes": 35, "informed": False}):
        model = create_mode_network("mode_sketch", hidden=8, **options)
        torch.nn.init.normal_(model.tail.weight, std=0.5)
        torch.nn.init.normal_(model.tail.bias)
        network = quantise_sketch(model)
        line, block = _blocks(options["side"])
        logits = sketch_reference(network, line, block, 10, 22)
        real = logits * 2.0 ** -network.values["logit_bits"]
        assert np.abs(real - _logits(model, line, block, 22).numpy()).mean() < 0.02
        np.testing.assert_array_equal(sketch_reference(network, line + 77, block + 77, 10, 22), logits)
        assert (sketch_reference(network, line, block, 10, 42) != logits).any(), "the logits depend on the QP"


def test_of_equal_logits_the_lower_mode_comes_first():
    network = _small()
    logits = torch.tensor([[float(value) for value in np.arange(35) % 4]], dtype=torch.float64)
    order, below = top_modes(logits, network, 12)
    assert order[0].tolist() == [3, 7, 11, 15, 19, 23, 27, 31, 2, 6, 10, 14]
    assert below[0].tolist() == [0.0] * 8 + [2.0**-20] * 4


def test_networks_whose_sums_could_overflow_are_refused():
    network = _small()
    for name, factor in (("predictors", 20), ("weight", 30), ("hidden", 100), ("tail", 80)):
        tensors = dict(network.tensors)
        tensors[name] = np.clip(tensors[name].astype(np.int64) * factor, -32767, 32767).astype(np.int16)
        if name == "predictors":
            tensors["predictors"] = np.full_like(tensors["predictors"], 32767)
        with pytest.raises(ModelError, match="beyond 32 bits"):
            IntegerSketch(tensors, network.values)
    with pytest.raises(ModelError, match="no tail of type int16"):
        IntegerSketch({**network.tensors, "tail": network.tensors["tail"].astype(np.int32)}, network.values)
    with pytest.raises(ModelError, match=r"bias of shape \(34,\), not \(35,\)"):
        IntegerSketch({**network.tensors, "bias": network.tensors["bias"][1:]}, network.values)
    with pytest.raises(ModelError, match="hidden_shift -1, not 0 to 31"):
        IntegerSketch(network.tensors, {**network.values, "hidden_shift": -1})
    line, block = check_blocks(4)
    with pytest.raises(ConfigError, match="8 to 12 bit, not 14"):
        sketch_logits(network, line, block, 14, 22)
    with pytest.raises(ModelError, match="blocks of 4x4, not of"):
        sketch_logits(network, *check_blocks(8), 10, 22)


def test_exports_are_read_back_and_damage_is_an_error(tmp_path):
    model = create_mode_network("mode_sketch", side=8, coefficients=3, hidden=4)
    save_mode_network(tmp_path / "m.safetensors", model, "mode_sketch", {"ctu_size": 64})
    out = tmp_path / "m.int16.safetensors"
    assert verbs.export(tmp_path / "m.safetensors", out, "int16") == {"bit_depth": 12}
    network, card = load_integer_sketch(out)
    np.testing.assert_array_equal(network.tensors["tail"], 0)
    assert (card["ctu_size"], card.task) == (64, "integer_modes")
    with pytest.raises(ModelError, match="integers"):
        load_mode_network(out)
    with pytest.raises(ModelError, match="for 'modes', not for 'integer_modes'"):
        load_integer_sketch(tmp_path / "m.safetensors")
    write_json(tmp_path / "m.int16.json", read_json(tmp_path / "m.int16.json") | {"values": {}})
    with pytest.raises(ModelError, match="has residual_shift None"):
        load_integer_sketch(out)
    write_json(tmp_path / "m.int16.json", dict(card.json) | {"check": {"22": "0"}})
    with pytest.raises(ModelError, match="other logits than are computed here"):
        load_integer_sketch(out)
    save_integer_sketch(out, network, card | {"sha256": card.source_sha256})
    out.write_bytes(out.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelError, match="sha256 differs"):
        load_integer_sketch(out)
    with pytest.raises(MissingFileError):
        load_integer_sketch(tmp_path / "none.safetensors")
    save_mode_network(tmp_path / "any.safetensors", create_mode_network(), "modes", {})
    with pytest.raises(ConfigError, match="has no integer form"):
        verbs.export(tmp_path / "any.safetensors", out, "int16")
