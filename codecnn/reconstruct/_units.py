"""Decoding of intra coding units (H.266 clauses 8.4.1 and 8.4.5): luma of a whole unit first, then its chroma."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from codecnn.intra import modes
from codecnn.reconstruct import _frame as fr
from codecnn.reconstruct._cross_component import predict_from_luma
from codecnn.reconstruct._frame import Frame
from codecnn.reconstruct._luma_mapping import chroma_scale, scale_residual
from codecnn.reconstruct._matrix import predict_by_matrix
from codecnn.reconstruct._prediction import predict
from codecnn.reconstruct._references import mark
from codecnn.reconstruct._residual import add_residual, copy_prediction, joint_residual, residual_of_block
from codecnn.vvc import log as lg
from codecnn.vvc import state as st
from codecnn.vvc.compiled import COMPILED, compiled, compiled_entry, pointer, source_digest


@compiled
def borrowed(f: Frame) -> Frame:
    """The arrays of `f` without their owners, which must outlive them, so that no references are counted."""
    return Frame(
        carray(pointer(f.p.ctypes.data), f.p.shape, np.int64),
        carray(pointer(f.s.ctypes.data), f.s.shape, np.int32),
        carray(pointer(f.planes.ctypes.data), f.planes.shape, np.int32),
        carray(pointer(f.known.ctypes.data), f.known.shape, np.int32),
        carray(pointer(f.log.ctypes.data), f.log.shape, np.int32),
    )


@compiled
def luma_block(f: Frame, tu: int) -> None:
    """Predict and reconstruct the luma of the transform unit at `tu` of the log."""
    log, unit = f.log, f.p[fr.UNIT]
    x, y, width, height = log[tu + lg.T_X], log[tu + lg.T_Y], log[tu + lg.T_W], log[tu + lg.T_H]
    mode, bdpcm = log[unit + lg.U_MODE], log[unit + lg.U_BDPCM] == 1
    if log[unit + lg.U_MIP]:
        predict_by_matrix(f, 0, x, y, width, height, mode, log[unit + lg.U_MIP_TRANSPOSED] == 1)
    elif log[unit + lg.U_ISP]:
        # Narrow parts are predicted four columns at a time (8.4.5.1).
        if width >= 4 or (x - log[unit + lg.U_X]) % 4 == 0:
            predict(f, 0, x, y, max(4, width), height, mode, 0, log[unit + lg.U_W], log[unit + lg.U_H], False)
    else:
        predict(f, 0, x, y, width, height, mode, log[unit + lg.U_MRL], 0, 0, bdpcm)
    if log[tu + lg.T_CODED] & 1:
        skip = log[tu + lg.T_SKIP] & 1 == 1
        at, count = tu + lg.BLOCK_HEADER, log[tu + lg.T_LEVELS]
        residual_of_block(f, 0, at, count, width, height, skip, 0, fr.FIRST)
        add_residual(f, 0, x, y, width, height, fr.FIRST)
    else:
        copy_prediction(f, 0, x, y, width, height)
    mark(f, False, x, y, width, height)


@compiled
def chroma_blocks(f: Frame, tu: int) -> None:
    """Predict and reconstruct Cb and Cr of the transform unit at `tu` of the log."""
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    x, y, width, height = log[tu + lg.T_X], log[tu + lg.T_Y], log[tu + lg.T_W], log[tu + lg.T_H]
    if log[unit + lg.U_ISP]:
        x, y, width, height = log[unit + lg.U_X], log[unit + lg.U_Y], log[unit + lg.U_W], log[unit + lg.U_H]
    luma_x, luma_y, luma_w, luma_h = x, y, width, height
    x, width, y, height = x >> p[fr.SUB_X], width >> p[fr.SUB_X], y >> p[fr.SUB_Y], height >> p[fr.SUB_Y]
    mode = log[unit + lg.U_MODE_C]
    for component in (1, 2):
        if 67 <= mode <= 69:
            predict_from_luma(f, component, x, y, width, height, mode)
        elif mode == lg.DERIVED_MIP:
            luma_mode, transposed = log[unit + lg.U_MODE], log[unit + lg.U_MIP_TRANSPOSED] == 1
            predict_by_matrix(f, component, x, y, width, height, luma_mode, transposed)
        else:
            predict(f, component, x, y, width, height, mode, 0, 0, 0, log[unit + lg.U_BDPCM_C] == 1)
    coded, joint = log[tu + lg.T_CODED], log[tu + lg.T_JOINT]
    at = tu + lg.BLOCK_HEADER + log[tu + lg.T_LEVELS]
    scale = 0
    if coded & 6 and p[fr.LMCS_CHROMA] and width * height > 4:
        scale = chroma_scale(f, luma_x, luma_y, log[unit + lg.U_W], log[unit + lg.U_H])
    for component in (1, 2):
        out = fr.FIRST if component == 1 else fr.SECOND
        count = log[tu + lg.T_LEVELS + component]
        # Of a joint residual one is coded: that of Cr if its bit alone is set.
        if coded >> component & 1 and (joint == 0 or component == (2 if joint == 1 else 1)):
            skip = log[tu + lg.T_SKIP] >> component & 1 == 1
            residual_of_block(f, component, at, count, width, height, skip, joint, out)
        at += count
    if joint:
        joint_residual(f, joint, width * height)
    for component in (1, 2):
        out = fr.FIRST if component == 1 else fr.SECOND
        if joint or coded >> component & 1:
            if scale:
                scale_residual(f, out, width * height, scale)
            add_residual(f, component, x, y, width, height, out)
        else:
            copy_prediction(f, component, x, y, width, height)
    mark(f, True, luma_x, luma_y, luma_w, luma_h)


def _entry(sources: str) -> Callable[[Frame, int], str]:
    @compiled_entry
    def reconstruct_units(owned: Frame, count: int) -> str:
        """Reconstruct the coding units in the first `count` numbers of the log. Returns the hash of the sources."""
        f = borrowed(owned) if COMPILED else owned
        p, log = f.p, f.log
        unit = 0
        while unit < count:
            p[fr.UNIT], p[fr.REGION] = unit, log[unit + lg.U_REGION]
            for chroma in (False, True):
                tu = unit + lg.UNIT_HEADER
                for _ in range(log[unit + lg.U_UNITS]):
                    if not chroma and log[unit + lg.U_TREE] != st.DUAL_CHROMA:
                        luma_block(f, tu)
                    if chroma and log[tu + lg.T_CHROMA]:
                        chroma_blocks(f, tu)
                    levels = log[tu + lg.T_LEVELS] + log[tu + lg.T_LEVELS + 1] + log[tu + lg.T_LEVELS + 2]
                    tu += lg.BLOCK_HEADER + levels
            unit += log[unit + lg.U_SIZE]
        return sources

    return reconstruct_units


reconstruct_units = _entry(source_digest(Path(__file__).parent, Path(modes.__file__).parent))
