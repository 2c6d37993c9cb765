"""Block vectors of IBC units, in whole luma samples (H.266 clauses 8.6.2.2 to 8.6.2.6)."""

from codecnn.vvc import state as st
from codecnn.vvc.jit import compiled
from codecnn.vvc.neighbours import above_of, fill, left_of, peek
from codecnn.vvc.state import Work

_TABLE = 5
"""Entries of the table of earlier block vectors."""


@compiled
def merge_vector(w: Work, index: int) -> None:
    """Set the vector to candidate `index`: of the unit left, above, of the last units, or zero (8.6.2.3, 8.6.2.4)."""
    n = w.n
    x, y, width, height = n[st.X], n[st.Y], n[st.W], n[st.H]
    left = above = False
    left_x = left_y = above_x = above_y = 0
    count = 0
    n[st.VECTOR_X] = n[st.VECTOR_Y] = 0
    large = width * height > 16
    if large and left_of(w, st.CU_PRED_MODE, x, y + height - 1, -1) == st.MODE_IBC:
        left = True
        left_x = peek(w, st.CU_VECTOR_X, x - 1, y + height - 1)
        left_y = peek(w, st.CU_VECTOR_Y, x - 1, y + height - 1)
        if index == count:
            n[st.VECTOR_X], n[st.VECTOR_Y] = left_x, left_y
            return
        count += 1
    if large and above_of(w, st.CU_PRED_MODE, x + width - 1, y, -1) == st.MODE_IBC:
        above = True
        above_x = peek(w, st.CU_VECTOR_X, x + width - 1, y - 1)
        above_y = peek(w, st.CU_VECTOR_Y, x + width - 1, y - 1)
        if not left or above_x != left_x or above_y != left_y:
            if index == count:
                n[st.VECTOR_X], n[st.VECTOR_Y] = above_x, above_y
                return
            count += 1
    for i in range(n[st.VECTORS]):
        at = st.VECTOR_TABLE + 2 * (n[st.VECTORS] - 1 - i)
        last_x, last_y = n[at], n[at + 1]
        # Only the very last is compared with the neighbours.
        if i == 0 and left and last_x == left_x and last_y == left_y:
            continue
        if i == 0 and above and last_x == above_x and last_y == above_y:
            continue
        if index == count:
            n[st.VECTOR_X], n[st.VECTOR_Y] = last_x, last_y
            return
        count += 1


@compiled
def predicted_vector(w: Work, index: int, difference_x: int, difference_y: int, coarse: bool) -> None:
    """Set the vector to candidate `index` plus a difference, both in steps of four samples if `coarse` (8.6.2.2)."""
    n = w.n
    merge_vector(w, index)
    x, y = n[st.VECTOR_X], n[st.VECTOR_Y]
    if coarse:
        x, y = rounded(x) + 4 * difference_x, rounded(y) + 4 * difference_y
    else:
        x, y = x + difference_x, y + difference_y
    # Vectors wrap at 18 bits of sixteenths.
    n[st.VECTOR_X], n[st.VECTOR_Y] = ((x + 8192) & 16383) - 8192, ((y + 8192) & 16383) - 8192


@compiled
def rounded(value: int) -> int:
    """A component of a vector in steps of four (clause 8.5.2.14)."""
    return ((value + 1) >> 2) << 2 if value >= 0 else ((value + 2) >> 2) << 2


@compiled
def keep_vector(w: Work) -> None:
    """Remember the vector for neighbours, and at the end of the table of earlier ones (8.6.2.6)."""
    n = w.n
    x, y = n[st.VECTOR_X], n[st.VECTOR_Y]
    fill(w, st.CU_VECTOR_X, x)
    fill(w, st.CU_VECTOR_Y, y)
    if n[st.W] * n[st.H] <= 16:
        return
    count = n[st.VECTORS]
    remove = 0 if count == _TABLE else count
    for i in range(count):
        if n[st.VECTOR_TABLE + 2 * i] == x and n[st.VECTOR_TABLE + 2 * i + 1] == y:
            remove = i
            break
    for i in range(remove, count - 1):
        n[st.VECTOR_TABLE + 2 * i] = n[st.VECTOR_TABLE + 2 * i + 2]
        n[st.VECTOR_TABLE + 2 * i + 1] = n[st.VECTOR_TABLE + 2 * i + 3]
    if remove < count:
        count -= 1
    n[st.VECTOR_TABLE + 2 * count], n[st.VECTOR_TABLE + 2 * count + 1] = x, y
    n[st.VECTORS] = count + 1
