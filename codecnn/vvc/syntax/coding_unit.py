"""Coding units (H.266 clause 7.3.11.5)."""

from codecnn.base.compiled import compiled
from codecnn.base.records import fill_record
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin
from codecnn.vvc.syntax.inter import inter_unit
from codecnn.vvc.syntax.intra import intra_chroma, intra_luma
from codecnn.vvc.syntax.log_writer import begin_unit, end_unit
from codecnn.vvc.syntax.neighbours import above_of, cell, left_of, store_size, store_unit
from codecnn.vvc.syntax.palette import palette_unit
from codecnn.vvc.syntax.state import Work
from codecnn.vvc.syntax.transform import choose_kernels, isp_parts, predict_qp, transform_tree


@compiled
def coding_unit(w: Work) -> None:
    """Parse the syntax of a coding unit at a leaf of the coding tree, the current node.

    Clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    begin_coding_unit(w)
    chroma = cu.tree == st.DUAL_CHROMA
    if s.current.keep_log:
        begin_unit(w)
    if not chroma:
        predict_qp(w)
    decode_pred_mode(w)
    if cu.pred_mode == st.MODE_PALETTE:
        palette_unit(w)
    elif cu.pred_mode == st.MODE_INTRA:
        if s.slice.sps_act_enabled_flag and cu.tree == st.SINGLE:
            cu.cu_act_enabled_flag = decode_bin(w, c.CU_ACT_ENABLED_FLAG)
        if not chroma:
            intra_luma(w)
        if cu.tree != st.DUAL_LUMA and s.slice.sps_chroma_format_idc:
            intra_chroma(w)
    elif not chroma:
        inter_unit(w)
    coded = cu.cu_skip_flag == 0 and cu.pred_mode != st.MODE_PALETTE
    if coded and cu.pred_mode != st.MODE_INTRA and not cu.general_merge_flag:
        coded = decode_bin(w, c.CU_CODED_FLAG) == 1
    if coded:
        decode_sbt(w)
        if s.slice.sps_act_enabled_flag and cu.pred_mode != st.MODE_INTRA and cu.tree == st.SINGLE:
            cu.cu_act_enabled_flag = decode_bin(w, c.CU_ACT_ENABLED_FLAG)
        cu.lfnst_dc_only, cu.lfnst_zero_out_sig_coeff_flag = 1, 1
        cu.mts_dc_only, cu.mts_zero_out_sig_coeff_flag = 1, 1
        transform_tree(w)
        decode_lfnst(w)
        decode_mts(w)
        if not chroma:
            choose_kernels(w)
    cu.chroma_qp_offset_idx, cu.qp_y = s.qg.chroma_qp_offset_idx, s.qg.qp_y
    if chroma:
        # A chroma block has the QP of the luma block at its centre (clause 8.7.1).
        cu.qp_y = cell(w, cu.x + cu.width // 2, cu.y + cu.height // 2).qp_y
    store_unit(w)
    if s.current.keep_log:
        end_unit(w)


@compiled
def begin_coding_unit(w: Work) -> None:
    """Make the current node the current coding unit; its syntax elements are 0 until they are parsed.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    fill_record(s.cu, 0)
    cu.x, cu.y, cu.width, cu.height = s.node.x, s.node.y, s.node.width, s.node.height
    cu.tree, cu.region = s.node.tree, s.current.region
    cu.intra_pred_mode_y = -1
    store_size(w)


@compiled
def decode_pred_mode(w: Work) -> None:
    """Decode cu_skip_flag, pred_mode_flag, pred_mode_ibc_flag and pred_mode_plt_flag.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    decode_inter_modes(w)
    chroma = cu.tree == st.DUAL_CHROMA
    least = 16 << (s.slice.log2_sub_width_c + s.slice.log2_sub_height_c) if chroma else 16
    large_enough = cu.width * cu.height > least and max(cu.width, cu.height) <= 64
    if not s.slice.sps_palette_enabled_flag or cu.pred_mode != st.MODE_INTRA or not large_enough or cu.cu_skip_flag:
        return
    if s.node.mode_type == st.MODE_INTRA_ONLY and chroma:
        return
    if decode_bin(w, c.PRED_MODE_PLT_FLAG):
        cu.pred_mode = st.MODE_PALETTE


@compiled
def decode_inter_modes(w: Work) -> None:
    """Decode cu_skip_flag, pred_mode_flag and pred_mode_ibc_flag.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    cu.pred_mode = st.MODE_INTRA
    intra_slice, ibc = s.slice.is_i == 1, s.slice.sps_ibc_enabled_flag == 1
    if intra_slice and not ibc:
        return
    ch_type = int(cu.tree == st.DUAL_CHROMA)
    mode_type = s.node.mode_type
    if intra_slice and max(cu.width, cu.height) > 64:
        mode_type = st.MODE_INTRA_ONLY
    smallest = cu.width == 4 and cu.height == 4
    ibc_size = max(cu.width, cu.height) <= 64
    left_cell, above_cell = left_of(w, cu.x, cu.y), above_of(w, cu.x, cu.y)
    if not ch_type and ((not smallest and mode_type != st.MODE_INTRA_ONLY) or (ibc and ibc_size)):
        cu.cu_skip_flag = decode_bin(w, c.CU_SKIP_FLAG + left_cell.cu_skip_flag + above_cell.cu_skip_flag)
    left, above = left_cell.cu_pred_mode[ch_type], above_cell.cu_pred_mode[ch_type]
    intra_forced = smallest or mode_type == st.MODE_INTRA_ONLY
    if intra_slice or intra_forced:
        intra = True
    elif mode_type == st.MODE_INTER_ONLY or cu.cu_skip_flag:
        intra = False
    else:
        inc = int(left == st.MODE_INTRA or above == st.MODE_INTRA)
        intra = decode_bin(w, c.PRED_MODE_FLAG + inc) == 1
    cu.pred_mode = st.MODE_INTRA if intra else st.MODE_INTER
    possible = ibc and ibc_size and mode_type != st.MODE_INTER_ONLY and not ch_type
    if not possible:
        return
    if cu.cu_skip_flag and (intra_slice or intra_forced):
        cu.pred_mode = st.MODE_IBC
    elif intra_slice or not intra or intra_forced:
        inc = int(left == st.MODE_IBC) + int(above == st.MODE_IBC)
        if decode_bin(w, c.PRED_MODE_IBC_FLAG + inc):
            cu.pred_mode = st.MODE_IBC


@compiled
def decode_sbt(w: Work) -> None:
    """Decode cu_sbt_flag and the elements that depend on it.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    width, height = cu.width, cu.height
    longest = max(width, height)
    if not s.slice.sps_sbt_enabled_flag or cu.pred_mode != st.MODE_INTER or cu.ciip_flag:
        return
    if longest < 8 or longest > s.slice.max_tb_size_y or not decode_bin(w, c.CU_SBT_FLAG + (width * height <= 256)):
        return
    cu.cu_sbt_flag = 1
    if longest >= 16:
        cu.cu_sbt_quad_flag = decode_bin(w, c.CU_SBT_QUAD_FLAG)
    least = 16 if cu.cu_sbt_quad_flag else 8
    cu.cu_sbt_horizontal_flag = int(height >= least)
    if width >= least and height >= least:
        inc = 0 if width == height else 1 if width < height else 2
        cu.cu_sbt_horizontal_flag = decode_bin(w, c.CU_SBT_HORIZONTAL_FLAG + inc)
    cu.cu_sbt_pos_flag = decode_bin(w, c.CU_SBT_POS_FLAG)


@compiled
def decode_lfnst(w: Work) -> None:
    """Decode lfnst_idx.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    width, height = cu.width, cu.height
    if not s.slice.sps_lfnst_enabled_flag or cu.pred_mode != st.MODE_INTRA or cu.transform_skip:
        return
    if max(width, height) > s.slice.max_tb_size_y:
        return
    if cu.tree == st.DUAL_CHROMA:
        width, height = width >> s.slice.log2_sub_width_c, height >> s.slice.log2_sub_height_c
    elif cu.isp_split_type == st.ISP_VER:
        width //= isp_parts(w)
    elif cu.isp_split_type == st.ISP_HOR:
        height //= isp_parts(w)
    least = min(width, height)
    if least < 4 or (cu.intra_mip_flag and least < 16) or not cu.lfnst_zero_out_sig_coeff_flag:
        return
    if cu.isp_split_type == st.ISP_NONE and cu.lfnst_dc_only:
        return
    if decode_bin(w, c.LFNST_IDX + (cu.tree != st.SINGLE)):
        cu.lfnst_idx = 1 + decode_bin(w, c.LFNST_IDX + 2)


@compiled
def decode_mts(w: Work) -> None:
    """Decode mts_idx.

    Part of clause 7.3.11.5, Coding unit syntax.
    """
    s = w.state
    cu = s.cu
    if cu.tree == st.DUAL_CHROMA or cu.lfnst_idx or cu.luma_transform_skip or max(cu.width, cu.height) > 32:
        return
    if cu.isp_split_type != st.ISP_NONE or cu.cu_sbt_flag or not cu.mts_zero_out_sig_coeff_flag or cu.mts_dc_only:
        return
    explicit_inter = s.slice.sps_explicit_mts_inter_enabled_flag and cu.pred_mode == st.MODE_INTER
    explicit_intra = s.slice.sps_explicit_mts_intra_enabled_flag and cu.pred_mode == st.MODE_INTRA
    if explicit_inter or explicit_intra:
        value = 0
        while value < 4 and decode_bin(w, c.MTS_IDX + value):
            value += 1
        cu.mts_idx = value
