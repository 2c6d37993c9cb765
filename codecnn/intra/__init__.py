"""Intra prediction of VVC and HEVC, transforms, costs, and labels of the best mode."""

from codecnn.intra.cost import rate_cost, sad, satd, sse
from codecnn.intra.predict import predict_modes
from codecnn.intra.transforms import dct, forward_transform, hadamard, inverse_transform

__all__ = [
    "dct",
    "forward_transform",
    "hadamard",
    "inverse_transform",
    "predict_modes",
    "rate_cost",
    "sad",
    "satd",
    "sse",
]
