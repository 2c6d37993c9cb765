"""Search of the best intra mode of every block, and the Parquet table with one row per block."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.files import atomic_path, provenance
from codecnn.vvc.intra import (
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

SCHEMA_VERSION = 2
ROW_GROUP = 1 << 16
"""Rows of a row group, which bounds the memory for writing a table of any length."""
_TASK_SAMPLES = 1 << 17
"""Luma samples of one task of a thread."""
_TIE = 2.0**-16
"""Relative difference below which costs are equal: the rounding error of float32 is less than a tenth of it."""

Array = NDArray[Any]


@dataclass(frozen=True)
class LabelSettings:
    """Blocks to label, costs to use and results to keep.

    Attributes:
        block_sizes: (width, height) of the blocks in luma samples.
        costs: Names of costs: dct, hadamard, sad, sse, rate.
        top: Number of best modes to keep for each cost.
        full: Keep the costs of all modes too.
        standard: "vvc" or "hevc".
        ctu_size: CTU width in luma samples, which determines the available neighbours.

    Raises:
        ConfigError: A value cannot be used.
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
                raise ConfigError(f"give at least one {name}, each once, not {values}")
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
    """Create settings from text, as in the options of the command.

    Args:
        standard: "vvc" or "hevc".
        block_sizes: Text for `parse_block_sizes`; by default all square blocks that the standard predicts.
        cost: Comma-separated names of costs.
        top: Number of best modes to keep for each cost.
        full: Keep the costs of all modes too.
        ctu_size: CTU width in luma samples; by default the largest of the standard.

    Raises:
        ConfigError: A value cannot be used.
    """
    if standard not in SIZES:
        raise ConfigError(f"unknown standard {standard!r}: use one of {', '.join(SIZES)}")
    sizes = tuple((side, side) for side in SIZES[standard]) if block_sizes is None else parse_block_sizes(block_sizes)
    ctu = max(CTU_SIZES[standard]) if ctu_size is None else ctu_size
    return LabelSettings(sizes, tuple(cost.split(",")), top, full, standard, ctu)


def parse_block_sizes(text: str) -> tuple[tuple[int, int], ...]:
    """Parse a comma-separated list of N (square) and WxH, e.g. 4,8,16x8, into (width, height); else ConfigError."""
    sizes = []
    for part in text.split(","):
        sides = part.lower().split("x")
        if len(sides) > 2 or not all(side.isascii() and side.isdigit() for side in sides):
            raise ConfigError(f"block size {part!r} is not a number such as 8, or WxH such as 16x8")
        sizes.append((int(sides[0]), int(sides[-1])))
    return tuple(sizes)


@dataclass(frozen=True, eq=False)
class Source:
    """A picture to label.

    Attributes:
        name: Name in the table.
        frame: Number of the picture in its file.
        original: Luma samples, shape (h, w).
        references: Luma samples that references are taken from, shape (h, w).
        bit_depth: Bits per sample of both.
        qp: QP of the picture that references are taken from; None if it is unknown or the picture was not coded.
        input: Number of its file among the inputs.
    """

    name: str
    frame: int
    original: Array
    references: Array
    bit_depth: int
    qp: int | None = None
    input: int = 0


def rank_modes(costs: Array, top: int, *, exact: bool) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Find the cheapest modes of each block, cheapest first; of equal costs the lower mode comes first.

    Args:
        costs: Costs of shape (n, m).
        top: Number of modes to find.
        exact: Costs are integers. Otherwise costs within 2^-16 of the best one, relatively, count as equal to it, so
            that labels do not depend on the rounding of a machine.

    Returns:
        Modes and their costs, both of shape (n, top).
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
    """Label blocks of one size.

    Args:
        source: The picture.
        positions: x and y of blocks that are completely inside the picture, shape (n, 2).
        width: Block width in samples.
        height: Block height in samples.
        settings: Costs to use and results to keep.
        device: Device of torch; "cpu" uses compiled loops.

    Returns:
        n rows with the columns of `label_schema`.
    """
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
    """Return the columns of the table, which docs/howto/labels.md describes."""
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
    """Label pictures with several threads; rows are in the order of pictures, block sizes and positions.

    The result does not depend on the number of threads. Pictures are read from `sources` only as they are needed.

    Args:
        sources: Pictures.
        settings: Blocks to label, costs to use and results to keep.
        jobs: Number of threads.
        device: Device of torch; "cpu" uses compiled loops.

    Yields:
        A picture, some of its rows, and whether these are its last.

    Raises:
        FormatError: A picture is smaller than all blocks, or differs in size from its references.
        ConfigError: A picture has more than 12 bit, or the cost "rate" has no QP.
    """
    pending: deque[tuple[Source, Future[pa.RecordBatch], bool]] = deque()

    def finished() -> tuple[Source, pa.RecordBatch, bool]:
        source, future, last = pending.popleft()
        return source, future.result(), last

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for source in sources:
                tasks = _tasks(source, settings)
                for number, (positions, width, height) in enumerate(tasks, 1):
                    future = pool.submit(label_positions, source, positions, width, height, settings, device)
                    pending.append((source, future, number == len(tasks)))
                    if len(pending) > 2 * jobs:
                        yield finished()
            while pending:
                yield finished()
        finally:  # after an error or interruption, pending tasks are dropped
            pool.shutdown(wait=False, cancel_futures=True)


def _tasks(source: Source, settings: LabelSettings) -> list[tuple[NDArray[np.int64], int, int]]:
    """Check a picture and divide its blocks into tasks: positions, width and height."""
    check_bit_depth(source.bit_depth)
    if source.qp is None and "rate" in settings.costs:
        raise ConfigError(f"{source.name}: the cost 'rate' needs decoded pictures and their QP, or a store")
    if source.original.shape != source.references.shape:
        sizes = ("x".join(map(str, plane.shape[::-1])) for plane in (source.original, source.references))
        raise FormatError(f"{source.name}: the picture is {' and the decoded one '.join(sizes)}")
    height, width = source.original.shape
    tasks = []
    for w, h in settings.block_sizes:
        positions = block_positions(width, height, w, h)
        step = max(1, _TASK_SAMPLES // (w * h))
        tasks += [(positions[start : start + step], w, h) for start in range(0, len(positions), step)]
    if not tasks:
        raise FormatError(f"{source.name}: no block of the requested sizes fits into {width}x{height} samples")
    return tasks


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
    """Label pictures into a Parquet file, which is complete or absent.

    The metadata of the schema has JSON under "codecnn": `label_facts`, versions and command line.

    Args:
        output: The file; its suffix is .parquet or empty.
        sources: Pictures.
        settings: Blocks to label, costs to use and results to keep.
        total: Number of pictures, for `progress`.
        inputs: Metadata of the input files.
        jobs: Number of threads.
        device: Device of torch; "cpu" uses compiled loops.
        progress: Function called with the numbers of finished and of all pictures after each picture.

    Returns:
        Number of rows.

    Raises:
        ConfigError: The suffix is wrong, or as `label_pictures`.
        FormatError: As `label_pictures`.
    """
    labelled = label_pictures(sources, settings, jobs=jobs, device=device)
    with exact_products(device):
        return write_batches(output, ((batch, last) for _, batch, last in labelled), settings, inputs, total, progress)


def exact_products(device: str) -> AbstractContextManager[None]:
    """Let a GPU multiply float32 with all bits within the context; the CPU uses no PyTorch for labels."""
    if device == "cpu":
        return nullcontext()
    from codecnn.base.runtime import float32_products

    return float32_products()


def label_facts(settings: LabelSettings, inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the metadata of a table as JSON values: schema version, settings, and metadata of the input files."""
    facts = {"labels": SCHEMA_VERSION, "settings": asdict(settings), "inputs": list(inputs)}
    return dict(json.loads(json.dumps(facts)))


def check_output(output: Path | str) -> None:
    """Raise ConfigError if the suffix is not that of a Parquet table."""
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
    """Write rows of labels as `write_labels`; the bytes of the file depend on how the rows are divided into batches.

    Args:
        output: The file; its suffix is .parquet or empty.
        batches: Rows, and whether they are the last of a picture.
        settings: Settings that the rows were labelled with.
        inputs: Metadata of the input files.
        total: Number of pictures, for `progress`.
        progress: Function called with the numbers of finished and of all pictures (0 if unknown) after each picture.

    Returns:
        Number of rows.
    """
    schema = label_schema(settings).with_metadata({"codecnn": json.dumps(provenance(label_facts(settings, inputs)))})
    rows, done = 0, 0
    pending: list[pa.RecordBatch] = []
    check_output(output)
    with atomic_path(output) as part, pq.ParquetWriter(part, schema) as writer:
        for batch, last in batches:
            pending.append(batch)
            rows += len(batch)
            if sum(map(len, pending)) >= ROW_GROUP:
                pending = _write(writer, schema, pending, partial=False)
            done += last
            if last and progress:
                progress(done, total or 0)
        _write(writer, schema, pending, partial=True)
    return rows


def _write(writer: Any, schema: pa.Schema, batches: list[pa.RecordBatch], *, partial: bool) -> list[pa.RecordBatch]:
    """Write full row groups, and if `partial` the remaining rows as one; return the rows that are not written."""
    table = pa.Table.from_batches([batch.replace_schema_metadata(schema.metadata) for batch in batches], schema)
    table = table.unify_dictionaries()
    size = len(table) if partial else len(table) - len(table) % ROW_GROUP
    if size:
        writer.write_table(table.slice(0, size), row_group_size=ROW_GROUP)
    return [batch.replace_schema_metadata(None) for batch in table.slice(size).to_batches()]
