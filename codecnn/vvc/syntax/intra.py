"""Intra coding units: prediction modes of luma and chroma (H.266 clauses 7.3.11.5, 8.4.2 and 8.4.3)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_binary, truncated_unary
from codecnn.vvc.syntax.log import DERIVED_MIP
from codecnn.vvc.syntax.neighbours import above_of, fill, left_of, peek
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
    """Parse the luma part of an intra unit; set INTRA_MODE to IntraPredModeY or, for MIP, to intra_mip_mode."""
    n = w.n
    width, height = n[st.W], n[st.H]
    if n[st.BDPCM] and max(width, height) <= n[st.MAX_TS]:
        n[st.BDPCM_LUMA] = decode_bin(w, c.INTRA_BDPCM_LUMA_FLAG)
    if n[st.BDPCM_LUMA]:
        n[st.INTRA_MODE] = VERTICAL if decode_bin(w, c.INTRA_BDPCM_LUMA_DIR_FLAG) else HORIZONTAL
    else:
        if n[st.MIP]:
            n[st.MIP_FLAG] = decode_mip_flag(w)
        if n[st.MIP_FLAG]:
            n[st.MIP_TRANSPOSED] = decode_bypass(w)
            small = width == 4 or height == 4 or (width == 8 and height == 8)
            n[st.INTRA_MODE] = truncated_binary(w, 15 if width == 4 and height == 4 else 7 if small else 5)
        else:
            intra_angular(w)
    fill(w, st.CU_MIP, n[st.MIP_FLAG])
    fill(w, st.CU_INTRA_MODE, n[st.INTRA_MODE])
    fill(w, st.CU_ISP, int(n[st.ISP_SPLIT] != st.ISP_NONE))


@compiled
def decode_mip_flag(w: Work) -> int:
    """Decode intra_mip_flag with the ctxInc of clause 9.3.4.2.2."""
    n = w.n
    inc = 3
    if n[st.W] <= 2 * n[st.H] and n[st.H] <= 2 * n[st.W]:
        inc = left_of(w, st.CU_MIP, n[st.X], n[st.Y], 0) + above_of(w, st.CU_MIP, n[st.X], n[st.Y], 0)
    return decode_bin(w, c.INTRA_MIP_FLAG + inc)


@compiled
def intra_angular(w: Work) -> None:
    """Parse reference line, sub-partitions and mode of a unit without MIP and BDPCM."""
    n = w.n
    if n[st.MRL] and n[st.Y] > n[st.CTB_Y]:
        while n[st.MRL_IDX] < 2 and decode_bin(w, c.INTRA_LUMA_REF_IDX + n[st.MRL_IDX]):
            n[st.MRL_IDX] += 1
    first_line = n[st.MRL_IDX] == 0
    whole = n[st.ACT_FLAG] or max(n[st.W], n[st.H]) > n[st.MAX_TB] or n[st.W] * n[st.H] <= 16
    if n[st.ISP] and first_line and not whole and decode_bin(w, c.INTRA_SUBPARTITIONS_MODE_FLAG):
        n[st.ISP_SPLIT] = 1 + decode_bin(w, c.INTRA_SUBPARTITIONS_SPLIT_FLAG)
    candidate = decode_bin(w, c.INTRA_LUMA_MPM_FLAG) if first_line else 1
    if not candidate:
        index = truncated_binary(w, 60)
    elif first_line and not decode_bin(w, c.INTRA_LUMA_NOT_PLANAR_FLAG + (n[st.ISP_SPLIT] == st.ISP_NONE)):
        n[st.INTRA_MODE] = PLANAR
        return
    else:
        index = truncated_unary(w, 4)
    n[st.INTRA_MODE] = candidate_mode(w, index, candidate)


@compiled
def neighbour_mode(w: Work, x: int, y: int) -> int:
    """Return candIntraPredModeX of the luma block at (x, y) (clause 8.4.2)."""
    if peek(w, st.CU_PRED_MODE, x, y) != st.MODE_INTRA or peek(w, st.CU_MIP, x, y):
        return PLANAR
    return peek(w, st.CU_INTRA_MODE, x, y)


@compiled
def candidate_mode(w: Work, index: int, is_candidate: int) -> int:
    """Derive the luma mode from its index (clause 8.4.2).

    Args:
        w: State of the parser.
        index: intra_luma_mpm_idx or intra_luma_mpm_remainder.
        is_candidate: 1 if `index` is intra_luma_mpm_idx.

    Returns:
        IntraPredModeY, 1 to 66.
    """
    n = w.n
    left = above = PLANAR
    if left_of(w, st.CU_PRED_MODE, n[st.X], n[st.Y] + n[st.H] - 1, st.MODE_INTRA + 1) == st.MODE_INTRA:
        left = neighbour_mode(w, n[st.X] - 1, n[st.Y] + n[st.H] - 1)
    # Blocks above the CTU count as planar, so that decoders need not store a line of modes.
    if n[st.Y] > n[st.CTB_Y]:
        above = neighbour_mode(w, n[st.X] + n[st.W] - 1, n[st.Y] - 1)
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

    Sets CHROMA_MODE to IntraPredModeC, where CCLM is 67, 68 or 69 as in VTM, and COLOCATED_MODE to the luma mode from
    which clause 8.4.3 derives it.
    """
    n = w.n
    n[st.COLOCATED_MODE] = colocated_mode(w)
    matrix = n[st.CHROMA] == 3 and n[st.TREE] == st.SINGLE and n[st.MIP_FLAG] == 1
    may_skip = n[st.BDPCM] and not n[st.ACT_FLAG]
    if may_skip and n[st.W] >> n[st.SUB_WIDTH] <= n[st.MAX_TS] and n[st.H] >> n[st.SUB_HEIGHT] <= n[st.MAX_TS]:
        n[st.BDPCM_CHROMA] = decode_bin(w, c.INTRA_BDPCM_CHROMA_FLAG)
        if n[st.BDPCM_CHROMA]:
            n[st.CHROMA_MODE] = VERTICAL if decode_bin(w, c.INTRA_BDPCM_CHROMA_DIR_FLAG) else HORIZONTAL
            return
    if n[st.ACT_FLAG]:
        n[st.CHROMA_MODE] = DERIVED_MIP if matrix else n[st.COLOCATED_MODE]
    elif cclm_enabled(w) and decode_bin(w, c.CCLM_MODE_FLAG):
        n[st.CHROMA_MODE] = CCLM
        if decode_bin(w, c.CCLM_MODE_IDX):
            n[st.CHROMA_MODE] += 1 + decode_bypass(w)
    elif decode_bin(w, c.INTRA_CHROMA_PRED_MODE):
        index = decode_bypass_bits(w, 2)
        mode = PLANAR if index == 0 else VERTICAL if index == 1 else HORIZONTAL if index == 2 else DC
        # The mode of luma, which has a shorter code, stands for the diagonal mode here.
        n[st.CHROMA_MODE] = DIAGONAL if mode == n[st.COLOCATED_MODE] and not matrix else mode
    else:
        n[st.CHROMA_MODE] = DERIVED_MIP if matrix else n[st.COLOCATED_MODE]
    if n[st.CHROMA] == 2 and n[st.CHROMA_MODE] < CCLM:
        n[st.CHROMA_MODE] = MODES_422[n[st.CHROMA_MODE]]


@compiled
def colocated_mode(w: Work) -> int:
    """Derive lumaIntraPredMode (clause 8.4.3).

    It is the mode of this unit or, with separate trees, of the luma block at its centre.
    """
    n = w.n
    if n[st.TREE] == st.SINGLE:
        return PLANAR if n[st.MIP_FLAG] else n[st.INTRA_MODE]
    x, y = n[st.X] + n[st.W] // 2, n[st.Y] + n[st.H] // 2
    if peek(w, st.CU_PRED_MODE, x, y) != st.MODE_INTRA:
        return DC
    return PLANAR if peek(w, st.CU_MIP, x, y) else peek(w, st.CU_INTRA_MODE, x, y)


@compiled
def cclm_enabled(w: Work) -> bool:
    """Derive CclmEnabled (clause 7.4.12.5).

    With separate trees CCLM requires that within 64x64 samples luma is split as far as chroma.
    """
    n = w.n
    if not n[st.CCLM]:
        return False
    if not n[st.DUAL_TREE] or not n[st.IS_I] or n[st.LOG2_CTU] < 6:
        return True
    x, y, lower = n[st.X] & ~63, n[st.Y] & ~63, n[st.Y] & ~31
    least = n[st.LOG2_CTU] - 6
    depth = peek(w, st.QT_DEPTH_C, x, y)
    halved = depth == least and peek(w, st.MTT_SPLIT_0, x, y) == st.BT_HOR
    if (peek(w, st.CB_WIDTH_C, x, y) == 64 and peek(w, st.CB_HEIGHT_C, x, y) == 64) or (
        halved and peek(w, st.CB_WIDTH_C, x, lower) == 64 and peek(w, st.CB_HEIGHT_C, x, lower) == 32
    ):
        enabled = True
    else:
        enabled = depth > least or (halved and peek(w, st.MTT_SPLIT_1, x, lower) == st.BT_VER)
    if not enabled:
        return False
    width, height = peek(w, st.CB_WIDTH, x, y), peek(w, st.CB_HEIGHT, x, y)
    if width == 64 and height == 64 and peek(w, st.CU_ISP, x, y):
        return False
    return not ((width < 64 or height < 64) and peek(w, st.QT_DEPTH, x, y) == least)
