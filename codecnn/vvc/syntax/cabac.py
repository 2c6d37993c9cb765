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

# VALUE holds the 9 bits of ivlOffset and 7 bits read ahead, so that a byte is fetched once in eight shifts; the
# standard reads single bits (9.3.4.3.3). A range is shifted by 7 for comparison with it. NEEDED counts from -8 to 0,
# when the next byte is fetched.


@compiled
def next_byte(w: Work) -> int:
    """Return the next byte of the slice data, 0 after its end."""
    n = w.n
    position = n[st.POSITION]
    n[st.POSITION] = position + 1
    if position < n[st.END]:
        return np.int64(w.data[position])  # type: ignore[return-value]
    # Reading ahead passes the end by a few bytes; further on is a fault, and the caller stops at the next CU.
    if position > n[st.END] + 2:
        n[st.FAULT] = st.FAULT_END
    return 0


@compiled
def start_decoder(w: Work) -> None:
    """Initialise the decoder at the next byte (clause 9.3.2.5)."""
    n = w.n
    n[st.RANGE] = 510
    n[st.NEEDED] = -8
    n[st.VALUE] = next_byte(w) << 8
    n[st.VALUE] |= next_byte(w)


@compiled
def hash_bin(w: Work, value: int) -> None:
    """Update the hash of bins, a linear congruential one of 31 bit, with one bin.

    The hash distinguishes the coding units of two streams.
    """
    w.n[st.BINS] = (w.n[st.BINS] * 1103515245 + value + 1) & 0x7FFFFFFF


@compiled
def decode_bin(w: Work, context: int) -> int:
    """Decode one bin with an adaptive probability (clause 9.3.4.3.2).

    Args:
        w: State of the parser.
        context: Index of the context variable, ctxInc plus a constant of `contexts`.

    Returns:
        The bin, 0 or 1.
    """
    n = w.n
    at = st.CONTEXTS + 4 * context
    # Two estimates of the probability of a 1, of 10 and 14 bits: one adapts quickly, the other is more exact in the
    # long run. Their sum of 15 bits is used; in its upper half, 1 is the more probable symbol.
    state0, state1 = n[at], n[at + 1]
    probability = state1 + (state0 << 4)
    value_mps = probability >> 14
    scale = (32767 - probability if value_mps else probability) >> 9
    # The less probable symbol takes the upper part of the range, whose size is a product of a few bits of range and
    # probability, and at least 4, so that no bin is impossible.
    current = n[st.RANGE]
    lps = (((current >> 5) * scale) >> 1) + 4
    current -= lps
    value = n[st.VALUE]
    if value < current << 7:
        result: int = value_mps
    else:
        result = 1 - value_mps
        value -= current << 7
        current = lps
    # Renormalisation (9.3.4.3.3): the range stays between 256 and 510.
    needed = n[st.NEEDED]
    while current < 256:
        current <<= 1
        value <<= 1
        needed += 1
        if needed == 0:
            value |= next_byte(w)
            needed = -8
    n[st.RANGE], n[st.VALUE], n[st.NEEDED] = current, value, needed
    # Each estimate moves towards the bin by 2^-shift of the difference.
    shift0, shift1 = n[at + 2], n[at + 3]
    n[at] = state0 - (state0 >> shift0) + ((1023 * result) >> shift0)
    n[at + 1] = state1 - (state1 >> shift1) + ((16383 * result) >> shift1)
    hash_bin(w, result)
    return result


@compiled
def decode_bypass(w: Work) -> int:
    """Decode one equiprobable bin (clause 9.3.4.3.4).

    It uses no context variable and leaves the range unchanged.
    """
    n = w.n
    value = n[st.VALUE] << 1
    n[st.NEEDED] += 1
    if n[st.NEEDED] == 0:
        value |= next_byte(w)
        n[st.NEEDED] = -8
    scaled = n[st.RANGE] << 7
    if value >= scaled:
        n[st.VALUE] = value - scaled
        hash_bin(w, 1)
        return 1
    n[st.VALUE] = value
    hash_bin(w, 0)
    return 0


@compiled
def decode_bypass_bits(w: Work, count: int) -> int:
    """Decode `count` equiprobable bins as an unsigned number of fixed length (clause 9.3.3.7)."""
    value = 0
    for _ in range(count):
        value = value << 1 | decode_bypass(w)
    return value


@compiled
def decode_terminating_one(w: Work) -> None:
    """Decode a bin before termination (clause 9.3.4.3.5), which must be 1; set FAULT_TERMINATE otherwise.

    The last bit read is then the stop bit of the trailing or alignment bits. Zeros must follow up to the next byte,
    where `start_decoder` may continue.
    """
    n = w.n
    n[st.RANGE] -= 2
    if n[st.VALUE] < n[st.RANGE] << 7 or n[st.POSITION] > n[st.END]:
        n[st.FAULT] = st.FAULT_TERMINATE
        return
    last = np.int64(w.data[n[st.POSITION] - 1])
    if (last << (8 + n[st.NEEDED])) & 0xFF != 0x80:
        n[st.FAULT] = st.FAULT_TERMINATE


@compiled
def truncated_binary(w: Work, top: int) -> int:
    """Decode a bypass value from 0 to `top` in truncated binary (clause 9.3.3.4)."""
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
    """Count the bypass ones before a zero, at most `top`: truncated Rice with parameter 0 (clause 9.3.3.3)."""
    value = 0
    while value < top and decode_bypass(w):
        value += 1
    return value


@compiled
def limited_exp_golomb(w: Work, order: int, max_prefix: int, escape_bits: int) -> int:
    """Decode a limited k-th order Exp-Golomb value in bypass bins (clause 9.3.3.6).

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
