"""Building on a real dask cluster: a scheduler and two worker processes on this machine."""

import json
import subprocess
import sys
import threading
import time

import pytest

from codecnn.config import load_recipe
from codecnn.dataset import build
from codecnn.dataset.build import build_store
from codecnn.errors import ConfigError, EncoderError
from tests.helpers.store_units import hashes

pytest.importorskip("distributed", reason="the extra `cluster` is not installed")


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler, and its two worker processes of one thread each."""
    address_file = tmp_path / "scheduler.json"

    def start(program, *argv):
        argv = [sys.executable, "-m", f"distributed.cli.{program}", *argv, "--scheduler-file", str(address_file)]
        return subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    processes = [start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")]
    try:
        processes += [start("dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard") for _ in range(2)]
        deadline = time.monotonic() + 60
        while not address_file.exists():
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)
        yield json.loads(address_file.read_text())["address"], processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_two_workers_make_the_same_store_and_one_may_die(tiny_recipe, tiny_store, tmp_path, cluster):
    address, workers = cluster
    store = tmp_path / "s"
    killed = []

    def kill_one_at_work():
        deadline = time.monotonic() + 60
        while len(list(store.glob("coded/.work-*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.002)
        workers[0].kill()
        killed.extend(store.glob("coded/.work-*"))
        # What it may leave, whatever it had reached.
        left = store / "coded" / ".work-1of1-left"
        left.mkdir()
        (left / "half.yuv").write_bytes(b"half")

    killer = threading.Thread(target=kill_one_at_work)
    killer.start()
    build_store(load_recipe(tiny_recipe), tiny_recipe.parent, store, scheduler=address)
    killer.join()
    assert killed
    assert workers[0].wait() == -9
    assert workers[1].poll() is None
    assert hashes(store) == hashes(tiny_store.folder)


def test_an_error_on_a_worker_is_the_same_error_here(tiny_recipe, tmp_path, cluster):
    recipe = load_recipe(tiny_recipe, ["params={IntraQPOffset: 2}"])
    with pytest.raises(EncoderError, match=r"at QP [34]4"):
        build_store(recipe, tiny_recipe.parent, tmp_path / "s", scheduler=cluster[0])


def test_no_scheduler_at_the_address(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "SCHEDULER_TIMEOUT", "1s")
    with pytest.raises(ConfigError, match=r"no dask scheduler answers at tcp://127\.0\.0\.1:9"):
        build_store(load_recipe(tiny_recipe), tiny_recipe.parent, tmp_path / "s", scheduler="tcp://127.0.0.1:9")
