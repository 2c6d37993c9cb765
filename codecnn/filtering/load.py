"""Weights of either kind as a filter of pictures."""

from pathlib import Path
from typing import Any

import torch

from codecnn.errors import MissingFileError, ModelError
from codecnn.filtering.frame import DEFAULT_TILE
from codecnn.filtering.integer import exact_filter, integer_path, is_integer, load_integer
from codecnn.filtering.picture_filter import PictureFilter, float_filter
from codecnn.models import load_model, weights_path


def load_filter(
    weights: Path | str,
    *,
    exact: bool = False,
    device: str | torch.device = "cpu",
    tile: int | None = DEFAULT_TILE,
    memory: int | None = None,
) -> tuple[PictureFilter, dict[str, Any]]:
    """The filter of a weights file or of weights of the package by name, and its card: in float, or in integers where
    the file holds integers.

    With `exact` the integers of weights in float are those that lie beside them, NAME.int16.safetensors, and it is
    made sure that they were made from them. Otherwise as `float_filter` and `exact_filter`. Raises MissingFileError
    without the file, ModelError where it is not what its card says.
    """
    source, weights = None, weights_path(weights)
    if exact and not is_integer(weights):
        source, weights = weights, integer_path(weights)
        if not weights.is_file():
            raise MissingFileError(
                f"{weights} does not exist: codecnn export --model {source} --format int16 --store STORE makes it"
            )
    if not is_integer(weights):
        model, card = load_model(weights)
        return float_filter(model, device=device, tile=tile, memory=memory), card
    network, card = load_integer(weights)
    if source is not None and card.get("source_sha256") != load_model(source)[1]["sha256"]:
        raise ModelError(f"{weights} was not made from {source}, or from other weights of that name: export it again")
    return exact_filter(network, device=device, tile=tile, memory=memory), card
