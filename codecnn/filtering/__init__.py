"""Whole pictures and sequences through a network, and what an encoder would decide of the result.

`load_filter` makes a filter from weights, once: for luma planes, pictures and videos; `FloatFilter` from a network in
memory; `filter_luma` is the short form for one plane. `decide_picture` and `decide_video` choose, knowing the original,
what is filtered and how strongly (`codecnn.filtering.decisions`); `filter_and_decide` filters a picture before. Integer
networks are `codecnn.filtering.integer`, filters inside the loop of an encoder `codecnn.filtering.in_loop`.
"""

from codecnn.filtering._base import PictureFilter, rounded
from codecnn.filtering._decide import QP_OFFSETS, Decisions, Filtered, filter_and_decide
from codecnn.filtering._frame import filter_outputs, in_tiles
from codecnn.filtering._inputs import (
    Beside,
    planes_beside,
    slice_type_beside,
    stream_qps,
    stream_slice_types,
    unit_planes,
)
from codecnn.filtering._load import Precision, in_integers, load_filter
from codecnn.filtering._picture_filter import BFloat16Filter, FloatFilter, NetworkFilter, filter_luma
from codecnn.filtering._sequence import candidates, decide_video, filter_video
from codecnn.filtering._tile_memory import Tile
from codecnn.filtering.decisions import (
    CTU_SIZES,
    Decision,
    count_decisions,
    decide_picture,
    sequence_pays,
    write_decisions,
)

__all__ = [
    "CTU_SIZES",
    "QP_OFFSETS",
    "BFloat16Filter",
    "Beside",
    "Decision",
    "Decisions",
    "Filtered",
    "FloatFilter",
    "NetworkFilter",
    "PictureFilter",
    "Precision",
    "Tile",
    "candidates",
    "count_decisions",
    "decide_picture",
    "decide_video",
    "filter_and_decide",
    "filter_luma",
    "filter_outputs",
    "filter_video",
    "in_integers",
    "in_tiles",
    "load_filter",
    "planes_beside",
    "rounded",
    "sequence_pays",
    "slice_type_beside",
    "stream_qps",
    "stream_slice_types",
    "unit_planes",
    "write_decisions",
]
