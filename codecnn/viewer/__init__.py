"""Views of coded pictures: CUs, modes and motion over prediction, unfiltered, decoded and filtered pictures.

`view` writes an HTML page for pictures of a stream or of a store. `shown_stream` and `shown_unit` return the content of
one picture for other figures and statistics, `stream_pictures` and `unit_pictures` that of several: layers of samples,
and the `Coding` of the blocks, with the CUs and their modes as `Blocks`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
