"""Where the error lies and a filter gains: means by QP and by quarters of depth."""

import numpy as np

from codecnn.analysis._ctu_table import CtuTable
from codecnn.analysis._results import DepthQuarter

QUARTERS = (0.25, 0.5, 0.75)


def depth_quarters(ctus: CtuTable) -> list[DepthQuarter]:
    """The CTUs of each QP in quarters by depth, the shallowest first; fewer where depths are equal.

    The saved squared error that a quarter has a part of weights all CTUs alike.
    """
    depth, rows = ctus.columns["depth_mean"], []
    saved, gain = ctus.columns.get("mse_saved"), ctus.columns.get("gain_db")
    for qp in range(len(ctus.qps)):
        at_qp = np.flatnonzero(ctus.qp_index == qp)
        edges = np.unique(np.quantile(depth[at_qp], QUARTERS, method="higher"))
        quarter = np.searchsorted(edges, depth[at_qp], side="right")
        total = None if saved is None else float(np.nansum(saved[at_qp]))
        for chosen in (at_qp[quarter == number] for number in np.unique(quarter)):
            gained = gain is not None and np.isfinite(gain[chosen]).any()
            rows.append(
                DepthQuarter(
                    ctus.qp_name(qp),
                    len(chosen),
                    (float(depth[chosen].min()), float(depth[chosen].max())),
                    float(ctus.columns["mse_y"][chosen].mean()),
                    float(np.nanmean(gain[chosen])) if gain is not None and gained else None,
                    float(np.nansum(saved[chosen])) / total if saved is not None and total else None,
                )
            )
    return rows
