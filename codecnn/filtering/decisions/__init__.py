"""What an encoder would decide of the filter: off, on, by CTU, scale and QP offset, by rate and distortion.

`decide_picture` decides a picture, `sequence_pays` whether a sequence should have the filter at all; `write_decisions`
and `count_decisions` tell what was decided. `rd_lambda`, `chroma_weight`, `flag_bits` and `choose_flags` are
the encoder's figures.
"""

from codecnn.filtering.decisions._picture import CTU_SIZES, Decision, decide_picture, sequence_pays
from codecnn.filtering.decisions._rate_distortion import choose_flags, chroma_weight, flag_bits, rd_lambda
from codecnn.filtering.decisions._statistics import count_decisions, write_decisions

__all__ = [
    "CTU_SIZES",
    "Decision",
    "choose_flags",
    "chroma_weight",
    "count_decisions",
    "decide_picture",
    "flag_bits",
    "rd_lambda",
    "sequence_pays",
    "write_decisions",
]
