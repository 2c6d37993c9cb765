"""What a store holds, in a few figures."""

from collections import defaultdict
from typing import Any

import numpy as np

from codecnn.dataset.store import Store, Unit


def store_stats(store: Store) -> dict[str, Any]:
    """Figures by split and QP: sequences, pictures, CTUs, bits a luma sample, mean PSNR Y (dB), mean CTU depth.

    The mean PSNR is over the units that have one, for a picture without any error has none; None where no unit has.
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
        rows_of_units = np.isin(unit_of_row, [unit.key for unit in units])
        depths = depth[rows_of_units]
        rows.append(
            {
                "split": split,
                "qp": qp,
                "sequences": len(units),
                "pictures": sum(len(unit.pictures) for unit in units),
                "ctus": int(rows_of_units.sum()),
                "bits_per_sample": sum(unit.bits for unit in units) / samples,
                "psnr_y": float(np.mean(psnrs)) if psnrs else None,
                "depth_mean": float(np.nanmean(depths)) if np.isfinite(depths).any() else None,
            }
        )
    recipe = store.manifest.recipe
    return {
        "name": recipe.name,
        "encoder": store.manifest.encoder,
        "codec": recipe.codec,
        "preset": recipe.preset,
        "configuration": recipe.configuration,
        "rows": rows,
    }
