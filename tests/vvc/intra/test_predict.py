"""Prediction by all modes at once against the plain implementation; arguments that both refuse."""

import itertools

import numpy as np
import pytest
import torch

from codecnn.base.errors import ConfigError
from codecnn.vvc.intra import predict_modes, predict_modes_reference, split_lines

SHAPES = [(4, 4), (8, 8), (16, 16), (4, 8), (16, 4), (8, 32), (64, 4), (4, 64)]


def references(width: int, height: int, bit_depth: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return corner, top and left of the eight blocks of `varied_lines`."""
    return split_lines(varied_lines(width, height, bit_depth, seed), height)


def varied_lines(width: int, height: int, bit_depth: int, seed: int) -> np.ndarray:
    """Return reference lines of eight blocks: random, extreme, rising, falling, nearly straight and constant."""
    rng = np.random.default_rng(seed)
    length, peak = 2 * width + 2 * height + 1, (1 << bit_depth) - 1
    ramp = np.linspace(0, peak, length)
    kinds = [
        *rng.integers(0, peak, (2, length), endpoint=True),
        *rng.choice((0, peak), (2, length)),
        *(ramp, ramp[::-1], peak // 2 + rng.integers(-1, 2, length), np.full(length, peak)),
    ]
    return np.stack(kinds).astype(np.uint8 if bit_depth == 8 else np.uint16)


VVC = [(*shape, "vvc", bit_depth, True) for shape in SHAPES for bit_depth in (8, 12)]
HEVC = [(size, size, "hevc", *rest) for size in (4, 8, 16, 32) for rest in itertools.product((8, 10), (True, False))]


@pytest.mark.parametrize(("width", "height", "standard", "bit_depth", "strong"), VVC + HEVC)
def test_predictions_equal_the_reference(width: int, height: int, standard: str, bit_depth: int, strong: bool) -> None:
    parts = references(width, height, bit_depth, seed=width + height)
    actual = predict_modes(*parts, width, height, bit_depth, standard, strong_smoothing=strong)
    assert actual.shape == (8, 67 if standard == "vvc" else 35, height, width)
    assert actual.dtype == parts[0].dtype
    np.testing.assert_array_equal(actual, predict_modes_reference(*parts, width, height, bit_depth, standard, strong))


def test_transposed_references_give_transposed_predictions() -> None:
    """Exchanging top and left of a square block exchanges modes m and 68 - m, and keeps planar and DC."""
    corner, top, left = references(16, 16, 10, seed=3)
    actual, transposed = predict_modes(corner, top, left, 16, 16, 10), predict_modes(corner, left, top, 16, 16, 10)
    order = [0, 1, *range(66, 1, -1)]
    np.testing.assert_array_equal(transposed, actual[:, order].swapaxes(2, 3))


def test_constant_references_give_constant_predictions() -> None:
    parts = (np.full(shape, 700, np.uint16) for shape in ((1,), (1, 16), (1, 64)))
    assert (predict_modes(*parts, 8, 32, 10) == 700).all()


@pytest.mark.gpu
def test_gpu_predictions_equal_those_of_the_cpu() -> None:
    parts = [torch.from_numpy(part.astype(np.int32)) for part in references(32, 16, 10, seed=1)]
    actual = predict_modes(*(part.cuda() for part in parts), 32, 16, 10)
    torch.testing.assert_close(actual.cpu(), predict_modes(*parts, 32, 16, 10), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("size", "standard", "message"),
    [
        ((8, 128), "vvc", "vvc does not predict blocks of 8x128"),
        ((8, 16), "hevc", "hevc does not predict blocks of 8x16"),
        ((64, 64), "hevc", "hevc does not predict blocks of 64x64"),
        ((8, 8), "av1", "unknown standard 'av1'"),
    ],
)
def test_block_sizes_of_no_standard_are_refused(size, standard: str, message: str) -> None:
    width, height = size
    parts = references(width, height, 8, seed=0)
    for predict in (predict_modes, predict_modes_reference):
        with pytest.raises(ConfigError, match=message):
            predict(*parts, width, height, 8, standard)


def test_references_of_wrong_shape_are_refused() -> None:
    corner, top, left = references(8, 8, 8, seed=0)
    with pytest.raises(ConfigError, match=r"top \(n, 16\)"):
        predict_modes(corner, top[:, :8], left, 8, 8, 8)
    with pytest.raises(ConfigError, match="bit depth 7"):
        predict_modes(corner, top, left, 8, 8, 7)
