"""Residual coding of a transform block (H.266 clause 7.3.11.11).

Levels (quantized coefficients) are coded in sub-blocks of mostly 4x4, from the last significant one back to the DC
along diagonals, because the large levels lie at low frequencies. No bin depends on signs, which go to the log.
"""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass_bits
from codecnn.vvc.syntax.levels import (
    decode_remainder,
    greater_flags,
    rice_parameter,
    significance_context,
    update_statistics,
)
from codecnn.vvc.syntax.log_writer import keep_level
from codecnn.vvc.syntax.records import CODED_STRIDE, LEVEL_STRIDE, TransformBlock
from codecnn.vvc.syntax.scans import SCAN, SCAN_INDEX
from codecnn.vvc.syntax.state import Work

_LAST_OFFSETS = (0, 0, 0, 3, 6, 10, 15)
"""Context offset of last_sig_coeff_x_prefix for luma by log2 of the block size (clause 9.3.4.2.4)."""


@compiled
def clear_levels(tb: TransformBlock, width: int, height: int) -> None:
    """Zero the levels and sub-block flags of a block of `width` x `height` coefficients with its border."""
    abs_level_pass1, abs_level, sb_coded_flag = tb.abs_level_pass1, tb.abs_level, tb.sb_coded_flag
    for row in range(height + 3):
        for at in range(row * LEVEL_STRIDE, row * LEVEL_STRIDE + width + 3):
            abs_level_pass1[at] = abs_level[at] = 0
    for at in range(CODED_STRIDE * CODED_STRIDE):
        sb_coded_flag[at] = 0


@compiled
def sub_block_log2_width(log2_w: int, log2_h: int) -> int:
    """Return log2SbW of a block of 2^log2_w x 2^log2_h coefficients.

    Part of clause 7.3.11.11, Residual coding syntax.

    With the arguments swapped it is log2SbH.
    """
    if log2_w + log2_h > 3:
        if log2_w < 2:
            return log2_w
        if log2_h < 2:
            return 4 - log2_h
    return 1 if min(log2_w, log2_h) < 2 else 2


@compiled
def last_prefix(w: Work, table: int, log2_size: int, log2_coded: int, chroma: bool) -> int:
    """Decode last_sig_coeff_x_prefix or last_sig_coeff_y_prefix in unary.

    Clause 9.3.4.2.4, Derivation process of ctxInc for the syntax elements last_sig_coeff_x_prefix and
    last_sig_coeff_y_prefix.

    Args:
        w: State of the parser.
        table: First context variable of the element.
        log2_size: log2 of the block's width or height.
        log2_coded: log2 of the columns or rows that may have coefficients.
        chroma: The block is one of chroma.

    Returns:
        The prefix.
    """
    top = 2 * log2_coded - 1
    if chroma:
        offset, shift = 20, min((1 << log2_size) >> 3, 2)
    else:
        offset, shift = _LAST_OFFSETS[log2_size], (log2_size + 1) >> 2
    value = 0
    while value < top and decode_bin(w, table + offset + (value >> shift)):
        value += 1
    return value


@compiled
def last_position(w: Work, prefix: int) -> int:
    """Derive LastSignificantCoeffX or Y from its prefix and, if there is one, a suffix.

    Part of clause 7.4.12.11, Residual coding semantics.
    """
    if prefix <= 3:
        return prefix
    bits = (prefix >> 1) - 1
    return ((2 + (prefix & 1)) << bits) + decode_bypass_bits(w, bits)


@compiled
def next_state(state: int, parity: int) -> int:
    """Look up QStateTransTable, packed in four bits for each state, two for each parity.

    Part of clause 7.4.12.11, Residual coding semantics.

    Dependent quantization has two quantizers, and the parities of the levels so far choose between them. States 0 and 1
    use the even multiples of the step, 2 and 3 the odd multiples and zero; the probability that a level is significant
    differs between them, so that they have separate contexts.
    """
    return (32040 >> ((state << 2) + (parity << 1))) & 3


@compiled
def budget_of_block(log2_w: int, log2_h: int) -> int:
    """Return RemCcbs, the largest number of context coded bins of a block.

    Part of clause 7.3.11.11, Residual coding syntax.

    It is 7/4 for each coefficient; all further bins are bypass bins.
    """
    return ((1 << (log2_w + log2_h)) * 7) >> 2


@compiled
def residual_coding(w: Work, log2_width: int, log2_height: int, component: int, transform_skip: bool) -> None:
    """Parse the levels of one transform block.

    Clause 7.3.11.11, Residual coding syntax.

    Args:
        w: State of the parser.
        log2_width: log2 of the width in samples.
        log2_height: log2 of the height in samples.
        component: 0 Y, 1 Cb, 2 Cr.
        transform_skip: transform_skip_flag of the block.
    """
    s = w.state
    tb, cu = s.tb, s.cu
    chroma = component > 0
    # Coefficients beyond 32 are zero, and beyond 16 if MTS is used in a sub-block transform.
    log2_w, log2_h = min(log2_width, 5), min(log2_height, 5)
    if s.slice.sps_mts_enabled_flag and cu.cu_sbt_flag and not chroma and log2_width < 6 and log2_height < 6:
        log2_w = 4 if log2_width == 5 else log2_w
        log2_h = 4 if log2_height == 5 else log2_h
    # Both prefixes precede both suffixes, so that context coded bins come before bypass bins.
    prefix_x = prefix_y = 0
    if log2_w > 0:
        prefix_x = last_prefix(w, c.LAST_SIG_COEFF_X_PREFIX, log2_width, log2_w, chroma)
    if log2_h > 0:
        prefix_y = last_prefix(w, c.LAST_SIG_COEFF_Y_PREFIX, log2_height, log2_h, chroma)
    last_x = last_position(w, prefix_x)
    last_y = last_position(w, prefix_y)
    if s.slice.sh_reverse_last_sig_coeff_flag:
        last_x, last_y = (1 << log2_w) - 1 - last_x, (1 << log2_h) - 1 - last_y
    log2_sw, log2_sh = sub_block_log2_width(log2_w, log2_h), sub_block_log2_width(log2_h, log2_w)
    log2_nx, log2_ny = log2_w - log2_sw, log2_h - log2_sh
    last_sub_block = SCAN_INDEX[log2_nx, log2_ny, ((last_y >> log2_sh) << log2_nx) + (last_x >> log2_sw)]
    inside = ((last_y & ((1 << log2_sh) - 1)) << log2_sw) + (last_x & ((1 << log2_sw) - 1))
    last_scan = SCAN_INDEX[log2_sw, log2_sh, inside]

    # Conditions of lfnst_idx and mts_idx, which follow the residual (clause 7.3.11.5): a secondary transform is not
    # used for a DC alone, and it has no coefficients after the first 16 (for 4x4 and 8x8, 8).
    large = log2_width >= 2 and log2_height >= 2
    if last_sub_block == 0 and large and not transform_skip and last_scan > 0:
        cu.lfnst_dc_only = 0
    small_square = log2_width == log2_height and (log2_width == 2 or log2_width == 3)
    if (last_sub_block > 0 and large) or (last_scan > 7 and small_square):
        cu.lfnst_zero_out_sig_coeff_flag = 0
    if (last_sub_block > 0 or last_scan > 0) and not chroma:
        cu.mts_dc_only = 0

    clear_levels(tb, 1 << log2_w, 1 << log2_h)
    tb.rem_ccbs, tb.q_state = budget_of_block(log2_w, log2_h), 0
    tb.width, tb.height, tb.c_idx = 1 << log2_width, 1 << log2_height, component
    tb.hist_value, tb.update_hist = 1 << s.stat_coeff[component], s.slice.sps_persistent_rice_adaptation_enabled_flag
    for i in range(last_sub_block, -1, -1):
        xs, ys = SCAN[log2_nx, log2_ny, i, 0], SCAN[log2_nx, log2_ny, i, 1]
        at = (ys + 1) * CODED_STRIDE + xs + 1
        coded = 1
        infer_dc = False
        if 0 < i < last_sub_block:
            neighbours = tb.sb_coded_flag[at + 1] | tb.sb_coded_flag[at + CODED_STRIDE]
            coded = decode_bin(w, c.SB_CODED_FLAG + neighbours + 2 * chroma)
            infer_dc = True
        tb.sb_coded_flag[at] = coded
        if not coded:
            continue
        # MTS keeps 16x16 coefficients (MtsZeroOutSigCoeffFlag), so a level further out excludes it.
        if (xs > 3 or ys > 3) and not chroma:
            cu.mts_zero_out_sig_coeff_flag = 0
        first = last_scan if i == last_sub_block else (1 << (log2_sw + log2_sh)) - 1
        origin = ((ys << log2_sh) + 1) * LEVEL_STRIDE + (xs << log2_sw) + 1
        diagonal = (xs << log2_sw) + (ys << log2_sh)
        sub_block(w, origin, diagonal, log2_sw, log2_sh, first, i == last_sub_block, infer_dc, chroma)


@compiled
def sub_block(
    w: Work,
    origin: int,
    diagonal0: int,
    log2_sw: int,
    log2_sh: int,
    first: int,
    has_last: bool,
    infer_dc: bool,
    chroma: bool,
) -> None:
    """Parse one coded sub-block in three passes.

    Part of clause 7.3.11.11, Residual coding syntax.

    Args:
        w: State of the parser.
        origin: Position of the sub-block in the planes of levels.
        diagonal0: x + y of its first coefficient in the block.
        log2_sw: log2 of its width.
        log2_sh: log2 of its height.
        first: Place in the scan to start from, down to 0.
        has_last: The coefficient at `first` is the last significant one of the block.
        infer_dc: sb_coded_flag was decoded, so that not all levels are zero.
        chroma: The block is one of chroma.
    """
    s = w.state
    tb, dep_quant = s.tb, s.slice.sh_dep_quant_used_flag
    budget, state = tb.rem_ccbs, tb.q_state
    first_state = state
    # First pass, context coded: significance, greater than 1, parity, greater than 3. These are at most four bins for
    # each level, so the pass ends when fewer remain of the budget.
    place = first
    while place >= 0 and budget >= 4:
        x, y = SCAN[log2_sw, log2_sh, place, 0], SCAN[log2_sw, log2_sh, place, 1]
        at = origin + y * LEVEL_STRIDE + x
        diagonal = diagonal0 + x + y
        is_last = has_last and place == first
        significant = 1
        if not is_last and (place > 0 or not infer_dc):
            significant = decode_bin(w, c.SIG_COEFF_FLAG + significance_context(w, at, diagonal, chroma, state))
            budget -= 1
        level = 0
        if significant:
            infer_dc = False
            level, used = greater_flags(w, at, diagonal, chroma, is_last)
            budget -= used
        tb.abs_level_pass1[at] = level
        if dep_quant:
            state = next_state(state, level & 1)
        place -= 1
    # Second pass: remainders of the levels of the first pass, in bypass bins and in steps of 2, as the parity is known.
    end_of_pass1 = place
    highest, lowest, count = -1, 0, 0
    for place in range(first, end_of_pass1, -1):
        at = origin + SCAN[log2_sw, log2_sh, place, 1] * LEVEL_STRIDE + SCAN[log2_sw, log2_sh, place, 0]
        level = tb.abs_level_pass1[at]
        if level > 3:  # abs_level_gtx_flag[ n ][ 1 ]
            remainder = decode_remainder(w, rice_parameter(w, at, s.slice.sum_base_level))
            update_statistics(w, remainder, 2)
            level += 2 * remainder
        tb.abs_level[at] = level
        if level:
            highest = place if highest < 0 else highest
            lowest = place
            count += 1
    # Third pass: whole levels in bypass bins. Where 0 is unlikely it does not have the shortest code: ZeroPos (9.3.3.2)
    # is the value that means 0, and the values below it mean levels greater by one.
    for place in range(end_of_pass1, -1, -1):
        at = origin + SCAN[log2_sw, log2_sh, place, 1] * LEVEL_STRIDE + SCAN[log2_sw, log2_sh, place, 0]
        rice = rice_parameter(w, at, 0)
        level = decode_remainder(w, rice)
        update_statistics(w, level, 0)
        zero = (1 if state < 2 else 2) << rice
        level = 0 if level == zero else level + (level < zero)
        tb.abs_level[at] = level
        if level:
            highest = place if highest < 0 else highest
            lowest = place
            count += 1
        if dep_quant:
            state = next_state(state, level & 1)
    # Sign data hiding: in a sub-block whose levels lie far apart, the parity of their sum is the sign of the last one.
    if w.state.slice.sh_sign_data_hiding_used_flag and highest - lowest > 3:
        count -= 1
    signs = decode_bypass_bits(w, count)
    if s.current.keep_log:
        keep_sub_block(w, origin, log2_sw, log2_sh, first, first_state, signs, count)
    tb.rem_ccbs, tb.q_state = budget, state


@compiled
def keep_sub_block(
    w: Work,
    origin: int,
    log2_sw: int,
    log2_sh: int,
    first: int,
    state: int,
    signs: int,
    count: int,
) -> None:
    """Append the levels of a sub-block with their signs, TransCoeffLevel, to the log.

    Part of clause 7.3.11.11, Residual coding syntax.

    Args:
        w: State of the parser.
        origin: Position of the sub-block in the planes of levels.
        log2_sw: log2 of its width.
        log2_sh: log2 of its height.
        first: Place in the scan to start from.
        state: State of dependent quantization at `first`.
        signs: coeff_sign_flag of the levels, the first in the most significant bit.
        count: Number of signs.
    """
    s = w.state
    total = 0
    for place in range(first, -1, -1):
        at = origin + SCAN[log2_sw, log2_sh, place, 1] * LEVEL_STRIDE + SCAN[log2_sw, log2_sh, place, 0]
        level = s.tb.abs_level[at]
        if level:
            total += level
            count -= 1
            # A hidden last sign is the parity of the sum.
            negative = (signs >> count) & 1 if count >= 0 else total & 1
            keep_level(w, at, -level if negative else level, state >> 1)
        if s.slice.sh_dep_quant_used_flag:
            state = next_state(state, level & 1)
