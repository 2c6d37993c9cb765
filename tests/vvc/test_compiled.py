"""Compilation happens once: the first process says so and for how long, the next one reads what that has left."""

import os
import subprocess
import sys

import pytest

MODULE = """
import sys
from codecnn.vvc.jit import compiled, compiled_entry, compiled_once

@compiled
def doubled(x):
    return 2 * x

@compiled_entry
def entry(x):
    return doubled(x) + 1

with compiled_once(entry, "a sum", "no time"):
    assert entry(20) == 41
with compiled_once(entry, "a sum", "no time"):
    assert entry(1) == 3
print(sum(entry.stats.cache_hits.values()), sum(entry.stats.cache_misses.values()))
"""


def told(argv, folder, **environment):
    """stdout and the lines of stderr of a process whose compiled functions are kept in `folder`."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")} | environment
    done = subprocess.run([sys.executable, *argv], env=environment, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr.splitlines()


def test_the_first_process_says_that_it_compiles_and_the_second_does_not_compile(tmp_path):
    (tmp_path / "summed.py").write_text(MODULE)
    counts, (begin, end) = told([tmp_path / "summed.py"], tmp_path)
    assert counts.split() == ["0", "1"]
    assert begin == "codecnn: compiling a sum, once on this machine: about no time"
    assert end.startswith("codecnn: compiled in ")
    assert str(tmp_path / "cache") in end
    counts, said = told([tmp_path / "summed.py"], tmp_path)
    assert (counts.split(), said) == (["1", "0"], [])


def test_plain_python_compiles_nothing_and_says_nothing(tmp_path):
    source = MODULE.split("print(")[0]
    assert told(["-c", source], tmp_path, NUMBA_DISABLE_JIT="1") == ("", [])


@pytest.mark.slow
def test_reading_and_rebuilding_compile_once(golden_file, tmp_path):
    argv = ["-m", "codecnn", "partition", golden_file("vvc/tiny64x64_ai_qp32.266"), "--planes", "unf_y", "-o"]
    _, said = told([*argv, tmp_path / "one"], tmp_path)
    assert [line.split(",")[0] for line in said if "compiling" in line] == [
        "codecnn: compiling the reader of VVC slices",
        "codecnn: compiling the reconstruction of intra pictures",
    ]
    assert sum("compiled in" in line for line in said) == 2
    _, said = told([*argv, tmp_path / "two"], tmp_path)
    assert said == []
    one, two = (next((tmp_path / name).iterdir()).read_bytes() for name in ("one", "two"))
    assert one == two


def test_what_needs_no_bitstream_loads_no_compiler(tmp_path):
    """`python -X importtime -m codecnn --help` shows what costs: neither numba nor torch."""
    for argv in (["--help"], ["partition", "--help"], ["dataset", "build", "--help"]):
        loaded = (
            f"import sys, codecnn.cli as c\nsys.argv = {['codecnn', *argv]}\ntry: c.main()\nexcept SystemExit: pass\n"
        )
        out, _ = told(["-c", loaded + "print([m for m in ('numba', 'torch') if m in sys.modules])"], tmp_path)
        assert out.endswith("[]\n")
