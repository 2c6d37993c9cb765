"""Transform trees and units (H.266 clauses 7.3.11.9 and 7.3.11.10)."""

from codecnn.vvc import contexts as c
from codecnn.vvc.cabac import decode_bin
from codecnn.vvc.compiled import compiled
from codecnn.vvc.quantization import decode_qp_delta
from codecnn.vvc.residual import residual_coding, residual_ts_coding
from codecnn.vvc.state import (
    BDPCM_CHROMA,
    BDPCM_LUMA,
    CBF_LUMA,
    CHROMA,
    CHROMA_QP_CODED,
    CHROMA_QP_OFFSET,
    CHROMA_QP_OFFSET_LIST,
    DUAL_CHROMA,
    DUAL_LUMA,
    INFER_CBF,
    ISP_HOR,
    ISP_NONE,
    ISP_SPLIT,
    JOINT_CBCR,
    MAX_TB,
    MAX_TS,
    MODE_INTRA,
    PRED_MODE,
    PREVIOUS_CBF,
    QP_CODED,
    QP_DELTA,
    SBT_FLAG,
    SBT_HORIZONTAL,
    SBT_POS,
    SBT_QUAD,
    SINGLE,
    SUB_HEIGHT,
    SUB_WIDTH,
    TRANSFORM_SKIP,
    TREE,
    TS_ANY,
    TS_LUMA,
    TS_RESIDUAL_OFF,
    H,
    W,
    Work,
)


@compiled
def log2(value: int) -> int:
    """The exponent of a power of two."""
    exponent = 0
    while value >> (exponent + 1):
        exponent += 1
    return exponent


@compiled
def isp_parts(w: Work) -> int:
    """NumIntraSubPartitions (clause 7.4.12.5)."""
    n = w.n
    if n[ISP_SPLIT] == ISP_NONE:
        return 1
    return 2 if n[W] * n[H] == 32 else 4


@compiled
def transform_tree(w: Work) -> None:
    """transform_tree() of the coding unit at hand: its transform units in order."""
    n = w.n
    width, height = n[W], n[H]
    n[INFER_CBF] = 1
    if n[ISP_SPLIT] != ISP_NONE:
        parts = isp_parts(w)
        for i in range(parts):
            if n[ISP_SPLIT] == ISP_HOR:
                transform_unit(w, width, height // parts, i, parts)
            else:
                transform_unit(w, width // parts, height, i, parts)
    elif n[SBT_FLAG]:
        whole = height if n[SBT_HORIZONTAL] else width
        first = whole // 4 if n[SBT_QUAD] else whole // 2
        if n[SBT_POS]:
            first = whole - first
        for i in range(2):
            size = first if i == 0 else whole - first
            if n[SBT_HORIZONTAL]:
                transform_unit(w, width, size, i, 1)
            else:
                transform_unit(w, size, height, i, 1)
    else:
        # Splitting the longer side again and again leaves equal units; only their number matters, not where they lie.
        unit_w, unit_h = min(width, n[MAX_TB]), min(height, n[MAX_TB])
        for _ in range((width // unit_w) * (height // unit_h)):
            transform_unit(w, unit_w, unit_h, 0, 1)


@compiled
def transform_unit(w: Work, width: int, height: int, index: int, parts: int) -> None:
    """transform_unit(): sub-unit `index` of `parts`, of width x height luma samples."""
    n = w.n
    isp = n[ISP_SPLIT] != ISP_NONE
    last_part = index == parts - 1
    uncoded = n[SBT_FLAG] == 1 and (index == 0) == (n[SBT_POS] == 1)
    has_chroma = n[TREE] != DUAL_LUMA and n[CHROMA] != 0 and (not isp or last_part)
    cb = cr = luma = 0
    if has_chroma and not uncoded:
        cb = decode_bin(w, c.TU_CB_CODED_FLAG + n[BDPCM_CHROMA])
        cr = decode_bin(w, c.TU_CR_CODED_FLAG + (2 if n[BDPCM_CHROMA] else cb))
    large = n[W] > 64 or n[H] > 64
    if n[TREE] != DUAL_CHROMA:
        luma = luma_coded(w, isp, last_part, uncoded, cb + cr > 0)
        if (large or luma or cb or cr) and n[QP_DELTA] and not n[QP_CODED]:
            decode_qp_delta(w)
    if n[TREE] != DUAL_LUMA and (large or cb or cr) and n[CHROMA_QP_OFFSET] and not n[CHROMA_QP_CODED]:
        decode_chroma_qp_offset(w)
    joint = 0
    if n[JOINT_CBCR] and ((n[PRED_MODE] == MODE_INTRA and (cb or cr)) or (cb and cr)):
        joint = decode_bin(w, c.TU_JOINT_CBCR_RESIDUAL_FLAG + 2 * cb + cr - 1)
    if luma:
        n[CBF_LUMA] = 1
        n[TS_LUMA] = transform_block(w, width, height, 0, not isp)
    if n[TREE] == SINGLE and isp:
        width, height = n[W], n[H]
    width_c, height_c = width >> n[SUB_WIDTH], height >> n[SUB_HEIGHT]
    if cb:
        transform_block(w, width_c, height_c, 1, True)
    if cr and not (cb and joint):
        transform_block(w, width_c, height_c, 2, True)


@compiled
def luma_coded(w: Work, isp: bool, last_part: bool, uncoded: bool, chroma_coded: bool) -> int:
    """tu_y_coded_flag, decoded or inferred (clause 7.4.12.10)."""
    n = w.n
    if uncoded:
        return 0
    if isp:
        present = not last_part or n[INFER_CBF] == 0
    else:
        beyond = n[W] > n[MAX_TB] or n[H] > n[MAX_TB]
        present = n[PRED_MODE] == MODE_INTRA or chroma_coded or beyond
    coded = 1
    if present:
        inc = 0
        if n[BDPCM_LUMA]:
            inc = 1
        elif isp:
            inc = 2 + n[PREVIOUS_CBF]
        coded = decode_bin(w, c.TU_Y_CODED_FLAG + inc)
        n[PREVIOUS_CBF] = coded
    if isp and coded:
        n[INFER_CBF] = 0
    return coded


@compiled
def decode_chroma_qp_offset(w: Work) -> None:
    """cu_chroma_qp_offset_flag and cu_chroma_qp_offset_idx; chroma QPs are not derived."""
    n = w.n
    n[CHROMA_QP_CODED] = 1
    if decode_bin(w, c.CU_CHROMA_QP_OFFSET_FLAG):
        value = 0
        while value < n[CHROMA_QP_OFFSET_LIST] - 1 and decode_bin(w, c.CU_CHROMA_QP_OFFSET_IDX):
            value += 1


@compiled
def transform_block(w: Work, width: int, height: int, component: int, may_skip: bool) -> int:
    """transform_skip_flag and the residual of one coded transform block: transform_skip_flag."""
    n = w.n
    bdpcm = n[BDPCM_CHROMA] if component else n[BDPCM_LUMA]
    skip = bdpcm
    if n[TRANSFORM_SKIP] and may_skip and not bdpcm and not n[SBT_FLAG] and max(width, height) <= n[MAX_TS]:
        skip = decode_bin(w, c.TRANSFORM_SKIP_FLAG + (component > 0))
    if skip:
        n[TS_ANY] = 1
    if skip and not n[TS_RESIDUAL_OFF]:
        residual_ts_coding(w, log2(width), log2(height), bdpcm == 1)
    else:
        residual_coding(w, log2(width), log2(height), component, skip == 1)
    return skip
