"""Parameters of the in-loop filters of a CTU: SAO, ALF and cross-component ALF (H.266 clauses 7.3.11.2, 7.3.11.3)."""

from codecnn.base.compiled import compiled
from codecnn.base.records import Array, Records, copy_record
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_binary, truncated_unary
from codecnn.vvc.syntax.maps import CtbCell, SaoParameters
from codecnn.vvc.syntax.neighbours import int64
from codecnn.vvc.syntax.state import Work


@compiled
def sao(w: Work, ctbs: Records, x: int, y: int) -> None:
    """Parse the SAO syntax of a CTU.

    Clause 7.3.11.3, Sample adaptive offset syntax.

    Args:
        w: State of the parser.
        ctbs: CTUs of the picture, cells of type `maps.CTB_CELL`, shape (rows, columns).
        x: Column of the CTU.
        y: Row of the CTU.
    """
    s = w.state
    if not (s.slice.sh_sao_luma_used_flag or s.slice.sh_sao_chroma_used_flag):
        return
    ctb: CtbCell = ctbs[y, x]
    if s.current.left_available and decode_bin(w, c.SAO_MERGE_FLAG):
        copy_sao(ctb, ctbs[y, x - 1])
        return
    if s.current.above_available and decode_bin(w, c.SAO_MERGE_FLAG):
        copy_sao(ctb, ctbs[y - 1, x])
        return
    for component in range(3):
        if s.slice.sh_sao_chroma_used_flag if component else s.slice.sh_sao_luma_used_flag:
            sao_of_component(w, ctb.sao, component)


@compiled
def copy_sao(ctb: CtbCell, source: CtbCell) -> None:
    """Copy SAO of all components from another CTU.

    Part of clause 7.4.12.3, Sample adaptive offset semantics.
    """
    for component in range(3):
        copy_record(ctb.sao[component], source.sao[component])


@compiled
def sao_of_component(w: Work, parameters: Array[SaoParameters], component: int) -> None:
    """Parse SAO of one component; Cr has the type and the edge class of Cb.

    Part of clause 7.3.11.3, Sample adaptive offset syntax.
    """
    sao = parameters[component]
    if component < 2:
        kind = 0
        if decode_bin(w, c.SAO_TYPE_IDX):
            kind = 1 + decode_bypass(w)
    else:
        kind = int64(parameters[1].sao_type_idx)
    sao.sao_type_idx = kind
    if kind == 0:
        return
    depth = w.state.slice.bit_depth
    top = (1 << (min(depth, 10) - 5)) - 1
    shift = max(0, depth - 10)
    for i in range(4):
        sao.sao_offset_val[i] = truncated_unary(w, top) << shift
    if kind == 1:
        for i in range(4):
            if sao.sao_offset_val[i] and decode_bypass(w):
                sao.sao_offset_val[i] = -sao.sao_offset_val[i]
        sao.sao_class = decode_bypass_bits(w, 5)
        return
    # Edge offsets raise the first two categories and lower the last two.
    sao.sao_offset_val[2] = -sao.sao_offset_val[2]
    sao.sao_offset_val[3] = -sao.sao_offset_val[3]
    sao.sao_class = decode_bypass_bits(w, 2) if component < 2 else int64(parameters[1].sao_class)


@compiled
def alf(w: Work, ctbs: Records, x: int, y: int) -> None:
    """Parse the ALF and CC-ALF syntax of a CTU.

    Part of clause 7.3.11.2, Coding tree unit syntax.

    Args:
        w: State of the parser.
        ctbs: CTUs of the picture, cells of type `maps.CTB_CELL`, shape (rows, columns).
        x: Column of the CTU.
        y: Row of the CTU.
    """
    s = w.state
    ctb: CtbCell = ctbs[y, x]
    # The context depends on the number of neighbours that are filtered (clause 9.3.4.2.2).
    left: CtbCell = ctbs[y, x - 1 if s.current.left_available else x]
    above: CtbCell = ctbs[y - 1 if s.current.above_available else y, x]
    has_left, has_above = s.current.left_available == 1, s.current.above_available == 1
    if s.slice.sh_alf_enabled_flag:
        inc = int(has_left and left.alf[0] != 0) + int(has_above and above.alf[0] != 0)
        ctb.alf[0] = 1 + alf_luma_filter(w) if decode_bin(w, c.ALF_CTB_FLAG + inc) else 0
        for i in range(1, 3):
            if s.slice.sh_alf_cb_enabled_flag if i == 1 else s.slice.sh_alf_cr_enabled_flag:
                inc = int(has_left and left.alf[i] != 0) + int(has_above and above.alf[i] != 0)
                used = decode_bin(w, c.ALF_CTB_FLAG + 3 * i + inc)
                alternative = 0
                while used and alternative < s.slice.num_alf_chroma_filters - 1:
                    if not decode_bin(w, c.ALF_CTB_FILTER_ALT_IDX + i - 1):
                        break
                    alternative += 1
                ctb.alf[i] = 1 + alternative if used else 0
    if not s.slice.sps_chroma_format_idc:
        return
    for i in range(2):
        filters = s.slice.num_cc_alf_filters[i]
        if filters:
            first = c.ALF_CTB_CC_CB_IDC if i == 0 else c.ALF_CTB_CC_CR_IDC
            inc = int(has_left and left.cc_alf[i] != 0) + int(has_above and above.cc_alf[i] != 0)
            ctb.cc_alf[i] = 1 + truncated_unary(w, filters - 1) if decode_bin(w, first + inc) else 0


@compiled
def alf_luma_filter(w: Work) -> int:
    """Parse AlfCtbFiltSetIdxY: one of the 16 fixed filter sets or, from 16 on, that of an APS.

    Part of clause 7.3.11.2, Coding tree unit syntax.
    """
    sets = w.state.slice.sh_num_alf_aps_ids_luma
    if sets > 0 and decode_bin(w, c.ALF_USE_APS_FLAG):
        return 16 + (truncated_binary(w, sets - 1) if sets > 1 else 0)
    return decode_bypass_bits(w, 4)
