"""Two networks on the same input, layer by layer: the first tensor that differs, and by how much.

What one wants when a reproduction does not match: another checkpoint, another device or precision, a compiled or a
prepared network.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils._pytree import tree_map_only

from codecnn.dataset import Store, TrainingBatches
from codecnn.errors import ModelError
from codecnn.models import FilterNetwork, pick_device, prepare, probe_planes
from codecnn.planes import QP_SCALE
from codecnn.training._forward import Autocast, forward_hooks, in_precision
from codecnn.video import Picture

OUTPUT = "(output)"
"""The name under which what the network returns is listed; the last of the rows."""

ROUNDING_TOLERANCE, TF32_TOLERANCE, BFLOAT16_TOLERANCE = 1e-5, 1e-2, 1e-1
"""What different orders of sums, 10 bits and 7 bits of factors may make of a tensor, over its largest magnitude."""

Trace = list[tuple[str, Tensor]]
"""What each module returned, by name, in the order in which they finished; tensors on the CPU."""


@dataclass(frozen=True)
class LayerDifference:
    """How the output of a module differs between two networks; the differences are None where the shapes are not equal.

    maximum   the largest absolute difference; infinite where only one of the two is finite, or NaN
    relative  that, over the largest magnitude of the first network's tensor
    first     index of the first element, row by row, that differs by more than the tolerance; None where none does
    """

    name: str
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]
    maximum: float | None
    relative: float | None
    first: tuple[int, ...] | None

    @property
    def differs(self) -> bool:
        """Whether the shapes, or an element by more than the tolerance, are not equal."""
        return self.shape_a != self.shape_b or self.first is not None


def compare_networks(
    a: nn.Module, b: nn.Module, *inputs: Any, tolerance: float = 0.0, skip: Sequence[str] = ()
) -> list[LayerDifference]:
    """What every module that both networks have returns for the same input, in the order in which `a` computes them.

    `inputs` are the networks' arguments, such as a dictionary of planes; each network gets them on its own device, and
    a network of float64 as float64. Modules are matched by name (with "#2" for a second call), but for those to `skip`;
    those of a wrapper (`unwrapped`) by the network within. An element differs when it is
    apart by more than `tolerance` times the largest magnitude of its tensor in `a`. Both run in the mode (train or
    eval) they are in. Raises ModelError for networks that have no module in common.
    """
    ours, theirs = trace(a, *inputs), trace(b, *inputs)
    found = dict(theirs)
    common = [(name, tensor) for name, tensor in ours if name in found and name not in skip]
    if all(name.startswith(OUTPUT) for name, _ in common):
        raise ModelError("the networks have no layer in common: no name of a module is in both")
    return [tensor_difference(name, tensor, found[name], tolerance) for name, tensor in common]


def first_difference(rows: Sequence[LayerDifference]) -> LayerDifference | None:
    """The first row that differs; None where none does."""
    return next((row for row in rows if row.differs), None)


def trace(network: nn.Module, *inputs: Any) -> Trace:
    """The outputs of all modules of a network for an input, in the order in which they finish, the network's own last.

    An output of several tensors has a line for each, with its key or number: `name[y]`. A compiled network is compiled
    so that its graph gives away all of them; its own output is that of the graph without.
    """
    made: list[tuple[str, Any]] = []

    def note(name: str, output: Any) -> None:
        # Cloned, since what follows may write in place.
        made.append((name, tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), output)))

    core = unwrapped(network)
    placed = _placed(core, inputs)
    with forward_hooks({name: module for name, module in core.named_modules() if name}, note):
        output = network(*placed)
    if network is not core:
        output = network(*placed)
    calls: Counter[str] = Counter()
    rows: Trace = []
    for name, value in [*made, (OUTPUT, output)]:
        calls[name] += 1
        number = "" if calls[name] == 1 else f"#{calls[name]}"
        rows.extend((name + number + key, tensor.detach().cpu()) for key, tensor in _tensors(value))
    return rows


def unwrapped(network: nn.Module) -> nn.Module:
    """The network within what torch.compile, autocast, averaging and data parallel wrap around it."""
    inner = getattr(network, "_orig_mod", None)
    if inner is None and isinstance(network, Autocast | AveragedModel | DistributedDataParallel):
        inner = network.module
    return unwrapped(inner) if isinstance(inner, nn.Module) else network


def _tensors(output: Any, key: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a nested output, each with its place in it."""
    if isinstance(output, Tensor):
        yield key, output
    elif isinstance(output, Mapping):
        for name, value in output.items():
            yield from _tensors(value, f"{key}[{name}]")
    elif isinstance(output, tuple | list):
        for index, value in enumerate(output):
            yield from _tensors(value, f"{key}[{index}]")


def _placed(network: nn.Module, inputs: Any) -> Any:
    """Nested inputs on the device of a network, floats in the type of its parameters."""
    like = next(network.parameters(), torch.empty(0))

    def place(tensor: Tensor) -> Tensor:
        return tensor.to(like.device, like.dtype if tensor.is_floating_point() else tensor.dtype)

    return tree_map_only(Tensor, place, inputs)


def tensor_difference(name: str, a: Tensor, b: Tensor, tolerance: float) -> LayerDifference:
    """How two tensors on the CPU differ, computed in float64. NaN equals NaN, and infinity itself."""
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
    """Modules of a prepared network whose output is not that of their namesakes, since they do more: names to skip.

    Where batch normalisation has become part of the convolution before it, the convolution returns what its norm
    returned; where the branches of one became a single one, only the sum is left.
    """
    theirs = dict(unwrapped(prepared).named_modules())
    changed = []
    for name, module in a.named_modules():
        own, other = dict(module.named_parameters(recurse=False)), theirs.get(name)
        if other is None or type(other) is not type(module):
            continue
        after = dict(other.named_parameters(recurse=False))
        if any(key not in after or not torch.equal(value, after[key].to(value)) for key, value in own.items()) or (
            after.keys() - own.keys()
        ):
            changed.append(name)
    return changed


def variant(
    model: FilterNetwork, *, device: str = "cpu", dtype: str = "float32", compiled: bool = False, prepared: bool = False
) -> nn.Module:
    """A network on a device, in "float32", "float64" or "bfloat16" (autocast), prepared to filter, or compiled.

    Raises ConfigError for a device that is not here.
    """
    where = pick_device(device)
    network: nn.Module = model.to(where)
    if dtype == "float64":
        network = network.double()
    if prepared:
        network = prepare(model)
    if compiled:
        network = torch.compile(network)  # type: ignore[assignment]
    return in_precision(network, dtype, where)


def default_tolerance(alike: bool, bfloat16: bool, tf32: bool) -> float:
    """The tolerance for networks that compute in the same way, or in ways that round differently."""
    if bfloat16:
        return BFLOAT16_TOLERANCE
    if tf32:
        return TF32_TOLERANCE
    return 0.0 if alike else ROUNDING_TOLERANCE


@contextlib.contextmanager
def exact_float32(exact: bool) -> Iterator[None]:
    """Without TF32 when `exact`, else with it: convolutions on CUDA then take 10 of the 23 bits of a float32."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = not exact
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def noise_planes(model: FilterNetwork, size: int = 64, seed: int = 0) -> dict[str, Tensor]:
    """Uniform noise in [0, 1] on all planes of a network, for one patch of `size` luma samples at QP 37."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {name: plane.shape for name, plane in probe_planes(model, size, size).items()}
    noise = {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
    return noise | ({"qp": torch.full((1, 1, 1, 1), 37 / QP_SCALE)} if "qp" in noise else {})


def store_planes(model: FilterNetwork, store: Store, size: int = 64, patches: int = 4) -> dict[str, Tensor]:
    """The planes of a network for the first patches that training on all pictures of a store would draw.

    Raises StoreError for a plane that the store does not have.
    """
    batch = TrainingBatches(
        store.units, batch=patches, steps=1, size=size, halo=model.halo, planes=model.planes, augment=False
    )[0]
    return {name: batch[name] for name in model.planes}


def picture_planes(model: FilterNetwork, picture: Picture, qp: int, size: int = 256) -> dict[str, Tensor]:
    """The planes of a network from the middle of a decoded picture, `size` luma samples or what the picture has.

    Raises ModelError for a network that takes other planes than samples of the picture and its QP, and for chroma that
    is not 4:2:0.
    """
    given = {"rec_y": picture.y, "rec_u": picture.u, "rec_v": picture.v}
    planes = {"qp": torch.full((1, 1, 1, 1), qp / QP_SCALE)} if "qp" in model.planes else {}
    step = math.lcm(model.stride, 2)
    for name in model.planes:
        if name == "qp":
            continue
        plane = given.get(name)
        if plane is None:
            raise ModelError(f"a decoded picture does not have the plane {name!r}: compare on a store that has it")
        factor = 1 if name == "rec_y" else 2
        if factor == 2 and any(-(-y // 2) != c for y, c in zip(picture.y.shape, plane.shape, strict=True)):
            raise ModelError(f"the network takes 4:2:0 chroma; the picture's is {plane.shape} beside {picture.y.shape}")
        window = []
        for extent in picture.y.shape:
            length = (min(extent, size + 2 * model.halo) - 2 * model.halo) // step * step + 2 * model.halo
            start = (extent - length) // 2 // step * step
            window.append(slice(start // factor, (start + length) // factor))
        samples = torch.from_numpy(plane[tuple(window)].astype("float32"))
        planes[name] = (samples / 2**picture.bit_depth)[None, None]
    return planes
