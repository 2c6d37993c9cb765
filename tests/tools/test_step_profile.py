"""The profile of a training step: operators by phase on the rehearsal device, and bounds of a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_step_is_counted_by_phase(tmp_path):
    """The rehearsal device stays known to PyTorch, so that the script runs in another process."""
    command = [sys.executable, ROOT / "tools/step_profile.py", "--network", "low_cost_5", "--batch", "2"]
    command += ["--patch", "32", "--steps", "2", "-o", tmp_path / "p.json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    rows = json.loads((tmp_path / "p.json").read_text())["rows"]
    assert [row["precision"] for row in rows] == ["float32", "bfloat16"]
    exact, short = (row["phases"] for row in rows)
    for phases in (exact, short):
        convolutions = phases["forward"]["names"]["convolution"]
        assert phases["backward"]["names"]["convolution_backward"] == convolutions
        assert phases["backward"]["flops"] == pytest.approx(2 * phases["forward"]["flops"], rel=0.1)
        assert phases["optimiser"]["names"]["_fused_adamw_"] == 1
        assert phases["averaging"]["operators"] <= 2
        assert phases["clipping"]["operators"] < 12, "the norm is computed for all parameters at once"
    assert exact["forward"]["flops"] == short["forward"]["flops"]
    assert exact["forward"]["bytes"] > short["forward"]["bytes"]
    assert all(row["waits"] == {} for row in rows)
    assert "`low_cost_5`, tf32" in output
