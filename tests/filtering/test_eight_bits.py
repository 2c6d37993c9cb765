"""Networks of 8 bits: every engine against the plain form bit for bit, and files that are none."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from codecnn.errors import ModelError
from codecnn.filtering.integer import (
    WIDE_MAXIMA,
    ExactFilter,
    FastNetwork,
    IntegerNetwork,
    RowNetwork,
    build_engine,
    check_planes,
    engines,
    filter_reference,
    instruction_set,
    integer_path,
    load_integer,
    md5_of,
    picture_of,
    run_reference,
    save_integer,
    source_card,
)
from codecnn.filtering.integer.reference import round_half_to_even
from codecnn.models import list_models, load_model, save_weights, weights_path
from codecnn.models.graph import Graph, Node
from codecnn.runs import read_json, sha256_file, write_json
from codecnn.verbs import _entries
from tests.filtering.test_integer import OPTIONS, assert_same, exact, single
from tests.helpers.integer_zoo import formula_eight, formula_model, formula_network, random_integers

GOLDEN = {
    "arcnn": "38ccc0714dd56ebfa85e769706ba09d7",
    "dncnn": "2d010f20a4e5b9c7857efa4a75b489c9",
    "edsr": "c56673a8d4f9a64678d5458405378ec0",
    "low_cost_17": "de5110ebe0cc0b2fa9cbd5d3b4b5e170",
    "low_cost_17_unf": "c7b5d00f6e89389eb9733a32639bdd98",
    "low_cost_400_unf": "ed5327cc5e49e15cab089dfb76813223",
    "low_cost_5": "f524db0cdc425be8fcac56cfcdc440b7",
    "low_cost_75": "3b31a3c66bfbf582203fd30aec98fe3c",
    "low_cost_75_unf": "8282688e4bd5e34430a16a8a7bc0c1f8",
    "low_cost_yuv_17": "11f607638c412bbf8d4ae47496135163",
    "low_cost_yuv_17_unf": "af9b37662b0bf571383800a8e607951b",
    "low_cost_yuv_75": "13a9adc9ea866794170cf39f431354be",
    "quarter_haar": "0cd48ab77fcb744d27e835d8e789ae83",
    "quarter_light": "0fd4c780a7e7ce73629fce5634fa3c6c",
    "quarter_unshuffle": "1f865e3138ba0b40716fdbeb196da8c4",
    "rdn": "ae7b492f95a8b8efee9f7b8cd5cbef2a",
    "rdn_32_3_6_16": "ae7b492f95a8b8efee9f7b8cd5cbef2a",
    "rdn_32_4_6_24": "3076debe05d20055ea8f4a06f9ac154f",
    "rdn_64_4_6_24_shuffle": "96db275417200373558e7d7b4426015b",
    "rdn_yuv": "40f3b327c25f5e6747b57bdba8c27beb",
    "vrcnn": "be79712892f0a94e7e3ec7472b0d1fea",
}
"""MD5 of the samples at QP 37 that `formula_eight` makes of the picture of `check_planes`."""
BY = ["plain", "avx512_vnni", "amx"]
"""What multiplies bytes, the quickest last; a processor that has one has those before."""
ENGINES = ("float32", "float64", "int8")
needs_bytes = pytest.mark.skipif(instruction_set() == "plain", reason="this processor multiplies no bytes")


def here(names=ENGINES):
    return [name for name in names if name != "int8" or instruction_set() != "plain"]


@pytest.mark.parametrize("name", list_models())
def test_goldens(name):
    """The same samples in NumPy and by every engine, today and on every machine."""
    network = formula_eight(name)
    assert network.bits == 8
    assert network.accumulator_bits <= 25
    planes = check_planes(network)
    assert md5_of(filter_reference(network, planes, 37, 10)) == GOLDEN[name]
    for engine in here():
        samples = exact(network, planes, engine=engine)
        assert md5_of(samples) == GOLDEN[name], engine
    (plane, *_) = samples.values()
    assert np.abs(plane - planes["rec_y"].astype(np.float32)).mean() > 1, "the filter does something"


@pytest.mark.parametrize("name", ["rdn", "low_cost_17", "low_cost_5", "quarter_haar", "rdn_yuv"])
def test_mixed_with_12_and_13_bits(name):
    """With every second tensor of 12 bits and every third of 13, in NumPy and by every engine the same."""
    for wide, fine in zip((2, 3), WIDE_MAXIMA, strict=True):
        network = formula_eight(name, wide=wide, maximum=fine)
        highs = [node.values["high"] for node in network.graph.nodes if "high" in node.values]
        assert len(network.graph.outputs) < highs.count(fine) < len(highs), "also others than the residuals"
        assert network.accumulator_bits <= 25
        planes = single(random_integers(network, 30, 42))
        expected = filter_reference(network, planes, 37, 10)
        for engine in here():
            for tile in (16, None):
                assert_same(exact(network, planes, engine=engine, tile=tile), expected)
        assert md5_of(expected) != md5_of(filter_reference(formula_eight(name), planes, 37, 10))


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_options_are_exact(name, options):
    network = formula_eight(name, options, 12)
    planes = single(random_integers(network, 21, 26, bit_depth=10))
    expected = filter_reference(network, planes, 27, 10)
    for engine in here(("float32", "int8")):
        assert_same(exact(network, planes, 27, 10, engine=engine), expected)


@pytest.mark.parametrize("name", ["rdn_yuv", "low_cost_17", "low_cost_5"])
def test_tiles_change_nothing(name):
    network = formula_eight(name)
    planes = single(random_integers(network, 83, 107))
    expected = filter_reference(network, planes, 37, 10)
    for engine in here(("float32", "int8")):
        for tile in (16, 64, None):
            assert_same(exact(network, planes, tile=tile, engine=engine), expected)


@pytest.mark.parametrize("name", ["rdn", "low_cost_5"])
def test_batches_layouts_and_threads_change_nothing(name):
    network = formula_eight(name)
    height, width = 24 + 2 * network.graph.halo, 32 + 2 * network.graph.halo
    planes = random_integers(network, height, width, seed=1, count=8)
    expected = run_reference(network, planes, 22, 10)
    tensors = {plane: torch.from_numpy(array.astype(np.float32)) for plane, array in planes.items()}
    for engine in here(("float32", "int8")):
        fast = build_engine(network, engine)
        for threads, layout in ((1, torch.contiguous_format), (2, torch.channels_last)):
            torch.set_num_threads(threads)
            made = fast({plane: tensor.contiguous(memory_format=layout) for plane, tensor in tensors.items()}, 22, 10)
            assert_same(made, expected)
        torch.set_num_threads(1)
        alone = fast({plane: tensor[3:4] for plane, tensor in tensors.items()}, 22, 10)
        assert_same(alone, {output: plane[3:4] for output, plane in expected.items()})


@pytest.mark.parametrize("name", list_models())
def test_rows_make_the_samples_however_bytes_are_multiplied(name):
    """By plain loops on every processor, by VPDPBUSD and by AMX where they are; all convolutions are among them."""
    network = formula_eight(name)
    for width in (40, 27 * network.graph.stride):  # rows of a multiple of four pixels, and others
        _assert_rows(network, width)


def _assert_rows(network, width):
    given = random_integers(network, 48, width, seed=2)
    planes = {plane: torch.from_numpy(x.astype(np.float32)) for plane, x in given.items()}
    expected = FastNetwork(network)(planes, 32, 10)
    for by in BY[: BY.index(instruction_set()) + 1]:
        rows = RowNetwork(network, by)
        in_rows = [step.node.name for step in rows.steps if step.weights]
        whole = [node.name for node in rows.front if node.op == "conv"]
        assert sorted(in_rows + whole) == sorted(node.name for node in network.graph.nodes if node.op == "conv")
        made = rows(planes, 32, 10)
        for output, plane in expected.items():
            assert torch.equal(made[output], plane), by


@needs_bytes
@pytest.mark.parametrize("name", ["low_cost_17", "low_cost_5", "low_cost_yuv_17"])
def test_wide_windows_of_smooth_pictures(name):
    """oneDNN's convolutions of bytes, which were used before, made other samples there where they took AMX."""
    network, _ = load_integer(integer_path(weights_path(name), 8))
    y, x = np.mgrid[:300, :420]
    smooth = (500 + 300 * np.sin(x / 90) * np.cos(y / 70)).astype(np.uint16)
    planes = {"rec_y": smooth} | {plane: smooth[::2, ::2] for plane in network.graph.planes if plane != "rec_y"}
    expected = exact(network, planes, 42, engine="float32")
    assert_same(exact(network, planes, 42, engine="int8"), expected)
    assert any((expected[name] != planes[f"rec_{name}"]).any() for name in expected)


def test_what_a_processor_cannot_multiply_is_refused(monkeypatch):
    monkeypatch.setattr("codecnn.filtering.integer.row_engine.instruction_set", lambda: "plain")
    network = formula_eight("low_cost_5")
    assert engines(network) == ["float32"]
    with pytest.raises(ModelError, match="the instruction set amx is missing"):
        RowNetwork(network, "amx")


OTHER_PROCESSOR = """
from codecnn.filtering.integer import check_planes, instruction_set, md5_of
from tests.filtering.test_integer import exact
from tests.helpers.integer_zoo import formula_eight

network = formula_eight("low_cost_17")
print(instruction_set() != "plain", md5_of(exact(network, check_planes(network))))
"""


@pytest.mark.parametrize(("isa", "pytorch"), [("AVX2", "avx2"), ("AVX512_CORE", "default")])
def test_a_processor_without_vnni_makes_the_same_samples(isa, pytorch):
    """ONEDNN_MAX_CPU_ISA, which limits oneDNN, switches the engine of bytes off as well."""
    limits = {"ONEDNN_MAX_CPU_ISA": isa, "ATEN_CPU_CAPABILITY": pytorch}
    run = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESSOR],
        env=os.environ | limits,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert run.stdout.split() == ["False", GOLDEN["low_cost_17"]], run.stderr


def test_networks_of_16_bits_have_no_engine_of_bytes():
    network = formula_network("low_cost_5")
    assert engines(network) == ["float32"]
    with pytest.raises(ModelError, match="cannot be computed row by row"):
        build_engine(network, "int8")


def test_halves_are_round_half_to_even():
    sums = np.array([-12, -11, -7, -6, -5, -2, -1, 1, 2, 3, 6, 10])
    assert (
        round_half_to_even(sums, 2).tolist()
        == np.rint(sums / 4).tolist()
        == torch.round(torch.tensor(sums / 4)).tolist()
    )
    assert round_half_to_even(sums, 0).tolist() == sums.tolist()
    by_channel = round_half_to_even(np.array([[3, 6], [3, 6]]), np.array([[1], [2]]))
    assert by_channel.tolist() == [[2, 3], [1, 2]]


def eight(weight, shift=0, low=-128, high=127, skip=None, bits=8, bias=0, kind=np.int8):
    """rec_y -> a convolution to a byte -> another, into a sum where `skip` says so -> output."""
    weight = np.asarray(weight)
    first = {
        "weight": np.full((1, 1, 1, 1), 1, np.int8),
        "bias": np.zeros(1, np.int32),
        "shift": np.full(1, 2, np.int8),
    }
    shifts = shift if isinstance(shift, np.ndarray) else np.full(1, shift, np.int8)
    own = {"weight": weight.astype(kind), "bias": np.full(1, bias, np.int32), "shift": shifts}
    values = {"pad": 1, "groups": 1, "low": low, "high": high}
    nodes = (
        Node("rec_y", "plane"),
        Node("a", "conv", ("rec_y",), {"pad": 1, "groups": 1, "low": -128, "high": 127, "skip": 0}, first),
        Node("b", "conv", ("a", "a") if skip is not None else ("a",), values | {"skip": skip or 0}, own),
        Node("y", "output", ("b", "rec_y"), {"crop": 0, "fraction": 16}, {"gain": np.array([64], np.int16)}),
    )
    return IntegerNetwork(Graph(nodes), 10, bits)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": np.full((1, 1, 33, 33), 127)}, r"node 'b' can reach \d+, beyond 2\^24"),
        ({"weight": np.full((1, 1, 23, 23), 255), "kind": np.int16}, r"node 'b' can reach \d+, beyond 2\^24"),
        ({"high": 2**15}, r"has high 32768, not -32768 to 32767"),
        ({"bias": 2**24 - 128}, r"can reach \d+, beyond 2\^24"),
        ({"shift": 20, "skip": 1}, r"can reach \d+, beyond 2\^24"),
        ({"shift": 2, "skip": 18}, "would add its second input shifted by -16 to -16"),
        ({"weight": np.full((1, 1, 3, 3), 127), "shift": 0, "skip": 7}, r"can reach 18\d{6}, beyond 2\^24"),
        ({"shift": np.array([-1], np.int8)}, "has shifts that are not 1 numbers from 0 to 31"),
        ({"shift": np.array([1, 2], np.int8)}, "has shifts that are not 1 numbers"),
        ({"shift": np.array([1], np.int32)}, "has shift of type int32"),
        ({"kind": np.int32}, "has weight of type int32"),
        ({"bits": 16}, "node 'a'"),
        ({"bits": 7}, "integer networks have 8 or 16 bits, not 7"),
        ({"low": 5, "high": 4}, "cannot be between 5 and 4"),
    ],
)
def test_what_is_no_network_of_8_bits_is_refused(changes, message):
    options = {"weight": np.ones((1, 1, 3, 3))} | changes
    with pytest.raises(ModelError, match=message):
        eight(**options)


def test_sums_beyond_64_bits_are_refused():
    """In the finer unit of what is added they would be small numbers again."""
    _, first, second, _ = (nodes := eight(np.ones((1, 1, 1, 1)), 2, skip=17).graph.nodes)
    first = replace(first, values=first.values | {"low": -(2**15), "high": 2**15 - 1})
    second = replace(second, tensors=second.tensors | {"weight": np.full((1, 1, 601, 601), 2**15 - 1, np.int16)})
    with pytest.raises(ModelError, match=r"node 'b' can reach \d+, beyond 2\^24"):
        IntegerNetwork(Graph((nodes[0], first, second, nodes[3])), 10, 8)


def test_sums_at_the_limit_are_exact():
    """2^24 itself is allowed; all engines round it, and what is odd just below, alike."""
    for bias in (2**24 - 127 * 128 - 1, -(2**24) + 128 * 128 + 1):
        network = eight(np.full((1, 1, 1, 1), 127), shift=17, bias=bias)
        rng = np.random.default_rng(0)
        planes = {"rec_y": rng.choice([0, 1, 512, 1022, 1023], (40, 40)).astype(np.uint16)}
        expected = filter_reference(network, planes, 0, 10)
        for engine in here():
            assert_same(exact(network, planes, 0, engine=engine), expected)


def test_files(tmp_path):
    network, path = formula_eight("low_cost_5"), tmp_path / "n.int8.safetensors"
    save_integer(path, network, {"network": "low_cost_5"})
    card = read_json(path.with_suffix(".json"))
    assert (card["schema"], card["bits"], card["bit_depth"]) == (2, 8, 10)
    loaded, _ = load_integer(path)
    planes = single(random_integers(network, 20, 27))
    assert_same(ExactFilter(loaded).samples(*_picture(planes)), filter_reference(network, planes, 37, 10))

    for changes, message in (
        ({"bits": 16}, "16 bits, which schema 2 does not have"),
        ({"schema": 1}, "8 bits, which schema 1 does not have"),
        ({"schema": 3}, "not the card of an integer network of schema 1 or 2"),
    ):
        write_json(path.with_suffix(".json"), card | changes)
        with pytest.raises(ModelError, match=message):
            load_integer(path)
    tensors = load_file(path)
    tensors["blocks.0.expand.shift"] = tensors["blocks.0.expand.shift"] - 1
    save_file(tensors, path)
    write_json(path.with_suffix(".json"), card | {"sha256": sha256_file(path)})
    with pytest.raises(ModelError, match="other samples at QP 22"):
        load_integer(path)


def test_the_8_bits_beside_weights_are_taken_and_named(tmp_path):
    """Where both forms lie beside weights, `evaluate` says which of them it measured."""
    path, network = tmp_path / "w.safetensors", formula_eight("low_cost_5")
    save_weights(path, formula_model("low_cost_5"), "low_cost_5", {})
    card = source_card(load_model(path)[1])
    save_integer(integer_path(path), formula_network("low_cost_5"), card)
    folder = tmp_path.name
    assert [one.name for one in _entries([path], True, "float32", "cpu", 960)] == [f"{folder}/w", f"{folder}/w.int16"]
    save_integer(integer_path(path, 8), network, card)
    names = [(one.name, getattr(one.filter, "network", None)) for one in _entries([path], True, "float32", "cpu", 960)]
    assert [name for name, _ in names] == [f"{folder}/w", f"{folder}/w.int8"]
    assert names[1][1].bits == 8


def _picture(planes):
    return picture_of(planes, 10), 37, planes


def test_a_byte_that_saturates_otherwise_is_still_exact():
    """Bounds that a conversion to bytes does not give by itself."""
    rng = np.random.default_rng(0)
    planes = {"rec_y": rng.integers(0, 1024, (30, 30)).astype(np.uint16)}
    for low, high in ((-128, 127), (-100, 90), (0, 127), (0, 255), (0, 100), (-2000, 2000)):
        for skip in (None, 1, 5, 9):  # 9: what is added has more fractional bits than the convolution's own sums
            network = eight(rng.integers(-127, 128, (1, 1, 3, 3)), 5, low, high, skip)
            expected = filter_reference(network, planes, 0, 10)
            for engine in here(("float32", "int8")):
                assert_same(exact(network, planes, 0, engine=engine), expected)


def test_a_tensor_that_is_used_again_survives_the_sum():
    """A tensor may be multiplied and added at once."""
    network = eight(np.full((1, 1, 1, 1), 3), 4, skip=1)
    again = Node("c", "conv", ("a", "b"), network.graph.nodes[2].values, network.graph.nodes[2].tensors)
    nodes = (*network.graph.nodes[:3], again, replace(network.graph.nodes[3], inputs=("c", "rec_y")))
    network = IntegerNetwork(Graph(nodes), 10, 8)
    planes = {"rec_y": np.random.default_rng(0).integers(0, 1024, (30, 30)).astype(np.uint16)}
    for engine in here(("float32", "int8")):
        assert_same(exact(network, planes, 0, engine=engine), filter_reference(network, planes, 0, 10))
