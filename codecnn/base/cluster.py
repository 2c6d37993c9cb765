"""Distribution of work over machines: a shard of the items in this process, or all on the workers of a dask cluster.

Work is a function and a list of items. The function writes files that are complete or absent, into a folder that all
machines see under the same path. A killed process therefore loses only the item it was working on, and a rerun
processes only the items whose files are missing.
"""

import contextlib
import heapq
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

from codecnn.base.errors import ConfigError, WorkerError

Item = TypeVar("Item")

Progress = Callable[[int, int], None]
"""A function that is called with (items done, all items) after each item, in the thread that started the work."""

Shard = tuple[int, int]
"""(i, n): the i-th of n parts of the work, counted from 1."""

WHOLE: Shard = (1, 1)
"""The shard that contains all items."""

SCHEDULER_TIMEOUT = "10s"
"""Time to wait for the dask scheduler to answer."""

SEEN_SECONDS = 60.0
"""Time in seconds to wait for a file of another machine; NFS may cache the absence of a file for that long."""


def parse_shard(text: str) -> Shard:
    """Parse a shard from a text.

    Args:
        text: "I/N", e.g. "1/4".

    Returns:
        The shard (i, n).

    Raises:
        ConfigError: The text has another form.
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None:
        raise ConfigError(f"shard {text!r} does not have the form I/N, e.g. 1/4")
    return int(match[1]), int(match[2])


def check_shard(shard: Shard) -> None:
    """Raise ConfigError unless a shard (i, n) is one of (1, n) to (n, n)."""
    index, shards = shard
    if not 1 <= index <= shards:
        raise ConfigError(f"shard {index}/{shards} is not one of 1/{shards} to {shards}/{shards}")


def of_shard(items: Sequence[Item], shard: Shard, costs: Sequence[int]) -> list[Item]:
    """Return the items of a shard, the most expensive first.

    The items go, by falling cost, each to the shard with the least cost so far (longest processing time first; R. L.
    Graham, "Bounds on multiprocessing timing anomalies", 1969): the largest shard costs at most 4/3 of that of the best
    division.

    Args:
        items: All items, which all shards must list in the same order.
        shard: The shard.
        costs: Cost of each item, in the same whole numbers for all shards; costs below 1 count as 1.
    """
    index, shards = shard
    chosen = []
    loads = [(0, number) for number in range(1, shards + 1)]
    for cost, item in sorted(zip(costs, items, strict=True), key=lambda pair: -pair[0]):
        load, number = loads[0]
        heapq.heapreplace(loads, (load + max(cost, 1), number))
        if number == index:
            chosen.append(item)
    return chosen


def work_through(
    function: Callable[[Item], object],
    items: Sequence[Item],
    output_of: Callable[[Item], Path],
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
    done: int = 0,
) -> None:
    """Call a function with every item: one after another, on threads, or on the workers of a dask scheduler.

    Workers receive function and items in serialised form. They must have the same version of codecnn and see the named
    files under the same paths.

    Args:
        function: The function.
        items: The items.
        output_of: Function that returns the file that exists when an item is done.
        jobs: Number of threads; None without `scheduler` works in this thread.
        scheduler: Address of a dask scheduler, e.g. "tcp://host:8786".
        progress: Called with (items done, all items).
        done: Number of items that are already done, added to both counts of the progress.

    Raises:
        ConfigError: The scheduler does not answer or dask is not installed.
        WorkerError: Workers die repeatedly at the same item, the scheduler disappears, or a file does not appear here.
        Exception: Any exception of the function; running items are finished, the others are left to a rerun.
    """
    total = done + len(items)
    report = progress or (lambda done, total: None)
    report(done, total)
    if jobs is None and scheduler is None:
        for number, item in enumerate(items, 1):
            function(item)
            report(done + number, total)
        return
    with _executor(jobs, scheduler) as executor:
        futures = [executor.submit(function, item) for item in items]
        try:
            for number, future in enumerate(as_completed(futures), 1):
                future.result()
                report(done + number, total)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    if scheduler is not None:
        _wait_for([output_of(item) for item in items])


def _wait_for(paths: Sequence[Path]) -> None:
    deadline = time.monotonic() + SEEN_SECONDS
    for path in paths:
        while not path.is_file():
            if time.monotonic() >= deadline:
                raise WorkerError(
                    f"workers wrote {path}, but it does not appear here: mount its folder under the same path"
                )
            time.sleep(0.1)


@contextlib.contextmanager
def _executor(jobs: int | None, scheduler: str | None) -> Iterator[Executor]:
    if scheduler is None:
        with ThreadPoolExecutor(jobs) as executor:
            yield executor
        return
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise ConfigError("a dask scheduler needs the extra `cluster`: pip install 'codecnn[cluster]'") from None
    try:
        client: Any = Client(scheduler, timeout=SCHEDULER_TIMEOUT, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ConfigError(f"no dask scheduler answers at {scheduler}: {error}") from error
    with client:
        try:
            yield client.get_executor(pure=False)
        except KilledWorker as error:
            raise WorkerError(f"workers died repeatedly at the same item: {error}") from error
        except CancelledError as error:
            raise WorkerError(
                f"the dask scheduler at {scheduler} disappeared: run the same command again to continue"
            ) from error
