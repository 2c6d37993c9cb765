"""Levels of a transform block: their contexts, Rice parameters and codes (H.266 clauses 9.3.3 and 9.3.4.2).

The levels already read, to the right and below, indicate how large the next one may be; contexts and Rice parameters
depend on them.
"""

from codecnn.base.compiled import compiled
from codecnn.base.records import Array
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass_bits, limited_exp_golomb, truncated_unary
from codecnn.vvc.syntax.records import LEVEL_STRIDE
from codecnn.vvc.syntax.state import Work


@compiled
def local_sum(plane: Array[int], at: int) -> int:
    """Sum the five neighbours to the right and below.

    Part of clause 9.3.4.2.7, Derivation process for the variables locNumSig, locSumAbsPass1.
    Part of clause 9.3.3.2, Rice parameter derivation process for abs_remainder and dec_abs_level.

    They come earlier in the reversed scan. The planes of levels have a border of zeros for neighbours outside the
    block.
    """
    below = at + LEVEL_STRIDE
    return plane[at + 1] + plane[at + 2] + plane[below] + plane[below + 1] + plane[below + LEVEL_STRIDE]


@compiled
def local_count(plane: Array[int], at: int) -> int:
    """Count the neighbours of `local_sum` that are not 0 (locNumSig).

    Part of clause 9.3.4.2.7, Derivation process for the variables locNumSig, locSumAbsPass1.
    """
    below = at + LEVEL_STRIDE
    count = min(plane[at + 1], 1) + min(plane[at + 2], 1) + min(plane[below], 1) + min(plane[below + 1], 1)
    return count + min(plane[below + LEVEL_STRIDE], 1)


@compiled
def rice_parameter(w: Work, at: int, base: int) -> int:
    """Derive cRiceParam from the neighbouring levels (table 128).

    Clause 9.3.3.2, Rice parameter derivation process for abs_remainder and dec_abs_level.

    A larger parameter lengthens the fixed part of the code and shortens the unary part.

    Args:
        w: State of the parser.
        at: Position in the planes of levels.
        base: Amount that the first pass has coded of the five neighbours: `sum_base_level` of the slice for
            abs_remainder, 0 for dec_abs_level.

    Returns:
        The Rice parameter.
    """
    s = w.state
    total = local_sum(s.tb.abs_level, at)
    shift = 0
    if s.slice.sps_persistent_rice_adaptation_enabled_flag:
        total += count_outside(w, at) * s.tb.hist_value
    if s.slice.sps_rrc_rice_extension_flag:
        # ShiftLevel of the range extensions.
        shift = 2 * (int(total >= 32) + int(total >= 128) + int(total >= 512) + int(total >= 2048))
        total >>= shift
    total = min(max(total - base, 0), 31)
    return int(total >= 7) + int(total >= 14) + int(total >= 28) + shift


@compiled
def count_outside(w: Work, at: int) -> int:
    """Count the neighbours of `local_sum` that count as outside the block.

    Part of clause 9.3.3.2, Rice parameter derivation process for abs_remainder and dec_abs_level.
    """
    s = w.state
    right = s.tb.width - at % LEVEL_STRIDE
    below = s.tb.height - at // LEVEL_STRIDE
    count = 2 if right == 0 else int(right == 1) + int(below == 0)
    return count + (1 if below == 0 else int(below == 1))


@compiled
def update_statistics(w: Work, remainder: int, more: int) -> None:
    """Update StatCoeff with the first non-zero remainder of a block.

    Part of clause 7.3.11.11, Residual coding syntax.

    Args:
        w: State of the parser.
        remainder: abs_remainder or dec_abs_level.
        more: 2 for abs_remainder, 0 for dec_abs_level.
    """
    s = w.state
    if s.tb.update_hist and remainder > 0:
        s.tb.update_hist = 0
        bits = 0
        while remainder >> (bits + 1):
            bits += 1
        s.stat_coeff[s.tb.c_idx] = (s.stat_coeff[s.tb.c_idx] + bits + more) >> 1


@compiled
def decode_remainder(w: Work, rice: int) -> int:
    """Decode abs_remainder or dec_abs_level.

    Clause 9.3.3.11, Binarization process for abs_remainder.

    Levels have 16 bits, more with extended precision.
    """
    prefix = truncated_unary(w, 6)
    if prefix < 6:
        return (prefix << rice) + decode_bypass_bits(w, rice)
    transform_range = w.state.slice.log2_transform_range
    return (6 << rice) + limited_exp_golomb(w, rice + 1, 26 - transform_range, transform_range)


@compiled
def significance_context(w: Work, at: int, diagonal: int, chroma: bool, state: int) -> int:
    """Derive ctxInc of sig_coeff_flag.

    Clause 9.3.4.2.8, Derivation process of ctxInc for the syntax element sig_coeff_flag.
    """
    base = min((local_sum(w.state.tb.abs_level_pass1, at) + 1) >> 1, 3)
    if chroma:
        return 36 + 8 * max(0, state - 1) + base + (4 if diagonal < 2 else 0)
    return 12 * max(0, state - 1) + base + (8 if diagonal < 2 else 4 if diagonal < 5 else 0)


@compiled
def greater_flags(w: Work, at: int, diagonal: int, chroma: bool, is_last: bool) -> tuple[int, int]:
    """Decode abs_level_gtx_flag and par_level_flag of a significant level.

    Clause 9.3.4.2.9, Derivation process of ctxInc for the syntax elements par_level_flag and abs_level_gtx_flag.
    Part of clause 7.3.11.11, Residual coding syntax.

    Returns:
        AbsLevelPass1 and the number of bins.
    """
    if is_last:
        inc = 21 if chroma else 0
    else:
        plane = w.state.tb.abs_level_pass1
        offset = min(local_sum(plane, at) - local_count(plane, at), 4)
        if chroma:
            inc = 22 + offset + (5 if diagonal == 0 else 0)
        else:
            inc = 1 + offset + (15 if diagonal == 0 else 10 if diagonal < 3 else 5 if diagonal < 10 else 0)
    if not decode_bin(w, c.ABS_LEVEL_GTX_FLAG + inc):
        return 1, 1
    parity = decode_bin(w, c.PAR_LEVEL_FLAG + inc)
    more = decode_bin(w, c.ABS_LEVEL_GTX_FLAG + 32 + inc)
    return 2 + parity + 2 * more, 3
