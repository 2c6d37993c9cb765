"""Intra prediction of VVC and HEVC, transforms and costs; NumPy arrays or tensors in, the same out.

`predict_modes` predicts a block by every mode; `dct`, `hadamard`, `forward_transform` and `inverse_transform` transform
residuals; `sad`, `sse`, `satd` and `rate_cost` tell what a residual costs. Importing it does not import torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
