"""Parameters of the in-loop filters of a CTU: SAO, ALF and cross-component ALF (H.266 clauses 7.3.11.2, 7.3.11.3)."""

from codecnn.vvc import contexts as c
from codecnn.vvc import state as st
from codecnn.vvc.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_binary, truncated_unary
from codecnn.vvc.jit import compiled
from codecnn.vvc.state import CtbMaps, Work


@compiled
def sao(w: Work) -> None:
    """Parse the SAO syntax of the current CTU; the values are not kept."""
    n = w.n
    if not (n[st.SAO_LUMA] or n[st.SAO_CHROMA]):
        return
    if n[st.LEFT_AVAILABLE] and decode_bin(w, c.SAO_MERGE_FLAG):
        return
    if n[st.TOP_AVAILABLE] and decode_bin(w, c.SAO_MERGE_FLAG):
        return
    if n[st.SAO_LUMA]:
        sao_offsets(w, sao_type(w), True)
    if n[st.SAO_CHROMA]:
        kind = sao_type(w)
        sao_offsets(w, kind, True)
        sao_offsets(w, kind, False)


@compiled
def sao_type(w: Work) -> int:
    """Decode sao_type_idx_luma or sao_type_idx_chroma: 0 off, 1 band offset, 2 edge offset."""
    if not decode_bin(w, c.SAO_TYPE_IDX):
        return 0
    return 1 + decode_bypass(w)


@compiled
def sao_offsets(w: Work, kind: int, has_class: bool) -> None:
    """Parse the offsets of one component; `has_class` is False for Cr, which takes its edge class from Cb."""
    if kind == 0:
        return
    top = (1 << (min(w.n[st.BIT_DEPTH], 10) - 5)) - 1
    signs = 0
    for _ in range(4):
        if truncated_unary(w, top):
            signs += 1
    if kind == 1:
        decode_bypass_bits(w, signs + 5)  # the signs, then sao_band_position
    elif has_class:
        decode_bypass_bits(w, 2)


@compiled
def alf_context(w: Work, ctbs: CtbMaps, plane: int, x: int, y: int) -> int:
    """Count the CTUs to the left and above whose value in `plane` is not 0 (clause 9.3.4.2.2)."""
    inc = 0
    if w.n[st.LEFT_AVAILABLE] and ctbs[plane, y, x - 1]:
        inc += 1
    if w.n[st.TOP_AVAILABLE] and ctbs[plane, y - 1, x]:
        inc += 1
    return inc


@compiled
def alf(w: Work, ctbs: CtbMaps, x: int, y: int) -> None:
    """Parse the ALF and CC-ALF syntax of a CTU.

    Args:
        w: State of the parser.
        ctbs: Maps of the picture in CTUs, shape (CTB_MAPS, rows, columns), int32.
        x: Column of the CTU.
        y: Row of the CTU.
    """
    n = w.n
    if n[st.ALF]:
        used = decode_bin(w, c.ALF_CTB_FLAG + alf_context(w, ctbs, st.CTB_ALF, x, y))
        ctbs[st.CTB_ALF, y, x] = used
        if used:
            alf_luma_filter(w)
        for i in range(1, 3):
            if n[st.ALF_CB] if i == 1 else n[st.ALF_CR]:
                used = decode_bin(w, c.ALF_CTB_FLAG + 3 * i + alf_context(w, ctbs, st.CTB_ALF + i, x, y))
                ctbs[st.CTB_ALF + i, y, x] = used
                alternative = 0
                while used and alternative < n[st.ALF_CHROMA_FILTERS] - 1:
                    if not decode_bin(w, c.ALF_CTB_FILTER_ALT_IDX + i - 1):
                        break
                    alternative += 1
    if not n[st.CHROMA]:
        return
    for i in range(2):
        filters = n[st.CC_CB_FILTERS] if i == 0 else n[st.CC_CR_FILTERS]
        if filters:
            first = c.ALF_CTB_CC_CB_IDC if i == 0 else c.ALF_CTB_CC_CR_IDC
            used = decode_bin(w, first + alf_context(w, ctbs, st.CTB_CC + i, x, y))
            ctbs[st.CTB_CC + i, y, x] = used
            if used:
                truncated_unary(w, filters - 1)


@compiled
def alf_luma_filter(w: Work) -> None:
    """Parse the index of the luma filter set: one of an APS or one of the 16 fixed ones."""
    sets = w.n[st.ALF_APS_LUMA]
    if sets > 0 and decode_bin(w, c.ALF_USE_APS_FLAG):
        if sets > 1:
            truncated_binary(w, sets - 1)
    else:
        decode_bypass_bits(w, 4)
