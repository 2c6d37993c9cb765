"""Several processes train the same as a single one: same global batches, losses and weights."""

import copy
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from codecnn.api.config import checked
from codecnn.base.errors import CodecnnError, ConfigError, StoppedError
from codecnn.dataset import TrainingBatches
from codecnn.models import fold, load_model, named_outputs
from codecnn.training import FilterSettings, distributed, execution, loop, train_task
from codecnn.training.filter import filter_task
from tests.helpers.networks import DISTINCT, SMALL, random_planes, zoo_model
from tests.helpers.toy_task import run_toy
from tests.helpers.training import lines, rows, step_of, wait_for_checkpoint, weights_of, write_config

PLAIN = {"norm": False, "dropout": False}
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def run_process(rank, world, port, train, ends):
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in places.items()})
    held = None  # with its traceback, as code that reports the error holds it
    try:
        train(rank)
    except (CodecnnError, ArithmeticError) as error:
        held = error
    # If something still held the process group, its threads could end in a deadlock later.
    names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    if ends and any("gloo" in name for name in names):
        sys.exit(f"threads of the process group: {names}")
    if held is not None:
        sys.stderr.write(f"process {rank}: {held}\n")
        sys.exit(128 + held.signal if isinstance(held, StoppedError) else 1)


def run_processes(train, world=2, *, ends=True):
    """Call `train(rank)` in several processes and return their exit statuses.

    With `ends` the threads of the process group must have ended. Where the last exchange was one of DDP, a thread of
    Gloo keeps it, and with it the group, until the process ends.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=run_process, args=(rank, world, port, train, ends)) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    ended = [process.exitcode for process in processes]
    for process in processes:
        process.kill()  # in case it hangs
    return ended


def run_toys(run, events=({}, {}, {}), world=2, **arguments):
    """Train the toy with several processes and return their exit statuses."""
    return run_processes(lambda rank: run_toy(run, events=events[rank], **arguments), world)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    run_toy(run, **PLAIN)
    return run


def assert_equal_runs(run, alone):
    actual, expected = rows(run), rows(alone)
    assert [row["step"] for row in actual] == [row["step"] for row in expected]
    for a, b in zip(actual, expected, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-6)
        assert a["score"] == pytest.approx(b["score"], rel=1e-5)
    weights = load_file(run / "last.safetensors")
    for name, tensor in load_file(alone / "last.safetensors").items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("world", "changes"), [(2, {}), (3, {}), (3, {"accumulate": 2})])
def test_several_processes_train_the_same_as_a_single_one(alone, tmp_path, world, changes):
    """Three processes get 2, 3 and 3 of 8 examples; two parts of 3 examples have 2 and 1."""
    run = tmp_path / "run"
    assert run_toys(run, world=world, changes=changes, **PLAIN) == [0] * world
    assert_equal_runs(run, alone)
    assert lines(run / "log.jsonl")[0]["processes"] == world


def test_all_processes_end_if_the_folder_holds_other_files(tmp_path, capfd):
    (tmp_path / "notes.txt").write_text("mine")
    assert run_toys(tmp_path, **PLAIN) == [1, 1]
    err = capfd.readouterr().err
    assert err.count("is not the folder of a run and holds other files, such as notes.txt") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


class InFloat64:
    """A task computed in float64, in which the order of sums changes weights by about 1e-15.

    In float32 AdamW and Muon enlarge it: their steps do not become smaller with the gradients, so that the difference
    of two small gradients in the last digits can change a weight by a part of the learning rate.
    """

    def __init__(self, task):
        self.task = task
        task.model.double()

    def __getattr__(self, name):
        return getattr(self.task, name)

    def batches(self, *arguments):
        for batch in self.task.batches(*arguments):
            yield {name: tensor.double() for name, tensor in batch.items()}

    def validate(self, model, device):
        return self.task.validate(copy.deepcopy(model).float(), device)

    def pictures(self, model, device):
        return {}

    def save(self, path, model, card):
        pass


FILTERS = {
    "modulated": ("rdn", SMALL | {"blocks": 1, "conditioning": "film", "shuffle": 2}, {"accumulate": 2}),
    "muon": ("rdn", SMALL | {"blocks": 1, "layers": 1}, {"optimiser": "muon", "clip": 1e-3}),
    "weighted": ("low_cost_5", {}, {"error_exponent": 0.5, "keep_objective": True, "border": 4, "loss": "satd"}),
    "norm": ("dncnn", {"layers": 3}, {}),
}


@pytest.mark.parametrize("case", FILTERS)
def test_several_processes_train_the_same_filter(tiny_store, tmp_path, case):
    """After 20 steps, with the first process training on 2 of 5 patches and the second one on 3."""
    name, options, changes = FILTERS[case]
    small = {"steps": 20, "batch": 5, "patch": 16, "warmup": 2, "validate_every": 20, "checkpoint_every": 20}
    small |= {"validation_pictures": 1, "threads": 1, "device": "cpu"}
    settings = checked(FilterSettings, small | changes, "training")

    def train(run):
        train_task(lambda: InFloat64(filter_task(tiny_store, name, options, settings)), settings, run)

    train(tmp_path / "one")
    assert run_processes(lambda rank: train(tmp_path / "two")) == [0, 0]
    one, two = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("one", "two"))
    for part in ("model", "averaged"):
        for key, tensor in one[part].items():
            torch.testing.assert_close(two[part][key], tensor, rtol=0, atol=1e-10)
    assert rows(tmp_path / "two")[0]["loss"] == pytest.approx(rows(tmp_path / "one")[0]["loss"], rel=1e-6)
    assert rows(tmp_path / "two")[0]["score"] == pytest.approx(rows(tmp_path / "one")[0]["score"], rel=1e-5)


def test_all_processes_use_the_fastest_form_of_the_first_one(alone, tmp_path, monkeypatch):
    def seconds(step, device):
        step()
        taken.append(1)
        first, later = (4.0, 1.0) if os.environ["RANK"] == "0" else (1.0, 4.0)
        return first if len(taken) <= 2 else later  # float32 twice, then bfloat16

    taken = []
    monkeypatch.setattr(execution, "_step_seconds", seconds)
    for name, precision in (("chose", "auto"), ("given", "bfloat16")):
        assert run_toys(tmp_path / name, changes={"steps": 10, "precision": precision}, **PLAIN) == [0, 0]
    assert weights_of(tmp_path / "chose") == weights_of(tmp_path / "given")


def test_no_process_reads_files_before_the_first_one_writes_them(tmp_path, monkeypatch):
    written = loop.write_row
    monkeypatch.setattr(loop, "write_row", lambda *row: (time.sleep(1), written(*row)))
    assert run_toys(tmp_path / "run", changes={"steps": 2}, **PLAIN) == [0, 0]
    assert [row["step"] for row in rows(tmp_path / "run")] == [2]


def test_accumulated_gradients_equal_those_of_the_batch(alone, tmp_path):
    run_toy(tmp_path / "run", {"accumulate": 3}, **PLAIN)
    assert_equal_runs(tmp_path / "run", alone)
    with pytest.raises(ConfigError, match=r"batch 8 .* 9"):
        run_toy(tmp_path / "odd", {"accumulate": 9}, **PLAIN)
    assert not (tmp_path / "odd").exists()


def test_a_task_with_another_batch_is_refused(tmp_path):
    with pytest.raises(CodecnnError, match=r"batch of 4 .* 8"):
        run_toy(tmp_path / "run", batch=4)


def test_a_signal_to_either_process_stops_both_after_one_step(alone, tmp_path):
    """The run then continues in three processes and ends in a single one."""
    run = tmp_path / "run"
    assert run_toys(run, events=({}, {("loss", 4): signal.SIGTERM}), **PLAIN) == [143, 143]
    assert step_of(run) in (5, 6)
    term = {("loss", 17): signal.SIGTERM}
    assert run_toys(run, events=(term, term, term), world=3, resume=True, **PLAIN) == [143] * 3
    run_toy(run, resume=True, **PLAIN)
    assert_equal_runs(run, alone)


@pytest.mark.parametrize(
    "event", [signal.SIGKILL, ArithmeticError("planted"), {("validate", 1): signal.SIGKILL}], ids=str
)
@pytest.mark.parametrize("dying", [0, 1])
def test_a_process_that_ends_ends_the_others(alone, tmp_path, capfd, dying, event):
    """The other one ends with a sentence, and the run continues from the last checkpoint."""
    run = tmp_path / "run"
    events = [{}, {}]
    events[dying] = event if isinstance(event, dict) else {("forward", 17): event}
    statuses = run_toys(run, events=events, **PLAIN)
    assert statuses[1 - dying] == 1
    assert statuses[dying] == (1 if isinstance(event, Exception) else -signal.SIGKILL)
    sentence = f"process {1 - dying} of 2 lost its connection to another process, which has ended"
    assert sentence in capfd.readouterr().err
    assert step_of(run) in (10, 14, 20)
    run_toy(run, resume=True, **PLAIN)
    assert_equal_runs(run, alone)


def test_a_signal_during_validation_stops_both_processes(alone, tmp_path):
    run = tmp_path / "run"
    term = {("validate", 1): signal.SIGTERM}
    assert run_toys(run, events=(term, term), **PLAIN) == [143, 143]
    assert step_of(run) == 20
    assert [row["step"] for row in rows(run)] == [10]
    assert run_toys(run, resume=True, **PLAIN) == [0, 0]
    assert_equal_runs(run, alone)


def test_networks_average_their_gradients(tmp_path):
    """A warning is an error. That every parameter of every network has a gradient is a test of the networks."""

    def average(rank):
        with distributed.process_group("cpu") as process:
            for name in DISTINCT:
                model = zoo_model(name).to(memory_format=torch.channels_last)
                network = distributed.in_parallel(model, process)
                outputs = named_outputs(network(random_planes(model, 8, 8, seed=rank)))
                sum((plane - 1).square().mean() for plane in outputs.values()).backward()
                largest = torch.stack([parameter.grad.abs().max() for parameter in model.parameters()])
                both = distributed.gather([largest, largest])
                assert torch.equal(both[0], both[1]), name
                assert largest.max() > 0, name

    assert run_processes(average, ends=False) == [0, 0]


@pytest.mark.parametrize("momentum", [0.3, None])
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 5), (6, 4, 5, 3), (6, 4, 2, 3, 2)], ids=len)
def test_a_synchronised_norm_equals_batch_norm(tmp_path, momentum, shape):
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    torch.manual_seed(0)
    x = (torch.randn(shape, dtype=torch.float64) + 50).requires_grad_()
    target = torch.randn(shape, dtype=torch.float64)
    plain = nn.Sequential(kind(4, momentum=momentum), kind(4, affine=False)).double()
    nn.init.normal_(plain[0].weight)
    several = copy.deepcopy(plain)

    def compare(rank):
        with distributed.process_group("cpu") as process:
            assert distributed.synchronise_norms(several, process)
            assert {type(norm) for norm in several} == {distributed.SynchronisedNorm}
            part = slice(0, 2) if rank == 0 else slice(2, 6)
            share = x.detach()[part].clone().requires_grad_()
            for _ in range(2):
                (several(share) * target[part]).sum().backward()
                (plain(x) * target).sum().backward()
            torch.testing.assert_close(share.grad, x.grad[part])
            gradient = several[0].weight.grad
            distributed.dist.all_reduce(gradient)
            torch.testing.assert_close(gradient, plain[0].weight.grad)
            torch.testing.assert_close(several.state_dict(), plain.state_dict())
            torch.testing.assert_close(several.eval()(x), plain.eval()(x))

    assert run_processes(compare) == [0, 0]


def test_synchronised_norms_fold_and_export(tiny_store, tmp_path):
    small = {"steps": 5, "batch": 4, "patch": 16, "warmup": 1, "validate_every": 5, "validation_pictures": 1}
    settings = checked(FilterSettings, small | {"threads": 1, "device": "cpu", "ema": 0}, "training")
    run = tmp_path / "run"

    def train(rank):
        train_task(lambda: filter_task(tiny_store, "dncnn", {"layers": 3}, settings), settings, run)

    assert run_processes(train) == [0, 0]
    assert "batch norm is synchronised over the processes" in (run / "log.jsonl").read_text()
    network, _ = load_model(run / "last.safetensors")
    statistics = torch.load(run / "checkpoint.pt", weights_only=True)["model"]["norms.1.running_mean"]
    assert torch.equal(network.norms[1].running_mean, statistics)
    assert statistics.abs().max() > 0
    planes = random_planes(network, 24, 24)
    folded = fold(network)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    torch.testing.assert_close(folded(planes), network.eval()(planes))


def test_shares_of_a_batch_form_the_batch_and_are_mixed(tiny_store):
    def draw(part, step):
        data = TrainingBatches(tiny_store.split("train"), batch=32, steps=9, size=32, part=part)
        return list(zip(*data.draw(step), strict=True))

    counts = Counter()
    for step in range(8):
        whole = draw((0, 1), step)
        assert [pair for rank in range(4) for pair in draw((rank, 4), step)] == whole
        counts.update((rank, patch.unit) for rank in range(4) for patch, _ in draw((rank, 4), step))
    # Each of four processes sees each of two QPs 32 times on average, with a standard deviation of 4.
    assert all(16 <= counts[rank, unit] <= 48 for rank in range(4) for unit in range(2))
    uneven = [draw((rank, 5), 0) for rank in range(5)]
    assert [len(part) for part in uneven] == [6, 6, 7, 6, 7]
    assert [pair for part in uneven for pair in part] == draw((0, 1), 0)
    with pytest.raises(ConfigError, match="32 patches cannot be split over 33"):
        draw((0, 33), 0)


def test_gathered_results_are_in_order(monkeypatch):
    assert distributed.share("abcde") == "abcde"
    assert distributed.gather(["a", "b"]) == ["a", "b"]
    monkeypatch.setattr(distributed.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed.dist, "get_world_size", lambda: 3)
    shares = []
    for rank in range(3):
        monkeypatch.setattr(distributed.dist, "get_rank", lambda rank=rank: rank)
        shares.append(list(distributed.share("abcdefgh")))

    def all_gather(parts, results):
        parts[:] = shares

    monkeypatch.setattr(distributed.dist, "all_gather_object", all_gather)
    assert "".join(distributed.gather(shares[1])) == "abcdefgh"


@pytest.mark.slow
def test_torchrun_trains_and_stops(tiny_store, tmp_path):
    """Train a filter with torchrun, compare with a single process, then send SIGTERM to torchrun."""
    settings = {"steps": 6, "batch": 4, "patch": 32, "validate_every": 3, "threads": 1, "device": "cpu"}
    config = write_config(tmp_path / "small.yaml", tiny_store, SMALL, **settings)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "codecnn"]
    alone = [sys.executable, "-m", "codecnn"]
    for command, name in ((torchrun, "two"), (alone, "one")):
        subprocess.run([*command, "train", str(config), "-o", name], cwd=tmp_path, check=True, timeout=300)
    for a, b in zip(rows(tmp_path / "two"), rows(tmp_path / "one"), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert a["gain_db"] == pytest.approx(b["gain_db"], abs=1e-4)
    process = subprocess.Popen(
        [*torchrun, "train", str(config), "training.steps=100000", "training.checkpoint_every=2", "-o", "long"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_checkpoint(tmp_path / "long", process)
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert lines(tmp_path / "long" / "log.jsonl")[-1]["event"] == "stopped", err
