"""Block transforms: orthonormal DCT-II, Hadamard, and the integer DCT-II, DST-VII and DCT-VIII of H.266 8.7.4.

Blocks are (n, height, width), NumPy arrays or tensors; coefficients lie as their blocks do, (vertical, horizontal)
frequency, in what the blocks came in.
"""

from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError
from codecnn.intra._arrays import Array, cast, is_tensor, library, wide

Kernel = Literal["DCT2", "DST7", "DCT8"]

_DCT2 = np.array(
    (
        (64, 91, 90, 90, 90, 90, 90, 90, 89, 88, 88, 87, 87),
        (86, 85, 84, 83, 83, 82, 81, 80, 79, 78, 77, 75, 73),
        (73, 71, 70, 69, 67, 65, 64, 62, 61, 59, 57, 56, 54),
        (52, 50, 48, 46, 44, 43, 41, 38, 37, 36, 33, 31, 28),
        (25, 24, 22, 20, 18, 15, 13, 11, 9, 7, 4, 2, 0),
    )
).ravel()
"""H.266 (1181) to (1190): the standard's 64·√2·cos(π·i/128), i = 0..64; its DC row is 64."""

_DST7_32 = np.array(
    (
        (4, 9, 13, 17, 21, 26, 30, 34, 38, 42, 46, 50, 53, 56, 60, 63),
        (66, 68, 72, 74, 77, 78, 80, 82, 84, 85, 86, 87, 88, 89, 90, 90),
    )
).ravel()
_DST7 = {
    4: (29, 55, 74, 84),
    8: (17, 32, 46, 60, 71, 78, 85, 86),
    16: (8, 17, 25, 33, 40, 48, 55, 62, 68, 73, 77, 81, 85, 87, 88, 88),
    32: _DST7_32,
}
"""H.266 8.7.4.3: the first row of each DST-VII, the standard's 128·√(2N/(2N+1))/√N·sin(π·(i+1)/(2N+1))."""


@cache
def dct_matrix(size: int) -> NDArray[np.float64]:
    """Orthonormal DCT-II, (size, size), a row a frequency."""
    k, i = np.arange(size)[:, None], np.arange(size)
    matrix: NDArray[np.float64] = np.sqrt(2 / size) * np.cos(np.pi * (2 * i + 1) * k / (2 * size))
    matrix[0] /= np.sqrt(2)
    matrix.flags.writeable = False
    return matrix


@cache
def kernel_matrix(kernel: Kernel, size: int) -> NDArray[np.int64]:
    """Integer transMatrix of H.266 8.7.4, (size, size), a row a frequency.

    Raises ConfigError unless `kernel` is DCT2 of 2..64 or DST7 or DCT8 of 4..32, powers of two.
    """
    matrix: NDArray[np.int64]
    k, i = np.arange(size)[:, None], np.arange(size)
    if kernel == "DCT2" and size in (2, 4, 8, 16, 32, 64):
        # Smaller DCT-IIs are parts of that of 64: cos(π·phase/128), folded back into the table's quarter period.
        phase = (2 * i + 1) * k * (64 // size) % 256
        phase = np.minimum(phase, 256 - phase)
        matrix = np.where(phase > 64, -1, 1) * _DCT2[np.minimum(phase, 128 - phase)]
    elif kernel in ("DST7", "DCT8") and size in _DST7:
        # sin(π·phase/(2N+1)) likewise; the DCT-VIII is the DST-VII mirrored, odd rows negated.
        period = 2 * size + 1
        phase = (2 * k + 1) * (i + 1) % (2 * period)
        sign = np.where(phase > period, -1, 1)
        phase = np.minimum(phase, 2 * period - phase)
        matrix = sign * np.array((0, *_DST7[size]))[np.minimum(phase, period - phase)]
        if kernel == "DCT8":
            matrix = (-1) ** k * matrix[:, ::-1]
    else:
        raise ConfigError(f"H.266 has no transform {kernel} of {size} samples")
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
