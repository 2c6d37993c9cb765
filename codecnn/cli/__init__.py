"""The command line: thin functions over the library.

Only this module ends the process; `codecnn.cli.console` prints.
"""

import errno
import functools
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from codecnn.base.errors import CodecnnError, ConfigError, StoppedError, UserCodeWarning
from codecnn.base.parts import absent_parts, command_modules
from codecnn.cli.application import EXAMPLES, RESUMABLE, app
from codecnn.cli.console import err

_MODULES = "general pictures decode dataset training filter evaluation networks"
"""Modules of commands; their order is the order of the commands in --help."""


def _add_commands() -> None:
    """Import the modules of all commands, and let the help of each command end with its example.

    Nothing that the modules create is garbage, so that collecting it would only cost time.
    """
    gc.disable()
    try:
        for name in _MODULES.split():
            for module in (f"codecnn.cli.{name}", *command_modules(after=name)):
                importlib.import_module(module)
    finally:
        gc.enable()
    for group, prefix in ((app, ""), *((added.typer_instance, f"{added.name} ") for added in app.registered_groups)):
        for each in group.registered_commands if group else ():
            command_name = str(each.name or getattr(each.callback, "__name__", ""))
            each.epilog = f"Example: {EXAMPLES[prefix + command_name]}"


_add_commands()

_INTERRUPTED = 130

_UsageError: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
"""Base of all errors of wrong usage, which Typer does not export."""


def main() -> None:
    """Run the command line and end the process with an exit status.

    An error is printed as one sentence. The status is 0 (done), 1 (failed), 2 (wrong usage), 130 (interrupted) or 143
    (terminated).
    """
    debug = "--debug" in sys.argv
    try:
        with warnings.catch_warnings():
            warnings.showwarning = functools.partial(_show_warning, warnings.showwarning)
            _check_pipes(sys.argv[1:])
            status = app(prog_name="codecnn", standalone_mode=False) or 0
        if status == _INTERRUPTED:  # typer converts Ctrl-C into an exit status without a message
            raise KeyboardInterrupt
        sys.exit(status)
    except StoppedError as error:
        _fail(error, str(error), 128 + error.signal, debug)
    except CodecnnError as error:
        _fail(error, str(error), 1, debug)
    except KeyboardInterrupt:
        resumable = " ".join(sys.argv[1:3]).startswith(tuple(RESUMABLE))
        text = "interrupted: run the same command again to continue" if resumable else "interrupted"
        _fail(KeyboardInterrupt(), text, _INTERRUPTED, debug)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        text = "no space left on the disk" if error.errno == errno.ENOSPC else error.strerror or str(error)
        if error.errno in (errno.ENOTDIR, errno.EEXIST) and error.filename:
            _fail(error, f"{_blocking_file(Path(error.filename))} is a file, but a folder is needed there", 1, debug)
        _fail(error, f"{error.filename}: {text}" if error.filename else text, 1, debug)
    except _UsageError as error:
        _report_usage(error)
    except Exception as error:
        if debug:
            raise
        kind = type(error).__name__
        _fail(error, f"unexpected {kind}: {error} (a bug in codecnn; run with --debug for the traceback)", 1, debug)


def _show_warning(show: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Print a warning about code of the user as a sentence, and show others as Python does."""
    if issubclass(category, UserCodeWarning):
        err.print(f"codecnn: {message}", markup=False, highlight=False, soft_wrap=True)
    else:
        show(message, category, *place)


def _check_pipes(arguments: list[str]) -> None:
    """Raise ConfigError if a command that reads or writes no pictures through a pipe gets - as a file."""
    outputs = [after for before, after in pairwise(arguments) if before in ("-o", "--output")]
    outputs += [argument.removeprefix("--output=") for argument in arguments if argument.startswith("--output=")]
    if "-" in outputs and {"filter", "decode"}.isdisjoint(arguments):
        raise ConfigError(
            "only codecnn filter and codecnn decode write to standard output (-o -): name a file or folder"
        )
    if "-" in outputs and "--json" in arguments:
        raise ConfigError("standard output (-o -) holds the pictures: leave out --json, or name a file")
    if arguments.count("-") > outputs.count("-") and {"filter", "info"}.isdisjoint(arguments):
        raise ConfigError(
            "only codecnn filter and codecnn info read standard input (-): write the pictures into a file first"
        )


def _blocking_file(path: Path) -> Path:
    """Find the file at a path, or at one of its parents, that blocks a folder."""
    return next((part for part in (path, *path.parents) if part.is_file()), path)


def _report_usage(error: Any) -> None:
    """Print one sentence about a wrong command line, with a correct example, and exit."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(error.exit_code)
    path = error.ctx.command_path if error.ctx else "codecnn"
    # Messages of custom types begin with the name of the exception.
    sentence = error.format_message().replace("Value error, ", "").rstrip(".")
    example = EXAMPLES.get(path.removeprefix("codecnn "))
    hint = f"example: {example}" if example else f"run {path} --help for the commands"
    if not example and (absent := absent_parts()):
        hint += f"; not installed, and may have it: {', '.join(f'codecnn.{part}' for part in absent)}"
    separator = "" if sentence.endswith("?") else ";"
    err.print(
        f"{path}: {sentence[0].lower() + sentence[1:]}{separator} {hint}", markup=False, highlight=False, soft_wrap=True
    )
    sys.exit(error.exit_code)


def _fail(error: BaseException, sentence: str, status: int, debug: bool) -> None:
    if debug:
        raise error
    err.print(f"codecnn: {sentence}", markup=False, highlight=False, soft_wrap=True)
    sys.exit(status)
