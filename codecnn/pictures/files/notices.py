"""Warnings of the readers of pictures."""

import functools
import logging

_log = logging.getLogger(__name__)


@functools.lru_cache(maxsize=10_000)
def warn(text: str) -> None:
    """Log a warning, once in a process although a file is read several times."""
    _log.warning("codecnn: %s", text)
