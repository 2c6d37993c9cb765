"""Intra prediction of VVC and HEVC, transforms and costs; NumPy arrays or tensors in, the same out.

`predict_modes` predicts a block by every mode; `dct`, `hadamard`, `forward_transform` and `inverse_transform` transform
residuals; `sad`, `sse`, `satd` and `rate_cost` tell what a residual costs. Importing it does not import torch.
"""

from codecnn.intra._predict import predict_modes
from codecnn.intra._transforms import dct, dct_matrix, forward_transform, hadamard, inverse_transform
from codecnn.intra.cost import rate_cost, sad, satd, sse

__all__ = [
    "dct",
    "dct_matrix",
    "forward_transform",
    "hadamard",
    "inverse_transform",
    "predict_modes",
    "rate_cost",
    "sad",
    "satd",
    "sse",
]
