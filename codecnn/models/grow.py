"""A low-cost network started as a smaller one: it computes what that does, and learns from there.

After Chen, Goodfellow, Shlens, "Net2Net: Accelerating Learning via Knowledge Transfer", ICLR 2016, who copy features
and share out their weights. Here added features start at random, as in a new network; what the old ones take of
them starts at zero, and added blocks start as the identity.
"""

from pathlib import Path

import torch
from torch import Tensor

from codecnn.errors import ModelError
from codecnn.models.base import FilterNetwork
from codecnn.models.low_cost import LowCost
from codecnn.models.transfer import TensorReport, TransferReport
from codecnn.models.weights import load_model

SIZES = ("features", "blocks", "expansion")
"""Options that may be larger than those of the network that is started from; all others are the same."""


def grow(model: FilterNetwork, source: Path | str) -> TransferReport:
    """Start a new low-cost network as the smaller one of a weights file, or of the zoo's weights of that name.

    Only with floating-point rounding do the two then differ in what they compute. Returns what became of every tensor:
    "loaded", "adapted" with both shapes, or "missing" in an added block. Raises ModelError for networks
    of other kinds, planes or conditioning, and for one that is smaller anywhere; MissingFileError.
    """
    small = _low_cost(load_model(source)[0])
    model = _low_cost(model)
    _require_larger(model, small, source)
    tensors = small.state_dict()
    for block in list(model.blocks)[len(small.blocks) :]:
        block.silence()  # type: ignore[operator]
    reports = []
    with torch.no_grad():
        for name, own in model.state_dict(keep_vars=True).items():
            if name not in tensors:
                reports.append(TensorReport(name, "missing", "of an added block"))
                continue
            tensor = tensors[name]
            if own.shape == tensor.shape:
                own.copy_(tensor)
                reports.append(TensorReport(name, "loaded"))
                continue
            # FiLM's rows are factors, then offsets; both halves grow.
            halves = 2 if model.options["conditioning"] == "film" and ".out." in name else 1
            for new, old in zip(own.chunk(halves), tensor.chunk(halves), strict=True):
                _enter(new, old)
            reports.append(TensorReport(name, "adapted", f"{tuple(tensor.shape)} -> {tuple(own.shape)}"))
    return TransferReport(str(source), tuple(reports))


def _enter(own: Tensor, tensor: Tensor) -> None:
    """Put a smaller tensor (outputs, inputs, ...) in front; its outputs take nothing of the added inputs."""
    rows = own[: tensor.shape[0]]
    rows.zero_()
    rows[tuple(slice(size) for size in tensor.shape)] = tensor


def _low_cost(network: FilterNetwork) -> LowCost:
    if not isinstance(network, LowCost):
        raise ModelError(f"low-cost networks grow, and none else; {type(network).__name__} is no such network")
    return network


def _require_larger(model: LowCost, small: LowCost, source: Path | str) -> None:
    for key, value in small.options.items():
        own = model.options[key]
        if own < value if key in SIZES else own != value:
            rule = "no less" if key in SIZES else "the same"
            raise ModelError(f"the network has {key} {own}, the one of {source} {value}: to grow it needs {rule}")
