"""The optimiser and its learning rate over the steps, by torch's own."""

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

from codecnn.models import parameter_groups
from codecnn.training.settings import LoopSettings


def make_optimiser(model: nn.Module, settings: LoopSettings) -> torch.optim.Optimizer:
    """AdamW with the groups of the settings; on CUDA in one kernel."""
    groups = {pattern: group.model_dump(exclude_none=True) for pattern, group in settings.groups.items()}
    on_cuda = next(model.parameters()).device.type == "cuda"
    return torch.optim.AdamW(
        parameter_groups(model, groups),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=on_cuda or None,
    )


def warmup_cosine(optimiser: torch.optim.Optimizer, settings: LoopSettings) -> LRScheduler:
    """Linear warm-up from 1 % over `warmup` steps, then a cosine to zero at the last step."""
    warmup = min(settings.warmup, settings.steps - 1)
    cosine = CosineAnnealingLR(optimiser, T_max=settings.steps - warmup)
    if warmup == 0:
        return cosine
    return SequentialLR(optimiser, [LinearLR(optimiser, 0.01, 1.0, total_iters=warmup), cosine], milestones=[warmup])
