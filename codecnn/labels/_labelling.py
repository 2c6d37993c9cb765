"""Labels from paths: pictures or a store in, the table of the best intra modes out."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from codecnn.cluster import WHOLE, Shard
from codecnn.dataset import is_store, open_store
from codecnn.errors import ConfigError
from codecnn.labels._parts import write_labels_by_parts
from codecnn.labels.sources import SPLITS, Input, file_inputs, read_inputs, store_inputs
from codecnn.labels.table import LabelSettings, label_settings, write_labels


class Labels(NamedTuple):
    """What was labelled: pictures, and blocks of all sizes; `table` has a row a block, None where it was written.

    `complete` is False, and there is no table yet, where other shards have pictures to label.
    """

    pictures: int
    blocks: int
    table: pa.Table | None = None
    complete: bool = True


def label_blocks(
    source: Path | str,
    output: Path | str | None = None,
    *,
    settings: LabelSettings | None = None,
    decoded: Path | str | None = None,
    qp: int | None = None,
    splits: Sequence[str] | None = None,
    jobs: int = 2,
    device: str = "cpu",
    shard: Shard = WHOLE,
    scheduler: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Labels:
    """The best intra mode of every block of pictures, by SATD or true DCT cost: a table, or written to `output`.

    `source` is a video, a still, a folder of stills, or a store, of which every picture of `splits` (train and val) is
    labelled at every QP. Blocks are predicted from the originals, or where `decoded` has the same pictures decoded, at
    `qp`, from those; in a store always from the decoded ones. `settings` say which blocks and costs (all squares of
    VVC, by DCT; see `label_settings`), `options` are those of `open_video`. The result does not depend on `jobs`
    threads; on a `device` other than "cpu" torch computes. `progress` is told (pictures done, all). docs/labels.md
    has the columns.

    Of a `shard` (i, n) every n-th file or unit is labelled here, and the last to end writes the table, the same as one
    machine would; with `scheduler` the workers of that dask scheduler label. `progress` then counts files.

    Raises ConfigError for what cannot be used, MissingFileError, FormatError or StoreError for what cannot be read, and
    what `codecnn.cluster.work_through` raises.
    """
    inputs = open_inputs(Path(source), None if decoded is None else Path(decoded), qp, splits, options)
    pictures = sum(entry.count for entry in inputs)
    if shard != WHOLE or scheduler is not None:
        if output is None:
            raise ConfigError("labels by several machines need an output, which all of them see")
        how: dict[str, Any] = {"shard": shard, "scheduler": scheduler, "jobs": jobs, "device": device}
        rows = write_labels_by_parts(Path(output), inputs, settings or label_settings(), **how, progress=progress)
        return Labels(pictures, rows or 0, complete=rows is not None)
    told: dict[str, Any] = {"total": pictures, "inputs": [entry.facts() for entry in inputs], "progress": progress}
    with tempfile.TemporaryDirectory(prefix="codecnn-") as folder:
        path = Path(folder) / "labels.parquet" if output is None else output
        blocks = write_labels(path, read_inputs(inputs), settings or label_settings(), jobs=jobs, device=device, **told)
        return Labels(pictures, blocks, pq.read_table(path) if output is None else None)


def open_inputs(
    source: Path, decoded: Path | None, qp: int | None, splits: Sequence[str] | None, options: dict[str, Any]
) -> list[Input]:
    """The inputs that a path stands for, see `label_blocks`; ConfigError for what does not go together."""
    if not is_store(source):
        if splits:
            raise ConfigError(f"{source} is no store: it has no split {','.join(splits)!r}")
        return file_inputs(source, decoded, qp=qp, **options)
    told = {name for name, value in {"decoded": decoded, "qp": qp, **options}.items() if value is not None}
    if told:
        raise ConfigError(f"{source} is a store, which tells {', '.join(sorted(told))} itself")
    return store_inputs(open_store(source), splits or SPLITS)
