"""Inter and IBC coding units: merge data and motion vector differences (H.266 clauses 7.3.11.5, 7.3.11.7, 7.3.11.8)."""

from codecnn.vvc import contexts as c
from codecnn.vvc import state as st
from codecnn.vvc.block_vectors import keep_vector, merge_vector, predicted_vector
from codecnn.vvc.cabac import decode_bin, decode_bypass, decode_bypass_bits, limited_exp_golomb, truncated_unary
from codecnn.vvc.jit import compiled
from codecnn.vvc.neighbours import above_of, fill, left_of
from codecnn.vvc.state import Work

PRED_L0, PRED_L1, PRED_BI = range(3)


@compiled
def inter_unit(w: Work) -> None:
    """The prediction part of an inter or IBC coding unit; sets MERGE and CIIP_FLAG."""
    n = w.n
    n[st.MERGE] = 1 if n[st.SKIP] else decode_bin(w, c.GENERAL_MERGE_FLAG)
    ibc = n[st.PRED_MODE] == st.MODE_IBC
    subblock = 0
    if ibc:
        if n[st.MERGE]:
            merge_vector(w, decode_merge_index(w, n[st.MAX_IBC_MERGE]))
        else:
            ibc_vector(w)
        keep_vector(w)
    elif n[st.MERGE]:
        subblock = merge_data(w)
    else:
        subblock = motion_vectors(w)
    fill(w, st.CU_SUBBLOCK, subblock)


@compiled
def decode_merge_index(w: Work, candidates: int) -> int:
    """merge_idx, merge_gpm_idx0 or merge_gpm_idx1 of so many candidates; no bin where there is but one."""
    if candidates > 1 and decode_bin(w, c.MERGE_IDX):
        return 1 + truncated_unary(w, candidates - 2)
    return 0


@compiled
def subblock_context(w: Work) -> int:
    """ctxInc of merge_subblock_flag and inter_affine_flag (clause 9.3.4.2.2)."""
    n = w.n
    return left_of(w, st.CU_SUBBLOCK, n[st.X], n[st.Y], 0) + above_of(w, st.CU_SUBBLOCK, n[st.X], n[st.Y], 0)


@compiled
def merge_data(w: Work) -> int:
    """merge_data() of an inter unit: merge_subblock_flag."""
    n = w.n
    width, height = n[st.W], n[st.H]
    candidates = n[st.MAX_SUBBLOCK_MERGE]
    if candidates > 0 and width >= 8 and height >= 8 and decode_bin(w, c.MERGE_SUBBLOCK_FLAG + subblock_context(w)):
        if candidates > 1 and decode_bin(w, c.MERGE_SUBBLOCK_IDX):
            truncated_unary(w, candidates - 2)
        return 1
    # What a unit may not use has no bin: CIIP needs 64 samples, geometric partitions 8x8 and no ratio beyond 4.
    below_128 = width < 128 and height < 128
    may_ciip = n[st.CIIP] == 1 and not n[st.SKIP] and width * height >= 64 and below_128
    may_gpm = n[st.GPM] == 1 and n[st.IS_B] == 1 and min(width, height) >= 8 and below_128
    may_gpm = may_gpm and width < 8 * height and height < 8 * width
    if not (may_ciip or may_gpm) or decode_bin(w, c.REGULAR_MERGE_FLAG + (n[st.SKIP] == 0)):
        regular_merge(w)
        return 0
    ciip = may_ciip
    if may_ciip and may_gpm:
        ciip = decode_bin(w, c.CIIP_FLAG) == 1
    if ciip:
        n[st.CIIP_FLAG] = 1
        decode_merge_index(w, n[st.MAX_MERGE])
    else:
        decode_bypass_bits(w, 6)  # merge_gpm_partition_idx
        decode_merge_index(w, n[st.MAX_GPM_MERGE])
        decode_merge_index(w, n[st.MAX_GPM_MERGE] - 1)
    return 0


@compiled
def regular_merge(w: Work) -> None:
    """mmvd_merge_flag and what it leads to, or merge_idx."""
    n = w.n
    if n[st.MMVD] and decode_bin(w, c.MMVD_MERGE_FLAG):
        if n[st.MAX_MERGE] > 1:
            decode_bin(w, c.MMVD_CAND_FLAG)
        if decode_bin(w, c.MMVD_DISTANCE_IDX):
            truncated_unary(w, 6)
        decode_bypass_bits(w, 2)  # mmvd_direction_idx
    else:
        decode_merge_index(w, n[st.MAX_MERGE])


@compiled
def ibc_vector(w: Work) -> None:
    """The block vector of an IBC unit without merge."""
    n = w.n
    x, y = mvd_coding(w)
    second = decode_bin(w, c.MVP_FLAG) if n[st.MAX_IBC_MERGE] > 1 else 0
    coarse = 0
    if n[st.AMVR] and (x or y):
        coarse = decode_bin(w, c.AMVR_PRECISION_IDX + 1)
    predicted_vector(w, second, x, y, coarse == 1)


@compiled
def motion_vectors(w: Work) -> int:
    """Reference pictures and motion vector differences of an inter unit without merge: inter_affine_flag."""
    n = w.n
    width, height = n[st.W], n[st.H]
    direction = decode_inter_pred_idc(w) if n[st.IS_B] else PRED_L0
    affine = points = 0
    if n[st.AFFINE] and min(width, height) >= 16:
        affine = decode_bin(w, c.INTER_AFFINE_FLAG + subblock_context(w))
        points = affine
        if affine and n[st.AFFINE_TYPE]:
            points += decode_bin(w, c.CU_AFFINE_TYPE_FLAG)
    symmetric = 0
    if n[st.SMVD] and direction == PRED_BI and not affine:
        symmetric = decode_bin(w, c.SYM_MVD_FLAG)
    moved = False
    weighted = 0
    if direction != PRED_L1:
        reference = 0 if symmetric else decode_ref_idx(w, n[st.ACTIVE_L0])
        weighted |= (n[st.WEIGHTED_L0] >> reference) & 1
        for _ in range(1 + points):
            x, y = mvd_coding(w)
            moved |= x != 0 or y != 0
        decode_bin(w, c.MVP_FLAG)
    if direction != PRED_L0:
        reference = 0 if symmetric else decode_ref_idx(w, n[st.ACTIVE_L1])
        weighted |= (n[st.WEIGHTED_L1] >> reference) & 1
        if not (n[st.MVD_L1_ZERO] and direction == PRED_BI) and not symmetric:
            for _ in range(1 + points):
                x, y = mvd_coding(w)
                moved |= x != 0 or y != 0
        decode_bin(w, c.MVP_FLAG)
    if moved and (n[st.AFFINE_AMVR] if affine else n[st.AMVR]) and decode_bin(w, c.AMVR_FLAG + affine):
        if affine:
            decode_bin(w, c.AMVR_PRECISION_IDX + 2)
        elif decode_bin(w, c.AMVR_PRECISION_IDX):
            decode_bin(w, c.AMVR_PRECISION_IDX + 1)
    if n[st.BCW] and direction == PRED_BI and not weighted and width * height >= 256 and decode_bin(w, c.BCW_IDX):
        truncated_unary(w, 3 if n[st.NO_BACKWARD] else 1)
    return affine


@compiled
def decode_inter_pred_idc(w: Work) -> int:
    """inter_pred_idc (clause 9.3.3.9)."""
    n = w.n
    if n[st.W] + n[st.H] > 12:
        exponent = 0
        while n[st.W] * n[st.H] >> (exponent + 1):
            exponent += 1
        if decode_bin(w, c.INTER_PRED_IDC + 7 - ((1 + exponent) >> 1)):
            return PRED_BI
    return PRED_L1 if decode_bin(w, c.INTER_PRED_IDC + 5) else PRED_L0


@compiled
def decode_ref_idx(w: Work, active: int) -> int:
    """ref_idx_l0 or ref_idx_l1 of so many active entries; no bin where there is but one."""
    top = active - 1
    value = 0
    while value < min(top, 2) and decode_bin(w, c.REF_IDX + value):
        value += 1
    if value == 2:
        value += truncated_unary(w, top - 2)
    return value


@compiled
def mvd_coding(w: Work) -> tuple[int, int]:
    """mvd_coding(): the difference, horizontal and vertical."""
    x = decode_bin(w, c.ABS_MVD_GREATER0_FLAG)
    y = decode_bin(w, c.ABS_MVD_GREATER0_FLAG)
    far_x = x and decode_bin(w, c.ABS_MVD_GREATER1_FLAG)
    far_y = y and decode_bin(w, c.ABS_MVD_GREATER1_FLAG)
    if x:
        x = 2 + limited_exp_golomb(w, 1, 15, 17) if far_x else 1
        x = -x if decode_bypass(w) else x
    if y:
        y = 2 + limited_exp_golomb(w, 1, 15, 17) if far_y else 1
        y = -y if decode_bypass(w) else y
    return x, y
