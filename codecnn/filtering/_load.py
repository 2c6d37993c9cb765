"""Weights of either kind as a filter of pictures."""

from pathlib import Path
from typing import Literal

import torch

from codecnn.errors import ConfigError, MissingFileError, ModelError
from codecnn.filtering._picture_filter import BFloat16Filter, FloatFilter, NetworkFilter
from codecnn.filtering._tile_memory import Tile
from codecnn.filtering.integer import ExactFilter, integers_beside, is_integer, load_integer
from codecnn.models import load_model, weights_path

Precision = Literal["float32", "bfloat16"]


def load_filter(
    weights: Path | str,
    *,
    exact: bool = False,
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
    NAME.int16.safetensors, and it is made sure that they were made from them. With the `precision` bfloat16 it is a
    `BFloat16Filter`. `device`, `tile` and `memory` as for `NetworkFilter`. Raises MissingFileError without the file,
    ModelError where it is not what its card says, ConfigError for integers in bfloat16.
    """
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
        raise ModelError(f"{weights} was not made from {source}, or from other weights of that name: export it again")
    return ExactFilter(network, device=device, tile=tile, memory=memory, card=card)
