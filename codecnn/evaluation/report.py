"""The evaluation report: one self-contained HTML page, and a CSV of every measurement."""

import base64
import io
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure  # not pyplot, so no display is looked for and nothing global is set
from matplotlib.image import imsave
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from codecnn.errors import TableError
from codecnn.evaluation.crops import Crop
from codecnn.runs import write_text

COMPONENTS = ("y", "u", "v")
DIFFERENCE_GAIN = 16
_DECODED, _FILTERED, _LOSS = "#64748b", "#0f62a8", "#b42318"


def write_report(path: Path | str, results: Mapping[str, Any], crops: Sequence[Crop] = ()) -> None:
    """Write report.html: headline, gains, rate-distortion curves and crops of an evaluation, in one file.

    `results` is what results.json holds; figures that are None or absent are left blank. Curves count `bits` for the
    decoded and `bits` + `flag_bits` for the filtered pictures. The page needs no script and no other file. Raises
    TableError where there is no sequence.
    """
    rows = _measurements(results)
    names = list(dict.fromkeys(str(row["name"]) for row in rows))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"signed": _signed, "plain": _plain, "text": _text}
    curves = [(name, _curve([row for row in rows if str(row["name"]) == name])) for name in names]
    page = environment.from_string(_template()).render(
        results={key: results.get(key) for key in _SHOWN} | {"notes": results.get("notes") or []},
        gain={c: _nested(results, "gain_db", c, "mean") for c in COMPONENTS},
        bd_rate={c: _nested(results, "bd_rate", c) for c in COMPONENTS},
        tables=[table for c in COMPONENTS if (table := _gain_table(results, rows, names, c))],
        curves=[(name, figure) for name, figure in curves if figure],
        crops=[_crop_view(crop) for crop in crops],
        measurements=_measurement_table(rows),
        difference_gain=DIFFERENCE_GAIN,
        footer={key: results[key] for key in results if key not in _PLACED} | dict(results.get("provenance") or {}),
    )
    write_text(path, page)


_SHOWN = ("model", "kmac_per_pixel", "parameters", "codec", "settings", "label", "trained_on_this_data")
_PLACED = {*_SHOWN, "sequences", "gain_db", "bd_rate", "bd_rate_per_sequence", "notes", "provenance"}


def _measurements(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [dict(row) for row in results.get("sequences") or []]
    if not rows:
        raise TableError("the results hold no sequence to report on")
    for row in rows:
        if row.get("name") is None or row.get("qp") is None:
            raise TableError(f"a measurement has no name or no QP: {row}")
    return rows


@cache
def _template() -> str:
    return resources.files("codecnn.evaluation").joinpath("report.html.j2").read_text(encoding="utf-8")


def _nested(values: Mapping[str, Any], *keys: str) -> Any:
    found: Any = values
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _gain(row: Mapping[str, Any], component: str) -> float | None:
    """Filtered minus decoded PSNR in dB; None where either is not known or not finite."""
    decoded, filtered = row.get(f"psnr_{component}"), row.get(f"psnr_{component}_filtered")
    if decoded is None or filtered is None or not np.isfinite(filtered - decoded):
        return None
    return float(filtered - decoded)


def _gain_table(
    results: Mapping[str, Any], rows: list[dict[str, Any]], names: list[str], component: str
) -> dict[str, Any] | None:
    """Gains of a component, sequence by QP, with means and BD-rates; None where none was measured."""
    gains = {(str(row["name"]), row["qp"]): _gain(row, component) for row in rows}
    if all(gain is None for gain in gains.values()):
        return None
    qps = sorted({row["qp"] for row in rows})
    body = []
    for name in names:
        cells = [gains.get((name, qp)) for qp in qps]
        known = [cell for cell in cells if cell is not None]
        mean = sum(known) / len(known) if known else None
        body.append((name, cells, mean, _nested(results, "bd_rate_per_sequence", name, component)))
    means = [_nested(results, "gain_db", component, str(qp)) for qp in qps]
    total = ("Mean", means, _nested(results, "gain_db", component, "mean"), _nested(results, "bd_rate", component))
    return {"component": component.upper(), "qps": qps, "rows": body, "total": total}


def _measurement_table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Bits and PSNRs as text, leaving out columns that no row fills."""
    wanted = [("pictures", "pictures"), ("bits", "bits"), ("flag_bits", "flag bits")]
    for c in COMPONENTS:
        wanted += [(f"psnr_{c}", f"PSNR {c.upper()}"), (f"psnr_{c}_filtered", f"PSNR {c.upper()} filtered")]
    used = [(key, title) for key, title in wanted if any(row.get(key) is not None for row in rows)]
    body = [
        [row["name"], row["qp"], *(_plain(row.get(key), 4 if "psnr" in key else 0) for key, _ in used)] for row in rows
    ]
    return {"titles": ["sequence", "QP", *(title for _, title in used)], "rows": body}


def _curve(rows: list[dict[str, Any]]) -> str | None:
    """Rate against PSNR Y, decoded and filtered, and the gain below it, as an SVG data URI; None without figures."""
    points = []
    for row in rows:
        gain = _gain(row, "y")
        if row.get("bits") and gain is not None:
            kbit = 1000 * (row.get("pictures") or 1)
            bits = row["bits"], row["bits"] + (row.get("flag_bits") or 0)
            points.append((bits[0] / kbit, bits[1] / kbit, row["psnr_y"], gain, row["qp"]))
    if not points:
        return None
    rate, rate_filtered, decoded, gains, qps = (np.array(values, float) for values in zip(*sorted(points), strict=True))
    figure = Figure(figsize=(4.4, 4.2), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    top.plot(rate, decoded, "o--", color=_DECODED, ms=4, lw=1.2, label="decoded")
    top.plot(rate_filtered, decoded + gains, "o-", color=_FILTERED, ms=4, lw=1.5, label="filtered")
    top.set_ylabel("PSNR Y (dB)")
    top.legend(frameon=False, fontsize=9, loc="lower right")
    bottom.axhline(0, color="#94a3b8", lw=1)
    bottom.vlines(rate, 0, gains, color=np.where(gains < 0, _LOSS, _FILTERED), lw=5)
    for x, y, qp in zip(rate, gains, qps, strict=True):
        away = 4 if y >= 0 else -4
        bottom.annotate(
            f"QP {qp:g}", (x, y), (0, away), textcoords="offset points", ha="center", fontsize=7,
            va="bottom" if y >= 0 else "top", color="#475569",
        )  # fmt: skip
    bottom.margins(x=0.1, y=0.3)
    bottom.set_ylabel("gain (dB)")
    bottom.set_xlabel("kbit per picture" if all(row.get("pictures") for row in rows) else "kbit")
    _rate_axis(bottom)
    for axes in (top, bottom):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    svg = io.BytesIO()
    with rc_context({"svg.hashsalt": "codecnn"}):  # the same results give the same bytes
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return _data_uri("image/svg+xml", svg.getvalue())


def _rate_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _crop_view(crop: Crop) -> dict[str, Any]:
    step = 1 if crop.original.ndim == 3 else 1 << (crop.bit_depth - 8)
    original, decoded, filtered = (x.astype(np.float64) / step for x in (crop.original, crop.decoded, crop.filtered))
    finite = np.isfinite([crop.psnr_decoded, crop.psnr_filtered]).all()
    gain = f" ({_signed(crop.psnr_filtered - crop.psnr_decoded, 3, ' dB')})" if finite else ""
    return {
        "name": crop.name,
        "qp": crop.qp,
        "pictures": [
            ("Original", "", _png(original)),
            ("Decoded", f"{crop.psnr_decoded:.2f} dB", _png(decoded)),
            ("Filtered", f"{crop.psnr_filtered:.2f} dB{gain}", _png(filtered)),
            (f"(Filtered - decoded) × {DIFFERENCE_GAIN}", "", _png(128 + DIFFERENCE_GAIN * (filtered - decoded))),
        ],
    }


def _png(picture: NDArray[np.float64]) -> str:
    """A picture in 8-bit units, (h, w) or (h, w, 3), as a PNG data URI."""
    samples = np.clip(np.rint(picture), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    if samples.ndim == 2:
        samples = np.repeat(samples[..., None], 3, axis=2)  # the grey colour map is off by one at some values
    imsave(file, samples, format="png")
    return _data_uri("image/png", file.getvalue())


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


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
