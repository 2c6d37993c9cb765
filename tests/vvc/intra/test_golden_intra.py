"""Predictions, costs and transforms are bit-exact to golden vectors from functions of VTM and libde265."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from codecnn.pictures.files import open_video
from codecnn.vvc.intra import (
    forward_transform,
    inverse_transform,
    kernel_matrix,
    mode_taps,
    predict_modes,
    predict_modes_reference,
    reference_lines,
    sad,
    satd,
    split_lines,
    sse,
    wide_angle_mode,
)
from tests.helpers.golden import GoldenFile

SMALL = [("vvc_8bit_small", 8), ("vvc_10bit_small", 10), ("hevc_8bit", 8), ("hevc_10bit", 10)]


def _vectors(golden: Path, name: str) -> tuple[np.lib.npyio.NpzFile, list[str]]:
    """Load golden vectors and their block sizes; the vectors in the repository are small and have no suffix _small."""
    name = name.removesuffix("_small") if golden.name == "repository" else name
    vectors = np.load(golden / "intra" / f"{name}.npz")
    return vectors, sorted({key.split("_")[0] for key in vectors.files if key[0].isdigit()})


def _references(vectors, size):
    width, height = map(int, size.split("x"))
    return *(vectors[f"{size}_{part}"] for part in ("corner", "top", "left")), width, height


def _compare(golden: Path, name: str, bit_depth: int, predict) -> int:
    vectors, sizes = _vectors(golden, f"intra_{name}")
    standard, compared = name.split("_")[0], 0
    for size in sizes:
        for strong in (True, False) if standard == "hevc" else (True,):
            expected = vectors[f"{size}_pred" if strong else f"{size}_pred_nostrong"]
            actual = predict(*_references(vectors, size), bit_depth, standard, strong_smoothing=strong)
            np.testing.assert_array_equal(actual, expected, err_msg=f"{name} {size} strong {strong}")
            compared += expected.size
    return compared


@pytest.mark.parametrize(("name", "bit_depth"), SMALL)
@pytest.mark.parametrize("predict", [predict_modes, predict_modes_reference])
def test_predictions_equal_vtm_and_libde265(golden: Path, name: str, bit_depth: int, predict) -> None:
    assert _compare(golden, name, bit_depth, predict) >= (347_328 if golden.name == "golden" else 47_040)


@pytest.mark.slow
@pytest.mark.parametrize("predict", [predict_modes, predict_modes_reference])
def test_predictions_of_all_sizes_equal_vtm(shared_data: Path, predict) -> None:
    assert _compare(shared_data / "golden", "vvc_8bit", 8, predict) == 7_211_344


def test_predictions_of_tensors_equal_those_of_arrays(golden: Path) -> None:
    vectors, _ = _vectors(golden, "intra_vvc_10bit_small")
    *parts, width, height = _references(vectors, "16x8")
    tensors = (torch.from_numpy(part.astype(np.int32)) for part in parts)
    actual = predict_modes(*tensors, width, height, 10)
    assert isinstance(actual, torch.Tensor)
    np.testing.assert_array_equal(actual.numpy(), vectors["16x8_pred"])


def test_pdpc_flags_and_wide_angles_equal_vtm(golden: Path) -> None:
    """VTM numbers wide-angle modes below 0 two higher than the standard."""
    vectors, sizes = _vectors(golden, "intra_vvc_8bit_small")
    for size in sizes:
        width, height = map(int, size.split("x"))
        info = vectors[f"{size}_info"]
        taps = mode_taps(width, height)
        modes = [wide_angle_mode(mode, width, height) for mode in range(67)]
        assert [mode + 2 if mode < 0 else mode for mode in modes[2:]] == info[2:, 3].tolist()
        np.testing.assert_array_equal(taps.blended, info[:, 1] != 0)


@pytest.mark.parametrize("name", ["cost_vvc_8bit", "cost_vvc_10bit"])
def test_satd_sad_and_sse_equal_vtm(golden: Path, name: str) -> None:
    vectors, sizes = _vectors(golden, name)
    for size in sizes:
        residual = vectors[f"{size}_org"].astype(np.int64) - vectors[f"{size}_cur"]
        for method, cost in (("satd", satd), ("sad", sad), ("sse", sse)):
            np.testing.assert_array_equal(cost(residual), vectors[f"{size}_{method}"], err_msg=f"{size} {method}")
            np.testing.assert_array_equal(cost(torch.from_numpy(residual)), vectors[f"{size}_{method}"])


@pytest.mark.parametrize(
    ("name", "costs", "picked"),
    [("vvc_8bit", "vvc_8bit", slice(None)), ("vvc_10bit_small", "vvc_10bit", slice(-1, None))],
)
def test_costs_of_modes_equal_vtm(golden: Path, name: str, costs: str, picked: slice) -> None:
    """The small file has costs of VTM only for its last sample, the ramp."""
    vectors, sizes = _vectors(golden, f"intra_{name}")
    expected, _ = _vectors(golden, f"modecost_{costs}")
    for size in sizes:
        original = vectors[f"{size}_orig"][picked, None].astype(np.int64)
        residual = original - vectors[f"{size}_pred"][picked]
        blocks, shape = residual.reshape(-1, *residual.shape[2:]), residual.shape[:2]
        actual = {method: cost(blocks).reshape(shape) for method, cost in (("satd", satd), ("sad", sad), ("sse", sse))}
        actual["minsadhad"] = np.minimum(2 * actual["sad"], actual["satd"])
        actual["best_satd_mode"] = actual["satd"].argmin(1)
        for name_of_cost, values in actual.items():
            key = f"{size}_{name_of_cost}"
            np.testing.assert_array_equal(values, expected[key][picked], err_msg=key)


def test_kernel_matrices_equal_the_standard(golden: Path) -> None:
    vectors = np.load(golden / "intra" / "dct_matrices_vvc.npz")
    for name in vectors.files:
        kernel, size = name.split("_")
        np.testing.assert_array_equal(kernel_matrix(kernel, int(size)), vectors[name])  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "bit_depth"), [("dct_vvc_8bit", 8), ("dct_vvc_10bit", 10)])
def test_transforms_equal_vtm(golden: Path, name: str, bit_depth: int) -> None:
    vectors, _ = _vectors(golden, name)
    forward = [key.split("_") for key in vectors.files if key.endswith("_coeff")]
    inverse = [key.split("_") for key in vectors.files if key.endswith("_inv")]
    assert (len(forward), len(inverse)) == ((89, 41) if golden.name == "golden" else (67, 28))
    for size, horizontal, vertical, _ in forward:
        key = f"{size}_{horizontal}_{vertical}"
        for residual in (vectors[f"{size}_resid"], torch.from_numpy(vectors[f"{size}_resid"])):
            actual = forward_transform(residual, horizontal[:-1], vertical[:-1], bit_depth)
            np.testing.assert_array_equal(np.asarray(actual), vectors[f"{key}_coeff"], err_msg=key)
    for size, horizontal, vertical, _ in inverse:
        key = f"{size}_{horizontal}_{vertical}"
        actual = inverse_transform(vectors[f"{key}_coeff"], horizontal[:-1], vertical[:-1], bit_depth)
        np.testing.assert_array_equal(actual, vectors[f"{key}_inv"], err_msg=key)


@pytest.mark.parametrize(("name", "count"), [("astronaut_ai_nolf_qp22", 85), ("edo0_nolf_qp37", 74)])
def test_decoded_blocks_without_residual_equal_the_prediction(golden_file: GoldenFile, name: str, count: int) -> None:
    """The decoded picture is the prediction where an encoder codes no residual and no filter is active.

    This tests availability and substitution at all positions of a CU. A split of the multi-type tree changes which
    samples are coded before a block, so only CUs of the quadtree are compared.
    """
    stream = golden_file(f"vvc/{name}.266")
    with open_video(stream) as video:
        luma = video[0].y
    with gzip.open(stream.with_suffix(".cu.csv.gz"), "rt") as file:
        rows = list(csv.DictReader(file))
    compared = 0
    for row in rows:
        x, y, width, height, mode = (int(row[name]) for name in ("x", "y", "w", "h", "intraLumaMode"))
        other_tool = any(int(row[tool]) > 0 for tool in ("mip", "isp", "mrl", "bdpcm", "mtDepth"))
        if row["channel"] != "L" or row["cbfY"] != "0" or other_tool or width > 64:
            continue
        line = reference_lines(luma, np.array([[x, y]]), width, height, 10)
        predicted = predict_modes(*split_lines(line, height), width, height, 10)[0, mode]
        np.testing.assert_array_equal(predicted, luma[y : y + height, x : x + width], err_msg=f"{x} {y} {width} {mode}")
        compared += 1
    assert compared == count
