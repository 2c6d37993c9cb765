"""Intra prediction of VVC and HEVC, transforms and block costs, on NumPy arrays or torch tensors.

Functions return the kind of array that they take. Importing this package does not import torch.

- `predict_modes` predicts blocks by every luma mode; `reference_lines` collects their reference samples from a picture.
- `dct`, `hadamard`, `forward_transform` and `inverse_transform` transform residuals.
- `sad`, `sse`, `satd` and `rate_cost` measure a residual; `block_costs` measures every mode of many blocks.
- `predict_modes_reference` and `block_costs_reference` are plain implementations to check the fast ones against.

Modules: `modes` (constants of the standards), `references`, `taps` (modes as sums of reference samples), `predict`,
`transforms`, `costs`, `kernels` (compiled loops on the CPU), `plain` (reference implementations).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
