"""Cross-component adaptive loop filter: chroma is corrected by differences of luma (H.266 clause 8.8.5.7)."""

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.frame import clip

Samples = npt.NDArray[np.int32]

MARGIN = 4
"""Samples around the rectangle in the block of luma."""


@compiled
def cross_component_filter(
    luma: Samples,
    target: npt.NDArray[np.uint16],
    x0: int,
    y0: int,
    width: int,
    height: int,
    sub_x: int,
    sub_y: int,
    ctu: int,
    depth: int,
    f: Samples,
) -> None:
    """Add the cross-component correction to a chroma component of a rectangle.

    Clause 8.8.5.7, Cross-component filtering process.

    Args:
        luma: Luma of the rectangle before ALF with MARGIN samples around it.
        target: Component, filtered by ALF already, shape (rows, columns).
        x0: First column of the rectangle in samples of the component.
        y0: First row of the rectangle in samples of the component.
        width: Width of the rectangle in samples of the component.
        height: Height of the rectangle in samples of the component.
        sub_x: log2 of the horizontal subsampling.
        sub_y: log2 of the vertical subsampling.
        ctu: Size of a CTU in luma samples.
        depth: Bit depth.
        f: The 7 coefficients.
    """
    half, peak = 1 << (depth - 1), (1 << depth) - 1
    for j in range(height):
        place = ((y0 + j) << sub_y) & (ctu - 1)
        # Rows next to the line buffer boundary of the CTU use nearer rows; without subsampling two have no correction.
        if sub_y == 0 and (place in (ctu - 4, ctu - 3)):
            continue
        up, down, second = -1, 1, 2
        if place in (ctu - 6, ctu - 3):
            second = 1
        elif place in (ctu - 5, ctu - 4):
            up = down = second = 0
        y = (j << sub_y) + MARGIN
        for i in range(width):
            x = (i << sub_x) + MARGIN
            s = luma[y, x]
            total = f[0] * (luma[y + up, x] - s) + f[1] * (luma[y, x - 1] - s) + f[2] * (luma[y, x + 1] - s)
            total += f[3] * (luma[y + down, x - 1] - s) + f[4] * (luma[y + down, x] - s)
            total += f[5] * (luma[y + down, x + 1] - s) + f[6] * (luma[y + second, x] - s)
            correction = clip((total + 64) >> 7, -half, half - 1)
            target[y0 + j, x0 + i] = clip(target[y0 + j, x0 + i] + correction, 0, peak)
