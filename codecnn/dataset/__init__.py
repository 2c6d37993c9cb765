"""Training sets: a recipe (`Recipe`) becomes a store (`build_store`), a store becomes batches.

A store (`open_store`, `Store`) holds coded units (`Unit`): one sequence at one QP, with its pictures before and after
coding, its CUs, and the error of each CTU. `PatchReader` cuts patches of them as NumPy arrays; `CtuPatches`,
`TrainingBatches` and `ResidentBatches` give tensors, `iterate` on a device.

The names are those of `__init__.pyi`, and each is loaded when it is first used: only batches need torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
