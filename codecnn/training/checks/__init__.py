"""Checks of a training set-up before the hours are spent: `check_filter` and `check_task` run those that apply.

Each check is a function that returns a `Finding`. Those of a network and its loss (`network`, `numbers`) take a
`Setup`, which any network with batches and a loss can have; docs/check.md tells what they look for.
"""

from codecnn.training.checks.base import Finding, Setup
from codecnn.training.checks.run import Progress, check_filter, check_task, task_setup

__all__ = ["Finding", "Progress", "Setup", "check_filter", "check_task", "task_setup"]
