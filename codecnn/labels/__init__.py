"""Labels: the best intra mode of every block of pictures, as a table of one row a block.

`label_blocks` labels videos, stills or a store; `label_settings` says in words which blocks and costs, `LabelSettings`
is the same as a record. `predict_block_modes` has networks tell the modes instead, `first_modes` one network those of
some blocks. `codecnn.labels.statistics` compares costs, and an encoder's choices with them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
