"""Initialisation of the state of a picture and of its slices from parameter sets and headers."""

import numpy as np

from codecnn.base.errors import FormatError
from codecnn.base.records import Records, new_record
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.frame import TABLES
from codecnn.vvc.decoder.records import COLLOCATED_CELL, MOTION_CELL, Candidates, InterSlice, InterUnit
from codecnn.vvc.syntax import (
    LMCS_APS,
    SCALING_APS,
    LumaMapping,
    ParsedPicture,
    Slice,
    read_lmcs_aps,
    read_scaling_list_aps,
)


def new_frame(picture: ParsedPicture) -> tuple[fr.Frame, list[tuple[int, int]]]:
    """Allocate the arrays for a picture; return them and the (height, width) of its components."""
    sps, pps = picture.sps, picture.pps
    height, width = pps.pps_pic_height_in_luma_samples, pps.pps_pic_width_in_luma_samples
    sub_x, sub_y = sps.log2_sub_width_c, sps.log2_sub_height_c
    sizes = [(height, width), *[(height >> sub_y, width >> sub_x)] * (2 if sps.sps_chroma_format_idc else 0)]
    p = np.zeros(fr.NUMBERS, np.int64)
    p[fr.WIDTH], p[fr.HEIGHT], p[fr.SUB_X], p[fr.SUB_Y] = width, height, sub_x, sub_y
    p[fr.CHROMA], p[fr.BIT_DEPTH], p[fr.LOG2_CTU] = sps.sps_chroma_format_idc, sps.bit_depth, sps.ctb_log2_size_y
    p[fr.WAVEFRONT] = sps.sps_entropy_coding_sync_enabled_flag
    p[fr.COLLOCATED] = sps.sps_chroma_vertical_collocated_flag
    p[fr.TRANSFORM_RANGE] = sps.log2_transform_range
    p[fr.MIN_QP_TS], p[fr.MAX_TB] = sps.min_qp_prime_ts, 1 << sps.max_tb_log2_size_y
    p[fr.LADF] = len(sps.ladf)
    for i, (bound, offset) in enumerate(sps.ladf):
        p[fr.LADF_BOUND + i], p[fr.LADF_OFFSET + i] = bound, offset
    for kind, table in enumerate(sps.chroma_qp_tables):
        at = fr.QP_TABLE + fr.QP_TABLE_SIZE * kind
        p[at : at + len(table)] = table
    total = 0
    for first in (fr.RECON, fr.PRED, fr.RESI):
        for component, (rows, columns) in enumerate(sizes):
            p[fr.STRIDE + component] = columns
            p[first + component] = total
            total += rows * columns
    p[fr.VPDU_X] = -1
    return fr.Frame(
        p,
        np.concatenate([np.zeros(fr.SCRATCH, np.int32), TABLES]),
        np.zeros(total, np.int32),
        np.zeros((fr.KNOWN, height // 4, width // 4), np.int32),
        np.zeros(0, np.int64),
        new_record(InterSlice),
        new_record(InterUnit),
        new_record(Candidates),
        no_motion(height // 4, width // 4),
        np.zeros(1, np.uint16),
        np.zeros((1, 1), COLLOCATED_CELL),
    ), sizes


def no_motion(rows: int, columns: int) -> Records:
    """Return cells of `Frame.motion` of a picture without inter units: all their numbers are -1."""
    cells = np.empty((rows, columns), MOTION_CELL)
    cells.view(np.int32)[...] = -1
    return cells


def put_slice(f: fr.Frame, part: Slice) -> LumaMapping | None:
    """Set the values of a slice in `f.p` and `f.slice`; return its luma mapping, if it has one."""
    p, h, ph = f.p, part.header, part.picture_header
    sps, pps = ph.sps, ph.pps
    p[fr.ACROSS_TILES], p[fr.ACROSS_SLICES] = pps.tiles.filter_across_tiles, pps.tiles.filter_across_slices
    for first, places in zip((fr.COLUMNS, fr.ROWS), ph.virtual_boundaries, strict=True):
        p[first : first + len(places)] = places
    p[fr.DEP_QUANT], p[fr.JOINT_SIGN] = h.sh_dep_quant_used_flag, ph.ph_joint_cbcr_sign_flag
    p[fr.QP_OFFSET : fr.QP_OFFSET + 3] = np.add(pps.chroma_qp_offsets, h.chroma_qp_offsets)
    for i, offsets in enumerate(pps.chroma_qp_offset_list):
        at = fr.QP_LIST + 3 * (i + 1)
        p[at : at + len(offsets)] = offsets
    if h.slice_type != "I":
        _put_inter(f.slice, part)
    p[fr.LISTS] = h.sh_explicit_scaling_list_used_flag
    p[fr.LISTS_FOR_LFNST] = not sps.sps_scaling_matrix_for_lfnst_disabled_flag
    p[fr.LISTS_NOT_FOR_ACT] = sps.lists_disabled_for_act[0] if sps.lists_disabled_for_act else -1
    if h.sh_explicit_scaling_list_used_flag:
        lists = read_scaling_list_aps(_parameter_set(part, SCALING_APS, ph.ph_scaling_list_aps_id, "scaling list"))
        for number, (side, entries, dc) in enumerate(lists):
            matrix = np.array(entries).reshape(side, side)
            enlarged = np.kron(matrix, np.ones((8 // side, 8 // side), np.int64))
            p[fr.LISTS_AT + 64 * number : fr.LISTS_AT + 64 * (number + 1)] = enlarged.ravel()
            p[fr.LISTS_DC + number] = dc
    p[fr.LMCS], p[fr.LMCS_CHROMA] = h.sh_lmcs_used_flag, h.sh_lmcs_used_flag and ph.ph_chroma_residual_scale_flag
    if not h.sh_lmcs_used_flag:
        return None
    mapping = read_lmcs_aps(_parameter_set(part, LMCS_APS, ph.ph_lmcs_aps_id, "LMCS"), sps.bit_depth)
    p[fr.LMCS_MIN], p[fr.LMCS_MAX] = mapping.first, mapping.last
    p[fr.PIVOT : fr.PIVOT + 17] = mapping.pivot
    p[fr.CHROMA_SCALE : fr.CHROMA_SCALE + 16] = mapping.chroma_scale
    p[fr.LUMA_SCALE : fr.LUMA_SCALE + 16] = mapping.scale
    return mapping


def _put_inter(s: InterSlice, part: Slice) -> None:
    """Set the values of a P or B slice, except for its reference picture lists."""
    h, ph = part.header, part.picture_header
    sps, pps = ph.sps, ph.pps
    s.is_b, s.poc = h.slice_type == "B", part.poc
    s.num_ref_idx_active[0], s.num_ref_idx_active[1] = h.num_ref_idx_active
    s.bdof_enabled = sps.sps_bdof_enabled_flag and not ph.ph_bdof_disabled_flag
    s.dmvr_enabled = sps.sps_dmvr_enabled_flag and not ph.ph_dmvr_disabled_flag
    s.prof_enabled = sps.sps_affine_prof_enabled_flag and not ph.ph_prof_disabled_flag
    s.weighted_pred_flag = pps.pps_weighted_pred_flag if h.slice_type == "P" else pps.pps_weighted_bipred_flag
    s.log2_weight_denom[0] = h.weights.log2_denominator
    s.log2_weight_denom[1] = s.log2_weight_denom[2] = h.weights.log2_denominator_c
    s.ph_temporal_mvp_enabled_flag, s.sps_sbtmvp_enabled_flag = (
        ph.ph_temporal_mvp_enabled_flag,
        sps.sps_sbtmvp_enabled_flag,
    )
    s.collocated_list, s.collocated_ref_idx = h.collocated
    s.no_backward_pred_flag = all(poc <= part.poc for entries in part.references for _, poc in entries)
    s.max_num_merge_cand = sps.max_num_merge_cand
    s.log2_par_mrg_level = sps.log2_parallel_merge_level
    s.ph_mmvd_fullpel_only_flag = ph.ph_mmvd_fullpel_only_flag
    s.sps_affine_enabled_flag = sps.sps_affine_enabled_flag
    s.sps_6param_affine_enabled_flag = sps.sps_6param_affine_enabled_flag
    s.ref_wraparound_offset = pps.wraparound_offset
    s.sps_chroma_horizontal_collocated_flag = sps.sps_chroma_horizontal_collocated_flag
    s.window_left = pps.scaling_window.left << sps.log2_sub_width_c
    s.window_top = pps.scaling_window.top << sps.log2_sub_height_c
    width, height = pps.pps_pic_width_in_luma_samples, pps.pps_pic_height_in_luma_samples
    subpicture = sps.subpictures[h.subpicture]
    s.subpic_treated_as_pic = len(sps.subpictures) > 1 and subpicture.treated_as_picture
    s.subpic_left, s.subpic_top, s.subpic_right, s.subpic_bottom = 0, 0, width, height
    if s.subpic_treated_as_pic:
        size = sps.ctb_log2_size_y
        s.subpic_left, s.subpic_top = subpicture.x << size, subpicture.y << size
        s.subpic_right = min(width, (subpicture.x + subpicture.width) << size)
        s.subpic_bottom = min(height, (subpicture.y + subpicture.height) << size)


def _parameter_set(part: Slice, kind: int, number: int, what: str) -> bytes:
    """Return the payload of a parameter set, or raise FormatError if it is missing."""
    if (kind, number) not in part.parameter_sets:
        raise FormatError(f"there is no {what} parameter set {number}")
    return part.parameter_sets[kind, number]
