"""Quantization groups and luma QPs (H.266 clauses 7.4.12.10 and 8.7.1)."""

from codecnn.vvc import contexts as c
from codecnn.vvc.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_unary
from codecnn.vvc.compiled import compiled
from codecnn.vvc.neighbours import peek
from codecnn.vvc.state import (
    BIT_DEPTH,
    CTB_X,
    CTB_Y,
    CU_QP,
    FAULT,
    FAULT_QP,
    QG_FIRST,
    QG_NEW,
    QG_ROW_FIRST,
    QG_X,
    QG_Y,
    QP_CODED,
    QP_Y,
    SLICE_QP,
    TOP_AVAILABLE,
    Work,
)


@compiled
def start_group(w: Work, x: int, y: int) -> None:
    """A quantization group begins at (x, y): its QP is predicted when its first coding unit is parsed."""
    n = w.n
    n[QG_X], n[QG_Y], n[QG_NEW], n[QP_CODED] = x, y, 1, 0


@compiled
def predict_qp(w: Work) -> None:
    """Set QP_Y to qPY_PRED of a quantization group that has just begun (clause 8.7.1)."""
    n = w.n
    if not n[QG_NEW]:
        return
    n[QG_NEW] = 0
    x, y = n[QG_X], n[QG_Y]
    row_first, n[QG_ROW_FIRST] = n[QG_ROW_FIRST], 0
    previous = n[SLICE_QP] if n[QG_FIRST] else n[QP_Y]
    n[QG_FIRST] = 0
    if row_first and n[TOP_AVAILABLE]:
        n[QP_Y] = peek(w, CU_QP, x, y - 1)
        return
    left = peek(w, CU_QP, x - 1, y) if x > n[CTB_X] else previous
    above = peek(w, CU_QP, x, y - 1) if y > n[CTB_Y] else previous
    n[QP_Y] = (left + above + 1) >> 1


@compiled
def decode_qp_delta(w: Work) -> None:
    """cu_qp_delta_abs and cu_qp_delta_sign_flag (clause 9.3.3.10), and the QP that follows."""
    n = w.n
    n[QP_CODED] = 1
    magnitude = 0
    while magnitude < 5 and decode_bin(w, c.CU_QP_DELTA_ABS + (magnitude > 0)):
        magnitude += 1
    if magnitude == 5:
        bits = truncated_unary(w, 7)
        magnitude += (1 << bits) - 1 + decode_bypass_bits(w, bits)
    offset = 6 * (n[BIT_DEPTH] - 8)
    if magnitude > 32 + offset // 2:
        n[FAULT] = FAULT_QP
        return
    if magnitude:
        delta = -magnitude if decode_bypass(w) else magnitude
        n[QP_Y] = (n[QP_Y] + delta + 64 + 2 * offset) % (64 + offset) - offset
