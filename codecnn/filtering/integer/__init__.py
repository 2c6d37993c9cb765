"""Integer-exact filtering: networks of 8 or 16 bits, the same samples on every machine; see docs/integer.md."""

from codecnn.filtering.integer._convert import integer_network, source_card
from codecnn.filtering.integer._eight import quantise_eight
from codecnn.filtering.integer._exact import Engine, ExactFilter, build_engine, engines
from codecnn.filtering.integer._fast import FastNetwork
from codecnn.filtering.integer._mixed import LOSS
from codecnn.filtering.integer._network import IntegerNetwork
from codecnn.filtering.integer._quantisation import ACCUMULATOR_BITS, quantise
from codecnn.filtering.integer.file import integer_path, integers_beside, is_integer, load_integer, save_integer
from codecnn.filtering.integer.reference import filter_reference

__all__ = [
    "ACCUMULATOR_BITS",
    "LOSS",
    "Engine",
    "ExactFilter",
    "FastNetwork",
    "IntegerNetwork",
    "build_engine",
    "engines",
    "filter_reference",
    "integer_network",
    "integer_path",
    "integers_beside",
    "is_integer",
    "load_integer",
    "quantise",
    "quantise_eight",
    "save_integer",
    "source_card",
]
