"""What an encoder would decide of the filter: off, on, by CTU, scale and QP offset, by rate and distortion.

`decide_picture` decides a picture, `sequence_pays` whether a sequence should have the filter at all; `write_decisions`
and `count_decisions` tell what was decided. `rd_lambda`, `chroma_weight`, `flag_bits` and `choose_flags` are
the encoder's figures.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
