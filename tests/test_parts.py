"""Each part can be taken out: a copy of codecnn without it imports, shows its help and does the work of the core."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codecnn.base import errors, parts

ROOT = Path(__file__).resolve().parents[1]
STREAM = ROOT / "tests/data/vvc/tiny64x64_ai_qp32.266"
WEIGHTS = ("low_cost_5.vvc.json", "low_cost_5.vvc.safetensors")

REQUESTS = {
    "analysis": [["python", "correlate"], ["correlate", "store", "-o", "out"]],
    "viewer": [["python", "view"], ["view", str(STREAM)]],
    "modes": [["python", "label_blocks"], ["labels", "-i", "a.png", "-o", "b.parquet"], ["check", "modes.yaml"]],
    "signalling": [["python", "write_filter"], ["nnpf", "read", str(STREAM)]],
}
"""Requests that need a part: public names of Python, and commands."""
MORE_REQUESTS = {"signalling": [["filter", "-i", str(STREAM), "-o", "carried.y4m"]]}
"""Requests that need a part and PyTorch."""

COMMANDS = [["--help"], ["info", str(STREAM), "--json"]]
MORE_COMMANDS = [
    ["models", "--json"],
    ["complexity", "rdn", "--json"],
    ["filter", "-m", "low_cost_5", "--float", "-i", str(STREAM), "-o", "filtered.y4m"],
]
"""Commands of the core that need PyTorch."""

# One process does all, since PyTorch takes seconds to import.
SCRIPT = """
import importlib, io, json, pkgutil, sys
from contextlib import redirect_stderr, redirect_stdout

import codecnn

part, commands, requests, everything = json.loads(sys.argv[1])
result = {"file": codecnn.__file__, "names": [], "commands": {}, "requests": []}
assert importlib.util.find_spec(f"codecnn.{part}") is None


def run(argv):
    sys.argv = ["codecnn", *argv]
    out, err, status = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            status = ended.code
    return status, out.getvalue(), err.getvalue()


for request in requests:
    if request[0] == "python":
        try:
            getattr(codecnn, request[1])
        except codecnn.base.errors.CodecnnError as error:
            result["requests"].append([request, 1, str(error)])
for module in pkgutil.walk_packages(codecnn.__path__, "codecnn.") if everything else ():
    if module.name.split(".")[1] not in ("analysis", "viewer", "modes", "signalling", "__main__"):
        importlib.import_module(module.name)
for name in codecnn.__all__ if everything else ():
    try:
        getattr(codecnn, name)
        result["names"].append(name)
    except codecnn.base.errors.ToolMissingError:
        pass
from codecnn.cli import main

for argv in commands:
    result["commands"][argv[0]] = run(argv)
for request in requests:
    if request[0] != "python":
        status, _, text = run(request)
        result["requests"].append([request, status, text])
print(json.dumps(result))
"""


def copy_without(part, folder):
    """Copy the code of codecnn, with its bytecode, without a part, and one network."""
    left_out = shutil.ignore_patterns("*.nbi", "*.nbc", "shipped")
    shutil.copytree(ROOT / "codecnn", folder / "codecnn", ignore=left_out)
    shipped = folder / "codecnn/models/shipped"
    shipped.mkdir()
    for name in WEIGHTS:
        shutil.copy2(ROOT / "codecnn/models/shipped" / name, shipped)
    shutil.rmtree(folder / "codecnn" / part)
    (folder / "modes.yaml").write_text("task: intra_modes\nlabels: [a.parquet]\n", "utf-8")


def run_without(part, folder, commands, requests, *, everything):
    """Run commands of the core, and requests that need the part, in a copy without it."""
    copy_without(part, folder)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([part, commands, requests, everything])],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert Path(result["file"]).is_relative_to(folder)
    for name, (status, _, text) in result["commands"].items():
        assert status == 0, (name, text)
    assert len(result["requests"]) == len(requests)
    for request, status, text in result["requests"]:
        assert status in (1, 2), request
        assert f"codecnn.{part}" in text, (request, text)
    return result


@pytest.mark.parametrize("part", parts.OWN_PARTS)
def test_commands_work_without_a_part(part, tmp_path):
    result = run_without(part, tmp_path, COMMANDS, REQUESTS[part], everything=False)
    info = json.loads(result["commands"]["info"][1])
    assert ("carried_post_filters" in info) == (part != "signalling")


@pytest.mark.slow
@pytest.mark.parametrize("part", parts.OWN_PARTS)
def test_the_whole_core_works_without_a_part(part, tmp_path):
    result = run_without(part, tmp_path, MORE_COMMANDS, MORE_REQUESTS.get(part, []), everything=True)
    assert {"filter", "train", "evaluate", "open_video"} <= set(result["names"])
    assert (tmp_path / "filtered.y4m").stat().st_size > 64 * 64


def test_a_function_of_a_part_is_found_by_name():
    assert parts.absent_parts() == []
    assert parts.find_extension("unknown.function") is None
    with pytest.raises(errors.ToolMissingError, match=r"codecnn\.unknown"):
        parts.extension("unknown.function")


@pytest.mark.parametrize("part", parts.OWN_PARTS)
def test_all_that_a_part_provides_exists(part):
    for name in parts.parts()[part].functions:
        assert parts.extension(f"{part}.{name}") is not None
    for task in parts.parts()[part].tasks:
        assert parts.task_configuration(task).model_fields["task"].default == task
