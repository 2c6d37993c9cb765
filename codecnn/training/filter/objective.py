"""Objective of the filter networks: training loss, PSNR gain on whole pictures, and pictures of the result."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError
from codecnn.base.user_code import import_reference
from codecnn.dataset import Patch, PatchReader, Unit, as_floats, as_tensors
from codecnn.filtering import FloatFilter, NetworkFilter, unit_planes
from codecnn.filtering.integer import EightBitNetwork, ExactFilter
from codecnn.models import FilterNetwork, named_outputs
from codecnn.pictures.files import Picture
from codecnn.pictures.metrics import mse
from codecnn.training.distributed import gather, share
from codecnn.training.execution import forward_hooks
from codecnn.training.health import trunk_blocks
from codecnn.vvc.intra import dct, hadamard

COMPONENT_WEIGHTS: Mapping[str, float] = {"y": 6, "u": 1, "v": 1}
"""Weights of the components in YUV-PSNR."""
CHARBONNIER_EPSILON = 1e-3
"""Error, relative to full scale, around which the Charbonnier loss changes from squared to absolute."""
BLOCK = 8
"""Width and height of the transformed luma blocks; 4:2:0 chroma has half of it, since patches are multiples of 8."""

CROP = 192
"""Largest width and height of the pictures for TensorBoard, in luma samples."""
MARGIN = 32
"""Samples around the crop that the network sees as well; samples further away have little effect."""
ENHANCEMENT = 8
"""Factor by which the residual of the filter is enhanced."""
MAPS, MAPS_CROP = 8, 96
"""Number of features shown per layer, and their width and height in luma samples."""

Plane = npt.NDArray[np.integer]
UserLoss = Callable[[dict[str, Tensor], dict[str, Tensor]], Tensor]
"""A loss of the user: a function of the filtered planes by component and of the batch, which returns a scalar."""
Image = npt.NDArray[np.uint8]


def filter_loss(
    model: nn.Module,
    batch: dict[str, Tensor],
    weighting: str,
    kind: str = "mse",
    components: Mapping[str, float] = COMPONENT_WEIGHTS,
) -> Tensor:
    """Compute the mean error over the valid samples of each patch, averaged over the patches by their weights.

    The error d of a sample counts as follows:

    - "mse": d².
    - "l1": |d|.
    - "charbonnier": sqrt(d² + ε²) - ε with CHARBONNIER_EPSILON (Lai et al., "LapSRN", CVPR 2017).
    - "satd": its share of the sum of |c| over the coefficients c of the Hadamard transform of its 8x8 block.
    - "dct": the same for the DCT-II; the sum of c² would equal that of d² (Parseval), which is "mse".

    Both transforms are orthonormal, so the three absolute errors are equal for white noise. Blocks are those of the
    patch. Samples that are not valid have the error 0 in them, so borders that are multiples of 8 leave whole blocks.
    A patch without valid samples contributes 0.

    With the weighting "picture" the error of each patch is divided by the coding error of its whole picture: by the
    mean squared error, or by its root for losses that are not squared. With "mse" a network that changes nothing then
    has a loss of about 1, and since d(dB) = -10 / ln 10 · d(MSE) / MSE, the gradient is that of the mean PSNR gain.
    Dividing by the error of the patch itself would give flat patches an unbounded weight.

    For a network that filters chroma as well, the errors of y, u and v are averaged with the weights `components`.
    Each is divided by the coding error of its own plane, so that the gradient is that of the mean gain in YUV-PSNR.

    Args:
        model: The network or a wrapper of it.
        batch: Input planes of the network, orig_y and valid (n, 1, h, w), picture_mse and weight (n,); for chroma also
            orig_u, orig_v, picture_mse_u and picture_mse_v.
        weighting: "picture" or "none".
        kind: Loss of a sample, see above.
        components: Weights of y, u and v.

    Returns:
        A scalar, float32.
    """
    filtered = named_outputs(model(batch))
    loss = torch.zeros((), device=batch["valid"].device)
    weights = sum(components[name] for name in filtered)
    for name, plane in filtered.items():
        valid = batch["valid"] if name == "y" else batch["valid"][:, :, ::2, ::2]
        error = _error(kind, (plane - batch[f"orig_{name}"]) * valid, BLOCK if name == "y" else BLOCK // 2)
        count = valid.sum(dim=(1, 2, 3))
        # The mean of a patch without valid samples would be 0 / 0; it is 0 instead.
        per_patch = error.sum(dim=(1, 2, 3)) / count.clamp(min=1) * (count > 0)
        if weighting == "picture":
            coding_error = batch["picture_mse" if name == "y" else f"picture_mse_{name}"]
            per_patch = per_patch / (coding_error if kind == "mse" else coding_error.sqrt())
        loss = loss + (per_patch * batch["weight"]).mean() * (components[name] / weights)
    return loss


def import_loss(reference: str) -> UserLoss:
    """Import the loss of a name "package.module:function"; a class, such as a module of torch, is created first.

    Raises:
        ConfigError: It cannot be imported or created.
    """
    loss = import_reference(reference)
    if not isinstance(loss, type):
        function: UserLoss = loss
        return function
    try:
        created: UserLoss = loss()
    except Exception as error:  # code of the user can raise anything
        raise ConfigError(f"the loss {reference} cannot be created: {type(error).__name__}: {error}") from error
    return created


def user_loss(function: UserLoss, name: str, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Compute a loss of the user.

    Args:
        function: The loss.
        name: Its name, for messages.
        model: The network or a wrapper of it.
        batch: The batch, as `filter_loss` takes it. The loss has to leave out samples where `valid` is 0, and to weight
            each patch with its `weight`.

    Returns:
        A scalar, float32.

    Raises:
        ConfigError: The function fails or returns something else.
    """
    filtered = named_outputs(model(batch))
    if isinstance(function, nn.Module):
        function.to(batch["valid"].device)
    try:
        loss = function(filtered, batch)
    except Exception as error:  # code of the user can raise anything
        reason = (str(error) or "no reason given").splitlines()[0]
        raise ConfigError(f"the loss {name} fails: {type(error).__name__}: {reason}") from error
    if not isinstance(loss, Tensor) or loss.ndim or not loss.is_floating_point():
        what = f"{loss.dtype} of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ConfigError(f"the loss {name} returns {what}: return the mean over the batch, a scalar tensor")
    return loss if loss.dtype == torch.float64 else loss.float()


def _error(kind: str, difference: Tensor, block: int) -> Tensor:
    """Return the loss of differences (n, 1, h, w) by sample or by coefficient, shape (n, ., ., .)."""
    match kind:
        case "mse":
            return difference.square()
        case "l1":
            return difference.abs()
        case "charbonnier":
            return (difference.square() + CHARBONNIER_EPSILON**2).sqrt() - CHARBONNIER_EPSILON
        case "satd" | "dct":
            count, _, height, width = difference.shape
            tiles = difference.reshape(count, height // block, block, width // block, block).swapaxes(2, 3)
            coefficients: Tensor = dct(tiles) if kind == "dct" else hadamard(tiles) / block
            return coefficients.abs().flatten(1, 2)
    raise ConfigError(f"unknown loss {kind!r}: add a case to _error for it")


def limit_pictures(units: Sequence[Unit], pictures: int | None) -> list[Unit]:
    """Return the first units of each QP, at most `pictures` per QP; None keeps all."""
    kept: dict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        if pictures is None or len(kept[unit.qp]) < pictures:
            kept[unit.qp].append(unit)
    return [unit for qp in sorted(kept) for unit in kept[qp]]


def psnr_gains(model: FilterNetwork, units: Sequence[Unit], device: str | torch.device) -> dict[str, dict[int, float]]:
    """Measure the PSNR gain of each component that a network filters, on whole pictures.

    The gain is the mean over pictures of PSNR(filtered) - PSNR(decoded), after rounding; it does not depend on the peak
    of the PSNR. A picture without coding error in a component is left out there. An 8-bit network in training is
    measured as its integer network.

    Args:
        model: The network.
        units: Units to filter; of several processes, each passes the same units and filters its share.
        device: Device to filter on.

    Returns:
        Gain in dB by component and QP.
    """
    return mean_gains(units, gains_of_units(model, units, device))


def gains_of_units(
    model: FilterNetwork, units: Sequence[Unit], device: str | torch.device
) -> list[dict[str, list[float]]]:
    """Measure the gains of `psnr_gains` before the mean over pictures.

    Returns:
        For each unit, the gains in dB by component, one for each picture that has a coding error there.
    """
    filter_: NetworkFilter = (
        ExactFilter(model.integers(), device=device)
        if isinstance(model, EightBitNetwork)
        else FloatFilter(model, device=device)
    )
    return gather([_unit_gains(filter_, unit) for unit in share(units)])


def mean_gains(units: Sequence[Unit], gains: Sequence[dict[str, list[float]]]) -> dict[str, dict[int, float]]:
    """Average the gains of `gains_of_units` over the pictures of each QP.

    Returns:
        Gain in dB by component and QP.
    """
    by_component: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for unit, unit_gains in zip(units, gains, strict=True):
        for name, values in unit_gains.items():
            by_component[name][unit.qp] += values
    return {
        name: {qp: float(np.mean(values)) for qp, values in sorted(by_qp.items()) if values}
        for name, by_qp in by_component.items()
    }


def _unit_gains(filter_: NetworkFilter, unit: Unit) -> dict[str, list[float]]:
    """Return the gains in dB by component, one for each picture of a unit that has a coding error there."""
    gains: dict[str, list[float]] = {name: [] for name in filter_.outputs}
    with unit.originals() as originals, unit.decoded() as decoded:
        pictures = zip(unit.pictures, originals, decoded, strict=True)
        for index, (record, original, picture) in enumerate(pictures):
            filtered = filter_(picture, record.qp_for_networks, unit_planes(unit, index, filter_.planes))
            # The planes of all three pictures are y, u, v; the outputs of a network are the first or all of them.
            planes = zip(original.planes, picture.planes, filtered.planes, strict=True)
            for values, (target, decoded_plane, filtered_plane) in zip(gains.values(), planes, strict=False):
                before, after = mse(target, decoded_plane), mse(target, filtered_plane)
                if before > 0 and after > 0:
                    values.append(float(10 * np.log10(before / after)))
    return gains


def filtering_picture(model: FilterNetwork, unit: Unit, device: str | torch.device) -> Image:
    """Render what a filter does to the middle of the first picture of a unit.

    Args:
        model: The network.
        unit: The unit.
        device: Device to filter on.

    Returns:
        Luma in a row, shape (h, 4 * w) with h and w at most CROP: decoded, filtered, original, and mid grey plus
        ENHANCEMENT times the residual of the filter.
    """
    with unit.originals() as originals, unit.decoded() as decoded:
        original, picture = originals[0], decoded[0]
    rows, columns = (_middle(extent, CROP) for extent in original.y.shape)
    window = [_middle(extent, CROP + 2 * MARGIN) for extent in original.y.shape]
    cut = Picture(tuple(_cut(plane, window, picture.y.shape) for plane in picture.planes), picture.bit_depth)
    planes = {name: plane[window[0], window[1]] for name, plane in unit_planes(unit, 0, model.planes).items()}
    filtered = picture.y.astype(np.int32)
    filtered[window[0], window[1]] = FloatFilter(model, device=device)(cut, unit.pictures[0].qp_for_networks, planes).y
    shift = picture.bit_depth - 8
    residual = (128 << shift) + ENHANCEMENT * (filtered - picture.y)
    parts = [plane[rows, columns] for plane in (picture.y, filtered, original.y, residual)]
    row: Image = np.clip(np.concatenate(parts, axis=1) >> shift, 0, 255).astype(np.uint8)
    return row


@torch.no_grad()
def feature_pictures(model: FilterNetwork, unit: Unit, device: str | torch.device) -> dict[str, Image]:
    """Render the first MAPS features of the first, middle and last block (of a trunk) or convolution.

    The input is the middle of the first picture of a unit. Zero is mid grey, and 64 steps are the root mean square of
    the layer: a feature that is dead, or does not depend on the picture, is uniform.

    Args:
        model: The network.
        unit: The unit.
        device: Device of the network.

    Returns:
        Pictures by name of the layer, shape (2 * h, 4 * w).
    """
    layers = trunk_blocks(model) or {
        name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)
    }
    names = list(layers)
    if not names:
        return {}
    outputs: dict[str, torch.Tensor] = {}
    reader = PatchReader([unit], MAPS_CROP, model.halo, model.planes)
    x, y = (_middle(extent, MAPS_CROP).start // 8 * 8 for extent in (unit.format.width, unit.format.height))
    batch = as_floats(as_tensors(reader.cut([Patch(0, 0, x, y)], [0])))
    chosen_layers = {name: layers[name] for name in (names[0], names[len(names) // 2], names[-1])}
    with forward_hooks(chosen_layers, outputs.__setitem__):
        model({name: plane.to(device) for name, plane in batch.items()})
    pictures = {}
    for name, features in outputs.items():
        maps = features[0, :MAPS].float()
        grey = (128 + 64 * maps / features.float().square().mean().sqrt().clamp(min=1e-12)).clamp(0, 255)
        across = min(len(grey), MAPS // 2)
        starts = range(0, len(grey) - across + 1, across)  # an incomplete row is left out
        rows = [torch.cat(list(grey[start : start + across]), dim=1) for start in starts]
        pictures[name] = torch.cat(rows).to(torch.uint8).cpu().numpy()
    return pictures


def _middle(extent: int, size: int) -> slice:
    """Return the middle `size` samples of `extent`, starting at an even one, or all of a smaller extent."""
    if extent <= size:
        return slice(0, extent)
    start = (extent - size) // 2 // 2 * 2
    return slice(start, start + size)


def _cut(plane: Plane, window: list[slice], luma_shape: tuple[int, ...]) -> Plane:
    """Cut a window of luma samples from a plane of any chroma format."""
    factors = (ceil_div(luma, extent) for luma, extent in zip(luma_shape, plane.shape, strict=True))
    rows, columns = (slice(span.start // f, ceil_div(span.stop, f)) for span, f in zip(window, factors, strict=True))
    return plane[rows, columns]
