"""Luma of one network and chroma of another as one filter."""

import numpy as np
import pytest

from codecnn.base.errors import ConfigError
from codecnn.filtering import JoinedFilter, filter_key, load_filter
from codecnn.pictures.files import Picture


def noise(bit_depth: int = 8) -> Picture:
    rng = np.random.default_rng(1)
    planes = [rng.integers(0, 256, size, dtype=np.uint8) for size in ((48, 64), (24, 32), (24, 32))]
    return Picture(tuple(planes), bit_depth)


def test_each_component_is_that_of_its_network():
    luma, chroma = load_filter("low_cost_5"), load_filter("low_cost_yuv_17")
    joined, picture = JoinedFilter(luma, chroma), noise()
    filtered = joined(picture, 32)
    assert joined.planes == ("rec_y", "qp", "rec_u", "rec_v")
    np.testing.assert_array_equal(filtered.y, luma(picture, 32).y)
    for component in (1, 2):
        np.testing.assert_array_equal(filtered.planes[component], chroma(picture, 32).planes[component])
    assert (filtered.y != chroma(picture, 32).y).any()


def test_key_depends_on_both_networks():
    five, seventeen, colour = (load_filter(name) for name in ("low_cost_5", "low_cost_17", "low_cost_yuv_17"))
    pairs = [(five, colour), (seventeen, colour), (colour, colour)]
    assert len({filter_key(JoinedFilter(*pair)) for pair in pairs} | {filter_key(colour)}) == 4
    assert filter_key(JoinedFilter(five, colour)) == filter_key(JoinedFilter(load_filter("low_cost_5"), colour))


def test_a_network_of_luma_is_refused_for_chroma():
    with pytest.raises(ConfigError, match="does not filter chroma"):
        JoinedFilter(load_filter("low_cost_5"), load_filter("low_cost_17"))
