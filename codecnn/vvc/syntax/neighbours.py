"""Maps of the coding units parsed so far, and availability of neighbouring blocks (H.266 clause 6.4.4)."""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.state import Work


@compiled
def peek(w: Work, plane: int, x: int, y: int) -> int:
    """Return the value of `plane` of the maps at the luma sample (x, y), which must lie inside the picture."""
    return np.int64(w.maps[plane, y >> 2, x >> 2])  # type: ignore[return-value]


@compiled
def fill(w: Work, plane: int, value: int) -> None:
    """Set `plane` of the maps to `value` over the current coding unit."""
    n = w.n
    right, bottom = min(n[st.X] + n[st.W], n[st.WIDTH]), min(n[st.Y] + n[st.H], n[st.HEIGHT])
    w.maps[plane, n[st.Y] >> 2 : bottom >> 2, n[st.X] >> 2 : right >> 2] = value


@compiled
def left_available(w: Work, x: int) -> bool:
    """Return True if the block left of column `x` of this CTU belongs to the same slice and tile (clause 6.4.4)."""
    return bool(x > w.n[st.CTB_X] or w.n[st.LEFT_AVAILABLE] == 1)


@compiled
def top_available(w: Work, y: int) -> bool:
    """Return True if the block above row `y` of this CTU belongs to the same slice and tile (clause 6.4.4)."""
    return bool(y > w.n[st.CTB_Y] or w.n[st.TOP_AVAILABLE] == 1)


@compiled
def left_of(w: Work, plane: int, x: int, y: int, absent: int) -> int:
    """Return the value of `plane` left of the block at (x, y), or `absent` if that is not available."""
    return peek(w, plane, x - 1, y) if left_available(w, x) else absent


@compiled
def above_of(w: Work, plane: int, x: int, y: int, absent: int) -> int:
    """Return the value of `plane` above the block at (x, y), or `absent` if that is not available."""
    return peek(w, plane, x, y - 1) if top_available(w, y) else absent
