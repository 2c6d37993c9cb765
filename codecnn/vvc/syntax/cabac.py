"""Arithmetic decoder (H.266 clauses 9.3.2.5 and 9.3.4.3) and binarizations (clause 9.3.3).

CABAC codes a sequence of bins as one number. Each bin divides the current range in two in proportion to the
probabilities of 0 and 1, and the number selects the part that becomes the next range. Every bin thus depends on all
bins before it: one misread bin corrupts all that follow, and a slice that ends exactly on its last bit was read
correctly.
"""

import numpy as np

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.state import Work

# `ivl_offset` holds the 9 bits of ivlOffset and 7 bits read ahead, so that a byte is fetched once in eight shifts; the
# standard reads single bits (9.3.4.3.3). A range is shifted by 7 for comparison with it. `bits_needed` counts from -8
# to 0, when the next byte is fetched.


@compiled
def next_byte(w: Work) -> int:
    """Return the next byte of the slice data, 0 after its end.

    Part of clause 9.3.4.3.3, Renormalization process in the arithmetic decoding engine.
    """
    cabac = w.state.cabac
    position = cabac.position
    cabac.position = position + 1
    if position < cabac.end:
        return np.int64(w.data[position])  # type: ignore[return-value]
    # Reading ahead passes the end by a few bytes; further on is a fault, and the caller stops at the next CU.
    if position > cabac.end + 2:
        w.state.fault = st.FAULT_END
    return 0


@compiled
def start_decoder(w: Work) -> None:
    """Initialise the decoder at the next byte.

    Clause 9.3.2.5, Initialization process for the arithmetic decoding engine.
    """
    cabac = w.state.cabac
    cabac.ivl_curr_range = 510
    cabac.bits_needed = -8
    cabac.ivl_offset = next_byte(w) << 8
    cabac.ivl_offset |= next_byte(w)


@compiled
def hash_bin(w: Work, value: int) -> None:
    """Update the hash of bins, a linear congruential one of 31 bit, with one bin.

    The hash distinguishes the coding units of two streams.
    """
    cabac = w.state.cabac
    cabac.bins = (cabac.bins * 1103515245 + value + 1) & 0x7FFFFFFF


@compiled
def decode_bin(w: Work, context: int) -> int:
    """Decode one bin with an adaptive probability.

    Clause 9.3.4.3.2, Arithmetic decoding process for a binary decision.
    Clause 9.3.4.3.3, Renormalization process in the arithmetic decoding engine.

    Args:
        w: State of the parser.
        context: Index of the context variable, ctxInc plus a constant of `contexts`.

    Returns:
        The bin, 0 or 1.
    """
    cabac = w.state.cabac
    variable = w.state.entropy.variables[context]
    # Two estimates of the probability of a 1, of 10 and 14 bits: one adapts quickly, the other is more exact in the
    # long run. Their sum of 15 bits is used; in its upper half, 1 is the more probable symbol.
    state0, state1 = variable.p_state_idx0, variable.p_state_idx1
    probability = state1 + (state0 << 4)
    value_mps = probability >> 14
    scale = (32767 - probability if value_mps else probability) >> 9
    # The less probable symbol takes the upper part of the range, whose size is a product of a few bits of range and
    # probability, and at least 4, so that no bin is impossible.
    current = cabac.ivl_curr_range
    lps = (((current >> 5) * scale) >> 1) + 4
    current -= lps
    value = cabac.ivl_offset
    if value < current << 7:
        result: int = value_mps
    else:
        result = 1 - value_mps
        value -= current << 7
        current = lps
    # Renormalisation (9.3.4.3.3): the range stays between 256 and 510.
    needed = cabac.bits_needed
    while current < 256:
        current <<= 1
        value <<= 1
        needed += 1
        if needed == 0:
            value |= next_byte(w)
            needed = -8
    cabac.ivl_curr_range, cabac.ivl_offset, cabac.bits_needed = current, value, needed
    # Each estimate moves towards the bin by 2^-shift of the difference.
    shift0, shift1 = variable.shift0, variable.shift1
    variable.p_state_idx0 = state0 - (state0 >> shift0) + ((1023 * result) >> shift0)
    variable.p_state_idx1 = state1 - (state1 >> shift1) + ((16383 * result) >> shift1)
    hash_bin(w, result)
    return result


@compiled
def decode_bypass(w: Work) -> int:
    """Decode one equiprobable bin.

    Clause 9.3.4.3.4, Bypass decoding process for binary decisions.

    It uses no context variable and leaves the range unchanged.
    """
    cabac = w.state.cabac
    value = cabac.ivl_offset << 1
    cabac.bits_needed += 1
    if cabac.bits_needed == 0:
        value |= next_byte(w)
        cabac.bits_needed = -8
    scaled = cabac.ivl_curr_range << 7
    if value >= scaled:
        cabac.ivl_offset = value - scaled
        hash_bin(w, 1)
        return 1
    cabac.ivl_offset = value
    hash_bin(w, 0)
    return 0


@compiled
def decode_bypass_bits(w: Work, count: int) -> int:
    """Decode `count` equiprobable bins as an unsigned number of fixed length.

    Clause 9.3.3.7, Fixed-length binarization process.
    """
    value = 0
    for _ in range(count):
        value = value << 1 | decode_bypass(w)
    return value


@compiled
def decode_terminating_one(w: Work) -> None:
    """Decode a bin before termination, which must be 1; set FAULT_TERMINATE otherwise.

    Clause 9.3.4.3.5, Decoding process for binary decisions before termination.

    The last bit read is then the stop bit of the trailing or alignment bits. Zeros must follow up to the next byte,
    where `start_decoder` may continue.
    """
    cabac = w.state.cabac
    cabac.ivl_curr_range -= 2
    if cabac.ivl_offset < cabac.ivl_curr_range << 7 or cabac.position > cabac.end:
        w.state.fault = st.FAULT_TERMINATE
        return
    last = np.int64(w.data[cabac.position - 1])
    if (last << (8 + cabac.bits_needed)) & 0xFF != 0x80:
        w.state.fault = st.FAULT_TERMINATE


@compiled
def truncated_binary(w: Work, top: int) -> int:
    """Decode a bypass value from 0 to `top` in truncated binary.

    Clause 9.3.3.4, Truncated binary binarization process.
    """
    count = top + 1
    bits = 0
    while 1 << (bits + 1) <= count:
        bits += 1
    short = (1 << (bits + 1)) - count
    value = decode_bypass_bits(w, bits)
    if value >= short:
        value = (value << 1 | decode_bypass(w)) - short
    return value


@compiled
def truncated_unary(w: Work, top: int) -> int:
    """Count the bypass ones before a zero, at most `top`: truncated Rice with parameter 0.

    Clause 9.3.3.3, Truncated Rice binarization process.
    """
    value = 0
    while value < top and decode_bypass(w):
        value += 1
    return value


@compiled
def limited_exp_golomb(w: Work, order: int, max_prefix: int, escape_bits: int) -> int:
    """Decode a limited k-th order Exp-Golomb value in bypass bins.

    Clause 9.3.3.6, Limited k-th order Exp-Golomb binarization process.

    Args:
        w: State of the parser.
        order: Order k.
        max_prefix: Length of the longest prefix.
        escape_bits: Length of the suffix after the longest prefix.

    Returns:
        The value.
    """
    prefix = truncated_unary(w, max_prefix)
    bits = escape_bits if prefix == max_prefix else prefix + order
    return (((1 << prefix) - 1) << order) + decode_bypass_bits(w, bits)
