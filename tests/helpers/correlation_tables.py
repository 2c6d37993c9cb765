"""Tables of CTUs for tests of the correlation analysis, and reference statistics computed from their rows."""

import numpy as np
from hypothesis import strategies as st
from scipy.stats import pearsonr

from codecnn.analysis import correlate

QPS = (22, 27, 32, 37)


def make_table(seed=0, pictures=12, ctus=20, on_qp=1.0, on_depth=4.0, noise=6.0, qps=QPS):
    """Return CTUs of pictures coded at each QP.

    The MSE rises with QP and depth, depth falls with QP, and pictures differ.
    """
    rng = np.random.default_rng(seed)
    picture, qp = (x.ravel() for x in np.meshgrid(np.arange(pictures), np.repeat(qps, ctus), indexing="ij"))
    depth = np.clip(3.5 - 0.05 * qp + rng.normal(0, 0.8, qp.shape), 0, None)
    offset = rng.normal(0, noise, pictures)[picture]
    mse = np.abs(on_qp * qp + on_depth * depth + offset + rng.normal(0, noise, qp.shape))
    return {"sequence": picture.astype(str), "qp": qp, "depth_mean": depth, "mse_y": mse}


def any_tables():
    """Return a Hypothesis strategy of tables with weights of both signs, any noise, and depth in several units."""

    def build(seed, on_qp, on_depth, noise, scale):
        table = make_table(seed, 6, 5, on_qp, on_depth, noise)
        return table | {"depth_mean": table["depth_mean"] * scale}

    numbers = (st.integers(0, 10_000), st.floats(-3, 3), st.floats(-9, 9), st.floats(0.1, 20))
    return st.builds(build, *numbers, st.sampled_from([1.0, 0.01, 30.0]))


def with_more(table, seed=0):
    """Add all optional columns, some with ties."""
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
    """Return the content of correlation.json for a table."""
    return correlate(table, **options).as_json()


def least_squares(table, target="mse_y"):
    """Return the slopes of QP and depth and the multiple correlation, by NumPy's least squares over the rows."""
    x = np.stack([np.ones(len(table["qp"])), table["qp"], table["depth_mean"]], axis=1)
    slopes = np.linalg.lstsq(x, table[target])[0]
    return slopes[1], slopes[2], pearsonr(x @ slopes, table[target]).statistic


def residual_r(x, y, given):
    """Return the partial correlation: r of the residuals of x and y after least squares on the columns `given`."""
    base = np.stack([np.ones(len(x)), *given], axis=1).astype(float)
    return pearsonr(*(v - base @ np.linalg.lstsq(base, v)[0] for v in (np.asarray(x, float), y))).statistic


def covariance(table):
    """Return the covariances of QP, depth and MSE, shape (3, 3)."""
    return np.cov(np.stack([table[name] for name in ("qp", "depth_mean", "mse_y")]).astype(float), ddof=0)
