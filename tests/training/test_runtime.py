"""The runtime of a run: what it sets for the whole process is restored at the end, and the log records it."""

import resource
import sys
from pathlib import Path

import pytest
import torch

from codecnn.training import Runtime, runtime, train_task
from codecnn.training.runtime import applied, keep_freed_memory
from tests.helpers.toy_task import SETTINGS, ToyTask
from tests.helpers.training import lines


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
    record = Runtime.of(SETTINGS, torch.device("cuda:1"))
    assert (record.device, record.cudnn_benchmark) == ("cuda:1", True)
    before = torch_settings()
    with applied(record):
        assert torch.backends.cudnn.benchmark
    assert torch_settings() == before
    assert library.calls == []


def test_threads_stay_as_they_are_if_the_settings_do_not_name_a_number():
    torch.set_num_threads(2)
    record = Runtime.of(SETTINGS.model_copy(update={"threads": None}), torch.device("cpu"))
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
        "cudnn_benchmark": False,
        "keep_freed_memory": True,
    }


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt exists only in glibc")
def test_freed_memory_is_kept():
    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            torch.ones(2**20)  # 1,024 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with keep_freed_memory():
        faults()
        assert faults() < 1024


@pytest.mark.skipif(sys.platform != "linux", reason="/proc and mallopt")
def test_kept_memory_is_returned_at_the_end():
    def resident_mib():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    with keep_freed_memory():
        tensors = [torch.ones(2**22) for _ in range(16)]  # 16 MiB each
        del tensors
        kept = resident_mib()
    assert resident_mib() < kept - 128
