"""The stages of reconstruction, each alone, against plain NumPy."""

import os
import subprocess
import sys
from pathlib import Path


def test_stages_equal_plain_numpy():
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "tests.helpers.reconstruct_stages"]
    done = subprocess.run(
        command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
