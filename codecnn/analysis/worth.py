"""Where a filter is worth it: error and gain by QP and by quarters of depth."""

from typing import Any

import numpy as np

from codecnn.analysis.table import CtuTable

QUARTERS = (0.25, 0.5, 0.75)


def worth(ctus: CtuTable) -> list[dict[str, Any]]:
    """One row a QP and quarter of its CTUs by depth, the shallowest first; equal depths stay together, so there may be
    fewer than four.

    Each has the QP, CTUs, lowest and highest depth (splits), mean MSE (sample²); where a filter's
    gain is known its mean (dB), and "saved_share", the part of the QP's saved squared error (CTUs weighted alike).
    """
    depth, rows = ctus.columns["depth_mean"], []
    saved, gain = ctus.columns.get("mse_saved"), ctus.columns.get("gain_db")
    for qp in range(len(ctus.qps)):
        at_qp = np.flatnonzero(ctus.qp_index == qp)
        edges = np.unique(np.quantile(depth[at_qp], QUARTERS, method="higher"))
        quarter = np.searchsorted(edges, depth[at_qp], side="right")
        total = None if saved is None else float(np.nansum(saved[at_qp]))
        for chosen in (at_qp[quarter == number] for number in np.unique(quarter)):
            row: dict[str, Any] = {
                "qp": ctus.qp_name(qp),
                "n": len(chosen),
                "depth": [float(depth[chosen].min()), float(depth[chosen].max())],
                "mse_y": float(ctus.columns["mse_y"][chosen].mean()),
            }
            if gain is not None and np.isfinite(gain[chosen]).any():
                row["gain_db"] = float(np.nanmean(gain[chosen]))
            if saved is not None and total:
                row["saved_share"] = float(np.nansum(saved[chosen])) / total
            rows.append(row)
    return rows
