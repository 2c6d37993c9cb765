"""Tables of CTUs for the tests of the correlation analysis, and oracles that pass over their rows."""

import numpy as np
from scipy.stats import pearsonr

from codecnn.analysis import correlate

QPS = (22, 27, 32, 37)


def make_table(seed=0, pictures=12, ctus=20, on_qp=1.0, on_depth=4.0, noise=6.0, qps=QPS):
    """CTUs of pictures coded at each QP: the MSE rises with QP and depth, depth falls with QP, pictures differ."""
    rng = np.random.default_rng(seed)
    picture, qp = (x.ravel() for x in np.meshgrid(np.arange(pictures), np.repeat(qps, ctus), indexing="ij"))
    depth = np.clip(3.5 - 0.05 * qp + rng.normal(0, 0.8, qp.shape), 0, None)
    own = rng.normal(0, noise, pictures)[picture]
    mse = np.abs(on_qp * qp + on_depth * depth + own + rng.normal(0, noise, qp.shape))
    return {"sequence": picture.astype(str), "qp": qp, "depth_mean": depth, "mse_y": mse}


def with_more(table, seed=0):
    """The same with every optional column, ties among them."""
    rng = np.random.default_rng(seed)
    n = len(table["qp"])
    mse, depth = table["mse_y"], table["depth_mean"]
    return table | {
        "depth_max": np.ceil(depth + rng.random(n)),
        "variance": np.exp(depth + rng.normal(0, 0.7, n)),
        "bits": np.round(100 * depth / table["qp"] + rng.random(n)),
        "mse_y_filtered": mse * (0.98 - 0.02 * rng.random(n) * depth),
    }


def correlated(table, **options):
    """What correlation.json would hold of a table."""
    return correlate(table, **options).as_json()


def least_squares(table, target="mse_y"):
    """Multiple correlation and slopes by NumPy's least squares over the rows: slope of QP, of depth, r."""
    x = np.stack([np.ones(len(table["qp"])), table["qp"], table["depth_mean"]], axis=1)
    slopes = np.linalg.lstsq(x, table[target])[0]
    return slopes[1], slopes[2], pearsonr(x @ slopes, table[target]).statistic


def residual_r(x, y, given):
    """Partial correlation as Pearson's r of what least squares on the columns `given` leaves of x and of y."""
    base = np.stack([np.ones(len(x)), *given], axis=1).astype(float)
    return pearsonr(*(v - base @ np.linalg.lstsq(base, v)[0] for v in (np.asarray(x, float), y))).statistic


def covariance(table):
    """(3, 3) over QP, depth, MSE."""
    return np.cov(np.stack([table[name] for name in ("qp", "depth_mean", "mse_y")]).astype(float), ddof=0)
