"""The command line: thin functions over the library. Only this module exits; console.py prints."""

import errno
import importlib
import os
import sys

from codecnn.cli.app import app
from codecnn.console import err
from codecnn.errors import CodecnnError, StoppedError

# In the order in which --help lists the commands.
_MODULES = "general pictures view dataset labels check train compare evaluate filter correlate networks export"
for _name in _MODULES.split():
    importlib.import_module(f"codecnn.cli.{_name}")


def main() -> None:
    """Entry point: runs the command and turns what happens into one sentence and an exit status.

    0 done, 1 failed, 2 usage, 130 interrupted, 143 terminated.
    """
    debug = "--debug" in sys.argv
    try:
        app(standalone_mode=True)
    except StoppedError as error:
        _fail(error, str(error), 128 + error.signal, debug)
    except CodecnnError as error:
        _fail(error, str(error), 1, debug)
    except KeyboardInterrupt:
        _fail(KeyboardInterrupt(), "interrupted", 130, debug)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        text = "no space left on the disk" if error.errno == errno.ENOSPC else error.strerror or str(error)
        _fail(error, f"{error.filename}: {text}" if error.filename else text, 1, debug)
    except Exception as error:
        if debug:
            raise
        kind = type(error).__name__
        _fail(error, f"unexpected {kind}: {error} (this is a fault of codecnn; --debug shows where)", 1, debug)


def _fail(error: BaseException, sentence: str, status: int, debug: bool) -> None:
    if debug:
        raise error
    err.print(f"codecnn: {sentence}", markup=False, highlight=False, soft_wrap=True)
    sys.exit(status)
