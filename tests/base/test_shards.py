"""Division of items into shards by their cost."""

from hypothesis import given
from hypothesis import strategies as st

from codecnn.base.cluster import of_shard


def divide(costs, shards):
    """Return the numbers of the items of each shard."""
    return [of_shard(range(len(costs)), (index, shards), costs) for index in range(1, shards + 1)]


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 9))
def test_each_item_is_in_one_shard_and_the_longest_come_first(costs, shards):
    parts = divide(costs, shards)
    assert sorted(item for part in parts for item in part) == list(range(len(costs)))
    for part in parts:
        assert [costs[item] for item in part] == sorted((costs[item] for item in part), reverse=True)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 9))
def test_a_shard_without_its_last_item_costs_no_more_than_any_other(costs, shards):
    """This bounds the longest shard by 4/3 of that of the best division."""
    parts = divide(costs, shards)
    loads = [sum(costs[item] for item in part) for part in parts]
    for part, load in zip(parts, loads, strict=True):
        assert not part or load - costs[part[-1]] <= min(loads)


def test_items_without_cost_are_spread():
    assert [len(part) for part in divide([0] * 8, 4)] == [2, 2, 2, 2]


def test_a_large_item_is_alone():
    assert divide([1, 1, 6, 1, 1, 1, 1], 2) == [[2], [0, 1, 3, 4, 5, 6]]
