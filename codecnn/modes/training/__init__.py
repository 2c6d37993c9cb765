"""Training of the intra-mode classifier.

`intra_modes_task` constructs the task from tables of `codecnn labels`, which `open_labels` opens and `LabelledBlocks`
cuts into blocks. `costs_of` computes the costs of all modes of a block, and `soft_targets` targets from them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
