"""Networks that predict intra modes.

`create_mode_network` creates a `ModeClassifier`, `save_mode_network` and `load_mode_network` write and read it.
`quantise_sketch` converts a `ModeSketch` into integers, an `IntegerSketch`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
