"""Computation in threads beside the thread that uses the results."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import numba

Item = TypeVar("Item")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def thread_count() -> int:
    """Return the number of threads that compiled code may use.

    It is the first number of the environment variable OMP_NUM_THREADS, which PyTorch reads, too, else that of numba:
    NUMBA_NUM_THREADS, else the number of CPUs that the process may use.
    """
    number = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(number) if number.isdecimal() else int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


class InlineExecutor(Executor):
    """An executor without threads: `submit` calls the function; an exception of the function is raised there."""

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Call a function and return its result as a future that is done."""
        future: Future[Result] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def one_worker() -> Executor:
    """Return an executor that calls functions in the order of `submit`, in a thread if several may be used."""
    return ThreadPoolExecutor(1) if thread_count() > 1 else InlineExecutor()


def ahead(items: Iterator[Item], count: int) -> Generator[Item]:
    """Yield the items of an iterator, computed ahead by a thread if more than one thread may be used.

    An exception of the iterator is raised at its place. Close the generator if not all items are used: the thread then
    finishes the item that it computes, and ends.

    Args:
        items: The iterator.
        count: Largest number of items that wait for their use.
    """
    if thread_count() == 1:
        yield from items
        return
    end = object()
    with ThreadPoolExecutor(1) as pool:
        waiting = deque(pool.submit(next, items, end) for _ in range(count))
        try:
            while (item := waiting.popleft().result()) is not end:
                waiting.append(pool.submit(next, items, end))
                yield item  # type: ignore[misc]
        finally:
            pool.shutdown(cancel_futures=True)
