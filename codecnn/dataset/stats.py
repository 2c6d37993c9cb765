"""What a store holds, in a few figures."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow.compute as pc

from codecnn.dataset.store import Store, Unit


def store_stats(store: Store) -> dict[str, Any]:
    """Figures by split and QP: sequences, pictures, CTUs, bits a luma sample, mean PSNR Y (dB), mean CTU depth."""
    table = store.ctus()
    counts = dict(zip(*(column.to_pylist() for column in pc.value_counts(table["unit"]).flatten()), strict=True))
    depth = table["depth_mean"].to_numpy()
    unit_of_row = np.array(table["unit"].to_pylist())
    groups: dict[tuple[str, int], list[Unit]] = defaultdict(list)
    for unit in store.units:
        groups[unit.record["split"], unit.qp].append(unit)
    rows = []
    for (split, qp), units in sorted(groups.items()):
        samples = sum(unit.format.width * unit.format.height * len(unit.record["pictures"]) for unit in units)
        depths = depth[np.isin(unit_of_row, [unit.key for unit in units])]
        rows.append(
            {
                "split": split,
                "qp": qp,
                "sequences": len(units),
                "pictures": sum(len(unit.record["pictures"]) for unit in units),
                "ctus": sum(counts[unit.key] for unit in units),
                "bits_per_sample": sum(unit.record["bits"] for unit in units) / samples,
                "psnr_y": float(np.mean([unit.record["psnr_y"] for unit in units])),
                "depth_mean": float(np.nanmean(depths)) if np.isfinite(depths).any() else None,
            }
        )
    recipe = store.manifest["recipe"]
    head = {name: recipe[name] for name in ("codec", "preset", "configuration")}
    return {"name": recipe["name"], "encoder": store.manifest["encoder"], **head, "rows": rows}
