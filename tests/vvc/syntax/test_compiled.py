"""Compilation happens once on a machine: the first process logs it once, the next one reads the cache."""

import os
import select
import subprocess
import sys

import pytest
from filelock import FileLock

MODULE = """
import sys
from codecnn.base.compiled import compiled, compiled_entry, compiled_once

@compiled
def doubled(x):
    return 2 * x

@compiled_entry
def entry(x):
    return doubled(x) + 1

@compiled_entry
def second(x):
    return doubled(x) + 2

with compiled_once(entry, "a sum", "no time"):
    assert entry(20) == 41
with compiled_once(entry, "a sum", "no time"):
    assert entry(1) == 3
with compiled_once(second, "a sum", "no time"):
    assert second(1) == 4
print(sum(entry.stats.cache_hits.values()), sum(entry.stats.cache_misses.values()))
"""


def run_python(argv, folder, **environment):
    """Run Python with the numba cache in `folder`; return stdout and the lines of stderr."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")} | environment
    completed = subprocess.run([sys.executable, *argv], env=environment, capture_output=True, text=True, check=True)
    return completed.stdout, completed.stderr.splitlines()


def test_first_process_logs_compilation_and_others_wait_for_it_or_read_the_cache(tmp_path):
    module = tmp_path / "summed.py"
    module.write_text(MODULE)
    counts, (message,) = run_python([module], tmp_path)
    assert counts.split() == ["0", "1"]
    start = f"codecnn: compiling a sum for about no time, once on this machine, cached in {tmp_path / 'cache'}"
    assert message.startswith(start)
    (lock,) = (tmp_path / "cache").rglob("entry.lock")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    with FileLock(lock):
        waiting = subprocess.Popen(
            [sys.executable, module], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert select.select([waiting.stderr], [], [], 60)[0], "no message"
        assert waiting.stderr.readline() == "codecnn: waiting for another process, which compiles a sum\n"
    counts, messages = waiting.communicate()
    assert (waiting.returncode, counts.split(), messages) == (0, ["1", "0"], "")


def test_plain_python_compiles_and_logs_nothing(tmp_path):
    source = MODULE.split("print(")[0]
    assert run_python(["-c", source], tmp_path, NUMBA_DISABLE_JIT="1") == ("", [])


@pytest.mark.slow
def test_reading_and_rebuilding_compile_once(golden_file, tmp_path):
    argv = ["-m", "codecnn", "partition", golden_file("vvc/tiny64x64_ai_qp32.266"), "--planes", "unf_y", "-o"]
    _, messages = run_python([*argv, tmp_path / "first"], tmp_path)
    assert [line.split(",")[0] for line in messages if "compiling" in line] == [
        "codecnn: compiling the VVC decoder for about a minute"
    ]
    _, messages = run_python([*argv, tmp_path / "second"], tmp_path)
    assert messages == []
    first, second = (next((tmp_path / name).iterdir()).read_bytes() for name in ("first", "second"))
    assert first == second


def test_help_imports_neither_numba_nor_torch(tmp_path):
    """Both take long to import; `python -X importtime -m codecnn --help` shows the cost of each import."""
    for argv in (["--help"], ["partition", "--help"], ["dataset", "build", "--help"]):
        loaded = (
            f"import sys, codecnn.cli as c\nsys.argv = {['codecnn', *argv]}\ntry: c.main()\nexcept SystemExit: pass\n"
        )
        out, _ = run_python(["-c", loaded + "print([m for m in ('numba', 'torch') if m in sys.modules])"], tmp_path)
        assert out.endswith("[]\n")
