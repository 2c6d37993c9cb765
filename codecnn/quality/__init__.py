"""Quality of pictures, arrays in and numbers out.

MSE and PSNR as codecs log them (`psnr`, `mean_psnr`, and from MSEs `psnr_of_mse`, `psnr_of_mean_mse`), structural
similarity (`ssim`, `ms_ssim`), `vmaf` of files, `bd_rate` of two curves; the CTU grid (`ctu_grid`) with sums and means
over its CTUs (`ctu_sums`, `ctu_means`) or over any blocks (`block_sums`).

The names are those of `__init__.pyi`, and each is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
