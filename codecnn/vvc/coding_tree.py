"""Coding trees (H.266 clause 7.3.11.4): a stack of nodes instead of recursion, so that its depth is bounded."""

import numpy as np
import numpy.typing as npt

from codecnn.vvc import contexts as c
from codecnn.vvc import state as st
from codecnn.vvc.cabac import decode_bin
from codecnn.vvc.coding_unit import coding_unit, record
from codecnn.vvc.jit import compiled
from codecnn.vvc.neighbours import above_of, left_of
from codecnn.vvc.quantization import start_group
from codecnn.vvc.splits import decode_split
from codecnn.vvc.state import Work


@compiled
def coding_tree_of_ctu(w: Work, cus: npt.NDArray[np.int32]) -> None:
    """The tree or trees of the CTU at hand, up to their end or to a fault."""
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
    """Put the node at hand on top of `count` others."""
    n = w.n
    at = st.NODES + count * st.NODE_SIZE
    n[at : at + st.NODE_SIZE] = n[st.NODE : st.NODE + st.NODE_SIZE]


@compiled
def pop(w: Work, count: int) -> None:
    """Make the node on top of `count` others the one at hand."""
    n = w.n
    at = st.NODES + count * st.NODE_SIZE
    n[st.NODE : st.NODE + st.NODE_SIZE] = n[at : at + st.NODE_SIZE]


@compiled
def start_groups(w: Work) -> None:
    """Begin quantization groups where a node is one, for luma QPs and for chroma QP offsets."""
    n = w.n
    if n[st.QP_DELTA] and n[st.QG_LUMA] and n[st.SUBDIV] <= n[st.QP_DELTA_SUBDIV]:
        start_group(w)
    if n[st.CHROMA_QP_OFFSET] and n[st.QG_CHROMA] and n[st.SUBDIV] <= n[st.CHROMA_QP_OFFSET_SUBDIV]:
        n[st.CHROMA_QP_CODED] = n[st.CHROMA_QP_IDX] = 0


@compiled
def push_trees(w: Work, count: int) -> int:
    """The separate trees of luma and chroma of a block of at most 64x64 (dual_tree_implicit_qt_split())."""
    n = w.n
    n[st.TREE], n[st.QG_LUMA], n[st.QG_CHROMA] = st.DUAL_CHROMA, 0, 1
    push(w, count)
    n[st.TREE], n[st.QG_LUMA], n[st.QG_CHROMA] = st.DUAL_LUMA, 1, 0
    push(w, count + 1)
    return count + 2


@compiled
def push_split(w: Work, count: int, split: int) -> int:
    """Push the parts of the node at hand, the first on top; below them the chroma block of a local dual tree."""
    n = w.n
    if count + 5 > st.MAX_NODES:
        n[st.FAULT] = st.FAULT_SPLIT
        return count
    mode = mode_type_of_parts(w, split)
    if split != st.QT:
        remember_split(w, split)
    if n[st.MODE_TYPE] == st.MODE_ALL and mode == st.MODE_INTRA_ONLY:
        # The chroma of its parts would be too small to predict part by part: all share one chroma block, behind them.
        # The chroma block is as the node but for these; they are set back, for the luma parts.
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
    """Push the parts of the node at hand that begin inside the picture, the last first."""
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
    # Splits that the picture's edge forces do not count against the largest depth.
    if (split == st.BT_VER and x + width > n[st.WIDTH]) or (split == st.BT_HOR and y + height > n[st.HEIGHT]):
        n[st.DEPTH_OFFSET] += 1
    n[st.LAST_SPLIT] = split
    parts = 4 if split == st.QT else 3 if ternary else 2
    for part in range(parts - 1, -1, -1):
        n[st.PART] = part
        # Of a ternary split a quarter, a half and a quarter; else halves, of a quadtree split of both sides.
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
    """Where a part of a binary (1/2, 1/2) or ternary (1/4, 1/2, 1/4) split of `size` samples begins."""
    if not ternary:
        return part * (size // 2)
    return (0, size // 4, size // 4 * 3)[part]


@compiled
def remember_split(w: Work, split: int) -> None:
    """MttSplitMode of the first two levels at corners of 32x32 blocks, which `cclm_enabled` asks for."""
    n = w.n
    x, y = n[st.X], n[st.Y]
    if x % 32 == 0 and y % 32 == 0 and n[st.DEPTH_MTT] <= 1:
        plane = st.MTT_SPLIT_0 if n[st.DEPTH_MTT] == 0 else st.MTT_SPLIT_1
        w.maps[plane, y >> 2, x >> 2] = split


@compiled
def mode_type_of_parts(w: Work, split: int) -> int:
    """modeType of the parts (clause 7.4.12.4, ModeTypeCondition): small chroma blocks must not be inter predicted."""
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
