"""From measured cells to results.json: rows, gains by QP, BD-rates by sequence, class and in the mean."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from codecnn.dataset.store import Store, Unit
from codecnn.errors import ConfigError, TableError
from codecnn.quality.bdrate import bd_rate
from codecnn.quality.metrics import mean_psnr, peak_value, psnr_of_mean_mse, psnr_yuv_611, psnr_yuv_mse
from codecnn.runs import provenance

PLANES = ("y", "u", "v")
PSNRS = (*PLANES, "yuv_611", "yuv_mse")
"""What a PSNR is of: a plane; (6 Y + U + V) / 8 of the planes' PSNRs; all samples, as VTM's YUV-PSNR."""

STRUCTURAL = ("ssim", "ms_ssim")
QUALITIES = {name: f"psnr_{name}" for name in PSNRS} | {name: name for name in (*STRUCTURAL, "vmaf")}
"""What a BD-rate is of, and the key of its figures in a row."""

APART = ("D", "F")
"""JVET reports these classes, but leaves them out of its overall figures (common test conditions for VVC)."""

AFTER, NETWORK = "_filtered", "_network"
Row = dict[str, Any]


def make_row(unit: Unit, decoded: Sequence[Row], filtered: Sequence[Row]) -> Row:
    """A row of the results: one coded unit, before and after one filter; see `measure_filtered` for what goes in.

    PSNRs are means over pictures of per-picture PSNR in dB, peak 255·2^(b-8); None where a plane is missing or without
    error in some picture (grey pictures in 4:2:0 have such chroma). `psnr_yuv_mse` is of the mean MSE, as VTM logs it.
    """
    row: Row = {
        "name": unit.name,
        "class": unit.record.get("class"),
        "qp": unit.qp,
        "pictures": len(decoded),
        "bits": unit.record["bits"],
        "flag_bits": sum(picture.get("bits", 0) for picture in filtered),
        "seconds_per_picture": float(np.median([picture["seconds"] for picture in filtered])),
    }
    variants = {"": (decoded, "mse"), AFTER: (filtered, "mse")}
    if all("mse_network" in picture for picture in filtered):
        variants[NETWORK] = (filtered, "mse_network")
    for suffix, (pictures, key) in variants.items():
        figures = _psnrs([picture[key] for picture in pictures], unit)
        if suffix == NETWORK:
            figures = {name: value for name, value in figures.items() if "of_mean" not in name}
        row |= {f"{name}{suffix}": value for name, value in figures.items()}
    for name in (*STRUCTURAL, "vmaf"):
        for suffix, pictures in (("", decoded), (AFTER, filtered)):
            values = [picture.get(name) for picture in pictures]
            if any(name in picture for picture in pictures):
                row[f"{name}{suffix}"] = None if None in values else float(np.mean(np.array(values, np.float64)))
    return row


def _psnrs(mses: Sequence[Sequence[float]], unit: Unit) -> dict[str, float | None]:
    depth = unit.format.bit_depth
    planes = np.array(mses, np.float64).T
    figures: dict[str, float | None] = {f"psnr_{plane}": None for plane in PSNRS}
    for plane, values in zip(PLANES, planes, strict=False):
        if values.all():
            figures[f"psnr_{plane}"] = mean_psnr(values, depth)
            figures[f"psnr_{plane}_of_mean_mse"] = psnr_of_mean_mse(values, depth)
    y, u, v = (figures[f"psnr_{plane}"] for plane in PLANES)
    if y is not None and u is not None and v is not None:
        figures["psnr_yuv_611"] = psnr_yuv_611(y, u, v)
        samples = [height * width for height, width in unit.format.plane_shapes]
        figures["psnr_yuv_mse"] = psnr_yuv_mse(list(planes.mean(axis=1)), samples, depth)
    return figures


def summarise(
    rows: Sequence[Row],
    card: Mapping[str, Any],
    store: Store,
    split: str,
    *,
    name: str | None = None,
    decisions: str = "none",
    device: str = "cpu",
) -> dict[str, Any]:
    """The content of results.json from the rows of one filter.

    Gains are means over sequences. BD-rates (%; flag bits counted with the filter's) are per sequence, then averaged:
    `bd_rate` over all sequences, `bd_rate_by_class` over those of a class, `bd_rate_jvet` over the sequences of all
    classes but APART. `bd_rate_akima` interpolates by Akima instead of PCHIP, `bd_rate_network` is that of the network
    without its decisions. A mean is None where a sequence has no BD-rate, and `notes` says why.
    """
    notes: list[str] = []
    notes += [note for qp in {row["qp"] for row in rows} if (note := untrained_qp(card, qp))]
    names = list(dict.fromkeys(row["name"] for row in rows))
    by_name = {name: [row for row in rows if row["name"] == name] for name in names}
    rates = {name: _bd_rates(group, AFTER, "pchip", notes) for name, group in by_name.items()}
    classes = {name: group[0].get("class") for name, group in by_name.items()}
    recipe = store.manifest["recipe"]
    settings = ("preset", "configuration", "loop_filters", "ctu_size", "internal_bit_depth", "params", "qp")
    depth = recipe["internal_bit_depth"]
    results: dict[str, Any] = {
        "schema": 2,
        "model": card.get("network"),
        "name": name or card.get("network"),
        "weights_sha256": card.get("sha256"),
        "kmac_per_pixel": card.get("kmac_per_pixel"),
        "parameters": card.get("parameters"),
        "codec": recipe["codec"],
        "encoder": store.manifest["encoder"],
        "settings": {name: recipe[name] for name in settings},
        "label": label(recipe),
        "decisions": decisions,
        "device": device,
        "psnr_peak": {"jvet": peak_value(depth), "full": peak_value(depth, "full"), "used": "jvet"},
        "split": split,
        "trained_on_this_data": card.get("data_key") == store.data_key and split == "train",
        "sequences": list(rows),
        "gain_db": _gains(rows, AFTER),
        "bd_rate": _mean_rates(rates.values()),
        "bd_rate_by_class": {
            label: _mean_rates(rates[name] for name in names if classes[name] == label)
            for label in sorted({label for label in classes.values() if label is not None})
        },
        "bd_rate_per_sequence": rates,
        "bd_rate_akima": _mean_rates(_bd_rates(group, AFTER, "akima", []) for group in by_name.values()),
    }
    counted = [name for name in names if classes[name] not in APART]
    if all(classes.values()) and counted:
        results["bd_rate_jvet"] = _mean_rates(rates[name] for name in counted)
    if decisions != "none":
        results["gain_db_network"] = _gains(rows, NETWORK)
        results["bd_rate_network"] = _mean_rates(_bd_rates(group, NETWORK, "pchip", []) for group in by_name.values())
    return results | {"notes": sorted(set(notes)), "provenance": provenance({"data_key": store.data_key})}


def untrained_qp(card: Mapping[str, Any], qp: int) -> str | None:
    """A sentence where `qp` lies outside of the QPs that the weights of `card` were trained at, else None."""
    qps = card.get("qps")
    if not qps or min(qps) <= qp <= max(qps):
        return None
    return f"QP {qp} lies outside of {min(qps)} to {max(qps)}, which the network was trained at: it may do harm there"


def label(recipe: Mapping[str, Any]) -> str:
    """What the gain means. All intra predicts from unfiltered samples, so filtering after is filtering in the loop."""
    if recipe["configuration"] == "ai":
        return "in-loop (all intra: no picture predicts from a filtered one)"
    return "post-filter (the coding loop did not see the filtered pictures)"


def quality(row: Mapping[str, Any], name: str, suffix: str = "") -> float | None:
    """The figure that rises with quality `name` of QUALITIES, in dB but for VMAF; None where it is not known.

    A structural similarity s becomes -10·log10(1 - s), as RD curves draw it; 1 has no such value.
    """
    value = row.get(f"{QUALITIES[name]}{suffix}")
    if value is None or name not in STRUCTURAL:
        return value
    return None if value >= 1 else -10 * float(np.log10(1 - value))


def _gains(rows: Sequence[Row], suffix: str) -> dict[str, dict[str, float]]:
    """Mean gain over the sequences by plane and QP, and the mean of those over the QPs, dB."""
    gains: dict[str, dict[str, float]] = {}
    for plane in PSNRS:
        by_qp: dict[int, list[float]] = defaultdict(list)
        for row in rows:
            before, after = row.get(f"psnr_{plane}"), row.get(f"psnr_{plane}{suffix}")
            if before is not None and after is not None:
                by_qp[row["qp"]].append(after - before)
        if by_qp:
            gains[plane] = {str(qp): float(np.mean(values)) for qp, values in sorted(by_qp.items())}
            gains[plane]["mean"] = float(np.mean(list(gains[plane].values())))
    return gains


def _bd_rates(rows: Sequence[Row], suffix: str, method: str, notes: list[str]) -> dict[str, float | None]:
    """BD-rate of one sequence by quality, %; None, and a note, where there is none."""
    rates: dict[str, float | None] = {}
    for name, key in QUALITIES.items():
        if name not in PLANES and not any(f"{key}{suffix}" in row for row in rows):
            continue
        rates[name] = None
        before = [quality(row, name) for row in rows]
        after = [quality(row, name, suffix) for row in rows]
        if None in before or None in after:
            continue
        bits = [row["bits"] for row in rows]
        own = [0 if suffix == NETWORK else row["flag_bits"] for row in rows]
        anchor = [(a, b) for a, b in zip(bits, before, strict=True) if b is not None]
        test = [(a + c, b) for a, b, c in zip(bits, after, own, strict=True) if b is not None]
        try:
            rates[name] = bd_rate(anchor, test, method)
        except (ConfigError, TableError) as error:
            notes.append(f"no BD-rate {name.upper()} for {rows[0]['name']}: {error}")
    return rates


def _mean_rates(rates: Any) -> dict[str, float | None]:
    """Mean by quality; None unless every sequence has one, for a mean of some would not be what its name promises."""
    listed = list(rates)
    means: dict[str, float | None] = {}
    for name in (name for name in QUALITIES if any(name in each for each in listed)):
        known = [each[name] for each in listed if each.get(name) is not None]
        means[name] = float(np.mean(known)) if len(known) == len(listed) else None
    return dict.fromkeys(PLANES) | means
