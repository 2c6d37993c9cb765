"""Decoding of coding units and their transform units (H.266 clauses 8.4.1, 8.4.5, 8.5.1, 8.5.8, 8.6 and 8.7).

`reconstruct_units` is the compiled entry point.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from codecnn.base.compiled import COMPILED, compiled, compiled_entry, pointer, source_digest
from codecnn.vvc.decoder.block_state import store_chroma_block, store_luma_block, store_unit
from codecnn.vvc.decoder.cells import BLOCK_CELL, COLLOCATED_CELL, MOTION_CELL
from codecnn.vvc.decoder.cross_component import predict_from_luma
from codecnn.vvc.decoder.frame import LEVEL_SCALE, Frame, clip, coding_unit, transform_unit
from codecnn.vvc.decoder.inter_prediction import predict_inter_unit
from codecnn.vvc.decoder.intra_prediction import predict, predict_by_matrix
from codecnn.vvc.decoder.luma_mapping import chroma_scale, scale_residual
from codecnn.vvc.decoder.motion import derive_motion
from codecnn.vvc.decoder.records import FAULT_BLOCK_VECTOR
from codecnn.vvc.decoder.references import mark
from codecnn.vvc.decoder.residual import (
    add_residual,
    copy_prediction,
    inverse_colour_transform,
    joint_residual,
    qp_of_block,
    residual_of_block,
)
from codecnn.vvc.syntax import log as lg
from codecnn.vvc.syntax import state as st


@compiled
def intra_unit(f: Frame) -> None:
    """Reconstruct an intra unit: luma of all its transform units first, as chroma may be predicted from it.

    Clause 8.4.1, General decoding process for coding units coded in intra prediction mode.
    """
    cu = coding_unit(f)
    for chroma in (False, True):
        tu_at = f.current.cu_at + lg.UNIT_HEADER
        for _ in range(cu.num_transform_units):
            if not chroma and cu.tree != st.DUAL_CHROMA:
                predict_luma(f, tu_at)
                reconstruct_transform_unit(f, tu_at, 0, 1)
            if chroma and transform_unit(f, tu_at).has_chroma:
                predict_chroma(f, tu_at)
                reconstruct_transform_unit(f, tu_at, 1, 3)
            tu_at = next_transform_unit(f, tu_at)


@compiled
def colour_transformed_unit(f: Frame) -> None:
    """Reconstruct an intra unit with the adaptive colour transform, which needs the residuals of all components.

    Part of clause 8.4.1, General decoding process for coding units coded in intra prediction mode.
    """
    cu = coding_unit(f)
    tu_at = f.current.cu_at + lg.UNIT_HEADER
    for _ in range(cu.num_transform_units):
        predict_luma(f, tu_at)
        predict_chroma(f, tu_at)
        reconstruct_transform_unit(f, tu_at, 0, 3)
        tu_at = next_transform_unit(f, tu_at)


@compiled
def block_copy_unit(f: Frame) -> None:
    """Reconstruct an IBC unit, predicted by the block that its vector points to.

    Clause 8.6.1, General decoding process for coding units coded in IBC prediction mode.
    Clause 8.6.3, Decoding process for IBC blocks.
    """
    planes, cu = f.planes, coding_unit(f)
    x0, y0, width, height = cu.x, cu.y, cu.width, cu.height
    x, y = x0 + cu.bv.x, y0 + cu.bv.y
    last_x, last_y = x + width - 1, y + height - 1
    inside = x >= 0 and y >= 0 and last_x < f.pic.width and last_y < f.pic.height
    if not inside or f.known[y >> 2, x >> 2].region[0] == 0 or f.known[last_y >> 2, last_x >> 2].region[0] == 0:
        f.current.fault = FAULT_BLOCK_VECTOR
        return
    components = 3 if cu.tree == st.SINGLE and f.pic.sps_chroma_format_idc else 1
    for component in range(components):
        sub_x, sub_y = (f.pic.log2_sub_width_c, f.pic.log2_sub_height_c) if component else (0, 0)
        stride, recon, pred = f.pic.stride[component], f.pic.recon[component], f.pic.pred[component]
        for row in range(height >> sub_y):
            source = recon + ((y >> sub_y) + row) * stride + (x >> sub_x)
            target = pred + ((y0 >> sub_y) + row) * stride + (x0 >> sub_x)
            for column in range(width >> sub_x):
                planes[target + column] = planes[source + column]
    add_unit_residuals(f, components)


@compiled
def inter_unit(f: Frame) -> None:
    """Reconstruct an inter unit: motion, prediction, residual.

    Clause 8.5.1, General decoding process for coding units coded in inter prediction mode.
    """
    derive_motion(f)
    predict_inter_unit(f)
    add_unit_residuals(f, 3 if f.pic.sps_chroma_format_idc else 1)


@compiled
def add_unit_residuals(f: Frame, components: int) -> None:
    """Add the residuals of all transform units to the prediction of the first `components` of a predicted unit.

    Clause 8.5.8, Decoding process for the residual signal of coding blocks coded in inter prediction mode.
    """
    cu = coding_unit(f)
    x0, y0, width, height = cu.x, cu.y, cu.width, cu.height
    if cu.num_transform_units == 0:
        for component in range(components):
            sub_x, sub_y = (f.pic.log2_sub_width_c, f.pic.log2_sub_height_c) if component else (0, 0)
            copy_prediction(f, component, x0 >> sub_x, y0 >> sub_y, width >> sub_x, height >> sub_y)
        store_unit(f)
    tu_at = f.current.cu_at + lg.UNIT_HEADER
    for _ in range(cu.num_transform_units):
        reconstruct_transform_unit(f, tu_at, 0, 3 if transform_unit(f, tu_at).has_chroma else 1)
        tu_at = next_transform_unit(f, tu_at)
    mark(f, False, x0, y0, width, height)
    if components > 1:
        mark(f, True, x0, y0, width, height)


@compiled
def palette_unit(f: Frame) -> None:
    """Reconstruct a palette unit; its samples are prediction and reconstruction, escape values are scaled.

    Clause 8.4.5.3, Decoding process for palette mode.
    """
    log, planes, cu = f.log, f.planes, coding_unit(f)
    tree = cu.tree
    first = 1 if tree == st.DUAL_CHROMA else 0
    last = 1 if tree == st.DUAL_LUMA or f.pic.sps_chroma_format_idc == 0 else 3
    x0, y0, width, height = cu.x, cu.y, cu.width, cu.height
    peak = (1 << f.pic.bit_depth) - 1
    at = f.current.cu_at + lg.UNIT_HEADER
    for component in range(first, last):
        sub_x, sub_y = (f.pic.log2_sub_width_c, f.pic.log2_sub_height_c) if component else (0, 0)
        qp = qp_of_block(f, component, 0, True)
        step = LEVEL_SCALE[0, qp % 6] << (qp // 6)
        stride, recon, pred = f.pic.stride[component], f.pic.recon[component], f.pic.pred[component]
        for y in range(height >> sub_y):
            place = ((y0 >> sub_y) + y) * stride + (x0 >> sub_x)
            for x in range(width >> sub_x):
                value = log[at]
                at += 1
                if value < 0:
                    value = clip(((-1 - value) * step + 32) >> 6, 0, peak)
                planes[recon + place + x] = planes[pred + place + x] = value
    store_unit(f)
    if first == 0:
        mark(f, False, x0, y0, width, height)
    if last == 3:
        mark(f, True, x0, y0, width, height)


@compiled
def next_transform_unit(f: Frame, tu_at: int) -> int:
    """Return the position in the log after the transform unit at `tu_at`."""
    num_levels = transform_unit(f, tu_at).num_levels
    return tu_at + lg.BLOCK_HEADER + num_levels[0] + num_levels[1] + num_levels[2]


@compiled
def block_position(f: Frame, tu_at: int, component: int) -> tuple[int, int, int, int]:
    """Return x, y, width and height of a transform block; chroma of a unit with sub-partitions is one block."""
    cu, tu = coding_unit(f), transform_unit(f, tu_at)
    x, y, width, height = tu.x, tu.y, tu.width, tu.height
    if component == 0:
        return x, y, width, height
    if cu.isp_split_type:
        x, y, width, height = cu.x, cu.y, cu.width, cu.height
    return (
        x >> f.pic.log2_sub_width_c,
        y >> f.pic.log2_sub_height_c,
        width >> f.pic.log2_sub_width_c,
        height >> f.pic.log2_sub_height_c,
    )


@compiled
def predict_luma(f: Frame, tu_at: int) -> None:
    """Predict the luma of the transform unit at `tu_at` of the log.

    Part of clause 8.4.5.1, General decoding process for intra blocks.
    """
    cu = coding_unit(f)
    x, y, width, height = block_position(f, tu_at, 0)
    mode = cu.intra_pred_mode_y
    if cu.intra_mip_flag:
        predict_by_matrix(f, 0, x, y, width, height, mode, cu.intra_mip_transposed_flag == 1)
    elif cu.isp_split_type:
        # Sub-partitions narrower than four samples are predicted four columns at a time (8.4.5.1).
        if width >= 4 or (x - cu.x) % 4 == 0:
            predict(f, 0, x, y, max(4, width), height, mode, 0, cu.width, cu.height, False)
    else:
        predict(f, 0, x, y, width, height, mode, cu.intra_luma_ref_idx, 0, 0, cu.intra_bdpcm_luma_flag == 1)


@compiled
def predict_chroma(f: Frame, tu_at: int) -> None:
    """Predict Cb and Cr of the transform unit at `tu_at` of the log.

    Part of clause 8.4.5.1, General decoding process for intra blocks.
    """
    cu = coding_unit(f)
    x, y, width, height = block_position(f, tu_at, 1)
    mode = cu.intra_pred_mode_c
    for component in range(1, 3):
        if 67 <= mode <= 69:
            predict_from_luma(f, component, x, y, width, height, mode)
        elif mode == lg.DERIVED_MIP:
            luma_mode, transposed = cu.intra_pred_mode_y, cu.intra_mip_transposed_flag == 1
            predict_by_matrix(f, component, x, y, width, height, luma_mode, transposed)
        else:
            predict(f, component, x, y, width, height, mode, 0, 0, 0, cu.intra_bdpcm_chroma_flag == 1)


@compiled
def unit_residuals(f: Frame, tu_at: int, first: int, last: int) -> int:
    """Compute the residuals of components `first` to `last` - 1 of a transform unit in `Frame.scratch`.

    Clause 8.7.2, Scaling and transformation process.

    Returns:
        One bit for each component that has a residual.
    """
    tu = transform_unit(f, tu_at)
    coded, joint = tu.coded, tu.joint
    at = tu_at + lg.BLOCK_HEADER
    present = 0
    for component in range(last):
        count = tu.num_levels[component]
        # Only one component of a joint residual is coded: Cr if only its flag is set, else Cb.
        stored = component == 0 or joint == 0 or component == (2 if joint == 1 else 1)
        if component >= first and stored and coded >> component & 1:
            _, _, width, height = block_position(f, tu_at, component)
            skip = tu.transform_skip >> component & 1 == 1
            residual = f.scratch.residuals[component]
            residual_of_block(f, component, at, count, width, height, skip, joint if component else 0, residual)
            present |= 1 << component
        at += count
    if joint and last > 1:
        _, _, width, height = block_position(f, tu_at, 1)
        joint_residual(f, joint, width * height)
        present |= 6
    return present


@compiled
def reconstruct_transform_unit(f: Frame, tu_at: int, first: int, last: int) -> None:
    """Add the residuals of components `first` to `last` - 1 of a transform unit to the prediction.

    Clause 8.7.5.1, Picture reconstruction process.
    """
    cu, tu = coding_unit(f), transform_unit(f, tu_at)
    present = unit_residuals(f, tu_at, first, last)
    if cu.cu_act_enabled_flag:
        _, _, width, height = block_position(f, tu_at, 0)
        for component in range(3):
            if not present >> component & 1:
                f.scratch.residuals[component][: width * height] = 0
        inverse_colour_transform(f, width * height)
        present = 7
    for component in range(first, last):
        x, y, width, height = block_position(f, tu_at, component)
        residual = f.scratch.residuals[component]
        if present >> component & 1:
            if component and f.slice.chroma_residual_scale and width * height > 4:
                luma_x, luma_y = x << f.pic.log2_sub_width_c, y << f.pic.log2_sub_height_c
                scale = chroma_scale(f, luma_x, luma_y, cu.width, cu.height)
                scale_residual(f, residual, width * height, scale)
            add_residual(f, component, x, y, width, height, residual)
        else:
            copy_prediction(f, component, x, y, width, height)
    if first == 0:
        x, y, width, height = block_position(f, tu_at, 0)
        store_luma_block(f, x, y, width, height, tu.coded & 1)
        mark(f, False, x, y, width, height)
    if last > 1:
        x, y, width, height = block_position(f, tu_at, 1)
        x, y, width, height = (
            x << f.pic.log2_sub_width_c,
            y << f.pic.log2_sub_height_c,
            width << f.pic.log2_sub_width_c,
            height << f.pic.log2_sub_height_c,
        )
        store_chroma_block(f, x, y, width, height, tu.coded >> 1, tu.joint)
        mark(f, True, x, y, width, height)


def _entry(sources: str) -> Callable[[Frame], str]:
    """Compile `reconstruct_units`; numba distinguishes cached code by closure variables, here the digest `sources`."""

    @compiled_entry
    def reconstruct_units(frame: Frame) -> str:
        """Reconstruct coding units from `current.cu_at` on until the log or a row of CTUs ends.

        Part of clause 8.1.2, Decoding process for a coded picture.

        Args:
            frame: State of the picture.

        Returns:
            Digest of the sources.
        """
        f = frame
        if COMPILED:
            # Arrays without reference counts; the caller keeps the originals alive. Numba cannot return a tuple with
            # records from a function of its own.
            f = Frame(
                frame.pic,
                frame.slice,
                frame.current,
                frame.scratch,
                frame.tables,
                carray(pointer(frame.planes.ctypes.data), frame.planes.shape, np.int32),
                carray(pointer(frame.known.ctypes.data), frame.known.shape, BLOCK_CELL),
                carray(pointer(frame.log.ctypes.data), frame.log.shape, np.int64),
                frame.unit,
                frame.candidates,
                carray(pointer(frame.motion.ctypes.data), frame.motion.shape, MOTION_CELL),
                carray(pointer(frame.references.ctypes.data), frame.references.shape, np.uint16),
                carray(pointer(frame.fetched.ctypes.data), frame.fetched.shape, np.uint16),
                carray(pointer(frame.collocated.ctypes.data), frame.collocated.shape, COLLOCATED_CELL),
            )
        ctb_row = coding_unit(f).y >> f.pic.ctb_log2_size_y
        while f.current.cu_at < len(f.log):
            cu = coding_unit(f)
            if cu.y >> f.pic.ctb_log2_size_y != ctb_row:
                break
            f.current.region = cu.region
            mode = cu.pred_mode
            if mode == st.MODE_PALETTE:
                palette_unit(f)
            elif mode == st.MODE_IBC:
                block_copy_unit(f)
            elif mode == st.MODE_INTER:
                inter_unit(f)
            elif cu.cu_act_enabled_flag:
                colour_transformed_unit(f)
            else:
                intra_unit(f)
            f.current.cu_at += cu.length
        return sources

    return reconstruct_units


reconstruct_units = _entry(source_digest(Path(__file__).parents[1]))
