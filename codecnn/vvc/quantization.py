"""Quantization groups and luma QPs (H.266 clauses 7.4.12.10 and 8.7.1)."""

from codecnn.vvc import contexts as c
from codecnn.vvc import state as st
from codecnn.vvc.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_unary
from codecnn.vvc.jit import compiled
from codecnn.vvc.neighbours import peek
from codecnn.vvc.state import Work


@compiled
def start_group(w: Work) -> None:
    """A quantization group begins with the node at hand: its QP is predicted when its first coding unit is parsed."""
    n = w.n
    n[st.QG_X], n[st.QG_Y], n[st.QG_NEW], n[st.QP_CODED] = n[st.X], n[st.Y], 1, 0


@compiled
def predict_qp(w: Work) -> None:
    """Set QP_Y to qPY_PRED of a quantization group that has just begun (clause 8.7.1)."""
    n = w.n
    if not n[st.QG_NEW]:
        return
    n[st.QG_NEW] = 0
    x, y = n[st.QG_X], n[st.QG_Y]
    row_first, n[st.QG_ROW_FIRST] = n[st.QG_ROW_FIRST], 0
    # qPY_PREV is the QP of the last coding unit in decoding order, wherever that lies.
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
    """cu_qp_delta_abs and cu_qp_delta_sign_flag (clause 9.3.3.10), and the QP that follows."""
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
    """cu_chroma_qp_offset_flag and cu_chroma_qp_offset_idx; CHROMA_QP_IDX is one more than the latter, 0 without."""
    n = w.n
    n[st.CHROMA_QP_CODED] = 1
    n[st.CHROMA_QP_IDX] = 0
    if decode_bin(w, c.CU_CHROMA_QP_OFFSET_FLAG):
        value = 0
        while value < n[st.CHROMA_QP_OFFSET_LIST] - 1 and decode_bin(w, c.CU_CHROMA_QP_OFFSET_IDX):
            value += 1
        n[st.CHROMA_QP_IDX] = value + 1
