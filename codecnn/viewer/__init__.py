"""One coded picture as a page to look into: its CUs, modes and QPs over prediction, unfiltered, decoded and filtered.

`view` writes the page of a VVC stream's or a store's picture; `shown_stream` and `shown_unit` gather what is on it, for
figures and statistics of your own: layers of samples, and `Blocks` of CUs with their modes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
