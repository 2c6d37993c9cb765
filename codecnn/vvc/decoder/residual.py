"""Residuals of transform blocks: QPs, scaling of levels, and addition (H.266 clauses 8.7.1 to 8.7.3 and 8.7.5)."""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.base.records import Array
from codecnn.vvc.decoder.frame import LEVEL_SCALE, LIST_OF_SIZE, Frame, U, clip, coding_unit, residual_limit
from codecnn.vvc.decoder.intra_prediction import wide_angle
from codecnn.vvc.decoder.transforms import clear_coefficients, inverse_lfnst, inverse_transform
from codecnn.vvc.syntax import log as lg
from codecnn.vvc.syntax import log2
from codecnn.vvc.syntax import state as st


@compiled
def residual_of_block(
    f: Frame,
    component: int,
    at: int,
    count: int,
    width: int,
    height: int,
    skip: bool,
    joint: int,
    residual: Array[int],
) -> None:
    """Compute the residual of a coded transform block.

    Clause 8.7.2, Scaling and transformation process.

    Args:
        f: State of the picture.
        component: 0 Y, 1 Cb, 2 Cr.
        at: Position of the first level in the log.
        count: Number of levels.
        width: Width of the block.
        height: Height of the block.
        skip: The block skips the transform.
        joint: `TransformUnit.joint` for chroma, else 0.
        residual: The result, row by row.
    """
    cu = coding_unit(f)
    log2_w, log2_h = log2(width), log2(height)
    qp = qp_of_block(f, component, joint, skip)
    clear_coefficients(f, width, height)
    bdpcm = cu.intra_bdpcm_chroma_flag if component else cu.intra_bdpcm_luma_flag
    if skip:
        if bdpcm:
            mode = cu.intra_pred_mode_c if component else cu.intra_pred_mode_y
            accumulate(f, at, count, width, height, qp, mode == 50)
        else:
            scale_levels(f, at, count, component, log2_w, log2_h, qp, True, False)
        for i in range(width * height):
            residual[i] = f.scratch.coefficients[i]
        return
    # Chroma has the secondary transform only in a separate tree.
    lfnst = cu.lfnst_idx if component == 0 or cu.tree != st.SINGLE else 0
    scale_levels(f, at, count, component, log2_w, log2_h, qp, False, lfnst > 0)
    if lfnst and log2_w >= 2 and log2_h >= 2:
        inverse_lfnst(f, log2_w, log2_h, lfnst_mode(f, component, log2_w, log2_h), lfnst)
    kernel_h, kernel_v = st.DCT2, st.DCT2
    if component == 0:
        kernel_h, kernel_v = cu.tr_type_hor, cu.tr_type_ver
    inverse_transform(f, log2_w, log2_h, kernel_h, kernel_v, residual)


@compiled
def lfnst_mode(f: Frame, component: int, log2_w: int, log2_h: int) -> int:
    """Derive predModeIntra of LFNST: wide angles mapped, planar for MIP, the luma mode for CCLM.

    Part of clause 8.7.4.1, Transformation process for scaled transform coefficients.
    """
    cu = coding_unit(f)
    if component:
        mode = cu.intra_pred_mode_c
        if mode > 66:
            mode = cu.colocated_mode
    else:
        mode = 0 if cu.intra_mip_flag else cu.intra_pred_mode_y
        if cu.isp_split_type:
            log2_w, log2_h = log2(cu.width), log2(cu.height)
    return wide_angle(mode, log2_w, log2_h)


@compiled
def joint_residual(f: Frame, joint: int, count: int) -> None:
    """Derive the residuals of Cb and Cr from the coded one, which is that of Cr if `joint` is 1.

    Part of clause 8.7.2, Scaling and transformation process.
    """
    cb, cr = f.scratch.residuals[1], f.scratch.residuals[2]
    sign = -1 if f.slice.ph_joint_cbcr_sign_flag else 1
    limit = residual_limit(f)
    for i in range(count):
        if joint == 1:
            cb[i] = (sign * cr[i]) >> 1
        elif joint == 2:
            cr[i] = (sign * cb[i]) >> 1
        else:
            cr[i] = clip(sign * cb[i], -limit, limit - 1)


@compiled
def inverse_colour_transform(f: Frame, count: int) -> None:
    """Convert residuals of the adaptive colour transform to residuals of Y, Cb and Cr.

    Clause 8.7.4.6, Residual modification process for blocks using colour space conversion.
    """
    r_y, r_cb, r_cr = f.scratch.residuals[0], f.scratch.residuals[1], f.scratch.residuals[2]
    least = -(2 << f.pic.bit_depth)
    for i in range(count):
        y = clip(r_y[i], least, -least - 1)
        green = clip(r_cb[i], least, -least - 1)
        orange = clip(r_cr[i], least, -least - 1)
        base = y - (green >> 1)
        r_y[i] = green + base
        r_cb[i] = base - (orange >> 1)
        r_cr[i] = orange + r_cb[i]


@compiled
def add_residual(f: Frame, component: int, x0: int, y0: int, width: int, height: int, residual: Array[int]) -> None:
    """Add a residual to the prediction, and store it in the residual plane if there is one.

    Part of clause 8.7.5.1, Picture reconstruction process.
    """
    copy_prediction(f, component, x0, y0, width, height)
    planes = f.planes
    stride = f.pic.stride[component]
    peak = np.int32((1 << f.pic.bit_depth) - 1)
    for y in range(height):
        place = (y0 + y) * stride + x0
        recon, source = U(f.pic.recon[component] + place), U(y * width)
        for x in range(width):
            i = U(x)
            planes[recon + i] = min(max(np.int32(planes[recon + i] + residual[source + i]), np.int32(0)), peak)
        if f.pic.resid[component] >= 0:
            resid = U(f.pic.resid[component] + place)
            for x in range(width):
                planes[resid + U(x)] = residual[source + U(x)]


@compiled
def copy_prediction(f: Frame, component: int, x0: int, y0: int, width: int, height: int) -> None:
    """Copy the prediction of a block to the reconstruction, unless it is predicted there.

    Part of clause 8.7.5.1, Picture reconstruction process.
    """
    planes = f.planes
    stride = f.pic.stride[component]
    if f.pic.pred[component] == f.pic.recon[component]:
        return
    for y in range(height):
        place = (y0 + y) * stride + x0
        recon, pred = U(f.pic.recon[component] + place), U(f.pic.pred[component] + place)
        for x in range(width):
            planes[recon + U(x)] = planes[pred + U(x)]


@compiled
def chroma_qp(f: Frame, component: int, joint: int) -> int:
    """Derive Qp'Cb, Qp'Cr or Qp'CbCr of a transform unit before the offset of the adaptive colour transform.

    Part of clause 8.7.1, Derivation process for quantization parameters.

    Joint coding of both components has a separate table and offsets; if only one is coded, its table and offsets apply.

    Args:
        f: State of the picture.
        component: 1 Cb, 2 Cr.
        joint: `TransformUnit.joint`.

    Returns:
        QP with QpBdOffset, from 0.
    """
    cu = coding_unit(f)
    offset: int = 6 * (f.pic.bit_depth - 8)
    kind = 2 if joint == 3 else component - 1
    luma = clip(cu.qp_y, -offset, 63)
    qp: int = f.pic.chroma_qp_table[kind, luma + offset]
    qp += f.slice.chroma_qp_offset[kind] + f.slice.cu_chroma_qp_offset[cu.chroma_qp_offset_idx, kind]
    return clip(qp, -offset, 63) + offset


@compiled
def qp_of_block(f: Frame, component: int, joint: int, skip: bool) -> int:
    """Derive qP of a transform block.

    Clause 8.7.1, Derivation process for quantization parameters.

    Args:
        f: State of the picture.
        component: 0 Y, 1 Cb, 2 Cr.
        joint: `TransformUnit.joint` for chroma, else 0.
        skip: The block skips the transform, whose QP has a lower limit.

    Returns:
        qP, from 0.
    """
    cu = coding_unit(f)
    offset = 6 * (f.pic.bit_depth - 8)
    qp: int = chroma_qp(f, component, joint) if component else cu.qp_y + offset
    if cu.cu_act_enabled_flag:
        qp += -5 if component == 0 else 1 if component == 1 or joint == 3 else 3
    qp = clip(qp, 0, 63 + offset)
    if skip:
        qp = max(qp, f.pic.min_qp_prime_ts)
    return qp


@compiled
def scaling_factor(f: Frame, component: int, log2_w: int, log2_h: int, x: int, y: int) -> int:
    """Return ScalingFactor of the coefficient at (x, y).

    Part of clause 7.4.3.20, Scaling list data semantics.
    """
    cu = coding_unit(f)
    longer = max(log2_w, log2_h)
    intra = cu.pred_mode == st.MODE_INTRA
    number: int = LIST_OF_SIZE[longer, component if intra else component + 3]
    if longer <= 3 or x > 0 or y > 0:
        return f.slice.scaling_factor[number, (y << 3) >> log2_h, (x << 3) >> log2_w]
    return f.slice.scaling_factor_dc[number]


@compiled
def scale_levels(
    f: Frame, at: int, count: int, component: int, log2_w: int, log2_h: int, qp: int, skip: bool, lfnst: bool
) -> None:
    """Scale the levels of a block to its coefficients; set `f.current.last_x` and `last_y`.

    Clause 8.7.3, Scaling process for transform coefficients.

    Args:
        f: State of the picture.
        at: Position of the first level in the log.
        count: Number of levels.
        component: 0 Y, 1 Cb, 2 Cr.
        log2_w: log2 of the block's width.
        log2_h: log2 of the block's height.
        qp: qP of the block.
        skip: The block skips the transform.
        lfnst: The block uses LFNST.
    """
    coefficients, cu = f.scratch.coefficients, coding_unit(f)
    width = 1 << log2_w
    odd_size = 0 if skip else (log2_w + log2_h) & 1
    dependent = 1 if f.slice.sh_dep_quant_used_flag and not skip else 0
    shift = 10
    if not skip:
        shift += f.pic.bit_depth + odd_size + ((log2_w + log2_h) >> 1) - f.pic.log2_transform_range + dependent
    per, rem = (qp + dependent) // 6, (qp + dependent) % 6
    step = LEVEL_SCALE[odd_size, rem] << per
    add = (1 << shift) >> 1
    lists = (
        f.slice.sh_explicit_scaling_list_used_flag and not skip and not (lfnst and not f.slice.scaling_matrix_for_lfnst)
    )
    lists = lists and cu.cu_act_enabled_flag != f.slice.scaling_matrix_disabled_for_act
    least = -(1 << f.pic.log2_transform_range)
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
        coefficients[y * width + x] = clip((level * factor * step + add) >> shift, least, -least - 1)
    f.current.last_x, f.current.last_y = last_x, last_y


@compiled
def accumulate(f: Frame, at: int, count: int, width: int, height: int, qp: int, vertical: bool) -> None:
    """Derive the coefficients of a BDPCM block, whose levels are differences.

    Part of clause 8.7.3, Scaling process for transform coefficients.
    """
    coefficients = f.scratch.coefficients
    least = -(1 << f.pic.log2_transform_range)
    for i in range(at, at + count):
        packed = f.log[i]
        coefficients[((packed >> 5) & 31) * width + (packed & 31)] = packed >> lg.LEVEL_SHIFT
    for y in range(height):
        for x in range(width):
            here = y * width + x
            before = here - width if vertical else here - 1
            if y if vertical else x:
                coefficients[here] = clip(coefficients[here] + coefficients[before], least, -least - 1)
    step = LEVEL_SCALE[0, qp % 6] << (qp // 6)
    for i in range(width * height):
        coefficients[i] = clip((coefficients[i] * 16 * step + 512) >> 10, least, -least - 1)
