"""Training: the loop, its settings, validation."""

from codecnn.training.loop import filter_loss, pick_device, train, warmup_cosine
from codecnn.training.settings import TrainingSettings
from codecnn.training.validate import psnr_gain

__all__ = ["TrainingSettings", "filter_loss", "pick_device", "psnr_gain", "train", "warmup_cosine"]
