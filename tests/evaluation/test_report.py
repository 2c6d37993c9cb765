"""The evaluation report: values in the right places, escaped names, exact pictures, and no external resources."""

import base64
import csv
import dataclasses
import hashlib
import io
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from pydantic import ValidationError
from skimage.io import imread

from codecnn.base.errors import FormatError, TableError
from codecnn.base.files import write_csv
from codecnn.evaluation import Crop, Results, write_markdown, write_report
from codecnn.evaluation.figures import BETTER, CHANGE_GAIN, ERROR_GAIN, WORSE

HOSTILE_NAME = '<script>alert("x")</script> & co'
QPS = (22, 27, 32, 37)
BASKETBALL = "BasketballPass_416x240_50"


def _rows():
    """Create rows of results.json: two sequences at four QPs, the first with losses, both without V."""
    rows = []
    for name, gain in ((BASKETBALL, -0.0121), (HOSTILE_NAME, 0.0504)):
        for i, qp in enumerate(QPS):
            luma = 42.0 - 3 * i
            row = {"name": name, "qp": qp, "bits": 2_000_000 // 2**i, "flag_bits": 12, "psnr_y": luma}
            row |= {"psnr_y_filtered": luma + gain + 0.01 * i, "psnr_u": 45.0, "psnr_u_filtered": 45.5, "psnr_v": None}
            rows.append(row)
    return rows


def make_results(rows=None, **changes):
    """Create results as they are read from results.json."""
    values = {
        "model": "rdn",
        "name": "run/best",
        "kmac_per_pixel": 17.7,
        "parameters": 284352,
        "codec": "vvc",
        "settings": {"preset": "medium"},
        "provenance": {"codecnn": "0.1.0", "argv": ["codecnn", "evaluate", "<i>"], "versions": {"numpy": "2.4"}},
        "label": "measured",
        "sequences": _rows() if rows is None else rows,
        "gain_db": {"y": {"22": 0.0191, "27": 0.0291, "32": 0.0391, "37": 0.0491, "mean": 0.0341}},
        "bd_rate": {"y": -1.234, "u": None, "v": None},
        "bd_rate_per_sequence": {BASKETBALL: {"y": 0.456}, HOSTILE_NAME: {"y": None}},
        "notes": ["no BD-rate of <U>"],
    }
    return Results.model_validate(values | changes)


class _Page(HTMLParser):
    """Parse a page into tables (rows of text and class), sources, tags and text; an unclosed tag is an error."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.sources, self.links, self.tags, self.open, self.text = [], [], [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for key, value in attrs if key in ("src", "href")]
        self.links += [value for key, value in attrs if key in ("srcset", "action", "data", "poster", "background")]
        if tag not in ("meta", "img", "link", "input"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append(["", dict(attrs).get("class")])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open[-1:] in (["th"], ["td"]):
            self.tables[-1][-1][-1][0] += data


@pytest.fixture
def crop():
    rng = np.random.default_rng(0)
    original = rng.integers(200, 800, (24, 32)).astype(np.uint16)
    decoded = (original + rng.integers(-40, 40, original.shape)).astype(np.uint16)
    filtered = (decoded + rng.integers(-30, 30, original.shape)).astype(np.uint16)
    filtered[0] = original[0]
    filtered[1] = original[1] + 80
    return Crop(HOSTILE_NAME, 37, original, decoded, filtered, 10, 30.125, 30.25)


def _render(tmp_path, results, crops=(), cells=()):
    write_report(tmp_path / "report.html", results if isinstance(results, list) else [results], crops, cells)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    return text, _Page(text)


def _content(source):
    return base64.b64decode(source.split(",", 1)[1])


def _images(page):
    return [imread(io.BytesIO(_content(source))) for source in page.sources if source.startswith("data:image/png")]


def test_page_has_no_external_resources_and_escapes_names(tmp_path, crop):
    text, page = _render(tmp_path, make_results(), [crop])
    assert text.lstrip().startswith("<!DOCTYPE html>")
    assert page.tags.count("script") == 1
    assert "link" not in page.tags
    assert "i" not in page.tags
    assert page.sources
    assert page.links == []
    assert all(source.startswith(("data:image/svg+xml;base64,", "data:image/png;base64,")) for source in page.sources)
    without_data = re.sub(r"base64,[^\"]*", "", text)
    assert "http" not in without_data.replace("http-equiv", "")
    assert "url(" not in without_data
    assert HOSTILE_NAME in page.text
    assert "no BD-rate of <U>" in page.text


def test_policy_allows_only_the_script_of_the_page(tmp_path, crop):
    """The policy contains the hash of the script element's content."""
    text, _ = _render(tmp_path, make_results(), [crop])
    script = re.search(r"<script>(.*)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert re.search(r"\son\w+=", re.sub(r"base64,[^\"]*", "", text)) is None


def test_headline(tmp_path):
    _, page = _render(tmp_path, make_results())
    for text in ("+0.034 dB", "-1.23 %", "17.7", "284,352", "rdn", "run/best", "vvc", "measured", "preset medium"):
        assert text in page.text
    for text in ("0.1.0", "codecnn evaluate <i>", "numpy 2.4"):
        assert text in page.text


def test_bd_rates_in_the_layout_of_jvet(tmp_path):
    """Classes come first, then the overall figures, then the sequences."""
    rows = [row | {"class": "D" if row["name"] == HOSTILE_NAME else "B"} for row in _rows()]
    by_class = {"B": {"y": 0.456, "u": -1.0, "v": None}, "D": {"y": -2.0, "u": None, "v": None}}
    results = make_results(rows, bd_rate_by_class=by_class, bd_rate_jvet={"y": 0.456})
    summary = _render(tmp_path, results)[1].tables[0]
    assert [cell for cell, _ in summary[0]][1:] == ["Y", "U", "V", "Mean gain Y"]
    assert [[cell for cell, _ in row] for row in summary[1:]] == [
        ["Class B", "+0.46 %", "-1.00 %", "–", "+0.003 dB"],
        ["Class D", "-2.00 %", "–", "–", "+0.065 dB"],
        ["Overall without D", "+0.46 %", "–", "–", "+0.003 dB"],
        ["Overall", "-1.23 %", "–", "–", "+0.034 dB"],
        [BASKETBALL, "+0.46 %", "–", "–", "+0.003 dB"],
        [HOSTILE_NAME, "–", "–", "–", "+0.065 dB"],
    ]
    assert summary[1][1][1] == "bad"
    assert summary[2][1][1] is None


def test_gain_tables(tmp_path):
    _, page = _render(tmp_path, make_results())
    _, luma, chroma, _ = page.tables
    assert [cell for cell, _ in luma[0]] == ["Sequence", "QP 22", "QP 27", "QP 32", "QP 37", "Mean"]
    assert [cell for cell, _ in luma[1]] == [BASKETBALL, "-0.012", "-0.002", "+0.008", "+0.018", "+0.003"]
    assert [shown for _, shown in luma[1]] == [None, "bad", "bad", None, None, None]
    assert [cell for cell, _ in luma[2]] == [HOSTILE_NAME, "+0.050", "+0.060", "+0.070", "+0.080", "+0.065"]
    assert [cell for cell, _ in luma[3]] == ["Mean", "+0.019", "+0.029", "+0.039", "+0.049", "+0.034"]
    assert [cell for cell, _ in chroma[1]][1:6] == ["+0.500"] * 5


def test_several_filters_are_compared(tmp_path):
    other = make_results(name="other", kmac_per_pixel=99.5, bd_rate={"y": 3.21, "u": None, "v": None})
    _, page = _render(tmp_path, [make_results(), other])
    comparison = page.tables[0]
    assert [row[0][0] for row in comparison[1:]] == ["run/best", "other"]
    assert comparison[2][1][0] == "99.5"
    assert comparison[2][7] == ["+3.21 %", "bad"]
    svg = _content(page.sources[0]).decode()
    assert ">run/best<" in svg
    assert ">other<" in svg
    assert page.text.count("no BD-rate of <U>") == 1


def test_each_filter_has_its_pictures(tmp_path, crop):
    """The second filter is hidden until the switch selects it; the original is there once."""
    other = dataclasses.replace(crop, filtered=crop.original, psnr_filtered=99.0, model="other")
    both = [make_results(), make_results(name="other")]
    text, page = _render(tmp_path, both, [dataclasses.replace(crop, model="run/best"), other])
    assert len(_images(page)) == 9
    assert "30.12 dB → 99.00 dB" in page.text
    choices = re.findall(r'<input type="radio" class="filter" name="pictures" value="(\d)"( checked)?>', text)
    assert choices == [("0", " checked"), ("1", "")]
    hidden = re.findall(r'data-filter="(\d)"( hidden)?', text)
    assert set(hidden) == {("0", ""), ("1", " hidden")}
    assert [index for index, _ in hidden].count("1") == 4
    filtered = re.search(r'src="([^"]*)"[^>]*alt="Filtered[^>]*data-filter="1"', text)[1]
    assert np.abs(imread(io.BytesIO(_content(filtered))) - crop.original / 4.0).max() <= 0.5
    assert 'class="switch"' not in _render(tmp_path, make_results(), [crop])[0]


def test_settings_and_times_in_words(tmp_path):
    settings = {"preset": "fast", "configuration": "ra", "ctc": False, "loop_filters": True, "ctu_size": 128}
    settings |= {"internal_bit_depth": 10, "params": {}, "qp": [22, 27]}
    timed = {"seconds_per_picture": 0.25, "encoder_seconds_per_picture": 2.0}
    rows = [row | timed for row in _rows()]
    facts = {"settings": settings, "psnr_peak": {"jvet": 1020.0, "full": 1023.0, "used": "jvet"}}
    _, page = _render(tmp_path, make_results(rows, **facts))
    assert "preset fast, random access, QP 22, 27, CTUs of 128x128, 10 bit" in page.text
    assert "12.5 % of the encoder's 2.00 s (CPU time)" in page.text
    assert "1020 (255 · 2^(bit depth - 8), as JVET)" in page.text
    assert not re.search(r"\b(True|False|None|null|ctc|psnr_peak)\b", page.text)
    slower = [row | timed | {"seconds_per_picture": 0.5} for row in _rows()]
    both = [make_results(rows, **facts), make_results(slower, **facts, name="other")]
    cells = [[cell for cell, _ in row] for row in _render(tmp_path, both)[1].tables[0]]
    assert cells[0][3:6] == ["s/picture", "of the first", "of the encoder"]
    assert [row[3:6] for row in cells[1:]] == [["0.250", "100 %", "12.5 %"], ["0.500", "200 %", "25 %"]]
    off = settings | {"loop_filters": False, "ctc": True, "preset": "unknown preset", "check": False}
    _, page = _render(tmp_path, make_results(rows, settings=off))
    for text in ("common test conditions", "without the in-loop filters of the codec", "not compared with their"):
        assert text in page.text
    assert "unknown preset" not in page.text


def test_dashes_are_explained_where_there_are_any(tmp_path):
    assert "A dash (–) stands for" in _render(tmp_path, make_results())[1].text
    rates = {"y": -1.0, "u": -1.0, "v": -1.0}
    timed = [row | {"seconds_per_picture": 0.25} for row in _rows()]
    full = make_results(timed, bd_rate=rates, bd_rate_per_sequence={BASKETBALL: rates, HOSTILE_NAME: rates})
    assert "–" not in "".join(cell for row in _render(tmp_path, full)[1].tables[0] for cell, _ in row)
    assert "A dash" not in _render(tmp_path, full)[1].text


@pytest.mark.parametrize("flag_bits", [0, 12])
def test_a_plane_that_the_filter_does_not_change_has_a_dash(tmp_path, flag_bits):
    """With decisions it has the cost of their bits."""
    rows = [row | {"flag_bits": flag_bits, "psnr_u_filtered": row["psnr_u"]} for row in _rows()]
    rates = {"y": -1.0, "u": 0.0, "v": None}
    results = make_results(rows, bd_rate=rates, bd_rate_per_sequence={BASKETBALL: rates, HOSTILE_NAME: rates})
    shown = "+0.00" if flag_bits else "–"
    table = next(table for table in _render(tmp_path, results)[1].tables if table[0][1][0] == "Y")
    assert {row[2][0].removesuffix(" %") for row in table[1:]} == {shown}
    assert {row[1][0] for row in table[1:]} == {"-1.00 %"}
    write_markdown(tmp_path / "results.md", [results])
    lines = [line.split(" | ") for line in (tmp_path / "results.md").read_text().splitlines() if "| -1.00 |" in line]
    assert [line[2] for line in lines] == [shown] * 3
    assert results.bd_rate["u"] == 0.0


def test_zero_has_no_minus(tmp_path):
    rows = _rows()
    rows[0]["psnr_y_filtered"] = rows[0]["psnr_y"] - 1e-6
    assert _render(tmp_path, make_results(rows))[1].tables[1][1][1][0] == "+0.000"


def test_all_measurements_are_listed(tmp_path):
    _, page = _render(tmp_path, make_results())
    table = [[cell for cell, _ in row] for row in page.tables[-1]]
    luma, chroma = ["PSNR Y", "PSNR Y filtered"], ["PSNR U", "PSNR U filtered"]
    assert table[0] == ["sequence", "QP", "bits", "decision bits", *luma, *chroma]
    assert len(table) == 9
    assert table[2] == [BASKETBALL, "27", "1,000,000", "12.0", "39.0000", "38.9979", "45.0000", "45.5000"]


def test_each_sequence_has_a_curve(tmp_path):
    _, page = _render(tmp_path, make_results())
    assert len(page.sources) == 2
    for source in page.sources:
        svg = ET.fromstring(_content(source))
        assert svg.tag.endswith("svg")
        assert len(list(svg.iter("{http://www.w3.org/2000/svg}path"))) > 20
        assert "prefers-color-scheme: dark" in ET.tostring(svg, encoding="unicode")


def test_crops_show_the_pictures(tmp_path, crop):
    _, page = _render(tmp_path, make_results(_rows()[:1]), [crop])
    images = _images(page)
    assert len(images) == 6
    decoded, filtered, original, before, after, change = images
    for image, picture in ((original, crop.original), (decoded, crop.decoded), (filtered, crop.filtered)):
        assert image.shape == (24, 32)
        assert np.abs(image - picture / 4.0).max() <= 0.5
    for image, picture in ((before, crop.decoded), (after, crop.filtered)):
        expected = np.clip(128 + ERROR_GAIN * (picture.astype(float) - crop.original) / 4, 0, 255)
        assert np.abs(image - expected).max() <= 4.5
    better = np.abs(crop.decoded.astype(float) - crop.original) - np.abs(crop.filtered.astype(float) - crop.original)
    strong = np.abs(better) / 4 * CHANGE_GAIN >= 255
    assert (change[strong & (better > 0)] == BETTER).all()
    assert (change[strong & (better < 0)] == WORSE).all()
    assert (change[better == 0] == 255).all()
    assert (strong & (better > 0)).any()
    assert (strong & (better < 0)).any()
    assert "30.12 dB → 30.25 dB (+0.125 dB in this region)" in page.text


def test_colour_crops(tmp_path):
    rgb = np.random.default_rng(1).integers(0, 256, (8, 9, 3)).astype(np.uint8)
    darker = (rgb // 2).astype(np.uint8)
    _, page = _render(tmp_path, make_results(), [Crop("c", 22, rgb, rgb, darker, 10, 40.0, 39.0)])
    images = [image[..., :3] for image in _images(page)]
    assert (images[2] == rgb).all()
    assert (images[1] == darker).all()
    assert (images[5][darker < rgb - 8] != 255).any()


def test_crop_of_unequal_shapes():
    a = np.zeros((4, 4), np.uint8)
    with pytest.raises(FormatError, match="crop x at QP 22"):
        Crop("x", 22, a, a, a[:2], 8, 1.0, 1.0)


def test_same_results_give_the_same_bytes(tmp_path, crop):
    first, _ = _render(tmp_path, make_results(), [crop])
    assert _render(tmp_path, make_results(), [crop])[0] == first


def test_further_facts_of_the_results(tmp_path):
    facts = {"encoder": "libvvenc 1.15", "split": "val", "settings": {"preset": "fast", "ctu_size": None}}
    _, page = _render(tmp_path, make_results(**facts))
    for text in ("encoder", "libvvenc 1.15", "split", "preset fast"):
        assert text in page.text
    assert "ctu_size" not in page.text
    assert "was trained on these pictures" not in page.text
    _, page = _render(tmp_path, make_results(**facts, trained_on_this_data=True))
    assert "trained on these pictures" in page.text


def test_rate_is_per_picture_if_the_number_of_pictures_is_known(tmp_path):
    """Ten times the bits in ten times the pictures give the same curve; only the axis title differs."""

    def curves(times, **pictures):
        scaled = [{"bits": row["bits"] * times, "flag_bits": row["flag_bits"] * times} | pictures for row in _rows()]
        rows = [row | update for row, update in zip(_rows(), scaled, strict=True)]
        return _render(tmp_path, make_results(rows))[1].sources

    assert curves(10, pictures=10) == curves(1, pictures=1) != curves(1)


def test_crop_without_error_has_no_gain(tmp_path):
    flat = np.full((8, 8), 100, np.uint8)
    _, page = _render(tmp_path, make_results(), [Crop("flat", 22, flat, flat, flat, 8, float("inf"), float("inf"))])
    assert "inf dB" in page.text
    assert "nan" not in page.text


def test_minimal_results_give_a_page(tmp_path):
    """One QP, luma only, no optional fields."""
    row = {"name": "s", "qp": 32, "bits": 1000, "psnr_y": 30.0, "psnr_y_filtered": None}
    _, page = _render(tmp_path, Results.model_validate({"model": "m", "sequences": [row]}))
    assert len(page.tables) == 2
    assert page.sources == []
    row["psnr_y_filtered"] = 30.5
    _, page = _render(tmp_path, Results.model_validate({"model": "m", "sequences": [row]}))
    assert page.tables[1][1][1] == ["+0.500", None]


def test_results_without_sequence_keep_the_old_report(tmp_path):
    _render(tmp_path, make_results())
    before = (tmp_path / "report.html").read_bytes()
    with pytest.raises(TableError, match="no sequence"):
        write_report(tmp_path / "report.html", [make_results([])], [], [])
    for values, missing in (({}, "sequences"), ({"sequences": [{"name": "s", "bits": 8}]}, r"sequences.0.qp")):
        with pytest.raises(ValidationError, match=missing):
            Results.model_validate(values)
    with pytest.raises(TableError, match=r"report.html: there is no row"):
        write_csv(tmp_path / "report.html", [])
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_bytes() == before


def test_csv_contains_all_measurements(tmp_path):
    rows = _rows()
    rows[3]["extra"] = [1, 2]
    write_csv(tmp_path / "results.csv", rows)
    with (tmp_path / "results.csv").open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert len(written) == 8
    for row, source in zip(written, rows, strict=True):
        assert row["name"] == source["name"]
        assert int(row["qp"]) == source["qp"]
        assert float(row["psnr_y_filtered"]) == source["psnr_y_filtered"]
        assert row["psnr_v"] == ""
    assert written[3]["extra"] == "[1, 2]"
    assert written[0]["extra"] == ""
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_names_with_dollar_signs_are_no_formulas(tmp_path):
    name = "_$a^$b$ \\$"
    _, page = _render(tmp_path, [make_results(), make_results(name=name)])
    figures = [_content(source).decode() for source in page.sources if source.startswith("data:image/svg+xml")]
    texts = [text for figure in figures for text in ET.fromstring(figure).itertext()]
    assert sum(text.strip("\u200b") == name for text in texts) == len(figures) == 2


def test_text_in_csv_is_no_formula(tmp_path):
    names = ["=1+1", "+1", "-1", "@a", " =1", "a=1"]
    write_csv(tmp_path / "a.csv", [{"name": name, "gain": -0.5, "qp": -1} for name in names])
    lines = (tmp_path / "a.csv").read_text().splitlines()[1:]
    assert lines == [f"{name},-0.5,-1" for name in ["'=1+1", "'+1", "'-1", "'@a", "' =1", "a=1"]]


def test_markdown_tables_with_special_characters_in_names(tmp_path):
    facts = {"settings": {"preset": "medium", "configuration": "ai"}}
    rows = [_rows()[0] | {"name": "a|b_c"}, *_rows()[1:]]
    write_markdown(tmp_path / "results.md", [make_results(rows, **facts), make_results(rows, **facts, name="other")])
    text = (tmp_path / "results.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {10}
    assert "| Overall | -1.23 | – | – | +0.019 | +0.024 |" in text.replace("+0.029", "+0.024")
    assert "a\\|b\\_c" in text
    assert text.count("# run/best") == text.count("# other") == 1
    assert "no BD-rate of <U>" in text
