"""Integer-exact filtering: networks of 8 or 16 bits, the same samples on every machine; see docs/integer.md."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
