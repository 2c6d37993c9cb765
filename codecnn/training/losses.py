"""Losses of the filter networks."""

import torch
from torch import Tensor, nn

from codecnn.models import named_outputs

COMPONENT_WEIGHTS = {"y": 6, "u": 1, "v": 1}


def filter_loss(model: nn.Module, batch: dict[str, Tensor], weighting: str) -> Tensor:
    """Mean squared error over the valid samples of each patch, averaged over the patches.

    With the weighting "picture" each patch's error is divided by the error that the codec left in its whole picture.
    A network that changes nothing then has a loss of about 1, and since d(dB) = -10/ln 10 · d(MSE)/MSE, the gradient is
    that of the mean PSNR gain. (Dividing by the patch's own error instead lets flat patches explode.)

    Of a network that filters chroma as well, the errors of y, u and v are averaged 6:1:1, as in the field's YUV-PSNR;
    the batch then has orig_u and orig_v, and chroma's error is divided by the picture's luma error too.
    """
    filtered = named_outputs(model(batch))
    loss = torch.zeros((), device=batch["valid"].device)
    weights = sum(COMPONENT_WEIGHTS[name] for name in filtered)
    for name, plane in filtered.items():
        valid = batch["valid"] if name == "y" else batch["valid"][:, :, ::2, ::2]
        error = (plane - batch[f"orig_{name}"]).square() * valid
        per_patch = error.sum(dim=(1, 2, 3)) / valid.sum(dim=(1, 2, 3))
        if weighting == "picture":
            per_patch = per_patch / batch["picture_mse"]
        loss = loss + per_patch.mean() * (COMPONENT_WEIGHTS[name] / weights)
    return loss
