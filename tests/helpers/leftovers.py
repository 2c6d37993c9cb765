"""Names of temporary files of processes that have ended."""

import subprocess
import sys
from pathlib import Path


def name_of_a_dead_process(path):
    """Return the name that a process, which has ended, gave to a temporary file of `path`."""
    code = "import sys, pathlib, codecnn.base.leftovers as names; print(names.part_path(pathlib.Path(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
    return Path(done.stdout.rstrip("\n"))
