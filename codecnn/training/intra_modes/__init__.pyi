from ._data import costs_of as costs_of
from ._task import IntraModesTask as IntraModesTask
from ._task import intra_modes_task as intra_modes_task
from ._task import soft_targets as soft_targets
