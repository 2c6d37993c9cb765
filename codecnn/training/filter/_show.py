"""Pictures of what a filter does, for TensorBoard."""

import numpy as np
import numpy.typing as npt
import torch

from codecnn.dataset import Patch, PatchReader, Unit, as_floats, as_tensors
from codecnn.filtering import FloatFilter, unit_planes
from codecnn.models import FilterNetwork
from codecnn.training._forward import forward_hooks
from codecnn.training._health import trunk_blocks
from codecnn.video import Picture

CROP = 192
MARGIN = 32
"""Samples around the crop that the network sees as well; what lies further has little weight."""
ENHANCEMENT = 8
MAPS, MAPS_CROP = 8, 96
"""How many features of a layer are shown, and of how many luma samples."""


def show_filtering(model: FilterNetwork, unit: Unit, device: str | torch.device) -> npt.NDArray[np.uint8]:
    """Luma from the middle of a unit's first picture, side by side: (h, 4·w) with h and w at most CROP.

    Decoded, filtered, original, and mid grey plus ENHANCEMENT times what the filter added.
    """
    with unit.originals() as originals, unit.decoded() as decoded:
        original, output = originals[0], decoded[0]
    rows, columns = (_middle(extent, CROP) for extent in original.y.shape)
    wide = [_middle(extent, CROP + 2 * MARGIN) for extent in original.y.shape]
    window = Picture(tuple(_cut(plane, wide, output.y.shape) for plane in output.planes), output.bit_depth)
    beside = {name: plane[wide[0], wide[1]] for name, plane in unit_planes(unit, 0, model.planes).items()}
    filtered = output.y.astype(np.int32)
    made = FloatFilter(model, device=device)(window, unit.pictures[0].qp, beside)
    filtered[wide[0], wide[1]] = made.y
    shift = output.bit_depth - 8
    residual = (128 << shift) + ENHANCEMENT * (filtered - output.y)
    parts = [plane[rows, columns] for plane in (output.y, filtered, original.y, residual)]
    shown: npt.NDArray[np.uint8] = np.clip(np.concatenate(parts, axis=1) >> shift, 0, 255).astype(np.uint8)
    return shown


@torch.no_grad()
def show_features(model: FilterNetwork, unit: Unit, device: str | torch.device) -> dict[str, npt.NDArray[np.uint8]]:
    """The first MAPS features of the first, middle and last block, (2·h, 4·w), of the middle of a unit's first picture.

    Of networks that are no trunk, of convolutions. Zero is mid grey, and 64 steps are the root of the layer's mean
    square: a feature that is dead, or does not depend on the picture, is a flat patch.
    """
    layers = trunk_blocks(model) or {
        name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)
    }
    names = list(layers)
    made: dict[str, torch.Tensor] = {}
    reader = PatchReader([unit], MAPS_CROP, model.halo, model.planes)
    x, y = (_middle(extent, MAPS_CROP).start // 8 * 8 for extent in (unit.format.width, unit.format.height))
    batch = as_floats(as_tensors(reader.cut([Patch(0, 0, x, y)], [0])))
    shown_layers = {name: layers[name] for name in (names[0], names[len(names) // 2], names[-1])}
    with forward_hooks(shown_layers, made.__setitem__):
        model({name: plane.to(device) for name, plane in batch.items()})
    shown = {}
    for name, features in made.items():
        maps = features[0, :MAPS].float()
        grey = (128 + 64 * maps / features.float().square().mean().sqrt().clamp(min=1e-12)).clamp(0, 255)
        across = min(len(grey), MAPS // 2)
        starts = range(0, len(grey) - across + 1, across)  # a row that is not full is left out
        rows = [torch.cat(list(grey[start : start + across]), dim=1) for start in starts]
        shown[name] = torch.cat(rows).to(torch.uint8).cpu().numpy()
    return shown


def _middle(extent: int, size: int) -> slice:
    """The middle `size` samples of `extent`, from an even one on; all of them where there are no more."""
    if extent <= size:
        return slice(0, extent)
    start = (extent - size) // 2 // 2 * 2
    return slice(start, start + size)


def _cut(plane: npt.NDArray[np.integer], spans: list[slice], luma: tuple[int, ...]) -> npt.NDArray[np.integer]:
    """The window `spans` of luma samples in a plane of any chroma format."""
    factors = (-(-extent // own) for extent, own in zip(luma, plane.shape, strict=True))
    rows, columns = (slice(span.start // f, -(-span.stop // f)) for span, f in zip(spans, factors, strict=True))
    return plane[rows, columns]
