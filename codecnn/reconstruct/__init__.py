"""Reconstruction of intra pictures from a VVC bitstream, on top of the parser `codecnn.vvc`.

`read_pictures` yields `PLANES` of every intra picture of a stream: prediction, residual, the reconstruction before the
in-loop filters and boundary strengths. `reconstruct` does the same for one parsed picture. The package does not import
torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
