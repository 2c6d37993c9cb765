"""Training of the intra-mode classifier: `intra_modes_task` makes the task from the tables of `codecnn labels`."""

from codecnn.training.intra_modes._task import IntraModesTask, intra_modes_task

__all__ = ["IntraModesTask", "intra_modes_task"]
