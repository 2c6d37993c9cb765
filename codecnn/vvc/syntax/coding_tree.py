"""Coding trees (H.266 clause 7.3.11.4) and their splits (clauses 6.4, 7.4.12.4 and 9.3.4.2).

A quadtree comes first; below each of its leaves a multi-type tree (MTT) of binary and ternary splits, in which no
quadtree split occurs again. A split that is not allowed has no bin: a parser that allows one split too many reads one
bin too many. The nodes stand on a stack, without recursion, so that the depth is bounded.
"""

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin
from codecnn.vvc.syntax.coding_unit import coding_unit, record
from codecnn.vvc.syntax.neighbours import above_of, left_available, left_of, top_available
from codecnn.vvc.syntax.state import Work
from codecnn.vvc.syntax.transform import start_group


@compiled
def coding_tree_of_ctu(w: Work, cus: npt.NDArray[np.int32]) -> None:
    """Parse the coding tree or trees of the current CTU, up to the end or to a fault.

    Args:
        w: State of the parser.
        cus: Rows of coding units, shape (n, columns), filled from n[CU_COUNT] on.
    """
    n = w.n
    n[st.NODE : st.NODE + st.NODE_SIZE] = 0
    n[st.X], n[st.Y] = n[st.CTB_X], n[st.CTB_Y]
    n[st.W] = n[st.H] = 1 << n[st.LOG2_CTU]
    n[st.QG_LUMA] = n[st.QG_CHROMA] = 1
    n[st.TREE] = st.IMPLICIT if n[st.DUAL_TREE] and n[st.IS_I] else st.SINGLE
    push(w, 0)
    count = 1
    while count > 0 and not n[st.FAULT]:
        count -= 1
        pop(w, count)
        start_groups(w)
        split = st.QT
        if n[st.TREE] != st.IMPLICIT:
            split = decode_split(w)
        elif n[st.W] <= 64:
            count = push_trees(w, count)
            continue
        if split != st.NO_SPLIT:
            count = push_split(w, count, split)
        elif not n[st.FAULT]:
            coding_unit(w)
            record(w, cus)


@compiled
def push(w: Work, count: int) -> None:
    """Push the current node on the stack of `count` nodes."""
    n = w.n
    at = st.NODES + count * st.NODE_SIZE
    n[at : at + st.NODE_SIZE] = n[st.NODE : st.NODE + st.NODE_SIZE]


@compiled
def pop(w: Work, count: int) -> None:
    """Take the node at place `count` of the stack as the current one."""
    n = w.n
    at = st.NODES + count * st.NODE_SIZE
    n[st.NODE : st.NODE + st.NODE_SIZE] = n[at : at + st.NODE_SIZE]


@compiled
def start_groups(w: Work) -> None:
    """Begin the quantization groups, of luma QPs and of chroma QP offsets, that the current node is."""
    n = w.n
    if n[st.QP_DELTA] and n[st.QG_LUMA] and n[st.SUBDIV] <= n[st.QP_DELTA_SUBDIV]:
        start_group(w)
    if n[st.CHROMA_QP_OFFSET] and n[st.QG_CHROMA] and n[st.SUBDIV] <= n[st.CHROMA_QP_OFFSET_SUBDIV]:
        n[st.CHROMA_QP_CODED] = n[st.CHROMA_QP_IDX] = 0


@compiled
def push_trees(w: Work, count: int) -> int:
    """Push the separate trees of luma and chroma of a block of at most 64x64 (dual_tree_implicit_qt_split())."""
    n = w.n
    n[st.TREE], n[st.QG_LUMA], n[st.QG_CHROMA] = st.DUAL_CHROMA, 0, 1
    push(w, count)
    n[st.TREE], n[st.QG_LUMA], n[st.QG_CHROMA] = st.DUAL_LUMA, 1, 0
    push(w, count + 1)
    return count + 2


@compiled
def push_split(w: Work, count: int, split: int) -> int:
    """Push the parts of the current node, the first on top.

    Below them goes the chroma block of a local dual tree.
    """
    n = w.n
    if count + 5 > st.MAX_NODES:
        n[st.FAULT] = st.FAULT_SPLIT
        return count
    mode = mode_type_of_parts(w, split)
    if split != st.QT:
        remember_split(w, split)
    if n[st.MODE_TYPE] == st.MODE_ALL and mode == st.MODE_INTRA_ONLY:
        # The chroma blocks of the parts would be too small, so all parts share one chroma block, which follows them. It
        # differs from the node in these numbers, which are then reset for the luma parts.
        qg_luma, offset = n[st.QG_LUMA], n[st.DEPTH_OFFSET]
        n[st.TREE], n[st.MODE_TYPE], n[st.QG_LUMA] = st.DUAL_CHROMA, mode, 0
        n[st.DEPTH_OFFSET], n[st.PART], n[st.LAST_SPLIT] = 0, 0, split
        push(w, count)
        count += 1
        n[st.TREE], n[st.QG_LUMA], n[st.DEPTH_OFFSET] = st.DUAL_LUMA, qg_luma, offset
    n[st.MODE_TYPE] = mode
    return push_parts(w, count, split)


@compiled
def push_parts(w: Work, count: int, split: int) -> int:
    """Push the parts of the current node that begin inside the picture, the last part first."""
    n = w.n
    x, y, width, height = n[st.X], n[st.Y], n[st.W], n[st.H]
    subdiv = n[st.SUBDIV]
    ternary = split == st.TT_HOR or split == st.TT_VER
    vertical = split == st.BT_VER or split == st.TT_VER
    if ternary:
        n[st.QG_LUMA] = int(n[st.QG_LUMA] and subdiv + 2 <= n[st.QP_DELTA_SUBDIV])
        n[st.QG_CHROMA] = int(n[st.QG_CHROMA] and subdiv + 2 <= n[st.CHROMA_QP_OFFSET_SUBDIV])
    if split == st.QT:
        n[st.DEPTH_QT] += 1
        n[st.DEPTH_MTT] = n[st.DEPTH_OFFSET] = 0
    else:
        n[st.DEPTH_MTT] += 1
    # Splits that the edge of the picture forces do not count towards the largest depth.
    if (split == st.BT_VER and x + width > n[st.WIDTH]) or (split == st.BT_HOR and y + height > n[st.HEIGHT]):
        n[st.DEPTH_OFFSET] += 1
    n[st.LAST_SPLIT] = split
    parts = 4 if split == st.QT else 3 if ternary else 2
    for part in range(parts - 1, -1, -1):
        n[st.PART] = part
        # A ternary split gives a quarter, a half and a quarter; the others halve one side or, for a quadtree, both.
        quarter = ternary and part != 1
        n[st.SUBDIV] = subdiv + (2 if quarter or split == st.QT else 1)
        if split == st.QT:
            n[st.X], n[st.W] = x + (part & 1) * (width // 2), width // 2
            n[st.Y], n[st.H] = y + (part >> 1) * (height // 2), height // 2
        elif vertical:
            n[st.X], n[st.W] = x + part_offset(part, ternary, width), width // (4 if quarter else 2)
        else:
            n[st.Y], n[st.H] = y + part_offset(part, ternary, height), height // (4 if quarter else 2)
        if n[st.X] < n[st.WIDTH] and n[st.Y] < n[st.HEIGHT]:
            push(w, count)
            count += 1
    return count


@compiled
def part_offset(part: int, ternary: bool, size: int) -> int:
    """Return the position of a part in a binary (1/2, 1/2) or ternary (1/4, 1/2, 1/4) split of `size` samples."""
    if not ternary:
        return part * (size // 2)
    return (0, size // 4, size // 4 * 3)[part]


@compiled
def remember_split(w: Work, split: int) -> None:
    """Store MttSplitMode of the first two MTT levels at corners of 32x32 blocks, for `cclm_enabled`."""
    n = w.n
    x, y = n[st.X], n[st.Y]
    if x % 32 == 0 and y % 32 == 0 and n[st.DEPTH_MTT] <= 1:
        plane = st.MTT_SPLIT_0 if n[st.DEPTH_MTT] == 0 else st.MTT_SPLIT_1
        w.maps[plane, y >> 2, x >> 2] = split


@compiled
def mode_type_of_parts(w: Work, split: int) -> int:
    """Derive modeType of the parts (clause 7.4.12.4, ModeTypeCondition).

    Small chroma blocks must not be predicted by inter prediction.
    """
    n = w.n
    mode: int = n[st.MODE_TYPE]
    if (n[st.IS_I] and n[st.DUAL_TREE]) or mode != st.MODE_ALL or n[st.CHROMA] == 0 or n[st.CHROMA] == 3:
        return mode
    area = n[st.W] * n[st.H]
    binary = split == st.BT_HOR or split == st.BT_VER
    ternary = split == st.TT_HOR or split == st.TT_VER
    if (area == 64 and (split == st.QT or ternary)) or (area == 32 and binary):
        return st.MODE_INTRA_ONLY
    small_420 = n[st.CHROMA] == 1 and ((area == 64 and binary) or (area == 128 and ternary))
    narrow = (n[st.W] == 8 and split == st.BT_VER) or (n[st.W] == 16 and split == st.TT_VER)
    if not small_420 and not narrow:
        return mode
    if n[st.IS_I]:
        return st.MODE_INTRA_ONLY
    left = left_of(w, st.CU_PRED_MODE, n[st.X], n[st.Y], st.MODE_INTER)
    above = above_of(w, st.CU_PRED_MODE, n[st.X], n[st.Y], st.MODE_INTER)
    intra = decode_bin(w, c.NON_INTER_FLAG + int(left == st.MODE_INTRA or above == st.MODE_INTRA))
    return st.MODE_INTRA_ONLY if intra else st.MODE_INTER_ONLY


@compiled
def quad_allowed(w: Work) -> bool:
    """Return True if a quadtree split of the current node is allowed (clause 6.4.1)."""
    n = w.n
    chroma = n[st.TREE] == st.DUAL_CHROMA
    if n[st.W] <= (n[st.MIN_QT_C] if chroma else n[st.MIN_QT_Y]) or n[st.DEPTH_MTT] > 0:
        return False
    return not chroma or (n[st.W] >> n[st.SUB_WIDTH] > 4 and n[st.MODE_TYPE] != st.MODE_INTRA_ONLY)


@compiled
def binary_allowed(w: Work, vertical: bool) -> bool:
    """Return True if a binary split of the current node is allowed (clause 6.4.2)."""
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
        # To limit the cost of small blocks, a chroma tree has none below 16 samples and none 2 samples wide.
        if width_c * (height >> n[st.SUB_HEIGHT]) <= 16 or (vertical and width_c == 4):
            return False
        if n[st.MODE_TYPE] == st.MODE_INTRA_ONLY:
            return False
    # The split would give inter blocks of 4x4, which VVC does not have.
    if width * height == 32 and n[st.MODE_TYPE] == st.MODE_INTER_ONLY:
        return False
    # A node that reaches past the picture is split along the edge it crosses, until each part is inside or outside.
    past_right, past_bottom = x + width > n[st.WIDTH], y + height > n[st.HEIGHT]
    if vertical and (past_bottom or (height > 64 and past_right)):
        return False
    if not vertical and ((width > 64 and past_bottom) or (past_right and not past_bottom)):
        return False
    if past_right and past_bottom and width > (n[st.MIN_QT_C] if chroma else n[st.MIN_QT_Y]):
        return False
    # Halving the middle part of a ternary split in the same direction gives quarters, as two binary splits do.
    parallel = st.TT_VER if vertical else st.TT_HOR
    if n[st.DEPTH_MTT] > 0 and n[st.PART] == 1 and n[st.LAST_SPLIT] == parallel:
        return False
    # Decoders work in units of 64x64 (VPDUs): no block may lie across two of them.
    return not ((width <= 64 and height > 64) if vertical else (width > 64 and height <= 64))


@compiled
def ternary_allowed(w: Work, vertical: bool) -> bool:
    """Return True if a ternary split of the current node is allowed (clause 6.4.3)."""
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
    """Decode split_cu_flag and the elements after it for the current node (clause 7.4.12.4).

    FAULT_SPLIT is set if the node reaches past the picture and no split is allowed, which only damage causes.

    Returns:
        NO_SPLIT, QT, BT_HOR, BT_VER, TT_HOR or TT_VER.
    """
    n = w.n
    qt = quad_allowed(w)
    bth, btv = binary_allowed(w, False), binary_allowed(w, True)
    tth, ttv = ternary_allowed(w, False), ternary_allowed(w, True)
    mtt = bth or btv or tth or ttv
    # At the edge of the picture a split is forced, and the stream has no split_cu_flag.
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
    """Decode split_cu_flag with the ctxInc of clause 9.3.4.2.2.

    The context depends on the number of neighbours that are smaller than this block, and on the number of `choices`.
    """
    n = w.n
    x, y = n[st.X], n[st.Y]
    chroma = int(n[st.TREE] == st.DUAL_CHROMA)
    inc = int(left_of(w, st.CB_HEIGHT + chroma, x, y, 128) < n[st.H])
    inc += int(above_of(w, st.CB_WIDTH + chroma, x, y, 128) < n[st.W])
    return decode_bin(w, c.SPLIT_CU_FLAG + inc + 3 * ((choices - 1) // 2)) == 1


@compiled
def decode_split_qt_flag(w: Work) -> bool:
    """Decode split_qt_flag with the ctxInc of clause 9.3.4.2.2."""
    n = w.n
    x, y, depth = n[st.X], n[st.Y], n[st.DEPTH_QT]
    plane = st.QT_DEPTH + int(n[st.TREE] == st.DUAL_CHROMA)
    inc = int(left_of(w, plane, x, y, 0) > depth) + int(above_of(w, plane, x, y, 0) > depth)
    return decode_bin(w, c.SPLIT_QT_FLAG + inc + (3 if depth >= 2 else 0)) == 1


@compiled
def decode_vertical_flag(w: Work, vertical: int, horizontal: int) -> bool:
    """Decode mtt_split_cu_vertical_flag with the ctxInc of clause 9.3.4.2.3."""
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
