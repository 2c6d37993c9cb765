"""Transform trees and units (H.266 clauses 7.3.11.9, 7.3.11.10) and QPs of quantization groups (7.4.12.10, 8.7.1)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_unary
from codecnn.vvc.syntax.log import begin_transform_unit, keep_block
from codecnn.vvc.syntax.neighbours import peek
from codecnn.vvc.syntax.residual import residual_coding
from codecnn.vvc.syntax.residual_ts import residual_ts_coding
from codecnn.vvc.syntax.state import Work


@compiled
def log2(value: int) -> int:
    """Return the exponent of a power of two; of another positive number, the exponent rounded down."""
    exponent = 0
    while value >> (exponent + 1):
        exponent += 1
    return exponent


@compiled
def isp_parts(w: Work) -> int:
    """Return NumIntraSubPartitions (clause 7.4.12.5)."""
    n = w.n
    if n[st.ISP_SPLIT] == st.ISP_NONE:
        return 1
    return 2 if n[st.W] * n[st.H] == 32 else 4


@compiled
def transform_tree(w: Work) -> None:
    """Parse the transform tree of the current coding unit: its transform units in order."""
    n = w.n
    width, height = n[st.W], n[st.H]
    n[st.INFER_CBF] = 1
    parts = isp_parts(w)
    if parts > 1:
        if n[st.ISP_SPLIT] == st.ISP_HOR:
            height //= parts
        else:
            width //= parts
        for i in range(parts):
            down, right = (i * height, 0) if n[st.ISP_SPLIT] == st.ISP_HOR else (0, i * width)
            transform_unit(w, n[st.X] + right, n[st.Y] + down, width, height, i, parts)
    elif n[st.SBT_FLAG]:
        whole = height if n[st.SBT_HORIZONTAL] else width
        first = whole // 4 if n[st.SBT_QUAD] else whole // 2
        if n[st.SBT_POS]:
            first = whole - first
        for i in range(2):
            size = first if i == 0 else whole - first
            unit_w, unit_h = (width, size) if n[st.SBT_HORIZONTAL] else (size, height)
            down, right = (i * first, 0) if n[st.SBT_HORIZONTAL] else (0, i * first)
            transform_unit(w, n[st.X] + right, n[st.Y] + down, unit_w, unit_h, i, parts)
    else:
        # Splitting the longer side repeatedly gives units of equal size in z-order.
        unit_w, unit_h = min(width, n[st.MAX_TB]), min(height, n[st.MAX_TB])
        across, down = width // unit_w, height // unit_h
        for i in range(across * down):
            column, row = z_order(i, across, down)
            transform_unit(w, n[st.X] + column * unit_w, n[st.Y] + row * unit_h, unit_w, unit_h, parts - 1, parts)


@compiled
def z_order(index: int, across: int, down: int) -> tuple[int, int]:
    """Return column and row of place `index` in the z-order of a grid whose sides are powers of two."""
    column = row = 0
    step = 1
    while step < across or step < down:
        if step < across:
            column += (index & 1) * step
            index >>= 1
        if step < down:
            row += (index & 1) * step
            index >>= 1
        step *= 2
    return column, row


@compiled
def transform_unit(w: Work, x: int, y: int, width: int, height: int, index: int, parts: int) -> None:
    """Parse transform unit `index` of `parts`, of width x height luma samples at (x, y)."""
    n = w.n
    isp = n[st.ISP_SPLIT] != st.ISP_NONE
    last_part = index == parts - 1
    uncoded = n[st.SBT_FLAG] == 1 and (index == 0) == (n[st.SBT_POS] == 1)
    has_chroma = n[st.TREE] != st.DUAL_LUMA and n[st.CHROMA] != 0 and (not isp or last_part)
    # Chroma is not divided into sub-partitions (ISP): its block comes with the last of them.
    cb = cr = luma = 0
    if has_chroma and not uncoded:
        cb = decode_bin(w, c.TU_CB_CODED_FLAG + n[st.BDPCM_CHROMA])
        cr = decode_bin(w, c.TU_CR_CODED_FLAG + (2 if n[st.BDPCM_CHROMA] else cb))
    large = n[st.W] > 64 or n[st.H] > 64
    if n[st.TREE] != st.DUAL_CHROMA:
        luma = luma_coded(w, isp, last_part, uncoded, cb + cr > 0)
        if (large or luma or cb or cr) and n[st.QP_DELTA] and not n[st.QP_CODED]:
            decode_qp_delta(w)
    if n[st.TREE] != st.DUAL_LUMA and (large or cb or cr) and n[st.CHROMA_QP_OFFSET] and not n[st.CHROMA_QP_CODED]:
        decode_chroma_qp_offset(w)
    joint = 0
    if n[st.JOINT_CBCR] and ((n[st.PRED_MODE] == st.MODE_INTRA and (cb or cr)) or (cb and cr)):
        joint = decode_bin(w, c.TU_JOINT_CBCR_RESIDUAL_FLAG + 2 * cb + cr - 1)
    n[st.CBF_ANY] |= luma + 2 * cb + 4 * cr
    if joint:
        n[st.JOINT_ANY] = max(n[st.JOINT_ANY], 2 * cb + cr)
    if isp and has_chroma:
        width_c, height_c = n[st.W] >> n[st.SUB_WIDTH], n[st.H] >> n[st.SUB_HEIGHT]
    else:
        width_c, height_c = width >> n[st.SUB_WIDTH], height >> n[st.SUB_HEIGHT]
    unit = begin_transform_unit(w, x, y, width, height, has_chroma, luma + 2 * cb + 4 * cr, joint) if n[st.KEEP] else 0
    for component in range(3):
        before = n[st.LOG]
        skip = 0
        if component == 0 and luma:
            skip = n[st.TS_LUMA] = transform_block(w, width, height, component, not isp)
        elif (component == 1 and cb) or (component == 2 and cr and not (cb and joint)):
            skip = transform_block(w, width_c, height_c, component, n[st.TREE] != st.DUAL_LUMA)
        if n[st.KEEP]:
            keep_block(w, unit, component, skip, n[st.LOG] - before)


@compiled
def luma_coded(w: Work, isp: bool, last_part: bool, uncoded: bool, chroma_coded: bool) -> int:
    """Decode or infer tu_y_coded_flag (clause 7.4.12.10)."""
    n = w.n
    if uncoded:
        return 0
    # A unit with sub-partitions codes at least one: if all before are not coded, the last is, and has no flag.
    if isp:
        present = not last_part or n[st.INFER_CBF] == 0
    else:
        beyond = n[st.W] > n[st.MAX_TB] or n[st.H] > n[st.MAX_TB]
        present = (n[st.PRED_MODE] == st.MODE_INTRA and not n[st.ACT_FLAG]) or chroma_coded or beyond
    coded = 1
    if present:
        inc = 0
        if n[st.BDPCM_LUMA]:
            inc = 1
        elif isp:
            inc = 2 + n[st.PREVIOUS_CBF]
        coded = decode_bin(w, c.TU_Y_CODED_FLAG + inc)
        n[st.PREVIOUS_CBF] = coded
    if isp and coded:
        n[st.INFER_CBF] = 0
    return coded


@compiled
def transform_block(w: Work, width: int, height: int, component: int, may_skip: bool) -> int:
    """Decode transform_skip_flag and the residual of one coded transform block; return the flag."""
    n = w.n
    bdpcm = n[st.BDPCM_CHROMA] if component else n[st.BDPCM_LUMA]
    skip: int = bdpcm
    if n[st.TRANSFORM_SKIP] and may_skip and not bdpcm and not n[st.SBT_FLAG] and max(width, height) <= n[st.MAX_TS]:
        skip = decode_bin(w, c.TRANSFORM_SKIP_FLAG + (component > 0))
    if skip:
        n[st.TS_ANY] |= 1 << component
    if skip and not n[st.TS_RESIDUAL_OFF]:
        residual_ts_coding(w, log2(width), log2(height), bdpcm == 1)
    else:
        residual_coding(w, log2(width), log2(height), component, skip == 1)
    return skip


@compiled
def choose_kernels(w: Work) -> None:
    """Derive trTypeHor and trTypeVer of the unit's coded luma blocks as KERNEL_H and KERNEL_V (clause 8.7.4.1).

    They stay DCT2 if no luma block is coded or the blocks skip the transform.
    """
    n = w.n
    if not n[st.MTS] or not n[st.CBF_ANY] & 1 or n[st.TS_ANY] & 1 or n[st.LFNST_IDX]:
        return
    width, height, parts = n[st.W], n[st.H], isp_parts(w)
    explicit = n[st.MTS_INTRA] == 1 or n[st.MIP_FLAG] == 1 or n[st.PRED_MODE] != st.MODE_INTRA
    if n[st.SBT_FLAG]:
        part = 4 if n[st.SBT_QUAD] else 2
        across, down = (1, part) if n[st.SBT_HORIZONTAL] else (part, 1)
        if max(width // across, height // down) <= 32:
            first = st.DST7 if n[st.SBT_POS] else st.DCT8
            n[st.KERNEL_H], n[st.KERNEL_V] = (st.DST7, first) if n[st.SBT_HORIZONTAL] else (first, st.DST7)
    elif parts > 1 or not explicit:
        if n[st.ISP_SPLIT] == st.ISP_HOR:
            height //= parts
        elif n[st.ISP_SPLIT] == st.ISP_VER:
            width //= parts
        n[st.KERNEL_H] = st.DST7 if 4 <= width <= 16 else st.DCT2
        n[st.KERNEL_V] = st.DST7 if 4 <= height <= 16 else st.DCT2
    elif n[st.MTS_IDX]:
        n[st.KERNEL_H] = st.DST7 + ((n[st.MTS_IDX] - 1) & 1)
        n[st.KERNEL_V] = st.DST7 + ((n[st.MTS_IDX] - 1) >> 1)


@compiled
def start_group(w: Work) -> None:
    """Begin a quantization group at the current node; its QP is predicted at its first coding unit."""
    n = w.n
    n[st.QG_X], n[st.QG_Y], n[st.QG_NEW], n[st.QP_CODED] = n[st.X], n[st.Y], 1, 0


@compiled
def predict_qp(w: Work) -> None:
    """Set QP_Y to qPY_PRED if a quantization group has just begun (clause 8.7.1)."""
    n = w.n
    if not n[st.QG_NEW]:
        return
    n[st.QG_NEW] = 0
    x, y = n[st.QG_X], n[st.QG_Y]
    row_first, n[st.QG_ROW_FIRST] = n[st.QG_ROW_FIRST], 0
    # qPY_PREV is the QP of the last coding unit in decoding order, regardless of its position.
    previous = n[st.SLICE_QP] if n[st.QG_FIRST] else n[st.QP_Y]
    n[st.QG_FIRST] = 0
    if row_first and n[st.TOP_AVAILABLE]:
        n[st.QP_Y] = peek(w, st.CU_QP, x, y - 1)
        return
    left = peek(w, st.CU_QP, x - 1, y) if x > n[st.CTB_X] else previous
    above = peek(w, st.CU_QP, x, y - 1) if y > n[st.CTB_Y] else previous
    n[st.QP_Y] = (left + above + 1) >> 1


@compiled
def decode_qp_delta(w: Work) -> None:
    """Decode cu_qp_delta_abs and cu_qp_delta_sign_flag (clause 9.3.3.10) and update QP_Y."""
    n = w.n
    n[st.QP_CODED] = 1
    magnitude = 0
    while magnitude < 5 and decode_bin(w, c.CU_QP_DELTA_ABS + (magnitude > 0)):
        magnitude += 1
    if magnitude == 5:
        bits = truncated_unary(w, 7)
        magnitude += (1 << bits) - 1 + decode_bypass_bits(w, bits)
    offset = 6 * (n[st.BIT_DEPTH] - 8)
    if magnitude > 32 + offset // 2:
        n[st.FAULT] = st.FAULT_QP
        return
    if magnitude:
        delta = -magnitude if decode_bypass(w) else magnitude
        n[st.QP_Y] = (n[st.QP_Y] + delta + 64 + 2 * offset) % (64 + offset) - offset


@compiled
def decode_chroma_qp_offset(w: Work) -> None:
    """Decode cu_chroma_qp_offset_flag and cu_chroma_qp_offset_idx.

    CHROMA_QP_IDX is the index + 1, or 0 if the flag is 0.
    """
    n = w.n
    n[st.CHROMA_QP_CODED] = 1
    n[st.CHROMA_QP_IDX] = 0
    if decode_bin(w, c.CU_CHROMA_QP_OFFSET_FLAG):
        value = 0
        while value < n[st.CHROMA_QP_OFFSET_LIST] - 1 and decode_bin(w, c.CU_CHROMA_QP_OFFSET_IDX):
            value += 1
        n[st.CHROMA_QP_IDX] = value + 1
