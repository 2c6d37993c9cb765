"""The best intra mode of every block of pictures, as a Parquet table of one row a block."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from codecnn.errors import ConfigError, FormatError
from codecnn.intra import (
    CTU_SIZES,
    INTEGER_COSTS,
    MODE_COUNT,
    SIZES,
    block_costs,
    block_positions,
    blocks_at,
    check_bit_depth,
    check_block,
    check_cost,
    reference_lines,
)
from codecnn.runs import atomic_path, provenance

SCHEMA_VERSION = 2
ROW_GROUP = 1 << 16
"""Rows of a row group: all that writing a table keeps in memory, whatever the length of a clip."""
_TASK_SAMPLES = 1 << 17
"""Luma samples of one piece of work."""
_TIE = 2.0**-16
"""DCT costs closer than this part of the best one are equal: float32 errs by less than a tenth of it."""

Array = NDArray[Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LabelSettings:
    """What is labelled and how; raises ConfigError for a value that cannot be used.

    `block_sizes` are (width, height); `costs` names of `cost.COSTS`; the `top` best modes of each are kept; `full`
    keeps the costs of all modes as well. `ctu_size` decides which neighbours are available.
    """

    block_sizes: tuple[tuple[int, int], ...] = ((4, 4), (8, 8), (16, 16), (32, 32), (64, 64))
    costs: tuple[str, ...] = ("dct",)
    top: int = 3
    full: bool = False
    standard: str = "vvc"
    ctu_size: int = 128

    def __post_init__(self) -> None:
        for name, values in (("block size", self.block_sizes), ("cost", self.costs)):
            if not values or len(set(values)) < len(values):
                raise ConfigError(f"{name}s are given once each, and one at least, not {values}")
        for width, height in self.block_sizes:
            check_block(width, height, self.standard)
            if max(width, height) > self.ctu_size:
                raise ConfigError(f"blocks of {width}x{height} do not fit into CTUs of {self.ctu_size}")
        for cost in self.costs:
            check_cost(cost)
        if not 1 <= self.top <= MODE_COUNT[self.standard]:
            raise ConfigError(f"top {self.top} is not in 1 to {MODE_COUNT[self.standard]}")
        sizes = CTU_SIZES[self.standard]
        if self.ctu_size not in sizes:
            raise ConfigError(f"CTU size {self.ctu_size} is not one of {self.standard}'s {', '.join(map(str, sizes))}")


def label_settings(
    standard: str = "vvc",
    block_sizes: str | None = None,
    cost: str = "dct",
    top: int = 3,
    full: bool = False,
    ctu_size: int | None = None,
) -> LabelSettings:
    """Settings from words: sizes as in `parse_block_sizes`, costs as a comma list.

    Left out, the sizes are all squares that the standard predicts, and the CTU its largest. Raises ConfigError.
    """
    if standard not in SIZES:
        raise ConfigError(f"unknown standard {standard!r}: one of {', '.join(SIZES)}")
    sizes = tuple((side, side) for side in SIZES[standard]) if block_sizes is None else parse_block_sizes(block_sizes)
    ctu = max(CTU_SIZES[standard]) if ctu_size is None else ctu_size
    return LabelSettings(sizes, tuple(cost.split(",")), top, full, standard, ctu)


def parse_block_sizes(text: str) -> tuple[tuple[int, int], ...]:
    """(width, height) of a comma list of squares' sides and of WxH, such as 4,8,16x8; ConfigError for another text."""
    sizes = []
    for part in text.split(","):
        sides = part.lower().split("x")
        if len(sides) > 2 or not all(side.isascii() and side.isdigit() for side in sides):
            raise ConfigError(f"block size {part!r} is not a number such as 8, or WxH such as 16x8")
        sizes.append((int(sides[0]), int(sides[-1])))
    return tuple(sizes)


@dataclass(frozen=True, eq=False)
class Source:
    """One picture to label: luma (h, w) of `bit_depth`, and the luma that its references are taken from.

    `qp` is that of the picture that the references come from, None where it is not known or nothing was coded; `input`
    is the number of its file among the inputs.
    """

    name: str
    frame: int
    original: Array
    references: Array
    bit_depth: int
    qp: int | None = None
    input: int = 0


def rank_modes(costs: Array, top: int, *, exact: bool) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """The `top` cheapest modes of each row of costs (n, m), cheapest first, and their costs: both (n, top).

    Of equal costs the lower mode comes first. Unless costs are `exact`, those within 2^-16 of the best count as equal
    to it, so that a label does not hang on how a machine rounds.
    """
    ranked = costs.astype(np.float64)
    if not exact:
        best = ranked.min(1, keepdims=True)
        np.divide(ranked, best, out=ranked, where=best > 0)
        ranked = np.rint((ranked - (best > 0)) / (2 * _TIE))
    rows = np.arange(len(costs))
    modes, values = np.empty((len(costs), top), np.uint8), np.empty((len(costs), top))
    for place in range(top):
        modes[:, place] = ranked.argmin(1)
        values[:, place] = costs[rows, modes[:, place]]
        ranked[rows, modes[:, place]] = np.inf
    return modes, values


def label_positions(
    source: Source, positions: NDArray[np.int64], width: int, height: int, settings: LabelSettings, device: str = "cpu"
) -> pa.RecordBatch:
    """Label the blocks of `width` x `height` at `positions` (n, 2), which lie wholly inside the picture: a row each."""
    depth, standard = source.bit_depth, settings.standard
    lines = reference_lines(source.references, positions, width, height, depth, settings.ctu_size)
    original = blocks_at(source.original, positions, width, height)
    count = len(positions)
    columns: list[Any] = [
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [source.name]),
        pa.array(np.full(count, source.frame, np.int32)),
        pa.array(np.full(count, source.input, np.int32)),
        pa.repeat(pa.scalar(source.qp, pa.int32()), count),
        pa.array(positions[:, 0].astype(np.int32)),
        pa.array(positions[:, 1].astype(np.int32)),
        pa.array(np.full(count, width, np.uint8)),
        pa.array(np.full(count, height, np.uint8)),
    ]
    for cost in settings.costs:
        costs = block_costs(lines, original, depth, cost, standard, device, source.qp)
        modes, values = rank_modes(costs, max(2, settings.top), exact=cost in INTEGER_COSTS)
        columns += [
            pa.array(modes[:, 0]),
            pa.array(values[:, 0]),
            pa.array(np.maximum(values[:, 1] - values[:, 0], 0)),
            pa.FixedSizeListArray.from_arrays(pa.array(modes[:, : settings.top].ravel()), settings.top),
        ]
        if settings.full:
            flat = pa.array(costs.astype(np.float32).ravel())
            columns.append(pa.FixedSizeListArray.from_arrays(flat, costs.shape[1]))
    return pa.record_batch(columns, schema=label_schema(settings))


def label_schema(settings: LabelSettings) -> pa.Schema:
    """Columns of the table; docs/labels.md says what they hold."""
    fields = [
        ("picture", pa.dictionary(pa.int32(), pa.string())),
        *((name, pa.int32()) for name in ("frame", "input", "qp", "x", "y")),
        ("w", pa.uint8()),
        ("h", pa.uint8()),
    ]
    for cost in settings.costs:
        fields += [
            (f"mode_{cost}", pa.uint8()),
            (f"cost_{cost}", pa.float64()),
            (f"margin_{cost}", pa.float64()),
            (f"top_{cost}", pa.list_(pa.uint8(), settings.top)),
        ]
        if settings.full:
            fields.append((f"costs_{cost}", pa.list_(pa.float32(), MODE_COUNT[settings.standard])))
    return pa.schema(fields)


def label_pictures(
    sources: Iterable[Source], settings: LabelSettings, *, jobs: int = 1, device: str = "cpu"
) -> Iterator[tuple[Source, pa.RecordBatch, bool]]:
    """Label pictures, `jobs` pieces of work at a time: rows in the order of pictures, sizes and positions.

    Yields (picture, rows, whether they are the picture's last). The result does not depend on `jobs`. Pictures are
    taken from `sources` when there is room for them. Raises FormatError for a picture smaller than every block,
    ConfigError for one of more than 12 bit.
    """
    pending: deque[tuple[Source, Future[pa.RecordBatch], bool]] = deque()

    def finished() -> tuple[Source, pa.RecordBatch, bool]:
        source, future, last = pending.popleft()
        return source, future.result(), last

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for source in sources:
                pieces = _pieces(source, settings)
                for number, (positions, width, height) in enumerate(pieces, 1):
                    future = pool.submit(label_positions, source, positions, width, height, settings, device)
                    pending.append((source, future, number == len(pieces)))
                    if len(pending) > 2 * jobs:
                        yield finished()
            while pending:
                yield finished()
        finally:  # an error or an interruption does not wait for work that nobody takes
            pool.shutdown(wait=False, cancel_futures=True)


def _pieces(source: Source, settings: LabelSettings) -> list[tuple[NDArray[np.int64], int, int]]:
    check_bit_depth(source.bit_depth)
    if source.qp is None and "rate" in settings.costs:
        raise ConfigError(f"{source.name}: the cost 'rate' needs decoded pictures and their QP, or a store")
    if source.original.shape != source.references.shape:
        sizes = ("x".join(map(str, plane.shape[::-1])) for plane in (source.original, source.references))
        raise FormatError(f"{source.name}: the picture is {' and the decoded one '.join(sizes)}")
    height, width = source.original.shape
    pieces = []
    for w, h in settings.block_sizes:
        positions = block_positions(width, height, w, h)
        step = max(1, _TASK_SAMPLES // (w * h))
        pieces += [(positions[start : start + step], w, h) for start in range(0, len(positions), step)]
    if not pieces:
        raise FormatError(f"{source.name}: no block of the sizes asked for fits into {width}x{height} samples")
    return pieces


def write_labels(
    output: Path | str,
    sources: Iterable[Source],
    settings: LabelSettings,
    *,
    total: int | None = None,
    inputs: Sequence[dict[str, Any]] = (),
    jobs: int = 1,
    device: str = "cpu",
    progress: Progress | None = None,
) -> int:
    """Label pictures into the Parquet file `output`, whole or absent, in row groups of 65,536 rows; returns the rows.

    The schema's metadata has JSON under "codecnn": `label_facts` with `inputs` (what the caller says of its files),
    versions and command line. `progress` is told (pictures done, `total`) after each picture.
    """
    made = label_pictures(sources, settings, jobs=jobs, device=device)
    return write_batches(output, ((batch, last) for _, batch, last in made), settings, inputs, total, progress)


def label_facts(settings: LabelSettings, inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a table says of itself, as JSON has it: schema version, settings, and what the caller says of its files."""
    facts = {"labels": SCHEMA_VERSION, "settings": asdict(settings), "inputs": list(inputs)}
    return dict(json.loads(json.dumps(facts)))


def check_output(output: Path | str) -> None:
    """Raise ConfigError for a name that is not one of a Parquet table."""
    if Path(output).suffix not in ("", ".parquet"):
        raise ConfigError(f"{output}: labels are a Parquet table: end its name in .parquet")


def write_batches(
    output: Path | str,
    batches: Iterable[tuple[pa.RecordBatch, bool]],
    settings: LabelSettings,
    inputs: Sequence[dict[str, Any]],
    total: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Write rows of labels, each batch with whether it is its picture's last, as `write_labels`; returns the rows.

    The bytes of the file depend on how the rows are cut into batches.
    """
    schema = label_schema(settings).with_metadata({"codecnn": json.dumps(provenance(label_facts(settings, inputs)))})
    rows, done = 0, 0
    gathered: list[pa.RecordBatch] = []
    check_output(output)
    with atomic_path(output) as part, pq.ParquetWriter(part, schema) as writer:
        for batch, last in batches:
            gathered.append(batch)
            rows += len(batch)
            if sum(map(len, gathered)) >= ROW_GROUP:
                gathered = _write(writer, schema, gathered, whole=False)
            done += last
            if last and progress:
                progress(done, total or done)
        _write(writer, schema, gathered, whole=True)
    return rows


def _write(writer: Any, schema: pa.Schema, batches: list[pa.RecordBatch], *, whole: bool) -> list[pa.RecordBatch]:
    """Write full row groups, and with `whole` the rest; returns what is left."""
    table = pa.Table.from_batches([batch.replace_schema_metadata(schema.metadata) for batch in batches], schema)
    table = table.unify_dictionaries()
    size = len(table) if whole else len(table) - len(table) % ROW_GROUP
    if size:
        writer.write_table(table.slice(0, size), row_group_size=ROW_GROUP)
    return [batch.replace_schema_metadata(None) for batch in table.slice(size).to_batches()]
