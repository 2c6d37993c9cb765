"""Intra coding units: prediction modes of luma and chroma (H.266 clauses 7.3.11.5 and 8.4.2)."""

from codecnn.vvc import contexts as c
from codecnn.vvc.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_binary, truncated_unary
from codecnn.vvc.compiled import compiled
from codecnn.vvc.neighbours import above_of, fill, left_of, peek
from codecnn.vvc.state import (
    BDPCM,
    BDPCM_CHROMA,
    BDPCM_LUMA,
    BT_HOR,
    BT_VER,
    CB_HEIGHT,
    CB_HEIGHT_C,
    CB_WIDTH,
    CB_WIDTH_C,
    CCLM,
    CTB_Y,
    CU_INTRA_MODE,
    CU_ISP,
    CU_MIP,
    CU_PRED_MODE,
    DUAL_TREE,
    INTRA_MODE,
    IS_I,
    ISP,
    ISP_NONE,
    ISP_SPLIT,
    LOG2_CTU,
    MAX_TB,
    MAX_TS,
    MIP,
    MIP_FLAG,
    MODE_INTRA,
    MRL,
    MRL_IDX,
    MTT_SPLIT_0,
    MTT_SPLIT_1,
    QT_DEPTH,
    QT_DEPTH_C,
    SUB_HEIGHT,
    SUB_WIDTH,
    H,
    W,
    Work,
    X,
    Y,
)

PLANAR, DC, HORIZONTAL, VERTICAL = 0, 1, 18, 50


@compiled
def intra_luma(w: Work) -> None:
    """The luma part of an intra coding unit; sets INTRA_MODE to IntraPredModeY, of a MIP unit to intra_mip_mode."""
    n = w.n
    width, height = n[W], n[H]
    if n[BDPCM] and max(width, height) <= n[MAX_TS]:
        n[BDPCM_LUMA] = decode_bin(w, c.INTRA_BDPCM_LUMA_FLAG)
    if n[BDPCM_LUMA]:
        n[INTRA_MODE] = VERTICAL if decode_bin(w, c.INTRA_BDPCM_LUMA_DIR_FLAG) else HORIZONTAL
    else:
        if n[MIP]:
            n[MIP_FLAG] = decode_mip_flag(w)
        if n[MIP_FLAG]:
            decode_bypass(w)  # intra_mip_transposed_flag
            small = width == 4 or height == 4 or (width == 8 and height == 8)
            n[INTRA_MODE] = truncated_binary(w, 15 if width == 4 and height == 4 else 7 if small else 5)
        else:
            intra_angular(w)
    fill(w, CU_MIP, n[MIP_FLAG])
    fill(w, CU_INTRA_MODE, n[INTRA_MODE])
    fill(w, CU_ISP, int(n[ISP_SPLIT] != ISP_NONE))


@compiled
def decode_mip_flag(w: Work) -> int:
    """intra_mip_flag, with the ctxInc of clause 9.3.4.2.2."""
    n = w.n
    inc = 3
    if n[W] <= 2 * n[H] and n[H] <= 2 * n[W]:
        inc = left_of(w, CU_MIP, n[X], n[Y], 0) + above_of(w, CU_MIP, n[X], n[Y], 0)
    return decode_bin(w, c.INTRA_MIP_FLAG + inc)


@compiled
def intra_angular(w: Work) -> None:
    """Reference line, sub-partitions and mode of a unit without MIP and BDPCM."""
    n = w.n
    if n[MRL] and n[Y] > n[CTB_Y]:
        while n[MRL_IDX] < 2 and decode_bin(w, c.INTRA_LUMA_REF_IDX + n[MRL_IDX]):
            n[MRL_IDX] += 1
    first_line = n[MRL_IDX] == 0
    if n[ISP] and first_line and max(n[W], n[H]) <= n[MAX_TB] and n[W] * n[H] > 16:  # noqa: SIM102, the bin comes second
        if decode_bin(w, c.INTRA_SUBPARTITIONS_MODE_FLAG):
            n[ISP_SPLIT] = 1 + decode_bin(w, c.INTRA_SUBPARTITIONS_SPLIT_FLAG)
    if first_line and not decode_bin(w, c.INTRA_LUMA_MPM_FLAG):
        n[INTRA_MODE] = candidate_mode(w, truncated_binary(w, 60), False)
        return
    if first_line and not decode_bin(w, c.INTRA_LUMA_NOT_PLANAR_FLAG + (n[ISP_SPLIT] == ISP_NONE)):
        n[INTRA_MODE] = PLANAR
        return
    n[INTRA_MODE] = candidate_mode(w, truncated_unary(w, 4), True)


@compiled
def neighbour_mode(w: Work, x: int, y: int) -> int:
    """candIntraPredModeX of the luma block at (x, y) (clause 8.4.2)."""
    if peek(w, CU_PRED_MODE, x, y) != MODE_INTRA or peek(w, CU_MIP, x, y):
        return PLANAR
    return peek(w, CU_INTRA_MODE, x, y)


@compiled
def candidate_mode(w: Work, index: int, is_candidate: bool) -> int:
    """The mode at intra_luma_mpm_idx, or the one that intra_luma_mpm_remainder leaves (clause 8.4.2)."""
    n = w.n
    left = above = PLANAR
    if left_of(w, CU_PRED_MODE, n[X], n[Y] + n[H] - 1, MODE_INTRA + 1) == MODE_INTRA:
        left = neighbour_mode(w, n[X] - 1, n[Y] + n[H] - 1)
    # What lies above the CTU counts as planar, so that no line of modes need be kept.
    if n[Y] > n[CTB_Y]:
        above = neighbour_mode(w, n[X] + n[W] - 1, n[Y] - 1)
    low, high = min(left, above), max(left, above)
    spread = high - low
    # Modes beside an angular one, modulo 64: from 2 to 65.
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
    # The remainder counts the modes that are no candidates, so each candidate below moves it up by one.
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
    """The chroma part of an intra coding unit; its mode steers nothing and is not derived."""
    n = w.n
    if n[BDPCM] and n[W] >> n[SUB_WIDTH] <= n[MAX_TS] and n[H] >> n[SUB_HEIGHT] <= n[MAX_TS]:
        n[BDPCM_CHROMA] = decode_bin(w, c.INTRA_BDPCM_CHROMA_FLAG)
        if n[BDPCM_CHROMA]:
            decode_bin(w, c.INTRA_BDPCM_CHROMA_DIR_FLAG)
            return
    if cclm_enabled(w) and decode_bin(w, c.CCLM_MODE_FLAG):
        if decode_bin(w, c.CCLM_MODE_IDX):
            decode_bypass(w)
    elif decode_bin(w, c.INTRA_CHROMA_PRED_MODE):
        decode_bypass_bits(w, 2)


@compiled
def cclm_enabled(w: Work) -> bool:
    """CclmEnabled (clause 7.4.12.5): with separate trees, only where luma is split as far as chroma at 64x64."""
    n = w.n
    if not n[CCLM]:
        return False
    if not n[DUAL_TREE] or not n[IS_I] or n[LOG2_CTU] < 6:
        return True
    x, y, lower = n[X] & ~63, n[Y] & ~63, n[Y] & ~31
    least = n[LOG2_CTU] - 6
    depth = peek(w, QT_DEPTH_C, x, y)
    halved = depth == least and peek(w, MTT_SPLIT_0, x, y) == BT_HOR
    if peek(w, CB_WIDTH_C, x, y) == 64 and peek(w, CB_HEIGHT_C, x, y) == 64:
        enabled = True
    elif halved and peek(w, CB_WIDTH_C, x, lower) == 64 and peek(w, CB_HEIGHT_C, x, lower) == 32:
        enabled = True
    else:
        enabled = depth > least or (halved and peek(w, MTT_SPLIT_1, x, lower) == BT_VER)
    if not enabled:
        return False
    width, height = peek(w, CB_WIDTH, x, y), peek(w, CB_HEIGHT, x, y)
    if width == 64 and height == 64 and peek(w, CU_ISP, x, y):
        return False
    return not ((width < 64 or height < 64) and peek(w, QT_DEPTH, x, y) == least)
