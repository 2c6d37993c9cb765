"""Whole pictures and sequences through a network."""

from codecnn.filtering.decisions.picture import CTU_SIZES, Decision, decide_picture, sequence_pays
from codecnn.filtering.decisions.statistics import count_decisions, write_decisions
from codecnn.filtering.frame import DEFAULT_TILE, filter_outputs, filter_planes
from codecnn.filtering.inputs import planes_beside, unit_planes
from codecnn.filtering.load import load_filter
from codecnn.filtering.picture_filter import FloatFilter, PictureFilter, float_filter, rounded
from codecnn.filtering.sequence import candidates, decide_video, filter_luma, filter_picture, filter_video
from codecnn.filtering.stream_qps import stream_qps

__all__ = [
    "CTU_SIZES",
    "DEFAULT_TILE",
    "Decision",
    "FloatFilter",
    "PictureFilter",
    "candidates",
    "count_decisions",
    "decide_picture",
    "decide_video",
    "filter_luma",
    "filter_outputs",
    "filter_picture",
    "filter_planes",
    "filter_video",
    "float_filter",
    "load_filter",
    "planes_beside",
    "rounded",
    "sequence_pays",
    "stream_qps",
    "unit_planes",
    "write_decisions",
]
