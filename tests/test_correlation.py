"""Correlations against SciPy, the combination against NumPy's least squares, the search against the closed form."""

import csv
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap, pearsonr

from codecnn.analysis import correlate, correlation, load_table, write_correlation
from codecnn.analysis.correlation import closed_form, combined_r, covariance_of, search
from codecnn.errors import MissingFileError, TableError

QPS = (22, 27, 32, 37)


def _table(seed=0, pictures=12, ctus=20, on_qp=1.0, on_depth=4.0, noise=6.0, qps=QPS):
    """CTUs of pictures coded at each QP: the MSE rises with QP and depth, depth falls with QP, pictures differ."""
    rng = np.random.default_rng(seed)
    picture, qp = (x.ravel() for x in np.meshgrid(np.arange(pictures), np.repeat(qps, ctus), indexing="ij"))
    depth = np.clip(3.5 - 0.05 * qp + rng.normal(0, 0.8, qp.shape), 0, None)
    own = rng.normal(0, noise, pictures)[picture]
    mse = np.abs(on_qp * qp + on_depth * depth + own + rng.normal(0, noise, qp.shape))
    return {"sequence": picture.astype(str), "qp": qp, "depth_mean": depth, "mse_y": mse}


def _lstsq(table):
    """Multiple correlation and slopes by NumPy's least squares over the rows."""
    x = np.stack([np.ones(len(table["qp"])), table["qp"], table["depth_mean"]], axis=1)
    slopes = np.linalg.lstsq(x, table["mse_y"])[0]
    return slopes[1], slopes[2], pearsonr(x @ slopes, table["mse_y"]).statistic


def _covariance(table):
    return covariance_of(np.stack([table[name] for name in ("qp", "depth_mean", "mse_y")], axis=1).astype(float))


@pytest.fixture(scope="module")
def usual():
    table = _table()
    return table, correlate(table)


@pytest.fixture
def quick(monkeypatch):
    """A search of few steps, for what does not depend on it."""
    monkeypatch.setattr(correlation, "_STEPS", 1)


def test_pearson_equals_scipy(usual):
    table, result = usual
    for name, column in (("qp", "qp"), ("depth", "depth_mean")):
        assert result["pearson"][name] == pytest.approx(pearsonr(table[column], table["mse_y"]).statistic, abs=1e-12)
    assert result["qp_depth"] == pytest.approx(pearsonr(table["qp"], table["depth_mean"]).statistic, abs=1e-12)
    assert result["n"] == len(table["qp"]) == 960
    assert list(result["per_qp"]) == [str(qp) for qp in QPS]
    for qp in QPS:
        rows = table["qp"] == qp
        expected = pearsonr(table["depth_mean"][rows], table["mse_y"][rows]).statistic
        assert result["per_qp"][str(qp)] == {"n": 240, "depth": pytest.approx(expected, abs=1e-12)}


def test_closed_form_equals_least_squares(usual):
    table, result = usual
    slope_qp, slope_depth, r = _lstsq(table)
    assert result["closed_form"]["r"] == pytest.approx(r, abs=1e-9)
    assert result["ratio"] == pytest.approx(slope_qp / slope_depth, rel=1e-9)
    assert result["closed_form"]["b"] == 1
    assert result["closed_form"]["a"] == result["ratio"] < 1
    assert not result["closed_form"]["outside_box"]


def test_swapped_columns_give_the_inverse(usual):
    """QP and depth play different parts: exchanging them exchanges every figure."""
    table, result = usual
    swapped = correlate({**table, "qp": table["depth_mean"].round(1), "depth_mean": table["qp"]})
    assert swapped["pearson"]["depth"] == pytest.approx(result["pearson"]["qp"], abs=1e-12)
    assert swapped["pearson"]["qp"] == pytest.approx(result["pearson"]["depth"], abs=0.01)
    assert swapped["ratio"] == pytest.approx(1 / result["ratio"], rel=0.05)
    assert abs(result["pearson"]["qp"] - result["pearson"]["depth"]) > 0.1


def test_the_notebook_shape_of_result(usual):
    result = usual[1]
    assert {"n", "pearson", "per_qp", "bayes", "bayes_b1", "closed_form", "ci95"} <= set(result)
    assert {"a", "b", "r"} <= set(result["bayes"])
    assert {"a", "r"} <= set(result["bayes_b1"])
    assert result["bayes"]["reached_closed_form"]
    assert result["bayes"]["a"] / result["bayes"]["b"] == pytest.approx(result["ratio"], rel=0.02)
    assert result["bayes_b1"]["a"] == pytest.approx(result["ratio"], rel=0.02)
    json.dumps(result, allow_nan=False)


def test_same_seed_same_result(quick):
    table = _table(pictures=4)
    result, again, other = correlate(table), correlate(table), correlate(table, seed=1)
    assert again == result
    assert other["ci95"] != result["ci95"]
    assert other["closed_form"] == result["closed_form"]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.floats(-3, 3),
    st.floats(-9, 9),
    st.floats(0.1, 20),
    st.sampled_from([1.0, 0.01, 30.0]),
)
def test_closed_form_on_any_table(seed, on_qp, on_depth, noise, scale):
    table = _table(seed, 6, 5, on_qp, on_depth, noise)
    table["depth_mean"] = table["depth_mean"] * scale
    a, b, r = closed_form(_covariance(table))
    slope_qp, slope_depth, expected = _lstsq(table)
    assert r == pytest.approx(expected, abs=1e-8)
    assert max(abs(a), abs(b)) == pytest.approx(1)
    assert a * slope_depth == pytest.approx(b * slope_qp, rel=1e-6, abs=1e-9)
    assert math.copysign(1, a) == math.copysign(1, slope_qp)
    together = a * table["qp"] + b * table["depth_mean"]
    assert r == pytest.approx(pearsonr(together, table["mse_y"]).statistic, abs=1e-8)
    # No other combination does better.
    angles = np.linspace(0, np.pi, 200)
    assert np.abs(combined_r(_covariance(table), np.cos(angles), np.sin(angles))).max() <= r + 1e-12


def test_search_reaches_the_closed_form_on_30_tables():
    rng = np.random.default_rng(7)
    reached = 0
    for seed in range(30):
        covariance = _covariance(_table(seed, 6, 10, rng.uniform(0.2, 3), rng.uniform(1, 9), rng.uniform(2, 12)))
        a, b, r = closed_form(covariance)
        assert min(a, b) > 0
        found = search(covariance, seed)
        assert 0 <= min(found[:2]) <= max(found[:2]) <= 1
        assert found[2] == pytest.approx(combined_r(covariance, *found[:2]), abs=1e-12)
        assert found[2] <= r + 1e-12
        reached += r - found[2] <= 1e-4
    assert reached == 30


def test_search_with_b_1_and_a_tiny_ratio():
    table = _table(3)
    table["depth_mean"] = table["depth_mean"] / 500
    covariance = _covariance(table)
    a, b, r = closed_form(covariance)
    assert a < 0.002
    assert b == 1
    for found in (search(covariance, 0), search(covariance, 0, b=1.0)):
        assert found[2] == pytest.approx(r, abs=1e-4)
    assert search(covariance, 0, b=1.0)[1] == 1


def test_closed_form_outside_the_box_is_said():
    result = correlate(_table(on_qp=2, on_depth=-6, noise=3))
    assert result["closed_form"]["outside_box"]
    assert result["ratio"] < 0
    assert not result["bayes"]["reached_closed_form"]
    # The best inside the box is QP alone.
    assert result["bayes"]["r"] == pytest.approx(result["pearson"]["qp"], abs=1e-6)
    assert any("outside the search's box" in note for note in result["notes"])


def test_both_signs_negative():
    result = correlate(_table(on_qp=-2, on_depth=-6, noise=3) | {"mse_y": -_table(on_qp=2, on_depth=6)["mse_y"] + 200})
    assert max(result["closed_form"]["a"], result["closed_form"]["b"]) < 0
    assert min(result["closed_form"]["a"], result["closed_form"]["b"]) == -1
    assert result["closed_form"]["r"] > 0 > result["bayes"]["r"]


def test_ctu_interval_equals_scipys_bootstrap(usual):
    table, result = usual
    pair = (table["depth_mean"], table["mse_y"])
    theirs = bootstrap(
        pair, lambda x, y: pearsonr(x, y).statistic, paired=True, vectorized=False, n_resamples=1000,
        method="percentile", rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert result["ci95"]["by_ctu"]["pearson"]["depth"] == pytest.approx(list(theirs), abs=0.012)


def test_picture_interval_equals_a_plain_loop(usual):
    table, result = usual
    rng = np.random.default_rng(5)
    names = np.unique(table["sequence"])
    rows = {name: np.flatnonzero(table["sequence"] == name) for name in names}
    drawn = []
    for _ in range(1000):
        chosen = np.concatenate([rows[name] for name in rng.choice(names, len(names))])
        drawn.append(_lstsq({key: table[key][chosen] for key in ("qp", "depth_mean", "mse_y")})[2])
    low, high = np.percentile(drawn, [2.5, 97.5])
    found = result["ci95"]["by_picture"]
    assert found["pictures"] == 12
    assert found["closed_form"]["r"] == pytest.approx([low, high], abs=0.02)
    # Pictures differ, so a sample of pictures tells less than as many independent CTUs would.
    ours = result["ci95"]["by_ctu"]["closed_form"]["r"]
    assert found["closed_form"]["r"][1] - found["closed_form"]["r"][0] > 1.5 * (ours[1] - ours[0])


def test_long_tables_keep_their_interval(quick):
    """Above 4096 groups they are put together at random; the width stays that of n rows, 1.96 (1 - r²) / √n."""
    rng = np.random.default_rng(0)
    n = 60_000
    # Rows in order of depth: an interval over groups of neighbours would be far too wide.
    depth, qp = np.sort(rng.normal(0, 1, n)), rng.choice(QPS, n)
    mse = depth + rng.normal(0, 1, n)
    r = pearsonr(depth, mse).statistic
    low, high = correlate({"qp": qp, "depth_mean": depth, "mse_y": mse})["ci95"]["by_ctu"]["pearson"]["depth"]
    assert low < r < high
    assert high - low == pytest.approx(2 * 1.96 * (1 - r**2) / math.sqrt(n), rel=0.12)


def test_what_counts_as_a_picture(quick):
    table = _table(pictures=4)
    n = len(table["qp"])
    with_poc = {**table, "poc": np.arange(n) % 2}
    assert correlate(with_poc)["ci95"]["by_picture"]["pictures"] == 8
    units = np.char.add(np.char.add(table["sequence"], "_"), table["qp"].astype(str))
    by_unit = correlate({key: table[key] for key in ("qp", "depth_mean", "mse_y")} | {"unit": units})
    assert by_unit["ci95"]["by_picture"]["pictures"] == 16
    assert any("each unit counts" in note for note in by_unit["notes"])
    # With the sequence there the unit does not matter.
    assert correlate(table | {"unit": units})["ci95"]["by_picture"]["pictures"] == 4
    nameless = correlate({key: table[key] for key in ("qp", "depth_mean", "mse_y")})
    assert nameless["ci95"]["by_picture"] is None
    assert any("none of the columns picture, group, sequence, unit" in note for note in nameless["notes"])
    assert correlate(_table(pictures=2))["ci95"]["by_picture"] is None


def test_rows_without_depth_are_dropped_and_counted(quick):
    table = _table()
    depth = table["depth_mean"].copy()
    depth[::5] = np.nan
    kept = np.ones(len(depth), bool)
    kept[::5] = False
    expected = correlate({key: value[kept] for key, value in table.items()})
    result = correlate(table | {"depth_mean": depth})
    assert result["dropped"] == 192
    assert result["notes"] == ["192 of 960 rows have no depth and were left out"]
    assert {**result, "dropped": 0, "notes": []} == expected
    arrow = pa.table({**table, "depth_mean": pa.array(depth, from_pandas=True)})
    assert correlate(arrow) == result


def test_a_single_qp_still_has_its_depth():
    table = _table(qps=(32,))
    result = correlate(table)
    expected = pearsonr(table["depth_mean"], table["mse_y"]).statistic
    assert result["per_qp"]["32"]["depth"] == result["pearson"]["depth"] == pytest.approx(expected, abs=1e-12)
    assert result["pearson"]["qp"] is result["closed_form"]["r"] is result["bayes"]["r"] is result["ratio"] is None
    assert result["ci95"]["by_ctu"]["pearson"]["qp"] is None
    assert result["ci95"]["by_ctu"]["pearson"]["depth"][0] < expected < result["ci95"]["by_ctu"]["pearson"]["depth"][1]
    assert any("all rows have QP 32" in note for note in result["notes"])


def test_constant_depth_and_small_qps_are_noted(quick):
    table = _table()
    result = correlate(table | {"depth_mean": np.full(len(table["qp"]), 0.1)})
    assert result["pearson"]["depth"] is result["closed_form"]["a"] is None
    assert result["pearson"]["qp"] == pytest.approx(pearsonr(table["qp"], table["mse_y"]).statistic, abs=1e-12)
    assert any("all rows have depth 0.1" in note for note in result["notes"])
    qp = table["qp"].copy()
    qp[:2] = 40
    few = correlate(table | {"qp": qp})
    assert few["per_qp"]["40"] == {"n": 2, "depth": None}
    assert "no correlation with depth at QP 40: only 2 rows" in few["notes"]


def test_proportional_columns_have_the_correlation_of_one(quick):
    table = _table()
    result = correlate(table | {"depth_mean": table["qp"] / 10})
    assert result["closed_form"]["r"] == pytest.approx(result["pearson"]["qp"], abs=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mse_y": None}, "no column mse_y, only sequence, qp, depth_mean"),
        ({"depth_mean": np.full(960, np.nan)}, "the table has no depth: build the store with vvc or hevc"),
        ({"depth_mean": [None] * 960}, "the table has no depth"),
        ({"mse_y": np.full(960, 3.5)}, "mse_y is 3.5 in all rows"),
        ({"mse_y": np.r_[np.nan, np.ones(959)]}, "column mse_y is empty, NaN or infinite in 1 of 960 rows"),
        ({"qp": np.r_[np.inf, np.ones(959)]}, "column qp is empty"),
        ({"depth_mean": np.r_[np.inf, np.ones(959)]}, "column depth_mean is empty"),
        ({"depth_mean": np.r_[1, 2, np.full(958, np.nan)]}, "at least 3 rows with a depth, the table has 2"),
        ({"mse_y": np.ones(5)}, "columns differ in length: qp 960, depth_mean 960, mse_y 5"),
        ({"sequence": ["a", "b"]}, "columns differ in length: sequence 2, qp 960"),
        ({"mse_y": ["high"] * 960}, "column mse_y holds values that are no numbers"),
    ],
)
def test_what_cannot_be_correlated(change, message, quick):
    table = {key: value for key, value in (_table() | change).items() if value is not None}
    with pytest.raises(TableError, match=message):
        correlate(table)


def test_empty_table():
    with pytest.raises(TableError, match="the table has 0"):
        correlate({"qp": [], "depth_mean": [], "mse_y": []})


def test_load_table_from_store_parquet_and_csv(tmp_path, quick):
    table = _table(pictures=3)
    depth = pa.array(np.r_[np.nan, table["depth_mean"][1:]], from_pandas=True)
    arrow = pa.table({**table, "depth_mean": depth, "poc": np.zeros(len(depth), int), "x": np.zeros(len(depth))})
    store = tmp_path / "store"
    store.mkdir()
    pq.write_table(arrow, store / "ctus.parquet")
    pq.write_table(arrow, tmp_path / "t.parquet")
    pa.csv.write_csv(arrow, tmp_path / "t.csv")
    expected = correlate(arrow)
    assert expected["dropped"] == 1
    for path in (store, tmp_path / "t.parquet", str(tmp_path / "t.csv")):
        columns = load_table(path)
        assert set(columns) == {"sequence", "qp", "depth_mean", "mse_y", "poc"}
        assert correlate(columns) == expected


def test_a_store_without_depths(tmp_path):
    table = _table(pictures=3)
    arrow = pa.table({**table, "depth_mean": pa.nulls(len(table["qp"]))})
    pq.write_table(arrow, tmp_path / "ctus.parquet")
    with pytest.raises(TableError, match="no depth"):
        correlate(load_table(tmp_path))


def test_load_table_refusals(tmp_path):
    with pytest.raises(MissingFileError, match=r"none\.csv does not exist"):
        load_table(tmp_path / "none.csv")
    with pytest.raises(MissingFileError, match="not a finished store"):
        load_table(tmp_path)
    (tmp_path / "t.txt").write_text("qp")
    with pytest.raises(TableError, match=r"t\.txt is not a table"):
        load_table(tmp_path / "t.txt")
    (tmp_path / "t.parquet").write_text("nothing")
    with pytest.raises(TableError, match=r"t\.parquet cannot be read"):
        load_table(tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("")
    with pytest.raises(TableError, match=r"t\.csv cannot be read"):
        load_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("qp,depth_mean\n22,1\n")
    with pytest.raises(TableError, match="no column mse_y"):
        correlate(load_table(tmp_path / "t.csv"))


def test_report_files(usual, tmp_path):
    table, result = usual
    files = write_correlation(tmp_path / "out", result, table)
    names = {"correlation.json", "correlation.md", "correlation.csv", "depth_mse.png", "combination.png"}
    assert {path.name for path in files} == {path.name for path in (tmp_path / "out").iterdir()} == names
    written = json.loads((tmp_path / "out/correlation.json").read_text())
    assert written.pop("provenance")["codecnn"]
    assert written == json.loads(json.dumps(result))
    markdown = (tmp_path / "out/correlation.md").read_text()
    for figure in ("0.5476", "0.1886", "0.5369", "0.4024", "0.5617", "0.6722", "0.2817", "0.8561", "0.6748", "0.3290"):
        assert f"| {figure} |" in markdown
    row = next(line for line in markdown.splitlines() if line.startswith("| Pearson(depth, MSE) at QP 37 |"))
    assert row == f"| Pearson(depth, MSE) at QP 37 | {result['per_qp']['37']['depth']:.4f} |  | 0.6722 |"
    with (tmp_path / "out/correlation.csv").open() as file:
        rows = {row["quantity"]: row for row in csv.DictReader(file)}
    low, high = result["ci95"]["by_picture"]["closed_form"]["r"]
    assert float(rows["closed form: r"]["value"]) == result["closed_form"]["r"]
    assert (float(rows["closed form: r"]["ci95_low"]), float(rows["closed form: r"]["ci95_high"])) == (low, high)
    for name in ("depth_mse.png", "combination.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "table",
    [
        _table(qps=(22,)),
        _table() | {"depth_mean": np.zeros(960)},
        _table(on_qp=2, on_depth=-6, noise=3),
        _table(pictures=3, ctus=3, qps=tuple(range(20, 33))),
        _table(pictures=1, ctus=3) | {"mse_y": np.r_[np.zeros(11), 1]},
    ],
    ids=["one QP", "no depth variation", "outside the box", "13 QPs", "MSE mostly 0"],
)
def test_report_of_odd_tables(table, tmp_path, quick):
    result = correlate(table)
    files = write_correlation(tmp_path, result, pa.table(table))
    assert all(path.stat().st_size > 0 for path in files)
    assert ("combination.png" in {path.name for path in files}) == (result["ratio"] is not None)
    for note in result["notes"]:
        assert f"- {note}" in (tmp_path / "correlation.md").read_text()
