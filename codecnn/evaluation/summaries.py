"""Summaries of the cells of an evaluation: gains by QP, BD-rates, the device of the timing, and notes.

This module reads and writes no files.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from codecnn.base.files import provenance
from codecnn.dataset import Store, StoredRecipe, codecs
from codecnn.evaluation.entries import Entry
from codecnn.evaluation.groups import by_picture_type, class_means
from codecnn.evaluation.measure import UNKNOWN_DEVICE, Cell
from codecnn.evaluation.rates import Rates, bd_rates, gains_by_plane, mean_rates
from codecnn.evaluation.results import EXCLUDED_CLASSES, Loss, Results, ResultsList
from codecnn.evaluation.rows import ResultRow, by_sequence, make_row
from codecnn.evaluation.training_range import untrained_coding, untrained_qp
from codecnn.models import Card
from codecnn.pictures.metrics import peak_value

SETTINGS = ("preset", "configuration", "ctc", "loop_filters", "ctu_size", "internal_bit_depth", "params", "qp")
"""Keys of the recipe that the results repeat."""

MIXED = "mixed"
"""Device of results whose cells were timed on different devices."""


def summarise(
    entries: Sequence[Entry],
    cells: Sequence[Cell],
    store: Store,
    split: str,
    decisions: str = "none",
    types: Mapping[str, Sequence[str]] | None = None,
) -> ResultsList:
    """Summarise the cells of each filter.

    Args:
        entries: The filters.
        cells: Cells of all filters.
        store: The store of the units.
        split: Split of the units, e.g. "test".
        decisions: "none", "ctu" or "full".
        types: Types of the pictures, as returned by `picture_types`.

    Returns:
        Results in the order of `entries`. Integers whose float filter is also there state their loss against it.
    """
    all_results = []
    mixed = _mixed_arithmetic(entries)
    for entry in entries:
        entry_cells = [cell for cell in cells if cell.model == entry.name]
        rows = [make_row(cell.unit, cell.decoded, cell.filtered) for cell in entry_cells]
        device, threads, notes = timing_of([(cell.device, cell.threads) for cell in entry_cells])
        if entry.not_kept is not None:
            notes.append(f"{entry.name} was measured anew, and is each time: {entry.not_kept}")
        results = summarise_rows(rows, entry.card, store, split, entry.name, decisions, device, threads)
        notes = [*results.notes, *notes, *mixed]
        update: dict[str, Any] = {}
        if entry_cells and all(cell.runtime == entry_cells[0].runtime for cell in entry_cells):
            update["runtime"] = entry_cells[0].runtime
        if type_figures := by_picture_type(entry_cells, types or {}, notes):
            update["picture_types"] = type_figures
        update["notes"] = tuple(notes)
        all_results.append(results.model_copy(update=update))
    by_weights = {results.weights_sha256: results for results in all_results}
    float_results = [by_weights.get(entry.card.source_sha256 or "") for entry in entries]
    return ResultsList(
        results if plain is None else _with_loss(results, plain)
        for results, plain in zip(all_results, float_results, strict=True)
    )


def _mixed_arithmetic(entries: Sequence[Entry]) -> list[str]:
    """Return a note with the filters of each arithmetic, if not all are computed in the same."""
    names: dict[str, list[str]] = {}
    for entry in entries:
        if entry.runtime is not None:
            names.setdefault(entry.runtime.precision.replace("integer", "integers"), []).append(entry.name)
    listed = "; in ".join(f"{precision}: {', '.join(group)}" for precision, group in names.items())
    return [f"not all filters are computed in the same arithmetic: in {listed}"] if len(names) > 1 else []


def timing_of(timings: Sequence[tuple[str, int | None]]) -> tuple[str, int | None, list[str]]:
    """Determine on what device the filter of some cells was timed.

    Args:
        timings: Device and number of threads of each cell.

    Returns:
        Device, "mixed" if the cells differ; number of threads, None if the cells differ or none states it; and a note
        that lists devices and threads if the cells differ.
    """
    devices = {device for device, _ in timings}
    threads = {count for _, count in timings if count is not None}
    if len(devices) <= 1 and len(threads) <= 1:
        return next(iter(devices), UNKNOWN_DEVICE), next(iter(threads), None), []
    counts = Counter(timings)
    listed = [
        f"{device} ({'' if number is None else f'PyTorch threads: {number}; '}cells: {count})"
        for (device, number), count in sorted(counts.items(), key=lambda item: (item[0][0], item[0][1] or 0))
    ]
    return MIXED, None, [f"the filter was timed on different devices or thread counts: {', '.join(listed)}"]


def summarise_rows(
    rows: Sequence[ResultRow],
    card: Card,
    store: Store,
    split: str,
    name: str | None = None,
    decisions: str = "none",
    device: str = "cpu",
    threads: int | None = None,
) -> Results:
    """Summarise the rows of one filter.

    Args:
        rows: Rows of the filter, one a unit.
        card: Card of the weights.
        store: The store of the units.
        split: Split of the units, e.g. "test".
        name: Name of the filter; None takes the name of the network.
        decisions: "none", "ctu" or "full".
        device: Device on which the filter was timed.
        threads: Number of CPU threads of the timing, None if unknown.

    Returns:
        The results.
    """
    notes = [note for qp in _network_qps(rows, store) if (note := untrained_qp(card, qp))]
    notes += untrained_coding(card, store.manifest.recipe, codecs(store, split))
    if not store.manifest.recipe.check:
        notes.append("it was not checked that the supplied pictures can come from their originals (check: false)")
    by_name = by_sequence(rows)
    rates = {name: bd_rates(group, notes) for name, group in by_name.items()}
    classes = {name: group[0].class_ for name, group in by_name.items()}
    recipe = store.manifest.recipe
    depth = recipe.internal_bit_depth
    optional: dict[str, Any] = {}
    counted = [name for name, label in classes.items() if label not in EXCLUDED_CLASSES[recipe.configuration]]
    # If a sequence has no class, it is unknown whether JVET's mean includes it.
    if all(classes.values()) and counted:
        optional["bd_rate_jvet"] = mean_rates(rates[name] for name in counted)
    per_cell = {name: [gain for row in group if (gain := row.gain()) is not None] for name, group in by_name.items()}
    if (means := class_means(classes, rates, per_cell, notes)) is not None:
        optional["over_classes"] = means
    if decisions != "none":
        optional["gain_db_network"] = gains_by_plane(rows, network=True)
        network_rates = (bd_rates(group, [], network=True) for group in by_name.values())
        optional["bd_rate_network"] = mean_rates(network_rates)
    return Results(
        schema=2,
        model=card.network,
        name=name or card.network,
        weights_sha256=card.sha256,
        kmac_per_pixel=card.kmac_per_pixel,
        parameters=card.parameters,
        codec=" and ".join(codecs(store, split)),
        encoder=store.manifest.encoder,
        settings=_settings(recipe),
        label=gain_label(recipe),
        decisions=decisions,
        device=device,
        threads=threads,
        psnr_peak={"jvet": peak_value(depth), "full": peak_value(depth, "full"), "used": "jvet"},
        split=split,
        trained_on_this_data=card.data_key == store.data_key and split == "train",
        sequences=tuple(rows),
        gain_db=gains_by_plane(rows),
        bd_rate=mean_rates(rates.values()),
        bd_rate_by_class={
            label: mean_rates(rates[name] for name in classes if classes[name] == label)
            for label in sorted({label for label in classes.values() if label is not None})
        },
        bd_rate_per_sequence=rates,
        bd_rate_akima=mean_rates(bd_rates(group, [], method="akima") for group in by_name.values()),
        notes=tuple(sorted(set(notes))),
        provenance=provenance({"data_key": store.data_key}),
        **optional,
    )


def _network_qps(rows: Sequence[ResultRow], store: Store) -> set[int]:
    """Return the QPs that networks take for the units of rows: by the rule for streams, else those of the units.

    At a bit rate a unit has no QP, so those of its pictures count.
    """
    names = {(row.name, row.qp) for row in rows}
    units = [unit for unit in store.units if (unit.name, unit.qp) in names]
    pictures = [picture for unit in units for picture in unit.pictures]
    if any(unit.rate == "kbps" for unit in units):
        return {picture.qp_for_networks for picture in pictures}
    by_rule = {picture.network_qp for picture in pictures if picture.network_qp is not None}
    return by_rule or {row.qp for row in rows}


def _settings(recipe: StoredRecipe) -> dict[str, Any]:
    """Return the settings that results repeat: those of the encoder, and those of supplied pictures if not defaults."""
    values = recipe.model_dump(include=set(SETTINGS))
    settings = {name: values[name] for name in SETTINGS}
    if recipe.rate_option is not None:
        settings["rate"] = recipe.rate_option
    if recipe.qp_scale is not None:
        settings["qp_scale"] = recipe.qp_scale.to_json()
    return settings if recipe.check else settings | {"check": False}


def _with_loss(results: Results, plain: Results) -> Results:
    """Add to the results of an integer filter its loss against the float filter that it was made from."""
    db = {
        plane: {qp: plain.gain_db[plane][qp] - gain for qp, gain in gains.items()}
        for plane, gains in results.gain_db.items()
    }
    rates: Rates = {}
    for name, rate in results.bd_rate.items():
        anchor = plain.bd_rate[name]
        rates[name] = None if rate is None or anchor is None else rate - anchor
    update: dict[str, Any] = {"loss_to_float": Loss(name=plain.name, db=db, bd_rate=rates)}
    if "y" in db:
        points = "no BD-rate" if rates["y"] is None else f"BD-rate Y {rates['y']:+.3f} points"
        note = f"difference of the integer filter to {plain.name} in float: PSNR Y {-db['y']['mean']:+.4f} dB, {points}"
        update["notes"] = (*results.notes, note)
    return results.model_copy(update=update)


def joint_notes(all_results: Sequence[Results]) -> list[str]:
    """Return the notes of several filters, each once; one that does not concern all of them names those it concerns."""
    concerned: dict[str, list[str]] = {}
    for results in all_results:
        for note in results.notes:
            concerned.setdefault(note, []).append(results.title)
    return [
        note if len(titles) == len(all_results) else f"{', '.join(titles)}: {note}"
        for note, titles in concerned.items()
    ]


def gain_label(recipe: StoredRecipe) -> str:
    """Describe what the gain of a filter means for pictures coded by a recipe.

    In all intra, pictures are predicted from unfiltered samples of the same picture, so filtering afterwards gives the
    same result as filtering in the loop.
    """
    if recipe.configuration == "ai":
        return "in-loop (all intra: no picture is predicted from a filtered picture)"
    if recipe.in_loop is not None:
        weights = recipe.in_loop.weights
        return f"measured on the reconstruction before the in-loop filter (coded with {weights} in the loop)"
    return "post-filter (pictures are predicted from unfiltered pictures)"
