"""Builds that several processes share: balance, killed and hung workers, and a disk that is full for one of them."""

import json
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

from codecnn.api.config import load_recipe
from codecnn.dataset import build_shard, build_store, open_store
from tests.helpers.store_units import hashes

SHARDS = 3


def start(recipe, store, *options, largest=resource.RLIM_INFINITY):
    """Start a build in a process of its own, which can write files of `largest` bytes at most."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({largest}, {largest}))"
    argv = [sys.executable, "-c", f"{limit}; import codecnn.cli; codecnn.cli.main()"]
    argv += ["dataset", "build", str(recipe), "-o", str(store), *options]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process):
    """Wait for a build; returns its exit status and its messages."""
    _, messages = process.communicate()
    return process.returncode, messages


def start_shards(recipe, store):
    return [start(recipe, store, "--shard", f"{index}/{SHARDS}") for index in range(1, SHARDS + 1)]


def signal_at_work(processes, store, number):
    """Send a signal to each of some shards, by index, as soon as it codes a unit."""
    waiting = dict(processes)
    while waiting:
        for index, process in list(waiting.items()):
            assert process.poll() is None, finish(process)
            if list(store.glob(f"coded/.work-{index}of{SHARDS}-*")):
                process.send_signal(number)
                del waiting[index]
        time.sleep(0.002)


def check_units(store):
    """Check that each folder of a unit is a whole unit, with files of the recorded content."""
    for folder in store.glob("coded/*_qp*"):
        unit = json.loads((folder / "unit.json").read_text())
        recomputed = {f"coded/{folder.name}/{name}": value for name, value in hashes(folder).items()}
        assert {name: recomputed[name] for name in unit["files"] if name.startswith("coded/")} == {
            name: value for name, value in unit["files"].items() if name.startswith("coded/")
        }


@pytest.fixture(scope="module")
def expected(tiny_store):
    """Hashes of the store that one process built; other tests may have stored pictures of teachers in it."""
    return {name: value for name, value in hashes(tiny_store.folder).items() if not name.startswith("teachers/")}


@pytest.mark.parametrize("preset", ["medium", "slower"])
def test_a_large_picture_is_a_shard_of_its_own(tiny_recipe, tmp_path, preset):
    """Also with a preset whose time was not measured."""
    small = "{source: small.png, name: small1}, {source: small.png, name: small2}"
    sequences = f"sequences=[{{source: small.png, name: small0}}, {{source: 'skimage:astronaut.png'}}, {small}]"
    recipe = load_recipe(tiny_recipe, [sequences, "qp=[22]", f"preset={preset}"])
    assert not build_shard(recipe, tiny_recipe.parent, tmp_path, (2, 2))
    names = sorted(path.name.split("_")[0] for path in tmp_path.glob("coded/*_qp*"))
    assert names == ["small0", "small1", "small2"]


@pytest.mark.slow
def test_two_of_three_workers_are_killed(tiny_recipe, expected, tmp_path):
    processes = start_shards(tiny_recipe, tmp_path)
    signal_at_work({index: processes[index - 1] for index in (1, 2)}, tmp_path, signal.SIGKILL)
    assert [finish(process)[0] for process in processes] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert {path.name.split("-")[1] for path in tmp_path.glob("coded/.work-*")} == {"1of3", "2of3"}
    check_units(tmp_path)
    # The second shard is started again, and a build of everything does the rest.
    assert finish(start(tiny_recipe, tmp_path, "--shard", f"2/{SHARDS}"))[0] == 0
    assert not (tmp_path / "manifest.json").exists()
    build_store(load_recipe(tiny_recipe), tiny_recipe.parent, tmp_path)
    assert hashes(tmp_path) == expected


def test_a_worker_hangs_while_others_do_its_work(tiny_recipe, expected, tmp_path):
    """As on a file system that stops answering; later it goes on."""
    process = start(tiny_recipe, tmp_path, "--shard", f"1/{SHARDS}")
    signal_at_work({1: process}, tmp_path, signal.SIGSTOP)
    try:
        build_store(load_recipe(tiny_recipe), tiny_recipe.parent, tmp_path)
        assert len(open_store(tmp_path).units) == 6
    finally:
        process.send_signal(signal.SIGCONT)
    status, messages = finish(process)
    assert status == 0, messages
    assert hashes(tmp_path) == expected


@pytest.mark.parametrize(("limit", "cut"), [(5000, "originals"), (20_000, "units")])
def test_one_worker_cannot_write_all_of_a_file(tiny_recipe, tiny_store, expected, tmp_path, limit, cut):
    """A limit of the size of files stands for a disk that is full for one worker: files are cut short."""
    recipe = load_recipe(tiny_recipe)
    if cut == "units":
        shutil.copytree(tiny_store.folder / "originals", tmp_path / "originals")
        shutil.copy(tiny_store.folder / ".codecnn-store", tmp_path)

    status, messages = finish(start(tiny_recipe, tmp_path, "--shard", "1/2", largest=limit))
    assert (status, messages.count("Traceback")) == (1, 0), messages
    assert ("ulimit -f" in messages) == (cut == "originals")
    assert not list(tmp_path.glob("coded/.work-*"))
    assert not build_shard(recipe, tiny_recipe.parent, tmp_path, (2, 2))
    check_units(tmp_path)
    assert build_shard(recipe, tiny_recipe.parent, tmp_path, (1, 2))
    assert hashes(tmp_path) == expected
