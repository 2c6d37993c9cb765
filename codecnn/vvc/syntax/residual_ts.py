"""Residual coding of a transform-skip block (H.266 clauses 7.3.11.12 and 9.3.4.2.6 to 9.3.4.2.10)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass
from codecnn.vvc.syntax.levels import decode_remainder
from codecnn.vvc.syntax.log_writer import keep_level
from codecnn.vvc.syntax.records import CODED_STRIDE, LEVEL_STRIDE, TransformBlock
from codecnn.vvc.syntax.residual import budget_of_block, clear_levels, sub_block_log2_width
from codecnn.vvc.syntax.scans import SCAN
from codecnn.vvc.syntax.state import Work


@compiled
def clear_signs(tb: TransformBlock, width: int, height: int) -> None:
    """Zero the signs of a block of `width` x `height` levels, and those to its left and above."""
    for row in range(height + 1):
        for at in range(row * LEVEL_STRIDE, row * LEVEL_STRIDE + width + 1):
            tb.coeff_sign_level[at] = 0


@compiled
def residual_ts_coding(w: Work, log2_w: int, log2_h: int, bdpcm: bool) -> None:
    """Parse the levels of one transform-skip block.

    Clause 7.3.11.12, Residual coding syntax, residual_ts_coding.

    Args:
        w: State of the parser.
        log2_w: log2 of the width in samples, at most 5.
        log2_h: log2 of the height in samples, at most 5.
        bdpcm: The block uses BDPCM.
    """
    log2_sw, log2_sh = sub_block_log2_width(log2_w, log2_h), sub_block_log2_width(log2_h, log2_w)
    log2_nx, log2_ny = log2_w - log2_sw, log2_h - log2_sh
    # Residuals of samples are not concentrated at low frequencies: the scan runs forwards, there is no last position,
    # and contexts depend on the neighbours to the left and above.
    last_sub_block = (1 << (log2_nx + log2_ny)) - 1
    s = w.state
    tb = s.tb
    clear_levels(tb, 1 << log2_w, 1 << log2_h)
    clear_signs(tb, 1 << log2_w, 1 << log2_h)
    tb.rem_ccbs = budget_of_block(log2_w, log2_h)
    infer_coded = True
    for i in range(last_sub_block + 1):
        xs, ys = SCAN[log2_nx, log2_ny, i, 0], SCAN[log2_nx, log2_ny, i, 1]
        at = (ys + 1) * CODED_STRIDE + xs + 1
        coded = 1
        if i < last_sub_block or not infer_coded:
            neighbours = tb.sb_coded_flag[at - 1] + tb.sb_coded_flag[at - CODED_STRIDE]
            coded = decode_bin(w, c.SB_CODED_FLAG + 4 + neighbours)
        tb.sb_coded_flag[at] = coded
        if not coded:
            continue
        infer_coded = False
        origin = ((ys << log2_sh) + 1) * LEVEL_STRIDE + (xs << log2_sw) + 1
        sub_block_ts(w, origin, log2_sw, log2_sh, bdpcm)


@compiled
def sub_block_ts(w: Work, origin: int, log2_sw: int, log2_sh: int, bdpcm: bool) -> None:
    """Parse one coded sub-block of a transform-skip block, which begins at `origin`, in three passes.

    Part of clause 7.3.11.12, Residual coding syntax, residual_ts_coding.
    """
    s = w.state
    tb = s.tb
    budget = tb.rem_ccbs
    last = (1 << (log2_sw + log2_sh)) - 1
    rice = s.slice.ts_residual_coding_rice
    infer = True
    end_of_pass1 = 0
    while end_of_pass1 <= last and budget >= 4:
        place = end_of_pass1
        at = origin + SCAN[log2_sw, log2_sh, place, 1] * LEVEL_STRIDE + SCAN[log2_sw, log2_sh, place, 0]
        left, above = at - 1, at - LEVEL_STRIDE
        neighbours = min(tb.abs_level_pass1[left], 1) + min(tb.abs_level_pass1[above], 1)
        significant = 1
        if place != last or not infer:
            significant = decode_bin(w, c.SIG_COEFF_FLAG + 60 + neighbours)
            budget -= 1
        if significant:
            infer = False
            inc = sign_context(tb.coeff_sign_level[left], tb.coeff_sign_level[above], bdpcm)
            sign = decode_bin(w, c.COEFF_SIGN_FLAG + inc)
            tb.coeff_sign_level[at] = -1 if sign else 1
            level = 1
            greater = decode_bin(w, c.ABS_LEVEL_GTX_FLAG + (67 if bdpcm else 64 + neighbours))
            budget -= 2
            if greater:
                level = 2 + decode_bin(w, c.PAR_LEVEL_FLAG + 32)
                budget -= 1
            tb.abs_level_pass1[at] = level
        end_of_pass1 += 1
    end_of_pass2 = 0
    while end_of_pass2 <= last and budget >= 4:
        at = origin + SCAN[log2_sw, log2_sh, end_of_pass2, 1] * LEVEL_STRIDE + SCAN[log2_sw, log2_sh, end_of_pass2, 0]
        level = tb.abs_level_pass1[at]
        if level > 1:
            for j in range(1, 5):
                budget -= 1
                if not decode_bin(w, c.ABS_LEVEL_GTX_FLAG + 67 + j):
                    break
                level += 2
        tb.abs_level[at] = level
        end_of_pass2 += 1
    for place in range(last + 1):
        at = origin + SCAN[log2_sw, log2_sh, place, 1] * LEVEL_STRIDE + SCAN[log2_sw, log2_sh, place, 0]
        negative = tb.coeff_sign_level[at] < 0
        if place < end_of_pass2:
            level = tb.abs_level[at]
            if level >= 10:
                level += 2 * decode_remainder(w, rice)
        elif place < end_of_pass1:
            level = tb.abs_level_pass1[at]
            if level >= 2:
                level += 2 * decode_remainder(w, rice)
        else:
            level = decode_remainder(w, rice)
            if level:
                negative = decode_bypass(w) == 1
        if level and not bdpcm and place < end_of_pass1:
            # The greater neighbour is the likeliest level and has the shortest code (clause 7.3.11.12).
            likely = max(tb.abs_level[at - 1], tb.abs_level[at - LEVEL_STRIDE])
            level = likely if level == 1 and likely > 0 else level - (level <= likely)
        tb.abs_level[at] = level
        if level and s.current.keep_log:
            keep_level(w, at, -level if negative else level, 0)
    tb.rem_ccbs = budget


@compiled
def sign_context(left: int, above: int, bdpcm: bool) -> int:
    """Derive ctxInc of coeff_sign_flag from the neighbouring signs, -1, 0 or 1.

    Clause 9.3.4.2.10, Derivation process of ctxInc for the syntax element coeff_sign_flag for transform skip mode.
    """
    inc = 3 if bdpcm else 0
    if left == -above:
        return inc
    return inc + (1 if left >= 0 and above >= 0 else 2)
