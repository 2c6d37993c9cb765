"""Splits of coding tree nodes: what is allowed (H.266 clause 6.4) and what is chosen (clauses 7.3.11.4, 9.3.4.2)."""

from codecnn.vvc import contexts as c
from codecnn.vvc.cabac import decode_bin
from codecnn.vvc.compiled import compiled
from codecnn.vvc.neighbours import above_of, left_available, left_of, top_available
from codecnn.vvc.state import (
    BT_HOR,
    BT_VER,
    CB_HEIGHT,
    CB_WIDTH,
    DUAL_CHROMA,
    FAULT,
    FAULT_SPLIT,
    HEIGHT,
    LOG2_MIN_CB,
    MAX_BT_C,
    MAX_BT_Y,
    MAX_MTT_C,
    MAX_MTT_Y,
    MAX_TT_C,
    MAX_TT_Y,
    MIN_QT_C,
    MIN_QT_Y,
    MODE_INTER_ONLY,
    MODE_INTRA_ONLY,
    NO_SPLIT,
    NODE_DEPTH_OFFSET,
    NODE_H,
    NODE_LAST_SPLIT,
    NODE_MODE,
    NODE_MTT_DEPTH,
    NODE_PART,
    NODE_QT_DEPTH,
    NODE_TREE,
    NODE_W,
    NODE_X,
    NODE_Y,
    QT,
    QT_DEPTH,
    SUB_HEIGHT,
    SUB_WIDTH,
    TT_HOR,
    TT_VER,
    WIDTH,
    Ints,
    Work,
)


@compiled
def quad_allowed(w: Work, node: Ints) -> bool:
    """Allowed quad split process (clause 6.4.1)."""
    n = w.n
    chroma = node[NODE_TREE] == DUAL_CHROMA
    if node[NODE_W] <= (n[MIN_QT_C] if chroma else n[MIN_QT_Y]) or node[NODE_MTT_DEPTH] > 0:
        return False
    return not chroma or (node[NODE_W] >> n[SUB_WIDTH] > 4 and node[NODE_MODE] != MODE_INTRA_ONLY)


@compiled
def binary_allowed(w: Work, node: Ints, vertical: bool) -> bool:
    """Allowed binary split process (clause 6.4.2)."""
    n = w.n
    x, y, width, height = node[NODE_X], node[NODE_Y], node[NODE_W], node[NODE_H]
    chroma = node[NODE_TREE] == DUAL_CHROMA
    largest = n[MAX_BT_C] if chroma else n[MAX_BT_Y]
    depth = (n[MAX_MTT_C] if chroma else n[MAX_MTT_Y]) + node[NODE_DEPTH_OFFSET]
    size = width if vertical else height
    if size <= 1 << n[LOG2_MIN_CB] or max(width, height) > largest or node[NODE_MTT_DEPTH] >= depth:
        return False
    if chroma:
        width_c = width >> n[SUB_WIDTH]
        if width_c * (height >> n[SUB_HEIGHT]) <= 16 or (vertical and width_c == 4):
            return False
        if node[NODE_MODE] == MODE_INTRA_ONLY:
            return False
    if width * height == 32 and node[NODE_MODE] == MODE_INTER_ONLY:
        return False
    past_right, past_bottom = x + width > n[WIDTH], y + height > n[HEIGHT]
    if vertical and (past_bottom or (height > 64 and past_right)):
        return False
    if not vertical and ((width > 64 and past_bottom) or (past_right and not past_bottom)):
        return False
    if past_right and past_bottom and width > (n[MIN_QT_C] if chroma else n[MIN_QT_Y]):
        return False
    parallel = TT_VER if vertical else TT_HOR
    if node[NODE_MTT_DEPTH] > 0 and node[NODE_PART] == 1 and node[NODE_LAST_SPLIT] == parallel:
        return False
    return not ((width <= 64 and height > 64) if vertical else (width > 64 and height <= 64))


@compiled
def ternary_allowed(w: Work, node: Ints, vertical: bool) -> bool:
    """Allowed ternary split process (clause 6.4.3)."""
    n = w.n
    width, height = node[NODE_W], node[NODE_H]
    chroma = node[NODE_TREE] == DUAL_CHROMA
    largest = min(64, n[MAX_TT_C] if chroma else n[MAX_TT_Y])
    depth = (n[MAX_MTT_C] if chroma else n[MAX_MTT_Y]) + node[NODE_DEPTH_OFFSET]
    size = width if vertical else height
    if size <= 2 << n[LOG2_MIN_CB] or max(width, height) > largest or node[NODE_MTT_DEPTH] >= depth:
        return False
    if node[NODE_X] + width > n[WIDTH] or node[NODE_Y] + height > n[HEIGHT]:
        return False
    if chroma:
        width_c = width >> n[SUB_WIDTH]
        if width_c * (height >> n[SUB_HEIGHT]) <= 32 or (vertical and width_c == 8):
            return False
        if node[NODE_MODE] == MODE_INTRA_ONLY:
            return False
    return not (width * height == 64 and node[NODE_MODE] == MODE_INTER_ONLY)


@compiled
def decode_split(w: Work, node: Ints) -> int:
    """split_cu_flag and what follows it for one node (clause 7.4.12.4): NO_SPLIT, QT, BT_HOR, ..., TT_VER.

    Where a damaged stream leaves a node that reaches past the picture without a split: FAULT_SPLIT.
    """
    n = w.n
    qt = quad_allowed(w, node)
    bth, btv = binary_allowed(w, node, False), binary_allowed(w, node, True)
    tth, ttv = ternary_allowed(w, node, False), ternary_allowed(w, node, True)
    mtt = bth or btv or tth or ttv
    inside = node[NODE_X] + node[NODE_W] <= n[WIDTH] and node[NODE_Y] + node[NODE_H] <= n[HEIGHT]
    if inside:
        if not (qt or mtt) or not decode_split_cu_flag(w, node, int(bth) + btv + tth + ttv + 2 * qt):
            return NO_SPLIT
    elif not (qt or mtt) and (node[NODE_W] != node[NODE_H] or node[NODE_W] <= 1 << n[LOG2_MIN_CB]):
        n[FAULT] = FAULT_SPLIT
        return NO_SPLIT
    if not mtt or (qt and decode_split_qt_flag(w, node)):
        return QT
    vertical = btv or ttv
    if vertical and (bth or tth):
        vertical = decode_vertical_flag(w, node, int(btv) + ttv, int(bth) + tth)
    bt, tt = (btv, ttv) if vertical else (bth, tth)
    binary = bt
    if bt and tt:
        inc = 2 * int(vertical) + int(node[NODE_MTT_DEPTH] <= 1)
        binary = decode_bin(w, c.MTT_SPLIT_CU_BINARY_FLAG + inc) == 1
    if vertical:
        return BT_VER if binary else TT_VER
    return BT_HOR if binary else TT_HOR


@compiled
def decode_split_cu_flag(w: Work, node: Ints, choices: int) -> bool:
    """split_cu_flag, with the ctxInc of clause 9.3.4.2.2."""
    x, y = node[NODE_X], node[NODE_Y]
    chroma = int(node[NODE_TREE] == DUAL_CHROMA)
    inc = int(left_of(w, CB_HEIGHT + chroma, x, y, 128) < node[NODE_H])
    inc += int(above_of(w, CB_WIDTH + chroma, x, y, 128) < node[NODE_W])
    return decode_bin(w, c.SPLIT_CU_FLAG + inc + 3 * ((choices - 1) // 2)) == 1


@compiled
def decode_split_qt_flag(w: Work, node: Ints) -> bool:
    """split_qt_flag, with the ctxInc of clause 9.3.4.2.2."""
    x, y, depth = node[NODE_X], node[NODE_Y], node[NODE_QT_DEPTH]
    plane = QT_DEPTH + int(node[NODE_TREE] == DUAL_CHROMA)
    inc = int(left_of(w, plane, x, y, 0) > depth) + int(above_of(w, plane, x, y, 0) > depth)
    return decode_bin(w, c.SPLIT_QT_FLAG + inc + (3 if depth >= 2 else 0)) == 1


@compiled
def decode_vertical_flag(w: Work, node: Ints, vertical: int, horizontal: int) -> bool:
    """mtt_split_cu_vertical_flag, with the ctxInc of clause 9.3.4.2.3."""
    x, y = node[NODE_X], node[NODE_Y]
    chroma = int(node[NODE_TREE] == DUAL_CHROMA)
    inc = 0
    if vertical > horizontal:
        inc = 4
    elif vertical < horizontal:
        inc = 3
    elif left_available(w, x) and top_available(w, y):
        above = node[NODE_W] // max(1, above_of(w, CB_WIDTH + chroma, x, y, 1))
        left = node[NODE_H] // max(1, left_of(w, CB_HEIGHT + chroma, x, y, 1))
        inc = 1 if above < left else 2 if above > left else 0
    return decode_bin(w, c.MTT_SPLIT_CU_VERTICAL_FLAG + inc) == 1
