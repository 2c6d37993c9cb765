"""Rows of the table that `benchmark.py all` makes: what was measured, ours, a peer's, and ours over theirs."""

import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def row(
    what: str, unit: str, ours: Sequence[float], peer: str | None = None, theirs: Sequence[float] = (), note: str = ""
) -> Row:
    """A row of figures in `unit`, one a turn: medians of ours and the peer's, median, least and most of their ratios.

    Where there are as many turns of both, each ratio is that of a turn, in which both had the same machine; else the
    ratio is that of the medians. A peer that was not measured has no figures, and `note` says why.
    """
    made: Row = {"what": what, "unit": unit, "ours": statistics.median(ours), "peer": peer, "note": note}
    if theirs:
        paired = len(ours) == len(theirs)
        pairs = zip(ours, theirs, strict=True) if paired else [(made["ours"], statistics.median(theirs))]
        ratios = [a / b for a, b in pairs]
        made |= {"theirs": statistics.median(theirs), "ratio": statistics.median(ratios), "turns": len(ratios)}
        made |= {"least": min(ratios), "most": max(ratios)}
    return made


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """What a call takes by a clock."""
    started = clock()
    call()
    return clock() - started


def peak_mib() -> float:
    """The most memory that this process had in RAM, in MiB.

    On Linux by VmHWM: what getrusage tells of a process begins with the peak of the one that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
