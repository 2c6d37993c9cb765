"""Prediction of the samples of an inter unit from its motion (H.266 clauses 8.5.1, 8.5.6 and 8.7.5.2).

`predict_inter_unit` writes the prediction of all components to the prediction planes.
"""

from codecnn.base.compiled import compiled
from codecnn.base.records import Array
from codecnn.vvc.decoder.cells import MotionCell, int64
from codecnn.vvc.decoder.combined import add_intra
from codecnn.vvc.decoder.frame import Frame, clip
from codecnn.vvc.decoder.geometric import predict_geometric
from codecnn.vvc.decoder.interpolation import interpolate
from codecnn.vvc.decoder.interpolation_filters import AFFINE, HALF_SAMPLE, REGULAR
from codecnn.vvc.decoder.luma_mapping import map_luma
from codecnn.vvc.decoder.merge import halved
from codecnn.vvc.decoder.records import KIND_AFFINE, KIND_GEOMETRIC, KIND_REGULAR, KIND_TEMPORAL_SUBBLOCKS
from codecnn.vvc.decoder.reference_samples import ref_pic
from codecnn.vvc.decoder.refinement import apply_flow, flow_differences, refine_vectors, write_optical_flow
from codecnn.vvc.decoder.resampling import predict_from
from codecnn.vvc.decoder.weighted import combine

CHUNK = 64
"""Width and height of the largest block that is predicted at once."""


@compiled
def entry_of(which: int, index: int) -> int:
    """Return an entry of list 0 or 1 as one number, as `ref_pic` takes it, -1 for the index -1 of an unused list."""
    return -1 if index < 0 else 16 * which + min(index, 15)


@compiled
def predict_inter_unit(f: Frame) -> None:
    """Predict all components of the inter unit whose motion is in `f.unit` and `f.motion`.

    Clause 8.5.6.1, Decoding process for inter blocks.

    Luma is mapped forward if the slice uses LMCS. DMVR stores its vectors in the cells of `f.motion`.
    """
    unit, ref_idx = f.unit, f.unit.motion.ref_idx
    x, y, width, height = unit.x, unit.y, unit.width, unit.height
    if unit.kind == KIND_GEOMETRIC:
        first = entry_of(unit.pred_list_flag[0] & 1, max(0, ref_idx[0]))
        second = entry_of(unit.pred_list_flag[1] & 1, max(0, ref_idx[1]))
        predict_geometric(f, x, y, min(CHUNK, width), min(CHUNK, height), first, second)
    else:
        first, second = entry_of(0, ref_idx[0]), entry_of(1, ref_idx[1])
        if unit.kind == KIND_AFFINE and (first >= 0 or second >= 0):
            predict_affine(f, x, y, width, height, first, second)
        elif unit.kind == KIND_TEMPORAL_SUBBLOCKS:
            predict_subblocks(f, x, y, width, height)
        elif first >= 0 or second >= 0:
            predict_regular(f, x, y, width, height, first, second)
    if f.slice.sh_lmcs_used_flag:
        map_luma(f, x, y, width, height)
    if unit.ciip_flag:
        add_intra(f, x, y, min(CHUNK, width), min(CHUNK, height))


@compiled
def predict_regular(f: Frame, x: int, y: int, width: int, height: int, entry_0: int, entry_1: int) -> None:
    """Predict a unit with one motion; with BDOF or DMVR in subblocks of at most 16x16 samples.

    Part of clause 8.5.1, General decoding process for coding units coded in inter prediction mode.
    Part of clause 8.5.6.1, Decoding process for inter blocks.

    Args:
        f: State of the picture.
        x: Column of the unit in luma samples.
        y: Row of the unit in luma samples.
        width: Width of the unit in luma samples.
        height: Height of the unit in luma samples.
        entry_0: Reference picture list entry of L0, as `ref_pic` takes it, -1 if L0 is unused.
        entry_1: Reference picture list entry of L1, -1 if L1 is unused.
    """
    s, unit, mv = f.slice, f.unit, f.unit.motion.mv
    refined, flow = False, False
    if may_refine(f, width, height, entry_0, entry_1):
        refined = s.dmvr_enabled != 0 and unit.general_merge_flag != 0 and unit.mmvd_merge_flag == 0
        flow = s.bdof_enabled != 0 and unit.sym_mvd_flag == 0
    if not refined and not flow:
        predict_block(f, x, y, width, height, entry_0, entry_1, mv[0].x, mv[0].y, mv[1].x, mv[1].y, 0, 3)
        return
    for top in range(y, y + height, 16):
        rows = min(16, y + height - top)
        for left in range(x, x + width, 16):
            columns = min(16, x + width - left)
            mv_x0, mv_y0, mv_x1, mv_y1 = mv[0].x, mv[0].y, mv[1].x, mv[1].y
            flow_here = flow
            if refined:
                dx, dy, cost = refine_vectors(f, entry_0, entry_1, left, top, columns, rows)
                mv_x0, mv_y0 = limited(mv_x0 + dx), limited(mv_y0 + dy)
                mv_x1, mv_y1 = limited(mv_x1 - dx), limited(mv_y1 - dy)
                flow_here = flow and cost >= 2 * columns * rows
                store_refined(f, left, top, columns, rows, mv_x0, mv_y0, mv_x1, mv_y1)
            if flow_here:
                predict_by_flow(f, left, top, columns, rows, entry_0, entry_1, mv_x0, mv_y0, mv_x1, mv_y1)
            first = 1 if flow_here else 0
            predict_block(f, left, top, columns, rows, entry_0, entry_1, mv_x0, mv_y0, mv_x1, mv_y1, first, 3)


@compiled
def may_refine(f: Frame, width: int, height: int, entry_0: int, entry_1: int) -> bool:
    """Return True if the conditions that DMVR and BDOF have in common hold.

    Part of clause 8.5.1, General decoding process for coding units coded in inter prediction mode.
    Part of clause 8.5.6.1, Decoding process for inter blocks.

    Two short-term references of the same size as the picture, without weights, lie at the same distance before and
    after it.
    """
    s, unit = f.slice, f.unit
    if entry_0 < 0 or entry_1 < 0 or width < 8 or height < 8 or width * height < 128:
        return False
    if unit.ciip_flag or unit.motion.bcw_idx:
        return False
    if s.poc - ref_pic(f, entry_0).poc != ref_pic(f, entry_1).poc - s.poc:
        return False
    for entry in (entry_0, entry_1):
        ref = ref_pic(f, entry)
        if ref.long_term or ref.scaled or (s.weighted_pred_flag and ref.weighted):
            return False
    return True


@compiled
def limited(value: int) -> int:
    """Clip a component of a vector to 18 bits.

    Part of clause 8.5.3.1, Decoder-side motion vector refinement process.
    """
    return clip(value, -131072, 131071)


@compiled
def store_refined(
    f: Frame, x: int, y: int, width: int, height: int, mv_x0: int, mv_y0: int, mv_x1: int, mv_y1: int
) -> None:
    """Store refined vectors, from which later pictures predict.

    Part of clause 8.5.1, General decoding process for coding units coded in inter prediction mode.
    """
    for row in range(y >> 2, min((y + height) >> 2, f.motion.shape[0])):
        for column in range(x >> 2, min((x + width) >> 2, f.motion.shape[1])):
            cell: MotionCell = f.motion[row, column]
            cell.mv_dmvr[0].x, cell.mv_dmvr[0].y = mv_x0, mv_y0
            cell.mv_dmvr[1].x, cell.mv_dmvr[1].y = mv_x1, mv_y1


@compiled
def predict_by_flow(
    f: Frame,
    x: int,
    y: int,
    width: int,
    height: int,
    entry_0: int,
    entry_1: int,
    mv_x0: int,
    mv_y0: int,
    mv_x1: int,
    mv_y1: int,
) -> None:
    """Predict luma of a block with BDOF; arguments as those of `predict_block`.

    Part of clause 8.5.6.1, Decoding process for inter blocks.
    """
    mv = f.unit.motion.mv
    kind = HALF_SAMPLE if f.unit.motion.hpel_if_idx else REGULAR
    predicted = f.scratch.predicted[0]
    interpolate(f, entry_0, 0, x, y, width, height, mv_x0, mv_y0, mv[0].x, mv[0].y, kind, 0, predicted)
    interpolate(f, entry_1, 0, x, y, width, height, mv_x1, mv_y1, mv[1].x, mv[1].y, kind, 1, predicted)
    write_optical_flow(f, x, y, width, height)


@compiled
def predict_block(
    f: Frame,
    x: int,
    y: int,
    width: int,
    height: int,
    entry_0: int,
    entry_1: int,
    mv_x0: int,
    mv_y0: int,
    mv_x1: int,
    mv_y1: int,
    first: int,
    last: int,
) -> None:
    """Predict components `first` to `last` - 1 of a block with one motion by interpolation and weighting.

    Part of clause 8.5.6.1, Decoding process for inter blocks.

    Args:
        f: State of the picture.
        x: Column of the block in luma samples.
        y: Row of the block in luma samples.
        width: Width of the block in luma samples.
        height: Height of the block in luma samples.
        entry_0: Reference picture list entry of L0, as `ref_pic` takes it, -1 if L0 is unused.
        entry_1: Reference picture list entry of L1, -1 if L1 is unused.
        mv_x0: Horizontal vector of L0 in 1/16 luma sample. If it differs from that of the unit, DMVR refined it.
        mv_y0: Vertical vector of L0.
        mv_x1: Horizontal vector of L1.
        mv_y1: Vertical vector of L1.
        first: First component.
        last: Last component + 1.
    """
    unit, mv = f.unit, f.unit.motion.mv
    bcw = 0 if unit.ciip_flag else unit.motion.bcw_idx
    target_0, target_1 = f.scratch.predicted[0], f.scratch.predicted[1 if entry_0 >= 0 else 0]
    affine = unit.kind == KIND_AFFINE
    regular = unit.kind == KIND_REGULAR
    moved_0 = regular and (mv_x0 != mv[0].x or mv_y0 != mv[0].y)
    moved_1 = regular and (mv_x1 != mv[1].x or mv_y1 != mv[1].y)
    for component in range(first, last if f.pic.sps_chroma_format_idc else 1):
        sub_x, sub_y = (f.pic.log2_sub_width_c, f.pic.log2_sub_height_c) if component else (0, 0)
        kind = REGULAR
        if component == 0:
            kind = AFFINE if affine else HALF_SAMPLE if unit.motion.hpel_if_idx else REGULAR
        block_x, block_y = x >> sub_x, y >> sub_y
        right, bottom = (x + width) >> sub_x, (y + height) >> sub_y
        for top in range(block_y, bottom, CHUNK):
            rows = min(CHUNK, bottom - top)
            for left in range(block_x, right, CHUNK):
                columns = min(CHUNK, right - left)
                stride_0 = stride_1 = 0
                if moved_0:
                    stride_0 = interpolate(
                        f, entry_0, component, left, top, columns, rows,
                        mv_x0, mv_y0, mv[0].x, mv[0].y, kind, -1, target_0,
                    )  # fmt: skip
                elif entry_0 >= 0:
                    stride_0 = predict_from(
                        f, entry_0, component, left, top, columns, rows,
                        block_x, block_y, mv_x0, mv_y0, kind, target_0,
                    )  # fmt: skip
                if moved_1:
                    stride_1 = interpolate(
                        f, entry_1, component, left, top, columns, rows,
                        mv_x1, mv_y1, mv[1].x, mv[1].y, kind, -1, target_1,
                    )  # fmt: skip
                elif entry_1 >= 0:
                    stride_1 = predict_from(
                        f, entry_1, component, left, top, columns, rows,
                        block_x, block_y, mv_x1, mv_y1, kind, target_1,
                    )  # fmt: skip
                combine(f, component, left, top, columns, rows, entry_0, entry_1, bcw, stride_0, stride_1)


@compiled
def predict_subblocks(f: Frame, x: int, y: int, width: int, height: int) -> None:
    """Predict a unit with temporal subblocks: each of 8x8 samples has references and vectors in `Frame.motion`.

    Part of clause 8.5.6.1, Decoding process for inter blocks.
    """
    for top in range(y, y + height, 8):
        for left in range(x, x + width, 8):
            cell: MotionCell = f.motion[top >> 2, left >> 2]
            first, second = entry_of(0, int64(cell.ref_idx[0])), entry_of(1, int64(cell.ref_idx[1]))
            mv_x0, mv_y0 = int64(cell.mv[0].x), int64(cell.mv[0].y)
            mv_x1, mv_y1 = int64(cell.mv[1].x), int64(cell.mv[1].y)
            if first >= 0 or second >= 0:
                predict_block(f, left, top, 8, 8, first, second, mv_x0, mv_y0, mv_x1, mv_y1, 0, 3)


@compiled
def predict_affine(f: Frame, x: int, y: int, width: int, height: int, entry_0: int, entry_1: int) -> None:
    """Predict an affine unit in subblocks of 4x4 samples whose vectors are in `Frame.motion`.

    Part of clause 8.5.6.1, Decoding process for inter blocks.

    Args:
        f: State of the picture.
        x: Column of the unit in luma samples.
        y: Row of the unit in luma samples.
        width: Width of the unit in luma samples.
        height: Height of the unit in luma samples.
        entry_0: Reference picture list entry of L0, as `ref_pic` takes it, -1 if L0 is unused.
        entry_1: Reference picture list entry of L1, -1 if L1 is unused.
    """
    flow_0 = entry_0 >= 0 and ref_pic(f, entry_0).scaled == 0 and flow_differences(f, 0)
    flow_1 = entry_1 >= 0 and ref_pic(f, entry_1).scaled == 0 and flow_differences(f, 1)
    bcw = f.unit.motion.bcw_idx
    target_0, target_1 = f.scratch.predicted[0], f.scratch.predicted[1 if entry_0 >= 0 else 0]
    for top in range(y, y + height, 4):
        for left in range(x, x + width, 4):
            cell: MotionCell = f.motion[top >> 2, left >> 2]
            stride_0 = stride_1 = 0
            if entry_0 >= 0:
                mv_x, mv_y = int64(cell.mv[0].x), int64(cell.mv[0].y)
                stride_0 = predict_subblock(f, entry_0, left, top, mv_x, mv_y, 0, flow_0, target_0)
            if entry_1 >= 0:
                mv_x, mv_y = int64(cell.mv[1].x), int64(cell.mv[1].y)
                stride_1 = predict_subblock(f, entry_1, left, top, mv_x, mv_y, 1, flow_1, target_1)
            combine(f, 0, left, top, 4, 4, entry_0, entry_1, bcw, stride_0, stride_1)
    if not f.pic.sps_chroma_format_idc:
        return
    # A chroma block of 4x4 samples has the mean of the vectors of its first and its last subblock.
    sub_x, sub_y = f.pic.log2_sub_width_c, f.pic.log2_sub_height_c
    for top in range(y, y + height, 4 << sub_y):
        for left in range(x, x + width, 4 << sub_x):
            first: MotionCell = f.motion[top >> 2, left >> 2]
            last: MotionCell = f.motion[(top >> 2) + sub_y, (left >> 2) + sub_x]
            predict_block(
                f, left, top, 4 << sub_x, 4 << sub_y, entry_0, entry_1,
                halved(int64(first.mv[0].x) + last.mv[0].x),
                halved(int64(first.mv[0].y) + last.mv[0].y),
                halved(int64(first.mv[1].x) + last.mv[1].x),
                halved(int64(first.mv[1].y) + last.mv[1].y), 1, 3,
            )  # fmt: skip


@compiled
def predict_subblock(
    f: Frame, entry: int, x: int, y: int, mv_x: int, mv_y: int, which: int, flow: bool, target: Array[int]
) -> int:
    """Predict luma of a 4x4 subblock from one list, with PROF if `flow` is True; return the numbers of a row.

    Part of clause 8.5.6.1, Decoding process for inter blocks.
    """
    if not flow:
        return predict_from(f, entry, 0, x, y, 4, 4, x, y, mv_x, mv_y, AFFINE, target)
    interpolate(f, entry, 0, x, y, 4, 4, mv_x, mv_y, mv_x, mv_y, AFFINE, 0, target)
    apply_flow(f, which, target)
    return 4
