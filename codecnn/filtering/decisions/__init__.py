"""Decisions that an encoder takes on a filter, by rate and distortion: off, on, or by CTU, scale, and QP offset.

`decide_picture` decides on one picture, and `sequence_pays` on the use of the filter in a whole sequence.
`write_decisions` and `count_decisions` report decisions. `rd_lambda`, `chroma_weight`, `flag_bits`, `choose_flags` and
`residual_scale` are the parts of the rate-distortion cost and its optimisation.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
