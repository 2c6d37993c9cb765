"""Transform units of coding units: their prediction, their residual, and both together (H.266 clauses 8.4.5, 8.7)."""

from codecnn.reconstruct import _frame as fr
from codecnn.reconstruct._boundaries import note_boundaries
from codecnn.reconstruct._cross_component import predict_from_luma
from codecnn.reconstruct._frame import Frame
from codecnn.reconstruct._luma_mapping import chroma_scale, scale_residual
from codecnn.reconstruct._matrix import predict_by_matrix
from codecnn.reconstruct._prediction import predict
from codecnn.reconstruct._references import mark
from codecnn.reconstruct._residual import (
    add_residual,
    copy_prediction,
    inverse_colour_transform,
    joint_residual,
    residual_of_block,
)
from codecnn.vvc import compiled
from codecnn.vvc import log as lg


@compiled
def next_block(f: Frame, tu: int) -> int:
    """Where in the log the transform unit behind the one at `tu` lies, if there is one."""
    log = f.log
    end: int = tu + lg.BLOCK_HEADER + log[tu + lg.T_LEVELS] + log[tu + lg.T_LEVELS + 1] + log[tu + lg.T_LEVELS + 2]
    return end


@compiled
def place_of_block(f: Frame, tu: int, component: int) -> tuple[int, int, int, int]:
    """x, y, width and height of a transform block; chroma of a unit in sub-partitions is one block."""
    p, log, unit = f.p, f.log, f.p[fr.UNIT]
    x, y, width, height = log[tu + lg.T_X], log[tu + lg.T_Y], log[tu + lg.T_W], log[tu + lg.T_H]
    if component == 0:
        return x, y, width, height
    if log[unit + lg.U_ISP]:
        x, y, width, height = log[unit + lg.U_X], log[unit + lg.U_Y], log[unit + lg.U_W], log[unit + lg.U_H]
    return x >> p[fr.SUB_X], y >> p[fr.SUB_Y], width >> p[fr.SUB_X], height >> p[fr.SUB_Y]


@compiled
def predict_luma(f: Frame, tu: int) -> None:
    """Predict the luma of the transform unit at `tu` of the log."""
    log, unit = f.log, f.p[fr.UNIT]
    x, y, width, height = place_of_block(f, tu, 0)
    mode = log[unit + lg.U_MODE]
    if log[unit + lg.U_MIP]:
        predict_by_matrix(f, 0, x, y, width, height, mode, log[unit + lg.U_MIP_TRANSPOSED] == 1)
    elif log[unit + lg.U_ISP]:
        # Narrow parts are predicted four columns at a time (8.4.5.1).
        if width >= 4 or (x - log[unit + lg.U_X]) % 4 == 0:
            predict(f, 0, x, y, max(4, width), height, mode, 0, log[unit + lg.U_W], log[unit + lg.U_H], False)
    else:
        predict(f, 0, x, y, width, height, mode, log[unit + lg.U_MRL], 0, 0, log[unit + lg.U_BDPCM] == 1)


@compiled
def predict_chroma(f: Frame, tu: int) -> None:
    """Predict Cb and Cr of the transform unit at `tu` of the log."""
    log, unit = f.log, f.p[fr.UNIT]
    x, y, width, height = place_of_block(f, tu, 1)
    mode = log[unit + lg.U_MODE_C]
    for component in range(1, 3):
        if 67 <= mode <= 69:
            predict_from_luma(f, component, x, y, width, height, mode)
        elif mode == lg.DERIVED_MIP:
            luma_mode, transposed = log[unit + lg.U_MODE], log[unit + lg.U_MIP_TRANSPOSED] == 1
            predict_by_matrix(f, component, x, y, width, height, luma_mode, transposed)
        else:
            predict(f, component, x, y, width, height, mode, 0, 0, 0, log[unit + lg.U_BDPCM_C] == 1)


@compiled
def residuals_of_blocks(f: Frame, tu: int, first: int, last: int) -> int:
    """The residuals of components `first` to `last` - 1, at RESIDUALS of `Frame.s`: a bit for each that has one."""
    log = f.log
    coded, joint = log[tu + lg.T_CODED], log[tu + lg.T_JOINT]
    at = tu + lg.BLOCK_HEADER
    have = 0
    for component in range(last):
        count = log[tu + lg.T_LEVELS + component]
        # Of a joint residual one is coded: that of Cr if its bit alone is set.
        own = component == 0 or joint == 0 or component == (2 if joint == 1 else 1)
        if component >= first and own and coded >> component & 1:
            _, _, width, height = place_of_block(f, tu, component)
            skip = log[tu + lg.T_SKIP] >> component & 1 == 1
            out = fr.RESIDUALS + fr.BLOCK * component
            residual_of_block(f, component, at, count, width, height, skip, joint if component else 0, out)
            have |= 1 << component
        at += count
    if joint and last > 1:
        _, _, width, height = place_of_block(f, tu, 1)
        joint_residual(f, joint, width * height)
        have |= 6
    return have


@compiled
def reconstruct_blocks(f: Frame, tu: int, first: int, last: int) -> None:
    """Add the residuals of components `first` to `last` - 1 of a transform unit to what is predicted (8.7.5)."""
    p, s, log, unit = f.p, f.s, f.log, f.p[fr.UNIT]
    have = residuals_of_blocks(f, tu, first, last)
    if log[unit + lg.U_ACT]:
        _, _, width, height = place_of_block(f, tu, 0)
        for component in range(3):
            if not have >> component & 1:
                out = fr.RESIDUALS + fr.BLOCK * component
                s[out : out + width * height] = 0
        inverse_colour_transform(f, width * height)
        have = 7
    for component in range(first, last):
        x, y, width, height = place_of_block(f, tu, component)
        out = fr.RESIDUALS + fr.BLOCK * component
        if have >> component & 1:
            if component and p[fr.LMCS_CHROMA] and width * height > 4:
                luma_x, luma_y = x << p[fr.SUB_X], y << p[fr.SUB_Y]
                scale = chroma_scale(f, luma_x, luma_y, log[unit + lg.U_W], log[unit + lg.U_H])
                scale_residual(f, out, width * height, scale)
            add_residual(f, component, x, y, width, height, out)
        else:
            copy_prediction(f, component, x, y, width, height)
    if first == 0:
        x, y, width, height = place_of_block(f, tu, 0)
        note_boundaries(f, x, y, width, height, log[tu + lg.T_CODED] & 1 == 1)
        mark(f, False, x, y, width, height)
    if last > 1:
        x, y, width, height = place_of_block(f, tu, 1)
        mark(f, True, x << p[fr.SUB_X], y << p[fr.SUB_Y], width << p[fr.SUB_X], height << p[fr.SUB_Y])
