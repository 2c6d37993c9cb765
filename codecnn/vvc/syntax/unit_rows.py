"""Coding units as rows of numbers for Python."""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.base.records import Record, Records, fill_record, record_dtype
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.intra import VERTICAL
from codecnn.vvc.syntax.state import Work


class UnitRow(Record):
    """Coding unit as `coding_units` returns it; its numbers are int32, -1 if the unit does not have the value.

    Attributes:
        channel: 1 in a separate chroma tree, else 0.
        x: x0.
        y: y0.
        w: cbWidth.
        h: cbHeight.
        qt_depth: cqtDepth.
        mt_depth: mttDepth.
        pred_mode: CuPredMode.
        intra_mode: IntraPredModeY, or intra_mip_mode.
        qp: QpY.
        mip: intra_mip_flag.
        isp: IntraSubPartitionsSplitType.
        mrl: intra_luma_ref_idx.
        skip: cu_skip_flag.
        cbf_y: A luma block is coded.
        cbf_cb: A Cb block is coded.
        cbf_cr: A Cr block is coded.
        ts_y: A luma block skips the transform.
        ts_cb: A Cb block skips the transform.
        ts_cr: A Cr block skips the transform.
        mts: mts_idx.
        tr_hor: trTypeHor of luma.
        tr_ver: trTypeVer of luma.
        lfnst: lfnst_idx.
        bdpcm: BDPCM of luma: 0 none, 1 horizontal, 2 vertical.
        bdpcm_chroma: BDPCM of chroma.
        joint_cbcr: Joint coding of chroma, see `CurrentUnit.joint`.
        bins: Hash of all bins of the slice so far except those of the in-loop filters.
        merge: general_merge_flag of inter and IBC units.
        ciip: ciip_flag of inter units.
        gpm: 1 for geometric partitions, of inter units.
    """

    channel: int
    x: int
    y: int
    w: int
    h: int
    qt_depth: int
    mt_depth: int
    pred_mode: int
    intra_mode: int
    qp: int
    mip: int
    isp: int
    mrl: int
    skip: int
    cbf_y: int
    cbf_cb: int
    cbf_cr: int
    ts_y: int
    ts_cb: int
    ts_cr: int
    mts: int
    tr_hor: int
    tr_ver: int
    lfnst: int
    bdpcm: int
    bdpcm_chroma: int
    joint_cbcr: int
    bins: int
    merge: int
    ciip: int
    gpm: int


UNIT_ROW = record_dtype(UnitRow, np.int32)

CU_COLUMNS = tuple(UNIT_ROW.names or ())
"""Columns of the array of coding units, see `UnitRow`."""

TRANSFORM_COLUMNS = CU_COLUMNS[CU_COLUMNS.index("cbf_y") : CU_COLUMNS.index("bins")]


@compiled
def append_row(w: Work, rows: Records) -> None:
    """Append the row of the current coding unit to `rows`.

    The chroma block of a local dual tree has no row, as in VTM's statistics.
    """
    s = w.state
    cu = s.cu
    chroma = cu.tree == st.DUAL_CHROMA
    if chroma and not (s.slice.sps_qtbtt_dual_tree_intra_flag and s.slice.is_i):
        # It follows its luma blocks, which have rows.
        rows[s.current.num_units - 1].bins = s.cabac.bins
        return
    row = rows[s.current.num_units]
    s.current.num_units += 1
    fill_record(row, -1)
    row.channel = int(chroma)
    row.x, row.y, row.w, row.h = cu.x, cu.y, cu.width, cu.height
    row.qt_depth, row.mt_depth, row.bins = s.node.cqt_depth, s.node.mtt_depth, s.cabac.bins
    row.lfnst, row.qp = cu.lfnst_idx, cu.qp_y
    if cu.tree != st.DUAL_LUMA and s.slice.sps_chroma_format_idc:
        row.cbf_cb, row.cbf_cr = cu.coded >> 1 & 1, cu.coded >> 2
        row.ts_cb, row.ts_cr = cu.transform_skip >> 1 & 1, cu.transform_skip >> 2
        row.bdpcm_chroma = bdpcm_direction(cu.intra_bdpcm_chroma_flag, cu.intra_pred_mode_c)
        row.joint_cbcr = cu.joint
    if chroma:
        return
    row.pred_mode, row.intra_mode = cu.pred_mode, cu.intra_pred_mode_y
    row.mip, row.isp, row.mrl = cu.intra_mip_flag, cu.isp_split_type, cu.intra_luma_ref_idx
    row.skip = cu.cu_skip_flag
    row.cbf_y, row.ts_y = cu.coded & 1, cu.transform_skip & 1
    row.mts, row.tr_hor, row.tr_ver = cu.mts_idx, cu.tr_type_hor, cu.tr_type_ver
    row.bdpcm = bdpcm_direction(cu.intra_bdpcm_luma_flag, cu.intra_pred_mode_y)
    if cu.pred_mode == st.MODE_INTER or cu.pred_mode == st.MODE_IBC:
        row.merge = cu.general_merge_flag
    if cu.pred_mode == st.MODE_INTER:
        row.ciip, row.gpm = cu.ciip_flag, cu.gpm_flag


@compiled
def bdpcm_direction(flag: int, mode: int) -> int:
    """Return 0 without BDPCM, 1 for horizontal and 2 for vertical BDPCM; `mode` is its prediction mode."""
    return 0 if not flag else 2 if mode == VERTICAL else 1
