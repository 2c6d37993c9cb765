"""Stages of reconstruction against plain NumPy, each alone: `python -m tests.helpers.reconstruct_stages`.

In a process of its own and under NUMBA_DISABLE_JIT=1, since compiled functions are only for each other to call.
"""

import numpy as np
import numpy.typing as npt

from codecnn.intra import inverse_transform as plain_inverse_transform
from codecnn.intra.predict_reference import predict_modes_reference
from codecnn.reconstruct import _frame as fr
from codecnn.reconstruct import _prediction, _scaling, _transforms
from codecnn.reconstruct._tables import TABLES
from codecnn.vvc import log as lg

SIDE = 192
KERNELS = {"DCT2": fr.DCT2, "DST7": fr.DST7, "DCT8": fr.DCT8}
LEVEL_SCALE = np.array([40, 45, 51, 57, 64, 72])


def empty_frame(bit_depth: int) -> fr.Frame:
    """A picture of luma alone, all of it known and in one slice."""
    p = np.zeros(fr.NUMBERS, np.int64)
    p[fr.WIDTH] = p[fr.HEIGHT] = p[fr.STRIDE] = SIDE
    p[fr.BIT_DEPTH], p[fr.LOG2_CTU], p[fr.REGION], p[fr.PRED] = bit_depth, 7, 1, SIDE * SIDE
    p[fr.TRANSFORM_RANGE] = 15
    scratch = np.concatenate([np.zeros(fr.SCRATCH, np.int32), TABLES])
    known = np.ones((fr.KNOWN, SIDE // 4, SIDE // 4), np.int32)
    return fr.Frame(p, scratch, np.zeros(2 * SIDE * SIDE, np.int32), known, np.zeros(4096, np.int64))


def check_prediction(rng: np.random.Generator) -> None:
    """Planar, DC and the angular modes of luma, with smoothing and position-dependent filtering."""
    for bit_depth, width, height in ((8, 4, 4), (10, 8, 4), (10, 4, 16), (8, 16, 16), (10, 32, 8)):
        f = empty_frame(bit_depth)
        plane = f.planes[: SIDE * SIDE].reshape(SIDE, SIDE)
        plane[:] = rng.integers(0, 1 << bit_depth, plane.shape)
        corner, top = plane[63, 63], plane[63, 64 : 64 + 2 * width]
        left = plane[64 : 64 + 2 * height, 63]
        wanted = predict_modes_reference(corner[None], top[None], left[None], width, height, bit_depth)[0]
        got = f.planes[SIDE * SIDE :].reshape(SIDE, SIDE)[64 : 64 + height, 64 : 64 + width]
        for mode in range(67):
            _prediction.predict(f, 0, 64, 64, width, height, mode, 0, 0, 0, False)
            np.testing.assert_array_equal(got, wanted[mode], f"mode {mode} of {width}x{height}")


def check_transforms(rng: np.random.Generator) -> None:
    """Each pair of kernels on coefficients of 16 bits, few or many."""
    for bit_depth, width, height in ((8, 4, 4), (10, 16, 8), (10, 8, 32), (12, 32, 32)):
        for horizontal, kernel_h in KERNELS.items():
            for vertical, kernel_v in KERNELS.items():
                f = empty_frame(bit_depth)
                across = 16 if kernel_h != fr.DCT2 and width == 32 else width
                down = 16 if kernel_v != fr.DCT2 and height == 32 else height
                coefficients = np.zeros((height, width), np.int64)
                coefficients[:down, :across] = rng.integers(-(1 << 15), 1 << 15, (down, across))
                coefficients[rng.random((height, width)) < rng.random()] = 0
                f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height] = coefficients.ravel()
                f.p[fr.LAST_X], f.p[fr.LAST_Y] = across - 1, down - 1
                logs = width.bit_length() - 1, height.bit_length() - 1
                _transforms.inverse_transform(f, *logs, kernel_h, kernel_v, fr.RESIDUALS)
                got = f.s[fr.RESIDUALS : fr.RESIDUALS + width * height].reshape(height, width)
                wanted = plain_inverse_transform(coefficients, horizontal, vertical, bit_depth)  # type: ignore[arg-type]
                np.testing.assert_array_equal(got, wanted.clip(-(1 << 15), (1 << 15) - 1), f"{horizontal} {vertical}")


def packed(levels: npt.NDArray[np.int64], odd: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Levels that are not zero as the log has them; `odd` where the quantizer of odd multiples is."""
    y, x = np.nonzero(levels)
    return (levels[y, x] << lg.LEVEL_SHIFT | odd[y, x] << 10 | y << 5 | x).astype(np.int32)


def check_scaling(rng: np.random.Generator) -> None:
    """Flat scaling with and without dependent quantization, and of transform skip and BDPCM, by (1155) to (1161)."""
    for bit_depth, width, height, qp in (
        (8, 4, 4, 22),
        (10, 16, 16, 37),
        (10, 32, 8, 49),
        (12, 8, 8, 5),
        (8, 16, 4, 51),
    ):
        log2_w, log2_h = width.bit_length() - 1, height.bit_length() - 1
        levels = rng.integers(-40, 41, (height, width)) * (rng.random((height, width)) < 0.3)
        odd = rng.integers(0, 2, levels.shape)
        for dependent in (False, True):
            for skip in (False, True):
                f = empty_frame(bit_depth)
                f.p[fr.DEP_QUANT], f.p[fr.UNIT] = dependent, 1024
                values = packed(levels, odd if dependent else 0 * odd)
                f.log[: len(values)] = values
                _scaling.scale_levels(f, 0, len(values), 0, log2_w, log2_h, qp, skip, False)
                doubled = (2 * levels - np.sign(levels) * odd) / 2 if dependent and not skip else levels
                # A step of 2^(QP/6), in 1/2^6 for the levels of samples, with √2 as 181/128 where sides are unequal.
                step = 2.0 ** (qp // 6) * LEVEL_SCALE[qp % 6] / 64
                if dependent and not skip:
                    step = 2.0 ** ((qp + 1) // 6) * LEVEL_SCALE[(qp + 1) % 6] / 64
                if not skip:
                    step *= 2.0 ** (15 - bit_depth - (log2_w + log2_h) // 2)
                odd_size = (log2_w + log2_h) % 2 and not skip
                if odd_size:
                    remainder = (qp + (dependent and not skip)) % 6
                    step *= (57, 64, 72, 80, 90, 102)[remainder] / LEVEL_SCALE[remainder] / 2
                wanted = np.floor(doubled * step + 0.5).clip(-(1 << 15), (1 << 15) - 1)
                got = f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height].reshape(height, width)
                np.testing.assert_array_equal(got, wanted, f"QP {qp} {width}x{height} {dependent} {skip}")
        f = empty_frame(bit_depth)
        values = packed(levels, 0 * odd)
        f.log[: len(values)] = values
        _scaling.accumulate(f, 0, len(values), width, height, qp, True)
        wanted = np.floor(levels.cumsum(0) * (2.0 ** (qp // 6) * LEVEL_SCALE[qp % 6] / 64) + 0.5)
        got = f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height].reshape(height, width)
        np.testing.assert_array_equal(got, wanted.clip(-(1 << 15), (1 << 15) - 1))


def check_lfnst(rng: np.random.Generator) -> None:
    """The secondary transform as a product of its matrix, transposed for modes beyond the diagonal."""
    sets = {0: 0, 1: 0, 2: 1, 12: 1, 13: 2, 23: 2, 24: 3, 34: 3, 44: 3, 45: 2, 55: 2, 56: 1, 66: 1, 80: 1, -14: 1}
    for log2_w, log2_h in ((2, 2), (2, 4), (3, 3), (4, 3)):
        width, large = 1 << log2_w, min(log2_w, log2_h) > 2
        results = 48 if large else 16
        first = fr.LFNST_48_AT if large else fr.LFNST_16_AT
        for mode, number in sets.items():
            f = empty_frame(10)
            index = int(rng.integers(1, 3))
            used = 8 if log2_w == log2_h else 16
            values = rng.integers(-2000, 2001, used)
            scan = [(x, d - x) for d in range(7) for x in range(4) if 0 <= d - x < 4]
            for (x, y), value in zip(scan, values, strict=False):
                f.s[fr.COEFFICIENTS + y * width + x] = value
            matrix = f.s[first + (2 * number + index - 1) * 16 * results :][: 16 * results].reshape(16, results)
            out = (values @ matrix[:used].astype(np.int64) + 64) >> 7
            block = np.zeros((8, 8), np.int64)
            if large:
                block[:4], block[4:, :4] = out[:32].reshape(4, 8), out[32:].reshape(4, 4)
            else:
                block[:4, :4] = out.reshape(4, 4)
            block = block.T if mode > 34 else block
            _transforms.inverse_lfnst(f, log2_w, log2_h, mode, index)
            side = 8 if large else 4
            got = f.s[fr.COEFFICIENTS :][: width << log2_h].reshape(-1, width)[:side, :side]
            np.testing.assert_array_equal(got, block[:side, :side], f"mode {mode} of {width}x{1 << log2_h}")


if __name__ == "__main__":
    generator = np.random.default_rng(7)
    for check in (check_prediction, check_transforms, check_scaling, check_lfnst):
        check(generator)
