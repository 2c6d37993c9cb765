"""Decoder of VVC pictures on top of the parser `codecnn.vvc.syntax`.

`Decoder` decodes the pictures of a stream in decoding order and compares them with their hashes; `reconstruct`
reconstructs one parsed intra picture. Both give planes: the decoded picture, the picture before and between the in-loop
filters, prediction, residual, boundary strengths and motion. `codecnn.codec.read_pictures` reads them from a file.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
