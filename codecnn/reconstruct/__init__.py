"""Intra pictures of a VVC stream from its bits: prediction, residual, and the picture before the loop filters.

`read_pictures` gives the planes of every intra picture of a stream. Nothing here imports torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
