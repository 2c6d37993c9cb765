"""The part of a cache's key that stands for a filter: equal for equal samples, different for different ones."""

from codecnn.filtering import filter_key, load_filter


def test_key_depends_on_weights_and_precision_alone():
    key = filter_key(load_filter("low_cost_5", device="cpu"))
    assert filter_key(load_filter("low_cost_5", device="cpu")) == key
    others = [
        load_filter("low_cost_5", device="cpu", precision="bfloat16"),
        load_filter("low_cost_17", device="cpu"),
        load_filter("low_cost_5.int8", device="cpu"),
    ]
    assert len({key, *map(filter_key, others)}) == 4
