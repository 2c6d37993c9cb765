"""Motion of inter units equals that which VTM traces."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("name", "units"), [("tinyclip128x64_ld_qp37", 154), ("tinyclip128x64_ra_qp37", 150)])
def test_motion_of_units_equals_vtm_trace(golden_file, name, units):
    """Plain Python derives the motion: an index outside its array is an error there."""
    stream, trace = golden_file(f"vvc/{name}.266"), golden_file(f"vvc/{name}.vtmbmsstats.gz")
    assert int(run_plain(stream, trace)) == units


def test_stages_equal_formulas():
    run_plain()


def run_plain(*argv):
    """Run `tests.helpers.motion_stages` without compilation; return its output."""
    completed = subprocess.run(
        [sys.executable, "-m", "tests.helpers.motion_stages", *argv],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
    return completed.stdout
