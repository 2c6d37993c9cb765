"""High-level functions that take file names and return results, for the command line and for `import codecnn`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
