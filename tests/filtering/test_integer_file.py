"""Files of integer networks: what is saved is loaded again, and damaged or hostile files are refused."""

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from codecnn.base.errors import MissingFileError, ModelError
from codecnn.base.files import sha256_file
from codecnn.filtering.integer import (
    CHECK_QPS,
    FastNetwork,
    check_planes,
    filter_reference,
    is_integer,
    load_integer,
    md5_of,
    run_reference,
    save_integer,
)
from codecnn.models import create_model, save_weights, weights_path
from codecnn.modes.networks import load_integer_sketch, save_integer_sketch
from tests.helpers.fuzzing import damage_json, fuzz, mutate, pick, time_limit
from tests.helpers.integer_zoo import float_tensors, formula_network, random_integers, random_picture_planes
from tests.helpers.networks import SMALL

FUZZED = {"bytes": 170, "header": 80, "tensors": 120, "cards": 230}
"""Number of damaged files of each kind, 600 in all."""
OPTIONS = {"features": 4, "blocks": 1, "layers": 2, "growth": 2, "shuffle": 2, "conditioning": "film"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("integer") / "w.safetensors"
    save_integer(path, formula_network("rdn", OPTIONS), {"network": "rdn", "qps": [22, 42]})
    return path


@pytest.fixture(scope="module")
def card(saved: Path) -> dict[str, Any]:
    return json.loads(saved.with_suffix(".json").read_text())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """File that a test writes its damaged network to."""
    return tmp_path / "a.safetensors"


def test_saved_weights_have_the_permissions_of_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        save_weights(tmp_path / "w.safetensors", create_model("rdn", **SMALL), "rdn", {})
        save_integer(tmp_path / "i.safetensors", formula_network("rdn", OPTIONS), {"network": "rdn"})
        sketch, card = load_integer_sketch(weights_path("modes_8").with_suffix(".int16.safetensors"))
        save_integer_sketch(tmp_path / "m.safetensors", sketch, card | {"sha256": card.source_sha256})
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("*.safetensors")} == {
        "w.safetensors": 0o644,
        "i.safetensors": 0o644,
        "m.safetensors": 0o644,
    }


@pytest.mark.parametrize("name", ["rdn_yuv", "low_cost_5", "vrcnn"])
def test_a_saved_network_is_loaded_again(name: str, path: Path) -> None:
    network = formula_network(name, SMALL if name == "rdn_yuv" else None)
    save_integer(path, network, {"network": name})
    loaded, card = load_integer(path)
    assert is_integer(path)
    assert (card.network, card["bit_depth"], card["accumulator_bits"]) == (name, 10, 25)
    planes = random_picture_planes(network, 20, 27)
    for qp in (0, 37, 63):
        expected = filter_reference(network, planes, qp, 10)
        for output, plane in filter_reference(loaded, planes, qp, 10).items():
            np.testing.assert_array_equal(plane, expected[output])


def test_the_picture_of_the_card_follows_the_formula() -> None:
    """Some samples by the formula of docs/explanation/integers.md."""
    planes = check_planes(formula_network("rdn_yuv", SMALL))
    assert [planes[name].shape for name in ("rec_y", "rec_u", "rec_v")] == [(37, 45), (19, 23), (19, 23)]
    order = formula_network("rdn_yuv", SMALL).graph.planes
    for index, name in enumerate(order):
        for x, y in ((0, 0), (5, 2), (22, 18)):
            assert planes[name][y, x] == (73 * x * x + 151 * y * y + 29 * x * y + 1237 * index) % 1024


def test_missing_files_and_files_of_other_kinds_are_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"none\.safetensors does not exist"):
        load_integer(tmp_path / "none.safetensors")
    shutil.copy(saved, tmp_path / "bare.safetensors")
    with pytest.raises(MissingFileError, match=r"bare\.json does not exist"):
        load_integer(tmp_path / "bare.safetensors")
    assert not is_integer(tmp_path / "bare.safetensors")
    weights = tmp_path / "float.safetensors"
    save_weights(weights, create_model("rdn", **OPTIONS), "rdn", {})
    assert not is_integer(weights)
    with pytest.raises(ModelError, match="not the card"):
        load_integer(weights)
    with pytest.raises(ModelError, match=r"written as \.safetensors"):
        save_integer(tmp_path / "a.bin", formula_network("rdn", OPTIONS), {})


def test_a_changed_weight_is_detected_by_the_samples(saved: Path, card: dict[str, Any], path: Path) -> None:
    """File and card fit each other, but the network computes other samples than the card says."""
    tensors = load_file(saved)
    tensors["head.weight"][0, 0, 0, 0] += 40
    write(path, tensors, card)
    with pytest.raises(ModelError, match="QP 22"):
        load_integer(path)


def test_a_damaged_file_is_detected_by_its_hash(saved: Path, path: Path) -> None:
    shutil.copy(saved.with_suffix(".json"), path.with_suffix(".json"))
    content = bytearray(saved.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"a\.safetensors"):
        load_integer(path)


def write(path: Path, tensors: dict[str, Any], card: Any) -> None:
    save_file(tensors, path)
    sign(path, card)


def sign(path: Path, card: Any) -> None:
    """Write the card of a file with the right SHA-256, as an attacker would."""
    if isinstance(card, dict):
        card = card | {"sha256": sha256_file(path)}
    path.with_suffix(".json").write_text(card if isinstance(card, str) else json.dumps(card))


def check_loaded(path: Path, original: dict[str, Any]) -> None:
    """Load a file, and compare its samples in both engines, and with the card's MD5 if that is unchanged."""
    network, card = load_integer(path)
    planes = random_integers(network, 8 + 2 * network.graph.halo, 8 + 2 * network.graph.halo)
    tensors = float_tensors(planes)
    expected = run_reference(network, planes, 30, network.bit_depth)
    for output, plane in FastNetwork(network)(tensors, 30, network.bit_depth).items():
        np.testing.assert_array_equal(plane.numpy(), expected[output])
    if card["check"] == original["check"]:
        samples = filter_reference(network, check_planes(network), CHECK_QPS[0], network.bit_depth)
        assert md5_of(samples) == card["check"][str(CHECK_QPS[0])]


def test_damaged_files(saved: Path, card: dict[str, Any], path: Path) -> None:
    whole = saved.read_bytes()

    def case(rng: np.random.Generator) -> None:
        path.write_bytes(mutate(whole, rng))
        sign(path, card)
        check_loaded(path, card)

    outcomes = fuzz("bytes", case, FUZZED["bytes"])
    assert outcomes["error"] > 0.7 * FUZZED["bytes"], "with the right hash only tables of QPs without an MD5 can differ"


def test_damaged_headers(saved: Path, card: dict[str, Any], path: Path) -> None:
    whole = saved.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])

    def case(rng: np.random.Generator) -> None:
        damaged = json.dumps(damage_json(header, rng)).encode()
        size = pick(rng, [len(damaged)] * 4 + [0, 1, 2**40, 2**63, 2**64 - 1])
        path.write_bytes(struct.pack("<Q", size) + damaged + whole[8 + length :])
        sign(path, card)
        check_loaded(path, card)

    assert fuzz("header", case, FUZZED["header"])["error"] > 0.9 * FUZZED["header"]


def test_hostile_tensors(saved: Path, card: dict[str, Any], path: Path) -> None:
    """Tensors have wrong types and shapes, NaN, extreme values, huge sizes, or other names."""
    types = ["int8", "int32", "int64", "uint16", "float32", "float16", "bool"]

    def case(rng: np.random.Generator) -> None:
        tensors = load_file(saved)
        key = pick(rng, sorted(tensors))
        tensor = tensors[key]
        match int(rng.integers(8)):
            case 0:
                tensors[key] = tensor.astype(pick(rng, types))
            case 1:
                tensors[key] = tensor.reshape(-1) if tensor.ndim > 1 else tensor[None]
            case 2:
                tensors[key] = np.full_like(tensor, pick(rng, [np.iinfo(tensor.dtype).max, np.iinfo(tensor.dtype).min]))
            case 3:
                tensors[key] = np.full(tensor.shape, np.nan, np.float32)
            case 4:
                tensors[key] = np.repeat(tensor, int(rng.integers(2, 300)), axis=int(rng.integers(tensor.ndim)))
            case 5:
                tensors[key] = tensor[:0] if rng.random() < 0.5 else tensor[..., :-1]
            case 6:
                tensors[pick(rng, ["x.weight", "", ".", "head", "../../canary", "a" * 9999])] = tensors.pop(key)
            case _:
                del tensors[key]
        write(path, {name: np.ascontiguousarray(value) for name, value in tensors.items()}, card)
        check_loaded(path, card)

    assert fuzz("tensors", case, FUZZED["tensors"])["error"] > 0.9 * FUZZED["tensors"]
    assert sorted(file.name for file in path.parent.iterdir()) == ["a.json", "a.safetensors"]


def test_hostile_cards(saved: Path, card: dict[str, Any], path: Path) -> None:
    """Cards have operations that do not fit, values out of range, cycles, and huge sizes."""
    shutil.copy(saved, path)
    numbers = [0, -1, 1, 31, 32, 40, 10**9, 10**30, 2**15, -(2**15) - 1, 1.5, "4", None, True, [4]]

    def case(rng: np.random.Generator) -> None:
        damaged: Any = damage_json({name: card[name] for name in ("bit_depth", "check", "nodes")}, rng)
        damaged = card | damaged if isinstance(damaged, dict) else damaged
        nodes = json.loads(json.dumps(card["nodes"]))
        place = int(rng.integers(len(nodes)))
        match int(rng.integers(7)):
            case 0:
                values = nodes[place]["values"]
                values[pick(rng, [*sorted(values), "shift", "factor", "x"])] = pick(rng, numbers)
                damaged = card | {"nodes": nodes}
            case 1:
                names = [node["name"] for node in nodes]
                nodes[place]["inputs"] = [pick(rng, [*names, "?"]) for _ in range(int(rng.integers(4)))]
                damaged = card | {"nodes": nodes}
            case 2:
                ops = sorted({node["op"] for node in nodes})
                nodes[place]["op"] = pick(rng, [*ops, "edge", "crop", "os.system", ""])
                damaged = card | {"nodes": nodes}
            case 3:
                extra = chain("concat", int(rng.integers(1, 40)), nodes[-1]["inputs"][0], inputs=2)
                damaged = card | {"nodes": [*nodes[:-1], *extra, nodes[-1]]}
            case 4:
                damaged = pick(rng, ["[" * 100_000, "9" * 10_000, "", "null", '{"schema": 1}', "\ufeff{}", "{" * 9])
            case 5:
                damaged = card | {"bit_depth": pick(rng, [*numbers, 8, 12, 16])}
        sign(path, damaged)
        check_loaded(path, card)

    assert fuzz("integer cards", case, FUZZED["cards"])["error"] > 0.8 * FUZZED["cards"]


def chain(op: str, count: int, first: str, inputs: int = 1) -> list[dict[str, Any]]:
    """Create nodes that each read the one before."""
    before = [first, *(f"n{index}" for index in range(count))]
    return [{"name": f"n{i}", "op": op, "inputs": [before[i]] * inputs, "values": {}} for i in range(count)]


def test_a_huge_graph_is_refused_at_once(saved: Path, card: dict[str, Any], path: Path) -> None:
    shutil.copy(saved, path)
    first, *rest = card["nodes"]
    sign(path, card | {"nodes": [first, *chain("edge", 10**5, first["name"]), *rest]})
    with time_limit(), pytest.raises(ModelError, match="not a whole card"):
        load_integer(path)
