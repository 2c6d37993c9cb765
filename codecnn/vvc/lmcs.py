"""Luma mapping with chroma scaling: its parameter set (H.266 clauses 7.3.2.19, 7.4.3.19) and what follows from it."""

from typing import NamedTuple

from codecnn.errors import FormatError
from codecnn.vvc.bits import Bits

_BINS = 16
_PRECISION = 11


class LumaMapping(NamedTuple):
    """lmcs_min_bin_idx and LmcsMaxBinIdx, LmcsPivot (17), ScaleCoeff, InvScaleCoeff and ChromaScaleCoeff (16 each)."""

    first: int
    last: int
    pivot: tuple[int, ...]
    scale: tuple[int, ...]
    inverse_scale: tuple[int, ...]
    chroma_scale: tuple[int, ...]


def read_lmcs_aps(rbsp: bytes, bit_depth: int) -> LumaMapping:
    """lmcs_data(). Raises FormatError where code words are more than there are, or too many or few of one bin."""
    r = Bits(rbsp)
    r.skip(8)
    chroma_present = r.flag()
    first = r.ue("lmcs_min_bin_idx", 15)
    last = 15 - r.ue("lmcs_delta_max_bin_idx", 15)
    if last < first:
        raise FormatError(f"LMCS goes from bin {first} to bin {last}")
    bits = r.ue("lmcs_delta_cw_prec_minus1", 14) + 1
    original = (1 << bit_depth) // _BINS
    words = [0] * _BINS
    for i in range(first, last + 1):
        magnitude = r.u(bits)
        words[i] = original + (-magnitude if magnitude and r.flag() else magnitude)
    magnitude = r.u(3) if chroma_present else 0
    delta = -magnitude if magnitude and r.flag() else magnitude
    for word in words[first : last + 1]:
        if not original >> 3 <= min(word, word + delta) <= max(word, word + delta) < original << 3:
            raise FormatError(f"a bin of LMCS has {word} code words, not {original >> 3} to {(original << 3) - 1}")
    if sum(words) >= 1 << bit_depth:
        raise FormatError(f"LMCS has {sum(words)} code words for {bit_depth} bit")
    one, log2 = 1 << _PRECISION, original.bit_length() - 1
    return LumaMapping(
        first,
        last,
        tuple(sum(words[:i]) for i in range(_BINS + 1)),
        tuple((word * one + (1 << (log2 - 1))) >> log2 for word in words),
        tuple(original * one // word if word else 0 for word in words),
        tuple(original * one // (word + delta) if word else one for word in words),
    )


def inverse_map(mapping: LumaMapping, bit_depth: int) -> tuple[int, ...]:
    """The luma sample of every mapped one (clause 8.8.2.2), 2^bit_depth of them."""
    original = (1 << bit_depth) // _BINS
    samples = []
    for mapped in range(1 << bit_depth):
        i = mapping.first
        while i <= mapping.last and mapped >= mapping.pivot[i + 1]:
            i += 1
        i = min(i, _BINS - 1)
        sample = original * i + ((mapping.inverse_scale[i] * (mapped - mapping.pivot[i]) + 1024) >> _PRECISION)
        samples.append(min(max(sample, 0), (1 << bit_depth) - 1))
    return tuple(samples)
