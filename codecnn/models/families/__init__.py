"""Families of filter networks, one module each.

Importing this package registers the architectures of the filter networks. A new family is a module here that calls
`register`, and its name in the import below.
"""

from codecnn.models.families import baselines, lop, low_cost, rdn, yuv

__all__ = ["baselines", "lop", "low_cost", "rdn", "yuv"]
