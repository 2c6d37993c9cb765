"""A network at 1/s of the height and width that starts as one at full resolution: it computes what that does.

PixelUnshuffle puts the s x s samples of a cell into channels, channel = plane·s² + row·s + column. What a network does
at full resolution can be written in such channels too, with s² of them for each of its features: a 3x3 convolution
becomes a 3x3 convolution over cells, in which a sample is linked with the nine around it and with no other of their
cells, so that at s = 2 three quarters of its weights are zero. ReLU, sums and concatenations go on by channel, and
zeros beyond the edge stay where they were, where height and width are multiples of s.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from codecnn.errors import ModelError
from codecnn.models._growth import beside, start_as
from codecnn.models._transfer import TransferReport
from codecnn.models._weights import load_model
from codecnn.models.base import FilterNetwork


def lift(model: FilterNetwork, source: Path | str | None = None, *, grow: bool = False) -> TransferReport:
    """Start a new low-cost network or RDN with shuffle s as one of shuffle 1 and 1/s² of its features and growth.

    `source` is a weights file or a name of the zoo; without, the network at full resolution is a new one with its own
    random start, drawn from torch's generator. With `grow` the lifted network may be smaller than `model`, which then
    grows from it. Only with floating-point rounding do the two then differ in what they compute, on pictures whose
    height and width are multiples of s and for planes at luma's resolution: chroma is upsampled from a halo of another
    width. Returns what became of every tensor: "loaded", "adapted" with both shapes, "missing" in what was added.

    Raises ModelError for networks that cannot be lifted and for sizes that do not fit; MissingFileError.
    """
    label = "random weights at full resolution" if source is None else str(source)
    small = _full_resolution(model) if source is None else load_model(source)[0]
    report = start_as(model, lifted(small, _factor(model)), f"{label} (lifted)", larger=grow)
    return beside(small, model, report, label)


@torch.no_grad()
def lifted(small: FilterNetwork, factor: int) -> FilterNetwork:
    """The network with shuffle `factor` that computes what `small` does; raises ModelError as `lift` does."""
    _require_liftable(small)
    if small.options["shuffle"] != 1:
        raise ModelError(f"a network is lifted from shuffle 1; this one has shuffle {small.options['shuffle']}")
    widths = {name: small.options[name] * factor**2 for name in small.LIFTS}
    large = type(small)(**small.options | widths | {"shuffle": factor})
    large.to(next(small.parameters()).dtype)
    transposed = {f"{name}.weight" for name, layer in small.named_modules() if isinstance(layer, nn.ConvTranspose2d)}
    tensors = small.state_dict()
    for name, own in large.state_dict(keep_vars=True).items():
        tensor = tensors[name]
        if name in transposed:
            own.copy_(_lifted_transposed(tensor, factor))
        elif tensor.dim() == 4:
            own.copy_(_lifted_convolution(tensor, factor))
        else:  # biases, FiLM's factors and offsets: by feature, or what has nothing to do with features
            own.copy_(tensor.repeat_interleave(own.shape[0] // tensor.shape[0], dim=0))
    return large


def _lifted_convolution(weight: Tensor, factor: int) -> Tensor:
    """Weight (o, i, h, w) of a convolution over samples as one over cells, (o·s², i·s², h, w)."""
    outputs, inputs, height, width = weight.shape
    rows, columns = (_links(size, factor).to(weight) for size in (height, width))
    over_cells = torch.einsum("oiyx,ypjv,xrku->oprijkvu", weight, rows, columns)
    return over_cells.reshape(outputs * factor**2, inputs * factor**2, height, width)


def _links(size: int, factor: int) -> Tensor:
    """Which tap links which samples of cells: 1 at (tap, position, position in the other cell, tap over cells)."""
    links = torch.zeros(size, factor, factor, size)
    for tap in range(size):
        for position in range(factor):
            cell, other = divmod(position + tap - size // 2, factor)
            links[tap, position, other, cell + size // 2] = 1
    return links


def _lifted_transposed(weight: Tensor, factor: int) -> Tensor:
    """Weight (i, 1, 3, 3) of a transposed convolution of stride 1 as (i·s², 1, 3·s, 3·s) of stride s.

    Sample r of a cell takes tap r + s·(1 - d) of the cell d further on.
    """
    over_cells = _lifted_convolution(weight.transpose(0, 1).flip(2, 3), factor)
    taps = over_cells.view(factor, factor, -1, 3, 3).flip(3, 4).permute(2, 3, 0, 4, 1)
    return taps.reshape(-1, 1, 3 * factor, 3 * factor)


def _factor(model: FilterNetwork) -> int:
    """The factor that a source is to be lifted by to become `model`."""
    _require_liftable(model)
    factor = int(model.options["shuffle"])
    if factor == 1:
        raise ModelError("a network is lifted to a shuffle of 2 or more; this one has shuffle 1")
    return factor


def _full_resolution(model: FilterNetwork) -> FilterNetwork:
    """A new network at full resolution that is `model` once it is lifted."""
    cells = _factor(model) ** 2
    for name in model.LIFTS:
        if model.options[name] % cells:
            raise ModelError(f"{name} {model.options[name]} is no multiple of {cells}, the samples of a cell")
    widths = {name: model.options[name] // cells for name in model.LIFTS}
    return type(model)(**model.options | widths | {"shuffle": 1})


def _require_liftable(model: FilterNetwork) -> None:
    if not model.LIFTS:
        raise ModelError(f"{type(model).__name__} is not lifted: only low-cost networks and RDNs of luma alone are")
    if any(isinstance(layer, nn.Conv2d) and layer.groups > 1 for layer in model.modules()):
        raise ModelError(
            "depthwise blocks are not lifted: a 3x3 tap joins the samples of a cell, which are channels of their own "
            "then, and depthwise taps join no channels"
        )
    if model.options.get("transform", "unshuffle") != "unshuffle":
        raise ModelError("a network with transform: haar is not lifted: its first convolution sees bands, not samples")
