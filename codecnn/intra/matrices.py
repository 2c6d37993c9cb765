"""The integer transform matrices of H.266 8.7.4: DCT-II, DST-VII and DCT-VIII."""

from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import ConfigError

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
