"""Motion of inter units: dispatch by mode, and history of earlier units (H.266 clauses 8.5.1, 8.5.2.1, 8.5.2.16).

`derive_motion` is compiled and called once for each inter unit in decoding order before its samples are predicted.
"""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.affine_prediction import predicted_affine_motion
from codecnn.vvc.decoder.frame import Frame
from codecnn.vvc.decoder.geometric_motion import geometric_motion
from codecnn.vvc.decoder.merge import add_difference, merge_candidates
from codecnn.vvc.decoder.motion_candidates import copy_candidate, same_motion, set_unit_motion, store_block, store_unit
from codecnn.vvc.decoder.motion_prediction import predicted_motion
from codecnn.vvc.decoder.subblock_merge import merged_subblock_motion
from codecnn.vvc.syntax import log as lg


@compiled
def derive_motion(f: Frame) -> None:
    """Derive the motion of the inter unit at p[UNIT] of the log.

    Sets p[MOTION_OF_UNIT :] and the planes of `Frame.motion` over the unit. p[REGION] and the numbers of the slice must
    be set, earlier units must be marked in `Frame.known`. `Frame.motion` begins with -1 everywhere; intra, IBC and
    palette units do not change it.

    Args:
        f: State of the picture.
    """
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    at = fr.MOTION_OF_UNIT
    for i in range(fr.MOTION_UNIT):
        p[at + i] = 0
    p[at + fr.UNIT_X], p[at + fr.UNIT_Y] = log[unit + lg.U_X], log[unit + lg.U_Y]
    p[at + fr.UNIT_W], p[at + fr.UNIT_H] = log[unit + lg.U_W], log[unit + lg.U_H]
    p[at + fr.UNIT_CIIP], p[at + fr.UNIT_MERGE] = log[unit + lg.U_CIIP], log[unit + lg.U_MERGE]
    p[at + fr.UNIT_MMVD], p[at + fr.UNIT_SYMMETRIC] = log[unit + lg.U_MMVD], log[unit + lg.U_SYMMETRIC]
    begin_row(f)
    candidate = fr.NEIGHBOURS
    if log[unit + lg.U_GPM]:
        geometric_motion(f)
    elif log[unit + lg.U_SUBBLOCK]:
        if log[unit + lg.U_MERGE]:
            merged_subblock_motion(f)
        else:
            predicted_affine_motion(f)
    else:
        if log[unit + lg.U_MERGE]:
            merged_motion(f, candidate)
        else:
            predicted_motion(f, candidate)
        set_unit_motion(f, candidate)
        right, bottom = p[at + fr.UNIT_X] + p[at + fr.UNIT_W], p[at + fr.UNIT_Y] + p[at + fr.UNIT_H]
        store_block(f, candidate, p[at + fr.UNIT_X], p[at + fr.UNIT_Y], right, bottom)
        update_history(f, candidate)
    store_unit(f)


@compiled
def begin_row(f: Frame) -> None:
    """Clear the history at the first unit of a row of CTUs of a tile (7.3.11.1)."""
    p = f.p
    row = p[fr.MOTION_OF_UNIT + fr.UNIT_Y] >> p[fr.LOG2_CTU]
    if p[fr.HISTORY_REGION] != p[fr.REGION] or p[fr.HISTORY_ROW] != row:
        p[fr.HISTORY_REGION], p[fr.HISTORY_ROW], p[fr.HISTORY_COUNT] = p[fr.REGION], row, 0


@compiled
def merged_motion(f: Frame, at: int) -> None:
    """Derive the motion of a unit with regular merge, merge with vector differences or CIIP, at p[at] (8.5.2.2)."""
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    index = min(5, log[unit + lg.U_MERGE_IDX])
    merge_candidates(f, index)
    copy_candidate(f, fr.MERGE_LIST + fr.CANDIDATE * index, at)
    if log[unit + lg.U_MMVD]:
        add_difference(f, at, log[unit + lg.U_MMVD_DISTANCE], log[unit + lg.U_MMVD_DIRECTION])
    bidirectional = p[at + fr.C_REF_0] >= 0 and p[at + fr.C_REF_1] >= 0
    if bidirectional and log[unit + lg.U_W] + log[unit + lg.U_H] == 12:
        p[at + fr.C_X1] = p[at + fr.C_Y1] = p[at + fr.C_BCW] = 0
        p[at + fr.C_REF_1] = -1


@compiled
def update_history(f: Frame, at: int) -> None:
    """Append the candidate at p[at] to the history, or move it to the end if it is there (8.5.2.16).

    Units inside one merge estimation region are left out, so that its units can be derived in parallel.
    """
    p = f.p
    level = p[fr.PARALLEL_LEVEL]
    x, y = p[fr.MOTION_OF_UNIT + fr.UNIT_X], p[fr.MOTION_OF_UNIT + fr.UNIT_Y]
    right, bottom = x + p[fr.MOTION_OF_UNIT + fr.UNIT_W], y + p[fr.MOTION_OF_UNIT + fr.UNIT_H]
    if right >> level == x >> level or bottom >> level == y >> level:
        return
    count = p[fr.HISTORY_COUNT]
    remove = 0 if count == 5 else count
    for i in range(count):
        if same_motion(f, fr.HISTORY + fr.CANDIDATE * i, at):
            remove = i
            break
    for i in range(remove, count - 1):
        copy_candidate(f, fr.HISTORY + fr.CANDIDATE * (i + 1), fr.HISTORY + fr.CANDIDATE * i)
    if remove < count:
        count -= 1
    copy_candidate(f, at, fr.HISTORY + fr.CANDIDATE * count)
    p[fr.HISTORY_COUNT] = count + 1
