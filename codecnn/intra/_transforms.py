"""Block transforms: orthonormal DCT-II, Hadamard, and the integer DCT-II, DST-VII and DCT-VIII of H.266 8.7.4.

Blocks are (n, height, width), NumPy arrays or tensors; coefficients lie as their blocks do, (vertical, horizontal)
frequency, in what the blocks came in.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.intra._arrays import Array, cast, is_tensor, library, wide
from codecnn.intra.matrices import Kernel, kernel_matrix


@cache
def dct_matrix(size: int) -> NDArray[np.float64]:
    """Orthonormal DCT-II, (size, size), a row a frequency."""
    k, i = np.arange(size)[:, None], np.arange(size)
    matrix: NDArray[np.float64] = np.sqrt(2 / size) * np.cos(np.pi * (2 * i + 1) * k / (2 * size))
    matrix[0] /= np.sqrt(2)
    matrix.flags.writeable = False
    return matrix


def dct(blocks: Array) -> Array:
    """Orthonormal 2-D DCT-II; whole numbers are transformed in float64, floating-point ones in their own precision."""
    import torch

    if not is_tensor(blocks):
        # torch multiplies many small matrices several times as fast as NumPy does.
        return np.asarray(dct(torch.from_numpy(np.ascontiguousarray(wide(blocks)))))
    samples = blocks if blocks.is_floating_point() else blocks.to(torch.float64)
    vertical, horizontal = (torch.tensor(dct_matrix(size)).to(samples) for size in blocks.shape[-2:])
    return vertical @ samples @ horizontal.T


def hadamard(blocks: Array) -> Array:
    """2-D Walsh-Hadamard transform, not normalised, in natural order; sides are powers of two. Whole numbers, exact."""
    out = wide(blocks)
    for axis in (-1, -2):
        size = out.shape[axis]
        step = 1
        while step < size:
            pairs = out.reshape(*out.shape[:axis], size // (2 * step), 2, step, *out.shape[axis:][1:])
            where = pairs.ndim - 2 if axis == -1 else pairs.ndim - 3
            first, second = (pairs[(slice(None),) * where + (part,)] for part in (0, 1))
            out = library(pairs).stack((first + second, first - second), where).reshape(blocks.shape)
            step *= 2
    return out


def forward_transform(residual: Array, kernel_h: Kernel, kernel_v: Kernel, bit_depth: int) -> Array:
    """Integer forward transform as VTM's encoder does it, to the bit, before quantisation; int64.

    Rows first, then columns, each rounded: shifts log2(width) + bit_depth - 9 and log2(height) + 6. High frequencies
    that H.266 7.4.12.11 zeroes out are 0: beyond 32 of a DCT-II, beyond 16 of a DST-VII or DCT-VIII of 32 samples.
    `kernel_h` and `kernel_v` are "DCT2", "DST7" or "DCT8". Raises ConfigError for a size that a kernel does not have.
    """
    height, width = residual.shape[-2:]
    samples, horizontal, vertical = _exact(residual, _kept(kernel_h, width), _kept(kernel_v, height))
    half = _rounded(samples @ horizontal.T, width.bit_length() - 1 + bit_depth - 9)
    return cast(_rounded(vertical @ half, height.bit_length() - 1 + 6), "int64")


def inverse_transform(coefficients: Array, kernel_h: Kernel, kernel_v: Kernel, bit_depth: int) -> Array:
    """H.266 8.7.4.1: residual of scaled coefficients, int64, columns first.

    Raises ConfigError for a size that a kernel does not have.
    """
    height, width = coefficients.shape[-2:]
    samples, horizontal, vertical = _exact(coefficients, _kept(kernel_h, width), _kept(kernel_v, height))
    # 8.7.4.1 clips between the stages: decoders keep intermediate coefficients in 16 bits.
    half = _rounded(vertical.T @ samples, 7).clip(-(1 << 15), (1 << 15) - 1)
    return cast(_rounded(half @ horizontal, 20 - bit_depth), "int64")


def _kept(kernel: Kernel, size: int) -> NDArray[np.int64]:
    matrix = kernel_matrix(kernel, size).copy()
    matrix[32 if kernel == "DCT2" else 16 :] = 0
    return matrix


def _exact(samples: Any, *matrices: Any) -> Any:
    """All as float64, in which sums of at most 64 products of 16 and 8 bits are exact: GPUs have no product of integer
    matrices, and NumPy has it without BLAS."""
    if is_tensor(samples):
        import torch

        matrices = tuple(torch.from_numpy(matrix).to(samples.device) for matrix in matrices)
    return cast(samples, "float64"), *(cast(matrix, "float64") for matrix in matrices)


def _rounded(values: Any, shift: int) -> Any:
    return library(values).floor((values + 2.0 ** (shift - 1)) / 2.0**shift) if shift > 0 else values * 2.0**-shift
