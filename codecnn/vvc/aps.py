"""Adaptation parameter sets (H.266 clauses 7.3.2.6 and 7.3.2.18): of ALF, how many filters a CTU chooses from."""

from typing import NamedTuple

from codecnn.vvc.bits import Bits

ALF_APS, LMCS_APS, SCALING_APS = range(3)
"""Values of aps_params_type (table 6)."""


class AlfFilters(NamedTuple):
    """Numbers of alternative chroma filters and of cross-component filters for Cb and Cr; 0 where there are none."""

    chroma: int
    cc_cb: int
    cc_cr: int


def read_alf_aps(rbsp: bytes) -> tuple[int, AlfFilters] | None:
    """The id and the filter numbers of an ALF parameter set; None for one of LMCS or scaling lists."""
    r = Bits(rbsp)
    kind, number, chroma_present = r.u(3), r.u(5), r.flag()
    if kind != ALF_APS:
        return None
    luma = r.flag()
    chroma, cc_cb, cc_cr = (chroma_present and r.flag() for _ in range(3))
    if luma:
        _skip_luma_filters(r)
    return number, AlfFilters(
        _skip_chroma_filters(r) if chroma else 0,
        _skip_cross_component_filters(r) if cc_cb else 0,
        _skip_cross_component_filters(r) if cc_cr else 0,
    )


def _skip_luma_filters(r: Bits) -> None:
    clip = r.flag()
    filters = r.ue("alf_luma_num_filters_signalled_minus1", 24) + 1
    r.skip(25 * (filters - 1).bit_length())
    for _ in range(12 * filters):
        if r.ue("alf_luma_coeff_abs", 128):
            r.skip(1)
    r.skip(2 * 12 * filters * clip)


def _skip_chroma_filters(r: Bits) -> int:
    clip = r.flag()
    filters = r.ue("alf_chroma_num_alt_filters_minus1", 7) + 1
    for _ in range(filters):
        for _ in range(6):
            if r.ue("alf_chroma_coeff_abs", 128):
                r.skip(1)
        r.skip(2 * 6 * clip)
    return filters


def _skip_cross_component_filters(r: Bits) -> int:
    filters = r.ue("alf_cc_filters_signalled_minus1", 3) + 1
    for _ in range(7 * filters):
        if r.u(3):
            r.skip(1)
    return filters
