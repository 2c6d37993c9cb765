"""A clock that only a test advances."""

from types import SimpleNamespace

from tests.helpers.toy_task import ToyTask


class Clock:
    """Clock that only a test advances, for the modules that measure time."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        read = SimpleNamespace(monotonic=lambda: self.now, perf_counter=lambda: self.now)
        monkeypatch.setattr("codecnn.training.monitor.time", read)
        monkeypatch.setattr("codecnn.training.execution.time", read)

    def task(self, seconds, **options):
        """Return a toy task whose calls advance the clock by the `seconds` given by name."""
        clock = self

        class Timed(ToyTask):
            def batches(self, *arguments):
                for batch in super().batches(*arguments):
                    clock.now += seconds.get("batches", 0)
                    yield batch

            def happens(self, what):
                clock.now += seconds.get(what, 0)
                super().happens(what)

        return Timed(**options)
