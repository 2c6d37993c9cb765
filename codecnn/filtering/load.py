"""Filters from weights: `load_filter` loads float or integer weights by file or by name."""

from pathlib import Path

import torch

from codecnn.base.choices import Precision as Precision
from codecnn.base.errors import ConfigError, MissingFileError, ModelError
from codecnn.base.keywords import checked_keywords
from codecnn.filtering.integer import ExactFilter, find_integers, integer_path, is_integer, load_integer
from codecnn.filtering.network_filter import BFloat16Filter, FloatFilter, NetworkFilter, TF32Filter
from codecnn.filtering.tiles import Tile
from codecnn.models import load_model, weights_path

_KINDS = {"float32": FloatFilter, "bfloat16": BFloat16Filter, "tf32": TF32Filter}


def prefers_integers(weights: Path | str, precision: Precision = "float32") -> bool:
    """Return whether weights are computed in integers by default.

    They are if an 8-bit integer form lies beside them and the precision is float32. Integer weights themselves have no
    further form.

    Args:
        weights: Weights file or name of shipped weights.
        precision: Precision that was asked for.
    """
    path = weights_path(weights)
    return precision == "float32" and not is_integer(path) and integer_path(path, 8).is_file()


@checked_keywords()
def load_filter(
    weights: Path | str,
    *,
    exact: bool | None = False,
    precision: Precision = "float32",
    device: str | torch.device = "cpu",
    tile: Tile = "auto",
    memory: int | None = None,
    trust: bool = False,
) -> NetworkFilter:
    """Load a filter, prepared once for any number of pictures.

    Weights that hold integers give an `ExactFilter`, float weights a `FloatFilter`, `BFloat16Filter` or `TF32Filter` by
    their precision. For example:

        filter_ = load_filter("low_cost_17")
        filter_.luma(y, qp=37, bit_depth=10)            # (h, w) of the same type
        filter_(picture, qp=37)                         # a Picture
        filter_.video(video, [37], "filtered.yuv")      # all pictures of a Video, into a file
        filter_.card                                    # the card of the weights

    Args:
        weights: Weights file or name of shipped weights.
        exact: True takes the integer form of float weights, NAME.int8.safetensors or else NAME.int16.safetensors
            beside them, and verifies that it was exported from these weights. None does so only if
            `prefers_integers`. False computes float weights in float.
        precision: Precision of float weights.
        device: Device to compute on; see `NetworkFilter`.
        tile: Largest side of the tiles; see `NetworkFilter`.
        memory: Limit for the bytes of all tensors; see `NetworkFilter`.
        trust: Import the code that the card names if it is of a network outside of codecnn; see `load_model`.

    Returns:
        The filter.

    Raises:
        MissingFileError: The weights or their integer form do not exist.
        ModelError: A file is not what its card says, the integer form was exported from other weights, or the card
            names code that is not permitted.
        ConfigError: Integers are asked for in bfloat16 or TF32, or TF32 on the CPU.
    """
    if exact is None:
        exact = prefers_integers(weights, precision)
    source, weights = None, weights_path(weights)
    if precision != "float32" and (exact or is_integer(weights)):
        raise ConfigError(f"integer networks cannot be computed in {precision}: ask for float weights, or for float32")
    if exact and not is_integer(weights):
        source, weights = weights, find_integers(weights)
        if not weights.is_file():
            raise MissingFileError(
                f"{weights} does not exist: write it with codecnn export --model {source} --format int8 --store STORE"
            )
    if not is_integer(weights):
        model, card = load_model(weights, trust=trust)
        return _KINDS[precision](model, device=device, tile=tile, memory=memory, card=card)
    network, card = load_integer(weights)
    if source is not None and card.source_sha256 != load_model(source, trust=trust)[1].sha256:
        raise ModelError(f"{weights} was not exported from the weights {source}: export it again, or filter in float")
    return ExactFilter(network, device=device, tile=tile, memory=memory, card=card)
