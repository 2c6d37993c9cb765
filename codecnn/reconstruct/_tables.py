"""Tables of H.266: matrices of the transforms, of LFNST and of matrix-based intra prediction."""

from importlib import resources

import numpy as np
import numpy.typing as npt

from codecnn.intra import CUBIC_FILTER, GAUSSIAN_DISTANCE, GAUSSIAN_FILTER, VVC_ANGLES, inverse_angle, kernel_matrix


def _tables() -> npt.NDArray[np.int32]:
    with resources.files(__package__).joinpath("tables.npz").open("rb") as file, np.load(file) as tables:
        lfnst = [tables["lfnst_16"], tables["lfnst_48"]]
        weights = np.zeros((3, 16, 64, 8), np.int32)
        for size in range(3):
            given = tables[f"mip_{size}"]
            # Of the largest the first input, which is 0, has no weight.
            first = 1 if size == 2 else 0
            weights[size, : given.shape[0], : given.shape[1], first : first + given.shape[2]] = given
    kernels = np.zeros((2, 4, 32 * 32), np.int32)
    for index, size in enumerate((4, 8, 16, 32)):
        kernels[0, index, : size * size] = kernel_matrix("DST7", size).ravel()
        kernels[1, index, : size * size] = kernel_matrix("DCT8", size).ravel()
    parts = [kernel_matrix("DCT2", 64), kernels, *lfnst, weights]
    return np.concatenate([part.ravel().astype(np.int32) for part in parts])


TABLES = _tables()
"""Matrices of the transforms (8.7.4.2 to 8.7.4.5), of LFNST and of MIP, as `_frame` says from `SCRATCH` on."""

ANGLES = np.array(VVC_ANGLES, np.int64)
"""intraPredAngle by the distance from mode 18 or 50."""
INVERSE_ANGLES = np.array([0, *(inverse_angle(angle) for angle in VVC_ANGLES[1:])], np.int64)
"""invAngle by the same."""
CUBIC = np.array(CUBIC_FILTER, np.int64)
GAUSSIAN = np.array(GAUSSIAN_FILTER, np.int64)
SMOOTH_FROM = np.array([99, 99, *(GAUSSIAN_DISTANCE[size] for size in (2, 3, 4, 5, 6))], np.int64)
"""intraHorVerDistThres by nTbS."""

LEVEL_SCALE = np.array([[40, 45, 51, 57, 64, 72], [57, 64, 72, 80, 90, 102]], np.int64)
"""levelScale by rectNonTsFlag (8.7.3)."""

LIST_OF_SIZE = np.array(
    [
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1],
        [2, 3, 4, 5, 6, 7],
        [8, 9, 10, 11, 12, 13],
        [14, 15, 16, 17, 18, 19],
        [20, 21, 22, 23, 24, 25],
        [26, 21, 22, 27, 24, 25],
    ],
    np.int64,
)
"""The number of the scaling list by log2 of the longer side and component, plus 3 unless intra (table 38)."""
