"""The runtime: everything that it sets for the process is restored, and float32 means float32 for every filter."""

import contextlib
import os

import numpy as np
import pytest
import torch

from codecnn.base.errors import ConfigError
from codecnn.base.runtime import Runtime, applied, fastest_threads, float32_products
from codecnn.filtering import BFloat16Filter, FloatFilter, TF32Filter
from codecnn.filtering.integer import ExactFilter
from codecnn.filtering.integer.torch_engine import exact_arithmetic
from codecnn.models import create_model
from codecnn.pictures.files import Picture
from tests.helpers.networks import SMALL

BACKENDS = torch.backends
CPU = torch.device("cpu")


def products():
    """Return the precision of all products of float32, by operation."""
    return {
        "cuda conv": BACKENDS.cudnn.conv.fp32_precision,
        "cuda rnn": BACKENDS.cudnn.rnn.fp32_precision,
        "cuda matmul": BACKENDS.cuda.matmul.fp32_precision,
        "cpu conv": BACKENDS.mkldnn.conv.fp32_precision,
        "cpu rnn": BACKENDS.mkldnn.rnn.fp32_precision,
        "cpu matmul": BACKENDS.mkldnn.matmul.fp32_precision,
    }


def state():
    """Return all flags of the process that a runtime can change, also as the old interface of PyTorch shows them."""
    seen = products() | {"benchmark": BACKENDS.cudnn.benchmark, "deterministic": BACKENDS.cudnn.deterministic}
    seen |= {"algorithms": torch.are_deterministic_algorithms_enabled(), "threads": torch.get_num_threads()}
    seen |= {"workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"), "all": BACKENDS.fp32_precision}
    for name, read in (
        ("allow_tf32", lambda: BACKENDS.cudnn.allow_tf32),
        ("matmul", torch.get_float32_matmul_precision),
    ):
        try:
            seen[name] = read()
        except RuntimeError:
            seen[name] = "mixed"
    return seen


ALL_BITS = dict.fromkeys(products(), "ieee")
TF32 = ALL_BITS | {"cuda conv": "tf32", "cuda rnn": "tf32", "cuda matmul": "tf32"}


def allow_all():
    BACKENDS.fp32_precision = "tf32"


def allow_medium():
    torch.set_float32_matmul_precision("medium")


def mix_interfaces():
    BACKENDS.cudnn.conv.fp32_precision = "ieee"
    BACKENDS.cuda.matmul.fp32_precision = "tf32"


def allow_old():
    BACKENDS.cudnn.allow_tf32 = BACKENDS.cuda.matmul.allow_tf32 = True


@pytest.fixture(params=[None, allow_old, allow_medium, allow_all, mix_interfaces])
def user_flags(request):
    """Set flags that a program may have set before it calls codecnn."""
    before = products()
    if request.param is not None:
        request.param()
    yield
    BACKENDS.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    BACKENDS.cudnn.allow_tf32 = True
    for operation, name in (
        (BACKENDS.cuda.matmul, "cuda matmul"),
        (BACKENDS.mkldnn.conv, "cpu conv"),
        (BACKENDS.mkldnn.matmul, "cpu matmul"),
    ):
        operation.fp32_precision = before[name]


@pytest.mark.parametrize(("tf32", "expected"), [(False, ALL_BITS), (True, TF32)])
@pytest.mark.parametrize("fail", [False, True])
def test_products_of_float32_use_all_bits_whatever_was_allowed(user_flags, tf32, expected, fail):
    before = state()
    with contextlib.suppress(ZeroDivisionError), float32_products(tf32=tf32):
        assert products() == expected
        # The old interface, which the compiler of PyTorch reads, agrees instead of raising.
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
        assert BACKENDS.cudnn.allow_tf32 is tf32
        if fail:
            raise ZeroDivisionError
    assert state() == before


def test_inherited_flags_are_inherited_again():
    """A program that changes its global flag after a call of codecnn must see it take effect."""
    BACKENDS.fp32_precision = "tf32"
    try:
        with float32_products():
            pass
        BACKENDS.fp32_precision = "ieee"
        assert BACKENDS.cuda.matmul.fp32_precision == "ieee"
    finally:
        BACKENDS.fp32_precision = "none"
        BACKENDS.cudnn.allow_tf32 = True  # without it the old interface refuses to be read


@pytest.mark.parametrize("fail", [False, True])
def test_a_deterministic_runtime_sets_and_restores_every_flag(fail):
    before = state()
    runtime = Runtime("cpu", threads=before["threads"] + 1, deterministic=True, cudnn_benchmark=True)
    with contextlib.suppress(ZeroDivisionError), applied(runtime):
        inside = state()
        if fail:
            raise ZeroDivisionError
    assert inside["threads"] == before["threads"] + 1
    assert inside["benchmark"]
    assert inside["deterministic"]
    assert inside["algorithms"]
    assert inside["workspace"] == ":4096:8"
    assert state() == before


def test_flags_are_restored_in_reverse_order(monkeypatch):
    """Nested runtimes, such as a validation within a training, end with the flags of the outer one."""
    outer = Runtime("cpu", threads=torch.get_num_threads(), cudnn_benchmark=True, tf32=True)
    inner = Runtime.of_filter(CPU)
    before = state()
    with applied(outer):
        during = state()
        with applied(inner):
            assert not BACKENDS.cudnn.benchmark
            assert products() == ALL_BITS
        assert state() == during
        assert products() == TF32
    assert state() == before


class Recorder(torch.nn.Module):
    """A network that records the flags in which it runs."""

    planes = ("rec_y",)
    halo, radius, stride = 0, 0, 1

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def forward(self, planes):
        self.seen.append((products(), BACKENDS.cudnn.benchmark))
        return planes["rec_y"] * (1 + self.scale)


def test_a_filter_computes_pictures_in_float32_without_timing_algorithms(user_flags, monkeypatch):
    monkeypatch.setattr(BACKENDS.cudnn, "benchmark", True)
    from codecnn.models import as_filter_network

    filter_ = FloatFilter(as_filter_network(Recorder()))
    recorder = filter_.model.network
    recorder.seen.clear()
    filter_(Picture((np.zeros((16, 16), np.uint8),), 8), 37)
    assert recorder.seen[-1] == (ALL_BITS, False)
    assert BACKENDS.cudnn.benchmark


def test_every_filter_has_its_record():
    model = create_model("rdn", **SMALL)
    runtime = FloatFilter(model).runtime
    assert (runtime.device, runtime.precision, runtime.tf32, runtime.threads) == (
        "cpu",
        "float32",
        False,
        torch.get_num_threads(),
    )
    assert BFloat16Filter(model).runtime.precision == "bfloat16"
    assert ExactFilter.precision == "integer"
    assert Runtime.of_filter(CPU).cache_key() == {}, "cells of the CPU in float32 keep their keys"
    assert Runtime.of_filter(torch.device("cuda:0"), "tf32").cache_key() == {"tf32": True}
    with pytest.raises(ConfigError, match="TF32"):
        TF32Filter(model)


def test_integers_are_exact_whatever_a_program_allows(user_flags):
    before = state()
    with exact_arithmetic("cpu"):
        assert products()["cuda matmul"] == "ieee", "cuBLAS would sum integers in TF32"
        assert products()["cpu conv"] == "ieee"
    assert state() == before


class Backend:
    """The module of a device type with two devices, which records its calls."""

    def __init__(self):
        self.index, self.calls = 0, []

    def current_device(self):
        return self.index

    def set_device(self, index):
        self.index = index

    def manual_seed(self, number):
        self.calls.append((self.index, number))


def test_the_device_of_a_runtime_is_the_current_one_until_its_end(monkeypatch):
    from codecnn.base.runtime import seed

    backend = Backend()
    monkeypatch.setattr(torch, "get_device_module", lambda device: backend)
    with applied(Runtime("cuda:1", threads=torch.get_num_threads())):
        assert backend.index == 1
    assert backend.index == 0
    seed(7, torch.device("cuda:1"))
    assert backend.calls == [(1, 7)]
    assert backend.index == 0


@pytest.mark.parametrize(
    ("speeds", "chosen"),
    [
        ({4: 100, 2: 55, 1: 30}, 4),
        ({4: 100, 2: 110, 1: 30}, 4),  # within the noise of a short measurement
        ({4: 3, 2: 55, 1: 30}, 2),
        ({4: 3, 2: 4, 1: 30}, 1),
        ({1: 30}, 1),
    ],
)
def test_fewer_threads_are_chosen_only_if_they_are_faster(speeds, chosen):
    assert fastest_threads(max(speeds), speeds.__getitem__) == chosen


def test_threads_are_timed_with_the_number_asked_for(monkeypatch):
    """Each timing runs with its own number of threads; afterwards the number is the one from before."""
    torch.set_num_threads(2)
    seen, convolve = [], torch.conv2d
    monkeypatch.setattr(torch, "conv2d", lambda *a, **k: seen.append(torch.get_num_threads()) or convolve(*a, **k))
    assert fastest_threads(2) in (1, 2)
    assert set(seen) == {1, 2}
    assert torch.get_num_threads() == 2
