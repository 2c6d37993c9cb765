"""Training of the intra-mode classifier: `intra_modes_task` makes the task from the tables of `codecnn labels`.

`costs_of` gives a table's costs, `soft_targets` what is learned from them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
