"""Motion of inter units: dispatch by mode, and history of earlier units (H.266 clauses 8.5.1, 8.5.2.1, 8.5.2.16).

`derive_motion` is compiled and called once for each inter unit in decoding order before its samples are predicted.
"""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.affine_prediction import predicted_affine_motion
from codecnn.vvc.decoder.frame import Frame, coding_unit
from codecnn.vvc.decoder.geometric_motion import geometric_motion
from codecnn.vvc.decoder.merge import add_difference, merge_candidates
from codecnn.vvc.decoder.motion_candidates import clear_candidate, copy_candidate, same_motion, store_block, store_unit
from codecnn.vvc.decoder.motion_prediction import predicted_motion
from codecnn.vvc.decoder.records import KIND_REGULAR, Motion
from codecnn.vvc.decoder.subblock_merge import merged_subblock_motion


@compiled
def derive_motion(f: Frame) -> None:
    """Derive the motion of the current inter unit from its syntax elements.

    Clause 8.5.2.1, Derivation process for motion vector components and reference indices.

    Sets `f.unit` and the cells of `f.motion` over the unit. `f.current` and `f.slice` must be set, earlier units
    must be marked in `Frame.known`. The cells are -1 at the beginning of a picture; intra, IBC and palette units do not
    change them.

    Args:
        f: State of the picture.
    """
    cu, unit = coding_unit(f), f.unit
    unit.x, unit.y, unit.width, unit.height = cu.x, cu.y, cu.width, cu.height
    unit.kind, unit.motion_model_idc = KIND_REGULAR, 0
    unit.ciip_flag, unit.general_merge_flag = cu.ciip_flag, cu.general_merge_flag
    unit.mmvd_merge_flag, unit.sym_mvd_flag = cu.mmvd_merge_flag, cu.sym_mvd_flag
    clear_candidate(unit.motion)
    for i in range(2):
        for point in range(3):
            unit.cp_mv[i, point].x = unit.cp_mv[i, point].y = 0
    begin_row(f)
    if cu.gpm_flag:
        geometric_motion(f)
    elif cu.subblock_flag:
        if unit.general_merge_flag:
            merged_subblock_motion(f)
        else:
            predicted_affine_motion(f)
    else:
        if unit.general_merge_flag:
            merged_motion(f)
        else:
            predicted_motion(f)
        store_block(f, unit.motion, unit.x, unit.y, unit.x + unit.width, unit.y + unit.height)
        update_history(f, unit.motion)
    store_unit(f)


@compiled
def begin_row(f: Frame) -> None:
    """Set NumHmvpCand to 0 at the first inter unit of a row of CTUs of a tile.

    Part of clause 7.3.11.1, General slice data syntax.
    """
    candidates = f.candidates
    row = f.unit.y >> f.pic.ctb_log2_size_y
    if candidates.hmvp_region != f.current.region or candidates.hmvp_ctb_row != row:
        candidates.hmvp_region, candidates.hmvp_ctb_row, candidates.num_hmvp_cand = f.current.region, row, 0


@compiled
def merged_motion(f: Frame) -> None:
    """Derive the motion of a unit with regular merge, merge with vector differences or CIIP.

    Part of clause 8.5.2.2, Derivation process for luma motion vectors for merge mode.

    Bi-prediction of a unit of 8x4 or 4x8 samples becomes prediction from L0.

    Args:
        f: State of the picture; the result is `f.unit.motion`.
    """
    cu, unit, motion = coding_unit(f), f.unit, f.unit.motion
    merge_idx = min(5, cu.merge_idx)
    merge_candidates(f, merge_idx)
    copy_candidate(f.candidates.merge_cand_list[merge_idx], motion)
    if unit.mmvd_merge_flag:
        add_difference(f, motion, cu.mmvd_distance_idx, cu.mmvd_direction_idx)
    if motion.ref_idx[0] >= 0 and motion.ref_idx[1] >= 0 and unit.width + unit.height == 12:
        motion.mv[1].x = motion.mv[1].y = motion.bcw_idx = 0
        motion.ref_idx[1] = -1


@compiled
def update_history(f: Frame, motion: Motion) -> None:
    """Append `motion` to HmvpCandList, or move it to the end if it is in the list.

    Clause 8.5.2.16, Updating process for the history-based motion vector predictor candidate list.

    Units inside one merge estimation region are left out, so that its units can be derived in parallel.

    Args:
        f: State of the picture.
        motion: Motion of the current unit.
    """
    unit, candidates = f.unit, f.candidates
    level = f.slice.log2_par_mrg_level
    right, bottom = unit.x + unit.width, unit.y + unit.height
    if right >> level == unit.x >> level or bottom >> level == unit.y >> level:
        return
    count = candidates.num_hmvp_cand
    remove = 0 if count == 5 else count
    for i in range(count):
        if same_motion(candidates.hmvp_cand_list[i], motion):
            remove = i
            break
    for i in range(remove, count - 1):
        copy_candidate(candidates.hmvp_cand_list[i + 1], candidates.hmvp_cand_list[i])
    if remove < count:
        count -= 1
    copy_candidate(motion, candidates.hmvp_cand_list[count])
    candidates.num_hmvp_cand = count + 1
