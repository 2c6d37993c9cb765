"""Training of the intra-mode classifier: `intra_modes_task` makes the task from the tables of `codecnn labels`.

`costs_of` gives a table's costs, `soft_targets` what is learned from them.
"""

from codecnn.training.intra_modes._data import costs_of
from codecnn.training.intra_modes._task import IntraModesTask, intra_modes_task, soft_targets

__all__ = ["IntraModesTask", "costs_of", "intra_modes_task", "soft_targets"]
