"""Files of the correlation report, and the command `correlate`."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from scipy.stats import pearsonr
from typer.testing import CliRunner

from codecnn.analysis import correlate, write_correlation
from codecnn.base.errors import MissingFileError
from codecnn.base.outputs import RESULTS_MARK
from codecnn.cli import app
from tests.helpers.correlation_tables import covariance, make_table, with_more

pytestmark = pytest.mark.usefixtures("quick")
FILES = {"correlation.json", "correlation.md", "correlation.csv", "coefficients.csv", "worth.csv", "depth_mse.png"}
COMBINED = {"combination.png", "search.png"}


def _rows(path):
    return csv.DictReader(path.read_text().splitlines())


def test_report_files(tmp_path):
    table = with_more(make_table())
    correlation = correlate(table, resamples=30)
    files = write_correlation(tmp_path / "out", correlation, table)
    result = correlation.as_json()
    assert {path.name for path in files} == {path.name for path in (tmp_path / "out").iterdir()} == FILES | COMBINED
    written = json.loads((tmp_path / "out/correlation.json").read_text())
    assert written.pop("provenance")["codecnn"]
    assert written == json.loads(json.dumps(result))
    markdown = (tmp_path / "out/correlation.md").read_text()
    assert "notebook" not in json.dumps(result)
    assert "| notebook" not in markdown
    depth = result["targets"]["mse_y"]["rows"]["37"]["depth_mean"]
    (low, high), (low_ctu, high_ctu) = (depth["ci95"][kind]["pearson"] for kind in ("by_picture", "by_ctu"))
    row = next(line for line in markdown.splitlines() if line.startswith("| Pearson(depth, MSE) at QP 37 |"))
    limits = f"{low:.4f} to {high:.4f} | {low_ctu:.4f} to {high_ctu:.4f}"
    assert row == f"| Pearson(depth, MSE) at QP 37 | {depth['pearson']:.4f} | {limits} |"
    assert "a suppressor effect" in markdown
    rows = {row["quantity"]: row for row in _rows(tmp_path / "out/correlation.csv")}
    closed = rows["closed form: r"]
    assert float(closed["value"]) == result["closed_form"]["r"]
    interval = result["ci95"]["by_picture"]["closed_form"]["r"]
    assert [float(closed["picture_low"]), float(closed["picture_high"])] == interval
    rows = {tuple(list(row.values())[:4]): row for row in _rows(tmp_path / "out/coefficients.csv")}
    row = rows["psnr", "27", "variance", "spearman"]
    expected = result["targets"]["psnr"]["rows"]["27"]["variance"]["spearman"]
    assert (float(row["value"]), row["ctus"], row["pictures"]) == (expected, "240", "12")
    row = rows["gain_db", "all", "mse_y", "pearson"]
    limits = result["targets"]["gain_db"]["rows"]["all"]["mse_y"]["ci95"]["by_ctu"]["pearson"]
    assert [float(row["ctu_low"]), float(row["ctu_high"])] == limits
    assert len(rows) == 4 * (3 * (5 + 4 * 4) + 2 * (6 + 4 * 5))
    gains = [float(row["gain_db"]) for row in _rows(tmp_path / "out/worth.csv")]
    assert gains == [row["gain_db"] for row in result["worth"]]
    for name in ("depth_mse.png", "combination.png", "search.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    assert correlation.covariance == pytest.approx(covariance(table), rel=1e-9)


@pytest.mark.parametrize(
    "table",
    [
        make_table(qps=(22,)),
        make_table() | {"depth_mean": np.zeros(960)},
        make_table(on_qp=2, on_depth=-6, noise=3),
        make_table(pictures=3, ctus=3, qps=tuple(range(20, 33))),
        make_table(pictures=1, ctus=3) | {"mse_y": np.r_[np.zeros(11), 1]},
    ],
    ids=["one QP", "no depth variation", "outside the box", "13 QPs", "MSE mostly 0"],
)
def test_report_of_degenerate_tables(table, tmp_path):
    result = correlate(table, resamples=10)
    files = write_correlation(tmp_path, result, pa.table(table))
    assert all(path.stat().st_size > 0 for path in files)
    assert ("combination.png" in {path.name for path in files}) == (result.combinations is not None)
    markdown = (tmp_path / "correlation.md").read_text()
    assert "nan" not in markdown
    for note in result.notes:
        assert f"- {note}" in markdown


def test_long_tables_are_plotted_from_a_sample(tmp_path, monkeypatch):
    from codecnn.analysis import plots

    table = make_table()
    result = correlate(table, resamples=0)
    monkeypatch.setattr(plots, "DRAWN_ROWS", 100)
    drawn = []
    monkeypatch.setattr(plots, "_depth_panel", lambda panel, depth, mse: drawn.append(len(depth)))
    markdown = write_correlation(tmp_path, result, table)[1].read_text()
    assert (sum(drawn), len(drawn)) == (100, 4)
    assert "bootstrap" not in markdown


def test_command_accepts_an_evaluation(tmp_path):
    """An evaluation writes a folder with ctus.parquet that is no store."""
    table = with_more(make_table(pictures=5, ctus=6))
    folder = tmp_path / "evaluation"
    folder.mkdir()
    pq.write_table(pa.table(table | {"poc": np.zeros(120, int)}), folder / "ctus.parquet")
    command = ["correlate", str(folder), "-o", str(tmp_path / "out"), "--resamples", "20"]
    result = json.loads(CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False).stdout)
    gain = 10 * np.log10(table["mse_y"] / table["mse_y_filtered"])
    r = result["targets"]["gain_db"]["rows"]["all"]["depth_mean"]["pearson"]
    assert r == pytest.approx(pearsonr(table["depth_mean"], gain).statistic)
    assert (result["n"], result["pictures"], result["resamples"]) == (120, 5, 20)
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES | COMBINED | {RESULTS_MARK}
    (folder / "ctus.parquet").unlink()
    with pytest.raises(MissingFileError, match=r"ctus\.parquet"):
        CliRunner().invoke(app, command, catch_exceptions=False)
