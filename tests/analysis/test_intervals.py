"""Intervals against SciPy's bootstrap and plain loops; the held-out check against plain least squares."""

import math

import numpy as np
import pytest
from scipy.stats import bootstrap, pearsonr, spearmanr

from codecnn.analysis.combination import held_out
from codecnn.analysis.correlation import SPEARMAN_ROWS
from codecnn.analysis.statistics import moments, resampled_spearman
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
    reference = bootstrap(pair, lambda x, y: pearsonr(x, y).statistic, rng=np.random.default_rng(1), **options)
    expected = list(reference.confidence_interval)
    assert result["ci95"]["by_ctu"]["pearson"]["depth"] == pytest.approx(expected, abs=0.012)
    interval = result["targets"]["mse_y"]["rows"]["all"]["depth_mean"]["ci95"]["by_ctu"]["pearson"]
    assert interval == pytest.approx(result["ci95"]["by_ctu"]["pearson"]["depth"], abs=1e-9)


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
    intervals, rows = result["ci95"]["by_picture"], result["targets"]["mse_y"]["rows"]
    assert intervals["pictures"] == 12
    whole = rows["all"]["depth_mean"]["ci95"]["by_picture"]
    at_37 = rows["37"]["depth_mean"]["ci95"]["by_picture"]
    computed = [intervals["closed_form"]["r"], intervals["closed_form"]["ratio"], whole["pearson"], whole["spearman"]]
    computed += [whole["partial"], at_37["pearson"], at_37["spearman"]]
    width = limits[:, 1] - limits[:, 0]
    for index, (interval, expected) in enumerate(zip(computed, limits, strict=True)):
        assert interval == pytest.approx(list(expected), abs=0.25 * width[index]), index
    # CTUs of a picture are alike, so the interval by picture is wider than that by CTU.
    by_ctu = result["ci95"]["by_ctu"]["closed_form"]["r"]
    assert width[0] > 1.3 * (by_ctu[1] - by_ctu[0])


def test_every_resample_is_ranked_anew():
    rng = np.random.default_rng(2)
    n = 150
    x, y, groups = rng.integers(0, 12, n) * 1.0, rng.normal(0, 1, n), rng.integers(0, 9, n)
    y += x / 3
    times = rng.integers(0, 3, (20, 9)).astype(float)
    resampled = resampled_spearman([x, y], times, groups)
    for row, r in zip(times, resampled, strict=True):
        rows = np.repeat(np.arange(n), row[groups].astype(int))
        assert r[0, 1] == pytest.approx(spearmanr(x[rows], y[rows]).statistic, abs=1e-12)


def test_merged_groups_keep_the_width_of_the_interval():
    """More than 4096 groups are merged at random; the width stays that of n rows, 1.96 (1 - r²) / √n."""
    rng = np.random.default_rng(0)
    n = 60_000
    # Rows are sorted by depth: merging neighbours would give a much wider interval.
    depth, qp = np.sort(rng.normal(0, 1, n)), rng.choice(QPS, n)
    mse = depth + rng.normal(0, 1, n) + 20
    r = pearsonr(depth, mse).statistic
    result = correlated({"qp": qp, "depth_mean": depth, "mse_y": mse})
    low, high = result["ci95"]["by_ctu"]["pearson"]["depth"]
    assert low < r < high
    assert high - low == pytest.approx(2 * 1.96 * (1 - r**2) / math.sqrt(n), rel=0.12)
    assert result["ci95"]["by_ctu"]["ctus"] == n
    assert result["targets"]["mse_y"]["rows"]["all"]["depth_mean"]["ci95"]["by_ctu"]["spearman"] is None
    assert f"no intervals of Spearman's r: they are for tables of up to {SPEARMAN_ROWS} rows" in result["notes"]


def test_same_seed_same_result():
    table = make_table(pictures=4)
    result, again, other = (correlated(table, seed=seed, resamples=50) for seed in (0, 0, 1))
    assert again == result
    assert other["ci95"] != result["ci95"]
    assert other["held_out"] != result["held_out"]
    assert other["closed_form"] == result["closed_form"]


def test_figures_do_not_depend_on_the_bootstrap(usual):
    table, result = usual
    bare = correlated(table, resamples=0)
    assert bare["ci95"] == {"by_picture": None, "by_ctu": None}
    for key in ("pearson", "spearman", "partial", "closed_form", "held_out", "pictures"):
        assert bare[key] == result[key]
    assert bare["targets"]["mse_y"]["rows"]["27"]["depth_mean"]["ci95"] == {}
    nameless = {key: value for key, value in table.items() if key != "sequence"}
    assert correlated(nameless, resamples=0)["pearson"] == pytest.approx(result["pearson"], abs=1e-12)


def test_held_out_pictures_by_plain_least_squares():
    """Pictures differ, so the ratio fitted on a half identifies it; it is tested on the other half."""
    table = make_table(pictures=4, noise=2)
    picture = table["sequence"].astype(int)
    names = ("qp", "depth_mean", "mse_y")
    columns = [np.asarray(table[name], float) for name in names]
    sums, deviation = moments(columns, np.unique(table["qp"], return_inverse=True)[1], 4, picture).over_all()
    result = held_out(sums, deviation, seed=0)
    expected = {}
    for first in range(4):
        for second in range(first):
            chosen = np.isin(picture, (first, second))
            here, there = ({name: np.asarray(table[name])[rows] for name in names} for rows in (chosen, ~chosen))
            slope_qp, slope_depth, r = least_squares(here)
            tested = pearsonr(slope_qp * there["qp"] + slope_depth * there["depth_mean"], there["mse_y"]).statistic
            expected[round(slope_qp / slope_depth, 6)] = (r, tested, least_squares(there)[2])
    assert len(result.halves) == 2
    for half in result.halves:
        assert (half.fitted_pictures, half.other_pictures) == (2, 2)
        values = expected[round(half.a / half.b, 6)]
        assert (half.r_fitted, half.r_other, half.best_r_other) == pytest.approx(values, abs=1e-9)
        assert max(half.a, half.b) == 1
    assert result.halves[0].r_fitted == pytest.approx(result.halves[1].best_r_other)
    # The mean over many splits equals that over all six choices of two pictures.
    assert result.mean_r_other == pytest.approx(np.mean([tested for _, tested, _ in expected.values()]), abs=0.01)
    low, high = result.middle95_r_other
    assert low == pytest.approx(min(tested for _, tested, _ in expected.values()))
    assert high == pytest.approx(max(tested for _, tested, _ in expected.values()))


def test_no_held_out_check_with_three_pictures():
    result = correlated(make_table(pictures=3), resamples=0)
    assert result["held_out"] is None
    assert any("no held-out check" in note for note in result["notes"])
