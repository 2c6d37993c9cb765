"""Views of one coded picture: its CUs, modes and QPs over prediction, unfiltered, decoded and filtered picture.

`view` writes an HTML page for a picture of a VVC stream or of a store. `shown_stream` and `shown_unit` return the
content of the page for other figures and statistics: layers of samples, and `Blocks` of CUs with their modes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
