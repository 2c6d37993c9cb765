"""Y4M through standard input and output."""

import contextlib
import functools
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.files import disk_errors
from codecnn.base.leftovers import temporary_folder
from codecnn.pictures.files.y4m import MAGIC

if TYPE_CHECKING:
    import tempfile

STANDARD_STREAM = "-"
"""Name of standard input for `open_video` and of standard output for `create_video`; both hold Y4M."""


@functools.cache
def standard_input() -> Path:
    """Copy standard input into a temporary file, once in a process; the file lasts as long as the process.

    Raises:
        FormatError: Standard input is a terminal or does not begin as Y4M does.
    """
    source = sys.stdin.buffer
    if source.isatty():
        raise FormatError("standard input is a terminal: write Y4M into it, as ffmpeg -f yuv4mpegpipe does")
    head = source.read(len(MAGIC))
    if head != MAGIC:
        raise FormatError(
            f"standard input does not begin with {MAGIC.decode()}: only Y4M is read from it, so convert the pictures "
            "with ffmpeg -f yuv4mpegpipe, or write them into a file"
        )
    path = Path(_folder().name) / "standard_input.y4m"
    with disk_errors(path), path.open("wb") as file:
        file.write(head)
        shutil.copyfileobj(source, file, 1 << 20)
    return path


@functools.cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    """Return the folder of the copy, which is removed when the process ends."""
    return temporary_folder("pipe")


@contextlib.contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Yield standard output for bytes, and flush it at the end.

    Raises:
        ConfigError: Standard output is a terminal.
    """
    if sys.stdout.isatty():
        raise ConfigError("pictures are not written to a terminal: pipe standard output into a program or a file")
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
