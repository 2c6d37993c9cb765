"""Weights of either kind as a filter of pictures."""

from pathlib import Path
from typing import Literal

import torch

from codecnn.errors import ConfigError, MissingFileError, ModelError
from codecnn.filtering._picture_filter import BFloat16Filter, FloatFilter, NetworkFilter
from codecnn.filtering._tile_memory import Tile
from codecnn.filtering.integer import ExactFilter, integer_path, integers_beside, is_integer, load_integer
from codecnn.models import load_model, weights_path

Precision = Literal["float32", "bfloat16"]


def in_integers(weights: Path | str, precision: Precision = "float32") -> bool:
    """Whether weights are computed in integers where nothing is said of it: they have some of 8 bits beside them."""
    path = weights_path(weights)
    return precision == "float32" and not is_integer(path) and integer_path(path, 8).is_file()


def load_filter(
    weights: Path | str,
    *,
    exact: bool | None = False,
    precision: Precision = "float32",
    device: str | torch.device = "cpu",
    tile: Tile = "auto",
    memory: int | None = None,
) -> NetworkFilter:
    """The filter of a weights file, or of weights of the package by name, made ready once for any number of pictures:
    in float, or in integers where the file holds integers.

        filter_ = load_filter("low_cost_17")
        filter_.luma(y, qp=37, bit_depth=10)            # (h, w) of the same type
        filter_(picture, qp=37)                         # a Picture
        filter_.video(video, [37], "filtered.yuv")      # all pictures of a Video, into a file
        filter_.card                                    # what the card beside the weights says

    With `exact` the integers of weights in float are those that lie beside them, NAME.int8.safetensors or else
    NAME.int16.safetensors, and it is made sure that they were made from them; with None too where there are some of 8
    bits, and `precision` is float32. With the `precision` bfloat16 it is a
    `BFloat16Filter`. `device`, `tile` and `memory` as for `NetworkFilter`. Raises MissingFileError without the file,
    ModelError where it is not what its card says, ConfigError for integers in bfloat16.
    """
    if exact is None:
        exact = in_integers(weights, precision)
    if precision == "bfloat16" and (exact or is_integer(weights)):
        raise ConfigError("integers are exact, bfloat16 is not: leave one of them away")
    source, weights = None, weights_path(weights)
    if exact and not is_integer(weights):
        source, weights = weights, integers_beside(weights)
        if not weights.is_file():
            raise MissingFileError(
                f"{weights} does not exist: codecnn export --model {source} --format int16 --store STORE makes it"
            )
    if not is_integer(weights):
        model, card = load_model(weights)
        kind = BFloat16Filter if precision == "bfloat16" else FloatFilter
        return kind(model, device=device, tile=tile, memory=memory, card=card)
    network, card = load_integer(weights)
    if source is not None and card.source_sha256 != load_model(source)[1].sha256:
        told = f"{weights} was not made from {source}, or from other weights of that name"
        raise ModelError(f"{told}: export it again, or ask for float")
    return ExactFilter(network, device=device, tile=tile, memory=memory, card=card)
