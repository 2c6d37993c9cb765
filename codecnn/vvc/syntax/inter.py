"""Inter and IBC coding units: merge data, motion vector differences (H.266 clauses 7.3.11.5, 7.3.11.7 and 7.3.11.8).

Block vectors of intra block copy (IBC) are derived here, in whole luma samples (clauses 8.6.2.2 to 8.6.2.6). The syntax
elements of inter units go into the log; `codecnn.vvc.decoder` derives their motion.
"""

from codecnn.base.compiled import compiled
from codecnn.base.records import copy_record
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass, decode_bypass_bits, limited_exp_golomb, truncated_unary
from codecnn.vvc.syntax.neighbours import above_of, int64, left_of
from codecnn.vvc.syntax.records import MAX_IBC_CANDIDATES
from codecnn.vvc.syntax.state import Work

PRED_L0, PRED_L1, PRED_BI = range(3)
"""Values of inter_pred_idc."""


@compiled
def inter_unit(w: Work) -> None:
    """Parse the prediction part of an inter or IBC coding unit.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    cu.general_merge_flag = 1 if cu.cu_skip_flag else decode_bin(w, c.GENERAL_MERGE_FLAG)
    if cu.pred_mode == st.MODE_IBC:
        if cu.general_merge_flag:
            merge_vector(w, decode_merge_index(w, s.slice.max_num_ibc_merge_cand))
        else:
            ibc_vector(w)
        keep_vector(w)
    elif cu.general_merge_flag:
        merge_data(w)
    else:
        motion_vectors(w)


@compiled
def decode_merge_index(w: Work, candidates: int) -> int:
    """Decode merge_idx, merge_gpm_idx0 or merge_gpm_idx1.

    Part of clause 7.3.11.7, Merge data syntax.

    A single candidate has no bin.
    """
    if candidates > 1 and decode_bin(w, c.MERGE_IDX):
        return 1 + truncated_unary(w, candidates - 2)
    return 0


@compiled
def subblock_context(w: Work) -> int:
    """Derive ctxInc of merge_subblock_flag and inter_affine_flag.

    Part of clause 9.3.4.2.2, Derivation process of ctxInc using left and above syntax elements.
    """
    cu = w.state.cu
    return int64(left_of(w, cu.x, cu.y).subblock_flag + above_of(w, cu.x, cu.y).subblock_flag)


@compiled
def merge_data(w: Work) -> None:
    """Parse the merge data of an inter unit.

    Clause 7.3.11.7, Merge data syntax.
    """
    s = w.state
    cu = s.cu
    width, height = cu.width, cu.height
    candidates = s.slice.max_num_subblock_merge_cand
    if candidates > 0 and width >= 8 and height >= 8 and decode_bin(w, c.MERGE_SUBBLOCK_FLAG + subblock_context(w)):
        cu.subblock_flag = 1
        if candidates > 1 and decode_bin(w, c.MERGE_SUBBLOCK_IDX):
            cu.merge_idx = 1 + truncated_unary(w, candidates - 2)
        return
    # A tool that is not allowed has no bin. CIIP requires 64 samples, GPM 8x8 samples and an aspect ratio up to 4.
    below_128 = width < 128 and height < 128
    may_ciip = s.slice.sps_ciip_enabled_flag == 1 and not cu.cu_skip_flag and width * height >= 64 and below_128
    may_gpm = s.slice.sps_gpm_enabled_flag == 1 and s.slice.is_b == 1 and min(width, height) >= 8 and below_128
    may_gpm = may_gpm and width < 8 * height and height < 8 * width
    if not (may_ciip or may_gpm) or decode_bin(w, c.REGULAR_MERGE_FLAG + (cu.cu_skip_flag == 0)):
        regular_merge(w)
        return
    ciip = may_ciip
    if may_ciip and may_gpm:
        ciip = decode_bin(w, c.CIIP_FLAG) == 1
    if ciip:
        cu.ciip_flag = 1
        cu.merge_idx = decode_merge_index(w, s.slice.max_num_merge_cand)
    else:
        cu.gpm_flag = 1
        cu.merge_gpm_partition_idx = decode_bypass_bits(w, 6)
        cu.merge_idx = decode_merge_index(w, s.slice.max_num_gpm_merge_cand)
        cu.merge_gpm_idx1 = decode_merge_index(w, s.slice.max_num_gpm_merge_cand - 1)


@compiled
def regular_merge(w: Work) -> None:
    """Parse mmvd_merge_flag and the elements that depend on it, or merge_idx.

    Part of clause 7.3.11.7, Merge data syntax.
    """
    s = w.state
    cu = s.cu
    if s.slice.sps_mmvd_enabled_flag and decode_bin(w, c.MMVD_MERGE_FLAG):
        cu.mmvd_merge_flag = 1
        if s.slice.max_num_merge_cand > 1:
            cu.merge_idx = decode_bin(w, c.MMVD_CAND_FLAG)
        if decode_bin(w, c.MMVD_DISTANCE_IDX):
            cu.mmvd_distance_idx = 1 + truncated_unary(w, 6)
        cu.mmvd_direction_idx = decode_bypass_bits(w, 2)
    else:
        cu.merge_idx = decode_merge_index(w, s.slice.max_num_merge_cand)


@compiled
def ibc_vector(w: Work) -> None:
    """Parse the block vector of an IBC unit without merge.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    x, y = mvd_coding(w)
    second = decode_bin(w, c.MVP_FLAG) if s.slice.max_num_ibc_merge_cand > 1 else 0
    coarse = 0
    if s.slice.sps_amvr_enabled_flag and (x or y):
        coarse = decode_bin(w, c.AMVR_PRECISION_IDX + 1)
    predicted_vector(w, second, x, y, coarse == 1)


@compiled
def motion_vectors(w: Work) -> None:
    """Parse reference indices and motion vector differences of an inter unit without merge.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    width, height = cu.width, cu.height
    direction = decode_inter_pred_idc(w) if s.slice.is_b else PRED_L0
    affine = points = 0
    if s.slice.sps_affine_enabled_flag and min(width, height) >= 16:
        affine = decode_bin(w, c.INTER_AFFINE_FLAG + subblock_context(w))
        points = affine
        if affine and s.slice.sps_6param_affine_enabled_flag:
            points += decode_bin(w, c.CU_AFFINE_TYPE_FLAG)
    symmetric = 0
    if s.slice.smvd_enabled and direction == PRED_BI and not affine:
        symmetric = decode_bin(w, c.SYM_MVD_FLAG)
    cu.subblock_flag, cu.motion_model_idc, cu.inter_pred_idc, cu.sym_mvd_flag = affine, points, direction, symmetric
    moved = False
    weighted = 0
    if direction != PRED_L1:
        cu.ref_idx[0] = 0 if symmetric else decode_ref_idx(w, s.slice.num_ref_idx_active[0])
        weighted |= (s.slice.weighted[0] >> cu.ref_idx[0]) & 1
        moved = vector_differences(w, 0, 1 + points)
        cu.mvp_flag[0] = decode_bin(w, c.MVP_FLAG)
    if direction != PRED_L0:
        cu.ref_idx[1] = 0 if symmetric else decode_ref_idx(w, s.slice.num_ref_idx_active[1])
        weighted |= (s.slice.weighted[1] >> cu.ref_idx[1]) & 1
        if not (s.slice.ph_mvd_l1_zero_flag and direction == PRED_BI) and not symmetric:
            moved |= vector_differences(w, 1, 1 + points)
        cu.mvp_flag[1] = decode_bin(w, c.MVP_FLAG)
    cu.amvr_shift = 2
    amvr = s.slice.sps_affine_amvr_enabled_flag if affine else s.slice.sps_amvr_enabled_flag
    if moved and amvr and decode_bin(w, c.AMVR_FLAG + affine):
        # Steps of 1/16 or 1 sample for affine units, else of 1/2, 1 or 4 samples (clause 7.4.12.5).
        if affine:
            cu.amvr_shift = 4 * decode_bin(w, c.AMVR_PRECISION_IDX + 2)
        elif decode_bin(w, c.AMVR_PRECISION_IDX):
            cu.amvr_shift = 4 + 2 * decode_bin(w, c.AMVR_PRECISION_IDX + 1)
        else:
            cu.amvr_shift = 3
    may_bcw = s.slice.sps_bcw_enabled_flag and direction == PRED_BI and not weighted and width * height >= 256
    if may_bcw and decode_bin(w, c.BCW_IDX):
        cu.bcw_idx = 1 + truncated_unary(w, 3 if s.slice.no_backward_pred_flag else 1)


@compiled
def vector_differences(w: Work, list_x: int, points: int) -> bool:
    """Parse the motion vector differences of one list; return True if one of them is not 0.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    moved = False
    for point in range(points):
        mvd = w.state.cu.mvd[list_x, point]
        mvd.x, mvd.y = mvd_coding(w)
        moved |= mvd.x != 0 or mvd.y != 0
    return moved


@compiled
def decode_inter_pred_idc(w: Work) -> int:
    """Decode inter_pred_idc.

    Clause 9.3.3.9.
    """
    cu = w.state.cu
    if cu.width + cu.height > 12:
        exponent = 0
        while cu.width * cu.height >> (exponent + 1):
            exponent += 1
        if decode_bin(w, c.INTER_PRED_IDC + 7 - ((1 + exponent) >> 1)):
            return PRED_BI
    return PRED_L1 if decode_bin(w, c.INTER_PRED_IDC + 5) else PRED_L0


@compiled
def decode_ref_idx(w: Work, active: int) -> int:
    """Decode ref_idx_l0 or ref_idx_l1 of a list of `active` entries; a single entry has no bin.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    top = active - 1
    value = 0
    while value < min(top, 2) and decode_bin(w, c.REF_IDX + value):
        value += 1
    if value == 2:
        value += truncated_unary(w, top - 2)
    return value


@compiled
def mvd_coding(w: Work) -> tuple[int, int]:
    """Parse a motion vector difference; return the horizontal and vertical difference.

    Clause 7.3.11.8, Motion vector difference syntax.
    """
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


@compiled
def merge_vector(w: Work, index: int) -> None:
    """Set the block vector to merge candidate `index`.

    Part of clause 8.6.2.2.
    Clause 8.6.2.3.
    Clause 8.6.2.4, Derivation process for IBC history-based block vector candidates.

    Candidates are the vectors of the units to the left and above, then those of the last units, then zero.
    """
    s = w.state
    cu = s.cu
    x, y, width, height = cu.x, cu.y, cu.width, cu.height
    left = above = False
    left_x = left_y = above_x = above_y = 0
    count = 0
    cu.bv.x = cu.bv.y = 0
    large = width * height > 16
    left_cell, above_cell = left_of(w, x, y + height - 1), above_of(w, x + width - 1, y)
    if large and left_cell.cu_pred_mode[0] == st.MODE_IBC:
        left = True
        left_x, left_y = int64(left_cell.bv.x), int64(left_cell.bv.y)
        if index == count:
            cu.bv.x, cu.bv.y = left_x, left_y
            return
        count += 1
    if large and above_cell.cu_pred_mode[0] == st.MODE_IBC:
        above = True
        above_x, above_y = int64(above_cell.bv.x), int64(above_cell.bv.y)
        if not left or above_x != left_x or above_y != left_y:
            if index == count:
                cu.bv.x, cu.bv.y = above_x, above_y
                return
            count += 1
    for i in range(s.num_hmvp_ibc_cand):
        last = s.hmvp_ibc_cand_list[s.num_hmvp_ibc_cand - 1 - i]
        # Only the most recent one is compared with the neighbours.
        if i == 0 and left and last.x == left_x and last.y == left_y:
            continue
        if i == 0 and above and last.x == above_x and last.y == above_y:
            continue
        if index == count:
            cu.bv.x, cu.bv.y = last.x, last.y
            return
        count += 1


@compiled
def predicted_vector(w: Work, index: int, difference_x: int, difference_y: int, coarse: bool) -> None:
    """Set the block vector to a candidate plus a difference.

    Part of clause 8.6.2.2.

    Args:
        w: State of the parser.
        index: Index of the candidate.
        difference_x: Horizontal difference in steps.
        difference_y: Vertical difference in steps.
        coarse: A step is four samples instead of one.
    """
    cu = w.state.cu
    merge_vector(w, index)
    x, y = cu.bv.x, cu.bv.y
    if coarse:
        x, y = rounded(x) + 4 * difference_x, rounded(y) + 4 * difference_y
    else:
        x, y = x + difference_x, y + difference_y
    # Vectors wrap around at 18 bits in units of 1/16 sample.
    cu.bv.x, cu.bv.y = ((x + 8192) & 16383) - 8192, ((y + 8192) & 16383) - 8192


@compiled
def rounded(value: int) -> int:
    """Round a component of a vector to steps of four.

    Clause 8.5.2.14, Rounding process for motion vectors.
    """
    return ((value + 1) >> 2) << 2 if value >= 0 else ((value + 2) >> 2) << 2


@compiled
def keep_vector(w: Work) -> None:
    """Append the block vector to the table of earlier vectors.

    Clause 8.6.2.6, Updating process for the history-based block vector predictor candidate list.
    """
    s = w.state
    cu = s.cu
    bv = cu.bv
    if cu.width * cu.height <= 16:
        return
    count = s.num_hmvp_ibc_cand
    remove = 0 if count == MAX_IBC_CANDIDATES else count
    for i in range(count):
        if s.hmvp_ibc_cand_list[i].x == bv.x and s.hmvp_ibc_cand_list[i].y == bv.y:
            remove = i
            break
    for i in range(remove, count - 1):
        copy_record(s.hmvp_ibc_cand_list[i], s.hmvp_ibc_cand_list[i + 1])
    if remove < count:
        count -= 1
    copy_record(s.hmvp_ibc_cand_list[count], bv)
    s.num_hmvp_ibc_cand = count + 1
