"""Block transforms: orthonormal DCT-II, Hadamard, and the integer DCT-II, DST-VII and DCT-VIII of H.266 8.7.4.

Blocks have the shape (n, height, width), coefficients the same shape with (vertical, horizontal) frequency. Functions
take NumPy arrays or torch tensors and return the same kind. Torch is imported only where it is needed.
"""

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import ConfigError
from codecnn.base.keywords import checked_keywords

if TYPE_CHECKING:
    import torch

Array = Any
"""NumPy array or torch tensor."""

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
"""H.266 (1181) to (1190): 64·√2·cos(π·i/128) as the standard rounds it, i = 0..64; the DC row is 64."""

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
"""H.266 8.7.4.3: the first row of each DST-VII, 128·√(2N/(2N+1))/√N·sin(π·(i+1)/(2N+1)) as the standard rounds it."""


def is_tensor(values: Any) -> bool:
    """Return whether `values` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def library(values: Array) -> Any:
    """Return the module, torch or numpy, whose functions accept `values`."""
    return sys.modules["torch"] if is_tensor(values) else np


def cast(values: Array, name: str) -> Array:
    """Convert an array or tensor to the type of a name such as "int64"."""
    return values.to(getattr(sys.modules["torch"], name)) if is_tensor(values) else values.astype(name)


def wide(values: Array) -> Array:
    """Convert integers to int64, which holds their sums, differences and squares; floats are returned unchanged."""
    floating = values.is_floating_point() if is_tensor(values) else np.issubdtype(values.dtype, np.floating)
    return values if floating else cast(values, "int64")


@cache
def dct_matrix(size: int) -> NDArray[np.float64]:
    """Return the orthonormal DCT-II matrix, shape (size, size), one frequency per row."""
    k, i = np.arange(size)[:, None], np.arange(size)
    matrix: NDArray[np.float64] = np.sqrt(2 / size) * np.cos(np.pi * (2 * i + 1) * k / (2 * size))
    matrix[0] /= np.sqrt(2)
    matrix.flags.writeable = False
    return matrix


@cache
def kernel_matrix(kernel: Kernel, size: int) -> NDArray[np.int64]:
    """Return the integer matrix transMatrix of H.266 8.7.4.

    Args:
        kernel: "DCT2", "DST7" or "DCT8".
        size: Power of two: 2 to 64 for DCT2, 4 to 32 for DST7 and DCT8.

    Returns:
        Matrix of shape (size, size), one frequency per row.

    Raises:
        ConfigError: H.266 has no such transform.
    """
    matrix: NDArray[np.int64]
    k, i = np.arange(size)[:, None], np.arange(size)
    if kernel == "DCT2" and size in (2, 4, 8, 16, 32, 64):
        # Smaller DCT-IIs are parts of that of 64: cos(π·phase/128), reduced to the quarter period of the table.
        phase = (2 * i + 1) * k * (64 // size) % 256
        phase = np.minimum(phase, 256 - phase)
        matrix = np.where(phase > 64, -1, 1) * _DCT2[np.minimum(phase, 128 - phase)]
    elif kernel in ("DST7", "DCT8") and size in _DST7:
        # sin(π·phase/(2N+1)), reduced likewise; the DCT-VIII is the mirrored DST-VII with odd rows negated.
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
    """Compute the orthonormal 2-D DCT-II.

    Args:
        blocks: Samples of shape (..., height, width).

    Returns:
        Coefficients of the same shape, in float64 for integers and in the precision of the blocks for floats.
    """
    import torch

    if not is_tensor(blocks):
        # torch multiplies many small matrices several times faster than NumPy.
        return np.asarray(dct(torch.from_numpy(np.ascontiguousarray(wide(blocks)))))
    samples = blocks if blocks.is_floating_point() else blocks.to(torch.float64)
    vertical, horizontal = (_dct_tensor(size, samples.dtype, samples.device) for size in blocks.shape[-2:])
    return vertical @ samples @ horizontal.T


@cache
def _dct_tensor(size: int, dtype: "torch.dtype", device: "torch.device") -> "torch.Tensor":
    """Return the DCT-II matrix as a tensor, copied to the device once: a loss would wait for the copy at every step."""
    import torch

    with torch.inference_mode(False):  # the first caller may filter, a later one may need gradients
        return torch.tensor(dct_matrix(size)).to(device, dtype)


def hadamard(blocks: Array) -> Array:
    """Compute the 2-D Walsh-Hadamard transform, not normalised, in natural order.

    Args:
        blocks: Samples of shape (..., height, width), sides powers of two.

    Returns:
        Coefficients of the same shape, exact in int64 for integers.
    """
    out = wide(blocks)
    for axis in (-1, -2):
        size = out.shape[axis]
        step = 1
        while step < size:
            pairs = out.reshape(*out.shape[:axis], size // (2 * step), 2, step, *out.shape[axis:][1:])
            pair_axis = pairs.ndim - 2 if axis == -1 else pairs.ndim - 3
            first, second = (pairs[(slice(None),) * pair_axis + (part,)] for part in (0, 1))
            out = library(pairs).stack((first + second, first - second), pair_axis).reshape(blocks.shape)
            step *= 2
    return out


@checked_keywords()
def forward_transform(residual: Array, kernel_h: Kernel, kernel_v: Kernel, bit_depth: int) -> Array:
    """Compute the integer forward transform before quantisation, bit-exact to the encoder of VTM.

    Rows are transformed first, then columns, each rounded: shifts log2(width) + bit_depth - 9 and log2(height) + 6. The
    high frequencies that H.266 7.4.12.11 zeroes out are 0: beyond 32 for DCT-II, beyond 16 for DST-VII and DCT-VIII of
    32 samples.

    Args:
        residual: Integer samples of shape (..., height, width).
        kernel_h: Horizontal transform: "DCT2", "DST7" or "DCT8".
        kernel_v: Vertical transform.
        bit_depth: Bits per sample of the picture.

    Returns:
        Coefficients of the same shape, int64.

    Raises:
        ConfigError: A transform does not exist for the size.
    """
    height, width = residual.shape[-2:]
    samples, horizontal, vertical = _exact(residual, _low_rows(kernel_h, width), _low_rows(kernel_v, height))
    half = _rounded(samples @ horizontal.T, width.bit_length() - 1 + bit_depth - 9)
    return cast(_rounded(vertical @ half, height.bit_length() - 1 + 6), "int64")


def inverse_transform(coefficients: Array, kernel_h: Kernel, kernel_v: Kernel, bit_depth: int) -> Array:
    """Compute the residual of scaled coefficients by the inverse transform of H.266 8.7.4.1, columns first.

    Args:
        coefficients: Scaled integer coefficients of shape (..., height, width).
        kernel_h: Horizontal transform: "DCT2", "DST7" or "DCT8".
        kernel_v: Vertical transform.
        bit_depth: Bits per sample of the picture.

    Returns:
        Residual of the same shape, int64.

    Raises:
        ConfigError: A transform does not exist for the size.
    """
    height, width = coefficients.shape[-2:]
    samples, horizontal, vertical = _exact(coefficients, _low_rows(kernel_h, width), _low_rows(kernel_v, height))
    # 8.7.4.1 clips between the stages: decoders keep intermediate coefficients in 16 bits.
    half = _rounded(vertical.T @ samples, 7).clip(-(1 << 15), (1 << 15) - 1)
    return cast(_rounded(half @ horizontal, 20 - bit_depth), "int64")


def _low_rows(kernel: Kernel, size: int) -> NDArray[np.int64]:
    """Return a transform matrix whose rows of zeroed-out high frequencies (H.266 7.4.12.11) are 0."""
    matrix = kernel_matrix(kernel, size).copy()
    matrix[32 if kernel == "DCT2" else 16 :] = 0
    return matrix


def _exact(samples: Any, *matrices: Any) -> Any:
    """Convert samples and matrices to float64, in which sums of at most 64 products of 16 and 8 bits are exact.

    GPUs have no product of integer matrices, and that of NumPy does not use BLAS.
    """
    if is_tensor(samples):
        import torch

        matrices = tuple(torch.from_numpy(matrix).to(samples.device) for matrix in matrices)
    return cast(samples, "float64"), *(cast(matrix, "float64") for matrix in matrices)


def _rounded(values: Any, shift: int) -> Any:
    """Shift right with rounding if `shift` is positive, else left."""
    return library(values).floor((values + 2.0 ** (shift - 1)) / 2.0**shift) if shift > 0 else values * 2.0**-shift
