"""Inter and IBC coding units: merge data, motion vector differences (H.266 clauses 7.3.11.5, 7.3.11.7 and 7.3.11.8).

Block vectors of intra block copy (IBC) are derived here, in whole luma samples (clauses 8.6.2.2 to 8.6.2.6). The syntax
elements of inter units go into the log; `codecnn.vvc.decoder` derives their motion.
"""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass, decode_bypass_bits, limited_exp_golomb, truncated_unary
from codecnn.vvc.syntax.neighbours import above_of, fill, left_of, peek
from codecnn.vvc.syntax.state import Work

PRED_L0, PRED_L1, PRED_BI = range(3)
"""Values of inter_pred_idc."""


@compiled
def inter_unit(w: Work) -> None:
    """Parse the prediction part of an inter or IBC coding unit; set MERGE and CIIP_FLAG."""
    n = w.n
    n[st.MERGE] = 1 if n[st.SKIP] else decode_bin(w, c.GENERAL_MERGE_FLAG)
    if n[st.PRED_MODE] == st.MODE_IBC:
        if n[st.MERGE]:
            merge_vector(w, decode_merge_index(w, n[st.MAX_IBC_MERGE]))
        else:
            ibc_vector(w)
        keep_vector(w)
    elif n[st.MERGE]:
        merge_data(w)
    else:
        motion_vectors(w)
    fill(w, st.CU_SUBBLOCK, n[st.SUBBLOCK])


@compiled
def decode_merge_index(w: Work, candidates: int) -> int:
    """Decode merge_idx, merge_gpm_idx0 or merge_gpm_idx1.

    A single candidate has no bin.
    """
    if candidates > 1 and decode_bin(w, c.MERGE_IDX):
        return 1 + truncated_unary(w, candidates - 2)
    return 0


@compiled
def subblock_context(w: Work) -> int:
    """Derive ctxInc of merge_subblock_flag and inter_affine_flag (clause 9.3.4.2.2)."""
    n = w.n
    return left_of(w, st.CU_SUBBLOCK, n[st.X], n[st.Y], 0) + above_of(w, st.CU_SUBBLOCK, n[st.X], n[st.Y], 0)


@compiled
def merge_data(w: Work) -> None:
    """Parse the merge data of an inter unit."""
    n = w.n
    width, height = n[st.W], n[st.H]
    candidates = n[st.MAX_SUBBLOCK_MERGE]
    if candidates > 0 and width >= 8 and height >= 8 and decode_bin(w, c.MERGE_SUBBLOCK_FLAG + subblock_context(w)):
        n[st.SUBBLOCK] = 1
        if candidates > 1 and decode_bin(w, c.MERGE_SUBBLOCK_IDX):
            n[st.MERGE_IDX] = 1 + truncated_unary(w, candidates - 2)
        return
    # A tool that is not allowed has no bin. CIIP requires 64 samples, GPM 8x8 samples and an aspect ratio up to 4.
    below_128 = width < 128 and height < 128
    may_ciip = n[st.CIIP] == 1 and not n[st.SKIP] and width * height >= 64 and below_128
    may_gpm = n[st.GPM] == 1 and n[st.IS_B] == 1 and min(width, height) >= 8 and below_128
    may_gpm = may_gpm and width < 8 * height and height < 8 * width
    if not (may_ciip or may_gpm) or decode_bin(w, c.REGULAR_MERGE_FLAG + (n[st.SKIP] == 0)):
        regular_merge(w)
        return
    ciip = may_ciip
    if may_ciip and may_gpm:
        ciip = decode_bin(w, c.CIIP_FLAG) == 1
    if ciip:
        n[st.CIIP_FLAG] = 1
        n[st.MERGE_IDX] = decode_merge_index(w, n[st.MAX_MERGE])
    else:
        n[st.GPM_FLAG] = 1
        n[st.GPM_PARTITION] = decode_bypass_bits(w, 6)
        n[st.MERGE_IDX] = decode_merge_index(w, n[st.MAX_GPM_MERGE])
        n[st.GPM_SECOND] = decode_merge_index(w, n[st.MAX_GPM_MERGE] - 1)


@compiled
def regular_merge(w: Work) -> None:
    """Parse mmvd_merge_flag and the elements that depend on it, or merge_idx."""
    n = w.n
    if n[st.MMVD] and decode_bin(w, c.MMVD_MERGE_FLAG):
        n[st.MMVD_FLAG] = 1
        if n[st.MAX_MERGE] > 1:
            n[st.MERGE_IDX] = decode_bin(w, c.MMVD_CAND_FLAG)
        if decode_bin(w, c.MMVD_DISTANCE_IDX):
            n[st.MMVD_DISTANCE] = 1 + truncated_unary(w, 6)
        n[st.MMVD_DIRECTION] = decode_bypass_bits(w, 2)
    else:
        n[st.MERGE_IDX] = decode_merge_index(w, n[st.MAX_MERGE])


@compiled
def ibc_vector(w: Work) -> None:
    """Parse the block vector of an IBC unit without merge."""
    n = w.n
    x, y = mvd_coding(w)
    second = decode_bin(w, c.MVP_FLAG) if n[st.MAX_IBC_MERGE] > 1 else 0
    coarse = 0
    if n[st.AMVR] and (x or y):
        coarse = decode_bin(w, c.AMVR_PRECISION_IDX + 1)
    predicted_vector(w, second, x, y, coarse == 1)


@compiled
def motion_vectors(w: Work) -> None:
    """Parse reference indices and motion vector differences of an inter unit without merge."""
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
    n[st.SUBBLOCK], n[st.POINTS], n[st.DIRECTION], n[st.SYMMETRIC] = affine, points, direction, symmetric
    moved = False
    weighted = 0
    if direction != PRED_L1:
        n[st.REF_IDX] = 0 if symmetric else decode_ref_idx(w, n[st.ACTIVE_L0])
        weighted |= (n[st.WEIGHTED_L0] >> n[st.REF_IDX]) & 1
        moved = vector_differences(w, st.MVDS, 1 + points)
        n[st.MVP] = decode_bin(w, c.MVP_FLAG)
    if direction != PRED_L0:
        n[st.REF_IDX + 1] = 0 if symmetric else decode_ref_idx(w, n[st.ACTIVE_L1])
        weighted |= (n[st.WEIGHTED_L1] >> n[st.REF_IDX + 1]) & 1
        if not (n[st.MVD_L1_ZERO] and direction == PRED_BI) and not symmetric:
            moved |= vector_differences(w, st.MVDS + 6, 1 + points)
        n[st.MVP + 1] = decode_bin(w, c.MVP_FLAG)
    n[st.AMVR_SHIFT] = 2
    if moved and (n[st.AFFINE_AMVR] if affine else n[st.AMVR]) and decode_bin(w, c.AMVR_FLAG + affine):
        # Steps of 1/16 or 1 sample for affine units, else of 1/2, 1 or 4 samples (clause 7.4.12.7).
        if affine:
            n[st.AMVR_SHIFT] = 4 * decode_bin(w, c.AMVR_PRECISION_IDX + 2)
        elif decode_bin(w, c.AMVR_PRECISION_IDX):
            n[st.AMVR_SHIFT] = 4 + 2 * decode_bin(w, c.AMVR_PRECISION_IDX + 1)
        else:
            n[st.AMVR_SHIFT] = 3
    if n[st.BCW] and direction == PRED_BI and not weighted and width * height >= 256 and decode_bin(w, c.BCW_IDX):
        n[st.BCW_IDX] = 1 + truncated_unary(w, 3 if n[st.NO_BACKWARD] else 1)


@compiled
def vector_differences(w: Work, first: int, points: int) -> bool:
    """Parse the motion vector differences of one list into `Work.n` from `first` on; return True if one is not zero."""
    n = w.n
    moved = False
    for at in range(first, first + 2 * points, 2):
        n[at], n[at + 1] = mvd_coding(w)
        moved |= n[at] != 0 or n[at + 1] != 0
    return moved


@compiled
def decode_inter_pred_idc(w: Work) -> int:
    """Decode inter_pred_idc (clause 9.3.3.9)."""
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
    """Decode ref_idx_l0 or ref_idx_l1 of a list of `active` entries; a single entry has no bin."""
    top = active - 1
    value = 0
    while value < min(top, 2) and decode_bin(w, c.REF_IDX + value):
        value += 1
    if value == 2:
        value += truncated_unary(w, top - 2)
    return value


@compiled
def mvd_coding(w: Work) -> tuple[int, int]:
    """Parse a motion vector difference; return the horizontal and vertical difference."""
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


_TABLE = 5
"""Entries of the table of earlier block vectors."""


@compiled
def merge_vector(w: Work, index: int) -> None:
    """Set the block vector to merge candidate `index` (8.6.2.3, 8.6.2.4).

    Candidates are the vectors of the units to the left and above, then those of the last units, then zero.
    """
    n = w.n
    x, y, width, height = n[st.X], n[st.Y], n[st.W], n[st.H]
    left = above = False
    left_x = left_y = above_x = above_y = 0
    count = 0
    n[st.VECTOR_X] = n[st.VECTOR_Y] = 0
    large = width * height > 16
    if large and left_of(w, st.CU_PRED_MODE, x, y + height - 1, -1) == st.MODE_IBC:
        left = True
        left_x = peek(w, st.CU_VECTOR_X, x - 1, y + height - 1)
        left_y = peek(w, st.CU_VECTOR_Y, x - 1, y + height - 1)
        if index == count:
            n[st.VECTOR_X], n[st.VECTOR_Y] = left_x, left_y
            return
        count += 1
    if large and above_of(w, st.CU_PRED_MODE, x + width - 1, y, -1) == st.MODE_IBC:
        above = True
        above_x = peek(w, st.CU_VECTOR_X, x + width - 1, y - 1)
        above_y = peek(w, st.CU_VECTOR_Y, x + width - 1, y - 1)
        if not left or above_x != left_x or above_y != left_y:
            if index == count:
                n[st.VECTOR_X], n[st.VECTOR_Y] = above_x, above_y
                return
            count += 1
    for i in range(n[st.VECTORS]):
        at = st.VECTOR_TABLE + 2 * (n[st.VECTORS] - 1 - i)
        last_x, last_y = n[at], n[at + 1]
        # Only the most recent one is compared with the neighbours.
        if i == 0 and left and last_x == left_x and last_y == left_y:
            continue
        if i == 0 and above and last_x == above_x and last_y == above_y:
            continue
        if index == count:
            n[st.VECTOR_X], n[st.VECTOR_Y] = last_x, last_y
            return
        count += 1


@compiled
def predicted_vector(w: Work, index: int, difference_x: int, difference_y: int, coarse: bool) -> None:
    """Set the block vector to a candidate plus a difference (8.6.2.2).

    Args:
        w: State of the parser.
        index: Index of the candidate.
        difference_x: Horizontal difference in steps.
        difference_y: Vertical difference in steps.
        coarse: A step is four samples instead of one.
    """
    n = w.n
    merge_vector(w, index)
    x, y = n[st.VECTOR_X], n[st.VECTOR_Y]
    if coarse:
        x, y = rounded(x) + 4 * difference_x, rounded(y) + 4 * difference_y
    else:
        x, y = x + difference_x, y + difference_y
    # Vectors wrap around at 18 bits in units of 1/16 sample.
    n[st.VECTOR_X], n[st.VECTOR_Y] = ((x + 8192) & 16383) - 8192, ((y + 8192) & 16383) - 8192


@compiled
def rounded(value: int) -> int:
    """Round a component of a vector to steps of four (clause 8.5.2.14)."""
    return ((value + 1) >> 2) << 2 if value >= 0 else ((value + 2) >> 2) << 2


@compiled
def keep_vector(w: Work) -> None:
    """Store the block vector for neighbours and at the end of the table of earlier vectors (8.6.2.6)."""
    n = w.n
    x, y = n[st.VECTOR_X], n[st.VECTOR_Y]
    fill(w, st.CU_VECTOR_X, x)
    fill(w, st.CU_VECTOR_Y, y)
    if n[st.W] * n[st.H] <= 16:
        return
    count = n[st.VECTORS]
    remove = 0 if count == _TABLE else count
    for i in range(count):
        if n[st.VECTOR_TABLE + 2 * i] == x and n[st.VECTOR_TABLE + 2 * i + 1] == y:
            remove = i
            break
    for i in range(remove, count - 1):
        n[st.VECTOR_TABLE + 2 * i] = n[st.VECTOR_TABLE + 2 * i + 2]
        n[st.VECTOR_TABLE + 2 * i + 1] = n[st.VECTOR_TABLE + 2 * i + 3]
    if remove < count:
        count -= 1
    n[st.VECTOR_TABLE + 2 * count], n[st.VECTOR_TABLE + 2 * count + 1] = x, y
    n[st.VECTORS] = count + 1
