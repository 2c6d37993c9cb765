"""A PyTorch device "acc" that computes on the CPU: a rehearsal of GPU code on a machine without a GPU.

A tensor on acc wraps a CPU tensor. Every operation unwraps its arguments, runs on the CPU and wraps the result. As on
CUDA, these raise: an operation on tensors of both devices, oneDNN operators, `numpy()` of a tensor on acc, and a random
generator of the other device. `synchronisations` records where the program would wait for the device.

There are two devices, acc:0 and acc:1, each with a random state of its own. As on CUDA, "acc" without a number is the
current device, and an operation on tensors of both raises. Only Python sees the number: PyTorch can compute gradients
on one device of this kind, so that a copy from one to the other is not possible.

The device shows where tensors live. It says nothing about speed, streams, or what CUDA kernels compute.

PyTorch registers a device for the rest of the process, and its autograd threads do not survive a fork. The tests of
tests/rehearsal therefore run after all others.
"""

import contextlib
import functools
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "acc"
PACKAGE = str(Path(__file__).parents[2] / "codecnn")
COPIES = ("aten::_to_copy", "aten::copy_", "aten::_copy_from")
INDEXING = ("aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_")
"""Operations that accept indices on the CPU and copy them to the device."""
DATA_DEPENDENT = ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "equal", "bincount")
"""Operations whose result has a size, or is a number, that the device has to report."""

_recorders: list[Counter[str]] = []
_operation_counters: list[Counter[str]] = []
_libraries: list[torch.library.Library] = []


class AccTensor(torch.Tensor):
    """A tensor on acc; `cpu_tensor` holds its samples."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, index: int | None = None):
        with torch.inference_mode(False):  # views of tensors from outside the inference mode need a version counter
            return torch.Tensor._make_wrapper_subclass(
                cls,
                data.size(),
                strides=data.stride(),
                storage_offset=data.storage_offset(),
                dtype=data.dtype,
                device=f"{NAME}:0",
            )

    def __init__(self, data: torch.Tensor, index: int | None = None) -> None:
        self.cpu_tensor = data
        self.number = MODULE.index if index is None else index

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self) -> str:
        return f"AccTensor({self.cpu_tensor})"

    @property
    def device(self) -> torch.device:
        """The device with its number."""
        return torch.device(NAME, self.number)

    @property
    def data(self):
        """The tensor without its history; assigning another tensor of acc replaces the samples."""
        return self.detach()

    @data.setter
    def data(self, value) -> None:
        torch.Tensor.data.__set__(self, value)
        self.cpu_tensor = value.cpu_tensor

    def numpy(self, **options):
        """Refuse, as CUDA does."""
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first")

    def __array__(self, *arguments, **options):
        return self.numpy()

    def tolist(self):
        """Return the values as Python numbers; waits for the device."""
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        """Return the address of the first sample."""
        return self.cpu_tensor.data_ptr()

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            copied = AccTensor(self.cpu_tensor.detach().clone(), self.number)
            copied.requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                copied._is_param = True
            if self.grad is not None:
                copied.grad = self.grad.clone()
            memo[id(self)] = copied
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        # What PyTorch itself writes for devices without storages; `weights_only` accepts it.
        arguments = self.detach().cpu(), self.dtype, str(self.device), self.requires_grad
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, arguments

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run_on_cpu(func, args, kwargs or {})


def run_on_cpu(func, args, kwargs):
    """Run an operator on the CPU tensors behind its arguments.

    Raises:
        RuntimeError: The arguments live on two devices.
        NotImplementedError: The operator exists on the CPU only.
    """
    name = func._schema.name
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):  # in inference mode
        return func.decompose(*args, **kwargs)
    if not name.startswith(("aten::", "c10d::")):  # Gloo exchanges tensors between processes
        raise NotImplementedError(f"{name} exists on the CPU only, and has arguments on {NAME}")
    allows_scalars = torch.Tag.pointwise in func.tags or name.startswith("aten::_foreach") or name == "aten::fill_"

    def unwrap(x):
        if isinstance(x, AccTensor):
            return x.cpu_tensor
        if isinstance(x, torch.Tensor) and name not in COPIES + INDEXING and not (allows_scalars and x.dim() == 0):
            raise RuntimeError(
                f"{name}: expected all tensors on {NAME}, but found one on {x.device}, shape {tuple(x.shape)}"
            )
        return x

    device = kwargs.get("device")
    if name.startswith("aten::index") and len(args) > 1 and not isinstance(args[0], AccTensor):
        raise RuntimeError(f"{name}: a tensor on the CPU cannot be indexed or filled by one on {NAME}")
    cpu_args, cpu_kwargs = pytree.tree_map(unwrap, args), pytree.tree_map(unwrap, kwargs)
    if device is not None and torch.device(device).type == NAME:
        cpu_kwargs["device"] = "cpu"
    cpu_kwargs.pop("pin_memory", None)
    inputs = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, AccTensor)]
    to_acc = torch.device(device).type == NAME if device is not None else bool(inputs)
    numbers = {x.number for x in inputs if not (allows_scalars and x.dim() == 0)}
    if len(numbers) > 1:
        raise RuntimeError(f"{name}: expected all tensors on one device, but found them on {NAME}:0 and {NAME}:1")
    number = inputs[0].number if inputs else None if device is None else torch.device(device).index
    number = next(iter(numbers), number)
    if _recorders:
        _record(name, args, kwargs, to_acc)
    for counter in _operation_counters:
        counter[name.removeprefix("aten::")] += 1
    if torch.Tag.nondeterministic_seeded in func.tags and (to_acc or inputs):
        if any(isinstance(x, torch.Generator) for x in pytree.tree_leaves((args, kwargs))):
            raise RuntimeError(f"{name}: expected a generator on {NAME}, but found one on the CPU")
        with MODULE.own_random_state(number):
            out = func(*cpu_args, **cpu_kwargs)
    else:
        out = func(*cpu_args, **cpu_kwargs)
    if name == "aten::copy_":
        return args[0]
    for x in inputs:
        if x.shape != x.cpu_tensor.shape:
            raise NotImplementedError(f"{name} changes the shape of a tensor in place, which {NAME} cannot do")
    same = {id(x.cpu_tensor): x for x in inputs}

    def wrap(x):
        if isinstance(x, torch.Tensor) and not isinstance(x, AccTensor):
            return same[id(x)] if id(x) in same else (AccTensor(x, number) if to_acc else x)
        return x

    return pytree.tree_map(wrap, out)


def _record(name, args, kwargs, to_acc) -> None:
    """Count an operation that waits for the device, by kind and line of codecnn."""
    short = name.removeprefix("aten::")
    kind = None
    if name in COPIES:
        source, target = (args[1], args[0]) if name == "aten::copy_" else (args[0], None)
        target_on_acc = to_acc if target is None else isinstance(target, AccTensor)
        waits = not kwargs.get("non_blocking", len(args) > 2 and args[2] is True)
        if isinstance(source, AccTensor) and not target_on_acc:
            kind = "read"
        elif not isinstance(source, AccTensor) and target_on_acc and (waits or not hasattr(source, "counts_as_pinned")):
            kind = "write"
    elif short == "_local_scalar_dense":
        kind = "number"
    elif short in DATA_DEPENDENT or (
        name in INDEXING and any(x.dtype in (torch.bool, torch.uint8) for x in args[1] if x is not None)
    ):
        kind = "size"
    elif name in INDEXING and any(x is not None and not isinstance(x, AccTensor) for x in args[1]):
        kind = "write"
    if kind is not None:
        for recorder in _recorders:
            recorder[f"{kind} at {_caller()}"] += 1


def _caller() -> str:
    """Return the innermost line of codecnn on the stack, as "training/loop.py:12 function"."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            return f"{code.co_filename[len(PACKAGE) + 1 :]}:{frame.f_lineno} {code.co_name}"
        frame = frame.f_back
    return "outside codecnn"


@contextlib.contextmanager
def synchronisations():
    """Record within the context where the program waits for the device.

    Yields:
        A counter by "KIND at FILE:LINE FUNCTION". The kinds are "number" (`item`, `float`, `bool`), "read" (copy to the
        CPU), "write" (copy from memory that is not pinned, or a copy that is not asynchronous) and "size" (operations
        such as `nonzero`, whose result has a size that depends on the samples).
    """
    recorder: Counter[str] = Counter()
    _recorders.append(recorder)
    try:
        yield recorder
    finally:
        _recorders.remove(recorder)


class AccEvent:
    """An event, recorded on the current device unless a stream is given."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.device: int | None = None
        self.seconds = 0.0

    def record(self, stream: int | None = None) -> None:
        """Note the time and the number of the device."""
        self.device, self.seconds = MODULE.index if stream is None else stream, time.perf_counter()
        MODULE.events.append(self.device)

    def synchronize(self) -> None:
        """Return at once; every operation has ended."""

    def elapsed_time(self, other: "AccEvent") -> float:
        """Return the milliseconds until another event of the same device."""
        if self.device != other.device:
            raise RuntimeError("both events must be recorded on the same device")
        return 1000 * (other.seconds - self.seconds)


@contextlib.contextmanager
def operations():
    """Count the operations of the device within the context.

    Yields:
        A counter by the name of the operation, such as "convolution".
    """
    counter: Counter[str] = Counter()
    _operation_counters.append(counter)
    try:
        yield counter
    finally:
        _operation_counters.remove(counter)


class AccModule(_DummyBackendModule):
    """The module `torch.acc`.

    Attributes:
        index: Number of the current device.
        random_states: Random state of each device.
        events: Number of the device of each recorded event.
    """

    Event = AccEvent

    def __init__(self) -> None:
        self.index = 0
        self.random_states = [torch.Generator().manual_seed(0).get_state() for _ in range(2)]
        self.events: list[int] = []

    def _number(self, device=None) -> int:
        number = device if device is None or isinstance(device, int) else torch.device(device).index
        return self.index if number is None else number

    def current_device(self) -> int:
        """Return the number of the current device."""
        return self.index

    def set_device(self, device) -> None:
        """Make a device the current one."""
        self.index = self._number(device)

    def device_count(self) -> int:
        """Return the number of devices."""
        return len(self.random_states)

    def current_stream(self, device=None) -> int:
        """Return the only stream of a device, which is its number."""
        return self._number(device)

    def get_device_name(self, device=None) -> str:
        """Return the name of a device."""
        return f"rehearsal device {self._number(device)}"

    def max_memory_allocated(self, device=None) -> int:
        """Return a number of bytes."""
        return 2**20

    def mem_get_info(self, device=None) -> tuple[int, int]:
        """Return the bytes of free and of all memory."""
        return 2**30, 2**30

    @contextlib.contextmanager
    def own_random_state(self, device=None):
        """Draw from the random state of a device within the context."""
        number, before = self._number(device), torch.random.default_generator.get_state()
        torch.random.default_generator.set_state(self.random_states[number])
        try:
            yield
            self.random_states[number] = torch.random.default_generator.get_state()
        finally:
            torch.random.default_generator.set_state(before)

    def manual_seed(self, seed: int) -> None:
        """Seed the current device."""
        self.random_states[self.index] = torch.Generator().manual_seed(seed).get_state()

    def manual_seed_all(self, seed: int) -> None:
        """Seed all devices."""
        self.random_states = [torch.Generator().manual_seed(seed).get_state() for _ in self.random_states]

    def get_rng_state(self, device=None) -> torch.Tensor:
        """Return the random state of a device."""
        return self.random_states[self._number(device)]

    def set_rng_state(self, state: torch.Tensor, device=None) -> None:
        """Set the random state of a device."""
        self.random_states[self._number(device)] = state

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Return the types that autocast computes in."""
        return [torch.bfloat16, torch.float16]

    def synchronize(self, device=None) -> None:
        """Return at once; every operation has ended."""


MODULE = AccModule()


def _in_autocast(operation):
    """Return an operation that converts its float32 tensors to the type of autocast."""

    @functools.wraps(operation)
    def run(*args, **kwargs):
        def convert(x):
            is_float = isinstance(x, torch.Tensor) and x.dtype == torch.float32
            return x.to(torch.get_autocast_dtype(NAME)) if is_float else x

        args, kwargs = pytree.tree_map(convert, args), pytree.tree_map(convert, kwargs)
        with torch.autocast(NAME, enabled=False):
            return operation(*args, **kwargs)

    return run


def _arange(*arguments, dtype=None, layout=None, device=None, pin_memory=None):
    """Return `torch.arange` on acc."""
    return AccTensor(torch.arange(*arguments, dtype=dtype), torch.device(device).index)


def pin_memory(tensor: torch.Tensor, device=None) -> torch.Tensor:
    """Return a copy that counts as pinned; for `torch.Tensor.pin_memory`."""
    pinned = tensor.clone()
    pinned.counts_as_pinned = True
    return pinned


def _on_cpu_first(create):
    """Return `torch.tensor` or `torch.as_tensor`, which PyTorch cannot run on a device of Python, in two steps."""

    @functools.wraps(create)
    def run(data, *, device=None, **options):
        if device is None or torch.device(device).type != NAME:
            return create(data, device=device, **options)
        requires_grad = options.pop("requires_grad", False)
        tensor = create(data, **options)
        return tensor.to(device).requires_grad_(requires_grad) if requires_grad else tensor.to(device)

    return run


def patch(monkeypatch) -> None:
    """Make the device known to PyTorch and to codecnn for one test; `monkeypatch` is the fixture of pytest."""
    register()
    monkeypatch.setattr(torch, "tensor", _on_cpu_first(torch.tensor))
    monkeypatch.setattr(torch, "as_tensor", _on_cpu_first(torch.as_tensor))
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr("codecnn.models.inference.DEVICE_TYPES", ("cpu", "cuda", NAME))


def register() -> None:
    """Make the device known to PyTorch; once per process."""
    if _libraries:
        return
    _setup_privateuseone_for_python_backend(NAME, backend_module=MODULE)
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda op, *args, **kwargs: run_on_cpu(op, args, kwargs), "PrivateUse1")
    library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    autocast = torch.library.Library("aten", "IMPL")
    operations = {"conv2d": F.conv2d, "linear": F.linear, "matmul": torch.matmul, "mm": torch.mm, "bmm": torch.bmm}
    operations |= {"conv_transpose2d.input": F.conv_transpose2d, "addmm": torch.addmm}
    for name, operation in operations.items():
        autocast.impl(name, _in_autocast(operation), "AutocastPrivateUse1")
    ranges = torch.library.Library("aten", "IMPL")
    for name in ("arange", "arange.start", "arange.start_step"):  # PyTorch would enlarge an empty tensor in place
        ranges.impl(name, _arange, "PrivateUse1")
    _libraries.extend((library, autocast, ranges))
