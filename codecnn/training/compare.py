"""Layer-by-layer comparison of two networks on the same input: the first tensor that differs, and by how much.

Useful when a result is not reproduced: with another checkpoint, device or precision, or with a compiled or prepared
network.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils._pytree import tree_map_only

from codecnn.base.division import ceil_div
from codecnn.base.errors import ModelError
from codecnn.base.planes import QP_SCALE
from codecnn.base.runtime import float32_products
from codecnn.dataset import Store, TrainingBatches
from codecnn.models import FilterNetwork, pick_device, prepare, probe_planes
from codecnn.pictures.files import Picture
from codecnn.training.execution import Autocast, forward_hooks, in_precision

OUTPUT = "(output)"
"""Name of the last row, the output of the network."""

ROUNDING_TOLERANCE, TF32_TOLERANCE, BFLOAT16_TOLERANCE = 1e-5, 1e-2, 1e-1
"""Tolerances, relative to the largest magnitude of a tensor, for other orders of summation, TF32 and bfloat16."""

Trace = list[tuple[str, Tensor]]
"""Outputs of the modules by name, in the order in which they finish; tensors on the CPU."""


@dataclass(frozen=True)
class LayerDifference:
    """Difference between the outputs of a module in two networks.

    Attributes:
        name: Name of the module.
        shape_a: Shape of the output in the first network.
        shape_b: Shape of the output in the second network.
        maximum: Largest absolute difference; infinite if only one of two values is finite, or NaN; None if the shapes
            differ.
        relative: `maximum` divided by the largest magnitude of the tensor in the first network; None if the shapes
            differ.
        first: Index of the first element, in row-major order, that differs by more than the tolerance, or None.
    """

    name: str
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]
    maximum: float | None
    relative: float | None
    first: tuple[int, ...] | None

    @property
    def differs(self) -> bool:
        """True if the shapes differ, or an element differs by more than the tolerance."""
        return self.shape_a != self.shape_b or self.first is not None


def compare_networks(
    a: nn.Module, b: nn.Module, *inputs: Any, tolerance: float = 0.0, skip: Sequence[str] = ()
) -> list[LayerDifference]:
    """Compare what every module that both networks have returns for the same input.

    Modules are matched by name (with "#2" for a second call). A wrapper is compared by the network within it, see
    `unwrapped`. Both networks run in the mode (training or evaluation) in which they are.

    Args:
        a: The first network.
        b: The second network.
        *inputs: Arguments of the networks, such as a dictionary of planes. Each network gets them on its own device,
            and a float64 network as float64.
        tolerance: Difference from which elements differ, relative to the largest magnitude of their tensor in `a`.
        skip: Names of modules to leave out.

    Returns:
        A row per output, in the order in which `a` computes them.

    Raises:
        ModelError: The networks have no module in common.
    """
    trace_a, outputs_b = trace(a, *inputs), dict(trace(b, *inputs))
    common = [(name, tensor) for name, tensor in trace_a if name in outputs_b and name not in skip]
    if all(name.startswith(OUTPUT) for name, _ in common):
        raise ModelError(
            "the networks have no layer in common, since no module name is in both: compare two of one kind"
        )
    return [tensor_difference(name, tensor, outputs_b[name], tolerance) for name, tensor in common]


def first_difference(rows: Sequence[LayerDifference]) -> LayerDifference | None:
    """Return the first row that differs, or None."""
    return next((row for row in rows if row.differs), None)


def trace(network: nn.Module, *inputs: Any) -> Trace:
    """Record the outputs of all modules of a network, in the order in which they finish, the network's own last.

    An output of several tensors has a row for each, with its key or index: `name[y]`. A compiled network is compiled
    with hooks on all modules; its own output is that of the graph without hooks.

    Args:
        network: The network.
        *inputs: Arguments of the network.

    Returns:
        Names and tensors.
    """
    outputs: list[tuple[str, Any]] = []

    def record(name: str, output: Any) -> None:
        # Cloned, since later layers may write in place.
        outputs.append((name, tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), output)))

    core = unwrapped(network)
    placed = _placed(core, inputs)
    with forward_hooks({name: module for name, module in core.named_modules() if name}, record):
        output = network(*placed)
    if network is not core:
        output = network(*placed)
    calls: Counter[str] = Counter()
    rows: Trace = []
    for name, value in [*outputs, (OUTPUT, output)]:
        calls[name] += 1
        number = "" if calls[name] == 1 else f"#{calls[name]}"
        rows.extend((name + number + key, tensor.detach().cpu()) for key, tensor in _tensors(value))
    return rows


def unwrapped(network: nn.Module) -> nn.Module:
    """Return the network within the wrappers of torch.compile, autocast, averaging and data parallelism."""
    inner = getattr(network, "_orig_mod", None)
    if inner is None and isinstance(network, Autocast | AveragedModel | DistributedDataParallel):
        inner = network.module
    return unwrapped(inner) if isinstance(inner, nn.Module) else network


def _tensors(output: Any, key: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a nested output, each with its path in it."""
    if isinstance(output, Tensor):
        yield key, output
    elif isinstance(output, Mapping):
        for name, value in output.items():
            yield from _tensors(value, f"{key}[{name}]")
    elif isinstance(output, tuple | list):
        for index, value in enumerate(output):
            yield from _tensors(value, f"{key}[{index}]")


def _placed(network: nn.Module, inputs: Any) -> Any:
    """Move nested inputs to the device of a network, and floats to the type of its parameters."""
    like = next(network.parameters(), torch.empty(0))

    def place(tensor: Tensor) -> Tensor:
        return tensor.to(like.device, like.dtype if tensor.is_floating_point() else tensor.dtype)

    return tree_map_only(Tensor, place, inputs)


def tensor_difference(name: str, a: Tensor, b: Tensor, tolerance: float) -> LayerDifference:
    """Compare two tensors on the CPU in float64. NaN equals NaN, and infinity equals infinity.

    Args:
        name: Name of the row.
        a: The first tensor.
        b: The second tensor.
        tolerance: Difference from which elements differ, relative to the largest magnitude of `a`.

    Returns:
        The row.
    """
    shapes = tuple(a.shape), tuple(b.shape)
    if a.shape != b.shape:
        return LayerDifference(name, *shapes, None, None, None)
    a, b = a.double(), b.double()
    apart = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs()).nan_to_num(math.inf, math.inf)
    if apart.numel() == 0:
        return LayerDifference(name, *shapes, 0.0, 0.0, None)
    finite = a[a.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    maximum = float(apart.max())
    relative = 0.0 if maximum == 0 else maximum / scale if scale > 0 else math.inf
    beyond = (apart > tolerance * scale).flatten()
    first = None
    if beyond.any():
        first = tuple(int(index) for index in torch.unravel_index(beyond.int().argmax(), a.shape))
    return LayerDifference(name, *shapes, maximum, relative, first)


def folded_layers(a: nn.Module, prepared: nn.Module) -> list[str]:
    """Return the modules of a prepared network whose output differs from that of the original module by construction.

    A convolution that contains its batch normalisation returns the output of the norm, and one that replaces several
    branches returns their sum.

    Args:
        a: The original network.
        prepared: The network prepared for filtering.

    Returns:
        Names to pass to `compare_networks` as `skip`.
    """
    prepared_modules = dict(unwrapped(prepared).named_modules())
    changed = []
    for name, module in a.named_modules():
        before, other = dict(module.named_parameters(recurse=False)), prepared_modules.get(name)
        if other is None or type(other) is not type(module):
            continue
        after = dict(other.named_parameters(recurse=False))
        if any(key not in after or not torch.equal(value, after[key].to(value)) for key, value in before.items()) or (
            after.keys() - before.keys()
        ):
            changed.append(name)
    return changed


def variant(
    model: FilterNetwork, *, device: str = "cpu", dtype: str = "float32", compiled: bool = False, prepared: bool = False
) -> nn.Module:
    """Return a variant of a network.

    Args:
        model: The network.
        device: Device to run on.
        dtype: "float32", "float64", or "bfloat16" (autocast).
        compiled: Whether to compile it.
        prepared: Whether to prepare it for filtering.

    Raises:
        ConfigError: The device does not exist.
    """
    target = pick_device(device)
    network: nn.Module = model.to(target)
    if dtype == "float64":
        network = network.double()
    if prepared:
        network = prepare(model)
    if compiled:
        network = torch.compile(network)  # type: ignore[assignment]
    return in_precision(network, dtype, target)


def default_tolerance(alike: bool, bfloat16: bool, tf32: bool) -> float:
    """Return the tolerance for a pair of networks.

    Args:
        alike: Whether both compute in the same way.
        bfloat16: Whether one of them computes in bfloat16.
        tf32: Whether TF32 is allowed.
    """
    if bfloat16:
        return BFLOAT16_TOLERANCE
    if tf32:
        return TF32_TOLERANCE
    return 0.0 if alike else ROUNDING_TOLERANCE


def exact_float32(exact: bool) -> AbstractContextManager[None]:
    """Forbid TF32 within the context if `exact`, else allow it: products on CUDA then use a 10-bit mantissa."""
    return float32_products(tf32=not exact)


def noise_planes(model: FilterNetwork, size: int = 64, seed: int = 0) -> dict[str, Tensor]:
    """Return uniform noise in [0, 1] on all planes of a network, for one patch of `size` luma samples at QP 37."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {name: plane.shape for name, plane in probe_planes(model, size, size).items()}
    noise = {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
    return noise | ({"qp": torch.full((1, 1, 1, 1), 37 / QP_SCALE)} if "qp" in noise else {})


def store_planes(model: FilterNetwork, store: Store, size: int = 64, patches: int = 4) -> dict[str, Tensor]:
    """Return the planes of a network for the first patches of a training on all pictures of a store.

    Args:
        model: The network.
        store: The store.
        size: Width and height of a patch in luma samples.
        patches: Number of patches.

    Raises:
        StoreError: The store lacks a plane.
    """
    batch = TrainingBatches(
        store.units, batch=patches, steps=1, size=size, halo=model.halo, planes=model.planes, augment=False
    )[0]
    return {name: batch[name] for name in model.planes}


def picture_planes(model: FilterNetwork, picture: Picture, qp: int, size: int = 256) -> dict[str, Tensor]:
    """Return the planes of a network from the middle of a decoded picture.

    Args:
        model: The network.
        picture: The decoded picture.
        qp: Its slice QP.
        size: Width and height of the cut in luma samples; smaller pictures give less.

    Raises:
        ModelError: The network takes other planes than samples and QP, or chroma is not 4:2:0.
    """
    available = {"rec_y": picture.y, "rec_u": picture.u, "rec_v": picture.v}
    planes = {"qp": torch.full((1, 1, 1, 1), qp / QP_SCALE)} if "qp" in model.planes else {}
    step = math.lcm(model.stride, 2)
    for name in model.planes:
        if name == "qp":
            continue
        plane = available.get(name)
        if plane is None:
            raise ModelError(f"a decoded picture does not have the plane {name!r}: use a store that has it as input")
        factor = 1 if name == "rec_y" else 2
        if factor == 2 and any(ceil_div(y, 2) != c for y, c in zip(picture.y.shape, plane.shape, strict=True)):
            raise ModelError(
                f"the network takes 4:2:0 chroma, not {plane.shape} with luma {picture.y.shape}: use a 4:2:0 picture"
            )
        window = []
        for extent in picture.y.shape:
            length = (min(extent, size + 2 * model.halo) - 2 * model.halo) // step * step + 2 * model.halo
            start = (extent - length) // 2 // step * step
            window.append(slice(start // factor, (start + length) // factor))
        samples = torch.from_numpy(plane[tuple(window)].astype("float32"))
        planes[name] = (samples / 2**picture.bit_depth)[None, None]
    return planes
