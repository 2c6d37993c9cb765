"""Rasterised block statistics: what each 4x4 block of a picture belongs to, as planes that networks can take."""

BLOCK_PLANES = ("depth", "qp", "pred_mode", "intra_mode")
"""The planes in their order; columns of `BlockTable`."""

BLOCK_SIZE = 4
"""Side of a cell in luma samples: the smallest CU of VVC (H.266 clause 7.4.3.4); HEVC's is 8."""
