"""8-bit networks: every engine and instruction set against the reference bit for bit, and refused networks and files.

Tests of the row engine run once for each instruction set (plain loops, AVX-512 VNNI, AMX). Their names say which one
ran, and one that the processor does not have is skipped by name.
"""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from codecnn.base.errors import ModelError
from codecnn.base.files import read_json, sha256_file, write_json
from codecnn.evaluation import load_entries
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
from codecnn.models import load_model, save_weights, weights_path
from codecnn.models.graph import Graph, Node
from tests.helpers.integer_zoo import (
    INSTRUCTION_SETS,
    OPTIONS,
    assert_same_samples,
    engine_params,
    filter_exactly,
    float_tensors,
    formula_eight,
    formula_eight_once,
    formula_model,
    formula_network,
    instruction_set_params,
    prepare_engine,
    random_integers,
    random_picture_planes,
    two_convolutions,
)
from tests.helpers.networks import DISTINCT, WITH_GRAPH

GOLDEN = {
    "arcnn": "38ccc0714dd56ebfa85e769706ba09d7",
    "dncnn": "2d010f20a4e5b9c7857efa4a75b489c9",
    "edsr": "c56673a8d4f9a64678d5458405378ec0",
    "low_cost_17": "de5110ebe0cc0b2fa9cbd5d3b4b5e170",
    "low_cost_17 decoder+neighbours2": "2256091f45e9377e0c8c52772c79cf94",
    "low_cost_17 slice_type": "e4350a9147e3926a0b03abcff3b16944",
    "low_cost_17 slice_type+neighbours2": "f651016e824251b0e8d229b981759dee",
    "low_cost_17 unfiltered": "c7b5d00f6e89389eb9733a32639bdd98",
    "low_cost_400": "2892d6d50d63d909caaf2c40b708d10d",
    "low_cost_400 unfiltered": "ed5327cc5e49e15cab089dfb76813223",
    "low_cost_5": "f524db0cdc425be8fcac56cfcdc440b7",
    "low_cost_75": "3b31a3c66bfbf582203fd30aec98fe3c",
    "low_cost_75 decoder+neighbours2": "6f7b9e97d2c7979e9905b59523aae914",
    "low_cost_75 unfiltered": "8282688e4bd5e34430a16a8a7bc0c1f8",
    "low_cost_yuv_17": "11f607638c412bbf8d4ae47496135163",
    "low_cost_yuv_17 decoder+neighbours": "e99f5e3a4dc47b181078d8cc850bf6a1",
    "low_cost_yuv_17 slice_type": "9ccf4e87130ad80320ba24012959a39d",
    "low_cost_yuv_17 unfiltered": "af9b37662b0bf571383800a8e607951b",
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
"""MD5 of the samples at QP 37 that `formula_eight` computes for the picture of `check_planes`."""

FAST_ENGINES = ("float32", *(f"int8-{name}" for name in INSTRUCTION_SETS))


@pytest.mark.parametrize("name", WITH_GRAPH)
def test_the_reference_computes_the_golden_samples(name):
    network = formula_eight_once(name)
    assert network.bits == 8
    assert network.accumulator_bits <= 25
    planes = check_planes(network)
    samples = filter_reference(network, planes, 37, 10)
    assert md5_of(samples) == GOLDEN[name]
    (plane, *_) = samples.values()
    assert np.abs(plane - planes["rec_y"].astype(np.float32)).mean() > 1, "the filter does something"


@pytest.mark.parametrize("engine", engine_params())
@pytest.mark.parametrize("name", WITH_GRAPH)
def test_every_engine_computes_the_golden_samples(name, engine):
    network = formula_eight_once(name)
    assert md5_of(filter_exactly(network, check_planes(network), engine=engine)) == GOLDEN[name]


@pytest.fixture(scope="module")
def mixed_networks():
    """Networks with every second tensor of 12 bits and every third of 13, their planes and reference samples."""
    cases: dict[str, list] = {}

    def build(name):
        if name not in cases:
            cases[name] = []
            for wide, maximum in zip((2, 3), WIDE_MAXIMA, strict=True):
                network = formula_eight(name, wide=wide, maximum=maximum)
                planes = random_picture_planes(network, 30, 42)
                cases[name].append((network, maximum, planes, filter_reference(network, planes, 37, 10)))
        return cases[name]

    return build


MIXED = ["rdn", "low_cost_17", "low_cost_5", "quarter_haar", "rdn_yuv"]


@pytest.mark.parametrize("name", MIXED)
def test_wide_tensors_change_the_samples(name, mixed_networks):
    for network, maximum, planes, expected in mixed_networks(name):
        highs = [node.values["high"] for node in network.graph.nodes if "high" in node.values]
        assert len(network.graph.outputs) < highs.count(maximum) < len(highs), "tensors other than residuals are wide"
        assert network.accumulator_bits <= 25
        assert md5_of(expected) != md5_of(filter_reference(formula_eight_once(name), planes, 37, 10))


@pytest.mark.parametrize("engine", engine_params())
@pytest.mark.parametrize("name", MIXED)
def test_every_engine_computes_wide_tensors_exactly(name, engine, mixed_networks):
    for network, _, planes, expected in mixed_networks(name):
        for tile in (16, None):
            assert_same_samples(filter_exactly(network, planes, engine=engine, tile=tile), expected)


@pytest.mark.parametrize("engine", engine_params(FAST_ENGINES))
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_options_are_exact(name, options, engine):
    network = formula_eight(name, options, 12)
    planes = random_picture_planes(network, 21, 26, bit_depth=10)
    assert_same_samples(filter_exactly(network, planes, 27, 10, engine), filter_reference(network, planes, 27, 10))


@pytest.mark.parametrize("engine", engine_params(FAST_ENGINES))
@pytest.mark.parametrize("name", ["rdn_yuv", "low_cost_17", "low_cost_5"])
def test_tiles_change_nothing(name, engine):
    network = formula_eight_once(name)
    planes = random_picture_planes(network, 83, 107)
    expected = filter_reference(network, planes, 37, 10)
    for tile in (16, 64, None):
        assert_same_samples(filter_exactly(network, planes, tile=tile, engine=engine), expected)


@pytest.mark.parametrize("engine", engine_params(FAST_ENGINES))
@pytest.mark.parametrize("name", ["rdn", "low_cost_5"])
def test_batches_layouts_and_threads_change_nothing(name, engine):
    network = formula_eight_once(name)
    height, width = 24 + 2 * network.graph.halo, 32 + 2 * network.graph.halo
    planes = random_integers(network, height, width, seed=1, count=8)
    expected = run_reference(network, planes, 22, 10)
    tensors = float_tensors(planes)
    prepared = prepare_engine(network, engine)
    for threads, layout in ((1, torch.contiguous_format), (2, torch.channels_last)):
        torch.set_num_threads(threads)
        batch = {plane: tensor.contiguous(memory_format=layout) for plane, tensor in tensors.items()}
        assert_same_samples(prepared(batch, 22, 10), expected)
    torch.set_num_threads(1)
    alone = prepared({plane: tensor[3:4] for plane, tensor in tensors.items()}, 22, 10)
    assert_same_samples(alone, {output: plane[3:4] for output, plane in expected.items()})


@pytest.mark.parametrize("instructions", instruction_set_params())
@pytest.mark.parametrize("name", [name for name in WITH_GRAPH if name in DISTINCT])
def test_the_row_engine_computes_the_samples_of_the_float_engine(name, instructions):
    """All convolutions are computed row by row or before the rows, with rows of multiples of four pixels and others."""
    network = formula_eight_once(name)
    for width in (40, 27 * network.graph.stride):
        planes = float_tensors(random_integers(network, 48, width, seed=2))
        expected = FastNetwork(network)(planes, 32, 10)
        rows = RowNetwork(network, instructions)
        in_rows = [step.node.name for step in rows.steps if step.weights]
        before = [node.name for node in rows.front if node.op == "conv"]
        assert sorted(in_rows + before) == sorted(node.name for node in network.graph.nodes if node.op == "conv")
        computed = rows(planes, 32, 10)
        for output, plane in expected.items():
            assert torch.equal(computed[output], plane)


@pytest.mark.parametrize("instructions", instruction_set_params())
@pytest.mark.parametrize("name", ["low_cost_17", "low_cost_5", "low_cost_yuv_17"])
def test_wide_windows_of_smooth_pictures(name, instructions):
    """Shipped weights on large smooth pictures, where oneDNN's convolutions of bytes were wrong with AMX."""
    network, _ = load_integer(integer_path(weights_path(name), 8))
    y, x = np.mgrid[:300, :420]
    smooth = (500 + 300 * np.sin(x / 90) * np.cos(y / 70)).astype(np.uint16)
    planes = {"rec_y": smooth} | {plane: smooth[::2, ::2] for plane in network.graph.planes if plane != "rec_y"}
    expected = filter_exactly(network, planes, 42, engine="float32")
    assert_same_samples(filter_exactly(network, planes, 42, engine=f"int8-{instructions}"), expected)
    assert any((expected[name] != planes[f"rec_{name}"]).any() for name in expected)


@pytest.mark.parametrize("instructions", instruction_set_params())
def test_the_row_engine_takes_the_fastest_instruction_set(instructions):
    network = formula_eight_once("low_cost_5")
    assert RowNetwork(network).mode >= RowNetwork(network, instructions).mode
    assert RowNetwork(network).mode == RowNetwork(network, instruction_set()).mode
    assert engines(network) == ["float32", *(["int8"] if instruction_set() != "plain" else [])]


def test_an_engine_that_other_programs_held_up_is_still_chosen(monkeypatch):
    """The quick engine waits for the processor, the other one computes all the time."""

    def quick(*_arguments):
        time.sleep(0.5)

    def slow(*_arguments):
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass

    calls = {"float32": slow, "int8": quick}
    monkeypatch.setattr("codecnn.filtering.integer.exact.engines", lambda network, device: list(calls))
    monkeypatch.setattr("codecnn.filtering.integer.exact.build_engine", lambda network, engine, device: calls[engine])
    assert ExactFilter(formula_eight_once("low_cost_5")).fast is quick


def test_a_missing_instruction_set_is_refused(monkeypatch):
    monkeypatch.setattr("codecnn.filtering.integer.row_engine.instruction_set", lambda: "plain")
    network = formula_eight_once("low_cost_5")
    assert engines(network) == ["float32"]
    with pytest.raises(ModelError, match="the instruction set amx is missing"):
        RowNetwork(network, "amx")


OTHER_PROCESSOR = """
from codecnn.filtering.integer import check_planes, instruction_set, md5_of
from tests.helpers.integer_zoo import filter_exactly, formula_eight

network = formula_eight("low_cost_17")
samples = filter_exactly(network, check_planes(network), engine=f"int8-{instruction_set()}")
print(instruction_set(), md5_of(samples))
"""


@pytest.mark.parametrize(
    ("limits", "instructions"),
    [
        ({"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}, "plain"),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "ATEN_CPU_CAPABILITY": "default"}, "plain"),
        pytest.param(
            {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "ATEN_CPU_CAPABILITY": "default"},
            "avx512_vnni",
            marks=instruction_set_params(["avx512_vnni"])[0].marks,
        ),
        ({"NUMBA_CPU_FEATURES": "-avx,-avx2,-avx512f"}, "plain"),
    ],
)
def test_a_limited_processor_computes_the_same_samples(limits, instructions):
    """ONEDNN_MAX_CPU_ISA, which limits oneDNN, and the settings of numba limit the row engine as well."""
    run = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESSOR],
        env=os.environ | limits,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert run.stdout.split() == [instructions, GOLDEN["low_cost_17"]], run.stderr


def test_networks_of_16_bits_have_no_row_engine():
    network = formula_network("low_cost_5")
    assert engines(network) == ["float32"]
    with pytest.raises(ModelError, match="cannot be computed row by row"):
        build_engine(network, "int8")


def test_halves_are_rounded_to_even():
    sums = np.array([-12, -11, -7, -6, -5, -2, -1, 1, 2, 3, 6, 10])
    rounded = round_half_to_even(sums, 2).tolist()
    assert rounded == np.rint(sums / 4).tolist() == torch.round(torch.tensor(sums / 4)).tolist()
    assert round_half_to_even(sums, 0).tolist() == sums.tolist()
    by_channel = round_half_to_even(np.array([[3, 6], [3, 6]]), np.array([[1], [2]]))
    assert by_channel.tolist() == [[2, 3], [1, 2]]


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
def test_invalid_networks_of_8_bits_are_refused(changes, message):
    options = {"weight": np.ones((1, 1, 3, 3))} | changes
    with pytest.raises(ModelError, match=message):
        two_convolutions(**options)


def test_sums_beyond_64_bits_are_refused():
    """Shifted to the finer unit of the added tensor, such sums would wrap around to small numbers."""
    _, first, second, _ = (nodes := two_convolutions(np.ones((1, 1, 1, 1)), 2, skip=17).graph.nodes)
    first = replace(first, values=first.values | {"low": -(2**15), "high": 2**15 - 1})
    second = replace(second, tensors=second.tensors | {"weight": np.full((1, 1, 601, 601), 2**15 - 1, np.int16)})
    with pytest.raises(ModelError, match=r"node 'b' can reach \d+, beyond 2\^24"):
        IntegerNetwork(Graph((nodes[0], first, second, nodes[3])), 10, 8)


@pytest.mark.parametrize("engine", engine_params())
@pytest.mark.parametrize("bias", [2**24 - 127 * 128 - 1, -(2**24) + 128 * 128 + 1])
def test_sums_at_the_limit_are_exact(bias, engine):
    """The limit of 2^24 itself is allowed; every engine rounds it, and odd sums just below it, alike."""
    network = two_convolutions(np.full((1, 1, 1, 1), 127), shift=17, bias=bias)
    rng = np.random.default_rng(0)
    planes = {"rec_y": rng.choice([0, 1, 512, 1022, 1023], (40, 40)).astype(np.uint16)}
    assert_same_samples(filter_exactly(network, planes, 0, engine=engine), filter_reference(network, planes, 0, 10))


def test_files(tmp_path):
    network, path = formula_eight("low_cost_5"), tmp_path / "n.int8.safetensors"
    save_integer(path, network, {"network": "low_cost_5"})
    card = read_json(path.with_suffix(".json"))
    assert (card["schema"], card["bits"], card["bit_depth"]) == (2, 8, 10)
    loaded, _ = load_integer(path)
    planes = random_picture_planes(network, 20, 27)
    samples = ExactFilter(loaded).samples(picture_of(planes, 10), 37, planes)
    assert_same_samples(samples, filter_reference(network, planes, 37, 10))

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


def test_evaluation_prefers_and_names_the_8_bit_form(tmp_path):
    """If both integer forms lie beside weights, `evaluate` takes that of 8 bits, and its name says so."""
    path, network = tmp_path / "w.safetensors", formula_eight("low_cost_5")
    save_weights(path, formula_model("low_cost_5"), "low_cost_5", {})
    card = source_card(load_model(path)[1])
    save_integer(integer_path(path), formula_network("low_cost_5"), card)
    folder = tmp_path.name
    names = [entry.name for entry in load_entries([path], True, "float32", "cpu", 960)]
    assert names == [f"{folder}/w", f"{folder}/w.int16"]
    save_integer(integer_path(path, 8), network, card)
    entries = load_entries([path], True, "float32", "cpu", 960)
    assert [entry.name for entry in entries] == [f"{folder}/w", f"{folder}/w.int8"]
    assert entries[1].filter.network.bits == 8


@pytest.mark.parametrize("engine", engine_params(FAST_ENGINES))
def test_bounds_that_a_conversion_to_bytes_does_not_give_are_exact(engine):
    rng = np.random.default_rng(0)
    planes = {"rec_y": rng.integers(0, 1024, (30, 30)).astype(np.uint16)}
    for low, high in ((-128, 127), (-100, 90), (0, 127), (0, 255), (0, 100), (-2000, 2000)):
        for skip in (None, 1, 5, 9):  # 9: the added tensor has more fractional bits than the sums
            network = two_convolutions(rng.integers(-127, 128, (1, 1, 3, 3)), 5, low, high, skip)
            expected = filter_reference(network, planes, 0, 10)
            assert_same_samples(filter_exactly(network, planes, 0, engine=engine), expected)


@pytest.mark.parametrize("engine", engine_params(FAST_ENGINES))
def test_a_tensor_can_be_multiplied_and_added_at_once(engine):
    network = two_convolutions(np.full((1, 1, 1, 1), 3), 4, skip=1)
    third = Node("c", "conv", ("a", "b"), network.graph.nodes[2].values, network.graph.nodes[2].tensors)
    nodes = (*network.graph.nodes[:3], third, replace(network.graph.nodes[3], inputs=("c", "rec_y")))
    network = IntegerNetwork(Graph(nodes), 10, 8)
    planes = {"rec_y": np.random.default_rng(0).integers(0, 1024, (30, 30)).astype(np.uint16)}
    assert_same_samples(filter_exactly(network, planes, 0, engine=engine), filter_reference(network, planes, 0, 10))


def random_convolution(name, read, inputs, size, seed):
    """Create a padded convolution to one byte, `size` x `size`."""
    weight = np.random.default_rng(seed).integers(-30, 31, (1, inputs, size, size)).astype(np.int8)
    values = {"pad": 1, "groups": 1, "skip": 0, "low": -128, "high": 127}
    tensors = {"weight": weight, "bias": np.full(1, 9, np.int32), "shift": np.full(1, 6, np.int8)}
    return Node(name, "conv", (read,), values, tensors)


def output(name, read, crop=0):
    return Node(
        name, "output", (read, f"rec_{name}"), {"crop": crop, "fraction": 16}, {"gain": np.full(1, 64, np.int16)}
    )


@pytest.mark.parametrize("engine", engine_params(FAST_ENGINES))
def test_an_output_can_be_complete_before_the_rows(engine):
    nodes = (
        *(Node(name, "plane") for name in ("rec_y", "rec_u", "rec_v")),
        random_convolution("a", "rec_y", 1, 3, 0),
        output("y", "a"),
        Node("cells", "unshuffle", ("a",), {"factor": 2}),
        random_convolution("b", "cells", 4, 3, 1),
        output("u", "b"),
        output("v", "b"),
    )
    network = IntegerNetwork(Graph(nodes), 10, 8)
    planes = random_picture_planes(network, 18, 26)
    assert_same_samples(filter_exactly(network, planes, engine=engine), filter_reference(network, planes, 37, 10))


def test_a_cropped_tensor_that_is_padded_is_not_computed_in_rows():
    nodes = (
        Node("rec_y", "plane"),
        random_convolution("a", "rec_y", 1, 3, 0),
        Node("k", "crop", ("a",), {"size": 2}),
        random_convolution("b", "k", 1, 3, 1),
        output("y", "b", 2),
    )
    network = IntegerNetwork(Graph(nodes), 10, 8)
    planes = random_integers(network, 18, 26)
    expected = run_reference(network, planes, 37, 10)
    for engine in engines(network):
        assert_same_samples(build_engine(network, engine)(float_tensors(planes), 37, 10), expected)
    with pytest.raises(ModelError, match="node 'b' pads a cropped tensor"):
        RowNetwork(network, "plain")
