"""Slice data (H.266 clause 7.3.11.1): the CTUs of a slice, its substreams and its end."""

from codecnn.vvc.cabac import decode_terminating_one, start_decoder
from codecnn.vvc.coding_tree import coding_tree_of_ctu
from codecnn.vvc.compiled import compiled
from codecnn.vvc.loop_filters import alf, sao
from codecnn.vvc.state import (
    CTB_REGION,
    CTB_X,
    CTB_Y,
    CTU,
    CU_COUNT,
    END,
    FAULT,
    FAULT_TERMINATE,
    LEFT_AVAILABLE,
    LOG2_CTU,
    POSITION,
    QG_FIRST,
    QG_ROW_FIRST,
    QP_Y,
    REGION,
    SLICE_QP,
    TOP_AVAILABLE,
    WAVEFRONT,
    Work,
)
from codecnn.vvc.tiles import ADDRESS, END_OF_NOTHING, END_OF_SLICE, ENDS, FIRST_IN_ROW, TILE

CUS_OF_A_CTU = 2048
"""1,024 luma and 1,024 chroma blocks of 4x4 samples in a CTU of 128x128."""


@compiled
def parse_ctus(w: Work) -> None:
    """Parse CTUs of a slice until it ends, `cus` might not take those of one more, or a fault is found."""
    n = w.n
    while n[CTU] < len(w.ctus) and n[CU_COUNT] + CUS_OF_A_CTU <= len(w.cus) and not n[FAULT]:
        parse_ctu(w, n[CTU])
        n[CTU] += 1


@compiled
def parse_ctu(w: Work, index: int) -> None:
    """coding_tree_unit() number `index` of the slice, and the terminating bin behind it."""
    n = w.n
    ctu = w.ctus[index]
    columns = w.ctbs.shape[2]
    x, y = ctu[ADDRESS] % columns, ctu[ADDRESS] // columns
    # Slices and tiles are parsed independently: blocks of another one count as not there (clause 6.4.4).
    region = n[REGION] + ctu[TILE]
    w.ctbs[CTB_REGION, y, x] = region
    n[LEFT_AVAILABLE] = int(x > 0 and w.ctbs[CTB_REGION, y, x - 1] == region)
    n[TOP_AVAILABLE] = int(y > 0 and w.ctbs[CTB_REGION, y - 1, x] == region)
    n[CTB_X], n[CTB_Y] = x << n[LOG2_CTU], y << n[LOG2_CTU]
    if index == 0 or w.ctus[index - 1, ENDS] != END_OF_NOTHING:
        start_decoder(w)
        n[QG_FIRST] = 1
        n[QP_Y] = n[SLICE_QP]
        # Above is another slice or tile but for the rows of a wavefront (clause 9.3.1).
        w.contexts[:] = w.kept if n[TOP_AVAILABLE] else w.initial
    if ctu[FIRST_IN_ROW]:
        n[QG_ROW_FIRST] = 1
    sao(w)
    alf(w, x, y)
    coding_tree_of_ctu(w, n[CTB_X], n[CTB_Y])
    if n[WAVEFRONT] and ctu[FIRST_IN_ROW]:
        w.kept[:] = w.contexts
    if ctu[ENDS] != END_OF_NOTHING and not n[FAULT]:
        decode_terminating_one(w)
        if ctu[ENDS] == END_OF_SLICE and n[POSITION] != n[END]:
            n[FAULT] = FAULT_TERMINATE
