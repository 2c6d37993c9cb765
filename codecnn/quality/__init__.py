"""Quality of pictures: MSE and PSNR, SSIM, VMAF, BD-rate, the CTU grid and sums over it."""

from codecnn.quality.bdrate import bd_rate
from codecnn.quality.metrics import mean_psnr, mse, psnr, psnr_of_mean_mse

__all__ = ["bd_rate", "mean_psnr", "mse", "psnr", "psnr_of_mean_mse"]
