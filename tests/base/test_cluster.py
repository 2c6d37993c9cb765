"""Work on a dask cluster (a scheduler and two worker processes on this machine) and in shards.

In an evaluation one of the workers accepts work and is stopped; when the other has finished some items, it is killed.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from codecnn.api.config import load_recipe
from codecnn.base import cluster as cluster_module
from codecnn.base.errors import ConfigError, EncoderError, WorkerError
from codecnn.codec import read_blocks, stream_table
from codecnn.dataset import build_store
from codecnn.modes.labels import label_blocks
from tests.helpers.commands import result_of
from tests.helpers.store_units import hashes

NETWORKS = ("low_cost_5", "low_cost_17")
NEEDED = "needs dask: pip install 'codecnn[cluster]'"
STREAMS = ("tiny64x64_ai_qp32", "tiny136x72_ai_qp32", "tiny64x64_ai_singletree_qp27", "tinyclip128x64_ld_qp37")


class Cluster:
    """A scheduler and workers with one thread each; `two` starts workers until two are running."""

    def __init__(self, folder):
        pytest.importorskip("distributed", reason=NEEDED)
        # Paths relative to the folder of the tests do not exist in this folder.
        self.folder, self.file, self.numbers = folder / "far" / "away", folder / "scheduler.json", itertools.count()
        self.folder.mkdir(parents=True)
        self.processes = [self.start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")]
        self.workers = {}
        deadline = time.monotonic() + 120
        while not self.file.exists():
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]

    def start(self, program, *argv):
        argv = [sys.executable, "-m", f"distributed.cli.{program}", *argv, "--no-dashboard"]
        argv += ["--scheduler-file", str(self.file)]
        return subprocess.Popen(argv, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def two(self):
        self.workers = {name: process for name, process in self.workers.items() if process.poll() is None}
        while len(self.workers) < 2:
            name = f"w{next(self.numbers)}"
            self.workers[name] = self.start("dask_worker", "--nthreads", "1", "--no-nanny", "--name", name)
            self.processes.append(self.workers[name])
        with self.client() as client:
            client.wait_for_workers(2, timeout=120)
            while self.names(client) != set(self.workers):
                time.sleep(0.05)
        return self.workers

    def client(self):
        from distributed import Client

        return Client(self.address, set_as_default=False)

    @staticmethod
    def names(client):
        return {worker["name"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()}

    @contextlib.contextmanager
    def kill_worker(self, results):
        """Stop a worker that holds work, and kill it as soon as `results()` is not empty."""
        name, victim = next(iter(self.two().items()))
        os.kill(victim.pid, signal.SIGSTOP)
        in_time, over, deadline = threading.Event(), threading.Event(), time.monotonic() + 120

        def kill():
            with self.client() as client:
                workers = client.scheduler_info(n_workers=-1)["workers"]
                (address,) = (key for key, worker in workers.items() if worker["name"] == name)
                while not over.wait(0.02) and time.monotonic() < deadline:
                    if client.processing().get(address) and results():
                        in_time.set()
                        break
                victim.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            yield
        finally:
            over.set()
            killer.join()
        assert in_time.is_set(), "the work finished before the stopped worker held an item"
        assert victim.wait() == -signal.SIGKILL

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def streams(own_golden):
    return [own_golden / "vvc" / f"{name}.266" for name in STREAMS]


@pytest.fixture(scope="module")
def evaluated(tiny_store, tmp_path_factory):
    """Evaluate in this process; returns the command and the folder of the results."""
    from codecnn import api as verbs

    folder = tmp_path_factory.mktemp("alone")
    verbs.evaluate(tiny_store.folder, NETWORKS, folder)
    return ["evaluate", tiny_store.folder, *(word for name in NETWORKS for word in ("-m", name))], folder


@pytest.fixture(scope="module")
def labelled(tiny_store, tmp_path_factory):
    """Label in this process; returns the options and the table."""
    options = {"block_sizes": "8,16", "cost": "dct,sad", "splits": ("train", "val", "test")}
    path = tmp_path_factory.mktemp("alone") / "labels.parquet"
    label_blocks(tiny_store.folder, path, **options)
    return options, path


def assert_evaluated_as(folder, alone):
    for name in ("pictures.csv", "ctus.parquet"):
        assert (folder / name).read_bytes() == (alone / name).read_bytes()
    models, expected = (json.loads((each / "results.json").read_text())["models"] for each in (folder, alone))
    for key in ("name", "bd_rate"):
        assert [model[key] for model in models] == [model[key] for model in expected]


def test_two_workers_build_the_same_store_if_one_dies(tiny_recipe, tiny_store, tmp_path, cluster, monkeypatch):
    store = tmp_path / "s"
    killed = []

    def kill_one_at_work():
        deadline = time.monotonic() + 60
        while len(list(store.glob("coded/.work-*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.002)
        victim.kill()
        killed.extend(store.glob("coded/.work-*"))
        # Files that a killed worker may leave behind.
        rest = store / "coded" / ".work-1of1-left"
        rest.mkdir()
        (rest / "half.yuv").write_bytes(b"half")

    victim, other = cluster.two().values()
    killer = threading.Thread(target=kill_one_at_work)
    killer.start()
    # The workers run in other working folders.
    monkeypatch.chdir(tiny_recipe.parent)
    build_store(load_recipe(tiny_recipe), Path(), store, scheduler=cluster.address)
    killer.join()
    assert killed
    assert victim.wait() == -9
    assert other.poll() is None
    # Other tests may have stored pictures of teachers in the shared store.
    expected = {name: value for name, value in hashes(tiny_store.folder).items() if not name.startswith("teachers/")}
    assert hashes(store) == expected


def test_error_on_a_worker_is_raised_here(tiny_recipe, tmp_path, cluster):
    cluster.two()
    recipe = load_recipe(tiny_recipe, ["params={IntraQPOffset: 2}"])
    with pytest.raises(EncoderError, match=r"at QP [34]4"):
        build_store(recipe, tiny_recipe.parent, tmp_path / "s", scheduler=cluster.address)


def test_evaluation_by_workers_equals_that_of_one_process(run, evaluated, tiny_store, tmp_path, cluster, monkeypatch):
    (_, store, *models), alone = evaluated
    # Paths relative to a folder in which the workers do not run.
    monkeypatch.chdir(store.parent)
    output = Path(os.path.relpath(tmp_path / "out"))
    with cluster.kill_worker(lambda: list(output.glob("cells/*.parquet"))):
        argv = ["evaluate", store.name, *models, "-o", output, "--backend", "dask", "--scheduler", cluster.address]
        status, _, err = run(*argv)
    assert status == 0, err
    assert_evaluated_as(output, alone)


def test_labels_by_workers_equal_those_of_one_process(labelled, tiny_store, tmp_path, cluster, monkeypatch):
    options, alone = labelled
    monkeypatch.chdir(tmp_path)
    output = Path("labels.parquet")
    cluster.two()
    result = label_blocks(tiny_store.folder, output, **options, scheduler=cluster.address)
    assert (result.complete, result.blocks) == (True, pq.read_metadata(alone).num_rows)
    assert output.read_bytes() == alone.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["labels.parquet"]


def test_partitions_by_workers_equal_those_of_one_process(run, streams, tmp_path, cluster):
    folder = tmp_path / "cus"
    cluster.two()
    argv = ["partition", *streams, "-o", folder, "--backend", "dask", "--scheduler", cluster.address]
    assert result_of(run, *argv) == {"streams": 4, "folder": str(folder)}
    result_of(run, "partition", *streams, "-o", tmp_path / "alone")
    for stream in streams:
        file = f"{stream.stem}.parquet"
        assert (folder / file).read_bytes() == (tmp_path / "alone" / file).read_bytes()
    assert read_blocks(folder / file).to_arrow() == stream_table(stream).to_arrow()


def test_shards_of_an_evaluation(run, evaluated, tmp_path):
    argv, alone = evaluated
    argv = [*argv, "-o", tmp_path]
    facts = result_of(run, *argv, "--shard", "1/3")
    assert facts == {"results": str(tmp_path), "shard": "1/3", "complete": False}
    # There are four cells; the two of the cheap network are together.
    assert len(list(tmp_path.glob("cells/*.parquet"))) == 1
    assert not (tmp_path / "results.json").exists()
    result_of(run, *argv, "--shard", "2/3")
    assert result_of(run, *argv, "--shard", "3/3") == json.loads((tmp_path / "results.json").read_text())
    assert_evaluated_as(tmp_path, alone)


def test_shards_of_an_evaluation_of_pictures_code_first(run, tiny_recipe, tmp_path):
    argv = ["evaluate", tiny_recipe.parent / "small.png", "-m", "low_cost_5", "--preset", "faster", "-q", "32,42"]
    argv += ["-o", tmp_path]
    for shard, complete in (("1/2", False), ("2/2", False), ("1/2", True)):
        facts = result_of(run, *argv, "--shard", shard)
        assert facts.get("complete", True) == complete
    assert facts["schema"]


def test_shards_of_labels(run, labelled, tiny_store, tmp_path):
    options, alone = labelled
    output = tmp_path / "labels.parquet"
    assert not label_blocks(tiny_store.folder, output, **options, shard=(1, 2)).complete
    parts = sorted((tmp_path / "labels.parquet.parts").iterdir())
    assert len(parts) == 3
    before = [part.stat().st_mtime_ns for part in parts]
    assert not label_blocks(tiny_store.folder, output, **options, shard=(1, 2)).complete
    assert [part.stat().st_mtime_ns for part in parts] == before
    assert label_blocks(tiny_store.folder, output, **options, shard=(2, 2)).complete
    assert output.read_bytes() == alone.read_bytes()
    # A shard that is started again finds the table and labels nothing.
    again = label_blocks(tiny_store.folder, output, **options, shard=(1, 2))
    assert (again.complete, again.blocks) == (True, pq.read_metadata(alone).num_rows)
    assert [path.name for path in tmp_path.iterdir()] == ["labels.parquet"]
    argv = ["labels", "-i", tiny_store.folder, "--block-sizes", "16", "-o", output]
    facts = result_of(run, *argv, "--shard", "1/2")
    assert facts == {"labels": str(output), "shard": "1/2", "complete": False}
    # The table of other settings is kept until the new one is complete.
    assert output.read_bytes() == alone.read_bytes()


def test_labels_keep_foreign_files_beside_their_parts(run, tiny_store, tmp_path):
    notes = tmp_path / "labels.parquet.parts" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    argv = ("labels", "-i", tiny_store.folder, "-o", tmp_path / "labels.parquet", "--shard", "1/2")
    status, _, text = run(*argv)
    assert (status, notes.read_text()) == (1, "mine")
    assert "holds other files, e.g. notes.txt" in text


def test_shards_of_partitions(run, streams, tmp_path):
    # The longest stream is alone in the first shard.
    assert result_of(run, "partition", *streams, "-o", tmp_path, "--shard", "2/2")["streams"] == 3
    damaged, intact, _ = tables = [tmp_path / f"{name}.parquet" for name in STREAMS[:3]]
    assert sorted(tmp_path.iterdir()) == sorted(tables)
    content, intact_time = damaged.read_bytes(), intact.stat().st_mtime_ns
    damaged.write_bytes(b"damaged")
    result_of(run, "partition", *streams, "-o", tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(STREAMS)
    # A complete table is not written again, a damaged one is.
    assert (damaged.read_bytes(), intact.stat().st_mtime_ns) == (content, intact_time)


def test_planes_of_several_streams(run, streams, tmp_path):
    argv = ["partition", *streams[:2], "--planes", "unf_y,bs_v", "-o", tmp_path]
    result_of(run, *argv)
    facts = json.loads((tmp_path / STREAMS[1] / "planes.json").read_text())
    assert facts["files"] == {"unf_y": "unf_y_136x72_10bit_400.yuv", "bs_v": "bs_v_136x72_8bit_400.yuv"}
    assert facts["pictures"] == 1
    file = tmp_path / STREAMS[1] / "unf_y_136x72_10bit_400.yuv"
    result_of(run, "partition", streams[1], "--planes", "unf_y,bs_v", "-o", tmp_path / "one")
    assert file.read_bytes() == (tmp_path / "one" / file.name).read_bytes()
    before = file.stat().st_mtime_ns
    result_of(run, *argv)
    assert file.stat().st_mtime_ns == before
    listing = tmp_path / STREAMS[1] / "planes.json"
    samples, content = file.read_bytes(), listing.read_text()

    def list_one():
        facts = json.loads(content)
        del facts["files"]["unf_y"]
        listing.write_text(json.dumps(facts))

    for damage in (file.unlink, lambda: file.write_bytes(samples[:-9]), list_one, lambda: listing.write_text("[1]")):
        damage()
        result_of(run, *argv)
        assert (file.read_bytes(), listing.read_text()) == (samples, content)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("evaluate {store} -m low_cost_5 -o {tmp}/o --shard 3/2", "shard 3/2 is not one of 1/2 to 2/2"),
        ("labels -i {store} -o {tmp}/l --shard 1", "shard '1' does not have the form I/N, e.g. 1/4"),
        ("labels -i {store} -o {tmp}/l --backend dask", "--scheduler ADDRESS must be given together"),
        ("partition {stream} -o {tmp}/o --scheduler tcp://a:1", "--backend dask and --scheduler ADDRESS must be"),
        ("partition {stream} {stream} -o {tmp}/o", "two streams have the same name: tiny64x64_ai_qp32"),
        ("partition {stream} {tmp}/b.266 -o {tmp}/o", "b.266 does not exist"),
        ("partition {stream} {tmp}/b.266 -o {tmp}/o.csv", "o.csv is a file: several streams need a folder"),
        ("evaluate-loop {store} -m low_cost_5 -o {tmp}/o", "is a store, which is already coded"),
    ],
)
def test_each_error_is_one_sentence(run, tiny_store, streams, tmp_path, argv, sentence):
    words = argv.format(store=tiny_store.folder, stream=streams[0], tmp=tmp_path).split()
    status, _, err = run(*words)
    assert (status, sentence in err, err.count("\n")) == (1, True, 1), err
    assert not list(tmp_path.iterdir())


def test_missing_scheduler(run, tiny_store, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason=NEEDED)
    monkeypatch.setattr(cluster_module, "SCHEDULER_TIMEOUT", "1s")
    argv = ["labels", "-i", tiny_store.folder, "-o", tmp_path / "l.parquet"]
    status, _, err = run(*argv, "--backend", "dask", "--scheduler", "tcp://127.0.0.1:9")
    assert status == 1
    assert err.startswith("codecnn: no dask scheduler answers at tcp://127.0.0.1:9")


def test_missing_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'codecnn\[cluster\]'"):
        cluster_module.work_through(print, [], Path, scheduler="tcp://127.0.0.1:9")


def test_workers_that_write_to_another_folder(cluster, tmp_path, monkeypatch):
    cluster.two()
    monkeypatch.setattr(cluster_module, "SEEN_SECONDS", 0.2)
    with pytest.raises(WorkerError, match="workers"):
        cluster_module.work_through(os.path.exists, ["a"], lambda _: tmp_path / "nothing", scheduler=cluster.address)


def test_work_that_kills_its_workers(cluster, tmp_path):
    def set_allowed_failures(count, dask_scheduler):
        dask_scheduler.allowed_failures = count

    cluster.two()
    with cluster.client() as client:
        client.run_on_scheduler(set_allowed_failures, 0)
        try:
            with pytest.raises(WorkerError, match="died"):
                cluster_module.work_through(os._exit, [1], lambda _: tmp_path, scheduler=cluster.address)
        finally:
            client.run_on_scheduler(set_allowed_failures, 3)


def test_scheduler_that_disappears(tmp_path):
    running = Cluster(tmp_path)

    def kill():
        def tasks(dask_scheduler):
            return len(dask_scheduler.tasks)

        with running.client() as client:
            while not client.run_on_scheduler(tasks):
                time.sleep(0.05)
            running.stop()

    killer = threading.Thread(target=kill)
    try:
        killer.start()
        with pytest.raises(WorkerError, match="disappeared: run the same command again"):
            # Without a worker, the call waits.
            cluster_module.work_through(print, [1], lambda _: tmp_path, scheduler=running.address)
    finally:
        killer.join()
        running.stop()
