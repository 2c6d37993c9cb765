"""Runs the files of cases on the rehearsal device, in two further processes.

PyTorch counts the devices at the first backward pass of a process, and a process with a device can no longer fork. To
see a single case: `pytest tests/rehearsal/cases_training.py -k resumes`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = set(Path(__file__).parent.glob("cases_*.py"))
TRAINING = {path for path in FILES if path.stem in ("cases_training", "cases_faults")}


@pytest.mark.parametrize("files", [TRAINING, FILES - TRAINING], ids=["training", "other"])
def test_cases_on_the_rehearsal_device(files, tiny_store):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=short",
        *sorted(files),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["CODECNN_TEST_STORE"] = str(tiny_store.folder)
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
