"""The notebook's figures: what they imply, their comparison with a table, and the measurement of real streams."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from scipy.stats import pearsonr

from codecnn.analysis import correlate
from codecnn.analysis.combination import closed_form, suppressor
from tests.helpers.correlation_tables import any_tables, covariance, make_table
from tools.research import notebook_correlation


@settings(max_examples=30, deadline=None)
@given(any_tables())
def test_implied_correlations_contain_that_of_the_data(table):
    """The r(QP, depth) of any table is one of the two that its other figures imply, and both reproduce them."""
    r = np.corrcoef(np.stack([table["qp"], table["depth_mean"], table["mse_y"]]))
    multiple = closed_form(covariance(table))[2]
    if multiple < 1e-3:
        return
    roots = notebook_correlation.implied_correlations(r[0, 2], r[1, 2], multiple)
    assert min(abs(root - r[0, 1]) for root in roots) < 1e-5
    for root in roots:
        if abs(root) < 0.999:
            assert suppressor(r[0, 2], r[1, 2], root).explained == pytest.approx(multiple**2, abs=1e-6)


def test_no_correlation_is_implied_by_inconsistent_figures():
    assert notebook_correlation.implied_correlations(0.5, 0.2, 0.4) is None


def test_correlation_implied_by_the_notebook():
    """-0.334 or +0.788; only the first is consistent with a positive b, and with a / b if depth deviates by 1.12."""
    implied = notebook_correlation.implied()
    assert implied.roots == pytest.approx([-0.334, 0.788], abs=5e-4)
    assert implied.qp_depth == implied.roots[0]
    deviation = np.array([np.std([22, 27, 32, 37]), implied.depth_deviation, 1.0])
    for root, possible in zip(implied.roots, (True, False), strict=True):
        r = np.array([[1, root, 0.5476], [root, 1, 0.1886], [0.5476, 0.1886, 1]])
        a, b, multiple = closed_form(r * np.outer(deviation, deviation))
        assert multiple == pytest.approx(0.6748, abs=1e-9)
        assert (b > 0) == possible
        if possible:
            assert a / b == pytest.approx(0.2817 / 0.8561, rel=1e-9)
            assert a / b == pytest.approx(0.3290, abs=1e-4)


def test_comparison_lists_the_notebooks_figures():
    table = make_table()
    text = notebook_correlation.compare(correlate(table, resamples=0))
    for figure in ("0.5476", "0.1886", "0.5369", "0.4024", "0.5617", "0.6722", "0.2817", "0.8561", "0.6748", "0.3290"):
        assert f"| {figure} |" in text
    combined = 0.2817 / 0.8561 * table["qp"] + table["depth_mean"]
    r = pearsonr(combined, table["mse_y"]).statistic
    assert f"| r with the notebook's a / b | {r:.4f} | 0.6748 |" in text
    assert "| Pearson(QP, depth), implied in the notebook |" in text


def test_measurement_of_a_real_stream(shared_data):
    """Depths read from a VVC stream against VTM's CUs, the error against the original."""
    streams = shared_data / "golden" / "val_vvc"
    table = notebook_correlation.measure_stream(streams / "craft_cards_QP37.266", shared_data / "images" / "val", 128)
    with pa.input_stream(str(streams / "craft_cards_QP37.cu.csv.gz"), compression="gzip") as file:
        cus = pa.csv.read_csv(file)
    columns = {name: cus[name].to_numpy() for name in ("x", "y", "w", "h", "depth")}
    assert table.num_rows == 24
    for row in table.to_pylist():
        inside = (columns["x"] // 128 * 128 == row["x"]) & (columns["y"] // 128 * 128 == row["y"])
        area = columns["w"][inside] * columns["h"][inside]
        assert row["depth_mean"] == pytest.approx(np.average(columns["depth"][inside], weights=area))
        assert row["depth_max"] == columns["depth"][inside].max()
    assert set(table["qp"].to_pylist()) == {37}
    psnr = 10 * np.log10(1020**2 / np.average(table["mse_y"], weights=np.multiply(table["w"], table["h"])))
    assert 36 < psnr < 39
