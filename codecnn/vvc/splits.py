"""Splits of coding tree nodes: what is allowed (H.266 clause 6.4) and what is chosen (clauses 7.3.11.4, 9.3.4.2).

A quadtree first, then below each of its leaves a multi-type tree (MTT) of halves and of quarter-half-quarter splits,
never a quadtree again. No bin is spent on what cannot be: a reader that allows one split too many reads a bin too many.
"""

from codecnn.vvc import contexts as c
from codecnn.vvc import state as st
from codecnn.vvc.cabac import decode_bin
from codecnn.vvc.jit import compiled
from codecnn.vvc.neighbours import above_of, left_available, left_of, top_available
from codecnn.vvc.state import Work


@compiled
def quad_allowed(w: Work) -> bool:
    """Allowed quad split process (clause 6.4.1)."""
    n = w.n
    chroma = n[st.TREE] == st.DUAL_CHROMA
    if n[st.W] <= (n[st.MIN_QT_C] if chroma else n[st.MIN_QT_Y]) or n[st.DEPTH_MTT] > 0:
        return False
    return not chroma or (n[st.W] >> n[st.SUB_WIDTH] > 4 and n[st.MODE_TYPE] != st.MODE_INTRA_ONLY)


@compiled
def binary_allowed(w: Work, vertical: bool) -> bool:
    """Allowed binary split process (clause 6.4.2)."""
    n = w.n
    x, y, width, height = n[st.X], n[st.Y], n[st.W], n[st.H]
    chroma = n[st.TREE] == st.DUAL_CHROMA
    largest = n[st.MAX_BT_C] if chroma else n[st.MAX_BT_Y]
    depth = (n[st.MAX_MTT_C] if chroma else n[st.MAX_MTT_Y]) + n[st.DEPTH_OFFSET]
    size = width if vertical else height
    if size <= 1 << n[st.LOG2_MIN_CB] or max(width, height) > largest or n[st.DEPTH_MTT] >= depth:
        return False
    if chroma:
        width_c = width >> n[st.SUB_WIDTH]
        # For throughput, a chroma tree has no block of fewer than 16 samples and none 2 samples wide.
        if width_c * (height >> n[st.SUB_HEIGHT]) <= 16 or (vertical and width_c == 4):
            return False
        if n[st.MODE_TYPE] == st.MODE_INTRA_ONLY:
            return False
    # Two inter blocks of 4x4 would follow, which VVC does not have.
    if width * height == 32 and n[st.MODE_TYPE] == st.MODE_INTER_ONLY:
        return False
    # A node that leaves the picture is split until its parts are inside or outside: across the edge that it crosses.
    past_right, past_bottom = x + width > n[st.WIDTH], y + height > n[st.HEIGHT]
    if vertical and (past_bottom or (height > 64 and past_right)):
        return False
    if not vertical and ((width > 64 and past_bottom) or (past_right and not past_bottom)):
        return False
    if past_right and past_bottom and width > (n[st.MIN_QT_C] if chroma else n[st.MIN_QT_Y]):
        return False
    # The middle of a ternary split halved the same way gives quarters, which halving twice gives as well.
    parallel = st.TT_VER if vertical else st.TT_HOR
    if n[st.DEPTH_MTT] > 0 and n[st.PART] == 1 and n[st.LAST_SPLIT] == parallel:
        return False
    # Decoders work in units of 64x64 (VPDUs): no block may lie partly in two of them.
    return not ((width <= 64 and height > 64) if vertical else (width > 64 and height <= 64))


@compiled
def ternary_allowed(w: Work, vertical: bool) -> bool:
    """Allowed ternary split process (clause 6.4.3)."""
    n = w.n
    width, height = n[st.W], n[st.H]
    chroma = n[st.TREE] == st.DUAL_CHROMA
    largest = min(64, n[st.MAX_TT_C] if chroma else n[st.MAX_TT_Y])
    depth = (n[st.MAX_MTT_C] if chroma else n[st.MAX_MTT_Y]) + n[st.DEPTH_OFFSET]
    size = width if vertical else height
    if size <= 2 << n[st.LOG2_MIN_CB] or max(width, height) > largest or n[st.DEPTH_MTT] >= depth:
        return False
    if n[st.X] + width > n[st.WIDTH] or n[st.Y] + height > n[st.HEIGHT]:
        return False
    if chroma:
        width_c = width >> n[st.SUB_WIDTH]
        if width_c * (height >> n[st.SUB_HEIGHT]) <= 32 or (vertical and width_c == 8):
            return False
        if n[st.MODE_TYPE] == st.MODE_INTRA_ONLY:
            return False
    return not (width * height == 64 and n[st.MODE_TYPE] == st.MODE_INTER_ONLY)


@compiled
def decode_split(w: Work) -> int:
    """split_cu_flag and what follows it for one node (clause 7.4.12.4): NO_SPLIT, QT, BT_HOR, ..., TT_VER.

    Where a damaged stream leaves a node that reaches past the picture without a split: FAULT_SPLIT.
    """
    n = w.n
    qt = quad_allowed(w)
    bth, btv = binary_allowed(w, False), binary_allowed(w, True)
    tth, ttv = ternary_allowed(w, False), ternary_allowed(w, True)
    mtt = bth or btv or tth or ttv
    # At the edge of the picture a split is forced, and split_cu_flag is not in the stream.
    inside = n[st.X] + n[st.W] <= n[st.WIDTH] and n[st.Y] + n[st.H] <= n[st.HEIGHT]
    if inside:
        if not (qt or mtt) or not decode_split_cu_flag(w, int(bth) + btv + tth + ttv + 2 * qt):
            return st.NO_SPLIT
    elif not (qt or mtt) and (n[st.W] != n[st.H] or n[st.W] <= 1 << n[st.LOG2_MIN_CB]):
        n[st.FAULT] = st.FAULT_SPLIT
        return st.NO_SPLIT
    if not mtt or (qt and decode_split_qt_flag(w)):
        return st.QT
    vertical = btv or ttv
    if vertical and (bth or tth):
        vertical = decode_vertical_flag(w, int(btv) + ttv, int(bth) + tth)
    bt, tt = (btv, ttv) if vertical else (bth, tth)
    binary = bt
    if bt and tt:
        inc = 2 * int(vertical) + int(n[st.DEPTH_MTT] <= 1)
        binary = decode_bin(w, c.MTT_SPLIT_CU_BINARY_FLAG + inc) == 1
    if vertical:
        return st.BT_VER if binary else st.TT_VER
    return st.BT_HOR if binary else st.TT_HOR


@compiled
def decode_split_cu_flag(w: Work, choices: int) -> bool:
    """split_cu_flag, with the ctxInc of clause 9.3.4.2.2.

    It tells how many neighbours are smaller than this block, and how many splits there are to choose from.
    """
    n = w.n
    x, y = n[st.X], n[st.Y]
    chroma = int(n[st.TREE] == st.DUAL_CHROMA)
    inc = int(left_of(w, st.CB_HEIGHT + chroma, x, y, 128) < n[st.H])
    inc += int(above_of(w, st.CB_WIDTH + chroma, x, y, 128) < n[st.W])
    return decode_bin(w, c.SPLIT_CU_FLAG + inc + 3 * ((choices - 1) // 2)) == 1


@compiled
def decode_split_qt_flag(w: Work) -> bool:
    """split_qt_flag, with the ctxInc of clause 9.3.4.2.2."""
    n = w.n
    x, y, depth = n[st.X], n[st.Y], n[st.DEPTH_QT]
    plane = st.QT_DEPTH + int(n[st.TREE] == st.DUAL_CHROMA)
    inc = int(left_of(w, plane, x, y, 0) > depth) + int(above_of(w, plane, x, y, 0) > depth)
    return decode_bin(w, c.SPLIT_QT_FLAG + inc + (3 if depth >= 2 else 0)) == 1


@compiled
def decode_vertical_flag(w: Work, vertical: int, horizontal: int) -> bool:
    """mtt_split_cu_vertical_flag, with the ctxInc of clause 9.3.4.2.3."""
    n = w.n
    x, y = n[st.X], n[st.Y]
    chroma = int(n[st.TREE] == st.DUAL_CHROMA)
    inc = 0
    if vertical > horizontal:
        inc = 4
    elif vertical < horizontal:
        inc = 3
    elif left_available(w, x) and top_available(w, y):
        above = n[st.W] // max(1, above_of(w, st.CB_WIDTH + chroma, x, y, 1))
        left = n[st.H] // max(1, left_of(w, st.CB_HEIGHT + chroma, x, y, 1))
        inc = 1 if above < left else 2 if above > left else 0
    return decode_bin(w, c.MTT_SPLIT_CU_VERTICAL_FLAG + inc) == 1
