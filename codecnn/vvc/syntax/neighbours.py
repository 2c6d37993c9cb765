"""Properties of the coding units parsed so far, and availability of neighbouring blocks (H.266 clause 6.4.4)."""

from collections.abc import Callable
from typing import cast

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.maps import BlockCell
from codecnn.vvc.syntax.state import Work

int64 = cast(Callable[[int], int], np.int64)
"""Conversion of a number of a cell before it is passed on: numba compiles a function anew for int16."""


@compiled
def cell(w: Work, x: int, y: int) -> BlockCell:
    """Return the properties at the luma sample (x, y), which must lie inside the picture."""
    properties: BlockCell = w.cells[y >> 2, x >> 2]
    return properties


@compiled
def left_available(w: Work, x: int) -> bool:
    """Return True if the block left of column `x` of this CTU belongs to the same slice and tile.

    Part of clause 6.4.4, Derivation process for neighbouring block availability.
    """
    return bool(x > w.state.current.x_ctb or w.state.current.left_available == 1)


@compiled
def above_available(w: Work, y: int) -> bool:
    """Return True if the block above row `y` of this CTU belongs to the same slice and tile.

    Part of clause 6.4.4, Derivation process for neighbouring block availability.
    """
    return bool(y > w.state.current.y_ctb or w.state.current.above_available == 1)


@compiled
def left_of(w: Work, x: int, y: int) -> BlockCell:
    """Return the properties left of the block at (x, y), `Work.unavailable` if that is not available.

    Part of clause 6.4.4, Derivation process for neighbouring block availability.
    """
    return cell(w, x - 1, y) if left_available(w, x) else w.unavailable


@compiled
def above_of(w: Work, x: int, y: int) -> BlockCell:
    """Return the properties above the block at (x, y), `Work.unavailable` if that is not available.

    Part of clause 6.4.4, Derivation process for neighbouring block availability.
    """
    return cell(w, x, y - 1) if above_available(w, y) else w.unavailable


@compiled
def store_size(w: Work) -> None:
    """Store CbWidth, CbHeight and CqtDepth of the current coding unit in its cells."""
    s = w.state
    cu = s.cu
    ch_type = int(cu.tree == st.DUAL_CHROMA)
    right, bottom = min(cu.x + cu.width, s.slice.pic_width), min(cu.y + cu.height, s.slice.pic_height)
    for row in range(cu.y >> 2, bottom >> 2):
        for column in range(cu.x >> 2, right >> 2):
            properties: BlockCell = w.cells[row, column]
            properties.cb_width[ch_type], properties.cb_height[ch_type] = cu.width, cu.height
            properties.cqt_depth[ch_type] = s.node.cqt_depth


@compiled
def store_unit(w: Work) -> None:
    """Store the other properties of the current coding unit, which is complete, in its cells."""
    s = w.state
    cu = s.cu
    right, bottom = min(cu.x + cu.width, s.slice.pic_width), min(cu.y + cu.height, s.slice.pic_height)
    for row in range(cu.y >> 2, bottom >> 2):
        for column in range(cu.x >> 2, right >> 2):
            properties: BlockCell = w.cells[row, column]
            if cu.tree != st.DUAL_LUMA:
                properties.cu_pred_mode[1] = cu.pred_mode
            if cu.tree != st.DUAL_CHROMA:
                properties.cu_pred_mode[0] = cu.pred_mode
                properties.cu_skip_flag, properties.intra_mip_flag = cu.cu_skip_flag, cu.intra_mip_flag
                properties.intra_pred_mode_y = cu.intra_pred_mode_y
                properties.intra_subpartitions = int(cu.isp_split_type != st.ISP_NONE)
                properties.subblock_flag, properties.qp_y = cu.subblock_flag, cu.qp_y
                properties.bv.x, properties.bv.y = cu.bv.x, cu.bv.y
