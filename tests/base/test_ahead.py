"""Computation of items in a thread ahead of their use: order, exceptions, end of the thread."""

import contextlib
import threading

import pytest

from codecnn.base.ahead import ahead, one_worker, thread_count


@pytest.fixture(params=["1", "2"])
def threads(request, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", request.param)
    return int(request.param)


def test_the_number_of_threads_is_that_of_openmp_or_numba(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert thread_count() == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert thread_count() >= 1


def test_items_come_in_order_and_not_more_than_asked_for_ahead(threads):
    computed = []

    def items():
        for number in range(9):
            computed.append(number)
            yield number

    for number in ahead(items(), 2):
        assert number in computed
        assert len(computed) <= number + (1 if threads == 1 else 4)
    assert computed == list(range(9))


def test_exceptions_come_at_their_place(threads):
    def items():
        yield from (1, 2)
        raise ValueError("third")

    seen = []
    with pytest.raises(ValueError, match="third"):
        seen.extend(ahead(items(), 2))
    generator = ahead(items(), 2)
    assert [next(generator), next(generator)] == [1, 2]


def test_the_thread_ends_when_the_generator_is_closed(threads):
    before = threading.active_count()
    with contextlib.closing(ahead(iter(range(100)), 2)) as numbers:
        assert next(numbers) == 0
        assert threading.active_count() == before + (threads - 1)
    assert threading.active_count() == before


def test_a_worker_calls_in_order(threads):
    calls = []
    with one_worker() as worker:
        done = [worker.submit(calls.append, number) for number in range(20)]
        done[-1].result()
    assert calls == list(range(20))
