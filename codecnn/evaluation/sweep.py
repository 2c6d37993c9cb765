"""The evaluation: every coded unit through a network, PSNR before and after, BD-rate over the QPs."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from codecnn.ctu.store import Store, Unit
from codecnn.errors import ConfigError, TableError
from codecnn.evaluation.bdrate import bd_rate
from codecnn.evaluation.metrics import psnr
from codecnn.evaluation.report import Crop, write_csv, write_report
from codecnn.filtering import DEFAULT_TILE, filter_picture, unit_planes
from codecnn.models import FilterNetwork
from codecnn.runs import append_jsonl, provenance, read_jsonl, sha256_json, write_json

Progress = Callable[[int, int], None]
PLANES = ("y", "u", "v")
ROWS = "rows.jsonl"
CROP_SIZE = 192
"""Side in luma samples of the crops that the report shows."""


def evaluate(
    model: FilterNetwork,
    card: dict[str, Any],
    store: Store,
    split: str,
    output: Path,
    *,
    tile: int | None = DEFAULT_TILE,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Filter every unit of a split and write results.json, results.csv and report.html into `output`.

    PSNR is the mean over pictures of per-picture PSNR in dB with the peak 255·2^(b-8); bits are those of the whole
    bitstream file. A unit that was measured before with the same weights is not measured again, so an interrupted
    evaluation goes on where it was. Returns the content of results.json.
    """
    units = store.split(split)
    key = sha256_json([card.get("sha256"), store.data_key])
    done = {row["unit"]: row for row in read_jsonl(output / ROWS) if row["key"] == key}
    output.mkdir(parents=True, exist_ok=True)
    rows = []
    for index, unit in enumerate(units):
        if progress is not None:
            progress(index, len(units))
        if unit.key not in done:
            done[unit.key] = {"key": key, "unit": unit.key} | measure(model, unit, tile=tile, device=device)
            append_jsonl(output / ROWS, done[unit.key])
        rows.append({name: value for name, value in done[unit.key].items() if name not in ("key", "unit")})
    if progress is not None:
        progress(len(units), len(units))

    results = summarise(rows, card, store, split)
    crops = [_crop(model, unit, tile, device) for unit in _shown(units)]
    write_json(output / "results.json", results)
    write_csv(output / "results.csv", results)
    write_report(output / "report.html", results, crops)
    return results


def measure(
    model: FilterNetwork, unit: Unit, *, tile: int | None = DEFAULT_TILE, device: str | torch.device = "cpu"
) -> dict[str, Any]:
    """One row of the results: name, qp, bits, and PSNR of each plane before and after, dB."""
    before: dict[str, list[float]] = defaultdict(list)
    after: dict[str, list[float]] = defaultdict(list)
    with unit.originals() as originals, unit.decoded() as decoded:
        pictures = zip(unit.record["pictures"], originals, decoded, strict=True)
        for index, (coded, original, output) in enumerate(pictures):
            beside = unit_planes(unit, index, model.planes)
            filtered = filter_picture(model, output, coded["qp"], planes=beside, tile=tile, device=device)
            for plane, a, b, c in zip(PLANES, original.planes, output.planes, filtered.planes, strict=False):
                before[plane].append(psnr(a, b, output.bit_depth))
                after[plane].append(before[plane][-1] if c is b else psnr(a, c, output.bit_depth))
    row: dict[str, Any] = {
        "name": unit.name,
        "qp": unit.qp,
        "pictures": len(unit.record["pictures"]),
        "bits": unit.record["bits"],
        "flag_bits": 0,
    }
    for plane in PLANES:
        for name, values in ((f"psnr_{plane}", before[plane]), (f"psnr_{plane}_filtered", after[plane])):
            # A plane that is not there, or one without any error (grey pictures in 4:2:0), has no finite PSNR.
            row[name] = float(np.mean(values)) if values and np.isfinite(values).all() else None
    return row


def summarise(rows: Sequence[dict[str, Any]], card: dict[str, Any], store: Store, split: str) -> dict[str, Any]:
    """The content of results.json from its rows: mean gains by QP, BD-rates by sequence and their mean."""
    notes: list[str] = []
    gains: dict[str, dict[str, float]] = {}
    for plane in PLANES:
        by_qp: dict[int, list[float]] = defaultdict(list)
        for row in rows:
            if row[f"psnr_{plane}"] is not None and row[f"psnr_{plane}_filtered"] is not None:
                by_qp[row["qp"]].append(row[f"psnr_{plane}_filtered"] - row[f"psnr_{plane}"])
        if by_qp:
            gains[plane] = {str(qp): float(np.mean(values)) for qp, values in sorted(by_qp.items())}
            gains[plane]["mean"] = float(np.mean(list(gains[plane].values())))
    notes += [note for qp in {row["qp"] for row in rows} if (note := untrained_qp(card, qp))]
    per_sequence = {name: _bd_rates([row for row in rows if row["name"] == name], notes) for name in _names(rows)}
    bd: dict[str, float | None] = {}
    for plane in PLANES:
        values = [rates[plane] for rates in per_sequence.values()]
        # A mean over some of the sequences would not be the figure that its name promises.
        known = [value for value in values if value is not None]
        bd[plane] = float(np.mean(known)) if known and len(known) == len(values) else None
    recipe = store.manifest["recipe"]
    settings = ("preset", "configuration", "loop_filters", "ctu_size", "internal_bit_depth", "params", "qp")
    return {
        "schema": 1,
        "model": card.get("network"),
        "weights_sha256": card.get("sha256"),
        "kmac_per_pixel": card.get("kmac_per_pixel"),
        "parameters": card.get("parameters"),
        "codec": recipe["codec"],
        "encoder": store.manifest["encoder"],
        "settings": {name: recipe[name] for name in settings},
        "label": _label(recipe),
        "split": split,
        "trained_on_this_data": card.get("data_key") == store.data_key and split == "train",
        "sequences": list(rows),
        "gain_db": gains,
        "bd_rate": bd,
        "bd_rate_per_sequence": per_sequence,
        "notes": sorted(set(notes)),
        "provenance": provenance({"data_key": store.data_key}),
    }


def untrained_qp(card: dict[str, Any], qp: int) -> str | None:
    """A sentence where `qp` lies outside of the QPs that the weights of `card` were trained at, else None."""
    qps = card.get("qps")
    if not qps or min(qps) <= qp <= max(qps):
        return None
    return f"QP {qp} lies outside of {min(qps)} to {max(qps)}, which the network was trained at: it may do harm there"


def _label(recipe: dict[str, Any]) -> str:
    """What the gain means. All intra predicts from unfiltered samples, so filtering after is filtering in the loop."""
    if recipe["configuration"] == "ai":
        return "in-loop (all intra: no picture predicts from a filtered one)"
    return "post-filter (the coding loop did not see the filtered pictures)"


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["name"] for row in rows))


def _bd_rates(rows: Sequence[dict[str, Any]], notes: list[str]) -> dict[str, float | None]:
    rates: dict[str, float | None] = {}
    for plane in PLANES:
        rates[plane] = None
        if any(row[f"psnr_{plane}{suffix}"] is None for row in rows for suffix in ("", "_filtered")):
            continue
        anchor = [(row["bits"], row[f"psnr_{plane}"]) for row in rows]
        test = [(row["bits"] + row["flag_bits"], row[f"psnr_{plane}_filtered"]) for row in rows]
        try:
            rates[plane] = bd_rate(anchor, test)
        except (ConfigError, TableError) as error:
            notes.append(f"no BD-rate {plane.upper()} for {rows[0]['name']}: {error}")
    return rates


def _shown(units: Sequence[Unit]) -> list[Unit]:
    """One unit a sequence for the crops: the second highest QP, where the codec's error and the repair are visible."""
    by_name: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        by_name[unit.name].append(unit)
    return [sorted(group, key=lambda unit: unit.qp)[max(len(group) - 2, 0)] for group in by_name.values()]


def _crop(model: FilterNetwork, unit: Unit, tile: int | None, device: str | torch.device) -> Crop:
    """Original, decoded and filtered luma of the first picture, where the filter changes most."""
    with unit.originals() as originals, unit.decoded() as decoded:
        original, output = originals[0], decoded[0]
        qp, beside = unit.record["pictures"][0]["qp"], unit_planes(unit, 0, model.planes)
        filtered = filter_picture(model, output, qp, planes=beside, tile=tile, device=device)
        planes = [np.array(picture.y) for picture in (original, output, filtered)]
    y, x = _busiest(planes[2].astype(np.float64) - planes[1], CROP_SIZE)
    windows = [plane[y : y + CROP_SIZE, x : x + CROP_SIZE] for plane in planes]
    return Crop(
        name=unit.name,
        qp=unit.qp,
        original=windows[0],
        decoded=windows[1],
        filtered=windows[2],
        bit_depth=unit.format.bit_depth,
        psnr_decoded=psnr(windows[0], windows[1], unit.format.bit_depth),
        psnr_filtered=psnr(windows[0], windows[2], unit.format.bit_depth),
    )


def _busiest(change: np.ndarray[Any, Any], size: int) -> tuple[int, int]:
    """Upper left corner of the window in which a (h, w) plane has the most energy, on a grid of 32 samples."""
    height, width = (max(extent - size, 0) for extent in change.shape)
    corners = [(y, x) for y in range(0, height + 1, 32) for x in range(0, width + 1, 32)]
    return max(
        corners,
        key=lambda corner: float(np.square(change[corner[0] : corner[0] + size, corner[1] : corner[1] + size]).sum()),
    )


__all__ = ["evaluate", "measure", "summarise"]
