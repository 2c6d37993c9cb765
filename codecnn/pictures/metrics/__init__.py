"""Quality of pictures and rate-distortion curves.

- `mse` and `psnr` compare pictures; `mean_psnr`, `psnr_of_mse`, `psnr_of_mean_mse`, `psnr_yuv_mse` and `psnr_yuv_611`
  average over pictures and planes as codecs and publications do. `bd_rate` compares two rate-distortion curves.
- `ssim`, `ms_ssim` and `vmaf` are perceptual metrics.
- `ctu_grid` is the CTU grid of a picture; `ctu_sums`, `ctu_means` and `block_sums` are sums and means over blocks.

Modules: `metrics` (MSE, PSNR, BD-rate), `perceptual` (SSIM, VMAF), `grid` (blocks).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
