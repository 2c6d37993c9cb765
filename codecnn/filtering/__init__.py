"""Whole pictures and sequences through a network."""

from codecnn.filtering.frame import DEFAULT_TILE, filter_components, filter_luma, filter_outputs, filter_planes
from codecnn.filtering.inputs import unit_planes
from codecnn.filtering.sequence import filter_picture, filter_video

__all__ = [
    "DEFAULT_TILE",
    "filter_components",
    "filter_luma",
    "filter_outputs",
    "filter_picture",
    "filter_planes",
    "filter_video",
    "unit_planes",
]
