"""Training sets: a recipe is built into a store, and a store is read as batches.

A recipe (`Recipe`) names pictures, encoder, QPs and splits. `plan_build` computes the size of its store, and
`build_store` codes the store, which `open_store` opens as a `Store`: a list of units (`Unit`). A unit is one sequence
coded at one QP, with its original and decoded pictures, its CU table, and the error of each CTU. `PatchReader` cuts
patches as NumPy arrays; `CtuPatches`, `TrainingBatches` and `ResidentBatches` return tensors, and `iterate` yields
batches on a device.

The public names are listed in `__init__.pyi` and loaded on first use, so only the batches import torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
