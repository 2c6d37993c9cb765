"""Coefficients against SciPy and least-squares residuals; contents of a table, its notes and its errors."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from scipy.stats import pearsonr, spearmanr

from codecnn.analysis import check_table, combination, correlate, load_table
from codecnn.analysis.statistics import correlations, covariances, moments, spearman
from codecnn.base.errors import MissingFileError, TableError
from tests.helpers.correlation_tables import QPS, correlated, least_squares, make_table, residual_r, with_more

PREDICTORS = ("qp", "depth_mean", "depth_max", "variance", "bits")


@pytest.fixture(scope="module")
def full():
    """A table and its coefficients; the search is short, since its result is tested elsewhere."""
    table = with_more(make_table())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combination, "STEPS", 1)
        return table, correlated(table, resamples=40)


def _targets(table):
    mse, filtered = table["mse_y"], table["mse_y_filtered"]
    return {
        "mse_y": mse,
        "log_mse": np.log(mse),
        "psnr": 10 * np.log10(1020**2 / mse),
        "gain_db": 10 * np.log10(mse / filtered),
        "mse_saved": mse - filtered,
    }


@pytest.mark.parametrize("target", ["mse_y", "log_mse", "psnr", "gain_db", "mse_saved"])
@pytest.mark.parametrize("rows", ["all", "22", "37"])
def test_coefficients_equal_scipy(full, target, rows):
    table, result = full
    chosen = np.ones(960, bool) if rows == "all" else table["qp"] == int(rows)
    y = _targets(table)[target][chosen]
    coefficients = result["targets"][target]["rows"][rows]
    assert (coefficients["n"], coefficients["pictures"]) == (chosen.sum(), 12)
    names = [*PREDICTORS, *(["mse_y"] if target in ("gain_db", "mse_saved") else [])]
    assert set(coefficients) == {"n", "pictures", *(name for name in names if rows == "all" or name != "qp")}
    for name in (name for name in names if name in coefficients):
        x = table[name][chosen]
        assert coefficients[name]["pearson"] == pytest.approx(pearsonr(x, y).statistic, abs=1e-10)
        assert coefficients[name]["spearman"] == pytest.approx(spearmanr(x, y).statistic, abs=1e-10)
        given_columns = [table[other][chosen] for other in PREDICTORS if other != name]
        given_columns = [other for other in given_columns if np.ptp(other) > 0]
        assert coefficients[name]["partial_all"] == pytest.approx(residual_r(x, y, given_columns), abs=1e-8)
        if rows == "all":
            given = table["depth_mean" if name == "qp" else "qp"]
            assert coefficients[name]["partial"] == pytest.approx(residual_r(x, y, [given]), abs=1e-8)
        else:
            assert coefficients[name]["partial"] is None


@pytest.mark.parametrize("target", ["mse_y", "log_mse", "gain_db", "mse_saved"])
def test_best_combination_of_each_target(full, target):
    table, result = full
    slope_qp, slope_depth, r = least_squares(table | _targets(table), target)
    coefficients = result["targets"][target]["combination"]
    assert coefficients["r"] == pytest.approx(r, abs=1e-9)
    assert coefficients["ratio"] == pytest.approx(slope_qp / slope_depth, rel=1e-7)
    assert (coefficients["a"] > 0, coefficients["b"] > 0) == (slope_qp > 0, slope_depth > 0)


def test_main_figures_are_those_of_the_mse(full):
    table, result = full
    rows = result["targets"]["mse_y"]["rows"]
    for kind in ("pearson", "spearman", "partial"):
        assert result[kind] == {"qp": rows["all"]["qp"][kind], "depth": rows["all"]["depth_mean"][kind]}
    assert result["qp_depth"] == pytest.approx(pearsonr(table["qp"], table["depth_mean"]).statistic, abs=1e-12)
    assert list(result["per_qp"]) == [str(qp) for qp in QPS]
    for qp in QPS:
        mse = table["mse_y"][table["qp"] == qp]
        assert result["per_qp"][str(qp)]["depth"] == rows[str(qp)]["depth_mean"]["pearson"]
        assert result["per_qp"][str(qp)]["mean_mse_y"] == pytest.approx(mse.mean())
        assert result["per_qp"][str(qp)]["deviation_mse_y"] == pytest.approx(mse.std())
    assert {"n", "pearson", "per_qp", "bayes", "bayes_b1", "closed_form", "ci95"} <= set(result)
    json.dumps(result, allow_nan=False)


def test_spearman_with_ties():
    rng = np.random.default_rng(3)
    qp_index = rng.integers(0, 3, 5000)
    columns = [rng.integers(-4, 5, 5000) * 1.0, rng.normal(0, 1e3, 5000), np.exp(rng.normal(0, 9, 5000))]
    columns[2] += columns[0] * 100
    columns[0][:50] = -0.0  # which equals 0.0
    exact = spearman(columns, qp_index, 3)
    assert exact[0] == pytest.approx(spearmanr(np.stack(columns, axis=1)).statistic, abs=1e-12)
    for qp in range(3):
        rows = np.stack(columns, axis=1)[qp_index == qp]
        assert exact[1][qp] == pytest.approx(spearmanr(rows).statistic, abs=1e-12)


def test_ranks_of_hostile_values():
    """Values of both signs that differ in the last bits only, tiny and huge ones, and ties."""
    rng = np.random.default_rng(0)
    close = 1 + rng.permutation(3000) * 2.0**-52
    values = np.r_[close, -close, close * 1e300, -close * 1e-300, 0.0, -0.0, rng.integers(-3, 4, 500)]
    rng.shuffle(values)
    exact = spearman([values, np.arange(len(values)) * 1.0], np.zeros(len(values), int), 1)
    assert exact[0][0, 1] == pytest.approx(spearmanr(values, np.arange(len(values))).statistic, abs=1e-12)
    assert np.array_equal(exact[0], exact[1][0])


def test_moments_of_columns_far_from_zero():
    """Deviations of 1e-3 around 1e6 with another mean at each QP, which plain sums of squares would lose."""
    rng = np.random.default_rng(0)
    qp, groups = rng.integers(0, 3, 600), rng.integers(0, 7, 600)
    x = 1e6 + 10 * qp + rng.normal(0, 1e-3, 600)
    y = x + rng.normal(0, 1e-3, 600)
    table = moments([x, y, np.full(600, 0.1)], qp, 3, groups)
    for index in range(3):
        rows = qp == index
        r = correlations(covariances(table.cells[:, index].sum(axis=0)))
        assert r[0, 1] == pytest.approx(pearsonr(x[rows] - 1e6, y[rows] - 1e6).statistic, abs=1e-6)
        assert np.isnan(r[2, 2])
    sums, deviation = table.over_all()
    r = correlations(covariances(sums.sum(axis=0)))
    assert r[0, 1] == pytest.approx(pearsonr(x - 1e6, y - 1e6).statistic, abs=1e-9)
    assert deviation == pytest.approx([x.std(), y.std(), 0], rel=1e-6)
    # The sums of a subset of groups are those of its rows.
    subset = np.isin(groups, (1, 4))
    part = correlations(covariances(sums[[1, 4]].sum(axis=0)))[0, 1]
    assert part == pytest.approx(pearsonr(x[subset] - 1e6, y[subset] - 1e6).statistic, abs=1e-9)


def test_gain_is_undefined_in_rows_without_error(quick):
    table = with_more(make_table(pictures=5))
    table["mse_y"][:7] = 0
    table["mse_y_filtered"][:7] = 0
    result = correlated(table, resamples=20)
    kept = np.arange(400) >= 7
    targets = result["targets"]
    assert targets["mse_y"]["rows"]["all"]["n"] == targets["mse_saved"]["rows"]["all"]["n"] == 400
    y = 10 * np.log10(table["mse_y"][kept] / table["mse_y_filtered"][kept])
    gained = targets["gain_db"]["rows"]["all"]
    assert gained["n"] == targets["log_mse"]["rows"]["all"]["n"] == targets["psnr"]["rows"]["all"]["n"] == 393
    assert gained["depth_mean"]["pearson"] == pytest.approx(pearsonr(table["depth_mean"][kept], y).statistic, abs=1e-10)
    logarithm = targets["log_mse"]["rows"]["all"]["depth_mean"]
    expected = spearmanr(table["depth_mean"][kept], table["mse_y"][kept]).statistic
    assert logarithm["spearman"] == pytest.approx(expected, abs=1e-10)
    assert "gain_db is not defined in 7 of 400 rows, which its figures leave out" in result["notes"]
    given = correlated({**table, "gain_db": np.arange(400.0)}, resamples=0)["targets"]["gain_db"]["rows"]["all"]
    assert given["depth_mean"]["pearson"] == pytest.approx(pearsonr(table["depth_mean"], np.arange(400)).statistic)


def test_gain_by_quarters_of_depth(full):
    table, result = full
    gain = 10 * np.log10(table["mse_y"] / table["mse_y_filtered"])
    saved = table["mse_y"] - table["mse_y_filtered"]
    rows = [row for row in result["worth"] if row["qp"] == "32"]
    assert [row["n"] for row in rows] == [60, 60, 60, 60]
    order = np.flatnonzero(table["qp"] == 32)
    order = order[np.argsort(table["depth_mean"][order])]
    for row, chosen in zip(rows, np.split(order, 4), strict=True):
        assert row["depth"] == [table["depth_mean"][chosen[0]], table["depth_mean"][chosen[-1]]]
        assert row["mse_y"] == pytest.approx(table["mse_y"][chosen].mean())
        assert row["gain_db"] == pytest.approx(gain[chosen].mean())
        assert row["saved_share"] == pytest.approx(saved[chosen].sum() / saved[order].sum())


def test_rows_without_depth_are_excluded_and_counted(quick):
    table = make_table()
    depth = table["depth_mean"].copy()
    depth[::5] = np.nan
    kept = ~np.isnan(depth)
    expected = correlated({key: value[kept] for key, value in table.items()}, resamples=20)
    result = correlated(table | {"depth_mean": depth}, resamples=20)
    assert result["dropped"] == 192
    assert result["notes"] == ["192 of 960 rows have no depth and were left out"]
    assert {**result, "dropped": 0, "notes": []} == expected
    arrow = pa.table({**table, "depth_mean": pa.array(depth, from_pandas=True)})
    assert correlated(arrow, resamples=20) == result


def test_table_of_a_single_qp(quick):
    table = make_table(qps=(32,))
    result = correlated(table, resamples=50)
    expected = pearsonr(table["depth_mean"], table["mse_y"]).statistic
    assert result["per_qp"]["32"]["depth"] == result["pearson"]["depth"] == pytest.approx(expected, abs=1e-12)
    assert result["pearson"]["qp"] is result["closed_form"]["r"] is result["bayes"]["r"] is result["ratio"] is None
    assert result["suppressor"] is result["held_out"] is result["ci95"]["by_ctu"]["pearson"]["qp"] is None
    low, high = result["ci95"]["by_ctu"]["pearson"]["depth"]
    assert low < expected < high
    assert any("all rows have QP 32" in note for note in result["notes"])


def test_constant_columns_and_small_qps_are_noted(quick):
    table = make_table()
    result = correlated(table | {"depth_mean": np.full(960, 0.1), "depth_max": np.full(960, 2)}, resamples=10)
    assert result["pearson"]["depth"] is result["closed_form"]["a"] is None
    assert result["pearson"]["qp"] == pytest.approx(pearsonr(table["qp"], table["mse_y"]).statistic, abs=1e-12)
    assert any("all rows have depth 0.1" in note for note in result["notes"])
    assert "column depth_max is 2 in all rows and was left out" in result["notes"]
    qp = table["qp"].copy()
    qp[:2] = 40
    few = correlated(table | {"qp": qp}, resamples=10)
    assert (few["per_qp"]["40"]["n"], few["per_qp"]["40"]["depth"]) == (2, None)
    assert "no correlation with depth at QP 40: only 2 rows" in few["notes"]
    empty = correlated(table | {"bits": [None] * 960}, resamples=0)
    assert "column bits is empty, NaN or infinite in 960 of 960 rows and was left out" in empty["notes"]
    assert "bits" not in empty["targets"]["mse_y"]["rows"]["all"]


def test_columns_that_identify_pictures(quick):
    table = make_table(pictures=4)
    n = len(table["qp"])
    bare = {key: table[key] for key in ("qp", "depth_mean", "mse_y")}
    assert correlated({**table, "poc": np.arange(n) % 2}, resamples=5)["pictures"] == 8
    units = np.char.add(np.char.add(table["sequence"], "_"), table["qp"].astype(str))
    by_unit = correlated(bare | {"unit": units}, resamples=5)
    assert by_unit["ci95"]["by_picture"]["pictures"] == 16
    assert any("each unit counts" in note for note in by_unit["notes"])
    # The column sequence takes precedence over unit.
    assert correlated(table | {"unit": units}, resamples=5)["pictures"] == 4
    nameless = correlated(bare, resamples=5)
    assert nameless["ci95"]["by_picture"] is nameless["pictures"] is nameless["held_out"] is None
    assert any("none of the columns picture, group, sequence, unit" in note for note in nameless["notes"])
    assert correlated(make_table(pictures=2), resamples=5)["ci95"]["by_picture"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mse_y": None}, "no column mse_y, only sequence, qp, depth_mean"),
        (
            {"depth_mean": np.full(960, np.nan)},
            "the table has no depth: build the store with a codec",
        ),
        ({"depth_mean": [None] * 960}, "the table has no depth"),
        ({"mse_y": np.full(960, 3.5)}, "mse_y is 3.5 in all rows"),
        ({"mse_y": np.r_[np.nan, np.ones(959)]}, "column mse_y is empty, NaN or infinite in 1 of 960 rows"),
        ({"mse_y": np.r_[-1, np.ones(959)]}, "column mse_y holds -1, and no mean square is negative"),
        ({"mse_y_filtered": np.r_[-1, np.ones(959)]}, "column mse_y_filtered holds -1"),
        ({"qp": np.r_[np.inf, np.ones(959)]}, "column qp is empty"),
        ({"qp": np.arange(960)}, "column qp holds 960 different values"),
        ({"depth_mean": np.r_[np.inf, np.ones(959)]}, "column depth_mean is empty"),
        ({"depth_mean": np.r_[1, 2, np.full(958, np.nan)]}, "at least 3 rows with a depth, the table has 2"),
        ({"mse_y": np.ones(5)}, "columns differ in length: qp 960, mse_y 5"),
        ({"variance": np.ones(5)}, "columns differ in length: qp 960, variance 5"),
        ({"sequence": ["a", "b"]}, "columns differ in length: qp 960, sequence 2"),
        ({"mse_y": ["high"] * 960}, "column mse_y holds values that are no numbers"),
        ({"bits": ["few"] * 960}, "column bits holds values that are no numbers"),
        ({"sequence": None, "qp": [], "depth_mean": [], "mse_y": []}, "the table has 0"),
    ],
)
def test_invalid_tables_are_refused(change, message):
    table = {key: value for key, value in (make_table() | change).items() if value is not None}
    with pytest.raises(TableError, match=message):
        correlated(table)


def test_rows_of_several_bit_depths_are_refused():
    """An MSE at 10 bits is 16 times that at 8 bits; psnr_y reveals the bit depth with either definition of the peak."""
    table = make_table()
    ten = np.arange(960) % 2 == 1
    mse = np.where(ten, 16.0, 1.0) * table["mse_y"]
    for peaks in ((255, 1020), (255, 1023)):
        psnr = 10 * np.log10(np.where(ten, peaks[1], peaks[0]) ** 2 / mse)
        with pytest.raises(TableError, match="rows of 8 bit and of 10 bit"):
            check_table({**table, "mse_y": mse, "psnr_y": psnr})
    same = 10 * np.log10(1023**2 / table["mse_y"])
    assert len(check_table({**table, "psnr_y": same})) == 960


def test_load_table_from_store_parquet_and_csv(tmp_path, quick):
    table = with_more(make_table(pictures=3))
    depth = pa.array(np.r_[np.nan, table["depth_mean"][1:]], from_pandas=True)
    arrow = pa.table({**table, "depth_mean": depth, "poc": np.zeros(len(depth), int), "x": np.zeros(len(depth))})
    store = tmp_path / "store"
    store.mkdir()
    pq.write_table(arrow, store / "ctus.parquet")
    pq.write_table(arrow, tmp_path / "t.parquet", row_group_size=50)
    pa.csv.write_csv(arrow, tmp_path / "t.csv")
    expected = correlated(arrow, resamples=20)
    assert (expected["dropped"], expected["pictures"]) == (1, 3)
    for path in (store, tmp_path / "t.parquet", str(tmp_path / "t.csv")):
        columns = load_table(path)
        assert set(columns) == set(arrow.column_names) - {"x"}
        assert correlated(columns, resamples=20) == expected


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("none.csv", None, MissingFileError, r"none\.csv does not exist"),
        (".", None, MissingFileError, "not a finished store"),
        ("t.txt", "qp", TableError, r"t\.txt is not a table"),
        ("t.parquet", "nothing", TableError, r"t\.parquet cannot be read"),
        ("t.csv", "", TableError, r"t\.csv cannot be read"),
        ("t.csv", "qp,depth_mean,mse_y\n1,1,x\n", TableError, r"t\.csv: column mse_y holds values that are no numbers"),
    ],
)
def test_files_that_are_no_tables_are_refused(tmp_path, name, content, error, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(error, match=message):
        load_table(tmp_path / name)


def test_python_shows_a_line():
    result = correlate(make_table(pictures=3), resamples=0)
    assert repr(result).startswith(f"<Correlation of {result.n} CTUs: Pearson(QP, MSE) {result.pearson.qp:.4f}, ")
