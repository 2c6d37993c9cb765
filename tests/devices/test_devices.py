"""Runs the cases of the second device in another process, because PyTorch keeps a device for the rest of a process.

On a machine with a GPU `pytest -m gpu` runs them on it too.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("device", ["", pytest.param("cuda:0", marks=pytest.mark.gpu)], ids=["pretended", "gpu"])
def test_no_operation_mixes_devices(tiny_store, device):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"CODECNN_TEST_STORE": str(tiny_store.folder), "CODECNN_TEST_DEVICE": device}
    command.append(str(Path(__file__).with_name("cases.py")))
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
