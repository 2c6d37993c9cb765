"""Integer-exact filtering: networks of 16-bit integers that give the same samples everywhere; see docs/integer.md."""

from codecnn.filtering.integer._convert import integer_network
from codecnn.filtering.integer._exact import ExactFilter
from codecnn.filtering.integer._fast import FastNetwork
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer._quantisation import ACCUMULATOR_BITS, quantise
from codecnn.filtering.integer.file import integer_path, is_integer, load_integer, save_integer
from codecnn.filtering.integer.reference import filter_reference

__all__ = [
    "ACCUMULATOR_BITS",
    "ExactFilter",
    "FastNetwork",
    "IntegerNetwork",
    "filter_reference",
    "integer_network",
    "integer_path",
    "is_integer",
    "load_integer",
    "quantise",
    "save_integer",
]
