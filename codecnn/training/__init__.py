"""Training: the loop (`train`, `train_task`), its settings, tasks, losses and validation.

The names are those of `__init__.pyi`, and each is loaded when it is first used: reading a configuration needs the
settings, but not torch, which takes seconds to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
