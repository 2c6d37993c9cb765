"""Hostile files of 8-bit networks with the right hashes: each is refused with one sentence."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from codecnn.base.errors import ModelError
from codecnn.filtering.integer import build_engine, engines, load_integer, run_reference, save_integer
from tests.filtering.test_integer_file import OPTIONS, write
from tests.helpers.fuzzing import fuzz, pick
from tests.helpers.integer_zoo import assert_same_samples, float_tensors, formula_eight, random_integers

CASES = 150


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Tensors and card of a small network with all operations of 8-bit networks, some tensors of 12 bits."""
    path = tmp_path_factory.mktemp("eight") / "w.int8.safetensors"
    save_integer(path, formula_eight("rdn", OPTIONS, wide=3), {"network": "rdn"})
    return load_file(path), json.loads(path.with_suffix(".json").read_text())


@pytest.fixture(scope="module")
def nodes(saved):
    """Nodes by kind: the convolutions of bytes and of 12 bits with the longest sums, a sum, a modulation."""
    tensors, card = saved
    convolutions = [node for node in card["nodes"] if node["op"] == "conv"]
    weights = {node["name"]: tensors[f"{node['name']}.weight"] for node in convolutions}
    kinds = (
        max((name for name in weights if weights[name].dtype == kind), key=lambda name: weights[name][0].size)
        for kind in (np.int8, np.int16)
    )
    return {
        **dict(zip(("bytes", "wide"), kinds, strict=True)),
        "sum": next(node["name"] for node in convolutions if len(node["inputs"]) == 2),
        "modulation": next(node["name"] for node in card["nodes"] if node["op"] == "modulate"),
        "output": "y",
    }


BEYOND = r"a sum of node '{}' can reach \d+, beyond 2\^24"
SHIFTS = r"node '{}' has shifts that are not \d+ numbers from 0 to 31"


@pytest.mark.parametrize(
    ("kind", "tensor", "change", "message"),
    [
        ("bytes", "bias", lambda x: np.full_like(x, 2**31 - 1), BEYOND),
        ("bytes", "bias", lambda x: np.full_like(x, -(2**31)), BEYOND),
        ("bytes", "weight", lambda x: np.full(x.shape, 2**15 - 1, np.int16), BEYOND),
        ("wide", "weight", lambda x: np.full_like(x, -(2**15)), BEYOND),
        ("sum", "shift", lambda x: np.full_like(x, 30), BEYOND),
        ("modulation", "factor", lambda x: np.full_like(x, -(2**15)), BEYOND),
        ("modulation", "offset", lambda x: np.full_like(x, 2**24 + 1), BEYOND),
        ("output", "gain", lambda x: np.full_like(x, -(2**15)), BEYOND),
        ("bytes", "shift", lambda x: np.full_like(x, -1), SHIFTS),
        ("bytes", "shift", lambda x: np.full_like(x, 32), SHIFTS),
        ("modulation", "shift", lambda x: np.full_like(x, -128), SHIFTS),
        ("modulation", "shift", lambda x: x[:-1].copy(), SHIFTS),
        ("bytes", "shift", lambda x: np.full(x.shape, np.nan, np.float32), "node '{}' has shift of type float32"),
        ("bytes", "shift", lambda x: x.astype(np.int64), "node '{}' has shift of type int64"),
        ("wide", "weight", lambda x: x.astype(np.float32), "node '{}' has weight of type float32"),
    ],
)
def test_tensors_that_overflow_or_are_invalid_are_refused(saved, nodes, tmp_path, kind, tensor, change, message):
    tensors, card = saved
    name = f"{nodes[kind]}.{tensor}"
    write(tmp_path / "a.safetensors", tensors | {name: np.ascontiguousarray(change(tensors[name]))}, card)
    with pytest.raises(ModelError, match=message.format(nodes[kind])) as error:
        load_integer(tmp_path / "a.safetensors")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "value", "number", "message"),
    [
        ("sum", "skip", 32, "has skip 32, not -31 to 31"),
        ("sum", "skip", -31, r"would add its second input shifted by \d+ to \d+"),
        ("sum", "skip", 31, r"would add its second input shifted by -\d+ to -?\d+"),
        ("sum", "skip", 1.5, r"is not a whole card: nodes\.\d+\.values\.skip"),
        ("bytes", "high", 2**15, "has high 32768, not -32768 to 32767"),
        ("bytes", "low", 2**15 - 1, "cannot be between 32767 and"),
        ("bytes", "shift", 3, "has values or tensors that its operation does not have"),
        ("output", "fraction", 40, "has fraction 40, not 16 to 39"),
    ],
)
def test_invalid_values_are_refused(saved, nodes, tmp_path, kind, value, number, message):
    tensors, card = saved
    damaged = json.loads(json.dumps(card["nodes"]))
    next(node for node in damaged if node["name"] == nodes[kind])["values"][value] = number
    write(tmp_path / "a.safetensors", tensors, card | {"nodes": damaged})
    with pytest.raises(ModelError, match=message) as error:
        load_integer(tmp_path / "a.safetensors")
    assert "\n" not in str(error.value)


def test_any_damage_is_refused_or_computed_alike_by_all_engines(saved, tmp_path, monkeypatch):
    """Numbers and whole tensors are set to extremes, without a check of MD5s."""
    monkeypatch.setattr("codecnn.filtering.integer.exact._check_samples", lambda network, md5s: None)
    tensors, card = saved
    path = tmp_path / "a.safetensors"

    def case(rng):
        key = pick(rng, sorted(tensors))
        damaged = tensors[key].copy()
        ends = np.iinfo(damaged.dtype)
        value = pick(rng, [ends.min, ends.max, 0, 1, -1, 31, 32, 127])
        damaged[tuple(rng.integers(side) for side in damaged.shape) if rng.random() < 0.6 else ...] = value
        write(path, tensors | {key: damaged}, card)
        network, _ = load_integer(path)
        planes = random_integers(network, 8 + 2 * network.graph.halo, 8 + 2 * network.graph.halo)
        tensors_in = float_tensors(planes)
        expected = run_reference(network, planes, 30, 10)
        for engine in engines(network):
            assert_same_samples(build_engine(network, engine)(tensors_in, 30, 10), expected)

    fuzz("eight bits", case, CASES, both=20)
