"""Properties of the blocks and CTUs of a picture parsed so far."""

from typing import Annotated

import numpy as np

from codecnn.base.records import Array, Record, record_dtype
from codecnn.vvc.syntax.log import MotionVector


class BlockCell(Record):
    """Properties of a cell of 4x4 luma samples that later blocks depend on; its numbers are int16.

    The two elements of the first four fields are those of the luma tree or single tree, and of the chroma tree.

    Attributes:
        cb_width: CbWidth.
        cb_height: CbHeight.
        cqt_depth: CqtDepth.
        cu_pred_mode: CuPredMode.
        cu_skip_flag: cu_skip_flag.
        intra_mip_flag: intra_mip_flag.
        intra_pred_mode_y: IntraPredModeY, or intra_mip_mode.
        intra_subpartitions: 1 unless IntraSubPartitionsSplitType is ISP_NO_SPLIT.
        subblock_flag: merge_subblock_flag, or inter_affine_flag.
        qp_y: QpY.
        bv: Block vector of IBC.
        mtt_split_mode: MttSplitMode of the first two MTT levels; set only at corners of 32x32 samples.
    """

    cb_width: Annotated[Array[int], 2]
    cb_height: Annotated[Array[int], 2]
    cqt_depth: Annotated[Array[int], 2]
    cu_pred_mode: Annotated[Array[int], 2]
    cu_skip_flag: int
    intra_mip_flag: int
    intra_pred_mode_y: int
    intra_subpartitions: int
    subblock_flag: int
    qp_y: int
    bv: MotionVector
    mtt_split_mode: Annotated[Array[int], 2]


class SaoParameters(Record):
    """SAO of one component of a CTU (7.4.12.3).

    Attributes:
        sao_type_idx: SaoTypeIdx: 0 none, 1 band offset, 2 edge offset.
        sao_class: SaoEoClass, or sao_band_position.
        sao_offset_val: SaoOffsetVal of the four bands or edge categories.
    """

    sao_type_idx: int
    sao_class: int
    sao_offset_val: Annotated[Array[int], 4]


class CtbCell(Record):
    """Properties of a CTU; its numbers are int32.

    Attributes:
        region: Slice and tile (`log.CodingUnit.region`), 0 if it is not parsed.
        alf: ALF filter of Y, Cb and Cr: 0 none, else 1 plus its index. The luma filter sets are the 16 fixed ones, then
            those of the parameter sets of the slice.
        cc_alf: Cross-component filter of Cb and Cr, 0 or 1 plus its index.
        sao: SAO of Y, Cb and Cr.
    """

    region: int
    alf: Annotated[Array[int], 3]
    cc_alf: Annotated[Array[int], 2]
    sao: Annotated[Array[SaoParameters], 3]


BLOCK_CELL, CTB_CELL = record_dtype(BlockCell, np.int16), record_dtype(CtbCell, np.int32)
"""Types of the elements of `state.Work.cells` and of the CTUs of a picture."""

SAO_PARAMETERS = record_dtype(SaoParameters, np.int32)
"""Type of the elements of `CtbCell.sao`."""
