"""Figures of the report as data URIs: plots as SVG that adapts to a light or dark page, pictures as PNG."""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure  # pyplot would look for a display and change global settings
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray
from PIL import Image

from codecnn.evaluation.crops import Crop
from codecnn.evaluation.rows import ResultRow

ERROR_GAIN, CHANGE_GAIN = 8, 32
"""Magnification of the maps of the coding error, and of its change."""

_LEVELS = 32
"""Number of grey levels in a map."""

_INK, _SOFT, _DECODED = "#0f172a", "#94a3b8", "#64748b"
_COLOURS = ("#0f62a8", "#c2410c", "#15803d", "#7e22ce", "#a16207")
"""Colours of the filters, distinguishable with red-green colour blindness; the markers differ as well."""
_MARKERS = "osD^v"
_DARK = {_INK: "#e2e8f0", _SOFT: "#64748b", _DECODED: "#94a3b8"} | dict(
    zip(_COLOURS, ("#6cb4ee", "#fb923c", "#4ade80", "#c084fc", "#facc15"), strict=True)
)
_MARGINS = {"left": 0.16, "right": 0.97, "top": 0.97, "bottom": 0.12}
BETTER, WORSE = (15, 98, 168), (194, 65, 12)
"""Colours (red, green, blue) of a smaller and of a larger error."""


def rate_figure(rows: Mapping[str, Sequence[ResultRow]]) -> str | None:
    """Plot the RD curves of one sequence and, below them, the gain of each filter by QP.

    Args:
        rows: Rows of the sequence, by the name of the filter.

    Returns:
        An SVG as data URI, None if no bits and gains are known. The rates include the bits of the decisions.
    """
    known = {name: [row for row in group if row.bits and row.gain() is not None] for name, group in rows.items()}
    known = {name: sorted(group, key=_bits) for name, group in known.items() if group}
    if not known:
        return None
    figure = Figure(figsize=(4.4, 4.4))
    top, bottom = figure.subplots(2, 1, height_ratios=[2, 1.2], gridspec_kw={**_MARGINS, "hspace": 0.38})
    per_picture = all(row.pictures for group in known.values() for row in group)

    def kbit(row: ResultRow, bits: float) -> float:
        return bits / (1000 * (row.pictures or 1 if per_picture else 1))

    first = next(iter(known.values()))
    decoded = [kbit(row, _bits(row)) for row in first], [row.before.psnr["y"] for row in first]
    top.plot(*decoded, **_line(_DECODED, "o", "decoded", style="--"))
    bottom.axhline(0, color=_SOFT, lw=1)
    for (name, group), colour, marker in zip(known.items(), cycle(_COLOURS), cycle(_MARKERS), strict=False):
        rates = [kbit(row, _bits(row) + row.flag_bits) for row in group]
        top.plot(rates, [row.after.psnr["y"] for row in group], **_line(colour, marker, name))
        gains = sorted((row.qp, row.gain()) for row in group)
        bottom.plot(*zip(*gains, strict=True), **_line(colour, marker, name))
    top.set(ylabel="PSNR Y (dB)", xlabel="rate (kbit per picture)" if per_picture else "rate (kbit)")
    top.legend(frameon=False, fontsize=9, loc="lower right")
    # The quantisation step doubles every six QPs, so on a logarithmic axis equal QP steps are about equally far apart.
    top.set_xscale("log")
    top.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    top.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    top.xaxis.set_minor_locator(NullLocator())
    bottom.set(ylabel="PSNR Y gain (dB)", xlabel=first[0].rate_mode.title)
    qps = sorted({row.qp for group in known.values() for row in group})
    if not first[0].rate_mode.falling:  # bit rates
        bottom.set_xscale("log")
        bottom.xaxis.set_minor_locator(NullLocator())
    bottom.set_xticks(qps, list(map(str, qps)))
    bottom.margins(y=0.15)
    return _svg(figure)


def _bits(row: ResultRow) -> float:
    return row.bits or 0


def picture_figure(decoded: Sequence[float | None], filtered: Mapping[str, Sequence[float | None]]) -> str | None:
    """Plot the luma PSNR of each decoded picture and, below it, the gain of each filter.

    Args:
        decoded: PSNR of each picture in dB.
        filtered: The same after each filter, by its name.

    Returns:
        An SVG as data URI; None for fewer than two pictures or if a PSNR is unknown.
    """
    if len(decoded) < 2 or None in decoded or any(None in values for values in filtered.values()):
        return None
    figure = Figure(figsize=(4.4, 3.6))
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[1.3, 1], gridspec_kw={**_MARGINS, "hspace": 0.12})
    base = np.array(decoded, np.float64)
    top.plot(base, **_line(_DECODED, "", "decoded"))
    bottom.axhline(0, color=_SOFT, lw=1)
    for (name, values), colour in zip(filtered.items(), cycle(_COLOURS), strict=False):
        bottom.plot(np.array(values, np.float64) - base, **_line(colour, "", name))
    top.set(ylabel="PSNR Y (dB)")
    bottom.set(ylabel="PSNR Y gain (dB)", xlabel="picture")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(filtered) > 1:
        bottom.legend(frameon=False, fontsize=8)
    return _svg(figure)


def crop_pictures(crop: Crop) -> dict[str, str]:
    """Draw a crop as six PNGs.

    Args:
        crop: The region in its three versions.

    Returns:
        Data URIs of "original", "decoded" and "filtered"; of "error_decoded" and "error_filtered", the errors magnified
        by `ERROR_GAIN` around mid-grey; and of "change", |decoded - original| - |filtered - original| magnified by
        `CHANGE_GAIN`, in the colour `BETTER` where positive and `WORSE` where negative, on white.
    """
    step = 1 if crop.original.ndim == 3 else 1 << (crop.bit_depth - 8)
    original, decoded, filtered = (x.astype(np.float64) / step for x in (crop.original, crop.decoded, crop.filtered))
    before, after = decoded - original, filtered - original
    change = np.abs(before) - np.abs(after)
    if change.ndim == 3:
        change = change.mean(axis=2)
    return {
        "original": _png(original),
        "decoded": _png(decoded),
        "filtered": _png(filtered),
        "error_decoded": _png(_coarse(128 + ERROR_GAIN * before)),
        "error_filtered": _png(_coarse(128 + ERROR_GAIN * after)),
        "change": _png(_two_sided(CHANGE_GAIN * change / 255)),
    }


def shade(value: float) -> str:
    """Return the CSS colour of a value from -1 (worse) to 1 (better), as used by the change map."""
    red, green, blue = _two_sided(np.array([[value]]))[0, 0].astype(int)
    return f"rgb({red} {green} {blue})"


def _two_sided(values: NDArray[np.float64]) -> NDArray[np.float64]:
    amount = _coarse(255 * np.clip(np.abs(values), 0, 1))[..., None] / 255
    colour = np.where(values[..., None] > 0, np.array(BETTER), np.array(WORSE))
    mixed: NDArray[np.float64] = 255 + amount * (colour - 255)
    return mixed


def _coarse(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reduce the number of grey levels, which is hardly visible in a map and compresses better."""
    step = 256 / _LEVELS
    levels: NDArray[np.float64] = np.clip(np.rint(picture / step) * step, 0, 255)
    return levels


def _png(picture: NDArray[np.float64]) -> str:
    """Encode a picture in 8-bit units, shape (h, w) or (h, w, 3), as PNG."""
    file = io.BytesIO()
    samples = np.clip(np.rint(picture), 0, 255).astype(np.uint8)
    Image.fromarray(samples).save(file, format="PNG", optimize=True)
    return _data_uri("image/png", file.getvalue())


def _svg(figure: Figure) -> str:
    for axes in figure.axes:
        axes.grid(alpha=0.25, color=_SOFT)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_facecolor("none")
        axes.spines[["left", "bottom"]].set_color(_SOFT)
        axes.tick_params(colors=_INK, labelsize=8)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_color(_INK)
        if (legend := axes.get_legend()) is not None:
            for text in legend.get_texts():
                text.set_color(_INK)
    file = io.BytesIO()
    # A fixed salt makes the output reproducible; text stays text and uses the font of the reader.
    with rc_context({"svg.hashsalt": "codecnn", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = file.getvalue().decode()
    rules = "".join(
        f'[style*="{attribute}: {light}"] {{ {attribute}: {dark} !important }}'
        for attribute in ("stroke", "fill")
        for light, dark in _DARK.items()
    )
    style = f"<style>@media (prefers-color-scheme: dark) {{ {rules} }}</style>"
    return _data_uri("image/svg+xml", svg.replace("<defs>", f"{style}<defs>", 1).encode())


def _line(colour: str, marker: str, label: str, style: str = "-") -> dict[str, Any]:
    # Matplotlib takes text between two dollar signs for a formula, and hides labels that begin with "_".
    label = re.sub("^(?=_)", "\u200b", label.replace("$", r"\$"))
    return {"color": colour, "marker": marker, "ms": 4, "lw": 1.4, "ls": style, "label": label}


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
