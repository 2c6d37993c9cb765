"""Decoding of the coding units of intra slices (H.266 clauses 8.4.1, 8.4.5 and 8.6)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from codecnn.intra import modes
from codecnn.reconstruct import _frame as fr
from codecnn.reconstruct._blocks import next_block, predict_chroma, predict_luma, reconstruct_blocks
from codecnn.reconstruct._boundaries import note_boundaries
from codecnn.reconstruct._frame import Frame
from codecnn.reconstruct._palette import palette_unit
from codecnn.reconstruct._references import mark
from codecnn.reconstruct._residual import copy_prediction
from codecnn.vvc import COMPILED, compiled, compiled_entry, pointer, source_digest
from codecnn.vvc import log as lg
from codecnn.vvc import state as st


@compiled
def borrowed(f: Frame) -> Frame:
    """The arrays of `f` without their owners, which must outlive them, so that no references are counted."""
    return Frame(
        carray(pointer(f.p.ctypes.data), f.p.shape, np.int64),
        carray(pointer(f.s.ctypes.data), f.s.shape, np.int32),
        carray(pointer(f.planes.ctypes.data), f.planes.shape, np.int32),
        carray(pointer(f.known.ctypes.data), f.known.shape, np.int32),
        carray(pointer(f.log.ctypes.data), f.log.shape, np.int64),
    )


@compiled
def intra_unit(f: Frame) -> None:
    """An intra unit: luma of all its transform units first, as chroma may be predicted from it."""
    log, unit = f.log, f.p[fr.UNIT]
    for chroma in (False, True):
        tu = unit + lg.UNIT_HEADER
        for _ in range(log[unit + lg.U_UNITS]):
            if not chroma and log[unit + lg.U_TREE] != st.DUAL_CHROMA:
                predict_luma(f, tu)
                reconstruct_blocks(f, tu, 0, 1)
            if chroma and log[tu + lg.T_CHROMA]:
                predict_chroma(f, tu)
                reconstruct_blocks(f, tu, 1, 3)
            tu = next_block(f, tu)


@compiled
def colour_transformed_unit(f: Frame) -> None:
    """An intra unit with the adaptive colour transform, of whose components each needs the residuals of all."""
    log, unit = f.log, f.p[fr.UNIT]
    tu = unit + lg.UNIT_HEADER
    for _ in range(log[unit + lg.U_UNITS]):
        predict_luma(f, tu)
        predict_chroma(f, tu)
        reconstruct_blocks(f, tu, 0, 3)
        tu = next_block(f, tu)


@compiled
def block_copy_unit(f: Frame) -> None:
    """An IBC unit (clauses 8.6.1 and 8.6.3.1): predicted by the block that its vector leads to."""
    p, log, planes, unit = f.p, f.log, f.planes, f.p[fr.UNIT]
    x0, y0, width, height = log[unit + lg.U_X], log[unit + lg.U_Y], log[unit + lg.U_W], log[unit + lg.U_H]
    x, y = x0 + log[unit + lg.U_VECTOR_X], y0 + log[unit + lg.U_VECTOR_Y]
    last_x, last_y = x + width - 1, y + height - 1
    inside = x >= 0 and y >= 0 and last_x < p[fr.WIDTH] and last_y < p[fr.HEIGHT]
    if not inside or f.known[fr.LUMA, y >> 2, x >> 2] == 0 or f.known[fr.LUMA, last_y >> 2, last_x >> 2] == 0:
        p[fr.FAULT] = 1
        return
    components = 3 if log[unit + lg.U_TREE] == st.SINGLE and p[fr.CHROMA] else 1
    for component in range(components):
        sub_x, sub_y = (p[fr.SUB_X], p[fr.SUB_Y]) if component else (0, 0)
        stride, recon, pred = p[fr.STRIDE + component], p[fr.RECON + component], p[fr.PRED + component]
        for row in range(height >> sub_y):
            source = recon + ((y >> sub_y) + row) * stride + (x >> sub_x)
            target = pred + ((y0 >> sub_y) + row) * stride + (x0 >> sub_x)
            for column in range(width >> sub_x):
                planes[target + column] = planes[source + column]
        if log[unit + lg.U_UNITS] == 0:
            copy_prediction(f, component, x0 >> sub_x, y0 >> sub_y, width >> sub_x, height >> sub_y)
            if component == 0:
                note_boundaries(f, x0, y0, width, height, False)
    tu = unit + lg.UNIT_HEADER
    for _ in range(log[unit + lg.U_UNITS]):
        reconstruct_blocks(f, tu, 0, 3 if log[tu + lg.T_CHROMA] else 1)
        tu = next_block(f, tu)
    mark(f, False, x0, y0, width, height)
    if components > 1:
        mark(f, True, x0, y0, width, height)


def _entry(sources: str) -> Callable[[Frame, int], str]:
    @compiled_entry
    def reconstruct_units(owned: Frame, count: int) -> str:
        """Reconstruct the coding units in the first `count` numbers of the log. Returns the hash of the sources."""
        f = borrowed(owned) if COMPILED else owned
        p, log = f.p, f.log
        unit = 0
        while unit < count:
            p[fr.UNIT], p[fr.REGION] = unit, log[unit + lg.U_REGION]
            mode = log[unit + lg.U_PRED_MODE]
            if mode == st.MODE_PALETTE:
                palette_unit(f)
            elif mode == st.MODE_IBC:
                block_copy_unit(f)
            elif log[unit + lg.U_ACT]:
                colour_transformed_unit(f)
            else:
                intra_unit(f)
            unit += log[unit + lg.U_SIZE]
        return sources

    return reconstruct_units


reconstruct_units = _entry(source_digest(Path(__file__).parent, Path(modes.__file__).parent))
