"""Quality metrics, BD-rate, the evaluation and its report."""

from codecnn.quality.bdrate import bd_rate
from codecnn.quality.metrics import mean_psnr, mse, psnr, psnr_of_mean_mse

__all__ = ["bd_rate", "mean_psnr", "mse", "psnr", "psnr_of_mean_mse"]
