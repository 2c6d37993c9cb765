"""Coding units (H.266 clause 7.3.11.5)."""

from codecnn.vvc import contexts as c
from codecnn.vvc.cabac import decode_bin
from codecnn.vvc.compiled import compiled
from codecnn.vvc.inter import inter_unit
from codecnn.vvc.intra import intra_chroma, intra_luma
from codecnn.vvc.neighbours import above_of, fill, left_of, peek
from codecnn.vvc.quantization import predict_qp
from codecnn.vvc.state import (
    BDPCM_CHROMA,
    BDPCM_LUMA,
    CB_HEIGHT,
    CB_WIDTH,
    CBF_LUMA,
    CHROMA,
    CIIP_FLAG,
    CU_COUNT,
    CU_PRED_MODE,
    CU_PRED_MODE_C,
    CU_QP,
    CU_SKIP,
    DUAL_CHROMA,
    DUAL_LUMA,
    DUAL_TREE,
    IBC,
    INTRA_MODE,
    IS_I,
    ISP_HOR,
    ISP_NONE,
    ISP_SPLIT,
    ISP_VER,
    LFNST,
    LFNST_DC_ONLY,
    LFNST_IDX,
    LFNST_ZERO_OUT,
    MAX_TB,
    MERGE,
    MIP_FLAG,
    MODE_ALL,
    MODE_IBC,
    MODE_INTER,
    MODE_INTER_ONLY,
    MODE_INTRA,
    MODE_INTRA_ONLY,
    MODE_TYPE,
    MRL_IDX,
    MTS_DC_ONLY,
    MTS_INTER,
    MTS_INTRA,
    MTS_ZERO_OUT,
    NODE_H,
    NODE_MODE,
    NODE_MTT_DEPTH,
    NODE_QT_DEPTH,
    NODE_TREE,
    NODE_W,
    NODE_X,
    NODE_Y,
    PRED_MODE,
    PREVIOUS_CBF,
    QP_Y,
    QT_DEPTH,
    SBT,
    SBT_FLAG,
    SBT_HORIZONTAL,
    SBT_POS,
    SBT_QUAD,
    SINGLE,
    SKIP,
    SUB_HEIGHT,
    SUB_WIDTH,
    TREE,
    TS_ANY,
    TS_LUMA,
    H,
    Ints,
    W,
    Work,
    X,
    Y,
)
from codecnn.vvc.transform import isp_parts, transform_tree


@compiled
def coding_unit(w: Work, node: Ints) -> None:
    """coding_unit() at a leaf of the coding tree, and its row in `cus`."""
    n = w.n
    n[X], n[Y], n[W], n[H] = node[NODE_X], node[NODE_Y], node[NODE_W], node[NODE_H]
    n[TREE], n[MODE_TYPE] = node[NODE_TREE], node[NODE_MODE]
    n[SKIP : MTS_ZERO_OUT + 1] = 0
    n[INTRA_MODE] = -1
    chroma = int(n[TREE] == DUAL_CHROMA)
    fill(w, CB_WIDTH + chroma, n[W])
    fill(w, CB_HEIGHT + chroma, n[H])
    fill(w, QT_DEPTH + chroma, node[NODE_QT_DEPTH])
    if not chroma:
        predict_qp(w)
    decode_pred_mode(w)
    fill(w, CU_PRED_MODE + chroma, n[PRED_MODE])
    if n[TREE] == SINGLE:
        fill(w, CU_PRED_MODE_C, n[PRED_MODE])
    if n[PRED_MODE] == MODE_INTRA:
        if not chroma:
            intra_luma(w)
        if n[TREE] != DUAL_LUMA and n[CHROMA]:
            intra_chroma(w)
    elif not chroma:
        inter_unit(w)
    coded = n[SKIP] == 0
    if n[PRED_MODE] != MODE_INTRA and not n[MERGE]:
        coded = decode_bin(w, c.CU_CODED_FLAG) == 1
    if coded:
        decode_sbt(w)
        n[LFNST_DC_ONLY], n[LFNST_ZERO_OUT], n[MTS_DC_ONLY], n[MTS_ZERO_OUT] = 1, 1, 1, 1
        transform_tree(w)
        decode_lfnst(w)
        decode_mts(w)
    if not chroma:
        fill(w, CU_SKIP, n[SKIP])
        fill(w, CU_QP, n[QP_Y])
    record(w, node)


@compiled
def record(w: Work, node: Ints) -> None:
    """Add the row of a coding unit to `cus`; none for the chroma of a local dual tree, as in VTM's statistics."""
    n = w.n
    chroma = n[TREE] == DUAL_CHROMA
    if chroma and not (n[DUAL_TREE] and n[IS_I]):
        return
    row = w.cus[n[CU_COUNT]]
    n[CU_COUNT] += 1
    row[:] = -1
    row[0] = chroma
    row[1], row[2], row[3], row[4] = n[X], n[Y], n[W], n[H]
    row[5], row[6] = node[NODE_QT_DEPTH], node[NODE_MTT_DEPTH]
    if chroma:
        # A chroma block has the QP of the luma block at its centre (clause 8.7.1).
        row[9] = peek(w, CU_QP, n[X] + n[W] // 2, n[Y] + n[H] // 2)
        return
    row[7], row[8], row[9] = n[PRED_MODE], n[INTRA_MODE], n[QP_Y]
    row[10], row[11], row[12], row[13] = n[MIP_FLAG], n[ISP_SPLIT], n[MRL_IDX], n[SKIP]
    row[14], row[15], row[16] = n[BDPCM_LUMA], n[LFNST_IDX], n[CBF_LUMA]


@compiled
def decode_pred_mode(w: Work) -> None:
    """cu_skip_flag, pred_mode_flag and pred_mode_ibc_flag; sets SKIP and PRED_MODE."""
    n = w.n
    n[PRED_MODE] = MODE_INTRA
    intra_slice, ibc = n[IS_I] == 1, n[IBC] == 1
    if intra_slice and not ibc:
        return
    chroma = int(n[TREE] == DUAL_CHROMA)
    mode_type = n[MODE_TYPE]
    if intra_slice and max(n[W], n[H]) > 64:
        mode_type = MODE_INTRA_ONLY
    smallest = n[W] == 4 and n[H] == 4
    ibc_size = max(n[W], n[H]) <= 64
    x, y = n[X], n[Y]
    if not chroma and ((not smallest and mode_type != MODE_INTRA_ONLY) or (ibc and ibc_size)):
        inc = left_of(w, CU_SKIP, x, y, 0) + above_of(w, CU_SKIP, x, y, 0)
        n[SKIP] = decode_bin(w, c.CU_SKIP_FLAG + inc)
    left = left_of(w, CU_PRED_MODE + chroma, x, y, MODE_INTER)
    above = above_of(w, CU_PRED_MODE + chroma, x, y, MODE_INTER)
    intra_forced = smallest or mode_type == MODE_INTRA_ONLY
    if intra_slice or intra_forced:
        intra = True
    elif mode_type == MODE_INTER_ONLY or n[SKIP]:
        intra = False
    else:
        inc = int(left == MODE_INTRA or above == MODE_INTRA)
        intra = decode_bin(w, c.PRED_MODE_FLAG + inc) == 1
    n[PRED_MODE] = MODE_INTRA if intra else MODE_INTER
    possible = ibc and ibc_size and mode_type != MODE_INTER_ONLY and not chroma
    if not possible:
        return
    if n[SKIP] and (intra_slice or intra_forced):
        n[PRED_MODE] = MODE_IBC
    elif intra_slice or not intra or intra_forced:
        inc = int(left == MODE_IBC) + int(above == MODE_IBC)
        if decode_bin(w, c.PRED_MODE_IBC_FLAG + inc):
            n[PRED_MODE] = MODE_IBC


@compiled
def decode_sbt(w: Work) -> None:
    """cu_sbt_flag and what follows it."""
    n = w.n
    width, height = n[W], n[H]
    if n[PRED_MODE] != MODE_INTER or not n[SBT] or n[CIIP_FLAG] or max(width, height) > n[MAX_TB]:
        return
    if max(width, height) < 8 or not decode_bin(w, c.CU_SBT_FLAG + (width * height <= 256)):
        return
    n[SBT_FLAG] = 1
    if max(width, height) >= 16:
        n[SBT_QUAD] = decode_bin(w, c.CU_SBT_QUAD_FLAG)
    least = 16 if n[SBT_QUAD] else 8
    n[SBT_HORIZONTAL] = int(height >= least)
    if width >= least and height >= least:
        inc = 0 if width == height else 1 if width < height else 2
        n[SBT_HORIZONTAL] = decode_bin(w, c.CU_SBT_HORIZONTAL_FLAG + inc)
    n[SBT_POS] = decode_bin(w, c.CU_SBT_POS_FLAG)


@compiled
def decode_lfnst(w: Work) -> None:
    """lfnst_idx."""
    n = w.n
    width, height = n[W], n[H]
    if not n[LFNST] or n[PRED_MODE] != MODE_INTRA or n[TS_ANY] or max(width, height) > n[MAX_TB]:
        return
    if n[TREE] == DUAL_CHROMA:
        width, height = width >> n[SUB_WIDTH], height >> n[SUB_HEIGHT]
    elif n[ISP_SPLIT] == ISP_VER:
        width //= isp_parts(w)
    elif n[ISP_SPLIT] == ISP_HOR:
        height //= isp_parts(w)
    least = min(width, height)
    if least < 4 or (n[MIP_FLAG] and least < 16) or not n[LFNST_ZERO_OUT]:
        return
    if n[ISP_SPLIT] == ISP_NONE and n[LFNST_DC_ONLY]:
        return
    if decode_bin(w, c.LFNST_IDX + (n[TREE] != SINGLE)):
        n[LFNST_IDX] = 1 + decode_bin(w, c.LFNST_IDX + 2)


@compiled
def decode_mts(w: Work) -> None:
    """mts_idx."""
    n = w.n
    if n[TREE] == DUAL_CHROMA or n[LFNST_IDX] or n[TS_LUMA] or max(n[W], n[H]) > 32:
        return
    if n[ISP_SPLIT] != ISP_NONE or n[SBT_FLAG] or not n[MTS_ZERO_OUT] or n[MTS_DC_ONLY]:
        return
    if n[MTS_INTER] if n[PRED_MODE] == MODE_INTER else n[MTS_INTRA] and n[PRED_MODE] == MODE_INTRA:
        value = 0
        while value < 4 and decode_bin(w, c.MTS_IDX + value):
            value += 1
