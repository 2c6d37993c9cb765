"""Adaptation parameter sets of ALF, LMCS and scaling lists (H.266 clauses 7.3.2.6 and 7.3.2.18 to 7.3.2.20)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import FormatError
from codecnn.vvc.syntax.bitstream import Bits
from codecnn.vvc.syntax.scans import SCAN

ALF_APS, LMCS_APS, SCALING_APS = range(3)
"""Values of aps_params_type (table 6)."""


ALF_CLASSES = 25
"""NumAlfFilters: classes of 4x4 luma samples."""

Coefficients = npt.NDArray[np.int32]


class AlfFilters(NamedTuple):
    """Filters of an ALF parameter set; an array has the length 0 if the parameter set has none of that kind.

    Attributes:
        luma: Coefficients of each class (AlfCoeffL), shape (25, 12).
        luma_clip: Clipping indices of each class (alf_luma_clip_idx), shape (25, 12).
        chroma: Coefficients of each alternative (AlfCoeffC), shape (n, 6).
        chroma_clip: Clipping indices of each alternative (alf_chroma_clip_idx), shape (n, 6).
        cc_cb: Coefficients of the cross-component filters for Cb (CcAlfApsCoeffCb), shape (n, 7).
        cc_cr: Coefficients of the cross-component filters for Cr (CcAlfApsCoeffCr), shape (n, 7).
    """

    luma: Coefficients
    luma_clip: Coefficients
    chroma: Coefficients
    chroma_clip: Coefficients
    cc_cb: Coefficients
    cc_cr: Coefficients


def read_alf_aps(rbsp: bytes) -> tuple[int, AlfFilters] | None:
    """Read an ALF parameter set (clauses 7.3.2.18 and 7.4.3.18).

    Args:
        rbsp: Payload of the APS.

    Returns:
        The id and the filters, or None if the APS holds LMCS or scaling list data.

    Raises:
        FormatError: The data is damaged.
    """
    r = Bits(rbsp)
    kind, number, chroma_present = r.u(3), r.u(5), r.flag()
    if kind != ALF_APS:
        return None
    has_luma = r.flag()
    has_chroma, has_cc_cb, has_cc_cr = (chroma_present and r.flag() for _ in range(3))
    luma = _read_luma_filters(r) if has_luma else (np.zeros((0, 12), np.int32),) * 2
    chroma = _read_chroma_filters(r) if has_chroma else (np.zeros((0, 6), np.int32),) * 2
    cross = [
        _read_cross_component_filters(r) if present else np.zeros((0, 7), np.int32)
        for present in (has_cc_cb, has_cc_cr)
    ]
    return number, AlfFilters(*luma, *chroma, *cross)


def _read_luma_filters(r: Bits) -> tuple[Coefficients, Coefficients]:
    """Read the luma filters and assign them to the classes."""
    clip = r.flag()
    count = r.ue("alf_luma_num_filters_signalled_minus1", ALF_CLASSES - 1) + 1
    bits = (count - 1).bit_length()
    filter_of_class = [r.u(bits) for _ in range(ALF_CLASSES)]
    if max(filter_of_class) >= count:
        raise FormatError(f"alf_luma_coeff_delta_idx is {max(filter_of_class)}, but there are {count} filters")
    coefficients = _read_coefficients(r, "alf_luma_coeff_abs", count, 12)
    indices = _read_clipping_indices(r, count, 12) if clip else np.zeros_like(coefficients)
    return coefficients[filter_of_class], indices[filter_of_class]


def _read_chroma_filters(r: Bits) -> tuple[Coefficients, Coefficients]:
    """Read the alternative chroma filters."""
    clip = r.flag()
    count = r.ue("alf_chroma_num_alt_filters_minus1", 7) + 1
    coefficients, indices = np.zeros((count, 6), np.int32), np.zeros((count, 6), np.int32)
    for i in range(count):
        coefficients[i] = _read_coefficients(r, "alf_chroma_coeff_abs", 1, 6)
        if clip:
            indices[i] = _read_clipping_indices(r, 1, 6)
    return coefficients, indices


def _read_coefficients(r: Bits, name: str, filters: int, taps: int) -> Coefficients:
    values = []
    for _ in range(filters * taps):
        magnitude = r.ue(name, 128)
        values.append(-magnitude if magnitude and r.flag() else magnitude)
    return np.array(values, np.int32).reshape(filters, taps)


def _read_clipping_indices(r: Bits, filters: int, taps: int) -> Coefficients:
    return np.array([r.u(2) for _ in range(filters * taps)], np.int32).reshape(filters, taps)


def _read_cross_component_filters(r: Bits) -> Coefficients:
    """Read the cross-component filters of one component, whose coefficients are 0 or powers of two."""
    filters = r.ue("alf_cc_filters_signalled_minus1", 3) + 1
    values = []
    for _ in range(7 * filters):
        code = r.u(3)
        magnitude = 1 << (code - 1) if code else 0
        values.append(-magnitude if code and r.flag() else magnitude)
    return np.array(values, np.int32).reshape(filters, 7)


_BINS = 16
"""Number of bins of the mapping function."""

_PRECISION = 11
"""Fractional bits of the scale factors."""


class LumaMapping(NamedTuple):
    """Luma mapping with chroma scaling, as derived from lmcs_data() (clause 7.4.3.19).

    Attributes:
        first: lmcs_min_bin_idx.
        last: LmcsMaxBinIdx.
        pivot: LmcsPivot, 17 values.
        scale: ScaleCoeff, 16 values.
        inverse_scale: InvScaleCoeff, 16 values.
        chroma_scale: ChromaScaleCoeff, 16 values.
    """

    first: int
    last: int
    pivot: tuple[int, ...]
    scale: tuple[int, ...]
    inverse_scale: tuple[int, ...]
    chroma_scale: tuple[int, ...]


def read_lmcs_aps(rbsp: bytes, bit_depth: int) -> LumaMapping:
    """Read an LMCS parameter set (clauses 7.3.2.19 and 7.4.3.19).

    Args:
        rbsp: Payload of the APS.
        bit_depth: Bit depth of the samples.

    Returns:
        The mapping.

    Raises:
        FormatError: The data is damaged, the bins have more codewords in all than there are sample values, or a bin has
            more or fewer than allowed.
    """
    r = Bits(rbsp)
    r.skip(8)
    chroma_present = r.flag()
    first = r.ue("lmcs_min_bin_idx", 15)
    last = 15 - r.ue("lmcs_delta_max_bin_idx", 15)
    if last < first:
        raise FormatError(f"the first bin of LMCS, {first}, comes after the last, {last}")
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
            raise FormatError(f"a bin of LMCS has {word} codewords, not {original >> 3} to {(original << 3) - 1}")
    if sum(words) >= 1 << bit_depth:
        raise FormatError(f"LMCS has {sum(words)} codewords, too many for {bit_depth} bit")
    unity, log2 = 1 << _PRECISION, original.bit_length() - 1
    return LumaMapping(
        first,
        last,
        tuple(sum(words[:i]) for i in range(_BINS + 1)),
        tuple((word * unity + (1 << (log2 - 1))) >> log2 for word in words),
        tuple(original * unity // word if word else 0 for word in words),
        tuple(original * unity // (word + delta) if word else unity for word in words),
    )


def inverse_map(mapping: LumaMapping, bit_depth: int) -> tuple[int, ...]:
    """Tabulate the inverse luma mapping (clause 8.8.2.2).

    Args:
        mapping: The mapping.
        bit_depth: Bit depth of the samples.

    Returns:
        The luma sample for each mapped sample, 2^bit_depth values.
    """
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


_LISTS = 28
"""Number of scaling lists."""

_FLAT = 16
"""Scaling factor without scaling lists."""


class ScalingList(NamedTuple):
    """One scaling list.

    Attributes:
        side: Width and height of the matrix, 2, 4 or 8.
        entries: The side * side entries of the matrix, row by row.
        dc: Scaling factor of the DC coefficient in blocks larger than 8x8.
    """

    side: int
    entries: tuple[int, ...]
    dc: int


def _side_of(number: int) -> int:
    """Return matrixSize of list `number`: 2 for the first two lists, 4 up to list 7, then 8."""
    return 2 if number < 2 else 4 if number < 8 else 8


def read_scaling_list_aps(rbsp: bytes) -> list[ScalingList]:
    """Read a scaling list parameter set, scaling_list_data() (clauses 7.3.2.20 and 7.4.3.20).

    Args:
        rbsp: Payload of the APS.

    Returns:
        The 28 scaling lists by their id.

    Raises:
        FormatError: The data is damaged.
    """
    r = Bits(rbsp)
    r.skip(8)
    chroma_present = r.flag()
    lists: list[ScalingList] = []
    for number in range(_LISTS):
        side = _side_of(number)
        flat = ScalingList(side, (_FLAT,) * (side * side), _FLAT)
        # Every third list is one of luma, as is the last.
        if not (chroma_present or number % 3 == 2 or number == _LISTS - 1):
            lists.append(flat)
            continue
        copied = r.flag()
        predicted = copied or r.flag()
        reference = flat
        if predicted and number not in (0, 2, 8):
            least = 0 if number < 2 else 2 if number < 8 else 8
            delta = r.ue("scaling_list_pred_id_delta", number - least)
            reference = lists[number - delta] if delta else flat
        if copied:
            lists.append(reference)
        else:
            lists.append(_read_list(r, number, side, reference if predicted else None))
    return lists


def _read_list(r: Bits, number: int, side: int, reference: ScalingList | None) -> ScalingList:
    entries = [0] * (side * side)
    value = 0 if reference else 8
    dc = 0
    if number > 13:
        value += r.se("scaling_list_dc_coef", -128, 127)
        dc = (value + (reference.dc if reference else 0)) & 255
        if dc == 0:
            raise FormatError(f"scaling_list_dc_coef of list {number} gives the factor 0")
    log2 = side.bit_length() - 1
    for x, y in SCAN[log2, log2, : side * side].tolist():
        if number > 25 and x >= 4 and y >= 4:
            continue
        value += r.se("scaling_list_delta_coef", -128, 127)
        at = side * y + x
        entries[at] = (value + (reference.entries[at] if reference else 0)) & 255
    return ScalingList(side, tuple(entries), dc if number > 13 else entries[0])
