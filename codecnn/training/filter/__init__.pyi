from ._losses import filter_loss as filter_loss
from ._task import FilterTask as FilterTask
from ._task import filter_task as filter_task
from ._validate import psnr_gain as psnr_gain
