"""The evaluation of filters on a store, in three steps: measure every cell, summarise the cells, write the files.

Data goes one way: units and filters -> `measure.Cell` -> `summarise.Results` -> files.
"""

from collections.abc import Sequence
from pathlib import Path

from codecnn.cluster import WHOLE, Shard
from codecnn.dataset import Store
from codecnn.evaluation._cells import measure_cells, measure_spread
from codecnn.evaluation.measure import Entry, Progress, make_crops
from codecnn.evaluation.picture_types import picture_types
from codecnn.evaluation.summarise import Results, summarise
from codecnn.evaluation.write import write_results
from codecnn.filtering import Decisions


def evaluate(
    entries: Sequence[Entry],
    store: Store,
    split: str,
    output: Path,
    *,
    metrics: Sequence[str] = ("psnr",),
    decisions: Decisions = "none",
    shard: Shard = WHOLE,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> tuple[Results, ...]:
    """Run every filter over every unit of a split, write what came of it into `output`, return each filter's results.

    results.json, results.csv, results.md, jvet.csv, report.html; pictures.csv with a row a picture; ctus.parquet with a
    row a CTU, as `codecnn correlate` reads it; and with decisions statistics/*.vtmbmsstats for YUView. Bits are those
    of the whole bitstream file.

    A cell (sequence, QP, filter) is measured once, and kept in cells/ under all that decides it: an evaluation that was
    interrupted or killed goes on where it was, and another filter costs only its own cells. So several may share them:
    of a `shard` (i, n) every n-th cell is measured here, and whoever finds all of them there writes the results; until
    then nothing is returned. With `scheduler` the workers of that dask scheduler measure.

    Raises ConfigError for an unknown metric or two filters of one name, ModelError for a filter whose card does not
    name its weights, and what `codecnn.cluster.work_through` raises.
    """
    units = store.split(split)
    ctu_size = store.manifest.recipe.ctu_size
    if shard != WHOLE or scheduler is not None:
        if not measure_spread(
            entries,
            units,
            output / "cells",
            metrics,
            decisions,
            ctu_size,
            shard=shard,
            scheduler=scheduler,
            progress=progress,
        ):
            return ()
        progress = None
    cells = measure_cells(entries, units, output / "cells", metrics, decisions, ctu_size, progress)
    crops = make_crops(entries[0], units, decisions, ctu_size)
    types = picture_types(units)
    results = summarise(entries, cells, store, split, decisions, types)
    write_results(output, results, cells, crops, store, types)
    return results
