"""Slice data (H.266 clause 7.3.11.1): the CTUs of a slice, its substreams and its end."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]

from codecnn.vvc import state as st
from codecnn.vvc.cabac import decode_terminating_one, start_decoder
from codecnn.vvc.coding_tree import coding_tree_of_ctu
from codecnn.vvc.contexts import CONTEXT_NUMBERS
from codecnn.vvc.jit import COMPILED, compiled, compiled_entry, pointer, source_digest
from codecnn.vvc.log import LOG_OF_A_CTU
from codecnn.vvc.loop_filters import alf, sao
from codecnn.vvc.state import CtbMaps, Ints, Work
from codecnn.vvc.tiles import ADDRESS, END_OF_NOTHING, END_OF_SLICE, ENDS, FIRST_IN_ROW, TILE

CUS_OF_A_CTU = 2048
"""1,024 luma and 1,024 chroma blocks of 4x4 samples in a CTU of 128x128."""


@compiled
def borrowed(w: Work) -> Work:
    """The arrays of `w` without their owners, which must outlive them.

    Else each function would count references in and out again, which takes longer than decoding the bins.
    """
    return Work(
        carray(pointer(w.n.ctypes.data), w.n.shape, np.int64),
        carray(pointer(w.data.ctypes.data), w.data.shape, np.uint8),
        carray(pointer(w.maps.ctypes.data), w.maps.shape, np.int16),
    )


@compiled
def start_substream(w: Work) -> None:
    """Begin a slice, a tile or a row of a wavefront (clause 9.3.1)."""
    n = w.n
    start_decoder(w)
    n[st.QG_FIRST] = 1
    n[st.QP_Y] = n[st.SLICE_QP]
    # Above is another slice or tile but for the rows of a wavefront.
    source = st.KEPT if n[st.TOP_AVAILABLE] else st.INITIAL
    n[st.CONTEXTS : st.CONTEXTS + CONTEXT_NUMBERS] = n[source : source + CONTEXT_NUMBERS]
    # StatCoeff (clause 9.3.2.1): 2 * Floor(Log2(BitDepth - 10)), of 11 to 16 bit.
    stat = 4 if n[st.BIT_DEPTH] >= 14 else 2 if n[st.BIT_DEPTH] >= 12 else 0
    n[st.STAT_COEFF : st.STAT_COEFF + 3] = stat if n[st.PERSISTENT_RICE] else 0
    n[st.PREDICTOR : st.PREDICTOR + st.PREDICTOR_NUMBERS] = 0
    if n[st.TOP_AVAILABLE]:
        kept = n[st.KEPT_PREDICTOR : st.KEPT_PREDICTOR + st.PREDICTOR_NUMBERS]
        n[st.PREDICTOR : st.PREDICTOR + st.PREDICTOR_NUMBERS] = kept


def _entry(sources: str) -> Callable[[Work, CtbMaps, Ints, npt.NDArray[np.int32]], str]:
    @compiled_entry
    def parse_ctus(owned: Work, ctbs: CtbMaps, ctus: Ints, cus: npt.NDArray[np.int32]) -> str:
        """Parse CTUs of a slice until it ends, `cus` or the log might not take one more, or a fault is found.

        `ctbs` (CTB_MAPS, rows, columns) are maps of the picture in CTUs, `ctus` the CTUs of the slice as in
        `tiles.slice_ctus`, and `cus` (n, columns) what is found. Returns the hash of the sources: numba keeps compiled
        functions apart by what they close over.
        """
        w = borrowed(owned) if COMPILED else owned
        n = w.n
        columns = ctbs.shape[2]
        while n[st.CTU] < len(ctus) and n[st.CU_COUNT] + CUS_OF_A_CTU <= len(cus) and not n[st.FAULT]:
            if n[st.KEEP] and n[st.LOG] + LOG_OF_A_CTU > len(n):
                break
            index = n[st.CTU]
            n[st.CTU] += 1
            x, y = ctus[index, ADDRESS] % columns, ctus[index, ADDRESS] // columns
            n[st.CTB_X], n[st.CTB_Y] = x << n[st.LOG2_CTU], y << n[st.LOG2_CTU]
            # Slices and tiles are parsed independently: blocks of another one count as not there (clause 6.4.4).
            region = n[st.REGION] + ctus[index, TILE]
            ctbs[st.CTB_REGION, y, x] = n[st.CTU_REGION] = region
            n[st.LEFT_AVAILABLE] = int(x > 0 and ctbs[st.CTB_REGION, y, x - 1] == region)
            n[st.TOP_AVAILABLE] = int(y > 0 and ctbs[st.CTB_REGION, y - 1, x] == region)
            if index == 0 or ctus[index - 1, ENDS] != END_OF_NOTHING:
                start_substream(w)
            if ctus[index, FIRST_IN_ROW]:
                n[st.QG_ROW_FIRST] = 1
                n[st.VECTORS] = 0
            # Loop filters change no decision of the blocks: two encodes that differ in them only must hash alike.
            bins = n[st.BINS]
            sao(w)
            alf(w, ctbs, x, y)
            n[st.BINS] = bins
            coding_tree_of_ctu(w, cus)
            # A row of a wavefront starts from the contexts behind the first CTU of the row above, so that rows can be
            # decoded side by side, each one CTU behind the other.
            if n[st.WAVEFRONT] and ctus[index, FIRST_IN_ROW]:
                n[st.KEPT : st.KEPT + CONTEXT_NUMBERS] = n[st.CONTEXTS : st.CONTEXTS + CONTEXT_NUMBERS]
                predictor = n[st.PREDICTOR : st.PREDICTOR + st.PREDICTOR_NUMBERS]
                n[st.KEPT_PREDICTOR : st.KEPT_PREDICTOR + st.PREDICTOR_NUMBERS] = predictor
            ends = ctus[index, ENDS]
            if ends != END_OF_NOTHING and not n[st.FAULT]:
                decode_terminating_one(w)
                if ends == END_OF_SLICE and n[st.POSITION] != n[st.END]:
                    n[st.FAULT] = st.FAULT_TERMINATE
        return sources

    return parse_ctus


parse_ctus = _entry(source_digest())
