"""Modes told by networks: the first few of every block with their margins, and where asked for what they cost."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from codecnn.errors import ConfigError, MissingFileError, ModelError
from codecnn.intra import (
    CTU_SIZES,
    MODE_COUNT,
    block_positions,
    blocks_at,
    check_bit_depth,
    reference_lines,
    some_costs,
)
from codecnn.labels._labelling import Labels, open_inputs
from codecnn.labels.sources import read_inputs
from codecnn.labels.table import Source
from codecnn.models import (
    Card,
    IntegerSketch,
    ModeClassifier,
    first_of,
    list_mode_weights,
    load_integer_sketch,
    load_mode_network,
    read_card,
    sketch_logits,
    weights_path,
)
from codecnn.runs import atomic_path, provenance, sha256_file

SCHEMA_VERSION = 1
_CHUNK = 128
"""Blocks that a network sees at once: half a megabyte of coefficients stays in a second-level cache."""
_PIECE = 1 << 18
"""Samples of the blocks that are worked on at once."""


def predict_block_modes(
    source: Path | str,
    output: Path | str | None = None,
    *,
    models: Sequence[Path | str] = (),
    top: int = 8,
    cost: str | None = None,
    exact: bool = False,
    decoded: Path | str | None = None,
    qp: int | None = None,
    splits: Sequence[str] | None = None,
    ctu_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Labels:
    """The `top` likeliest intra modes of every block of pictures, told by networks: a table, or written to `output`.

    `models` are weights of mode networks for different block sizes, by default those of the package, for 8x8 and 16x16
    of VVC. Pictures, references and `options` are as in `label_blocks`. With a `cost` (dct, hadamard, rate) the `top`
    modes are tried as well, and the table has the cheapest of them and its cost. With `exact` the networks are the
    integers that lie beside their weights, and the modes are the same on every machine. docs/modes.md has the columns.

    Raises ConfigError for what cannot be used, ModelError for weights that are none of a mode network, and what
    `label_blocks` raises.
    """
    if output is not None and Path(output).suffix not in ("", ".parquet"):
        raise ConfigError(f"{output}: modes are a Parquet table: end its name in .parquet")
    networks = [_Network(weights, exact) for weights in (models or list_mode_weights())]
    modes, ctu = networks[0].modes, ctu_size or networks[0].ctu_size
    if len({network.modes for network in networks}) > 1:
        raise ConfigError("the networks tell modes of different standards")
    if not 1 <= top <= modes:
        raise ConfigError(f"top {top} is not in 1 to {modes}")
    inputs = open_inputs(Path(source), None if decoded is None else Path(decoded), qp, splits, options)
    told = {
        "modes": SCHEMA_VERSION,
        "settings": {"top": top, "cost": cost, "ctu_size": ctu},
        "networks": [network.facts for network in networks],
        "inputs": [entry.facts() for entry in inputs],
    }
    schema = _schema(top, cost).with_metadata({"codecnn": json.dumps(provenance(told))})
    done, rows, total = 0, 0, sum(entry.count for entry in inputs)
    with tempfile.TemporaryDirectory(prefix="codecnn-") as folder:
        path = Path(folder) / "modes.parquet" if output is None else Path(output)
        with atomic_path(path) as part, pq.ParquetWriter(part, schema) as writer:
            for picture in read_inputs(inputs):
                batches = [batch for network in networks for batch in _rows(picture, network, top, cost, ctu)]
                table = pa.Table.from_batches(
                    [batch.replace_schema_metadata(schema.metadata) for batch in batches], schema
                )
                writer.write_table(table)
                rows, done = rows + table.num_rows, done + 1
                if progress:
                    progress(done, total)
        return Labels(done, rows, pq.read_table(path) if output is None else None)


class _Network:
    """A mode network, in float or in integers, with what its card says of it."""

    def __init__(self, weights: Path | str, exact: bool) -> None:
        self.model: ModeClassifier | IntegerSketch
        path = weights_path(weights)
        if exact or (path.is_file() and path.stem.endswith(".int16")):
            path, self.model, card = _integers(path)
        else:
            self.model, card = load_mode_network(path)
        self.modes = int(card.options["modes"])
        self.standard = next(name for name, count in MODE_COUNT.items() if count == self.modes)
        self.ctu_size = int(card.get("ctu_size", max(CTU_SIZES[self.standard])))
        if self.model.block_sizes is None:
            raise ModelError(f"{weights} is not a network for blocks of one size: train a mode_sketch")
        ((self.width, self.height),) = self.model.block_sizes
        self.facts = {"sha256": sha256_file(path), "block": f"{self.width}x{self.height}"}


def _integers(weights: Path) -> tuple[Path, IntegerSketch, Card]:
    """The integers of weights, which lie beside them or are the file itself: their file, network and card."""
    if weights.stem.endswith(".int16"):
        return weights, *load_integer_sketch(weights)
    path = weights.with_suffix(".int16.safetensors")
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist: codecnn export --model {weights} --format int16 makes it")
    network, card = load_integer_sketch(path)
    if card.source_sha256 != read_card(weights).sha256:
        raise ModelError(f"{path} was not made from {weights}, or from other weights of that name: export it again")
    return path, network, card


def first_modes(
    model: ModeClassifier | IntegerSketch,
    line: NDArray[np.int32],
    block: NDArray[Any],
    bit_depth: int,
    qp: int,
    top: int,
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """The `top` likeliest modes of n blocks (n, h, w) by their reference lines, likeliest first, and by how much the
    logit of each lies below that of the first, in nats: both (n, top)."""
    if isinstance(model, IntegerSketch):
        order, below = first_of(sketch_logits(model, line, block, bit_depth, qp, _CHUNK), model, top)
        return order.numpy().astype(np.uint8), below.numpy().astype(np.float32)
    count = len(line)
    modes, margins = np.empty((count, top), np.uint8), np.empty((count, top), np.float32)
    told = (torch.full((count,), value) for value in (bit_depth, qp))
    samples = torch.from_numpy(line), torch.from_numpy(block.astype(np.int32))
    with torch.no_grad():
        inputs = model.inputs(*samples, *told)
        for start in range(0, count, _CHUNK):
            part = slice(start, start + _CHUNK)
            best = model(*(tensor[part] for tensor in inputs)).topk(top, dim=1)
            modes[part] = best.indices.numpy()
            margins[part] = (best.values[:, :1] - best.values).numpy()
    return modes, margins


def _rows(picture: Source, network: _Network, top: int, cost: str | None, ctu: int) -> "list[pa.RecordBatch]":
    check_bit_depth(picture.bit_depth)
    height, width = picture.original.shape
    places = block_positions(width, height, network.width, network.height)
    step = _PIECE // (network.width * network.height)
    return [
        _piece(picture, places[start : start + step], network, top, cost, ctu) for start in range(0, len(places), step)
    ]


def _piece(
    picture: Source, where: NDArray[np.int64], network: _Network, top: int, cost: str | None, ctu: int
) -> "pa.RecordBatch":
    size = network.width, network.height
    line = reference_lines(picture.references, where, *size, picture.bit_depth, ctu)
    block = blocks_at(picture.original, where, *size)
    # Networks are told QP 0 where references come from the original, in training as here.
    modes, margins = first_modes(network.model, line, block, picture.bit_depth, picture.qp or 0, top)
    count = len(where)
    columns: list[Any] = [
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [picture.name]),
        *(pa.array(np.full(count, value, np.int32)) for value in (picture.frame, picture.input)),
        pa.repeat(pa.scalar(picture.qp, pa.int32()), count),
        *(pa.array(where[:, axis].astype(np.int32)) for axis in (0, 1)),
        *(pa.array(np.full(count, side, np.uint8)) for side in size),
        pa.FixedSizeListArray.from_arrays(pa.array(modes.ravel()), top),
        pa.FixedSizeListArray.from_arrays(pa.array(margins.ravel()), top),
    ]
    if cost is not None:
        costs = some_costs(line, block, picture.bit_depth, cost, modes, network.standard, picture.qp)
        best = costs.argmin(1)[:, None]
        columns += [pa.array(np.take_along_axis(of, best, 1)[:, 0]) for of in (modes, costs)]
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
