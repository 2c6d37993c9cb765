"""Measurement of plain modules, on copies with random planes: outputs, halo, radius and stride."""

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from codecnn.base.division import ceil_div
from codecnn.base.errors import ModelError
from codecnn.base.planes import QP_PLANE, QP_SCALE, SLICE_TYPE_PLANE
from codecnn.models.base import FilterNetwork, NetworkOutput, named_outputs
from codecnn.models.planes import CHROMA_PLANES

CELL = 64
"""Luma samples of which the sides of probes are multiples; strides up to this number are found."""
_BLOCK = 32
"""Side of the block of output samples whose dependence on the input is measured."""
_SIDES = (128, 256, 512)
"""Sides of the windows in which the radius is measured, in luma samples; each is tried if the one before is too small.
"""
_STRIDES = (1, 2, 4, 8, 16, 32, 64)


class Geometry(NamedTuple):
    """Halo, radius and stride of a network in luma samples, as the attributes of `FilterNetwork`."""

    halo: int
    radius: int
    stride: int


def declared_planes(network: nn.Module, name: str) -> tuple[str, ...]:
    """Return the planes that a module declares; raise ModelError if it declares none or wrong ones."""
    planes = getattr(network, "planes", None)
    if isinstance(planes, str) or not planes:
        raise ModelError(
            f"{name} does not say which planes it takes: give its class the attribute planes, e.g. "
            f'planes = ("rec_y", "qp"){f", not {planes!r}" if planes else ""}'
        )
    return FilterNetwork(tuple(planes), halo=0, radius=0, stride=1).planes


def call(network: nn.Module, planes: dict[str, Tensor]) -> NetworkOutput:
    """Call a module with its planes; a slice type that is constant gets the size of luma, as frame filters give it."""
    if SLICE_TYPE_PLANE in planes:
        planes = planes | {SLICE_TYPE_PLANE: planes[SLICE_TYPE_PLANE].expand_as(planes["rec_y"])}
    filtered: NetworkOutput = network(planes)
    return filtered


def reason(error: BaseException) -> str:
    """Return the class and the first line of an error of the user's code."""
    return f"{type(error).__name__}: {(str(error) or 'no reason given').splitlines()[0]}"


class Probe:
    """Measures a module on random planes.

    Args:
        network: The module.
        name: Its name for messages.
    """

    def __init__(self, network: nn.Module, name: str) -> None:
        self.name = name
        self.stated = {key: getattr(network, key, None) for key in ("halo", "radius", "stride")}
        for key, value in self.stated.items():
            if value is not None and not (isinstance(value, int) and value >= (key == "stride")):
                raise ModelError(f"{name}: {key} must be a whole number of luma samples, not {value!r}")
        self.names = declared_planes(network, name)
        if any(isinstance(parameter, UninitializedParameter) for parameter in network.parameters()):
            raise ModelError(f"{name} has lazy layers, whose sizes are not known yet: state the numbers of channels")
        try:
            self.network = copy.deepcopy(network).cpu().eval()
        except Exception as error:  # e.g. torch.nn.utils.weight_norm, whose weights are no leaves
            raise ModelError(
                f"{name} cannot be copied, as filtering needs ({reason(error)}): a reparametrised layer is copied if "
                "it is of torch.nn.utils.parametrizations"
            ) from error
        # Positive weights keep units active and let no contribution cancel, so that all that an output depends on has
        # a gradient; a last layer that starts at zero would hide everything.
        self.awake = copy.deepcopy(self.network).double()
        with torch.no_grad():
            for parameter in filter(lambda each: each.requires_grad, self.awake.parameters()):
                fan = max(parameter[0].numel(), 1) if parameter.ndim > 1 else 1
                parameter.uniform_(0.5, 1.0).div_(fan)

    def planes(self, side: int, dtype: torch.dtype = torch.float32, count: int = 1) -> dict[str, Tensor]:
        """Return random planes of `side` luma samples, and QP 37."""
        planes = {}
        for name in self.names:
            if name == QP_PLANE:
                planes[name] = torch.full((count, 1, 1, 1), 37 / QP_SCALE, dtype=dtype)
            else:
                extent = side // 2 if name in CHROMA_PLANES else side
                planes[name] = torch.rand(count, 1, extent, extent, dtype=dtype)
        return planes

    def run(self, network: nn.Module, planes: dict[str, Tensor]) -> dict[str, Tensor]:
        """Call a module; what it raises becomes a ModelError with the shapes of the planes."""
        try:
            filtered = call(network, dict(planes))
        except Exception as error:  # code of the user can raise anything
            shapes = ", ".join(f"{name} {tuple(plane.shape)}" for name, plane in planes.items())
            raise ModelError(f"{self.name} fails on the planes {shapes}: {reason(error)}") from error
        outputs = named_outputs(filtered) if isinstance(filtered, Tensor | dict) else {}
        if tuple(outputs) not in (("y",), ("y", "u", "v")) or not all(isinstance(x, Tensor) for x in outputs.values()):
            what = f"a dictionary of {', '.join(map(str, outputs))}" if outputs else type(filtered).__name__
            raise ModelError(
                f"{self.name} returns {what}: a network returns the filtered luma plane as a tensor, or a dictionary "
                "of the planes y, u and v"
            )
        return outputs

    def measure_halo(self) -> tuple[tuple[str, ...], int]:
        """Return the components that a module filters, and the luma samples that it removes on each side."""
        problem: ModelError | None = None
        for side in _SIDES:
            side += 2 * (self.stated["halo"] or 0)
            try:
                outputs = self.run(self.network, self.planes(side, count=2))
            except ModelError as error:
                problem = problem or error
                continue
            height = outputs["y"].shape[2] if outputs["y"].ndim == 4 else 0
            halo = (side - height) // 2
            self._check_shapes(outputs, side, halo)
            if self.stated["halo"] not in (None, halo):
                raise ModelError(
                    f"{self.name} says halo {self.stated['halo']}, and of {side}x{side} samples it returns "
                    f"{height}x{height}, which is a halo of {halo}"
                )
            return tuple(outputs), halo
        assert problem is not None
        raise problem

    def _check_shapes(self, outputs: dict[str, Tensor], side: int, halo: int) -> None:
        for name, plane in outputs.items():
            factor = 1 if name == "y" else 2
            extent = (side - 2 * halo) // factor
            if halo < 0 or tuple(plane.shape) != (2, 1, extent, extent) or (side - 2 * halo) % factor:
                raise ModelError(
                    f"{self.name} returns {name} of shape {tuple(plane.shape)} for rec_y {(2, 1, side, side)}: a "
                    "network returns a plane (n, 1, h, w) that is smaller by the same even number of luma samples in "
                    "height and width, or equally large"
                )
            if not plane.is_floating_point() or not bool(plane.isfinite().all()):
                raise ModelError(f"{self.name} returns {name} of {plane.dtype} with values that are not finite numbers")

    def measure_context(self, halo: int, outputs: tuple[str, ...]) -> Geometry:
        """Return halo, radius and stride; those that the module states are checked."""
        dtype = torch.float64
        try:
            self.run(self.awake, self.planes(_SIDES[0] + 2 * halo, dtype))
        except ModelError:  # a layer that fixes the type of its numbers
            dtype = torch.float32
            self.awake.float()
        reach = self._measure_reach(halo, outputs, dtype) if self.stated["radius"] is None else None
        strides = _STRIDES if self.stated["stride"] is None else (self.stated["stride"],)
        if (radius := self.stated["radius"]) is not None and radius < halo:
            raise ModelError(
                f"{self.name} says radius {radius} and returns planes that are {halo} samples smaller on each side: "
                "the radius includes these samples"
            )
        difference = math.inf
        for stride in strides:
            # A sample anywhere in a cell of a space-to-depth layer depends on whole cells.
            radius = self.stated["radius"] if reach is None else max(reach + stride - 1, halo)
            assert radius is not None
            difference = self._window_difference(Geometry(halo, radius, stride), dtype)
            if difference <= (1e-7 if dtype == torch.float64 else 1e-3):
                return Geometry(halo, radius, stride)
        stated = ", ".join(f"{key} {value}" for key, value in self.stated.items() if value is not None)
        source = f"it states {stated}" if stated else f"radius {reach} was measured"
        raise ModelError(
            f"{self.name} cannot filter a picture in windows: at starts that are multiples of {strides[-1]} its "
            f"samples differ from those of the whole picture by {difference:.1e} of the largest ({source}): an output "
            "sample may depend only on samples within a radius, not on means over the picture or on positions"
        )

    def _measure_reach(self, halo: int, outputs: tuple[str, ...], dtype: torch.dtype) -> int:
        """Return how far the samples around a block of the output are that change it, in luma samples."""
        reach = 0
        for side in _SIDES:
            start = (side - _BLOCK) // 2
            planes = {name: plane.requires_grad_() for name, plane in self.planes(side + 2 * halo, dtype).items()}
            filtered = self.run(self.awake, planes)
            cells = {name: 1 if name == "y" else 2 for name in outputs}
            block = sum(
                filtered[name][:, :, start // f : (start + _BLOCK) // f, start // f : (start + _BLOCK) // f].sum()
                for name, f in cells.items()
            )
            assert isinstance(block, Tensor)
            if not block.requires_grad:
                raise ModelError(
                    f"the radius of {self.name} cannot be measured, because its output has no gradient: give its class "
                    "the attribute radius, the distance in luma samples over which an output sample depends on its "
                    "input"
                )
            wanted = {name: plane for name, plane in planes.items() if name not in (QP_PLANE, SLICE_TYPE_PLANE)}
            gradients = torch.autograd.grad(block, list(wanted.values()), allow_unused=True)
            reach = 0
            for name, gradient in zip(wanted, gradients, strict=True):
                if gradient is not None and bool((gradient != 0).any()):
                    factor = 2 if name in CHROMA_PLANES else 1
                    used = (gradient[0, 0] != 0).nonzero() * factor
                    first, last = int(used.min()), int(used.max()) + factor - 1
                    reach = max(reach, halo + start - first, last - (halo + start + _BLOCK - 1))
            if reach < halo + start:
                return reach
        raise ModelError(
            f"{self.name} uses samples at a distance of {reach} luma samples or more: it cannot filter a picture in "
            "tiles unless its class has the attribute radius, the distance over which an output depends on its input"
        )

    def _window_difference(self, geometry: Geometry, dtype: torch.dtype) -> float:
        """Return how much a window's samples differ from the whole picture's, relative to the largest; inf if it fails.

        The window starts at one stride and ends two strides before the end, so that its size is an odd number of
        strides.
        """
        halo, radius, stride = geometry
        step = math.lcm(stride, 2) if any(name in CHROMA_PLANES for name in self.names) else stride
        context = radius - halo
        if context < 0:
            return math.inf
        size = ceil_div(2 * context + 3 * step + _BLOCK, CELL) * CELL
        size += -size % step
        picture = self.planes(size + 2 * halo, dtype)
        stop = size - 2 * step
        window = {}
        for name, plane in picture.items():
            f = 2 if name in CHROMA_PLANES else 1
            part = slice(step // f, (stop + 2 * halo) // f)
            window[name] = plane if plane.shape[2:] == (1, 1) else plane[:, :, part, part]
        try:
            with torch.no_grad():
                whole, part_outputs = self.run(self.awake, picture), self.run(self.awake, window)
        except ModelError:
            return math.inf
        largest = 0.0
        for name, plane in whole.items():
            f = 1 if name == "y" else 2
            inner = slice(ceil_div(step + context, f), (stop - context) // f)
            shifted = slice(inner.start - step // f, inner.stop - step // f)
            expected, got = plane[:, :, inner, inner], part_outputs[name][:, :, shifted, shifted]
            extent = (stop - step) // f
            if part_outputs[name].shape[2:] != (extent, extent) or expected.shape != got.shape or not expected.numel():
                return math.inf
            scale = max(float(expected.abs().max()), 1e-30)
            largest = max(largest, float((expected - got).abs().max()) / scale)
        return largest if math.isfinite(largest) else math.inf
