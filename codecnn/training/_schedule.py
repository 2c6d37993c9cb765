"""The learning rate over the steps, by torch's own schedulers."""

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

from codecnn.training.settings import LoopSettings


def warmup_cosine(optimiser: torch.optim.Optimizer, settings: LoopSettings) -> LRScheduler:
    """Linear warm-up from 1 % over `warmup` steps, then a cosine to zero at the last step."""
    warmup = min(settings.warmup, settings.steps - 1)
    cosine = CosineAnnealingLR(optimiser, T_max=settings.steps - warmup)
    if warmup == 0:
        return cosine
    return SequentialLR(optimiser, [LinearLR(optimiser, 0.01, 1.0, total_iters=warmup), cosine], milestones=[warmup])
