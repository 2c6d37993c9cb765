"""The scripts for SLURM, run with a stand-in for the program that they start."""

import os
import subprocess

import pytest

from tests.helpers.documentation import ROOT


def shards_of_array(tmp_path, numbers, step=1):
    """Run every task of an array and return (exit status, arguments of codecnn or the message) of each."""
    program = tmp_path / "codecnn"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    array = {"MIN": min(numbers), "MAX": max(numbers), "COUNT": len(numbers), "STEP": step}
    results = []
    for number in numbers:
        variables = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in (array | {"ID": number}).items()}
        done = subprocess.run(
            ["bash", ROOT / "tools/slurm/array.sbatch", "evaluate", "store"],
            env=os.environ | variables | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
        results.append((done.returncode, (done.stdout or done.stderr).strip()))
    return results


@pytest.mark.parametrize(("first", "last", "step"), [(1, 4, 1), (0, 3, 1), (5, 8, 1), (0, 6, 2), (3, 12, 3), (7, 7, 1)])
def test_the_tasks_of_an_array_do_all_shards(tmp_path, first, last, step):
    numbers = range(first, last + 1, step)
    expected = [(0, f"evaluate store --shard {shard}/{len(numbers)}") for shard in range(1, len(numbers) + 1)]
    assert shards_of_array(tmp_path, numbers, step) == expected


@pytest.mark.parametrize(("numbers", "step"), [((1, 3, 4), 1), ((1, 3, 8), 2), ((2, 9), 1), ((0, 1), 0)])
def test_an_array_with_gaps_is_refused(tmp_path, numbers, step):
    for status, text in shards_of_array(tmp_path, numbers, step):
        assert status == 2
        assert text.endswith(f"submit it with --array=1-{len(numbers)}")
