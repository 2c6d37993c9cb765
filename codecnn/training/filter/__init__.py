"""Training of filter networks: `filter_task` makes the task; its loss, and the PSNR gain that it validates by."""

from codecnn.training.filter._losses import filter_loss
from codecnn.training.filter._task import FilterTask, filter_task
from codecnn.training.filter._validate import psnr_gain

__all__ = ["FilterTask", "filter_loss", "filter_task", "psnr_gain"]
