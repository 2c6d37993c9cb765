"""Labels: the best intra mode of every block of pictures, as a table of one row a block.

`label_blocks` labels videos, stills or a store; `label_settings` says in words which blocks and costs, `LabelSettings`
is the same as a record. `predict_block_modes` has networks tell the modes instead, `first_modes` one network those of
some blocks. `codecnn.labels.statistics` compares costs, and an encoder's choices with them.
"""

from codecnn.labels._labelling import Labels, label_blocks
from codecnn.labels._predicting import first_modes, predict_block_modes
from codecnn.labels.table import LabelSettings, label_settings

__all__ = ["LabelSettings", "Labels", "first_modes", "label_blocks", "label_settings", "predict_block_modes"]
