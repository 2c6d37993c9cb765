"""Report of the progress of work."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""A function that is called with (items done, all items) after each item, in the thread that started the work."""
