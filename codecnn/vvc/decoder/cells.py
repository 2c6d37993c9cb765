"""Records of the cells of a picture: reconstruction, motion and edges by 4x4 or 8x8 luma samples.

Names and units are those of `codecnn.vvc.decoder.records`.
"""

from collections.abc import Callable
from typing import Annotated, cast

import numpy as np

from codecnn.base.records import Array, Record, record_dtype
from codecnn.vvc.syntax.log import MotionVector


class BlockCell(Record):
    """State of a cell of 4x4 luma samples; its numbers are int32.

    Attributes:
        region: Slice and tile (`log.CodingUnit.region`) of reconstructed luma and chroma; 0 if it is not reconstructed.
        block: Properties of the luma and chroma transform block as `block_state` packs them.
        bv: Block vector of IBC, packed.
        qp: QpY, and Qp'Cb and Qp'Cr without the offset of the adaptive colour transform.
    """

    region: Annotated[Array[int], 2]
    block: Annotated[Array[int], 2]
    bv: int
    qp: Annotated[Array[int], 3]


class MotionCell(Record):
    """Motion of a cell of 4x4 luma samples; its numbers are int32.

    Attributes:
        mv: MvL0 and MvL1.
        ref_idx: RefIdxL0 and RefIdxL1; -1 if the list is unused.
        slot: Slots of the reference pictures in the picture buffer, -1 if the list is unused; deblocking compares
            pictures, not indices.
        bcw_idx: BcwIdx.
        hpel_if_idx: HpelIfIdx.
        model: 0 translation, 1 or 2 affine motion of four or six parameters, 3 temporal subblocks.
        mv_dmvr: MvDmvrL0 and MvDmvrL1, from which later pictures predict: refined by DMVR where it applies.
        x: CbPosX of the unit.
        y: CbPosY of the unit.
        width: CbWidth of the unit.
        height: CbHeight of the unit.
        cp_mv: CpMvL0 and CpMvL1 of the unit, three control points each.
    """

    mv: Annotated[Array[MotionVector], 2]
    ref_idx: Annotated[Array[int], 2]
    slot: Annotated[Array[int], 2]
    bcw_idx: int
    hpel_if_idx: int
    model: int
    mv_dmvr: Annotated[Array[MotionVector], 2]
    x: int
    y: int
    width: int
    height: int
    cp_mv: Annotated[Array[MotionVector], 2, 3]


class CollocatedCell(Record):
    """Motion of a cell of 8x8 luma samples of the collocated picture; its numbers are int32.

    Attributes:
        mv: mvL0Col and mvL1Col, compressed (8.5.2.15).
        pred_flag: predFlagL0Col and predFlagL1Col.
        poc: POC of the reference picture of each list.
        long_term: 1 if the reference picture of the list is a long-term reference picture.
    """

    mv: Annotated[Array[MotionVector], 2]
    pred_flag: Annotated[Array[int], 2]
    poc: Annotated[Array[int], 2]
    long_term: Annotated[Array[int], 2]


class Edge(Record):
    """Edge of a cell of 4x4 luma samples that deblocking filters; its numbers are int8.

    Attributes:
        bs: bS of luma, 0 to 2; 0 is no edge.
        max_filter_length_p: maxFilterLengthPs of luma: 1, 2, 3, 5 or 7.
        max_filter_length_q: maxFilterLengthQs of luma.
        bs_c: bS of Cb and Cr.
        max_filter_length_c: maxFilterLengthPs and maxFilterLengthQs of chroma, 3 if the blocks on both sides have at
            least eight samples, else 1.
    """

    bs: int
    max_filter_length_p: int
    max_filter_length_q: int
    bs_c: Annotated[Array[int], 2]
    max_filter_length_c: int


EDGE_VER, EDGE_HOR = range(2)
"""Values of edgeType: left and upper edges."""


int64 = cast(Callable[[int], int], np.int64)
"""Conversion of a number of a cell before it is passed on: numba compiles a function anew for int32."""

BLOCK_CELL, MOTION_CELL = record_dtype(BlockCell, np.int32), record_dtype(MotionCell, np.int32)
COLLOCATED_CELL = record_dtype(CollocatedCell, np.int32)
"""Types of the elements of `Frame.known`, `Frame.motion` and `Frame.collocated`."""

EDGE = record_dtype(Edge, np.int8)
"""Type of the elements of the array of edges."""
