"""The runtime of a run: what it sets for the whole process is restored at the end, and the log records it."""

import contextlib
import dataclasses
import json
import resource
import sys
from pathlib import Path

import pytest
import torch

from codecnn.api.config import checked
from codecnn.base import runtime
from codecnn.base.errors import ConfigError
from codecnn.base.runtime import applied, keep_freed_memory
from codecnn.training import FilterSettings, train_task, training_runtime
from tests.helpers.networks import SMALL
from tests.helpers.toy_task import SETTINGS, ToyTask
from tests.helpers.training import lines, train_filter


def torch_settings():
    """Return the settings of torch that belong to the process."""
    cudnn = torch.backends.cudnn
    return torch.get_num_threads(), cudnn.benchmark, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


@pytest.fixture
def unusual_settings():
    """Settings of torch that differ from those of a run on the CPU."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    torch.set_num_threads(3)
    cudnn.benchmark = cudnn.allow_tf32 = matmul.allow_tf32 = True
    yield torch_settings()
    cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before


class FakeLibrary:
    """A C library that records the calls of mallopt and malloc_trim."""

    def __init__(self):
        self.calls = []

    def mallopt(self, parameter, value):
        self.calls.append((parameter, value))

    def malloc_trim(self, size):
        self.calls.append(("trim", size))


class FailingTask(ToyTask):
    """A toy whose loss fails at the third step, and that records the settings of torch during the run."""

    def __init__(self, fail=True):
        super().__init__()
        self.fail, self.during = fail, None

    def loss(self, model, batch):
        self.during = torch_settings()
        if self.fail and self.counts["loss"] == 2:
            raise ZeroDivisionError
        return super().loss(model, batch)


@pytest.mark.parametrize("fail", [False, True])
def test_settings_of_torch_are_restored_after_a_run(tmp_path, unusual_settings, fail):
    task = FailingTask(fail)
    if fail:
        with pytest.raises(ZeroDivisionError):
            train_task(lambda: task, SETTINGS, tmp_path)
    else:
        train_task(lambda: task, SETTINGS, tmp_path)
    assert task.during == (1, False, False, False)  # threads of the settings, float32 without TF32
    assert torch_settings() == unusual_settings


@pytest.mark.parametrize("fail", [False, True])
def test_allocator_settings_are_restored_after_a_run(tmp_path, monkeypatch, fail):
    library = FakeLibrary()
    monkeypatch.setattr(runtime, "_glibc", lambda: library)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "123456")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "not a number")
    if fail:
        with pytest.raises(ZeroDivisionError):
            train_task(FailingTask, SETTINGS, tmp_path)
    else:
        train_task(ToyTask, SETTINGS, tmp_path)
    mmap, trim = -3, -1
    during, after = [(mmap, 2**25), (trim, 2**31 - 1)], [(mmap, 2**25), (trim, 123456), ("trim", 0)]
    assert library.calls == during + after


def test_allocator_is_unchanged_on_cuda(monkeypatch):
    library = FakeLibrary()
    monkeypatch.setattr(runtime, "_glibc", lambda: library)
    monkeypatch.setattr(runtime, "current_device", lambda device: contextlib.nullcontext())
    record = training_runtime(SETTINGS, torch.device("cuda:1"))
    assert (record.device, record.cudnn_benchmark) == ("cuda:1", True)
    before = torch_settings()
    with applied(record):
        assert torch.backends.cudnn.benchmark
    assert torch_settings() == before
    assert library.calls == []


def test_threads_stay_as_they_are_if_the_settings_do_not_name_a_number():
    torch.set_num_threads(2)
    record = training_runtime(SETTINGS.model_copy(update={"threads": None}), torch.device("cpu"))
    with applied(record):
        assert torch.get_num_threads() == record.threads == 2


def test_log_records_the_runtime(tmp_path):
    train_task(ToyTask, SETTINGS.model_copy(update={"precision": "auto"}), tmp_path)
    started = lines(tmp_path / "log.jsonl")[0]
    assert started["event"] == "started"
    record = started["runtime"]
    assert record.pop("precision") in ("float32", "bfloat16")  # the choice, not "auto"
    assert record == {
        "device": "cpu",
        "compile": False,
        "channels_last": True,
        "threads": 1,
        "tf32": False,
        "deterministic": False,
        "cudnn_benchmark": False,
        "keep_freed_memory": True,
    }


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: mallopt is of glibc")
def test_freed_memory_is_kept():
    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            torch.ones(2**20)  # 1,024 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with keep_freed_memory():
        faults()
        assert faults() < 1024


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: it reads /proc and calls mallopt")
def test_kept_memory_is_returned_at_the_end():
    def resident_mib():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    with keep_freed_memory():
        tensors = [torch.ones(2**22) for _ in range(16)]  # 16 MiB each
        del tensors
        kept = resident_mib()
    assert resident_mib() < kept - 128


class WatchingTask(ToyTask):
    """A toy that records flags of PyTorch during steps and validations."""

    def __init__(self):
        super().__init__()
        self.steps, self.validations = set(), set()

    def loss(self, model, batch):
        self.steps.add(flags())
        return super().loss(model, batch)

    def validate(self, model, device):
        self.validations.add(flags())
        return super().validate(model, device)


def flags():
    cudnn = torch.backends.cudnn
    return cudnn.conv.fp32_precision, cudnn.benchmark, torch.are_deterministic_algorithms_enabled()


def test_validation_computes_as_the_commands_do(tmp_path, monkeypatch):
    """On a GPU steps may use TF32 and timed algorithms; whole pictures are validated in float32 without either."""
    changed = SETTINGS.model_copy(update={"tf32": True})
    task, original = WatchingTask(), training_runtime

    def as_on_a_gpu(settings, device, threads):
        return dataclasses.replace(original(settings, device), cudnn_benchmark=True)

    monkeypatch.setattr("codecnn.training.loop.training_runtime", as_on_a_gpu)
    train_task(lambda: task, changed, tmp_path)
    assert task.steps == {("tf32", True, False)}
    assert task.validations == {("ieee", False, False)}


def test_a_deterministic_run(tmp_path):
    task = WatchingTask()
    result = train_task(lambda: task, SETTINGS.model_copy(update={"deterministic": True}), tmp_path)
    assert {flag[2] for flag in task.steps | task.validations} == {True}
    assert result.runtime.deterministic
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_operation_without_a_deterministic_algorithm_is_named(tmp_path):
    class Scattering(ToyTask):
        def loss(self, model, batch):
            torch.zeros(4).put_(torch.tensor([0]), torch.ones(1))
            return super().loss(model, batch)

    train_task(Scattering, SETTINGS, tmp_path / "free")
    with pytest.raises(ConfigError, match=r"training\.deterministic: put_"):
        train_task(Scattering, SETTINGS.model_copy(update={"deterministic": True}), tmp_path / "bound")


def test_the_device_stays_current_during_a_run(tmp_path, monkeypatch):
    """Compiled kernels, seeds and events use the current device."""
    entered = []

    @contextlib.contextmanager
    def current_device(device):
        entered.append(str(device))
        yield
        entered.append("left")

    monkeypatch.setattr(runtime, "current_device", current_device)
    train_task(ToyTask, SETTINGS, tmp_path)
    assert (entered[0], entered[-1]) == ("cpu", "left")


def test_cards_and_results_state_the_runtime(tiny_store, tmp_path):
    settings = {"steps": 1, "batch": 2, "patch": 32, "warmup": 0, "validate_every": 1, "threads": 1, "device": "cpu"}
    loaded = checked(FilterSettings, settings, "training")
    result = train_filter(tiny_store, "rdn", SMALL, loaded, tmp_path / "run")
    card = json.loads((tmp_path / "run/best.json").read_text())
    assert card["training"]["runtime"] == result.runtime.as_json()
    assert (result.runtime.device, result.runtime.precision, result.runtime.threads) == ("cpu", "float32", 1)


def test_a_failed_compilation_is_not_recorded_as_compiled(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", fail)
    result = train_task(ToyTask, SETTINGS.model_copy(update={"compile": True}), tmp_path)
    assert result.runtime.compile is False


def test_graphs_are_compiled_for_one_shape(tmp_path, monkeypatch):
    """Every step announces itself, so that its outputs may overwrite those of the step before."""
    modes, marks = [], []
    monkeypatch.setattr(torch, "compile", lambda model, **options: modes.append(options) or model)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append(1))
    settings = SETTINGS.model_copy(update={"compile": "reduce-overhead"})
    result = train_task(ToyTask, settings, tmp_path)
    assert modes == [{"mode": "reduce-overhead", "dynamic": False}]
    assert len(marks) == SETTINGS.steps
    assert result.runtime.compile == "reduce-overhead"
    with pytest.raises(ConfigError, match="compile: reduce-overhead needs accumulate 1"):
        checked(FilterSettings, {"compile": "reduce-overhead", "accumulate": 2}, "training")
