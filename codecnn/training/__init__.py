"""Training of networks: the loop, its settings, the tasks, and checks of a training set-up.

`train` trains what a configuration describes, `train_task` any task of the protocol `Task`. `LoopSettings` and
`FilterSettings` are the settings of a run, `Runtime` records how it computes, and `compare_networks` compares two
networks layer by layer. The tasks are in `filter` and `intra_modes`, the checks in `checks`.

Names are loaded on first use: reading a configuration needs the settings but not torch, which takes seconds to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
