"""Whole pictures and sequences through a network."""

from codecnn.filtering.decisions import CTU_SIZES, Decision, decide_picture, sequence_pays
from codecnn.filtering.frame import DEFAULT_TILE, filter_outputs, filter_planes
from codecnn.filtering.inputs import unit_planes
from codecnn.filtering.picture_filter import FloatFilter, PictureFilter, float_filter, rounded
from codecnn.filtering.sequence import filter_luma, filter_picture, filter_video

__all__ = [
    "CTU_SIZES",
    "DEFAULT_TILE",
    "Decision",
    "FloatFilter",
    "PictureFilter",
    "decide_picture",
    "filter_luma",
    "filter_outputs",
    "filter_picture",
    "filter_planes",
    "filter_video",
    "float_filter",
    "rounded",
    "sequence_pays",
    "unit_planes",
]
