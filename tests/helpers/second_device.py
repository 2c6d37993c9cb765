"""A PyTorch device "acc" that computes on the CPU, to find operations that mix devices on a machine without a GPU.

A tensor on acc wraps a CPU tensor. Every operation unwraps its arguments, runs on the CPU and wraps the result. As on
CUDA, these raise: an operation on tensors of both devices, an operator outside of ATen, and `numpy()` of a tensor on
acc. The device shows where tensors live, not speed, streams, or what CUDA kernels compute.

PyTorch registers a device for the rest of the process, so the cases of tests/devices run in a process of their own.
"""

import contextlib
import functools
import os
from collections import Counter

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "acc"
COPIES = ("aten::_to_copy", "aten::copy_", "aten::_copy_from")
INDEXING = ("aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_")
"""Operations that accept indices on the CPU."""

computed: Counter[str] = Counter()
"""Number of operations on the device by their names, such as "convolution"."""
_libraries: list[torch.library.Library] = []


class AccTensor(torch.Tensor):
    """A tensor on acc; `cpu_tensor` holds its samples."""

    @staticmethod
    def __new__(cls, data):
        with torch.inference_mode(False):  # views of tensors from outside the inference mode need a version counter
            sizes = {"strides": data.stride(), "storage_offset": data.storage_offset()}
            return torch.Tensor._make_wrapper_subclass(cls, data.size(), dtype=data.dtype, device=f"{NAME}:0", **sizes)

    def __init__(self, data):
        self.cpu_tensor = data

    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, value):
        torch.Tensor.data.__set__(self, value)
        self.cpu_tensor = value.cpu_tensor

    def numpy(self, **options):
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first")

    def __array__(self, *arguments, **options):
        return self.numpy()

    def tolist(self):
        return self.cpu().tolist()

    def data_ptr(self):
        return self.cpu_tensor.data_ptr()

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            copied = AccTensor(self.cpu_tensor.detach().clone()).requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                copied._is_param = True
            memo[id(self)] = copied
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        arguments = self.detach().cpu(), self.dtype, str(self.device), self.requires_grad
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, arguments

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run_on_cpu(func, args, kwargs or {})


def run_on_cpu(func, args, kwargs):
    """Run an operator on the CPU tensors behind its arguments; raise RuntimeError where devices are mixed."""
    name = func._schema.name
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):  # in inference mode
        return func.decompose(*args, **kwargs)
    if not name.startswith("aten::"):
        raise NotImplementedError(f"{name} exists on the CPU only, and has arguments on {NAME}")
    allows_scalars = torch.Tag.pointwise in func.tags or name.startswith("aten::_foreach") or name == "aten::fill_"

    def unwrap(x):
        if isinstance(x, AccTensor):
            return x.cpu_tensor
        if isinstance(x, torch.Tensor) and name not in COPIES + INDEXING and not (allows_scalars and x.dim() == 0):
            raise RuntimeError(f"{name}: expected all tensors on {NAME}, but found one on {x.device}")
        return x

    device = kwargs.get("device")
    if name in INDEXING and not isinstance(args[0], AccTensor):
        raise RuntimeError(f"{name}: a tensor on the CPU cannot be indexed or filled by one on {NAME}")
    cpu_args, cpu_kwargs = pytree.tree_map(unwrap, args), pytree.tree_map(unwrap, kwargs)
    if device is not None and torch.device(device).type == NAME:
        cpu_kwargs["device"] = "cpu"
    cpu_kwargs.pop("pin_memory", None)
    inputs = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, AccTensor)]
    to_acc = torch.device(device).type == NAME if device is not None else bool(inputs)
    computed[name.removeprefix("aten::")] += 1
    out = func(*cpu_args, **cpu_kwargs)
    if name == "aten::copy_":
        return args[0]
    same = {id(x.cpu_tensor): x for x in inputs}

    def wrap(x):
        if isinstance(x, torch.Tensor) and not isinstance(x, AccTensor):
            return same[id(x)] if id(x) in same else (AccTensor(x) if to_acc else x)
        return x

    return pytree.tree_map(wrap, out)


class AccEvent:
    """An event of a device whose operations have always ended."""

    def __init__(self, enable_timing=False):
        pass

    def record(self, stream=None):
        pass

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 1.0


class AccModule(_DummyBackendModule):
    """The module `torch.acc`: one device, which draws its random numbers from the generator of the CPU."""

    Event = AccEvent

    def current_device(self):
        return 0

    def device_count(self):
        return 1

    def set_device(self, device):
        pass

    def current_stream(self, device=None):
        return 0

    def get_device_name(self, device=None):
        return "second device"

    def max_memory_allocated(self, device=None):
        return 2**20

    def mem_get_info(self, device=None):
        return 2**30, 2**30

    def manual_seed(self, seed):
        torch.random.default_generator.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device=None):
        return torch.random.default_generator.get_state()

    def set_rng_state(self, state, device=None):
        torch.random.default_generator.set_state(state)

    def get_amp_supported_dtype(self):
        return [torch.bfloat16]

    def synchronize(self, device=None):
        pass


def _arange(*arguments, dtype=None, layout=None, device=None, pin_memory=None):
    return AccTensor(torch.arange(*arguments, dtype=dtype))


def _on_cpu_first(create):
    """Return `torch.tensor` or `torch.as_tensor`, which PyTorch cannot run on a device of Python, in two steps."""

    @functools.wraps(create)
    def run(data, *, device=None, **options):
        if device is None or torch.device(device).type != NAME:
            return create(data, device=device, **options)
        return create(data, **options).to(device)

    return run


def patch(monkeypatch):
    """Make the device known to PyTorch and to codecnn for one test; `monkeypatch` is the fixture of pytest."""
    if not _libraries:
        _setup_privateuseone_for_python_backend(NAME, backend_module=AccModule())
        library = torch.library.Library("_", "IMPL")
        library.fallback(lambda op, *args, **kwargs: run_on_cpu(op, args, kwargs), "PrivateUse1")
        ranges = torch.library.Library("aten", "IMPL")
        for name in ("arange", "arange.start", "arange.start_step"):  # PyTorch would enlarge an empty tensor in place
            ranges.impl(name, _arange, "PrivateUse1")
        _libraries.extend((library, ranges))
    monkeypatch.setattr(torch, "tensor", _on_cpu_first(torch.tensor))
    monkeypatch.setattr(torch, "as_tensor", _on_cpu_first(torch.as_tensor))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor.clone())
    monkeypatch.setattr("codecnn.models.inference.DEVICE_TYPES", ("cpu", "cuda", NAME))


def count(operation):
    """Return the number of times that the device ran an operation; on a GPU the number of allocations up to now."""
    if os.environ.get("CODECNN_TEST_DEVICE"):
        return torch.cuda.memory_stats().get("allocation.all.allocated", 0)
    return computed[operation]


@contextlib.contextmanager
def computes(operation):
    """Check that the device runs an operation within the context."""
    before = count(operation)
    yield
    assert count(operation) > before, f"the device ran no {operation}"
