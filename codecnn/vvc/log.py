"""The log of slice data: what reconstruction needs of each coding unit, in decoding order, as one row of numbers.

A coding unit is UNIT_HEADER numbers (U_SIZE: how many all of it takes, ...), behind them its transform units:
BLOCK_HEADER numbers (T_X, ...) and the levels of Y, Cb and Cr that are not zero, one number each, see `keep_level`.
"""

from codecnn.vvc import state as st
from codecnn.vvc.jit import compiled
from codecnn.vvc.state import Work

U_SIZE, U_X, U_Y, U_W, U_H, U_TREE, U_REGION, U_PRED_MODE, U_MODE, U_MIP, U_MIP_TRANSPOSED = range(11)
U_ISP, U_MRL, U_BDPCM, U_BDPCM_C, U_MODE_C, U_COLOCATED_MODE, U_LFNST, U_MTS, U_QP, U_CHROMA_QP, U_UNITS = range(11, 22)
U_ACT, U_VECTOR_X, U_VECTOR_Y, U_KERNEL_H, U_KERNEL_V = range(22, 27)
UNIT_HEADER = 27
"""Places in a coding unit, in luma samples: `U_MODE` is IntraPredModeY or the MIP index, `U_MODE_C` IntraPredModeC with
CCLM as 67 to 69, `U_QP` QpY, `U_CHROMA_QP` one more than cu_chroma_qp_offset_idx, `U_UNITS` the number of transform
units, `U_ACT` cu_act_enabled_flag, `U_VECTOR_X` and `U_VECTOR_Y` the block vector of IBC, `U_KERNEL_H` and
`U_KERNEL_V` the kernels of its luma's transforms. What follows in a palette unit are the samples of each component, row
after row, -1 - palette_escape_val where that is coded."""

T_X, T_Y, T_W, T_H, T_CHROMA, T_CODED, T_JOINT, T_SKIP, T_LEVELS = range(9)
BLOCK_HEADER = T_LEVELS + 3
"""Places in a transform unit, in luma samples: `T_CHROMA` whether it has chroma, `T_CODED` and `T_SKIP` a bit each
(coded, transform skip), `T_JOINT` of joint coding 2 if Cb is coded, 1 if Cr is, 3 if both are; from `T_LEVELS` on the
numbers of levels of Y, Cb and Cr."""

LOG_OF_A_CTU = 1 << 18
"""More than a CTU of 128x128 takes: 3 * 16,384 levels, 2,048 coding units and as many transform units."""

DERIVED_MIP = 70
"""U_MODE_C where chroma is predicted by the same matrix as its luma: derived mode of 4:4:4 in one tree."""

LEVEL_SHIFT = 11
POSITION_MASK = 1023


@compiled
def begin_unit(w: Work) -> None:
    """Leave room for what is known of the coding unit when it ends."""
    w.n[st.UNIT_AT] = w.n[st.LOG]
    w.n[st.LOG] += UNIT_HEADER


@compiled
def end_unit(w: Work) -> None:
    """Fill in the header of the coding unit at hand."""
    n = w.n
    unit = n[n[st.UNIT_AT] :]
    unit[U_SIZE] = n[st.LOG] - n[st.UNIT_AT]
    unit[U_X], unit[U_Y], unit[U_W], unit[U_H] = n[st.X], n[st.Y], n[st.W], n[st.H]
    unit[U_TREE], unit[U_REGION], unit[U_PRED_MODE] = n[st.TREE], n[st.CTU_REGION], n[st.PRED_MODE]
    unit[U_MODE], unit[U_MIP], unit[U_MIP_TRANSPOSED] = n[st.INTRA_MODE], n[st.MIP_FLAG], n[st.MIP_TRANSPOSED]
    unit[U_ISP], unit[U_MRL], unit[U_BDPCM] = n[st.ISP_SPLIT], n[st.MRL_IDX], n[st.BDPCM_LUMA]
    unit[U_BDPCM_C], unit[U_MODE_C] = n[st.BDPCM_CHROMA], n[st.CHROMA_MODE]
    unit[U_COLOCATED_MODE], unit[U_LFNST], unit[U_MTS] = n[st.COLOCATED_MODE], n[st.LFNST_IDX], n[st.MTS_IDX]
    unit[U_QP], unit[U_CHROMA_QP], unit[U_UNITS] = n[st.QP_Y], n[st.CHROMA_QP_IDX], n[st.UNITS]
    unit[U_ACT], unit[U_VECTOR_X], unit[U_VECTOR_Y] = n[st.ACT_FLAG], n[st.VECTOR_X], n[st.VECTOR_Y]
    unit[U_KERNEL_H], unit[U_KERNEL_V] = n[st.KERNEL_H], n[st.KERNEL_V]
    if n[st.TREE] == st.DUAL_CHROMA:
        # A chroma block has the QP of the luma block at its centre (clause 8.7.1).
        unit[U_QP] = w.maps[st.CU_QP, (n[st.Y] + n[st.H] // 2) >> 2, (n[st.X] + n[st.W] // 2) >> 2]


@compiled
def begin_transform_unit(
    w: Work, x: int, y: int, width: int, height: int, has_chroma: bool, coded: int, joint: int
) -> int:
    """Begin a transform unit with what is known before its residual: where in the log it lies."""
    n = w.n
    at: int = n[st.LOG]
    n[st.LOG] += BLOCK_HEADER
    n[st.UNITS] += 1
    unit = n[at:]
    unit[T_X], unit[T_Y], unit[T_W], unit[T_H] = x, y, width, height
    unit[T_CHROMA], unit[T_CODED], unit[T_SKIP] = int(has_chroma), coded, 0
    unit[T_JOINT] = (coded & 2) + (coded >> 2) if joint else 0
    return at


@compiled
def note_block(w: Work, unit: int, component: int, skip: int, levels: int) -> None:
    """What a component of the transform unit at `unit` of the log has: transform_skip_flag, and how many levels."""
    w.n[unit + T_SKIP] |= skip << component
    w.n[unit + T_LEVELS + component] = levels


@compiled
def keep_level(w: Work, at: int, level: int, odd: int) -> None:
    """Append the level at place `at` of the planes of levels: level, then one bit, then y and x in five bits each.

    The bit `odd` says that dependent quantization had the quantizer of odd multiples (QState > 1).
    """
    n = w.n
    if abs(level) > 1 << n[st.TRANSFORM_RANGE]:
        n[st.FAULT] = st.FAULT_LEVEL
        return
    y, x = at // st.LEVEL_STRIDE - 1, at % st.LEVEL_STRIDE - 1
    n[n[st.LOG]] = level << LEVEL_SHIFT | odd << 10 | y << 5 | x
    n[st.LOG] += 1


@compiled
def keep_palette(w: Work, first: int, last: int, width: int, height: int) -> None:
    """Append the samples of a palette unit of width x height samples of its component `first`."""
    n = w.n
    size = n[st.PALETTE_SIZE]
    for component in range(first, last):
        sub_x, sub_y = (n[st.SUB_WIDTH], n[st.SUB_HEIGHT]) if component and not first else (0, 0)
        for y in range(0, height, 1 << sub_y):
            for x in range(0, width, 1 << sub_x):
                at = 64 * y + x
                index = n[st.INDICES + at]
                if index == size:
                    value = -1 - n[st.ESCAPES + 4096 * component + at]
                else:
                    value = n[st.PALETTE_ENTRIES + st.MAX_PALETTE * component + index]
                n[n[st.LOG]] = value
                n[st.LOG] += 1
