"""Plain modules of PyTorch as filter networks: what codecnn must know of one is measured, and its output is checked.

The contract of such a module:

- `planes`, an attribute, names the planes that it takes, e.g. `planes = ("rec_y", "qp")`.
- `forward` takes a dictionary of these planes: samples (n, 1, h, w) as x / 2^bit_depth, `qp` (n, 1, 1, 1) as QP / 64.
- It returns the filtered luma plane, (n, 1, h - 2 halo, w - 2 halo) in the scale of `rec_y`: the decoded samples plus
  the residual, not the residual alone. A module that filters chroma too returns a dictionary of "y", "u" and "v".
- `halo`, `radius` and `stride`, attributes as those of `FilterNetwork`, are measured if the module does not have them.
"""

import copy
import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from codecnn.base.errors import CodecnnError, ModelError, UserCodeWarning
from codecnn.base.planes import QP_PLANE, QP_SCALE
from codecnn.models.base import FilterNetwork, NetworkOutput, named_outputs
from codecnn.models.graph.nodes import Draft
from codecnn.models.inference import prepare
from codecnn.models.planes import CHROMA_PLANES
from codecnn.models.probe import CELL, Geometry, Probe, call, declared_planes, reason

_RESIDUAL_BOUND = 1e-3
"""Largest magnitude of an output, in full scale, that can only be a residual, since the decoded samples are missing."""
_SIMILARITY = 0.5
"""Correlation of output and decoded samples below which a warning is given."""


class AdaptedNetwork(FilterNetwork):
    """A plain module as a filter network; `as_filter_network` creates it.

    Attributes:
        network: The module. In weights files the names of its tensors begin with "network.".
        predicts_picture: The module returns bfloat16 under autocast, which has too few bits for samples.
        counted_on: Device on which its cost is counted: "meta", or "cpu" if its forward reads values of tensors.
    """

    def __init__(self, network: nn.Module, name: str, geometry: Geometry, outputs: tuple[str, ...]) -> None:
        super().__init__(
            declared_planes(network, name),
            halo=geometry.halo,
            radius=geometry.radius,
            stride=geometry.stride,
            outputs=outputs,
        )
        # The measured radius includes the share of chroma.
        self.radius = geometry.radius
        self.network = network
        self.predicts_picture = False
        self.counted_on = "meta"

    def forward(self, planes: Mapping[str, Tensor]) -> NetworkOutput:
        """Return what the module returns for its planes, in the type of the samples."""
        if not torch.jit.is_tracing():  # type: ignore[no-untyped-call, attr-defined]
            self.check(planes)
        return call(self.network, {name: planes[name] for name in self.planes})

    @property
    def has_graph(self) -> bool:
        """True if the module has a method `draw`."""
        return hasattr(self.network, "draw")

    def draw(self, draft: Draft) -> dict[str, str]:
        """Add the nodes of the module, which must have a method `draw` as a `FilterNetwork` has."""
        drawing = getattr(self.network, "draw", None)
        if drawing is None:
            raise ModelError(
                f"a network of the class {type(self.network).__name__} has no graph, which integers and SADL need: "
                "give it a method draw, as codecnn.models.FilterNetwork has"
            )
        nodes: dict[str, str] = drawing(draft)
        return nodes


def build_user_network(build: Callable[..., Any], name: str, options: dict[str, Any]) -> FilterNetwork:
    """Create a network from a class or function of the user, and adapt it if it is a plain module.

    Args:
        build: The class or function.
        name: Its name, for messages.
        options: Its arguments, which cards store as JSON.

    Raises:
        ModelError: It cannot be created with the options, or is no network that codecnn can use.
    """
    try:
        json.dumps(options, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelError(f"the options of {name} cannot be written to a card as JSON: {error}") from error
    try:
        network = build(**options)
    except CodecnnError:
        raise
    except Exception as error:  # code of the user can raise anything
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        stated = f"the options {given}" if given else "no options"
        raise ModelError(f"{name} cannot be created with {stated}: {reason(error)}") from error
    if not isinstance(network, nn.Module):
        raise ModelError(f"{name} gives an object of the class {type(network).__name__}, not a torch.nn.Module")
    _check_saved(network, name)
    adapted = as_filter_network(network, name)
    if "options" not in vars(adapted):
        adapted.options = options
    return adapted


def _check_saved(network: nn.Module, name: str) -> None:
    """Raise ModelError before a training if a weights file cannot hold a part of the network's state."""
    for part, value in network.state_dict().items():
        if not isinstance(value, Tensor):
            raise ModelError(f"{name} has the state {part}, which is no tensor: weights files hold tensors alone")
        try:
            save({part: torch.empty(0, dtype=value.dtype)})
        except Exception as error:  # safetensors has no class for it
            kind = str(value.dtype).removeprefix("torch.")
            raise ModelError(
                f"{name}.{part} is of the type {kind}, which a weights file cannot hold: take another type, or "
                "register the buffer with persistent=False"
            ) from error


def as_filter_network(network: nn.Module, name: str | None = None) -> FilterNetwork:
    """Return a module as a filter network; a `FilterNetwork` is returned as it is.

    Everything is measured on copies with random planes and, for the radius, random weights; the module and the random
    state of torch are not changed. It takes about a second.

    Args:
        network: The module, which keeps to the contract of `codecnn.models.adapter`.
        name: Its name for messages; by default that of its class.

    Raises:
        ModelError: The module does not keep to the contract; the message has the values.
    """
    if isinstance(network, FilterNetwork):
        return network
    name = name or type(network).__name__
    declared_planes(network, name)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        probe = Probe(network, name)
        outputs, halo = probe.measure_halo()
        adapted = AdaptedNetwork(network, name, probe.measure_context(halo, outputs), outputs)
        _check_output(adapted, name)
        adapted.predicts_picture = _returns_bfloat16(adapted)
        adapted.counted_on = _counting_device(adapted)
    return adapted


def has_user_code(model: nn.Module) -> bool:
    """Return whether a network or a part of it is of a class outside of codecnn and torch."""
    return any(type(module).__module__.partition(".")[0] not in ("codecnn", "torch") for module in model.modules())


def _probe_planes(model: AdaptedNetwork) -> dict[str, Tensor]:
    side = CELL + -CELL % model.stride + 2 * model.halo
    planes = {}
    for name in model.planes:
        extent = side // 2 if name in CHROMA_PLANES else side
        planes[name] = torch.rand(1, 1, extent, extent)
    return planes | ({QP_PLANE: torch.full((1, 1, 1, 1), 37 / QP_SCALE)} if QP_PLANE in planes else {})


@torch.no_grad()
def _check_output(model: AdaptedNetwork, name: str) -> None:
    """Check that the output is the filtered plane, and that the network can be prepared for filtering."""
    planes = _probe_planes(model)
    plain = copy.deepcopy(model).cpu().eval()
    outputs = named_outputs(plain(planes))
    plain(_probe_planes(model))
    for component, plane in named_outputs(plain(planes)).items():
        if not torch.equal(plane, outputs[component]):
            raise ModelError(
                f"{name} returns other values for the same planes after it has filtered others: a network may keep "
                "nothing from one call to the next"
            )
    for component, plane in outputs.items():
        decoded = planes[f"rec_{component}"]
        halo = model.halo // (1 if component == "y" else 2)
        decoded = decoded[:, :, halo : decoded.shape[2] - halo, halo : decoded.shape[3] - halo]
        largest = float(plane.abs().max())
        if largest < _RESIDUAL_BOUND:
            raise ModelError(
                f"{name} returns values up to {largest:.2g} for {component}, where the decoded samples are up to "
                f"{float(decoded.max()):.2g}: a network returns the filtered plane, so add rec_{component} to the "
                "residual"
            )
        similarity = float(torch.corrcoef(torch.stack([plane.flatten(), decoded.flatten()]).double())[0, 1])
        if not similarity >= _SIMILARITY:  # also if one of them is constant
            warnings.warn(
                f"before training, {component} of {name} has a correlation of {similarity:.2f} with the decoded "
                f"samples: a network that adds its residual to rec_{component} starts near them",
                UserCodeWarning,
                stacklevel=2,
            )
    try:
        prepared = named_outputs(prepare(plain)(planes))
    except Exception as error:  # code of the user can raise anything
        raise ModelError(
            f"{name} fails when its weights lie in channels-last order, as filtering needs: {reason(error)}"
        ) from error
    for component, plane in outputs.items():
        difference = float((prepared[component] - plane).abs().max() / plane.abs().max())
        if difference > 1e-3:
            raise ModelError(f"{name} returns other values when it is prepared for filtering, by {difference:.1e}")


@torch.no_grad()
def _returns_bfloat16(model: AdaptedNetwork) -> bool:
    try:
        with torch.autocast("cpu", torch.bfloat16):
            outputs = named_outputs(copy.deepcopy(model).cpu().eval()(_probe_planes(model)))
    except Exception:  # not able to compute in bfloat16 at all
        return True
    return any(plane.dtype == torch.bfloat16 for plane in outputs.values())


@torch.no_grad()
def _counting_device(model: AdaptedNetwork) -> str:
    try:
        copy.deepcopy(model).to("meta")({name: plane.to("meta") for name, plane in _probe_planes(model).items()})
    except Exception:  # its forward reads values, or creates tensors on the CPU
        return "cpu"
    return "meta"
