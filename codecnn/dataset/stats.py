"""What a store holds, in a few figures."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from codecnn.codec import UNKNOWN_CODEC
from codecnn.dataset.store import Store, Unit


def store_stats(store: Store) -> dict[str, Any]:
    """Figures by split and QP: sequences, pictures, CTUs, bits a luma sample, mean PSNR Y (dB), mean CTU depth.

    The mean PSNR is over the units that have one, for a picture without any error has none; None where no unit has.
    Bits are None where a unit has no bitstream. Where the store has them also "variants", what was drawn for how many
    sequences, "encoders", the settings, and "given", what is known of the units that others coded.
    """
    table = store.ctus()
    depth = table["depth_mean"].to_numpy()
    unit_of_row = np.array(table["unit"].to_pylist())
    groups: dict[tuple[str, int], list[Unit]] = defaultdict(list)
    for unit in store.units:
        groups[unit.split, unit.qp].append(unit)
    rows = []
    for (split, qp), units in sorted(groups.items()):
        samples = sum(unit.format.width * unit.format.height * len(unit.pictures) for unit in units)
        psnrs = [unit.psnr_y for unit in units if unit.psnr_y is not None]
        bits = [unit.bits for unit in units if unit.bits is not None]
        rows_of_units = np.isin(unit_of_row, [unit.key for unit in units])
        depths = depth[rows_of_units]
        rows.append(
            {
                "split": split,
                "qp": qp,
                "sequences": len(units),
                "pictures": sum(len(unit.pictures) for unit in units),
                "ctus": int(rows_of_units.sum()),
                "bits_per_sample": sum(bits) / samples if len(bits) == len(units) else None,
                "psnr_y": float(np.mean(psnrs)) if psnrs else None,
                "depth_mean": float(np.nanmean(depths)) if np.isfinite(depths).any() else None,
            }
        )
    recipe = store.manifest.recipe
    apart: dict[str, Any] = {"variants": _variants(store.units), "encoders": encoder_settings(store.units)}
    apart["given"] = _given(store.units)
    return {
        "name": recipe.name,
        "encoder": store.manifest.encoder,
        "codec": recipe.codec,
        "preset": recipe.preset,
        "configuration": recipe.configuration,
        "rows": rows,
    } | {name: value for name, value in apart.items() if value}


def _given(units: Iterable[Unit]) -> dict[str, Any]:
    """Of the units that were coded by others: how many are streams of which codec, and how many decoded pictures alone.

    Of the pictures of streams how many have the MD5 that their stream states; and the CTU sizes.
    """
    given = [(unit.given, len(unit.pictures)) for unit in units if unit.given is not None]
    if not given:
        return {}
    return {
        "streams": dict(sorted(Counter(one.codec for one, _ in given if one.codec is not None).items())),
        "decoded": sum(one.codec is None for one, _ in given),
        "stream_pictures": sum(pictures for one, pictures in given if one.codec is not None),
        "md5s": sum(one.md5s or 0 for one, _ in given),
        "ctu_sizes": sorted({one.ctu_size for one, _ in given if one.ctu_size is not None}),
    }


def codecs(store: Store, split: str) -> list[str]:
    """The codecs that coded the pictures of a split; "unknown" for given ones without a stream."""
    given = [unit.given for unit in store.units if unit.split == split and unit.given is not None]
    of_units = {one.codec or UNKNOWN_CODEC for one in given}
    return sorted(of_units) or [store.manifest.recipe.codec]


def _variants(units: Iterable[Unit]) -> dict[str, Any]:
    """How many sequences are variants; what was drawn, for how many, within which range."""
    variants = list({unit.name: unit.variant for unit in units if unit.variant is not None}.values())
    if not variants:
        return {}
    found: dict[str, Any] = {"sequences": len(variants)}
    for name in ("scale", "blur", "sharpen", "contrast", "gamma"):
        values = [getattr(one, name) for one in variants if name in one.model_fields_set]
        if values:
            found[name] = {"sequences": len(values), "range": [min(values), max(values)]}
    found["kernels"] = dict(sorted(Counter(one.kernel for one in variants if one.scale < 1).items()))
    found["linear_light"] = sum(one.linear_light and one.scale < 1 for one in variants)
    for name, is_full in (("full_range", True), ("limited_range", False)):
        found[name] = sum(one.full_range is is_full for one in variants)
    return found


def encoder_settings(units: Iterable[Unit]) -> list[dict[str, Any]]:
    """The encoder settings of a store that has several, most used first, each with the units of each split by it."""
    settings: dict[str, dict[str, Any]] = {}
    for unit in units:
        if unit.coding is not None:
            what = unit.coding.to_json()
            row = settings.setdefault(json.dumps(what, sort_keys=True), what | {"units": Counter()})
            row["units"][unit.split] += 1
    rows = sorted(settings.values(), key=lambda row: -row["units"].total())
    return [row | {"units": dict(sorted(row["units"].items()))} for row in rows]
