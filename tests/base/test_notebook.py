"""Displays of pictures, results, cards, stores and CU tables in notebooks, and their conversion to data frames."""

import html
import io
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from skimage.io import imread

import codecnn
from codecnn.api.config import load_recipe
from codecnn.base.errors import ToolMissingError
from codecnn.base.notebook import SHOWN_ROWS, html_table
from codecnn.evaluation import Results, ResultsList, VideoQuality
from codecnn.models import as_card
from codecnn.pictures.files import Picture, ycbcr_to_rgb
from tests.evaluation.test_report import BASKETBALL, HOSTILE_NAME, make_results
from tests.helpers.block_tables import make_table
from tests.helpers.documentation import ROOT

FACTS = {"settings": {"preset": "fast", "configuration": "ai"}}


def test_a_picture_is_a_png_of_its_colours():
    rng = np.random.default_rng(1)
    luma, *chroma = (rng.integers(256, 700, shape).astype(np.uint16) for shape in ((6, 8), (3, 4), (3, 4)))
    for planes in ((luma, *chroma), (luma,)):
        picture = Picture(planes, 10)
        shown = imread(io.BytesIO(picture._repr_png_()))
        np.testing.assert_array_equal(shown, ycbcr_to_rgb(picture))


def test_results_are_tables():
    both = ResultsList([make_results(**FACTS), make_results(name="other", **FACTS)])
    shown = both._repr_html_()
    assert shown.count("<table>") == 2
    assert html.escape(HOSTILE_NAME) in shown
    assert HOSTILE_NAME not in shown
    assert "run/best, 17.7 kMAC/pixel, vvc fast, all intra, measured" in shown
    assert "-1.23" in shown
    rows = both.to_arrow()
    assert rows["model"].to_pylist() == ["run/best"] * 8 + ["other"] * 8
    assert "psnr_v" not in rows.column_names  # no row has it
    assert both[0].to_arrow().to_pylist() == [row for row in rows.to_pylist() if row["model"] == "run/best"]
    assert {row["name"] for row in rows.to_pylist()} == {BASKETBALL, HOSTILE_NAME}
    assert rows.to_pylist()[0]["psnr_y_filtered"] == both[0].sequences[0].after.psnr["y"]
    assert isinstance(both, tuple)
    assert ResultsList().to_arrow().num_rows == 0
    assert ResultsList()._repr_html_() == ""


def test_data_frames(monkeypatch):
    pytest.importorskip("pandas", reason="needs pandas: pip install 'codecnn[notebook]'")
    results: Results = make_results(**FACTS)
    frame = results.to_pandas()
    assert frame.qp.tolist() == [row.qp for row in results.sequences]
    assert ResultsList([results]).to_pandas().equals(frame)
    table = make_table(poc=[0, 0], qp=[30, 31])
    assert table.to_pandas().qp.tolist() == [30, 31]
    monkeypatch.setitem(sys.modules, "pandas", None)
    for value in (results, table):
        with pytest.raises(
            ToolMissingError, match=r"to_pandas needs pandas: install it with `pip install codecnn\[notebook\]`"
        ):
            value.to_pandas()


def test_a_long_cu_table_is_cut():
    table = make_table(poc=[0] * 15 + [1] * 15, x=list(range(30)))
    shown = table._repr_html_()
    assert shown.count("<tr>") == SHOWN_ROWS + 1
    assert "30 CUs of 2 pictures, the first 20" in shown
    assert "mip" not in shown
    assert "<th>mip</th>" in make_table(poc=[0], mip=[1])._repr_html_()


def test_cards_and_stores(tiny_store):
    _, card = codecnn.load_model("low_cost_5")
    shown = card._repr_html_()
    assert "low_cost_5" in shown
    assert f"{card.test.luma[1]:+.2f} %" in shown
    assert "None" not in as_card({"network": "x", "options": {}})._repr_html_()
    shown = tiny_store._repr_html_()
    assert shown.count("<tr>") == 1 + 6  # three splits at two QPs
    assert "tiny, vvc ai" in shown


def test_python_shows_each_object_in_a_line(tiny_store, tiny_recipe, tmp_path):
    """The line begins with the kind of the object."""
    planes = (np.zeros((4, 6), np.uint8), *[np.zeros((2, 3), np.uint8)] * 2)
    unit = tiny_store.units[0]
    with codecnn.open_video(unit.decoded_path, size="208x144", bit_depth=10) as video:
        shown = {
            "<Picture 6x4, 3 planes, 8 bit>": Picture(planes, 8),
            f"<Video {unit.decoded_path}: 1 pictures, 208x144 420 10 bit>": video,
        }
    shown |= {
        f"<Store {tiny_store.folder}: 6 units of 3 sources, vvc faster ai, QP 32 42>": tiny_store,
        "<Unit a at QP 32: 1 pictures, 208x144 420 10 bit, train>": unit,
        "<Recipe tiny: 3 sources, vvc faster ai, QP 32 42>": load_recipe(tiny_recipe),
        "<FloatFilter of low_cost_5: planes rec_y, qp, float32 on cpu>": codecnn.load_filter("low_cost_5"),
        "<Card of low_cost_5, 4.2 kMAC/pixel, planes rec_y, qp, QPs 17 to 42>": codecnn.load_model("low_cost_5")[1],
        "<Card of x, planes unknown>": as_card({"network": "x", "options": {}}),
        "<BlockTable of 2 CUs of 1 pictures>": make_table(poc=[0, 0], qp=[30, 31]),
        "<VideoQuality of a.mkv: means psnr_y 31.0000>": VideoQuality(Path("a.mkv"), {"psnr_y": [30.0, 32.0]}),
        "<ResultsList: empty>": ResultsList(),
    }
    for text, thing in shown.items():
        assert repr(thing) == str(thing) == text
    results = make_results(**FACTS)
    assert repr(results).startswith("<Results of run/best: 2 sequences, vvc fast, all intra, QP 22 27 32 37, gain Y +")
    assert repr(results).endswith("BD-rate Y -1.23 %>")
    assert repr(ResultsList([results])) == f"<ResultsList: {results}>"


def test_cells_are_escaped():
    shown = html_table(["<a>"], [["<b>"], [None]], "<c>")
    assert all(f"&lt;{letter}&gt;" in shown for letter in "abc")
    assert "–" in shown


@pytest.mark.slow
def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(ROOT / "docs/examples/explore.py"))
    assert "mean gain +0." in capsys.readouterr().out
    for name in ("store", "card", "results", "cus"):
        assert "<table>" in names[name]._repr_html_()
    assert (names["cus"].mip == 1).any()
