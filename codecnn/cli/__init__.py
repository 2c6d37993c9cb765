"""The command line: thin functions over the library. Only this module exits; console.py prints."""

import errno
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import typer

from codecnn.cli.app import app, dataset_app, modes_app
from codecnn.cli.examples import EXAMPLES
from codecnn.console import err
from codecnn.errors import CodecnnError, StoppedError

# In the order in which --help lists the commands.
_MODULES = "general pictures view dataset labels modes check train compare evaluate filter correlate networks export"
for _name in _MODULES.split():
    importlib.import_module(f"codecnn.cli.{_name}")
for _group, _prefix in ((app, ""), (dataset_app, "dataset "), (modes_app, "modes ")):
    for _command in _group.registered_commands:
        _called = str(_command.name or getattr(_command.callback, "__name__", ""))
        _command.epilog = f"Example: {EXAMPLES[_prefix + _called]}"

_INTERRUPTED = 130
_GO_ON = ("dataset build", "evaluate", "demo")
"""Commands that keep what they have done when they are interrupted; a training says so itself."""
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Entry point: runs the command and turns what happens into one sentence and an exit status.

    0 done, 1 failed, 2 usage, 130 interrupted, 143 terminated.
    """
    debug = "--debug" in sys.argv
    try:
        status = app(prog_name="codecnn", standalone_mode=False) or 0
        if status == _INTERRUPTED:  # typer makes an exit status of Ctrl-C, and says nothing
            raise KeyboardInterrupt
        sys.exit(status)
    except StoppedError as error:
        _fail(error, str(error), 128 + error.signal, debug)
    except CodecnnError as error:
        _fail(error, str(error), 1, debug)
    except KeyboardInterrupt:
        goes_on = " ".join(sys.argv[1:3]).startswith(_GO_ON)
        told = "interrupted: the same command goes on where it was" if goes_on else "interrupted"
        _fail(KeyboardInterrupt(), told, _INTERRUPTED, debug)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        text = "no space left on the disk" if error.errno == errno.ENOSPC else error.strerror or str(error)
        if error.errno in (errno.ENOTDIR, errno.EEXIST) and error.filename:
            _fail(error, f"{_file_in_the_way(Path(error.filename))} is a file, where a folder is to be", 1, debug)
        _fail(error, f"{error.filename}: {text}" if error.filename else text, 1, debug)
    except _UsageError as error:
        _misused(error)
    except Exception as error:
        if debug:
            raise
        kind = type(error).__name__
        _fail(error, f"unexpected {kind}: {error} (this is a fault of codecnn; --debug shows where)", 1, debug)


def _file_in_the_way(path: Path) -> Path:
    """The file of which `path` says that it is a folder."""
    return next((part for part in (path, *path.parents) if part.is_file()), path)


def _misused(error: Any) -> None:
    """One sentence on a command line that cannot be read, with an example of one that can."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(error.exit_code)
    path = error.ctx.command_path if error.ctx else "codecnn"
    # What is wrong by a type's own word comes with the name of its exception.
    sentence = error.format_message().replace("Value error, ", "").rstrip(".")
    example = EXAMPLES.get(path.removeprefix("codecnn "))
    hint = f"an example: {example}" if example else f"{path} --help lists what there is"
    joint = "" if sentence.endswith("?") else ";"
    err.print(
        f"{path}: {sentence[0].lower() + sentence[1:]}{joint} {hint}", markup=False, highlight=False, soft_wrap=True
    )
    sys.exit(error.exit_code)


def _fail(error: BaseException, sentence: str, status: int, debug: bool) -> None:
    if debug:
        raise error
    err.print(f"codecnn: {sentence}", markup=False, highlight=False, soft_wrap=True)
    sys.exit(status)
