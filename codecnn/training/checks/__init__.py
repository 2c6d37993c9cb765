"""Checks of a training set-up before hours are spent on it: `check_filter` and `check_task` run those that apply.

Each check is a function that returns a `Finding`. The checks of a network and its loss, in the module `network`, take a
`Setup`, which any network with batches and a loss can provide; docs/howto/check.md explains what each check looks for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
