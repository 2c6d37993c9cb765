"""The evaluation report: one HTML page that needs no other file, works offline, prints, and follows light or dark."""

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

from codecnn.errors import TableError
from codecnn.evaluation.report.crops import Crop
from codecnn.evaluation.report.figures import (
    CHANGE_GAIN,
    ERROR_GAIN,
    crop_pictures,
    gain,
    picture_figure,
    rate_figure,
    shade,
)
from codecnn.evaluation.tables import COMPONENTS, Measured, summary_rows
from codecnn.runs import write_text

MAX_MAPS = 6
"""How many sequences the page shows maps of CTUs of."""
MAP_RANGE = 0.3
"""Gain of a CTU in dB at which its colour is full."""

_TITLES = {"y": "Y", "u": "U", "v": "V", "yuv_611": "YUV 6:1:1", "yuv_mse": "YUV MSE", "ssim": "SSIM",
           "ms_ssim": "MS-SSIM", "vmaf": "VMAF"}  # fmt: skip
_SHOWN = ("name", "model", "kmac_per_pixel", "parameters", "codec", "settings", "label", "trained_on_this_data",
          "decisions", "device")  # fmt: skip
_TABLES = ("sequences", "gain_db", "gain_db_network", "bd_rate", "bd_rate_by_class", "bd_rate_per_sequence",
           "bd_rate_akima", "bd_rate_network", "bd_rate_jvet", "notes", "provenance", "schema")  # fmt: skip


def write_report(
    path: Path | str,
    every: Sequence[Mapping[str, Any]],
    crops: Sequence[Crop] = (),
    cells: Sequence[Measured] = (),
) -> None:
    """Write report.html: headline, BD-rates in JVET's layout, gains, curves, crops and maps of CTUs.

    `every` is what results.json holds, of each filter; figures that are None or absent are left blank. `cells` give
    the curves by picture and the maps. The page's only script moves the sliders, and its content security policy allows
    nothing else. Raises TableError where there is no sequence.
    """
    for results in every:
        _check(results)
    names = list(dict.fromkeys(str(row["name"]) for results in every for row in results["sequences"]))
    labels = [str(results.get("name") or results.get("model")) for results in every]
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"signed": _signed, "plain": _plain, "text": _text}
    script = _resource("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    by_name = {
        name: {label: [row for row in results["sequences"] if str(row["name"]) == name] for label, results in
               zip(labels, every, strict=True)}
        for name in names
    }  # fmt: skip
    curves = [(name, figure) for name, rows in by_name.items() if (figure := rate_figure(rows))]
    page = environment.from_string(_resource("report.html.j2")).render(
        models=[_model_view(results) for results in every],
        curves=curves,
        pictures=_picture_curves(cells, names),
        crops=[_crop_view(crop) for crop in crops],
        maps=_maps(cells),
        script=script,
        script_hash=digest,
        error_gain=ERROR_GAIN,
        change_gain=CHANGE_GAIN,
        map_range=MAP_RANGE,
        notes=list(dict.fromkeys(note for results in every for note in results.get("notes") or [])),
        footer=_footer(every),
    )
    write_text(path, page)


def _check(results: Mapping[str, Any]) -> None:
    rows = results.get("sequences") or []
    if not rows:
        raise TableError("the results hold no sequence to report on")
    for row in rows:
        if row.get("name") is None or row.get("qp") is None:
            raise TableError(f"a measurement has no name or no QP: {row}")


@cache
def _resource(name: str) -> str:
    return resources.files("codecnn.evaluation.report").joinpath(name).read_text(encoding="utf-8")


def _nested(values: Mapping[str, Any], *keys: str) -> Any:
    found: Any = values
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _model_view(results: Mapping[str, Any]) -> dict[str, Any]:
    """What the page says of one filter."""
    rows = results["sequences"]
    qps = sorted({row["qp"] for row in rows})
    rates = results.get("bd_rate") or {}
    columns = [name for name in _TITLES if name in COMPONENTS or rates.get(name) is not None]
    seconds = [row["seconds_per_picture"] for row in rows if row.get("seconds_per_picture") is not None]
    return {
        "facts": {key: results.get(key) for key in _SHOWN},
        "label": str(results.get("name") or results.get("model")),
        "gain": {c: _nested(results, "gain_db", c, "mean") for c in COMPONENTS},
        "gain_network": _nested(results, "gain_db_network", "y", "mean"),
        "bd_rate": {c: rates.get(c) for c in COMPONENTS},
        "bd_network": _nested(results, "bd_rate_network", "y"),
        "seconds": sum(seconds) / len(seconds) if seconds else None,
        "columns": [(name, _TITLES[name]) for name in columns],
        "summary": summary_rows(results, qps),
        "gains": [table for c in COMPONENTS if (table := _gain_table(results, qps, c))],
        "qps": qps,
        "measurements": _measurements(rows),
    }


def _gain_table(results: Mapping[str, Any], qps: Sequence[int], component: str) -> dict[str, Any] | None:
    """Gains of a component, sequence by QP, with means; None where there is none, as of chroma that is not filtered."""
    rows = results["sequences"]
    gains = {(str(row["name"]), row["qp"]): gain(row, component) for row in rows}
    if not any(gains.values()):
        return None
    body = []
    for name in dict.fromkeys(str(row["name"]) for row in rows):
        cells = [gains.get((name, qp)) for qp in qps]
        known = [cell for cell in cells if cell is not None]
        body.append((name, [*cells, sum(known) / len(known) if known else None]))
    means = [_nested(results, "gain_db", component, str(qp)) for qp in (*qps, "mean")]
    return {"component": component.upper(), "rows": body, "total": means}


def _measurements(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Bits and qualities as text, leaving out columns that no row fills."""
    wanted = [("pictures", "pictures", 0), ("bits", "bits", 0), ("flag_bits", "flag bits", 1)]
    for name in _TITLES:
        key, digits = (f"psnr_{name}", 4) if name not in ("ssim", "ms_ssim", "vmaf") else (name, 6)
        title = f"PSNR {_TITLES[name]}" if key != name else _TITLES[name]
        wanted += [(key, title, digits), (f"{key}_filtered", f"{title} filtered", digits)]
    wanted.append(("seconds_per_picture", "s/picture", 3))
    used = [one for one in wanted if any(row.get(one[0]) is not None for row in rows)]
    body = [[row["name"], row["qp"], *(_plain(row.get(key), digits) for key, _, digits in used)] for row in rows]
    return {"titles": ["sequence", "QP", *(title for _, title, _ in used)], "rows": body}


def _picture_curves(cells: Sequence[Measured], names: Sequence[str]) -> list[tuple[str, int, str]]:
    """(sequence, QP, figure) of every sequence of several pictures, at its second highest QP."""
    curves = []
    for name in names:
        own = [cell for cell in cells if cell.unit.name == name]
        qps = sorted({cell.unit.qp for cell in own})
        shown = [cell for cell in own if cell.unit.qp == qps[max(len(qps) - 2, 0)]]
        if not shown:
            continue
        rows = {cell.model: cell.picture_rows() for cell in shown}
        decoded = [row.get("psnr_y") for row in next(iter(rows.values()))]
        figure = picture_figure(decoded, {m: [row.get("psnr_y_filtered") for row in r] for m, r in rows.items()})
        if figure is not None:
            curves.append((name, shown[0].unit.qp, figure))
    return curves


def _crop_view(crop: Crop) -> dict[str, Any]:
    return {
        "name": crop.name,
        "qp": crop.qp,
        "height": crop.original.shape[0],
        "width": crop.original.shape[1],
        "decoded": f"{crop.psnr_decoded:.2f} dB",
        "filtered": f"{crop.psnr_filtered:.2f} dB",
        "gain": crop.psnr_filtered - crop.psnr_decoded if crop.psnr_decoded != float("inf") else None,
        "pictures": crop_pictures(crop),
    }


def _maps(cells: Sequence[Measured]) -> list[dict[str, Any]]:
    """CTUs of the first picture of some sequences, at the second highest QP and of the first filter."""
    maps: list[dict[str, Any]] = []
    first = [cell for cell in cells if cell.model == cells[0].model]
    for name in dict.fromkeys(cell.unit.name for cell in first):
        own = sorted((cell for cell in first if cell.unit.name == name), key=lambda cell: cell.unit.qp)
        cell = own[max(len(own) - 2, 0)]
        table = pq.read_table(cell.ctus).to_pylist()
        blocks = []
        for row in (row for row in table if row["poc"] == table[0]["poc"]):
            better = _decibels(row["mse_y"], row["mse_y_filtered"])
            title = f"CTU at {row['x']}, {row['y']}: {_signed(better, 3, ' dB')}"
            title += "" if row["flag"] is None else f", filter {'on' if row['flag'] else 'off'}"
            blocks.append(row | {"colour": shade(better / MAP_RANGE), "title": title})
        form = cell.unit.format
        maps.append(
            {"name": name, "qp": cell.unit.qp, "width": form.width, "height": form.height, "blocks": blocks}
            | {"flags": any(row["flag"] is not None for row in table), "on": sum(bool(b["flag"]) for b in blocks)}
        )
    return maps[:MAX_MAPS]


def _decibels(before: float, after: float) -> float:
    return 10 * math.log10(before / after) if before > 0 and after > 0 else 0.0


def _footer(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for results in every:
        facts |= {key: results[key] for key in results if key not in _SHOWN and key not in _TABLES}
    if len(every) > 1:
        facts["weights_sha256"] = [results.get("weights_sha256") for results in every]
    return facts | dict(every[0].get("provenance") or {})


def _signed(value: float | None, digits: int, unit: str = "") -> str:
    """A number with its sign and unit; a dash for None, and never -0.000."""
    return "–" if value is None else f"{round(value, digits) + 0.0:+.{digits}f}{unit}"


def _plain(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _text(value: Any) -> str:
    """A JSON value as one line to read."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items() if item not in (None, [], {}))
    if isinstance(value, list | tuple):
        return " ".join(_text(item) for item in value)
    return "–" if value is None else str(value)
