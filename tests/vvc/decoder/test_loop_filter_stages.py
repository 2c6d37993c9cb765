"""Deblocking, SAO and ALF equal plain NumPy versions of them."""

import os
import subprocess
import sys
from pathlib import Path


def test_loop_filters_equal_plain_numpy():
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "tests.helpers.loop_filter_stages"]
    completed = subprocess.run(
        command, env=environment, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
