"""Intervals against SciPy's bootstrap and plain loops over rows; pictures held out against plain least squares."""

import math

import numpy as np
import pytest
from scipy.stats import bootstrap, pearsonr, spearmanr

from codecnn.analysis import _targets as targets
from codecnn.analysis._held_out import held_out
from codecnn.analysis._moments import moments
from codecnn.analysis._ranks import resampled_spearman
from tests.helpers.correlation_tables import QPS, correlated, least_squares, make_table, residual_r

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def usual():
    table = make_table()
    return table, correlated(table)


def test_ctu_interval_equals_scipys_bootstrap(usual):
    table, result = usual
    pair = (table["depth_mean"], table["mse_y"])
    options = {"paired": True, "vectorized": False, "n_resamples": 1000, "method": "percentile"}
    found = bootstrap(pair, lambda x, y: pearsonr(x, y).statistic, rng=np.random.default_rng(1), **options)
    theirs = found.confidence_interval
    assert result["ci95"]["by_ctu"]["pearson"]["depth"] == pytest.approx(list(theirs), abs=0.012)
    found = result["targets"]["mse_y"]["rows"]["all"]["depth_mean"]["ci95"]["by_ctu"]["pearson"]
    assert found == pytest.approx(result["ci95"]["by_ctu"]["pearson"]["depth"], abs=1e-9)


def test_picture_intervals_equal_a_plain_loop(usual):
    table, result = usual
    rng = np.random.default_rng(5)
    names = np.unique(table["sequence"])
    rows = {name: np.flatnonzero(table["sequence"] == name) for name in names}
    drawn = []
    for _ in range(400):
        chosen = np.concatenate([rows[name] for name in rng.choice(names, len(names))])
        part = {key: table[key][chosen] for key in ("qp", "depth_mean", "mse_y")}
        slope_qp, slope_depth, r = least_squares(part)
        depth, mse, at_37 = part["depth_mean"], part["mse_y"], part["qp"] == 37
        figures = [r, slope_qp / slope_depth, pearsonr(depth, mse).statistic, spearmanr(depth, mse).statistic]
        figures += [residual_r(depth, mse, [part["qp"]])]
        figures += [way(depth[at_37], mse[at_37]).statistic for way in (pearsonr, spearmanr)]
        drawn.append(figures)
    limits = np.percentile(drawn, [2.5, 97.5], axis=0).T
    found, rows = result["ci95"]["by_picture"], result["targets"]["mse_y"]["rows"]
    assert found["pictures"] == 12
    whole = rows["all"]["depth_mean"]["ci95"]["by_picture"]
    at_37 = rows["37"]["depth_mean"]["ci95"]["by_picture"]
    ours = [found["closed_form"]["r"], found["closed_form"]["ratio"], whole["pearson"], whole["spearman"]]
    ours += [whole["partial"], at_37["pearson"], at_37["spearman"]]
    width = limits[:, 1] - limits[:, 0]
    for index, (mine, theirs) in enumerate(zip(ours, limits, strict=True)):
        assert mine == pytest.approx(list(theirs), abs=0.25 * width[index]), index
    # Pictures differ, so a sample of pictures tells less than as many independent CTUs would.
    by_ctu = result["ci95"]["by_ctu"]["closed_form"]["r"]
    assert width[0] > 1.3 * (by_ctu[1] - by_ctu[0])


def test_every_resample_is_ranked_anew():
    rng = np.random.default_rng(2)
    n = 150
    x, y, groups = rng.integers(0, 12, n) * 1.0, rng.normal(0, 1, n), rng.integers(0, 9, n)
    y += x / 3
    times = rng.integers(0, 3, (20, 9)).astype(float)
    found = resampled_spearman([x, y], times, groups)
    for row, r in zip(times, found, strict=True):
        rows = np.repeat(np.arange(n), row[groups].astype(int))
        assert r[0, 1] == pytest.approx(spearmanr(x[rows], y[rows]).statistic, abs=1e-12)


def test_long_tables_keep_their_interval():
    """Above 4096 groups they are put together at random; the width stays that of n rows, 1.96 (1 - r²) / √n."""
    rng = np.random.default_rng(0)
    n = 60_000
    # Rows in order of depth: an interval over groups of neighbours would be far too wide.
    depth, qp = np.sort(rng.normal(0, 1, n)), rng.choice(QPS, n)
    mse = depth + rng.normal(0, 1, n) + 20
    r = pearsonr(depth, mse).statistic
    result = correlated({"qp": qp, "depth_mean": depth, "mse_y": mse})
    low, high = result["ci95"]["by_ctu"]["pearson"]["depth"]
    assert low < r < high
    assert high - low == pytest.approx(2 * 1.96 * (1 - r**2) / math.sqrt(n), rel=0.12)
    assert result["ci95"]["by_ctu"]["ctus"] == n
    assert result["targets"]["mse_y"]["rows"]["all"]["depth_mean"]["ci95"]["by_ctu"]["spearman"] is None
    assert f"no intervals of Spearman's r: they are for tables of up to {targets.SPEARMAN_ROWS} rows" in result["notes"]


def test_same_seed_same_result():
    table = make_table(pictures=4)
    result, again, other = (correlated(table, seed=seed, resamples=50) for seed in (0, 0, 1))
    assert again == result
    assert other["ci95"] != result["ci95"]
    assert other["held_out"] != result["held_out"]
    assert other["closed_form"] == result["closed_form"]


def test_without_a_bootstrap_the_figures_are_the_same(usual):
    table, result = usual
    bare = correlated(table, resamples=0)
    assert bare["ci95"] == {"by_picture": None, "by_ctu": None}
    for key in ("pearson", "spearman", "partial", "closed_form", "held_out", "pictures"):
        assert bare[key] == result[key]
    assert bare["targets"]["mse_y"]["rows"]["27"]["depth_mean"]["ci95"] == {}
    nameless = {key: value for key, value in table.items() if key != "sequence"}
    assert correlated(nameless, resamples=0)["pearson"] == pytest.approx(result["pearson"], abs=1e-12)


def test_held_out_pictures_by_plain_least_squares():
    """Two kinds of pictures, told by the slopes that each half finds: fitted on one, tried on the other."""
    table = make_table(pictures=4, noise=2)
    picture = table["sequence"].astype(int)
    names = ("qp", "depth_mean", "mse_y")
    columns = [np.asarray(table[name], float) for name in names]
    sums, deviation = moments(columns, np.unique(table["qp"], return_inverse=True)[1], 4, picture).over_all()
    found = held_out(sums, deviation, seed=0)
    expected = {}
    for first in range(4):
        for second in range(first):
            chosen = np.isin(picture, (first, second))
            here, there = ({name: np.asarray(table[name])[rows] for name in names} for rows in (chosen, ~chosen))
            slope_qp, slope_depth, r = least_squares(here)
            tried = pearsonr(slope_qp * there["qp"] + slope_depth * there["depth_mean"], there["mse_y"]).statistic
            expected[round(slope_qp / slope_depth, 6)] = (r, tried, least_squares(there)[2])
    assert len(found.halves) == 2
    for half in found.halves:
        assert (half.fitted_pictures, half.other_pictures) == (2, 2)
        wanted = expected[round(half.a / half.b, 6)]
        assert (half.r_fitted, half.r_other, half.best_r_other) == pytest.approx(wanted, abs=1e-9)
        assert max(half.a, half.b) == 1
    assert found.halves[0].r_fitted == pytest.approx(found.halves[1].best_r_other)
    # Two of four pictures in all six ways: the mean of many splits is that of all.
    assert found.mean_r_other == pytest.approx(np.mean([tried for _, tried, _ in expected.values()]), abs=0.01)
    low, high = found.middle95_r_other
    assert low == pytest.approx(min(tried for _, tried, _ in expected.values()))
    assert high == pytest.approx(max(tried for _, tried, _ in expected.values()))


def test_no_held_out_check_with_three_pictures():
    result = correlated(make_table(pictures=3), resamples=0)
    assert result["held_out"] is None
    assert any("no held-out check" in note for note in result["notes"])
