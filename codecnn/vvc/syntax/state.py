"""State of the slice parser that its compiled functions work on, and the values of enumerations.

Numba checks no array index, so no index may leave its array, whatever a stream contains. Positions lie inside the
picture's grid of 4x4 samples, because only nodes that begin inside the picture are visited and their area is clipped to
it; levels and scans are bounded by the 32x32 coefficients of the largest block.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.records import Records
from codecnn.vvc.syntax.maps import BlockCell
from codecnn.vvc.syntax.records import Parser

Ints = npt.NDArray[np.int64]


class Work(NamedTuple):
    """State of one slice while it is parsed.

    Attributes:
        state: All state that is not an array of variable size.
        data: Slice data, uint8.
        cells: Properties of the picture's blocks, cells of type `maps.BLOCK_CELL`, shape (rows, columns).
        unavailable: Properties of neighbours that are not available.
        log: The log (`codecnn.vvc.syntax.log`), int64, up to `state.current.log_at`.
    """

    state: Parser
    data: npt.NDArray[np.uint8]
    cells: Records
    unavailable: BlockCell
    log: Ints


SINGLE, DUAL_LUMA, DUAL_CHROMA, IMPLICIT = range(4)
"""Values of treeType; IMPLICIT stands for a node above separate trees."""

MODE_ALL, MODE_INTER_ONLY, MODE_INTRA_ONLY = range(3)
"""Values of modeType."""

MODE_INTER, MODE_INTRA, MODE_IBC, MODE_PALETTE = range(4)
"""Values of CuPredMode, as VTM numbers pred_mode."""

NO_SPLIT, QT, BT_HOR, BT_VER, TT_HOR, TT_VER = range(6)
"""Splits of a node of the coding tree."""

ISP_NONE, ISP_HOR, ISP_VER = range(3)
"""Values of IntraSubPartitionsSplitType."""

DCT2, DST7, DCT8 = range(3)
"""Values of trType (clause 8.7.4.1); VTM numbers the last two the other way round."""

FAULT_NONE, FAULT_END, FAULT_SPLIT, FAULT_TERMINATE, FAULT_QP, FAULT_LEVEL, FAULT_PALETTE = range(7)
"""Values of `Parser.fault`."""
