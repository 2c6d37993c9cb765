"""Losses of the filter networks."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from codecnn.intra import dct, hadamard
from codecnn.models import named_outputs

COMPONENT_WEIGHTS: Mapping[str, float] = {"y": 6, "u": 1, "v": 1}
CHARBONNIER_EPSILON = 1e-3
"""In units of full scale: one 8-bit step is 4 of it. Errors well below it count squared, those above as they are."""
BLOCK = 8
"""Side of the luma blocks that are transformed; 4:2:0 chroma's have half of it, since patches are multiples of 8."""


def filter_loss(
    model: nn.Module,
    batch: dict[str, Tensor],
    weighting: str,
    kind: str = "mse",
    components: Mapping[str, float] = COMPONENT_WEIGHTS,
) -> Tensor:
    """Mean error over the valid samples of each patch, averaged over the patches by their weights.

    Of an error d of a sample counts

    "mse"          d²
    "l1"           |d|
    "charbonnier"  sqrt(d² + ε²) - ε, with CHARBONNIER_EPSILON (Lai et al., "LapSRN", CVPR 2017)
    "satd"         its share of the sum of |c| over the coefficients c of its 8x8 block's Hadamard transform
    "dct"          the same by the DCT-II; the sum of c² would be that of d² (Parseval), which is "mse"

    Both transforms are orthonormal, so that of white noise all three absolute errors are equal. Blocks are those of the
    patch; samples that are not valid have no error, and take part: borders that are multiples of 8 leave whole blocks.

    With the weighting "picture" each patch's error is divided by the one that the codec left in its whole picture: by
    its mean squared error, or by the root of that for the losses that are not squared. With "mse" a network that
    changes nothing then has a loss of about 1, and since d(dB) = -10/ln 10 · d(MSE)/MSE, the gradient is that of the
    mean PSNR gain. (Dividing by the patch's own error instead lets flat patches explode.)

    Of a network that filters chroma as well, the errors of y, u and v are averaged by their weights `components`: as in
    the field's YUV-PSNR where nothing else is said.
    The batch then has orig_u and orig_v, and picture_mse_u and picture_mse_v: each component's error is divided by that
    of its own plane, so that the gradient is that of the mean gain in YUV-PSNR. (Over luma's error chroma's is 0.56 at
    QP 22 and 0.19 at QP 42, by so much it would count less.)
    """
    filtered = named_outputs(model(batch))
    loss = torch.zeros((), device=batch["valid"].device)
    weights = sum(components[name] for name in filtered)
    for name, plane in filtered.items():
        valid = batch["valid"] if name == "y" else batch["valid"][:, :, ::2, ::2]
        error = _error(kind, (plane - batch[f"orig_{name}"]) * valid, BLOCK if name == "y" else BLOCK // 2)
        per_patch = error.sum(dim=(1, 2, 3)) / valid.sum(dim=(1, 2, 3))
        if weighting == "picture":
            left = batch["picture_mse" if name == "y" else f"picture_mse_{name}"]
            per_patch = per_patch / (left if kind == "mse" else left.sqrt())
        loss = loss + (per_patch * batch["weight"]).mean() * (components[name] / weights)
    return loss


def _error(kind: str, difference: Tensor, block: int) -> Tensor:
    """What the loss `kind` counts of differences (n, 1, h, w), by sample or by coefficient; any shape (n, ., ., .)."""
    match kind:
        case "mse":
            return difference.square()
        case "l1":
            return difference.abs()
        case "charbonnier":
            return (difference.square() + CHARBONNIER_EPSILON**2).sqrt() - CHARBONNIER_EPSILON
    count, _, height, width = difference.shape
    tiles = difference.reshape(count, height // block, block, width // block, block).swapaxes(2, 3)
    coefficients: Tensor = dct(tiles) if kind == "dct" else hadamard(tiles) / block
    return coefficients.abs().flatten(1, 2)
