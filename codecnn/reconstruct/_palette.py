"""Palette units (H.266 clause 8.4.5.3)."""

from codecnn.reconstruct import _frame as fr
from codecnn.reconstruct._boundaries import note_boundaries
from codecnn.reconstruct._frame import Frame
from codecnn.reconstruct._references import mark
from codecnn.reconstruct._scaling import clip, qp_of_block
from codecnn.reconstruct._tables import LEVEL_SCALE
from codecnn.vvc import compiled
from codecnn.vvc import log as lg
from codecnn.vvc import state as st


@compiled
def palette_unit(f: Frame) -> None:
    """The samples of a palette unit, which are prediction and reconstruction at once; escape values are scaled."""
    p, log, planes, unit = f.p, f.log, f.planes, f.p[fr.UNIT]
    tree = log[unit + lg.U_TREE]
    first = 1 if tree == st.DUAL_CHROMA else 0
    last = 1 if tree == st.DUAL_LUMA or p[fr.CHROMA] == 0 else 3
    x0, y0, width, height = log[unit + lg.U_X], log[unit + lg.U_Y], log[unit + lg.U_W], log[unit + lg.U_H]
    peak = (1 << p[fr.BIT_DEPTH]) - 1
    at = unit + lg.UNIT_HEADER
    for component in range(first, last):
        sub_x, sub_y = (p[fr.SUB_X], p[fr.SUB_Y]) if component else (0, 0)
        qp = qp_of_block(f, component, 0, True)
        step = LEVEL_SCALE[0, qp % 6] << (qp // 6)
        stride, recon, pred = p[fr.STRIDE + component], p[fr.RECON + component], p[fr.PRED + component]
        for y in range(height >> sub_y):
            place = ((y0 >> sub_y) + y) * stride + (x0 >> sub_x)
            for x in range(width >> sub_x):
                value = log[at]
                at += 1
                if value < 0:
                    value = clip(((-1 - value) * step + 32) >> 6, 0, peak)
                planes[recon + place + x] = planes[pred + place + x] = value
    if first == 0:
        note_boundaries(f, x0, y0, width, height, False)
        mark(f, False, x0, y0, width, height)
    if last == 3:
        mark(f, True, x0, y0, width, height)
