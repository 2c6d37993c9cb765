"""Records of the slice parser: arithmetic decoder, coding tree, coding unit, transform block.

Names are those of H.266 in snake case. Positions and sizes are in luma samples unless a name says log2.
"""

from typing import Annotated

from codecnn.base.records import Array, Record
from codecnn.vvc.syntax.contexts import NUM_CONTEXTS
from codecnn.vvc.syntax.log import CodingUnit, MotionVector
from codecnn.vvc.syntax.slice_values import SliceValues

LEVEL_STRIDE = 36
"""Columns and rows of a plane of levels: 32x32 levels, a border of one to the left and above, two beyond the others."""

LEVEL_POSITIONS = LEVEL_STRIDE * LEVEL_STRIDE

CODED_STRIDE = 10
"""Columns and rows of a plane of sub-blocks: at most 8x8 with a border of one on each side."""

MAX_PALETTE = 64
"""Entries of palettes and of their predictor: at most 31 and 63."""

PALETTE_STRIDE = 64
"""Columns of the maps of a palette unit of up to 64x64 samples."""

PALETTE_SAMPLES = 64 * PALETTE_STRIDE

MAX_NODES = 128
"""Size of the stack: a tree of 128x128 leaves at most 4 nodes unvisited on each of 5 quadtree and 10 MTT levels."""

MAX_IBC_CANDIDATES = 5
"""Largest number of entries of HmvpIbcCandList."""


class ArithmeticDecoder(Record):
    """State of the arithmetic decoder (9.3.4.3).

    Attributes:
        ivl_curr_range: ivlCurrRange.
        ivl_offset: ivlOffset, 9 bits, and 7 bits read ahead.
        bits_needed: -8 when a byte has just been read ahead, 0 when the next one is needed.
        position: Position of the next byte in the slice data.
        end: Size of the slice data in bytes.
        bins: Hash of the bins so far.
    """

    ivl_curr_range: int
    ivl_offset: int
    bits_needed: int
    position: int
    end: int
    bins: int


class ContextVariable(Record):
    """Context variable (9.3.2.2): two estimates of the probability that a bin is 1, and their adaptation rates.

    Attributes:
        p_state_idx0: pStateIdx0, 10 bits.
        p_state_idx1: pStateIdx1, 14 bits.
        shift0: shift0.
        shift1: shift1.
    """

    p_state_idx0: int
    p_state_idx1: int
    shift0: int
    shift1: int


class EntropyState(Record):
    """State that a row of a wavefront takes over from the row above (9.3.2).

    Attributes:
        variables: Context variables, in the order of `contexts`.
        predictor_palette_size: PredictorPaletteSize of luma or of all components, and of a chroma tree.
        predictor_palette_entries: PredictorPaletteEntries of Y, Cb and Cr.
    """

    variables: Annotated[Array[ContextVariable], NUM_CONTEXTS]
    predictor_palette_size: Annotated[Array[int], 2]
    predictor_palette_entries: Annotated[Array[int], 3, MAX_PALETTE]


class Position(Record):
    """Position of the parser in the slice and in its results.

    Attributes:
        num_ctus: Number of CTUs of the slice that are parsed or begun.
        slice_region: Region of tile 0 of the slice (`log.CodingUnit.region`).
        region: Region of the current CTU.
        x_ctb: xCtb, first column of the CTU.
        y_ctb: yCtb, first row of the CTU.
        left_available: The CTU to the left belongs to the same slice and tile.
        above_available: The CTU above belongs to the same slice and tile.
        num_units: Number of coding units of the batch that have a row.
        keep_log: The log is kept.
        log_at: Size of the log.
        unit_at: Position of the header of the current coding unit in the log.
    """

    num_ctus: int
    slice_region: int
    region: int
    x_ctb: int
    y_ctb: int
    left_available: int
    above_available: int
    num_units: int
    keep_log: int
    log_at: int
    unit_at: int


class QuantizationGroup(Record):
    """Current quantization groups of luma and of chroma QP offsets (7.4.12.10, 8.7.1).

    Attributes:
        x: xQg.
        y: yQg.
        begins: The next coding unit is the first of its group.
        first_in_substream: The group is the first of a slice, of a tile or of a row of a wavefront.
        first_in_ctb_row: The group is the first of a row of CTUs in a tile.
        is_cu_qp_delta_coded: IsCuQpDeltaCoded.
        is_cu_chroma_qp_offset_coded: IsCuChromaQpOffsetCoded.
        qp_y: QpY of the last coding unit.
        chroma_qp_offset_idx: cu_chroma_qp_offset_idx + 1, 0 if cu_chroma_qp_offset_flag is 0.
    """

    x: int
    y: int
    begins: int
    first_in_substream: int
    first_in_ctb_row: int
    is_cu_qp_delta_coded: int
    is_cu_chroma_qp_offset_coded: int
    qp_y: int
    chroma_qp_offset_idx: int


class TreeNode(Record):
    """Node of the coding tree (7.3.11.4), at a leaf the coding unit.

    Attributes:
        x: x0.
        y: y0.
        width: cbWidth.
        height: cbHeight.
        tree: treeType: SINGLE, DUAL_LUMA or DUAL_CHROMA, or IMPLICIT above separate trees.
        mode_type: modeType: MODE_ALL, MODE_INTER_ONLY or MODE_INTRA_ONLY.
        qg_on_y: qgOnY.
        qg_on_c: qgOnC.
        cb_subdiv: cbSubdiv.
        cqt_depth: cqtDepth.
        mtt_depth: mttDepth.
        depth_offset: depthOffset.
        part_idx: partIdx.
        parent_split: Split of which the node is a part.
    """

    x: int
    y: int
    width: int
    height: int
    tree: int
    mode_type: int
    qg_on_y: int
    qg_on_c: int
    cb_subdiv: int
    cqt_depth: int
    mtt_depth: int
    depth_offset: int
    part_idx: int
    parent_split: int


class CurrentUnit(CodingUnit):
    """Current coding unit: its header in the log, and what its parsing needs besides.

    Attributes:
        cu_skip_flag: cu_skip_flag.
        cu_sbt_flag: cu_sbt_flag.
        cu_sbt_quad_flag: cu_sbt_quad_flag.
        cu_sbt_horizontal_flag: cu_sbt_horizontal_flag.
        cu_sbt_pos_flag: cu_sbt_pos_flag.
        coded: Components with a coded block, a bit each: 1 Y, 2 Cb, 4 Cr.
        transform_skip: Components with a transform-skip block, a bit each.
        luma_transform_skip: transform_skip_flag of the last luma block.
        joint: Largest value of 2 * tu_cb_coded_flag + tu_cr_coded_flag of blocks with joint coding of chroma.
        prev_tu_cbf_y: prevTuCbfY.
        infer_tu_cbf_luma: InferTuCbfLuma.
        lfnst_dc_only: LfnstDcOnly.
        lfnst_zero_out_sig_coeff_flag: LfnstZeroOutSigCoeffFlag.
        mts_dc_only: MtsDcOnly.
        mts_zero_out_sig_coeff_flag: MtsZeroOutSigCoeffFlag.
    """

    cu_skip_flag: int
    cu_sbt_flag: int
    cu_sbt_quad_flag: int
    cu_sbt_horizontal_flag: int
    cu_sbt_pos_flag: int
    coded: int
    transform_skip: int
    luma_transform_skip: int
    joint: int
    prev_tu_cbf_y: int
    infer_tu_cbf_luma: int
    lfnst_dc_only: int
    lfnst_zero_out_sig_coeff_flag: int
    mts_dc_only: int
    mts_zero_out_sig_coeff_flag: int


class TransformBlock(Record):
    """Current transform block (7.3.11.11, 7.3.11.12).

    A position (x, y) of the planes of levels is LEVEL_STRIDE * (y + 1) + x + 1, a sub-block of `sb_coded_flag`
    CODED_STRIDE * (ys + 1) + xs + 1.

    Attributes:
        width: Width in samples.
        height: Height in samples.
        c_idx: cIdx: 0 Y, 1 Cb, 2 Cr.
        rem_ccbs: RemCcbs, context coded bins left.
        q_state: QState of dependent quantization.
        hist_value: HistValue, substitute for levels outside the block.
        update_hist: 1 until the block has updated StatCoeff.
        abs_level_pass1: AbsLevelPass1.
        abs_level: AbsLevel.
        coeff_sign_level: CoeffSignLevel of a transform-skip block, -1, 0 or 1.
        sb_coded_flag: sb_coded_flag.
    """

    width: int
    height: int
    c_idx: int
    rem_ccbs: int
    q_state: int
    hist_value: int
    update_hist: int
    abs_level_pass1: Annotated[Array[int], LEVEL_POSITIONS]
    abs_level: Annotated[Array[int], LEVEL_POSITIONS]
    coeff_sign_level: Annotated[Array[int], LEVEL_POSITIONS]
    sb_coded_flag: Annotated[Array[int], CODED_STRIDE * CODED_STRIDE]


class Palette(Record):
    """Current palette unit (7.3.11.6, 7.4.12.6); the sample (x, y) of a map is at PALETTE_STRIDE * y + x.

    Attributes:
        current_palette_size: CurrentPaletteSize.
        current_palette_entries: CurrentPaletteEntries of Y, Cb and Cr.
        entry_reuse_flags: PalettePredictorEntryReuseFlags.
        index_map: PaletteIndexMap.
        copy_above: CopyAboveIndicesFlag.
        escape_val: PaletteEscapeVal of Y, Cb and Cr.
    """

    current_palette_size: int
    current_palette_entries: Annotated[Array[int], 3, MAX_PALETTE]
    entry_reuse_flags: Annotated[Array[int], MAX_PALETTE]
    index_map: Annotated[Array[int], PALETTE_SAMPLES]
    copy_above: Annotated[Array[int], PALETTE_SAMPLES]
    escape_val: Annotated[Array[int], 3, PALETTE_SAMPLES]


class Parser(Record):
    """State of the parser of one slice, without its arrays.

    Attributes:
        fault: Fault of the slice data, a value of `state.FAULT_END` and the following; 0 if there is none.
        slice: Values of the headers.
        cabac: Arithmetic decoder.
        entropy: Current context variables and palette predictor.
        wpp: Their copy for the next row of a wavefront.
        initial: Their values at the beginning of a slice or tile.
        stat_coeff: StatCoeff of Y, Cb and Cr.
        current: Position in the slice.
        qg: Current quantization groups.
        node: Current node of the coding tree.
        nodes: Stack of the nodes not yet visited.
        cu: Current coding unit.
        num_hmvp_ibc_cand: NumHmvpIbcCand.
        hmvp_ibc_cand_list: HmvpIbcCandList, oldest first.
        palette: Current palette unit.
        tb: Current transform block.
    """

    fault: int
    slice: SliceValues
    cabac: ArithmeticDecoder
    entropy: EntropyState
    wpp: EntropyState
    initial: EntropyState
    stat_coeff: Annotated[Array[int], 3]
    current: Position
    qg: QuantizationGroup
    node: TreeNode
    nodes: Annotated[Array[TreeNode], MAX_NODES]
    cu: CurrentUnit
    num_hmvp_ibc_cand: int
    hmvp_ibc_cand_list: Annotated[Array[MotionVector], MAX_IBC_CANDIDATES]
    palette: Palette
    tb: TransformBlock
