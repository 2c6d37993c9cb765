"""Coding trees (H.266 clause 7.3.11.4) and their splits (clauses 6.4, 7.4.12.4 and 9.3.4.2).

A quadtree comes first; below each of its leaves a multi-type tree (MTT) of binary and ternary splits, in which no
quadtree split occurs again. A split that is not allowed has no bin: a parser that allows one split too many reads one
bin too many. The nodes stand on a stack, without recursion, so that the depth is bounded.
"""

from codecnn.base.compiled import compiled
from codecnn.base.records import Records, copy_record, fill_record
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin
from codecnn.vvc.syntax.coding_unit import coding_unit
from codecnn.vvc.syntax.neighbours import above_available, above_of, cell, left_available, left_of
from codecnn.vvc.syntax.records import MAX_NODES
from codecnn.vvc.syntax.state import Work
from codecnn.vvc.syntax.transform import start_group
from codecnn.vvc.syntax.unit_rows import append_row


@compiled
def coding_tree_of_ctu(w: Work, rows: Records) -> None:
    """Parse the coding tree or trees of the current CTU, up to the end or to a fault.

    Clause 7.3.11.4, Coding tree syntax.
    Part of clause 7.3.11.2, Coding tree unit syntax.

    Args:
        w: State of the parser.
        rows: Coding units of type `unit_rows.UNIT_ROW`, shape (n,), filled from `current.num_units` on.
    """
    s = w.state
    node = s.node
    fill_record(node, 0)
    node.x, node.y = s.current.x_ctb, s.current.y_ctb
    node.width = node.height = 1 << s.slice.ctb_log2_size_y
    node.qg_on_y = node.qg_on_c = 1
    node.tree = st.IMPLICIT if s.slice.sps_qtbtt_dual_tree_intra_flag and s.slice.is_i else st.SINGLE
    push(w, 0)
    count = 1
    while count > 0 and not s.fault:
        count -= 1
        pop(w, count)
        start_groups(w)
        split = st.QT
        if node.tree != st.IMPLICIT:
            split = decode_split(w)
        elif node.width <= 64:
            count = push_trees(w, count)
            continue
        if split != st.NO_SPLIT:
            count = push_split(w, count, split)
        elif not s.fault:
            coding_unit(w)
            append_row(w, rows)


@compiled
def push(w: Work, count: int) -> None:
    """Push the current node on the stack of `count` nodes."""
    copy_record(w.state.nodes[count], w.state.node)


@compiled
def pop(w: Work, count: int) -> None:
    """Take the node at place `count` of the stack as the current one."""
    copy_record(w.state.node, w.state.nodes[count])


@compiled
def start_groups(w: Work) -> None:
    """Begin the quantization groups, of luma QPs and of chroma QP offsets, that the current node is.

    Part of clause 7.3.11.4, Coding tree syntax.
    """
    s = w.state
    node = s.node
    if s.slice.pps_cu_qp_delta_enabled_flag and node.qg_on_y and node.cb_subdiv <= s.slice.cu_qp_delta_subdiv:
        start_group(w)
    chroma_offsets = s.slice.sh_cu_chroma_qp_offset_enabled_flag and node.qg_on_c
    if chroma_offsets and node.cb_subdiv <= s.slice.cu_chroma_qp_offset_subdiv:
        s.qg.is_cu_chroma_qp_offset_coded = s.qg.chroma_qp_offset_idx = 0


@compiled
def push_trees(w: Work, count: int) -> int:
    """Push the separate trees of luma and chroma of a block of at most 64x64.

    Part of clause 7.3.11.2, Coding tree unit syntax.
    """
    node = w.state.node
    node.tree, node.qg_on_y, node.qg_on_c = st.DUAL_CHROMA, 0, 1
    push(w, count)
    node.tree, node.qg_on_y, node.qg_on_c = st.DUAL_LUMA, 1, 0
    push(w, count + 1)
    return count + 2


@compiled
def push_split(w: Work, count: int, split: int) -> int:
    """Push the parts of the current node, the first on top.

    Part of clause 7.3.11.4, Coding tree syntax.

    Below them goes the chroma block of a local dual tree.
    """
    s = w.state
    node = s.node
    if count + 5 > MAX_NODES:
        s.fault = st.FAULT_SPLIT
        return count
    mode = mode_type_of_parts(w, split)
    if split != st.QT:
        remember_split(w, split)
    if node.mode_type == st.MODE_ALL and mode == st.MODE_INTRA_ONLY:
        # The chroma blocks of the parts would be too small, so all parts share one chroma block, which follows them. It
        # differs from the node in these numbers, which are then reset for the luma parts.
        qg_luma, offset = node.qg_on_y, node.depth_offset
        node.tree, node.mode_type, node.qg_on_y = st.DUAL_CHROMA, mode, 0
        node.depth_offset, node.part_idx, node.parent_split = 0, 0, split
        push(w, count)
        count += 1
        node.tree, node.qg_on_y, node.depth_offset = st.DUAL_LUMA, qg_luma, offset
    node.mode_type = mode
    return push_parts(w, count, split)


@compiled
def push_parts(w: Work, count: int, split: int) -> int:
    """Push the parts of the current node that begin inside the picture, the last part first.

    Part of clause 7.3.11.4, Coding tree syntax.
    """
    s = w.state
    node = s.node
    x, y, width, height = node.x, node.y, node.width, node.height
    subdiv = node.cb_subdiv
    ternary = split == st.TT_HOR or split == st.TT_VER
    vertical = split == st.BT_VER or split == st.TT_VER
    if ternary:
        node.qg_on_y = int(node.qg_on_y and subdiv + 2 <= s.slice.cu_qp_delta_subdiv)
        node.qg_on_c = int(node.qg_on_c and subdiv + 2 <= s.slice.cu_chroma_qp_offset_subdiv)
    if split == st.QT:
        node.cqt_depth += 1
        node.mtt_depth = node.depth_offset = 0
    else:
        node.mtt_depth += 1
    # Splits that the edge of the picture forces do not count towards the largest depth.
    if (split == st.BT_VER and x + width > s.slice.pic_width) or (
        split == st.BT_HOR and y + height > s.slice.pic_height
    ):
        node.depth_offset += 1
    node.parent_split = split
    parts = 4 if split == st.QT else 3 if ternary else 2
    for part in range(parts - 1, -1, -1):
        node.part_idx = part
        # A ternary split gives a quarter, a half and a quarter; the others halve one side or, for a quadtree, both.
        quarter = ternary and part != 1
        node.cb_subdiv = subdiv + (2 if quarter or split == st.QT else 1)
        if split == st.QT:
            node.x, node.width = x + (part & 1) * (width // 2), width // 2
            node.y, node.height = y + (part >> 1) * (height // 2), height // 2
        elif vertical:
            node.x, node.width = x + part_offset(part, ternary, width), width // (4 if quarter else 2)
        else:
            node.y, node.height = y + part_offset(part, ternary, height), height // (4 if quarter else 2)
        if node.x < s.slice.pic_width and node.y < s.slice.pic_height:
            push(w, count)
            count += 1
    return count


@compiled
def part_offset(part: int, ternary: bool, size: int) -> int:
    """Return the position of a part in a binary (1/2, 1/2) or ternary (1/4, 1/2, 1/4) split of `size` samples.

    Part of clause 7.3.11.4, Coding tree syntax.
    """
    if not ternary:
        return part * (size // 2)
    return (0, size // 4, size // 4 * 3)[part]


@compiled
def remember_split(w: Work, split: int) -> None:
    """Store MttSplitMode of the first two MTT levels at corners of 32x32 blocks, for `cclm_enabled`.

    Part of clause 7.4.12.4, Coding tree semantics.
    """
    node = w.state.node
    x, y = node.x, node.y
    if x % 32 == 0 and y % 32 == 0 and node.mtt_depth <= 1:
        cell(w, x, y).mtt_split_mode[node.mtt_depth] = split


@compiled
def mode_type_of_parts(w: Work, split: int) -> int:
    """Derive modeType of the parts (ModeTypeCondition).

    Part of clause 7.4.12.4, Coding tree semantics.

    Small chroma blocks must not be predicted by inter prediction.
    """
    s = w.state
    node = s.node
    mode: int = node.mode_type
    chroma_format = s.slice.sps_chroma_format_idc
    if mode != st.MODE_ALL or chroma_format == 0 or chroma_format == 3:
        return mode
    if s.slice.is_i and s.slice.sps_qtbtt_dual_tree_intra_flag:
        return mode
    area = node.width * node.height
    binary = split == st.BT_HOR or split == st.BT_VER
    ternary = split == st.TT_HOR or split == st.TT_VER
    if (area == 64 and (split == st.QT or ternary)) or (area == 32 and binary):
        return st.MODE_INTRA_ONLY
    small_420 = chroma_format == 1 and ((area == 64 and binary) or (area == 128 and ternary))
    narrow = (node.width == 8 and split == st.BT_VER) or (node.width == 16 and split == st.TT_VER)
    if not small_420 and not narrow:
        return mode
    if s.slice.is_i:
        return st.MODE_INTRA_ONLY
    left, above = left_of(w, node.x, node.y), above_of(w, node.x, node.y)
    inc = int(left.cu_pred_mode[0] == st.MODE_INTRA or above.cu_pred_mode[0] == st.MODE_INTRA)
    intra = decode_bin(w, c.NON_INTER_FLAG + inc)
    return st.MODE_INTRA_ONLY if intra else st.MODE_INTER_ONLY


@compiled
def quad_allowed(w: Work) -> bool:
    """Return True if a quadtree split of the current node is allowed.

    Clause 6.4.1, Allowed quad split process.
    """
    s = w.state
    node = s.node
    ch_type = int(node.tree == st.DUAL_CHROMA)
    if node.width <= s.slice.min_qt_size[ch_type] or node.mtt_depth > 0:
        return False
    return not ch_type or (node.width >> s.slice.log2_sub_width_c > 4 and node.mode_type != st.MODE_INTRA_ONLY)


@compiled
def binary_allowed(w: Work, vertical: bool) -> bool:
    """Return True if a binary split of the current node is allowed.

    Clause 6.4.2, Allowed binary split process.
    """
    s = w.state
    node = s.node
    x, y, width, height = node.x, node.y, node.width, node.height
    ch_type = int(node.tree == st.DUAL_CHROMA)
    largest = s.slice.max_bt_size[ch_type]
    depth = s.slice.max_mtt_depth[ch_type] + node.depth_offset
    size = width if vertical else height
    if size <= 1 << s.slice.min_cb_log2_size_y or max(width, height) > largest or node.mtt_depth >= depth:
        return False
    if ch_type:
        width_c = width >> s.slice.log2_sub_width_c
        # To limit the cost of small blocks, a chroma tree has none below 16 samples and none 2 samples wide.
        if width_c * (height >> s.slice.log2_sub_height_c) <= 16 or (vertical and width_c == 4):
            return False
        if node.mode_type == st.MODE_INTRA_ONLY:
            return False
    # The split would give inter blocks of 4x4, which VVC does not have.
    if width * height == 32 and node.mode_type == st.MODE_INTER_ONLY:
        return False
    # A node that reaches past the picture is split along the edge it crosses, until each part is inside or outside.
    past_right, past_bottom = x + width > s.slice.pic_width, y + height > s.slice.pic_height
    if vertical and (past_bottom or (height > 64 and past_right)):
        return False
    if not vertical and ((width > 64 and past_bottom) or (past_right and not past_bottom)):
        return False
    if past_right and past_bottom and width > s.slice.min_qt_size[ch_type]:
        return False
    # Halving the middle part of a ternary split in the same direction gives quarters, as two binary splits do.
    parallel = st.TT_VER if vertical else st.TT_HOR
    if node.mtt_depth > 0 and node.part_idx == 1 and node.parent_split == parallel:
        return False
    # Decoders work in units of 64x64 (VPDUs): no block may lie across two of them.
    return not ((width <= 64 and height > 64) if vertical else (width > 64 and height <= 64))


@compiled
def ternary_allowed(w: Work, vertical: bool) -> bool:
    """Return True if a ternary split of the current node is allowed.

    Clause 6.4.3, Allowed ternary split process.
    """
    s = w.state
    node = s.node
    width, height = node.width, node.height
    ch_type = int(node.tree == st.DUAL_CHROMA)
    largest = min(64, s.slice.max_tt_size[ch_type])
    depth = s.slice.max_mtt_depth[ch_type] + node.depth_offset
    size = width if vertical else height
    if size <= 2 << s.slice.min_cb_log2_size_y or max(width, height) > largest or node.mtt_depth >= depth:
        return False
    if node.x + width > s.slice.pic_width or node.y + height > s.slice.pic_height:
        return False
    if ch_type:
        width_c = width >> s.slice.log2_sub_width_c
        if width_c * (height >> s.slice.log2_sub_height_c) <= 32 or (vertical and width_c == 8):
            return False
        if node.mode_type == st.MODE_INTRA_ONLY:
            return False
    return not (width * height == 64 and node.mode_type == st.MODE_INTER_ONLY)


@compiled
def decode_split(w: Work) -> int:
    """Decode split_cu_flag and the elements after it for the current node.

    Part of clause 7.3.11.4, Coding tree syntax.
    Part of clause 7.4.12.4, Coding tree semantics.

    FAULT_SPLIT is set if the node reaches past the picture and no split is allowed, which only damage causes.

    Returns:
        NO_SPLIT, QT, BT_HOR, BT_VER, TT_HOR or TT_VER.
    """
    s = w.state
    node = s.node
    qt = quad_allowed(w)
    bth, btv = binary_allowed(w, False), binary_allowed(w, True)
    tth, ttv = ternary_allowed(w, False), ternary_allowed(w, True)
    mtt = bth or btv or tth or ttv
    # At the edge of the picture a split is forced, and the stream has no split_cu_flag.
    inside = node.x + node.width <= s.slice.pic_width and node.y + node.height <= s.slice.pic_height
    if inside:
        if not (qt or mtt) or not decode_split_cu_flag(w, int(bth) + btv + tth + ttv + 2 * qt):
            return st.NO_SPLIT
    elif not (qt or mtt) and (node.width != node.height or node.width <= 1 << s.slice.min_cb_log2_size_y):
        s.fault = st.FAULT_SPLIT
        return st.NO_SPLIT
    if not mtt or (qt and decode_split_qt_flag(w)):
        return st.QT
    vertical = btv or ttv
    if vertical and (bth or tth):
        vertical = decode_vertical_flag(w, int(btv) + ttv, int(bth) + tth)
    bt, tt = (btv, ttv) if vertical else (bth, tth)
    binary = bt
    if bt and tt:
        inc = 2 * int(vertical) + int(node.mtt_depth <= 1)
        binary = decode_bin(w, c.MTT_SPLIT_CU_BINARY_FLAG + inc) == 1
    if vertical:
        return st.BT_VER if binary else st.TT_VER
    return st.BT_HOR if binary else st.TT_HOR


@compiled
def decode_split_cu_flag(w: Work, choices: int) -> bool:
    """Decode split_cu_flag.

    Part of clause 9.3.4.2.2, Derivation process of ctxInc using left and above syntax elements.

    The context depends on the number of neighbours that are smaller than this block, and on the number of `choices`.
    """
    node = w.state.node
    x, y = node.x, node.y
    ch_type = int(node.tree == st.DUAL_CHROMA)
    inc = int(left_of(w, x, y).cb_height[ch_type] < node.height)
    inc += int(above_of(w, x, y).cb_width[ch_type] < node.width)
    return decode_bin(w, c.SPLIT_CU_FLAG + inc + 3 * ((choices - 1) // 2)) == 1


@compiled
def decode_split_qt_flag(w: Work) -> bool:
    """Decode split_qt_flag.

    Part of clause 9.3.4.2.2, Derivation process of ctxInc using left and above syntax elements.
    """
    node = w.state.node
    x, y, depth = node.x, node.y, node.cqt_depth
    ch_type = int(node.tree == st.DUAL_CHROMA)
    inc = int(left_of(w, x, y).cqt_depth[ch_type] > depth) + int(above_of(w, x, y).cqt_depth[ch_type] > depth)
    return decode_bin(w, c.SPLIT_QT_FLAG + inc + (3 if depth >= 2 else 0)) == 1


@compiled
def decode_vertical_flag(w: Work, vertical: int, horizontal: int) -> bool:
    """Decode mtt_split_cu_vertical_flag.

    Clause 9.3.4.2.3, Derivation process of ctxInc for the syntax element mtt_split_cu_vertical_flag.
    """
    node = w.state.node
    x, y = node.x, node.y
    ch_type = int(node.tree == st.DUAL_CHROMA)
    inc = 0
    if vertical > horizontal:
        inc = 4
    elif vertical < horizontal:
        inc = 3
    elif left_available(w, x) and above_available(w, y):
        above = node.width // max(1, above_of(w, x, y).cb_width[ch_type])
        left = node.height // max(1, left_of(w, x, y).cb_height[ch_type])
        inc = 1 if above < left else 2 if above > left else 0
    return decode_bin(w, c.MTT_SPLIT_CU_VERTICAL_FLAG + inc) == 1
