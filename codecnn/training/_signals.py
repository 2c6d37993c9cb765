"""SIGTERM and SIGINT as a wish to stop, which the loop grants where its state is whole."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class StopNow(BaseException):
    """Raised by a signal within `StopSignals.at_once`; no `except Exception` on the way may swallow it."""


class StopSignals:
    """Between entering and leaving, signals are kept in `caught` instead of ending the process.

    In a thread other than the main one, where Python allows no handlers, nothing changes. `impatient` lets a second
    SIGINT interrupt at once, as somebody at a keyboard expects.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self, *, impatient: bool) -> None:
        self.caught = 0
        self._impatient, self._at_once = impatient, False
        self._before: dict[signal.Signals, object] = {}
        self._owner = os.getpid()

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:  # a process that was forked within
            return
        if self.caught and self._impatient and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = self.caught or number
        if self._at_once:
            self._at_once = False
            raise StopNow

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Within, a signal raises StopNow, for work that is thrown away rather than waited for."""
        self._at_once = True
        try:
            if self.caught:
                raise StopNow
            yield
        finally:
            self._at_once = False
