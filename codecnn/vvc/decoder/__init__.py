"""Decoder of VVC pictures on top of the parser `codecnn.vvc.syntax`.

`read_pictures` yields planes of the pictures of a stream: the decoded picture, the picture before and between the
in-loop filters, prediction, residual, boundary strengths and motion. `decode_stream` yields the pictures with the
result of the comparison with their hashes. `reconstruct` reconstructs one parsed intra picture. The package does not
import torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
