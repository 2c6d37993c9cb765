"""The syntax of a VVC bitstream (H.266): headers, CABAC, coding trees. `codecnn.reconstruct` rebuilds pictures from it.

`pictures.read_pictures` gives the pictures of a byte stream with their headers, `coding_units.coding_units` the coding
units of one; `codecnn.codec.read_blocks` makes a table of them. Clauses are those of H.266.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
