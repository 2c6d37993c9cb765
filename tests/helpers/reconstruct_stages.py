"""Compare each stage of reconstruction with plain NumPy: `python -m tests.helpers.reconstruct_stages`.

The program runs in a separate process with NUMBA_DISABLE_JIT=1, because Python cannot call the compiled functions.
"""

import numpy as np
import numpy.typing as npt

from codecnn.vvc.decoder import (
    coding_units,
    cross_component,
    intra_prediction,
    luma_mapping,
    transforms,
)
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder import residual as residuals
from codecnn.vvc.decoder.frame import TABLES
from codecnn.vvc.intra import inverse_transform as plain_inverse_transform
from codecnn.vvc.intra import kernel_matrix, predict_modes_reference
from codecnn.vvc.syntax import LumaMapping, inverse_map
from codecnn.vvc.syntax import log as lg
from codecnn.vvc.syntax import state as st
from tests.helpers import reconstruct_references as plain

SIDE = 192
KERNELS = {"DCT2": st.DCT2, "DST7": st.DST7, "DCT8": st.DCT8}
LEVEL_SCALE = np.array([40, 45, 51, 57, 64, 72])


def empty_frame(bit_depth: int) -> fr.Frame:
    """Return a picture of luma only that is entirely reconstructed and one slice."""
    p = np.zeros(fr.NUMBERS, np.int64)
    p[fr.WIDTH] = p[fr.HEIGHT] = p[fr.STRIDE] = SIDE
    p[fr.BIT_DEPTH], p[fr.LOG2_CTU], p[fr.REGION], p[fr.PRED] = bit_depth, 7, 1, SIDE * SIDE
    p[fr.TRANSFORM_RANGE], p[fr.MAX_TB] = 15, 64
    scratch = np.concatenate([np.zeros(fr.SCRATCH, np.int32), TABLES])
    known = np.ones((fr.KNOWN, SIDE // 4, SIDE // 4), np.int32)
    motion = np.full((fr.MOTION, SIDE // 4, SIDE // 4), -1, np.int32)
    planes, log = np.zeros(2 * SIDE * SIDE, np.int32), np.zeros(4096, np.int64)
    collocated = np.zeros((fr.STORED, 1, 1), np.int32)
    return fr.Frame(p, scratch, planes, known, log, motion, np.zeros(1, np.uint16), collocated)


def check_prediction(rng: np.random.Generator) -> None:
    """Check planar, DC and angular modes of luma, with smoothing and position-dependent filtering."""
    for bit_depth, width, height in ((8, 4, 4), (10, 8, 4), (10, 4, 16), (8, 16, 16), (10, 32, 8)):
        f = empty_frame(bit_depth)
        plane = f.planes[: SIDE * SIDE].reshape(SIDE, SIDE)
        plane[:] = rng.integers(0, 1 << bit_depth, plane.shape)
        corner, top = plane[63, 63], plane[63, 64 : 64 + 2 * width]
        left = plane[64 : 64 + 2 * height, 63]
        expected = predict_modes_reference(corner[None], top[None], left[None], width, height, bit_depth)[0]
        actual = f.planes[SIDE * SIDE :].reshape(SIDE, SIDE)[64 : 64 + height, 64 : 64 + width]
        for mode in range(67):
            intra_prediction.predict(f, 0, 64, 64, width, height, mode, 0, 0, 0, False)
            np.testing.assert_array_equal(actual, expected[mode], f"mode {mode} of {width}x{height}")


def check_transforms(rng: np.random.Generator) -> None:
    """Check each pair of kernels on few and on many coefficients of 16 bits; residuals above 12 bit are not clipped."""
    for bit_depth, width, height in ((8, 4, 4), (10, 16, 8), (10, 8, 32), (12, 32, 32), (16, 8, 8)):
        for horizontal, kernel_h in KERNELS.items():
            for vertical, kernel_v in KERNELS.items():
                f = empty_frame(bit_depth)
                across = 16 if kernel_h != st.DCT2 and width == 32 else width
                down = 16 if kernel_v != st.DCT2 and height == 32 else height
                coefficients = np.zeros((height, width), np.int64)
                coefficients[:down, :across] = rng.integers(-(1 << 15), 1 << 15, (down, across))
                coefficients[rng.random((height, width)) < rng.random()] = 0
                f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height] = coefficients.ravel()
                f.p[fr.LAST_X], f.p[fr.LAST_Y] = across - 1, down - 1
                logs = width.bit_length() - 1, height.bit_length() - 1
                transforms.inverse_transform(f, *logs, kernel_h, kernel_v, fr.RESIDUALS)
                actual = f.s[fr.RESIDUALS : fr.RESIDUALS + width * height].reshape(height, width)
                expected = plain_inverse_transform(coefficients, horizontal, vertical, bit_depth)  # type: ignore[arg-type]
                if bit_depth <= 12:
                    expected = expected.clip(-(1 << 15), (1 << 15) - 1)
                np.testing.assert_array_equal(actual, expected, f"{horizontal} {vertical}")


def check_wide_transforms(rng: np.random.Generator) -> None:
    """Check transforms of 16 bit with extended precision, whose coefficients have 21 bits, by products of 64 bits."""
    least, shift = -(1 << 20), 5 + 20 - 16
    for width, height in ((4, 4), (16, 8), (32, 32), (1, 16), (32, 1)):
        for horizontal, kernel_h in KERNELS.items():
            for vertical, kernel_v in KERNELS.items():
                f = empty_frame(16)
                f.p[fr.TRANSFORM_RANGE] = 20
                coefficients = rng.integers(least, -least, (height, width))
                f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height] = coefficients.ravel()
                f.p[fr.LAST_X], f.p[fr.LAST_Y] = width - 1, height - 1
                logs = width.bit_length() - 1, height.bit_length() - 1
                transforms.inverse_transform(f, *logs, kernel_h, kernel_v, fr.RESIDUALS)
                actual = f.s[fr.RESIDUALS : fr.RESIDUALS + width * height].reshape(height, width)
                expected, last = coefficients, shift
                if height > 1:
                    expected = kernel_matrix(vertical, height).astype(np.int64).T @ expected  # type: ignore[arg-type]
                if min(width, height) > 1:
                    expected = ((expected + 64) >> 7).clip(least, -least - 1)
                else:
                    last += 1
                if width > 1:
                    expected = expected @ kernel_matrix(horizontal, width).astype(np.int64)  # type: ignore[arg-type]
                expected = (expected + (1 << last >> 1)) >> last
                np.testing.assert_array_equal(actual, expected, f"{horizontal} {vertical} {width}x{height}")


def packed(levels: npt.NDArray[np.int64], odd: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Pack non-zero levels as in the log; `odd` is 1 where the quantizer of odd multiples is used."""
    y, x = np.nonzero(levels)
    return (levels[y, x] << lg.LEVEL_SHIFT | odd[y, x] << 10 | y << 5 | x).astype(np.int32)


def check_scaling(rng: np.random.Generator) -> None:
    """Check flat scaling with and without dependent quantization, of transform skip and BDPCM, by (1155) to (1161)."""
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
                residuals.scale_levels(f, 0, len(values), 0, log2_w, log2_h, qp, skip, False)
                doubled = (2 * levels - np.sign(levels) * odd) / 2 if dependent and not skip else levels
                # The step is 2^(QP/6) in units of 1/2^6; √2 is 181/128 for blocks of unequal sides.
                step = 2.0 ** (qp // 6) * LEVEL_SCALE[qp % 6] / 64
                if dependent and not skip:
                    step = 2.0 ** ((qp + 1) // 6) * LEVEL_SCALE[(qp + 1) % 6] / 64
                if not skip:
                    step *= 2.0 ** (15 - bit_depth - (log2_w + log2_h) // 2)
                odd_size = (log2_w + log2_h) % 2 and not skip
                if odd_size:
                    remainder = (qp + (dependent and not skip)) % 6
                    step *= (57, 64, 72, 80, 90, 102)[remainder] / LEVEL_SCALE[remainder] / 2
                expected = np.floor(doubled * step + 0.5).clip(-(1 << 15), (1 << 15) - 1)
                actual = f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height].reshape(height, width)
                np.testing.assert_array_equal(actual, expected, f"QP {qp} {width}x{height} {dependent} {skip}")
        f = empty_frame(bit_depth)
        values = packed(levels, 0 * odd)
        f.log[: len(values)] = values
        residuals.accumulate(f, 0, len(values), width, height, qp, True)
        expected = np.floor(levels.cumsum(0) * (2.0 ** (qp // 6) * LEVEL_SCALE[qp % 6] / 64) + 0.5)
        actual = f.s[fr.COEFFICIENTS : fr.COEFFICIENTS + width * height].reshape(height, width)
        np.testing.assert_array_equal(actual, expected.clip(-(1 << 15), (1 << 15) - 1))


def check_lfnst(rng: np.random.Generator) -> None:
    """Check the secondary transform by its matrix product, transposed for modes beyond the diagonal."""
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
            transforms.inverse_lfnst(f, log2_w, log2_h, mode, index)
            side = 8 if large else 4
            actual = f.s[fr.COEFFICIENTS :][: width << log2_h].reshape(-1, width)[:side, :side]
            np.testing.assert_array_equal(actual, block[:side, :side], f"mode {mode} of {width}x{1 << log2_h}")


def random_frame(
    rng: np.random.Generator, bit_depth: int, sub: tuple[int, int] = (0, 0), smooth: int = 0
) -> tuple[fr.Frame, list[npt.NDArray[np.int32]], list[npt.NDArray[np.int32]]]:
    """Return a picture of random samples: frame, and reconstruction and prediction planes by component.

    With `smooth`, neighbouring samples differ by small steps.
    """
    f = empty_frame(bit_depth)
    p = f.p
    p[fr.CHROMA], p[fr.SUB_X], p[fr.SUB_Y] = 3 - sum(sub), *sub
    sizes = [(SIDE, SIDE), *[(SIDE >> sub[1], SIDE >> sub[0])] * 2]
    f = f._replace(planes=np.zeros(3 * sum(h * w for h, w in sizes), np.int32))
    kinds: list[list[npt.NDArray[np.int32]]] = [[], [], []]
    at = 0
    for place, planes in zip((fr.RECON, fr.PRED, fr.RESI), kinds, strict=True):
        for component, (height, width) in enumerate(sizes):
            p[place + component], p[fr.STRIDE + component] = at, width
            planes.append(f.planes[at : at + height * width].reshape(height, width))
            at += height * width
    for plane in kinds[0]:
        plane[:] = rng.integers(0, 1 << bit_depth, plane.shape)
        if smooth:
            steps = rng.integers(-smooth, smooth + 1, plane.shape).cumsum(0).cumsum(1)
            plane[:] = (steps + (1 << (bit_depth - 1))).clip(0, (1 << bit_depth) - 1)
    return f, kinds[0], kinds[1]


def as_int64(plane: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Convert a plane for the reference functions."""
    return plane.astype(np.int64)


def check_matrix(rng: np.random.Generator) -> None:
    """Check all modes of MIP at sizes of all three kinds, also transposed."""
    shapes = ((4, 4), (8, 4), (4, 16), (8, 8), (16, 8), (8, 32), (32, 16), (64, 64))
    for number, (width, height) in enumerate(shapes):
        size = 0 if number == 0 else 1 if number < 4 else 2
        bit_depth = int(rng.choice([8, 10, 12]))
        f, recon, pred = random_frame(rng, bit_depth)
        for mode in range((16, 8, 6)[size]):
            results = 64 if size == 2 else 16
            weights = f.s[fr.MIP_AT + 8 * 64 * (16 * size + mode) :][: 8 * results].reshape(results, 8).astype(np.int64)
            weights = weights[:, 1:] if size == 2 else weights[:, : 4 if size == 0 else 8]
            for transposed in (False, True):
                intra_prediction.predict_by_matrix(f, 0, 64, 64, width, height, mode, transposed)
                top, left = as_int64(recon[0][63, 64 : 64 + width]), as_int64(recon[0][64 : 64 + height, 63])
                expected = plain.matrix_prediction(top, left, weights, transposed, bit_depth)
                actual = pred[0][64 : 64 + height, 64 : 64 + width]
                np.testing.assert_array_equal(actual, expected, f"mode {mode} of {width}x{height} {transposed}")


def check_cross_component(rng: np.random.Generator) -> None:
    """Check the linear model inside the picture, at its edges and at the edge of a CTU, for each chroma format."""
    for sub, collocated in (((1, 1), False), ((1, 1), True), ((1, 0), True), ((0, 0), True)):
        for smooth in (0, 3):
            for width, height in ((4, 4), (8, 16), (32, 8), (2, 8)):
                f, recon, pred = random_frame(rng, 10, sub, smooth)
                f.p[fr.COLLOCATED], f.p[fr.LOG2_CTU] = collocated, 5
                for x, y in ((40, 24), (0, 24), (40, 0), (0, 0), (40, 32 >> sub[1])):
                    for mode in (67, 68, 69):
                        cross_component.predict_from_luma(f, 1, x, y, width, height, mode)
                        luma, chroma = as_int64(recon[0]), as_int64(recon[1])
                        place, options = (x, y, width, height), {"sub": sub, "collocated": collocated, "ctu": 32}
                        expected = plain.linear_model_prediction(luma, chroma, place, mode, 10, **options)  # type: ignore[arg-type]
                        actual = pred[1][y : y + height, x : x + width]
                        np.testing.assert_array_equal(actual, expected, f"mode {mode} at {place} of {sub} {collocated}")


def unit_in_log(f: fr.Frame, x: int, y: int, width: int, height: int, mode: int, **facts: int) -> None:
    """Write a coding unit without transform units to the beginning of the log."""
    f.log[: lg.UNIT_HEADER] = 0
    f.log[lg.U_X], f.log[lg.U_Y], f.log[lg.U_W], f.log[lg.U_H] = x, y, width, height
    f.log[lg.U_PRED_MODE], f.log[lg.U_TREE] = mode, st.SINGLE
    for name, value in facts.items():
        f.log[getattr(lg, name)] = value


def check_palette(rng: np.random.Generator) -> None:
    """Check palette units of 4:4:4 and 4:2:0 with escape values, at QPs below and above the limit of transform skip."""
    for bit_depth, sub, qp in ((8, (0, 0), 0), (10, (1, 1), 27), (10, (0, 0), 51)):
        f, recon, pred = random_frame(rng, bit_depth, sub)
        f.p[fr.MIN_QP_TS] = 4
        offset = 6 * (bit_depth - 8)
        for kind in range(3):
            f.p[fr.QP_TABLE + fr.QP_TABLE_SIZE * kind :][: 64 + offset] = np.arange(-offset, 64)
        unit_in_log(f, 64, 32, 16, 8, st.MODE_PALETTE, U_QP=qp)
        at = lg.UNIT_HEADER
        expected = []
        for component in range(3):
            shape = (8 >> sub[1], 16 >> sub[0]) if component else (8, 16)
            values = rng.integers(0, 1 << bit_depth, shape)
            values = np.where(rng.random(shape) < 0.3, -1 - rng.integers(0, 40, shape), values)
            f.log[at : at + values.size] = values.ravel()
            at += values.size
            expected.append(plain.palette_samples(values, qp, 4, bit_depth))
        coding_units.palette_unit(f)
        for component, samples in enumerate(expected):
            rows, columns = samples.shape
            y, x = (32 >> sub[1], 64 >> sub[0]) if component else (32, 64)
            for plane in (recon[component], pred[component]):
                np.testing.assert_array_equal(plane[y : y + rows, x : x + columns], samples)


def check_block_copy(rng: np.random.Generator) -> None:
    """Check IBC units without residual; a vector to samples that are not reconstructed yet is a fault."""
    for sub in ((0, 0), (1, 1), (1, 0)):
        f, recon, pred = random_frame(rng, 10, sub)
        before = [plane.copy() for plane in recon]
        unit_in_log(f, 64, 64, 16, 8, st.MODE_IBC, U_VECTOR_X=-24, U_VECTOR_Y=-16)
        coding_units.block_copy_unit(f)
        for component in range(3):
            sx, sy = sub if component else (0, 0)
            source = before[component][48 >> sy : 56 >> sy, 40 >> sx : 56 >> sx]
            for plane in (recon[component], pred[component]):
                np.testing.assert_array_equal(plane[64 >> sy : 72 >> sy, 64 >> sx : 80 >> sx], source)
        assert not f.p[fr.FAULT]
        f.known[fr.LUMA_REGION, 10:14, 10:14] = 0
        coding_units.block_copy_unit(f)
        assert f.p[fr.FAULT]


def check_luma_mapping(rng: np.random.Generator) -> None:
    """Check inverse mapping, chroma scale by the mean luma next to a block of 64x64, and scaled residuals."""
    for bit_depth, first, last in ((8, 0, 15), (10, 1, 14), (10, 3, 11)):
        width = 1 << (bit_depth - 4)
        words = np.zeros(16, np.int64)
        words[first : last + 1] = rng.integers(width // 2, width, last + 1 - first)
        pivot = np.concatenate([[0], words.cumsum()])
        scales = rng.integers(1000, 4000, 16)
        inverse = tuple(width * 2048 // word if word else 0 for word in words.tolist())
        mapping = LumaMapping(first, last, tuple(pivot.tolist()), (0,) * 16, inverse, tuple(scales.tolist()))
        samples = np.arange(1 << bit_depth)
        expected = plain.mapped_back(samples, pivot, first, last, bit_depth)
        np.testing.assert_array_equal(inverse_map(mapping, bit_depth), expected)
        for x, y in ((64, 64), (0, 64), (64, 0), (0, 0), (128, 128)):
            f, recon, _ = random_frame(rng, bit_depth, (1, 1))
            recon[0][:] = recon[0] * rng.random() * rng.random()
            f.p[fr.LMCS_MIN], f.p[fr.LMCS_MAX], f.p[fr.VPDU_X] = first, last, -1
            f.p[fr.PIVOT : fr.PIVOT + 17], f.p[fr.CHROMA_SCALE : fr.CHROMA_SCALE + 16] = pivot, scales
            scale = plain.chroma_scale(as_int64(recon[0]), x, y, pivot, scales, (first, last), bit_depth)
            assert luma_mapping.chroma_scale(f, x + 8, y + 24, 8, 8) == scale
            residual = rng.integers(-(2 << bit_depth), 2 << bit_depth, 256)
            f.s[fr.RESIDUALS : fr.RESIDUALS + 256] = residual
            luma_mapping.scale_residual(f, fr.RESIDUALS, 256, scale)
            expected = plain.scaled_residual(residual, scale, bit_depth)
            np.testing.assert_array_equal(f.s[fr.RESIDUALS : fr.RESIDUALS + 256], expected)


CHECKS = (
    check_prediction,
    check_transforms,
    check_wide_transforms,
    check_scaling,
    check_lfnst,
    check_matrix,
    check_cross_component,
    check_palette,
    check_block_copy,
    check_luma_mapping,
)

if __name__ == "__main__":
    generator = np.random.default_rng(7)
    for check in CHECKS:
        check(generator)
