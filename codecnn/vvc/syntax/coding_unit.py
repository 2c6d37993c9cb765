"""Coding units (H.266 clause 7.3.11.5)."""

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin
from codecnn.vvc.syntax.inter import inter_unit
from codecnn.vvc.syntax.intra import VERTICAL, intra_chroma, intra_luma
from codecnn.vvc.syntax.log import begin_unit, end_unit
from codecnn.vvc.syntax.neighbours import above_of, fill, left_of, peek
from codecnn.vvc.syntax.palette import palette_unit
from codecnn.vvc.syntax.state import Work
from codecnn.vvc.syntax.transform import choose_kernels, isp_parts, predict_qp, transform_tree


@compiled
def coding_unit(w: Work) -> None:
    """Parse the syntax of a coding unit at a leaf of the coding tree, the current node."""
    n = w.n
    n[st.CU_FIRST : st.CU_LAST + 1] = 0
    n[st.INTRA_MODE] = -1
    chroma = int(n[st.TREE] == st.DUAL_CHROMA)
    if n[st.KEEP]:
        begin_unit(w)
    fill(w, st.CB_WIDTH + chroma, n[st.W])
    fill(w, st.CB_HEIGHT + chroma, n[st.H])
    fill(w, st.QT_DEPTH + chroma, n[st.DEPTH_QT])
    if not chroma:
        predict_qp(w)
    decode_pred_mode(w)
    fill(w, st.CU_PRED_MODE + chroma, n[st.PRED_MODE])
    if n[st.TREE] == st.SINGLE:
        fill(w, st.CU_PRED_MODE_C, n[st.PRED_MODE])
    if n[st.PRED_MODE] == st.MODE_PALETTE:
        palette_unit(w)
    elif n[st.PRED_MODE] == st.MODE_INTRA:
        if n[st.ACT] and n[st.TREE] == st.SINGLE:
            n[st.ACT_FLAG] = decode_bin(w, c.CU_ACT_ENABLED_FLAG)
        if not chroma:
            intra_luma(w)
        if n[st.TREE] != st.DUAL_LUMA and n[st.CHROMA]:
            intra_chroma(w)
    elif not chroma:
        inter_unit(w)
    coded = n[st.SKIP] == 0 and n[st.PRED_MODE] != st.MODE_PALETTE
    if coded and n[st.PRED_MODE] != st.MODE_INTRA and not n[st.MERGE]:
        coded = decode_bin(w, c.CU_CODED_FLAG) == 1
    if coded:
        decode_sbt(w)
        if n[st.ACT] and n[st.PRED_MODE] != st.MODE_INTRA and n[st.TREE] == st.SINGLE:
            n[st.ACT_FLAG] = decode_bin(w, c.CU_ACT_ENABLED_FLAG)
        n[st.LFNST_DC_ONLY], n[st.LFNST_ZERO_OUT], n[st.MTS_DC_ONLY], n[st.MTS_ZERO_OUT] = 1, 1, 1, 1
        transform_tree(w)
        decode_lfnst(w)
        decode_mts(w)
        if not chroma:
            choose_kernels(w)
    if not chroma:
        fill(w, st.CU_SKIP, n[st.SKIP])
        fill(w, st.CU_QP, n[st.QP_Y])
    if n[st.KEEP]:
        end_unit(w)


@compiled
def record(w: Work, cus: npt.NDArray[np.int32]) -> None:
    """Append the row of the current coding unit to `cus`.

    The chroma block of a local dual tree has no row, as in VTM's statistics.
    """
    n = w.n
    chroma = n[st.TREE] == st.DUAL_CHROMA
    if chroma and not (n[st.DUAL_TREE] and n[st.IS_I]):
        # It follows its luma blocks, which have rows.
        cus[n[st.CU_COUNT] - 1, st.CU_BINS] = n[st.BINS]
        return
    row = cus[n[st.CU_COUNT]]
    n[st.CU_COUNT] += 1
    row[:] = -1
    row[0] = chroma
    row[1], row[2], row[3], row[4] = n[st.X], n[st.Y], n[st.W], n[st.H]
    row[5], row[6] = n[st.DEPTH_QT], n[st.DEPTH_MTT]
    row[st.CU_BINS] = n[st.BINS]
    record_transforms(w, row[st.CU_TRANSFORM :])
    if chroma:
        # A chroma block has the QP of the luma block at its centre (clause 8.7.1).
        row[9] = peek(w, st.CU_QP, n[st.X] + n[st.W] // 2, n[st.Y] + n[st.H] // 2)
        return
    row[7], row[8], row[9] = n[st.PRED_MODE], n[st.INTRA_MODE], n[st.QP_Y]
    row[10], row[11], row[12], row[13] = n[st.MIP_FLAG], n[st.ISP_SPLIT], n[st.MRL_IDX], n[st.SKIP]
    if n[st.PRED_MODE] == st.MODE_INTER or n[st.PRED_MODE] == st.MODE_IBC:
        row[st.CU_MERGE] = n[st.MERGE]
    if n[st.PRED_MODE] == st.MODE_INTER:
        row[st.CU_MERGE + 1], row[st.CU_MERGE + 2] = n[st.CIIP_FLAG], n[st.GPM_FLAG]


@compiled
def record_transforms(w: Work, row: npt.NDArray[np.int32]) -> None:
    """Set TRANSFORM_COLUMNS of the current coding unit for the components that its tree has."""
    n = w.n
    cbf, ts = n[st.CBF_ANY], n[st.TS_ANY]
    row[9] = n[st.LFNST_IDX]
    if n[st.TREE] != st.DUAL_CHROMA:
        row[0], row[3] = cbf & 1, ts & 1
        row[6], row[7], row[8] = n[st.MTS_IDX], n[st.KERNEL_H], n[st.KERNEL_V]
        row[10] = bdpcm_direction(n[st.BDPCM_LUMA], n[st.INTRA_MODE])
    if n[st.TREE] != st.DUAL_LUMA and n[st.CHROMA]:
        row[1], row[2], row[4], row[5] = cbf >> 1 & 1, cbf >> 2, ts >> 1 & 1, ts >> 2
        row[11], row[12] = bdpcm_direction(n[st.BDPCM_CHROMA], n[st.CHROMA_MODE]), n[st.JOINT_ANY]


@compiled
def bdpcm_direction(flag: int, mode: int) -> int:
    """Return 0 without BDPCM, 1 for horizontal and 2 for vertical BDPCM; `mode` is its prediction mode."""
    return 0 if not flag else 2 if mode == VERTICAL else 1


@compiled
def decode_pred_mode(w: Work) -> None:
    """Decode cu_skip_flag, pred_mode_flag, pred_mode_ibc_flag and pred_mode_plt_flag; set SKIP and PRED_MODE."""
    n = w.n
    decode_inter_modes(w)
    chroma = n[st.TREE] == st.DUAL_CHROMA
    least = 16 << (n[st.SUB_WIDTH] + n[st.SUB_HEIGHT]) if chroma else 16
    large_enough = n[st.W] * n[st.H] > least and max(n[st.W], n[st.H]) <= 64
    if not n[st.PALETTE] or n[st.PRED_MODE] != st.MODE_INTRA or not large_enough or n[st.SKIP]:
        return
    if n[st.MODE_TYPE] == st.MODE_INTRA_ONLY and chroma:
        return
    if decode_bin(w, c.PRED_MODE_PLT_FLAG):
        n[st.PRED_MODE] = st.MODE_PALETTE


@compiled
def decode_inter_modes(w: Work) -> None:
    """Decode cu_skip_flag, pred_mode_flag and pred_mode_ibc_flag; set SKIP and PRED_MODE."""
    n = w.n
    n[st.PRED_MODE] = st.MODE_INTRA
    intra_slice, ibc = n[st.IS_I] == 1, n[st.IBC] == 1
    if intra_slice and not ibc:
        return
    chroma = int(n[st.TREE] == st.DUAL_CHROMA)
    mode_type = n[st.MODE_TYPE]
    if intra_slice and max(n[st.W], n[st.H]) > 64:
        mode_type = st.MODE_INTRA_ONLY
    smallest = n[st.W] == 4 and n[st.H] == 4
    ibc_size = max(n[st.W], n[st.H]) <= 64
    x, y = n[st.X], n[st.Y]
    if not chroma and ((not smallest and mode_type != st.MODE_INTRA_ONLY) or (ibc and ibc_size)):
        inc = left_of(w, st.CU_SKIP, x, y, 0) + above_of(w, st.CU_SKIP, x, y, 0)
        n[st.SKIP] = decode_bin(w, c.CU_SKIP_FLAG + inc)
    left = left_of(w, st.CU_PRED_MODE + chroma, x, y, st.MODE_INTER)
    above = above_of(w, st.CU_PRED_MODE + chroma, x, y, st.MODE_INTER)
    intra_forced = smallest or mode_type == st.MODE_INTRA_ONLY
    if intra_slice or intra_forced:
        intra = True
    elif mode_type == st.MODE_INTER_ONLY or n[st.SKIP]:
        intra = False
    else:
        inc = int(left == st.MODE_INTRA or above == st.MODE_INTRA)
        intra = decode_bin(w, c.PRED_MODE_FLAG + inc) == 1
    n[st.PRED_MODE] = st.MODE_INTRA if intra else st.MODE_INTER
    possible = ibc and ibc_size and mode_type != st.MODE_INTER_ONLY and not chroma
    if not possible:
        return
    if n[st.SKIP] and (intra_slice or intra_forced):
        n[st.PRED_MODE] = st.MODE_IBC
    elif intra_slice or not intra or intra_forced:
        inc = int(left == st.MODE_IBC) + int(above == st.MODE_IBC)
        if decode_bin(w, c.PRED_MODE_IBC_FLAG + inc):
            n[st.PRED_MODE] = st.MODE_IBC


@compiled
def decode_sbt(w: Work) -> None:
    """Decode cu_sbt_flag and the elements that depend on it."""
    n = w.n
    width, height = n[st.W], n[st.H]
    if n[st.PRED_MODE] != st.MODE_INTER or not n[st.SBT] or n[st.CIIP_FLAG] or max(width, height) > n[st.MAX_TB]:
        return
    if max(width, height) < 8 or not decode_bin(w, c.CU_SBT_FLAG + (width * height <= 256)):
        return
    n[st.SBT_FLAG] = 1
    if max(width, height) >= 16:
        n[st.SBT_QUAD] = decode_bin(w, c.CU_SBT_QUAD_FLAG)
    least = 16 if n[st.SBT_QUAD] else 8
    n[st.SBT_HORIZONTAL] = int(height >= least)
    if width >= least and height >= least:
        inc = 0 if width == height else 1 if width < height else 2
        n[st.SBT_HORIZONTAL] = decode_bin(w, c.CU_SBT_HORIZONTAL_FLAG + inc)
    n[st.SBT_POS] = decode_bin(w, c.CU_SBT_POS_FLAG)


@compiled
def decode_lfnst(w: Work) -> None:
    """Decode lfnst_idx."""
    n = w.n
    width, height = n[st.W], n[st.H]
    if not n[st.LFNST] or n[st.PRED_MODE] != st.MODE_INTRA or n[st.TS_ANY] or max(width, height) > n[st.MAX_TB]:
        return
    if n[st.TREE] == st.DUAL_CHROMA:
        width, height = width >> n[st.SUB_WIDTH], height >> n[st.SUB_HEIGHT]
    elif n[st.ISP_SPLIT] == st.ISP_VER:
        width //= isp_parts(w)
    elif n[st.ISP_SPLIT] == st.ISP_HOR:
        height //= isp_parts(w)
    least = min(width, height)
    if least < 4 or (n[st.MIP_FLAG] and least < 16) or not n[st.LFNST_ZERO_OUT]:
        return
    if n[st.ISP_SPLIT] == st.ISP_NONE and n[st.LFNST_DC_ONLY]:
        return
    if decode_bin(w, c.LFNST_IDX + (n[st.TREE] != st.SINGLE)):
        n[st.LFNST_IDX] = 1 + decode_bin(w, c.LFNST_IDX + 2)


@compiled
def decode_mts(w: Work) -> None:
    """Decode mts_idx."""
    n = w.n
    if n[st.TREE] == st.DUAL_CHROMA or n[st.LFNST_IDX] or n[st.TS_LUMA] or max(n[st.W], n[st.H]) > 32:
        return
    if n[st.ISP_SPLIT] != st.ISP_NONE or n[st.SBT_FLAG] or not n[st.MTS_ZERO_OUT] or n[st.MTS_DC_ONLY]:
        return
    if n[st.MTS_INTER] if n[st.PRED_MODE] == st.MODE_INTER else n[st.MTS_INTRA] and n[st.PRED_MODE] == st.MODE_INTRA:
        value = 0
        while value < 4 and decode_bin(w, c.MTS_IDX + value):
            value += 1
        n[st.MTS_IDX] = value
