"""Residuals of transform blocks (H.266 clauses 8.7.2, 8.7.4 and 8.7.5)."""

from codecnn.reconstruct import _frame as fr
from codecnn.reconstruct._frame import Frame
from codecnn.reconstruct._prediction import wide_angle
from codecnn.reconstruct._scaling import accumulate, clip, qp_of_block, scale_levels
from codecnn.reconstruct._transforms import clear_coefficients, inverse_lfnst, inverse_transform
from codecnn.vvc import compiled, log2
from codecnn.vvc import log as lg
from codecnn.vvc import state as st


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
    out: int,
) -> None:
    """The residual, at `out` of `Frame.s`, of a coded block whose `count` levels lie at `at` of the log."""
    p, s, log = f.p, f.s, f.log
    unit = p[fr.UNIT]
    log2_w, log2_h = log2(width), log2(height)
    qp = qp_of_block(f, component, joint, skip)
    clear_coefficients(f, width, height)
    bdpcm = log[unit + lg.U_BDPCM_C] if component else log[unit + lg.U_BDPCM]
    if skip:
        if bdpcm:
            mode = log[unit + lg.U_MODE_C] if component else log[unit + lg.U_MODE]
            accumulate(f, at, count, width, height, qp, mode == 50)
        else:
            scale_levels(f, at, count, component, log2_w, log2_h, qp, True, False)
        for i in range(width * height):
            s[out + i] = s[fr.COEFFICIENTS + i]
        return
    # A tree of its own lets chroma have the secondary transform as well.
    lfnst = log[unit + lg.U_LFNST] if component == 0 or log[unit + lg.U_TREE] != st.SINGLE else 0
    scale_levels(f, at, count, component, log2_w, log2_h, qp, False, lfnst > 0)
    if lfnst and log2_w >= 2 and log2_h >= 2:
        inverse_lfnst(f, log2_w, log2_h, lfnst_mode(f, component, log2_w, log2_h), lfnst)
    kernel_h, kernel_v = st.DCT2, st.DCT2
    if component == 0:
        kernel_h, kernel_v = log[unit + lg.U_KERNEL_H], log[unit + lg.U_KERNEL_V]
    inverse_transform(f, log2_w, log2_h, kernel_h, kernel_v, out)


@compiled
def lfnst_mode(f: Frame, component: int, log2_w: int, log2_h: int) -> int:
    """predModeIntra of LFNST (8.7.4.1): wide angles mapped, planar for MIP, the luma's mode for CCLM."""
    unit = f.p[fr.UNIT]
    if component:
        mode = f.log[unit + lg.U_MODE_C]
        if mode > 66:
            mode = f.log[unit + lg.U_COLOCATED_MODE]
    else:
        mode = 0 if f.log[unit + lg.U_MIP] else f.log[unit + lg.U_MODE]
        if f.log[unit + lg.U_ISP]:
            log2_w, log2_h = log2(f.log[unit + lg.U_W]), log2(f.log[unit + lg.U_H])
    return wide_angle(mode, log2_w, log2_h)


@compiled
def joint_residual(f: Frame, joint: int, count: int) -> None:
    """Residuals of Cb and Cr from the one that is coded (8.7.2), that of Cr for `joint` 1."""
    s = f.s
    cb, cr = fr.RESIDUALS + fr.BLOCK, fr.RESIDUALS + 2 * fr.BLOCK
    sign = -1 if f.p[fr.JOINT_SIGN] else 1
    for i in range(count):
        if joint == 1:
            s[cb + i] = (sign * s[cr + i]) >> 1
        elif joint == 2:
            s[cr + i] = (sign * s[cb + i]) >> 1
        else:
            s[cr + i] = clip(sign * s[cb + i], -32768, 32767)


@compiled
def inverse_colour_transform(f: Frame, count: int) -> None:
    """Residuals of Y, Cb and Cr from those of the adaptive colour transform (8.7.4.6)."""
    s = f.s
    least = -(2 << f.p[fr.BIT_DEPTH])
    for i in range(fr.RESIDUALS, fr.RESIDUALS + count):
        y = clip(s[i], least, -least - 1)
        green = clip(s[i + fr.BLOCK], least, -least - 1)
        orange = clip(s[i + 2 * fr.BLOCK], least, -least - 1)
        base = y - (green >> 1)
        s[i] = green + base
        s[i + fr.BLOCK] = base - (orange >> 1)
        s[i + 2 * fr.BLOCK] = orange + s[i + fr.BLOCK]


@compiled
def add_residual(f: Frame, component: int, x0: int, y0: int, width: int, height: int, at: int) -> None:
    """Prediction plus the residual at `at` of `Frame.s` (8.7.5.1); the latter is kept in its plane."""
    p, planes = f.p, f.planes
    stride = p[fr.STRIDE + component]
    peak = (1 << p[fr.BIT_DEPTH]) - 1
    for y in range(height):
        place = (y0 + y) * stride + x0
        recon, pred, resi = (
            p[fr.RECON + component] + place,
            p[fr.PRED + component] + place,
            p[fr.RESI + component] + place,
        )
        for x in range(width):
            value = f.s[at + y * width + x]
            planes[resi + x] = value
            planes[recon + x] = clip(planes[pred + x] + value, 0, peak)


@compiled
def copy_prediction(f: Frame, component: int, x0: int, y0: int, width: int, height: int) -> None:
    """The reconstruction of a block without residual."""
    p, planes = f.p, f.planes
    stride = p[fr.STRIDE + component]
    for y in range(height):
        place = (y0 + y) * stride + x0
        recon, pred = p[fr.RECON + component] + place, p[fr.PRED + component] + place
        for x in range(width):
            planes[recon + x] = planes[pred + x]
