"""The evaluation report: one HTML page without external files that works offline, prints, and adapts to dark mode."""

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import pyarrow.parquet as pq

from codecnn.base.errors import TableError
from codecnn.base.files import write_text
from codecnn.codec import UNKNOWN_PRESET
from codecnn.evaluation.crops import Crop, shown_units
from codecnn.evaluation.figures import (
    CHANGE_GAIN,
    ERROR_GAIN,
    crop_pictures,
    picture_figure,
    rate_figure,
    shade,
)
from codecnn.evaluation.measure import Cell
from codecnn.evaluation.rates import Gains, Rates
from codecnn.evaluation.results import Results
from codecnn.evaluation.rows import PERCEPTUAL, PLANES, QUALITIES, ResultRow
from codecnn.evaluation.summaries import joint_notes
from codecnn.evaluation.training_range import CONFIGURATION_NAMES

MAX_MAPS = 6
"""Largest number of sequences of which the page shows a CTU map."""

MAP_RANGE = 0.3
"""Gain of a CTU in dB at which its colour is fully saturated."""

_TITLES = {name: name.upper() for name in QUALITIES} | {
    "yuv_611": "YUV 6:1:1",
    "yuv_mse": "YUV MSE",
    "ms_ssim": "MS-SSIM",
    "vmaf_neg": "VMAF NEG",
}
_FOOTER = {"weights_sha256", "encoder", "psnr_peak", "split", "loss_to_float"}
"""Fields of the results that only the footer of the page shows."""

_FOOTER_TITLES = {"weights_sha256": "SHA-256 of the weights", "loss_to_float": "loss to float", "argv": "command"}
"""Titles of the fields in the footer that differ from their names."""


def write_report(
    path: Path | str, all_results: Sequence[Results], crops: Sequence[Crop], cells: Sequence[Cell]
) -> None:
    """Write report.html: headline, BD-rates in JVET's layout, gains, RD curves, crops and CTU maps.

    The page contains one script, which moves the sliders and switches between filters; its content security policy
    forbids everything else.

    Args:
        path: File to write.
        all_results: Results of each filter; figures that are None are left blank.
        crops: Crops to show; a switch selects the filter if there are several.
        cells: Cells for the plots by picture and the CTU maps.

    Raises:
        TableError: The results contain no sequence.
    """
    if not all(results.sequences for results in all_results):
        raise TableError("the results contain no sequence to report on: evaluate at least one")
    script = _resource("report.js")
    titles = [results.title for results in all_results]
    names = list(dict.fromkeys(row.name for results in all_results for row in results.sequences))
    by_name = {
        name: {results.title: [row for row in results.sequences if row.name == name] for results in all_results}
        for name in names
    }
    page = render(
        "report.html.j2",
        models=all_results,
        titles=_TITLES,
        curves=[(name, figure) for name, rows in by_name.items() if (figure := rate_figure(rows))],
        pictures=_picture_curves(cells),
        crops=_crop_groups(crops, titles),
        maps=_maps(cells, titles),
        dashes=_has_dashes(all_results),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        error_gain=ERROR_GAIN,
        change_gain=CHANGE_GAIN,
        map_range=MAP_RANGE,
        notes=joint_notes(all_results),
        footer=_footer(all_results),
    )
    write_text(path, page)


def render(template: str, **values: Any) -> str:
    """Render a template of this package; values are escaped unless the template marks them as safe.

    Args:
        template: File name in templates/.
        **values: Variables of the template.

    Returns:
        The HTML page.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"signed": _signed, "plain": _plain, "text": _text, "ratio": _ratio, "settings": _settings}
    environment.filters |= {"gain_tables": _gain_tables, "measurements": _measurements, "columns": _columns}
    return environment.from_string(_resource(template)).render(style=_resource("report.css"), **values)


@cache
def _resource(name: str) -> str:
    return resources.files("codecnn.evaluation").joinpath("templates", name).read_text(encoding="utf-8")


def _columns(rates: Rates) -> list[str]:
    """Choose the columns of a BD-rate table: the planes, and the other quality measures that are known."""
    return [name for name in _TITLES if name in PLANES or rates.get(name) is not None]


def _gain_tables(results: Results) -> list[tuple[str, list[tuple[str, Gains]]]]:
    """List the gains of each plane by sequence, with their mean, except for planes that the filter does not change."""
    return [
        (plane, [*results.sequence_gains(plane).items(), ("Mean", results.gain_db.get(plane, {}))])
        for plane in PLANES
        if any(row.gain(plane) for row in results.sequences)
    ]


def _measurements(rows: Sequence[ResultRow]) -> tuple[list[str], list[list[Any]]]:
    """Format the rows as column titles and text cells, without the columns that no row fills."""
    columns: list[tuple[str, int, list[float | None]]] = [
        ("pictures", 0, [row.pictures for row in rows]),
        ("bits", 0, [row.bits for row in rows]),
        ("decision bits", 1, [row.flag_bits for row in rows]),
    ]
    for name in QUALITIES:
        title, digits = (_TITLES[name], 6) if name in PERCEPTUAL else (f"PSNR {_TITLES[name]}", 4)
        columns.append((title, digits, [row.before.measured(name) for row in rows]))
        columns.append((f"{title} filtered", digits, [row.after.measured(name) for row in rows]))
    columns.append(("filter s/picture", 3, [row.seconds_per_picture for row in rows]))
    columns.append(("encoder s/picture", 2, [row.encoder_seconds_per_picture for row in rows]))
    used = [column for column in columns if any(value is not None for value in column[2])]
    body = [
        [row.name, row.qp, *(_plain(values[index], digits) for _, digits, values in used)]
        for index, row in enumerate(rows)
    ]
    return ["sequence", next((row.rate_mode.title for row in rows), "QP"), *(title for title, _, _ in used)], body


def _shown(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Choose the cells that the report shows of each sequence: one a filter, all of the same unit."""
    units = shown_units(cell.unit for cell in cells)
    return [[cell for cell in cells if cell.unit.key == unit.key] for unit in units]


def _picture_curves(cells: Sequence[Cell]) -> list[tuple[str, int, str]]:
    """Plot each sequence of several pictures; returns (sequence, QP, figure)."""
    curves = []
    for shown in _shown(cells):
        unit = shown[0].unit
        depth = unit.format.bit_depth
        decoded = [picture.psnrs(depth)[0] for picture in shown[0].decoded]
        filtered = {cell.model: [picture.psnrs(depth)[0] for picture in cell.filtered] for cell in shown}
        if (figure := picture_figure(decoded, filtered)) is not None:
            curves.append((unit.name, unit.qp, figure))
    return curves


def _crop_groups(crops: Sequence[Crop], titles: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Group the crops by region: the index of the filter in `titles`, the crop, and its pictures as data URIs."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for crop in crops:
        index = titles.index(crop.model) if crop.model in titles else 0
        fields = {"filter": index, "crop": crop, "images": crop_pictures(crop)}
        groups.setdefault((crop.name, crop.qp), []).append(fields)
    return list(groups.values())


def _maps(cells: Sequence[Cell], titles: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Describe the CTUs of the first picture of some sequences, for each filter."""
    return [
        [_map(cell, titles.index(cell.model) if cell.model in titles else 0) for cell in group]
        for group in _shown(cells)[:MAX_MAPS]
    ]


def _map(cell: Cell, index: int) -> dict[str, Any]:
    """Describe the CTUs of the first picture of a cell, for the filter with this index."""
    table = pq.read_table(cell.ctus).to_pylist()
    blocks = []
    for row in (row for row in table if row["poc"] == table[0]["poc"]):
        before, after = row["mse_y"], row["mse_y_filtered"]
        gain = 10 * math.log10(before / after) if before > 0 and after > 0 else 0.0
        title = f"CTU at {row['x']}, {row['y']}: {_signed(gain, 3, ' dB')}"
        title += "" if row["flag"] is None else f", filter {'on' if row['flag'] else 'off'}"
        blocks.append(row | {"colour": shade(gain / MAP_RANGE), "title": title})
    flags = {"flags": any(row["flag"] is not None for row in table), "on": sum(bool(b["flag"]) for b in blocks)}
    return {"filter": index, "unit": cell.unit, "blocks": blocks} | flags


def _has_dashes(all_results: Sequence[Results]) -> bool:
    """Return whether a table of BD-rates, or the time of a filter, has a dash in place of a figure."""
    return any(
        results.seconds is None
        or any(rates.get(key) is None for _, rates, _ in results.summary() for key in _columns(results.bd_rate))
        for results in all_results
    )


def _footer(all_results: Sequence[Results]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for results in all_results:
        facts |= results.model_dump(include=_FOOTER, exclude_unset=True)
    if len(all_results) > 1:
        facts["weights_sha256"] = [results.weights_sha256 for results in all_results]
    if peaks := facts.pop("psnr_peak", None):
        facts["peak of the PSNR"] = f"{peaks.get(peaks.get('used', 'jvet'), 0):g} (255 · 2^(bit depth - 8), as JVET)"
    return {_FOOTER_TITLES.get(name, name): value for name, value in (facts | all_results[0].provenance).items()}


def _settings(results: Results) -> str:
    """Describe the encoder settings of the results in words; unknown ones are left out."""
    settings = {key: value for key, value in results.settings.items() if value not in (None, [], {})}
    if settings.get("rate") in ("crf", "kbps"):
        del settings["rate"]
    words: list[str] = []
    if (preset := settings.pop("preset", None)) not in (None, UNKNOWN_PRESET):
        words.append(f"preset {preset}")
    if (configuration := settings.pop("configuration", None)) is not None:
        words.append(CONFIGURATION_NAMES.get(configuration, configuration))
    if settings.pop("ctc", False):
        words.append("common test conditions")
    if qps := settings.pop("qp", None):
        words.append(results.rate_mode.text(", ".join(map(str, qps))))
    if size := settings.pop("ctu_size", None):
        words.append(f"CTUs of {size}x{size}")
    if depth := settings.pop("internal_bit_depth", None):
        words.append(f"{depth} bit")
    if not settings.pop("loop_filters", True):
        words.append("without the in-loop filters of the codec")
    if params := settings.pop("params", None):
        words.append(f"encoder parameters {_text(params)}")
    if not settings.pop("check", True):
        words.append("supplied pictures not compared with their originals")
    return ", ".join([*words, *(f"{name.replace('_', ' ')} {_text(value)}" for name, value in settings.items())])


def _signed(value: float | None, digits: int, unit: str = "") -> str:
    """Format a number with sign and unit; a dash for None, and never -0.000."""
    return "–" if value is None else f"{round(value, digits) + 0.0:+.{digits}f}{unit}"


def _plain(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _ratio(value: float | None, other: float | None) -> str:
    """Format the ratio of two times in %; a dash if one is unknown."""
    return "–" if value is None or not other else f"{100 * value / other:.3g} %"


def _text(value: Any) -> str:
    """Format a JSON value as one line of text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items() if item not in (None, [], {}))
    if isinstance(value, list | tuple):
        return " ".join(_text(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "–" if value is None else str(value)
