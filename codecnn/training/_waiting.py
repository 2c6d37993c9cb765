"""Where the time of a run goes, measured without making the device wait."""

import time
from collections.abc import Callable, Iterator

import torch

from codecnn.training.task import Batch


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that `work` takes, the device's queue included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


class Watch:
    """Seconds from lap to lap."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def lap(self) -> float:
        """Seconds since the last call, or since the beginning."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        return seconds


class TimedBatches:
    """Iterates over batches and adds up the time that training stood still for them.

    On the CPU that is the time to get a batch. On CUDA the processor runs ahead of the device, so its own waiting says
    nothing: events before and after each batch tell how long the device was without a step's work, copies and
    conversions of the batch included. They are read by `take`, when the device is waited for anyway.
    """

    def __init__(self, batches: Iterator[Batch], device: torch.device) -> None:
        self._batches, self._device = batches, device
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._device.type == "cuda":
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            before.record()
            batch = next(self._batches)
            after.record()
            self._events.append((before, after))
            return batch
        started = time.perf_counter()
        batch = next(self._batches)
        self._seconds += time.perf_counter() - started
        return batch

    def take(self) -> float:
        """Seconds of waiting since the last call; waits for the device."""
        if self._events:
            self._events[-1][1].synchronize()
            self._seconds += sum(before.elapsed_time(after) for before, after in self._events) / 1000
            self._events = []
        seconds, self._seconds = self._seconds, 0.0
        return seconds
