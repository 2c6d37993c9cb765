"""Parameters of the in-loop filters of a CTU: SAO, ALF and cross-component ALF (H.266 clauses 7.3.11.2, 7.3.11.3)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_binary, truncated_unary
from codecnn.vvc.syntax.state import CtbMaps, Work


@compiled
def sao(w: Work, ctbs: CtbMaps, x: int, y: int) -> None:
    """Parse the SAO syntax of a CTU.

    Args:
        w: State of the parser.
        ctbs: Maps of the picture in CTUs, shape (CTB_MAPS, rows, columns), int32.
        x: Column of the CTU.
        y: Row of the CTU.
    """
    n = w.n
    if not (n[st.SAO_LUMA] or n[st.SAO_CHROMA]):
        return
    if n[st.LEFT_AVAILABLE] and decode_bin(w, c.SAO_MERGE_FLAG):
        for plane in range(st.CTB_SAO, st.CTB_SAO + 3 * st.SAO_NUMBERS):
            ctbs[plane, y, x] = ctbs[plane, y, x - 1]
        return
    if n[st.TOP_AVAILABLE] and decode_bin(w, c.SAO_MERGE_FLAG):
        for plane in range(st.CTB_SAO, st.CTB_SAO + 3 * st.SAO_NUMBERS):
            ctbs[plane, y, x] = ctbs[plane, y - 1, x]
        return
    for component in range(3):
        if n[st.SAO_CHROMA] if component else n[st.SAO_LUMA]:
            sao_of_component(w, ctbs, x, y, component)


@compiled
def sao_of_component(w: Work, ctbs: CtbMaps, x: int, y: int, component: int) -> None:
    """Parse SAO of one component; Cr has the type and the edge class of Cb."""
    plane = st.CTB_SAO + st.SAO_NUMBERS * component
    if component < 2:
        kind = 0
        if decode_bin(w, c.SAO_TYPE_IDX):
            kind = 1 + decode_bypass(w)
    else:
        kind = ctbs[plane - st.SAO_NUMBERS + st.SAO_TYPE, y, x]
    ctbs[plane + st.SAO_TYPE, y, x] = kind
    if kind == 0:
        return
    depth = w.n[st.BIT_DEPTH]
    top = (1 << (min(depth, 10) - 5)) - 1
    shift = max(0, depth - 10)
    first = plane + st.SAO_OFFSETS
    for i in range(4):
        ctbs[first + i, y, x] = truncated_unary(w, top) << shift
    if kind == 1:
        for i in range(4):
            if ctbs[first + i, y, x] and decode_bypass(w):
                ctbs[first + i, y, x] = -ctbs[first + i, y, x]
        ctbs[plane + st.SAO_CLASS, y, x] = decode_bypass_bits(w, 5)
        return
    # Edge offsets raise the first two categories and lower the last two.
    ctbs[first + 2, y, x] = -ctbs[first + 2, y, x]
    ctbs[first + 3, y, x] = -ctbs[first + 3, y, x]
    if component < 2:
        ctbs[plane + st.SAO_CLASS, y, x] = decode_bypass_bits(w, 2)
    else:
        ctbs[plane + st.SAO_CLASS, y, x] = ctbs[plane - st.SAO_NUMBERS + st.SAO_CLASS, y, x]


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
        ctbs[st.CTB_ALF, y, x] = 1 + alf_luma_filter(w) if used else 0
        for i in range(1, 3):
            if n[st.ALF_CB] if i == 1 else n[st.ALF_CR]:
                used = decode_bin(w, c.ALF_CTB_FLAG + 3 * i + alf_context(w, ctbs, st.CTB_ALF + i, x, y))
                alternative = 0
                while used and alternative < n[st.ALF_CHROMA_FILTERS] - 1:
                    if not decode_bin(w, c.ALF_CTB_FILTER_ALT_IDX + i - 1):
                        break
                    alternative += 1
                ctbs[st.CTB_ALF + i, y, x] = 1 + alternative if used else 0
    if not n[st.CHROMA]:
        return
    for i in range(2):
        filters = n[st.CC_CB_FILTERS] if i == 0 else n[st.CC_CR_FILTERS]
        if filters:
            first = c.ALF_CTB_CC_CB_IDC if i == 0 else c.ALF_CTB_CC_CR_IDC
            used = decode_bin(w, first + alf_context(w, ctbs, st.CTB_CC + i, x, y))
            ctbs[st.CTB_CC + i, y, x] = 1 + truncated_unary(w, filters - 1) if used else 0


@compiled
def alf_luma_filter(w: Work) -> int:
    """Parse AlfCtbFiltSetIdxY: one of the 16 fixed filter sets or, from 16 on, that of an APS."""
    sets = w.n[st.ALF_APS_LUMA]
    if sets > 0 and decode_bin(w, c.ALF_USE_APS_FLAG):
        return 16 + (truncated_binary(w, sets - 1) if sets > 1 else 0)
    return decode_bypass_bits(w, 4)
