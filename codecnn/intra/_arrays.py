"""What lets one function work on NumPy arrays and on tensors alike, without importing torch where nobody uses it."""

import sys
from typing import Any

import numpy as np

Array = Any
"""NumPy array or tensor; functions give back what they take."""


def is_tensor(values: Any) -> bool:
    """Whether `values` is a tensor. Torch is not imported to find out: where it never was, there are no tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def library(values: Array) -> Any:
    """The module, torch or numpy, whose functions take `values`."""
    return sys.modules["torch"] if is_tensor(values) else np


def cast(values: Array, name: str) -> Array:
    """Convert to the type of this name, such as "int64"."""
    return values.to(getattr(sys.modules["torch"], name)) if is_tensor(values) else values.astype(name)


def wide(values: Array) -> Array:
    """Samples in a type that holds their sums, differences and squares: int64, or floating point as it is."""
    floating = values.is_floating_point() if is_tensor(values) else np.issubdtype(values.dtype, np.floating)
    return values if floating else cast(values, "int64")
