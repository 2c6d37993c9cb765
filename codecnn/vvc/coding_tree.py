"""Coding trees (H.266 clause 7.3.11.4): a stack of nodes instead of recursion, so that its depth is bounded."""

from codecnn.vvc import contexts as c
from codecnn.vvc.cabac import decode_bin
from codecnn.vvc.coding_unit import coding_unit
from codecnn.vvc.compiled import compiled
from codecnn.vvc.neighbours import above_of, left_of
from codecnn.vvc.quantization import start_group
from codecnn.vvc.splits import decode_split
from codecnn.vvc.state import (
    BT_HOR,
    BT_VER,
    CHROMA,
    CHROMA_QP_CODED,
    CHROMA_QP_OFFSET,
    CHROMA_QP_OFFSET_SUBDIV,
    CU_PRED_MODE,
    DUAL_CHROMA,
    DUAL_LUMA,
    DUAL_TREE,
    FAULT,
    FAULT_SPLIT,
    HEIGHT,
    IMPLICIT,
    IS_I,
    LOG2_CTU,
    MAX_NODES,
    MODE_ALL,
    MODE_INTER,
    MODE_INTER_ONLY,
    MODE_INTRA,
    MODE_INTRA_ONLY,
    MTT_SPLIT_0,
    MTT_SPLIT_1,
    NO_SPLIT,
    NODE_COLUMNS,
    NODE_DEPTH_OFFSET,
    NODE_H,
    NODE_LAST_SPLIT,
    NODE_MODE,
    NODE_MTT_DEPTH,
    NODE_PART,
    NODE_QG_CHROMA,
    NODE_QG_LUMA,
    NODE_QT_DEPTH,
    NODE_SUBDIV,
    NODE_TREE,
    NODE_W,
    NODE_X,
    NODE_Y,
    QP_DELTA,
    QP_DELTA_SUBDIV,
    QT,
    SINGLE,
    TT_HOR,
    TT_VER,
    WIDTH,
    Ints,
    Work,
)


@compiled
def coding_tree_of_ctu(w: Work, x: int, y: int) -> None:
    """The tree or trees of the CTU at (x, y), up to their end or to a fault."""
    n, nodes = w.n, w.nodes
    nodes[0, :] = 0
    nodes[0, NODE_X], nodes[0, NODE_Y] = x, y
    nodes[0, NODE_W] = nodes[0, NODE_H] = 1 << n[LOG2_CTU]
    nodes[0, NODE_QG_LUMA] = nodes[0, NODE_QG_CHROMA] = 1
    nodes[0, NODE_TREE] = IMPLICIT if n[DUAL_TREE] and n[IS_I] else SINGLE
    node = nodes[MAX_NODES]
    count = 1
    while count > 0 and not n[FAULT]:
        count -= 1
        node[:] = nodes[count]
        start_groups(w, node)
        if node[NODE_TREE] == IMPLICIT:
            if node[NODE_W] > 64:
                count = push_parts(w, node, count, QT)
            else:
                count = push_trees(w, node, count)
            continue
        split = decode_split(w, node)
        if split == NO_SPLIT:
            if not n[FAULT]:
                coding_unit(w, node)
        elif count + 5 > MAX_NODES:
            n[FAULT] = FAULT_SPLIT
        else:
            count = push_split(w, node, count, split)


@compiled
def start_groups(w: Work, node: Ints) -> None:
    """Begin quantization groups where a node is one, for luma QPs and for chroma QP offsets."""
    n = w.n
    if n[QP_DELTA] and node[NODE_QG_LUMA] and node[NODE_SUBDIV] <= n[QP_DELTA_SUBDIV]:
        start_group(w, node[NODE_X], node[NODE_Y])
    if n[CHROMA_QP_OFFSET] and node[NODE_QG_CHROMA] and node[NODE_SUBDIV] <= n[CHROMA_QP_OFFSET_SUBDIV]:
        n[CHROMA_QP_CODED] = 0


@compiled
def push_trees(w: Work, node: Ints, count: int) -> int:
    """The separate trees of luma and chroma of a block of at most 64x64 (dual_tree_implicit_qt_split())."""
    for tree in (DUAL_CHROMA, DUAL_LUMA):
        child = w.nodes[count]
        child[:] = node
        child[NODE_TREE] = tree
        child[NODE_QG_LUMA], child[NODE_QG_CHROMA] = int(tree == DUAL_LUMA), int(tree == DUAL_CHROMA)
        count += 1
    return count


@compiled
def push_split(w: Work, node: Ints, count: int, split: int) -> int:
    """Push the parts of a split node, first part on top; below them the chroma block of a local dual tree."""
    mode = mode_type_of_parts(w, node, split)
    if split != QT:
        remember_split(w, node, split)
    if node[NODE_MODE] == MODE_ALL and mode == MODE_INTRA_ONLY:
        child = w.nodes[count]
        child[:] = node
        child[NODE_QG_LUMA] = 0
        child[NODE_DEPTH_OFFSET] = child[NODE_PART] = 0
        child[NODE_LAST_SPLIT] = split
        child[NODE_TREE], child[NODE_MODE] = DUAL_CHROMA, mode
        count += 1
    if mode == MODE_INTRA_ONLY:
        if node[NODE_TREE] == SINGLE:
            node[NODE_TREE] = DUAL_LUMA
        node[NODE_MODE] = mode
    elif mode == MODE_INTER_ONLY:
        node[NODE_MODE] = mode
    return push_parts(w, node, count, split)


@compiled
def push_parts(w: Work, node: Ints, count: int, split: int) -> int:
    """Push the parts of `node` that begin inside the picture, the last first."""
    n = w.n
    width, height = node[NODE_W], node[NODE_H]
    ternary = split == TT_HOR or split == TT_VER
    if ternary and node[NODE_SUBDIV] + 2 > n[QP_DELTA_SUBDIV]:
        node[NODE_QG_LUMA] = 0
    if ternary and node[NODE_SUBDIV] + 2 > n[CHROMA_QP_OFFSET_SUBDIV]:
        node[NODE_QG_CHROMA] = 0
    if split == BT_VER and node[NODE_X] + width > n[WIDTH]:
        node[NODE_DEPTH_OFFSET] += 1
    if split == BT_HOR and node[NODE_Y] + height > n[HEIGHT]:
        node[NODE_DEPTH_OFFSET] += 1
    parts = 4 if split == QT else 3 if ternary else 2
    for part in range(parts - 1, -1, -1):
        child = w.nodes[count]
        child[:] = node
        child[NODE_PART], child[NODE_LAST_SPLIT] = part, split
        if split == QT:
            child[NODE_W], child[NODE_H] = width // 2, height // 2
            child[NODE_X] += (part & 1) * (width // 2)
            child[NODE_Y] += (part >> 1) * (height // 2)
            child[NODE_SUBDIV] += 2
            child[NODE_QT_DEPTH] += 1
            child[NODE_MTT_DEPTH] = child[NODE_DEPTH_OFFSET] = 0
        else:
            split_side(child, split == BT_VER or split == TT_VER, ternary, part)
        if child[NODE_X] < n[WIDTH] and child[NODE_Y] < n[HEIGHT]:
            count += 1
    return count


@compiled
def split_side(child: Ints, vertical: bool, ternary: bool, part: int) -> None:
    """Make part `part` of a binary (1/2, 1/2) or ternary (1/4, 1/2, 1/4) split of what `child` is a copy of."""
    at, side = (NODE_X, NODE_W) if vertical else (NODE_Y, NODE_H)
    size = child[side]
    if not ternary:
        child[side] = size // 2
        child[at] += part * (size // 2)
    elif part == 1:
        child[side] = size // 2
        child[at] += size // 4
    else:
        child[side] = size // 4
        child[at] += part // 2 * (size // 2 + size // 4)
    child[NODE_SUBDIV] += 2 if ternary and part != 1 else 1
    child[NODE_MTT_DEPTH] += 1


@compiled
def remember_split(w: Work, node: Ints, split: int) -> None:
    """MttSplitMode of the first two levels at corners of 32x32 blocks, which `cclm_enabled` asks for."""
    x, y = node[NODE_X], node[NODE_Y]
    if x % 32 == 0 and y % 32 == 0 and node[NODE_MTT_DEPTH] <= 1:
        plane = MTT_SPLIT_0 if node[NODE_MTT_DEPTH] == 0 else MTT_SPLIT_1
        w.maps[plane, y >> 2, x >> 2] = split


@compiled
def mode_type_of_parts(w: Work, node: Ints, split: int) -> int:
    """modeType of the parts (clause 7.4.12.4, ModeTypeCondition): small chroma blocks must not be inter predicted."""
    n = w.n
    mode = node[NODE_MODE]
    if (n[IS_I] and n[DUAL_TREE]) or mode != MODE_ALL or n[CHROMA] == 0 or n[CHROMA] == 3:
        return mode
    area = node[NODE_W] * node[NODE_H]
    binary = split == BT_HOR or split == BT_VER
    ternary = split == TT_HOR or split == TT_VER
    if (area == 64 and (split == QT or ternary)) or (area == 32 and binary):
        return MODE_INTRA_ONLY
    small_420 = n[CHROMA] == 1 and ((area == 64 and binary) or (area == 128 and ternary))
    narrow = (node[NODE_W] == 8 and split == BT_VER) or (node[NODE_W] == 16 and split == TT_VER)
    if not small_420 and not narrow:
        return mode
    if n[IS_I]:
        return MODE_INTRA_ONLY
    x, y = node[NODE_X], node[NODE_Y]
    left = left_of(w, CU_PRED_MODE, x, y, MODE_INTER)
    above = above_of(w, CU_PRED_MODE, x, y, MODE_INTER)
    intra = decode_bin(w, c.NON_INTER_FLAG + int(left == MODE_INTRA or above == MODE_INTRA))
    return MODE_INTRA_ONLY if intra else MODE_INTER_ONLY
