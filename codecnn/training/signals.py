"""Signals that stop a training run after the current step."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class StopNow(BaseException):
    """Raised by a signal within `StopSignals.at_once`; not an Exception, so that no handler on the way catches it."""


class StopSignals:
    """Context in which SIGTERM and SIGINT are recorded in `caught` instead of ending the process.

    The loop stops at the next step, when its state is complete. Python allows signal handlers only in the main thread;
    in other threads this context has no effect.

    Attributes:
        caught: Number of the first signal that was received, or 0.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self, *, second_interrupts: bool) -> None:
        """Create the context; with `second_interrupts` a second SIGINT raises KeyboardInterrupt at once."""
        self.caught = 0
        self._second_interrupts, self._at_once = second_interrupts, False
        self._handlers_before: dict[signal.Signals, object] = {}
        self._process = os.getpid()

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._handlers_before = {number: signal.signal(number, self._handle) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a process that was forked within the context
            return
        if self.caught and self._second_interrupts and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = self.caught or number
        if self._at_once:
            self._at_once = False
            raise StopNow

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal raise StopNow within the context, for work that is discarded rather than completed."""
        self._at_once = True
        try:
            if self.caught:
                raise StopNow
            yield
        finally:
            self._at_once = False
