"""Tables of evaluations in the loop, in the layout of JVET's sheets."""

from collections.abc import Sequence
from typing import Any

from codecnn.evaluation import (
    CONFIGURATIONS,
    PLANES,
    Quality,
    ResultRow,
    Table,
    TableRow,
    bd_rates,
    by_sequence,
    changed_rows,
    mean_rates,
    missing_figures,
    table_row,
)
from codecnn.pictures.metrics import psnr_yuv_611
from codecnn.signalling.in_loop.results import LoopResults, LoopRow

LOOP_CHAINS = {"post_filter": "post-filter, of the library's encoder", "in_loop": "in the loop"}
"""Chains of an evaluation in the loop that become a table each, with the label of the table."""


def loop_tables(content: dict[str, Any]) -> tuple[Table, ...]:
    """Return the tables of an evaluation in the loop, one for each filter and chain.

    Args:
        content: Content of in_loop.json.

    Raises:
        pydantic.ValidationError: The content is not that of an evaluation in the loop.
    """
    results = LoopResults.model_validate(content)
    return tuple(_loop_table(results, model, chain) for model in results.bd_rate for chain in LOOP_CHAINS)


def _loop_table(results: LoopResults, model: str, chain: str) -> Table:
    facts = results.models[model]
    points = _loop_points([row for row in results.rows if row.model == model], chain)
    notes: list[str] = []
    rows = changed_rows(_loop_rows(points, notes), points)
    return Table(
        weights=facts.weights_sha256,
        name=model,
        configuration="ldb",
        title=CONFIGURATIONS["ldb"],
        coded=f"{results.library} {results.settings['preset']}",
        label=LOOP_CHAINS[chain],
        decisions=results.decisions,
        kmac_per_pixel=facts.kmac_per_pixel,
        parameters=facts.parameters,
        device=facts.device or None,
        rows=rows,
        points=points,
        notes=(*notes, *missing_figures(points)),
    )


def _loop_points(rows: Sequence[LoopRow], chain: str) -> tuple[ResultRow, ...]:
    """Return the RD points of a chain against those of the encoder without the filter."""
    without = {(row.name, row.qp): row for row in rows if row.chain == "without"}
    # A file does not tell a plane that is missing from one that has no error in any picture.
    known = {(row.name, plane) for row in rows for plane, value in row.psnr.items() if value is not None}
    return tuple(
        _as_result_row(without[row.name, row.qp], row, [plane for plane in PLANES if (row.name, plane) in known])
        for row in rows
        if row.chain == chain
    )


def _loop_rows(points: Sequence[ResultRow], notes: list[str]) -> list[TableRow]:
    groups = by_sequence(points)
    rates = {name: bd_rates(group, notes) for name, group in groups.items()}
    lines = [table_row("overall", "All sequences", mean_rates(rates.values()), points)]
    return lines + [table_row("sequence", name, rates[name], group) for name, group in groups.items()]


def _as_result_row(anchor: LoopRow, test: LoopRow, planes: Sequence[str]) -> ResultRow:
    """Convert rows of an evaluation in the loop; bits that the loop adds or saves count as bits of decisions."""
    facts: dict[str, Any] = {"name": test.name, "qp": test.qp, "bits": anchor.bits, "pictures": test.pictures}
    facts |= {"flag_bits": test.bits + test.message_bits - anchor.bits, "seconds_per_picture": test.seconds_per_picture}
    facts["encoder_seconds_per_picture"] = test.encoder_seconds_per_picture
    return ResultRow(**facts, before=_quality(anchor, planes), after=_quality(test, planes))


def _quality(row: LoopRow, planes: Sequence[str]) -> Quality:
    """Return the PSNRs of a row for some planes."""
    psnr = {plane: row.psnr.get(plane) for plane in planes}
    if len(psnr) == len(PLANES):
        y, u, v = psnr.values()
        # The combination is linear, so that of the mean PSNRs equals the mean over the pictures.
        psnr["yuv_611"] = None if y is None or u is None or v is None else psnr_yuv_611(y, u, v)
    return Quality(psnr=psnr)
