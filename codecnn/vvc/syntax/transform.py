"""Transform trees and units (H.266 clauses 7.3.11.9, 7.3.11.10) and QPs of quantization groups (7.4.12.10, 8.7.1)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_unary
from codecnn.vvc.syntax.log_writer import begin_transform_unit, keep_block
from codecnn.vvc.syntax.neighbours import cell
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
    """Return NumIntraSubPartitions.

    Part of clause 7.4.12.5, Coding unit semantics.
    """
    cu = w.state.cu
    if cu.isp_split_type == st.ISP_NONE:
        return 1
    return 2 if cu.width * cu.height == 32 else 4


@compiled
def transform_tree(w: Work) -> None:
    """Parse the transform tree of the current coding unit: its transform units in order.

    Clause 7.3.11.9, Transform tree syntax.
    """
    s = w.state
    cu = s.cu
    width, height = cu.width, cu.height
    cu.infer_tu_cbf_luma = 1
    parts = isp_parts(w)
    if parts > 1:
        if cu.isp_split_type == st.ISP_HOR:
            height //= parts
        else:
            width //= parts
        for i in range(parts):
            down, right = (i * height, 0) if cu.isp_split_type == st.ISP_HOR else (0, i * width)
            transform_unit(w, cu.x + right, cu.y + down, width, height, i, parts)
    elif cu.cu_sbt_flag:
        whole = height if cu.cu_sbt_horizontal_flag else width
        first = whole // 4 if cu.cu_sbt_quad_flag else whole // 2
        if cu.cu_sbt_pos_flag:
            first = whole - first
        for i in range(2):
            size = first if i == 0 else whole - first
            unit_w, unit_h = (width, size) if cu.cu_sbt_horizontal_flag else (size, height)
            down, right = (i * first, 0) if cu.cu_sbt_horizontal_flag else (0, i * first)
            transform_unit(w, cu.x + right, cu.y + down, unit_w, unit_h, i, parts)
    else:
        # Splitting the longer side repeatedly gives units of equal size in z-order.
        unit_w, unit_h = min(width, s.slice.max_tb_size_y), min(height, s.slice.max_tb_size_y)
        across, down = width // unit_w, height // unit_h
        for i in range(across * down):
            column, row = z_order(i, across, down)
            transform_unit(w, cu.x + column * unit_w, cu.y + row * unit_h, unit_w, unit_h, parts - 1, parts)


@compiled
def z_order(index: int, across: int, down: int) -> tuple[int, int]:
    """Return column and row of place `index` in the z-order of a grid whose sides are powers of two.

    Part of clause 7.3.11.9, Transform tree syntax.
    """
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
    """Parse transform unit `index` of `parts`, of width x height luma samples at (x, y).

    Clause 7.3.11.10, Transform unit syntax.
    """
    s = w.state
    cu = s.cu
    isp = cu.isp_split_type != st.ISP_NONE
    last_part = index == parts - 1
    uncoded = cu.cu_sbt_flag == 1 and (index == 0) == (cu.cu_sbt_pos_flag == 1)
    has_chroma = cu.tree != st.DUAL_LUMA and s.slice.sps_chroma_format_idc != 0 and (not isp or last_part)
    # Chroma is not divided into sub-partitions (ISP): its block comes with the last of them.
    cb = cr = luma = 0
    if has_chroma and not uncoded:
        cb = decode_bin(w, c.TU_CB_CODED_FLAG + cu.intra_bdpcm_chroma_flag)
        cr = decode_bin(w, c.TU_CR_CODED_FLAG + (2 if cu.intra_bdpcm_chroma_flag else cb))
    large = cu.width > 64 or cu.height > 64
    if cu.tree != st.DUAL_CHROMA:
        luma = luma_coded(w, isp, last_part, uncoded, cb + cr > 0)
        if (large or luma or cb or cr) and s.slice.pps_cu_qp_delta_enabled_flag and not s.qg.is_cu_qp_delta_coded:
            decode_qp_delta(w)
    may_offset = s.slice.sh_cu_chroma_qp_offset_enabled_flag and not s.qg.is_cu_chroma_qp_offset_coded
    if cu.tree != st.DUAL_LUMA and (large or cb or cr) and may_offset:
        decode_chroma_qp_offset(w)
    joint = 0
    if s.slice.sps_joint_cbcr_enabled_flag and ((cu.pred_mode == st.MODE_INTRA and (cb or cr)) or (cb and cr)):
        joint = decode_bin(w, c.TU_JOINT_CBCR_RESIDUAL_FLAG + 2 * cb + cr - 1)
    coded = luma + 2 * cb + 4 * cr
    cu.coded |= coded
    if joint:
        cu.joint = max(cu.joint, 2 * cb + cr)
    if isp and has_chroma:
        width_c, height_c = cu.width >> s.slice.log2_sub_width_c, cu.height >> s.slice.log2_sub_height_c
    else:
        width_c, height_c = width >> s.slice.log2_sub_width_c, height >> s.slice.log2_sub_height_c
    unit = begin_transform_unit(w, x, y, width, height, has_chroma, coded, joint) if s.current.keep_log else 0
    for component in range(3):
        before = s.current.log_at
        skip = 0
        if component == 0 and luma:
            skip = cu.luma_transform_skip = transform_block(w, width, height, component, not isp)
        elif (component == 1 and cb) or (component == 2 and cr and not (cb and joint)):
            skip = transform_block(w, width_c, height_c, component, cu.tree != st.DUAL_LUMA)
        if s.current.keep_log:
            keep_block(w, unit, component, skip, s.current.log_at - before)


@compiled
def luma_coded(w: Work, isp: bool, last_part: bool, uncoded: bool, chroma_coded: bool) -> int:
    """Decode or infer tu_y_coded_flag.

    Part of clause 7.3.11.10, Transform unit syntax.
    Part of clause 7.4.12.10, Transform unit semantics.
    """
    s = w.state
    cu = s.cu
    if uncoded:
        return 0
    # A unit with sub-partitions codes at least one: if all before are not coded, the last is, and has no flag.
    if isp:
        present = not last_part or cu.infer_tu_cbf_luma == 0
    else:
        beyond = cu.width > s.slice.max_tb_size_y or cu.height > s.slice.max_tb_size_y
        present = (cu.pred_mode == st.MODE_INTRA and not cu.cu_act_enabled_flag) or chroma_coded or beyond
    coded = 1
    if present:
        inc = 0
        if cu.intra_bdpcm_luma_flag:
            inc = 1
        elif isp:
            inc = 2 + cu.prev_tu_cbf_y
        coded = decode_bin(w, c.TU_Y_CODED_FLAG + inc)
        cu.prev_tu_cbf_y = coded
    if isp and coded:
        cu.infer_tu_cbf_luma = 0
    return coded


@compiled
def transform_block(w: Work, width: int, height: int, component: int, may_skip: bool) -> int:
    """Decode transform_skip_flag and the residual of one coded transform block; return the flag.

    Part of clause 7.3.11.10, Transform unit syntax.
    """
    s = w.state
    cu = s.cu
    bdpcm = cu.intra_bdpcm_chroma_flag if component else cu.intra_bdpcm_luma_flag
    skip: int = bdpcm
    small = max(width, height) <= s.slice.max_ts_size
    if s.slice.sps_transform_skip_enabled_flag and may_skip and not bdpcm and not cu.cu_sbt_flag and small:
        skip = decode_bin(w, c.TRANSFORM_SKIP_FLAG + (component > 0))
    if skip:
        cu.transform_skip |= 1 << component
    if skip and not s.slice.sh_ts_residual_coding_disabled_flag:
        residual_ts_coding(w, log2(width), log2(height), bdpcm == 1)
    else:
        residual_coding(w, log2(width), log2(height), component, skip == 1)
    return skip


@compiled
def choose_kernels(w: Work) -> None:
    """Derive trTypeHor and trTypeVer of the unit's coded luma blocks.

    Part of clause 8.7.4.1, Transformation process for scaled transform coefficients.

    They stay DCT2 if no luma block is coded or the blocks skip the transform.
    """
    s = w.state
    cu = s.cu
    if not s.slice.sps_mts_enabled_flag or not cu.coded & 1 or cu.transform_skip & 1 or cu.lfnst_idx:
        return
    width, height, parts = cu.width, cu.height, isp_parts(w)
    explicit = s.slice.sps_explicit_mts_intra_enabled_flag or cu.intra_mip_flag or cu.pred_mode != st.MODE_INTRA
    if cu.cu_sbt_flag:
        part = 4 if cu.cu_sbt_quad_flag else 2
        across, down = (1, part) if cu.cu_sbt_horizontal_flag else (part, 1)
        if max(width // across, height // down) <= 32:
            first = st.DST7 if cu.cu_sbt_pos_flag else st.DCT8
            cu.tr_type_hor, cu.tr_type_ver = (st.DST7, first) if cu.cu_sbt_horizontal_flag else (first, st.DST7)
    elif parts > 1 or not explicit:
        if cu.isp_split_type == st.ISP_HOR:
            height //= parts
        elif cu.isp_split_type == st.ISP_VER:
            width //= parts
        cu.tr_type_hor = st.DST7 if 4 <= width <= 16 else st.DCT2
        cu.tr_type_ver = st.DST7 if 4 <= height <= 16 else st.DCT2
    elif cu.mts_idx:
        cu.tr_type_hor = st.DST7 + ((cu.mts_idx - 1) & 1)
        cu.tr_type_ver = st.DST7 + ((cu.mts_idx - 1) >> 1)


@compiled
def start_group(w: Work) -> None:
    """Begin a quantization group at the current node; its QP is predicted at its first coding unit.

    Part of clause 7.3.11.4, Coding tree syntax.
    """
    s = w.state
    s.qg.x, s.qg.y, s.qg.begins, s.qg.is_cu_qp_delta_coded = s.node.x, s.node.y, 1, 0


@compiled
def predict_qp(w: Work) -> None:
    """Set QpY to qPY_PRED if a quantization group has just begun.

    Part of clause 8.7.1, Derivation process for quantization parameters.
    """
    s = w.state
    if not s.qg.begins:
        return
    s.qg.begins = 0
    x, y = s.qg.x, s.qg.y
    row_first, s.qg.first_in_ctb_row = s.qg.first_in_ctb_row, 0
    # qPY_PREV is the QP of the last coding unit in decoding order, regardless of its position.
    previous = s.slice.slice_qp_y if s.qg.first_in_substream else s.qg.qp_y
    s.qg.first_in_substream = 0
    if row_first and s.current.above_available:
        s.qg.qp_y = cell(w, x, y - 1).qp_y
        return
    left = cell(w, x - 1, y).qp_y if x > s.current.x_ctb else previous
    above = cell(w, x, y - 1).qp_y if y > s.current.y_ctb else previous
    s.qg.qp_y = (left + above + 1) >> 1


@compiled
def decode_qp_delta(w: Work) -> None:
    """Decode cu_qp_delta_abs and cu_qp_delta_sign_flag, and update QpY.

    Clause 9.3.3.10, Binarization process for cu_qp_delta_abs.
    Part of clause 7.3.11.10, Transform unit syntax.
    Part of clause 8.7.1, Derivation process for quantization parameters.
    """
    s = w.state
    s.qg.is_cu_qp_delta_coded = 1
    magnitude = 0
    while magnitude < 5 and decode_bin(w, c.CU_QP_DELTA_ABS + (magnitude > 0)):
        magnitude += 1
    if magnitude == 5:
        bits = truncated_unary(w, 7)
        magnitude += (1 << bits) - 1 + decode_bypass_bits(w, bits)
    offset = 6 * (s.slice.bit_depth - 8)
    delta = -magnitude if magnitude and decode_bypass(w) else magnitude
    # The range of CuQpDeltaVal (clause 7.4.12.10).
    if not -(32 + offset // 2) <= delta <= 31 + offset // 2:
        s.fault = st.FAULT_QP
        return
    if magnitude:
        s.qg.qp_y = (s.qg.qp_y + delta + 64 + 2 * offset) % (64 + offset) - offset


@compiled
def decode_chroma_qp_offset(w: Work) -> None:
    """Decode cu_chroma_qp_offset_flag and cu_chroma_qp_offset_idx.

    Part of clause 7.3.11.10, Transform unit syntax.
    """
    s = w.state
    s.qg.is_cu_chroma_qp_offset_coded = 1
    s.qg.chroma_qp_offset_idx = 0
    if decode_bin(w, c.CU_CHROMA_QP_OFFSET_FLAG):
        value = 0
        while value < s.slice.chroma_qp_offset_list_len - 1 and decode_bin(w, c.CU_CHROMA_QP_OFFSET_IDX):
            value += 1
        s.qg.chroma_qp_offset_idx = value + 1
