"""Intra coding units: prediction modes of luma and chroma (H.266 clauses 7.3.11.5, 8.4.2 and 8.4.3)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_binary, truncated_unary
from codecnn.vvc.syntax.log import DERIVED_MIP
from codecnn.vvc.syntax.maps import BlockCell
from codecnn.vvc.syntax.neighbours import above_of, cell, int64, left_of
from codecnn.vvc.syntax.state import Work

PLANAR, DC, HORIZONTAL, VERTICAL, DIAGONAL = 0, 1, 18, 50, 66

CCLM = 67
"""First of the three modes of the cross-component linear model: from left and above, from the left, from above."""

_STEEP = (0, 1, 61, 62, 63, 64, 65, 66, 2, 3, 5, 6, 8, 10, 12, 13, 14, 16, 18, 20, 22, 23, 24, 26, 28, 30, 31, 33, 34)
_FLAT = (35, 36, 37, 38, 39, 40, 41, 41, 42, 43, 43, 44, 44, 45, 45, 46, 47, 48, 48, 49, 49, 50, 51, 51, 52, 52, 53, 54)

MODES_422 = (*_STEEP, *_FLAT, 55, 55, 56, 56, 57, 57, 58, 59, 59, 60)
"""Chroma mode of 4:2:2, whose samples are twice as wide as high, by luma mode (table 28)."""


@compiled
def intra_luma(w: Work) -> None:
    """Parse the luma part of an intra unit.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    width, height = cu.width, cu.height
    if s.slice.sps_bdpcm_enabled_flag and max(width, height) <= s.slice.max_ts_size:
        cu.intra_bdpcm_luma_flag = decode_bin(w, c.INTRA_BDPCM_LUMA_FLAG)
    if cu.intra_bdpcm_luma_flag:
        cu.intra_pred_mode_y = VERTICAL if decode_bin(w, c.INTRA_BDPCM_LUMA_DIR_FLAG) else HORIZONTAL
    else:
        if s.slice.sps_mip_enabled_flag:
            cu.intra_mip_flag = decode_mip_flag(w)
        if cu.intra_mip_flag:
            cu.intra_mip_transposed_flag = decode_bypass(w)
            small = width == 4 or height == 4 or (width == 8 and height == 8)
            cu.intra_pred_mode_y = truncated_binary(w, 15 if width == 4 and height == 4 else 7 if small else 5)
        else:
            intra_angular(w)


@compiled
def decode_mip_flag(w: Work) -> int:
    """Decode intra_mip_flag.

    Part of clause 9.3.4.2.2, Derivation process of ctxInc using left and above syntax elements.
    """
    cu = w.state.cu
    inc = 3
    if cu.width <= 2 * cu.height and cu.height <= 2 * cu.width:
        inc = int64(left_of(w, cu.x, cu.y).intra_mip_flag + above_of(w, cu.x, cu.y).intra_mip_flag)
    return decode_bin(w, c.INTRA_MIP_FLAG + inc)


@compiled
def intra_angular(w: Work) -> None:
    """Parse reference line, sub-partitions and mode of a unit without MIP and BDPCM.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    if s.slice.sps_mrl_enabled_flag and cu.y > s.current.y_ctb:
        while cu.intra_luma_ref_idx < 2 and decode_bin(w, c.INTRA_LUMA_REF_IDX + cu.intra_luma_ref_idx):
            cu.intra_luma_ref_idx += 1
    first_line = cu.intra_luma_ref_idx == 0
    whole = cu.cu_act_enabled_flag or max(cu.width, cu.height) > s.slice.max_tb_size_y or cu.width * cu.height <= 16
    if s.slice.sps_isp_enabled_flag and first_line and not whole and decode_bin(w, c.INTRA_SUBPARTITIONS_MODE_FLAG):
        cu.isp_split_type = 1 + decode_bin(w, c.INTRA_SUBPARTITIONS_SPLIT_FLAG)
    candidate = decode_bin(w, c.INTRA_LUMA_MPM_FLAG) if first_line else 1
    if not candidate:
        index = truncated_binary(w, 60)
    elif first_line and not decode_bin(w, c.INTRA_LUMA_NOT_PLANAR_FLAG + (cu.isp_split_type == st.ISP_NONE)):
        cu.intra_pred_mode_y = PLANAR
        return
    else:
        index = truncated_unary(w, 4)
    cu.intra_pred_mode_y = candidate_mode(w, index, candidate)


@compiled
def neighbour_mode(neighbour: BlockCell) -> int:
    """Return candIntraPredModeX of a neighbour.

    Part of clause 8.4.2, Derivation process for luma intra prediction mode.
    """
    if neighbour.cu_pred_mode[0] != st.MODE_INTRA or neighbour.intra_mip_flag:
        return PLANAR
    return int64(neighbour.intra_pred_mode_y)


@compiled
def candidate_mode(w: Work, index: int, is_candidate: int) -> int:
    """Derive the luma mode from its index.

    Clause 8.4.2, Derivation process for luma intra prediction mode.

    Args:
        w: State of the parser.
        index: intra_luma_mpm_idx or intra_luma_mpm_remainder.
        is_candidate: 1 if `index` is intra_luma_mpm_idx.

    Returns:
        IntraPredModeY, 1 to 66.
    """
    s = w.state
    cu = s.cu
    left, above = neighbour_mode(left_of(w, cu.x, cu.y + cu.height - 1)), PLANAR
    # Blocks above the CTU count as planar, so that decoders need not store a line of modes.
    if cu.y > s.current.y_ctb:
        above = neighbour_mode(cell(w, cu.x + cu.width - 1, cu.y - 1))
    # Five candidates besides planar, which has a separate flag: the modes of the neighbours and adjacent angles.
    low, high = min(left, above), max(left, above)
    spread = high - low
    # Angular modes adjacent to another one count modulo 64, from 2 to 65.
    if high <= DC:
        first, second, third, fourth, fifth = DC, VERTICAL, HORIZONTAL, VERTICAL - 4, VERTICAL + 4
    elif low <= DC or spread == 0:
        first, second, third = high, 2 + (high + 61) % 64, 2 + (high - 1) % 64
        fourth, fifth = 2 + (high + 60) % 64, 2 + high % 64
    elif spread == 1:
        first, second, third = left, above, 2 + (low + 61) % 64
        fourth, fifth = 2 + (high - 1) % 64, 2 + (low + 60) % 64
    elif spread >= 62:
        first, second, third = left, above, 2 + (low - 1) % 64
        fourth, fifth = 2 + (high + 61) % 64, 2 + low % 64
    elif spread == 2:
        first, second, third = left, above, 2 + (low - 1) % 64
        fourth, fifth = 2 + (low + 61) % 64, 2 + (high - 1) % 64
    else:
        first, second, third = left, above, 2 + (low + 61) % 64
        fourth, fifth = 2 + (low - 1) % 64, 2 + (high + 61) % 64
    if is_candidate:
        if index == 0:
            return first
        return second if index == 1 else third if index == 2 else fourth if index == 3 else fifth
    mode = index + 1
    # The remainder counts the modes that are not candidates, so each lower candidate increases it by one.
    for _ in range(5):
        smallest = min(first, second, third, fourth, fifth)
        if mode >= smallest:
            mode += 1
        if smallest == first:
            first = 99
        elif smallest == second:
            second = 99
        elif smallest == third:
            third = 99
        elif smallest == fourth:
            fourth = 99
        else:
            fifth = 99
    return mode


@compiled
def intra_chroma(w: Work) -> None:
    """Parse the chroma part of an intra coding unit.

    Part of clause 7.3.11.5, Coding unit syntax.
    Clause 8.4.3, Derivation process for chroma intra prediction mode.

    In `intra_pred_mode_c` CCLM is 67, 68 or 69, as in VTM.
    """
    s = w.state
    cu = s.cu
    cu.colocated_mode = colocated_mode(w)
    matrix = s.slice.sps_chroma_format_idc == 3 and cu.tree == st.SINGLE and cu.intra_mip_flag == 1
    longest = max(cu.width >> s.slice.log2_sub_width_c, cu.height >> s.slice.log2_sub_height_c)
    if s.slice.sps_bdpcm_enabled_flag and not cu.cu_act_enabled_flag and longest <= s.slice.max_ts_size:
        cu.intra_bdpcm_chroma_flag = decode_bin(w, c.INTRA_BDPCM_CHROMA_FLAG)
        if cu.intra_bdpcm_chroma_flag:
            cu.intra_pred_mode_c = VERTICAL if decode_bin(w, c.INTRA_BDPCM_CHROMA_DIR_FLAG) else HORIZONTAL
            return
    if cu.cu_act_enabled_flag:
        cu.intra_pred_mode_c = DERIVED_MIP if matrix else cu.colocated_mode
    elif cclm_enabled(w) and decode_bin(w, c.CCLM_MODE_FLAG):
        cu.intra_pred_mode_c = CCLM
        if decode_bin(w, c.CCLM_MODE_IDX):
            cu.intra_pred_mode_c += 1 + decode_bypass(w)
    elif decode_bin(w, c.INTRA_CHROMA_PRED_MODE):
        index = decode_bypass_bits(w, 2)
        mode = PLANAR if index == 0 else VERTICAL if index == 1 else HORIZONTAL if index == 2 else DC
        # The mode of luma, which has a shorter code, stands for the diagonal mode here.
        cu.intra_pred_mode_c = DIAGONAL if mode == cu.colocated_mode and not matrix else mode
    else:
        cu.intra_pred_mode_c = DERIVED_MIP if matrix else cu.colocated_mode
    if s.slice.sps_chroma_format_idc == 2 and cu.intra_pred_mode_c < CCLM:
        cu.intra_pred_mode_c = MODES_422[cu.intra_pred_mode_c]


@compiled
def colocated_mode(w: Work) -> int:
    """Derive lumaIntraPredMode.

    Part of clause 8.4.3, Derivation process for chroma intra prediction mode.

    It is the mode of this unit or, with separate trees, of the luma block at its centre.
    """
    cu = w.state.cu
    if cu.tree == st.SINGLE:
        return PLANAR if cu.intra_mip_flag else cu.intra_pred_mode_y
    luma = cell(w, cu.x + cu.width // 2, cu.y + cu.height // 2)
    return neighbour_mode(luma) if luma.cu_pred_mode[0] == st.MODE_INTRA else DC


@compiled
def cclm_enabled(w: Work) -> bool:
    """Derive CclmEnabled.

    Part of clause 7.4.12.5, Coding unit semantics.

    With separate trees CCLM requires that within 64x64 samples luma is split as far as chroma.
    """
    s = w.state
    cu = s.cu
    if not s.slice.sps_cclm_enabled_flag:
        return False
    if not s.slice.sps_qtbtt_dual_tree_intra_flag or not s.slice.is_i or s.slice.ctb_log2_size_y < 6:
        return True
    x, y, lower = cu.x & ~63, cu.y & ~63, cu.y & ~31
    least = s.slice.ctb_log2_size_y - 6
    corner, middle = cell(w, x, y), cell(w, x, lower)
    depth = corner.cqt_depth[1]
    halved = depth == least and corner.mtt_split_mode[0] == st.BT_HOR
    if (corner.cb_width[1] == 64 and corner.cb_height[1] == 64) or (
        halved and middle.cb_width[1] == 64 and middle.cb_height[1] == 32
    ):
        enabled = True
    else:
        enabled = depth > least or (halved and middle.mtt_split_mode[1] == st.BT_VER)
    if not enabled:
        return False
    width, height = corner.cb_width[0], corner.cb_height[0]
    if width == 64 and height == 64 and corner.intra_subpartitions:
        return False
    return not ((width < 64 or height < 64) and corner.cqt_depth[0] == least)
