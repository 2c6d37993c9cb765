"""Checks of a training set-up before the hours are spent: `check_filter` and `check_task` run those that apply.

Each check is a function that returns a `Finding`. Those of a network and its loss (`network`, `numbers`) take a
`Setup`, which any network with batches and a loss can have; docs/check.md tells what they look for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
