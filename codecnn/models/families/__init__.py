"""The networks, a family a file: what it computes, how it is drawn for export, how it grows, and its names.

A new family is a file here, with a line below. Importing this package makes all names known to `create_model`.
"""

from codecnn.models.families import baselines, low_cost, mode_network, mode_sketch, rdn, yuv

__all__ = ["baselines", "low_cost", "mode_network", "mode_sketch", "rdn", "yuv"]
