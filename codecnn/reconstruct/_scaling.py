"""Scaling of levels (H.266 clause 8.7.3) and the QPs it is by (clause 8.7.1)."""

from codecnn.reconstruct import _frame as fr
from codecnn.reconstruct._frame import Frame
from codecnn.reconstruct._tables import LEVEL_SCALE, LIST_OF_SIZE
from codecnn.vvc import compiled
from codecnn.vvc import log as lg
from codecnn.vvc import state as st


@compiled
def clip(value: int, low: int, high: int) -> int:
    """Clip3."""
    return low if value < low else high if value > high else value


@compiled
def qp_of_block(f: Frame, component: int, joint: int, skip: bool) -> int:
    """qP of a transform block (clause 8.7.1, (1163) to (1167)): QP' with the least of transform skip."""
    p = f.p
    offset = 6 * (p[fr.BIT_DEPTH] - 8)
    qp: int = f.log[p[fr.UNIT] + lg.U_QP]
    if component:
        # A joint residual of both has a table and offsets of its own; one that stands for the other has not.
        kind = 2 if joint == 3 else component - 1
        qp = p[fr.QP_TABLE + fr.QP_TABLE_SIZE * kind + clip(qp, -offset, 63) + offset]
        qp += p[fr.QP_OFFSET + kind] + p[fr.QP_LIST + 3 * f.log[p[fr.UNIT] + lg.U_CHROMA_QP] + kind]
        qp = clip(qp, -offset, 63)
    qp += offset
    if f.log[p[fr.UNIT] + lg.U_ACT]:
        qp += -5 if component == 0 else 1 if component == 1 or joint == 3 else 3
    qp = clip(qp, 0, 63 + offset)
    if skip:
        qp = max(qp, p[fr.MIN_QP_TS])
    return qp


@compiled
def scaling_factor(f: Frame, component: int, log2_w: int, log2_h: int, x: int, y: int) -> int:
    """ScalingFactor (clause 7.4.3.20)."""
    p = f.p
    longer = max(log2_w, log2_h)
    intra = f.log[p[fr.UNIT] + lg.U_PRED_MODE] == st.MODE_INTRA
    number = LIST_OF_SIZE[longer, component if intra else component + 3]
    at = fr.LISTS_DC + number
    if longer <= 3 or x > 0 or y > 0:
        column, row = (x << 3) >> log2_w, (y << 3) >> log2_h
        at = fr.LISTS_AT + 64 * number + 8 * row + column
    factor: int = p[at]
    return factor


@compiled
def scale_levels(
    f: Frame, at: int, count: int, component: int, log2_w: int, log2_h: int, qp: int, skip: bool, lfnst: bool
) -> None:
    """Put the `count` levels from `at` of the log, scaled, into the coefficients of a block; sets LAST_X and LAST_Y."""
    p, s = f.p, f.s
    width = 1 << log2_w
    odd_size = 0 if skip else (log2_w + log2_h) & 1
    dependent = 1 if p[fr.DEP_QUANT] and not skip else 0
    shift = 10
    if not skip:
        shift += p[fr.BIT_DEPTH] + odd_size + ((log2_w + log2_h) >> 1) - p[fr.TRANSFORM_RANGE] + dependent
    per, rem = (qp + dependent) // 6, (qp + dependent) % 6
    step = LEVEL_SCALE[odd_size, rem] << per
    add = (1 << shift) >> 1
    lists = p[fr.LISTS] and not skip and not (lfnst and not p[fr.LISTS_FOR_LFNST])
    lists = lists and f.log[p[fr.UNIT] + lg.U_ACT] != p[fr.LISTS_NOT_FOR_ACT]
    least = -(1 << p[fr.TRANSFORM_RANGE])
    last_x = last_y = 0
    for i in range(at, at + count):
        packed = f.log[i]
        level = packed >> lg.LEVEL_SHIFT
        x, y = packed & 31, (packed >> 5) & 31
        last_x, last_y = max(last_x, x), max(last_y, y)
        if dependent:
            level = 2 * level
            if packed >> 10 & 1:
                level += 1 if level < 0 else -1
        factor = scaling_factor(f, component, log2_w, log2_h, x, y) if lists else 16
        s[fr.COEFFICIENTS + y * width + x] = clip((level * factor * step + add) >> shift, least, -least - 1)
    p[fr.LAST_X], p[fr.LAST_Y] = last_x, last_y


@compiled
def accumulate(f: Frame, at: int, count: int, width: int, height: int, qp: int, vertical: bool) -> None:
    """The coefficients of a BDPCM block, whose levels are differences (clause 8.7.3, (1203) and (1204))."""
    s = f.s
    least = -(1 << f.p[fr.TRANSFORM_RANGE])
    for i in range(at, at + count):
        packed = f.log[i]
        s[fr.COEFFICIENTS + ((packed >> 5) & 31) * width + (packed & 31)] = packed >> lg.LEVEL_SHIFT
    for y in range(height):
        for x in range(width):
            here = fr.COEFFICIENTS + y * width + x
            before = here - width if vertical else here - 1
            if y if vertical else x:
                s[here] = clip(s[here] + s[before], least, -least - 1)
    step = LEVEL_SCALE[0, qp % 6] << (qp // 6)
    for i in range(fr.COEFFICIENTS, fr.COEFFICIENTS + width * height):
        s[i] = clip((s[i] * 16 * step + 512) >> 10, least, -least - 1)
