"""Initialisation of the state of a picture and of its slices from parameter sets and headers."""

from collections.abc import Collection

import numpy as np

from codecnn.base.errors import FormatError
from codecnn.base.records import Records, new_record
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.cells import BLOCK_CELL, COLLOCATED_CELL, MOTION_CELL
from codecnn.vvc.decoder.plane_memory import PlaneMemory
from codecnn.vvc.decoder.records import (
    INTER_BLOCK,
    Candidates,
    InterUnit,
    PictureValues,
    Position,
    Scratch,
    SliceValues,
)
from codecnn.vvc.syntax import (
    LMCS_APS,
    SCALING_APS,
    LumaMapping,
    ParsedPicture,
    Slice,
    read_lmcs_aps,
    read_scaling_list_aps,
)


def new_frame(
    picture: ParsedPicture, memory: PlaneMemory | None = None, kept: Collection[str] = ("pred", "resid")
) -> tuple[fr.Frame, list[tuple[int, int]]]:
    """Initialise the state of a picture.

    Args:
        picture: The picture.
        memory: Memory of its arrays; None allocates them.
        kept: Samples to keep besides the reconstruction: "pred" the prediction, "resid" the residual.

    Returns:
        The state, and the (height, width) of the components.
    """
    memory = memory or PlaneMemory()
    sps, pps = picture.sps, picture.pps
    height, width = pps.pps_pic_height_in_luma_samples, pps.pps_pic_width_in_luma_samples
    sub_x, sub_y = sps.log2_sub_width_c, sps.log2_sub_height_c
    sizes = [(height, width), *[(height >> sub_y, width >> sub_x)] * (2 if sps.sps_chroma_format_idc else 0)]
    pic, current = new_record(PictureValues), new_record(Position)
    pic.width, pic.height, pic.log2_sub_width_c, pic.log2_sub_height_c = width, height, sub_x, sub_y
    pic.sps_chroma_format_idc, pic.bit_depth = sps.sps_chroma_format_idc, sps.bit_depth
    pic.ctb_log2_size_y = sps.ctb_log2_size_y
    pic.sps_entropy_coding_sync_enabled_flag = sps.sps_entropy_coding_sync_enabled_flag
    pic.sps_chroma_vertical_collocated_flag = sps.sps_chroma_vertical_collocated_flag
    pic.log2_transform_range, pic.min_qp_prime_ts = sps.log2_transform_range, sps.min_qp_prime_ts
    pic.max_tb_size_y = 1 << sps.max_tb_log2_size_y
    pic.num_ladf_intervals = len(sps.ladf)
    for i, (bound, offset) in enumerate(sps.ladf):
        pic.ladf_lower_bound[i], pic.ladf_qp_offset[i] = bound, offset
    for kind, table in enumerate(sps.chroma_qp_tables):
        pic.chroma_qp_table[kind, : len(table)] = table
    total = 0
    kinds = [pic.recon, *([pic.pred] if "pred" in kept else []), *([pic.resid] if "resid" in kept else [])]
    pic.resid[:] = -1
    for starts in kinds:
        for component, (rows, columns) in enumerate(sizes):
            pic.stride[component] = columns
            starts[component] = total
            total += rows * columns
    if "pred" not in kept:
        pic.pred[:] = pic.recon
    current.vpdu_x = -1
    planes = memory.take((total,), np.int32)
    if "resid" in kept:
        planes[pic.resid[0] :] = 0
    if sps.sps_ibc_enabled_flag:
        # A block vector of a damaged stream may point to samples that are not reconstructed.
        planes[: sum(rows * columns for rows, columns in sizes)] = 0
    known = memory.take((height // 4, width // 4), BLOCK_CELL)
    known.view(np.int32)[...] = 0
    return fr.Frame(
        pic,
        new_record(SliceValues),
        current,
        new_record(Scratch, np.int32),
        fr.TABLES,
        planes,
        known,
        np.zeros(0, np.int64),
        new_record(InterUnit),
        new_record(Candidates),
        no_motion(height // 4, width // 4, memory),
        np.zeros(1, np.uint16),
        np.zeros(INTER_BLOCK, np.uint16),
        np.zeros((1, 1), COLLOCATED_CELL),
    ), sizes


def no_motion(rows: int, columns: int, memory: PlaneMemory | None = None) -> Records:
    """Return cells of `Frame.motion` of a picture without inter units: all their numbers are -1."""
    cells = (memory or PlaneMemory()).take((rows, columns), MOTION_CELL)
    cells.view(np.int32)[...] = -1
    return cells


def put_slice(s: SliceValues, part: Slice) -> LumaMapping | None:
    """Set the values of a slice except for its reference picture lists; return its luma mapping, if it has one."""
    h, ph = part.header, part.picture_header
    sps, pps = ph.sps, ph.pps
    s.loop_filter_across_tiles = pps.tiles.filter_across_tiles
    s.loop_filter_across_slices = pps.tiles.filter_across_slices
    columns, rows = ph.virtual_boundaries
    s.virtual_boundary_pos_x[: len(columns)], s.virtual_boundary_pos_y[: len(rows)] = columns, rows
    s.sh_dep_quant_used_flag, s.ph_joint_cbcr_sign_flag = h.sh_dep_quant_used_flag, ph.ph_joint_cbcr_sign_flag
    s.chroma_qp_offset[:] = np.add(pps.chroma_qp_offsets, h.chroma_qp_offsets)
    for i, offsets in enumerate(pps.chroma_qp_offset_list):
        s.cu_chroma_qp_offset[i + 1, : len(offsets)] = offsets
    if h.slice_type != "I":
        _put_inter(s, part)
    s.sh_explicit_scaling_list_used_flag = h.sh_explicit_scaling_list_used_flag
    s.scaling_matrix_for_lfnst = not sps.sps_scaling_matrix_for_lfnst_disabled_flag
    s.scaling_matrix_disabled_for_act = sps.lists_disabled_for_act[0] if sps.lists_disabled_for_act else -1
    if h.sh_explicit_scaling_list_used_flag:
        lists = read_scaling_list_aps(_parameter_set(part, SCALING_APS, ph.ph_scaling_list_aps_id, "scaling list"))
        for number, (side, entries, dc) in enumerate(lists):
            matrix = np.array(entries).reshape(side, side)
            s.scaling_factor[number] = np.kron(matrix, np.ones((8 // side, 8 // side), np.int64))
            s.scaling_factor_dc[number] = dc
    s.sh_lmcs_used_flag = h.sh_lmcs_used_flag
    s.chroma_residual_scale = h.sh_lmcs_used_flag and ph.ph_chroma_residual_scale_flag
    if not h.sh_lmcs_used_flag:
        return None
    mapping = read_lmcs_aps(_parameter_set(part, LMCS_APS, ph.ph_lmcs_aps_id, "LMCS"), sps.bit_depth)
    s.lmcs_min_bin_idx, s.lmcs_max_bin_idx = mapping.first, mapping.last
    s.lmcs_pivot[:] = mapping.pivot
    s.chroma_scale_coeff[:], s.scale_coeff[:] = mapping.chroma_scale, mapping.scale
    return mapping


def _put_inter(s: SliceValues, part: Slice) -> None:
    """Set the values of a P or B slice, except for its reference picture lists."""
    h, ph = part.header, part.picture_header
    sps, pps = ph.sps, ph.pps
    s.is_b, s.poc = h.slice_type == "B", part.poc
    s.num_ref_idx_active[:] = h.num_ref_idx_active
    s.bdof_enabled = sps.sps_bdof_enabled_flag and not ph.ph_bdof_disabled_flag
    s.dmvr_enabled = sps.sps_dmvr_enabled_flag and not ph.ph_dmvr_disabled_flag
    s.prof_enabled = sps.sps_affine_prof_enabled_flag and not ph.ph_prof_disabled_flag
    s.weighted_pred_flag = pps.pps_weighted_pred_flag if h.slice_type == "P" else pps.pps_weighted_bipred_flag
    s.log2_weight_denom[0] = h.weights.log2_denominator
    s.log2_weight_denom[1] = s.log2_weight_denom[2] = h.weights.log2_denominator_c
    s.ph_temporal_mvp_enabled_flag = ph.ph_temporal_mvp_enabled_flag
    s.sps_sbtmvp_enabled_flag = sps.sps_sbtmvp_enabled_flag
    s.collocated_list, s.collocated_ref_idx = h.collocated
    s.no_backward_pred_flag = part.no_backward_pred_flag
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
