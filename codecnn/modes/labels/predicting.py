"""Intra modes predicted by networks: the likeliest modes of every block with margins, and optionally their costs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from codecnn.base.errors import ConfigError, MissingFileError, ModelError
from codecnn.base.files import atomic_path, provenance, sha256_file
from codecnn.base.runtime import float32_products
from codecnn.models import Card, list_mode_weights, read_card, weights_path
from codecnn.modes.labels.labelling import Input, Labels, read_inputs
from codecnn.modes.labels.table import Source
from codecnn.modes.networks import (
    IntegerSketch,
    ModeClassifier,
    load_integer_sketch,
    load_mode_network,
    sketch_logits,
    top_modes,
)
from codecnn.vvc.intra import (
    CTU_SIZES,
    MODE_COUNT,
    block_positions,
    blocks_at,
    check_bit_depth,
    reference_lines,
    selected_costs,
)

SCHEMA_VERSION = 1
_CHUNK = 128
"""Blocks in a batch of a network: their coefficients, half a megabyte, fit a second-level cache."""
_BATCH_SAMPLES = 1 << 18
"""Samples of the blocks in one record batch."""


def write_modes(
    path: Path,
    inputs: Sequence[Input],
    models: Sequence[Path | str],
    *,
    top: int,
    cost: str | None,
    exact: bool,
    ctu_size: int | None,
    progress: Callable[[int, int], None] | None,
) -> Labels:
    """Write a table of predicted modes.

    Args:
        path: Parquet file to write.
        inputs: The pictures.
        models: Weights of mode networks; empty takes those of the package.
        top: Number of modes per block.
        cost: Cost that chooses one of them, or None.
        exact: Compute in integers.
        ctu_size: CTU width in luma samples; None takes that of the first network.
        progress: Called with the numbers of finished and of all pictures.

    Returns:
        Numbers of pictures and blocks.

    Raises:
        ConfigError: The networks do not fit together, or `top` is too large.
        ModelError: Weights are not those of a mode network for blocks of one size.
    """
    networks = [_Network(weights, exact) for weights in (models or list_mode_weights())]
    modes, ctu = networks[0].modes, ctu_size or networks[0].ctu_size
    if len({network.modes for network in networks}) > 1:
        raise ConfigError("the networks predict modes of different standards: give networks of one standard")
    if not 1 <= top <= modes:
        raise ConfigError(f"top {top} is not in 1 to {modes}")
    facts = {
        "modes": SCHEMA_VERSION,
        "settings": {"top": top, "cost": cost, "ctu_size": ctu},
        "networks": [network.facts for network in networks],
        "inputs": [entry.facts() for entry in inputs],
    }
    schema = _schema(top, cost).with_metadata({"codecnn": json.dumps(provenance(facts))})
    done, rows, total = 0, 0, sum(entry.count for entry in inputs)
    with atomic_path(path) as part, pq.ParquetWriter(part, schema) as writer:
        for picture in read_inputs(inputs):
            batches = [batch for network in networks for batch in _rows(picture, network, top, cost, ctu)]
            table = pa.Table.from_batches([batch.replace_schema_metadata(schema.metadata) for batch in batches], schema)
            writer.write_table(table)
            rows, done = rows + table.num_rows, done + 1
            if progress:
                progress(done, total)
    return Labels(done, rows)


class _Network:
    """A mode network, float or integer, with the settings of its card."""

    def __init__(self, weights: Path | str, exact: bool) -> None:
        """Load a network; `exact` selects the integers of float weights."""
        self.model: ModeClassifier | IntegerSketch
        path = weights_path(weights)
        if exact or (path.is_file() and path.stem.endswith(".int16")):
            path, self.model, card = _load_integers(path)
        else:
            self.model, card = load_mode_network(path)
        model = self.model
        self.modes: int = model.modes if isinstance(model, IntegerSketch) else model.options["modes"]
        standard = next((name for name, count in MODE_COUNT.items() if count == self.modes), None)
        if standard is None:
            raise ModelError(f"{path} predicts {self.modes} modes, and no standard has as many")
        self.standard = standard
        self.ctu_size = card.ctu_size or max(CTU_SIZES[self.standard])
        if self.model.block_sizes is None:
            raise ModelError(f"{weights} is not a network for blocks of one size: train a mode_sketch")
        ((self.width, self.height),) = self.model.block_sizes
        self.facts = {"sha256": sha256_file(path), "block": f"{self.width}x{self.height}"}


def _load_integers(weights: Path) -> tuple[Path, IntegerSketch, Card]:
    """Load the integer network of weights: the file itself or the one next to it; return file, network and card."""
    if weights.stem.endswith(".int16"):
        return weights, *load_integer_sketch(weights)
    path = weights.with_suffix(".int16.safetensors")
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist: create it with codecnn export --model {weights} --format int16")
    network, card = load_integer_sketch(path)
    if card.source_sha256 != read_card(weights).sha256:
        raise ModelError(f"{path} was not made from {weights}, or from other weights of that name: export it again")
    return path, network, card


def likeliest_modes(
    model: ModeClassifier | IntegerSketch,
    line: NDArray[np.int32],
    block: NDArray[Any],
    bit_depth: int,
    qp: int,
    top: int,
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Predict the likeliest modes of blocks with a network.

    Args:
        model: A mode network for this block size.
        line: References (see `reference_lines`), shape (n, 2·h + 1 + 2·w).
        block: Original samples, shape (n, h, w).
        bit_depth: Bits per sample.
        qp: QP of the picture that references are taken from, 0 for the original.
        top: Number of modes.

    Returns:
        Modes, likeliest first, and the difference of the first logit and that of each mode in nats, both (n, top).
    """
    if isinstance(model, IntegerSketch):
        order, below = top_modes(sketch_logits(model, line, block, bit_depth, qp, _CHUNK), model, top)
        return order.numpy().astype(np.uint8), below.numpy().astype(np.float32)
    count = len(line)
    modes, margins = np.empty((count, top), np.uint8), np.empty((count, top), np.float32)
    scalars = (torch.full((count,), value) for value in (bit_depth, qp))
    samples = torch.from_numpy(line), torch.from_numpy(block.astype(np.int32))
    with torch.no_grad(), float32_products():
        inputs = model.inputs(*samples, *scalars)
        for start in range(0, count, _CHUNK):
            part = slice(start, start + _CHUNK)
            best = model(*(tensor[part] for tensor in inputs)).topk(top, dim=1)
            modes[part] = best.indices.numpy()
            margins[part] = (best.values[:, :1] - best.values).numpy()
    return modes, margins


def _rows(picture: Source, network: _Network, top: int, cost: str | None, ctu: int) -> "list[pa.RecordBatch]":
    """Predict all blocks of a picture that have the size of the network."""
    check_bit_depth(picture.bit_depth)
    height, width = picture.original.shape
    positions = block_positions(width, height, network.width, network.height)
    step = _BATCH_SAMPLES // (network.width * network.height)
    return [
        _batch(picture, positions[start : start + step], network, top, cost, ctu)
        for start in range(0, len(positions), step)
    ]


def _batch(
    picture: Source, positions: NDArray[np.int64], network: _Network, top: int, cost: str | None, ctu: int
) -> "pa.RecordBatch":
    size = network.width, network.height
    line = reference_lines(picture.references, positions, *size, picture.bit_depth, ctu)
    block = blocks_at(picture.original, positions, *size)
    # The input QP is 0 where references are taken from the original, as in training.
    modes, margins = likeliest_modes(network.model, line, block, picture.bit_depth, picture.qp or 0, top)
    count = len(positions)
    columns: list[Any] = [
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [picture.name]),
        *(pa.array(np.full(count, value, np.int32)) for value in (picture.frame, picture.input)),
        pa.repeat(pa.scalar(picture.qp, pa.int32()), count),
        *(pa.array(positions[:, axis].astype(np.int32)) for axis in (0, 1)),
        *(pa.array(np.full(count, side, np.uint8)) for side in size),
        pa.FixedSizeListArray.from_arrays(pa.array(modes.ravel()), top),
        pa.FixedSizeListArray.from_arrays(pa.array(margins.ravel()), top),
    ]
    if cost is not None:
        costs = selected_costs(line, block, picture.bit_depth, cost, modes, network.standard, picture.qp)
        best = costs.argmin(1)[:, None]
        columns += [pa.array(np.take_along_axis(values, best, 1)[:, 0]) for values in (modes, costs)]
    return pa.record_batch(columns, schema=_schema(top, cost))


def _schema(top: int, cost: str | None) -> "pa.Schema":
    fields = [
        ("picture", pa.dictionary(pa.int32(), pa.string())),
        *((name, pa.int32()) for name in ("frame", "input", "qp", "x", "y")),
        *((name, pa.uint8()) for name in ("w", "h")),
        ("modes", pa.list_(pa.uint8(), top)),
        ("margins", pa.list_(pa.float32(), top)),
    ]
    if cost is not None:
        fields += [(f"mode_{cost}", pa.uint8()), (f"cost_{cost}", pa.float64())]
    return pa.schema(fields)
