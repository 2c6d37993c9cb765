"""Intra pictures of a VVC stream from its bits: prediction, residual, and the picture before the loop filters.

`read_pictures` gives the planes of every intra picture of a stream. Nothing here imports torch.
"""

from codecnn.reconstruct.pictures import PLANES, read_pictures, reconstruct

__all__ = ["PLANES", "read_pictures", "reconstruct"]
