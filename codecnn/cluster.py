"""Work that is shared by machines: every N-th item of it here, or all of it on the workers of a dask cluster.

Work is a function and a list of items; what it makes of each is files that are whole or absent, in a folder that all
machines see under one path. So whoever is killed loses the item that it held, and a rerun does only what is not there.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

from codecnn.errors import ConfigError, WorkerError

Item = TypeVar("Item")
Progress = Callable[[int, int], None]
"""Called with (items done, items in all) after every item, from the thread that asked for the work."""

Shard = tuple[int, int]
"""(i, n): every n-th item, beginning with the i-th, counted from 1."""
WHOLE: Shard = (1, 1)

SCHEDULER_TIMEOUT = "10s"
SEEN_SECONDS = 60.0
"""How long to look for what another machine wrote: NFS by default remembers for so long that nothing was there."""


def parse_shard(text: str) -> Shard:
    """(i, n) from "I/N". Raises ConfigError for anything else."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None:
        raise ConfigError(f"shard {text!r} is not of the form I/N, such as 1/4")
    return int(match[1]), int(match[2])


def check_shard(shard: Shard) -> None:
    """Raise ConfigError for a shard (i, n) that is none of (1, n) to (n, n)."""
    index, shards = shard
    if not 1 <= index <= shards:
        raise ConfigError(f"shard {index}/{shards} is not one of 1/{shards} to {shards}/{shards}")


def of_shard(items: Sequence[Item], shard: Shard) -> Sequence[Item]:
    """The items of a shard. All shards list all items, in one order, and so agree on who does what without a word."""
    index, shards = shard
    return items[index - 1 :: shards]


def work_through(
    function: Callable[[Item], object],
    items: Sequence[Item],
    made: Callable[[Item], Path],
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
    done: int = 0,
) -> None:
    """Call `function` with every item: on `jobs` threads, or on the workers of the dask scheduler at `scheduler`.

    With neither the items are done one after another in this thread. Function and items are sent to the workers whole,
    which must have this version of codecnn and see the files that these name, that of `made` for an item, which is
    there when it is done, among them. `progress` counts from `done`.

    Raises what the function does; then what is being worked on is finished, and what has not begun is left to a rerun.
    ConfigError where no scheduler answers or dask is not installed, WorkerError where workers die again and again at
    one item, the scheduler goes away, or what they made is not here.
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
        _wait_for([made(item) for item in items])


def _wait_for(paths: Sequence[Path]) -> None:
    deadline = time.monotonic() + SEEN_SECONDS
    for path in paths:
        while not path.is_file():
            if time.monotonic() >= deadline:
                raise WorkerError(f"workers made {path}, but it is not here: they must see its folder under that path")
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
            raise WorkerError(f"workers died again and again at the same work: {error}") from error
        except CancelledError as error:
            raise WorkerError(f"the dask scheduler at {scheduler} went away: a rerun goes on where this was") from error
