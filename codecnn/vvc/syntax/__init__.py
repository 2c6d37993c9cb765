"""Parser of VVC bitstreams (H.266): parameter sets, headers, CABAC, coding trees and residuals.

`read_pictures` reads the headers of all pictures of a byte stream, `coding_units` and `transform_blocks` parse the
slice data of one picture into tables, and `parsed_ctus` gives the log from which `codecnn.vvc.decoder` works.
`compiled`, `compiled_entry` and `compiled_once` compile functions with numba. Clauses in docstrings are those of H.266.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
