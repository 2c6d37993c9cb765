"""Tables in the layout of JVET: order of the rows, times, and the merge of several evaluations."""

import csv
import dataclasses
import re

import openpyxl
import pytest

import codecnn
from codecnn.api.config import load_recipe
from codecnn.base.errors import ConfigError, MissingFileError, TableError
from codecnn.base.files import write_json
from codecnn.dataset import build_store
from codecnn.evaluation import (
    PictureMeasure,
    ResultRow,
    Results,
    make_row,
    merge_results,
    results_json,
    summarise_rows,
    tables_of,
    write_workbook,
)
from codecnn.models import as_card
from codecnn.pictures.files import VideoFormat
from codecnn.signalling.in_loop import LoopResults, LoopRow
from tests.helpers.clips import write_clip
from tests.helpers.filters import rate_rows

CARD = as_card({"network": "toward", "kmac_per_pixel": 17.5, "parameters": 200, "sha256": "abc"})
GAINS = {"A1": -1.0, "B": 1.0, "E": 0.5, "D": 3.0}
"""Gains in dB by class; 3 dB correspond to a factor of two in bits."""


def results(tiny_store, configuration, name="half", classes=GAINS):
    """Create results with one sequence a class."""
    rows = [row for label, gain in classes.items() for row in rate_rows(f"in_{label}", gain, class_=label)]
    times = {"seconds_per_picture": 0.5, "encoder_seconds_per_picture": 2.0}
    luma = [{f"psnr_yuv_611{end}": row.to_json()[f"psnr_y{end}"] for end in ("", "_filtered")} for row in rows]
    rows = [ResultRow(**row.to_json(), **each, **times) for row, each in zip(rows, luma, strict=True)]
    recipe = tiny_store.manifest.recipe.model_copy(update={"configuration": configuration, "ctc": True})
    store = dataclasses.replace(tiny_store, manifest=tiny_store.manifest.model_copy(update={"recipe": recipe}))
    return summarise_rows(rows, CARD, store, "test", name)


def rate(gain):
    """Compute the BD-rate in % of a gain in dB."""
    return 100 * (2 ** (-gain / 3) - 1)


def test_rows_are_in_the_order_of_jvets_sheets(tiny_store):
    for configuration, above, below in (("ra", ["A1", "B"], ["D", "E"]), ("ldb", ["B", "E"], ["A1", "D"])):
        (table,) = tables_of([results(tiny_store, configuration)])
        names = [f"Class {label}" for label in above] + ["Overall"]
        below = sorted(below, key=lambda label: (label == "D", label))
        names += [f"Class {label}" for label in below] + ["All sequences"]
        assert [row.name for row in table.rows] == names + [f"in_{label}" for label in GAINS]
        by_name = {row.name: row for row in table.rows}
        for quality in ("y", "u", "v", "yuv_611"):
            assert by_name["Class B"].bd_rate[quality] == pytest.approx(rate(1.0), abs=0.05)
            mean = sum(rate(GAINS[label]) for label in above) / 2
            assert by_name["Overall"].bd_rate[quality] == pytest.approx(mean, abs=0.05)
        assert by_name["Overall"].gain_y == pytest.approx(sum(GAINS[label] for label in above) / 2)
        assert (by_name["Overall"].encoder_seconds, by_name["Overall"].filter_seconds) == (2.0, 0.5)
        assert (table.kmac_per_pixel, table.parameters) == (17.5, 200)
    (plain,) = tables_of([results(tiny_store, "ai", classes={"B": 1.0})])
    assert [row.name for row in plain.rows] == ["Class B", "Overall", "in_B"]


def test_results_of_several_folders_are_merged_into_one_table(tiny_store, tmp_path):
    for name, configurations in (("first", ("ldb",)), ("second", ("ai", "ra"))):
        models = [results(tiny_store, each, f"{name}/{each}") for each in configurations]
        write_json(tmp_path / name / "results.json", results_json(models))
    output = tmp_path / "both"
    tables = merge_results([tmp_path / "first", tmp_path / "second"], output)
    assert [table.title for table in tables] == ["All intra, CTC", "Random access, CTC", "Low delay B, CTC"]
    rows = list(csv.DictReader((output / "jvet.csv").read_text().splitlines()))
    assert len(rows) == sum(len(table.rows) for table in tables)
    (overall,) = (row for row in rows if row["name"] == "Overall" and row["configuration"] == "Random access, CTC")
    assert float(overall["bd_rate_yuv"]) == pytest.approx((rate(-1.0) + rate(1.0)) / 2, abs=0.05)
    assert (overall["kmac_per_pixel"], overall["filter_seconds_per_picture"]) == ("17.5", "0.5")
    page = (output / "report.html").read_text()
    assert page.count("<table") == 3
    assert page.count("<h2>") == 1  # the weights are the same although the names differ
    cells = re.findall(r"<tr[^>]*><th scope=\"row\">Class A1</th><td class=\"bad\">\+([\d.]+) %", page)
    assert cells == [f"{rate(-1.0):.2f}"] * 3
    assert "<script" not in page
    with pytest.raises(TableError, match="two of the results are of"):
        merge_results([tmp_path / "first", tmp_path / "first"], output)
    (tmp_path / "first" / "report.html").touch()
    with pytest.raises(ConfigError, match=r"first is the folder of an evaluation, .* -o, e\.g\. .*first/jvet$"):
        merge_results([tmp_path / "first"], tmp_path / "first")
    with pytest.raises(MissingFileError, match=r"no results\.json"):
        merge_results([tmp_path], output)
    for damaged in ("[]", '{"sequences": 1}', '{"models": 3}'):
        (tmp_path / "first" / "results.json").write_text(damaged)
        with pytest.raises(TableError, match="not a results file of an evaluation"):
            merge_results([tmp_path / "first"], output)


def test_kinds_of_rate_control_of_one_encoder_are_kept_apart(tiny_store, tmp_path):
    constant = results(tiny_store, "ra")
    write_json(tmp_path / "constant" / "results.json", results_json([constant]))
    for rate_control in ("crf", "qp", "kbps"):
        rows = [row.model_copy(update={"rate": rate_control}) for row in constant.sequences]
        write_json(
            tmp_path / rate_control / "results.json",
            results_json([constant.model_copy(update={"sequences": tuple(rows)})]),
        )
    folders = [tmp_path / name for name in ("constant", "crf", "qp", "kbps")]
    tables = merge_results(folders, tmp_path / "o")
    coder = constant.coder
    assert [table.coded for table in tables] == [coder, f"{coder} -crf", f"{coder} -qp", f"{coder} -b:v"]
    with pytest.raises(TableError, match="two of the results are of"):
        merge_results([folders[1], folders[1]], tmp_path / "o")
    damaged = (tmp_path / "crf" / "results.json").read_text().replace('"crf"', '"other"')
    (tmp_path / "crf" / "results.json").write_text(damaged)
    with pytest.raises(TableError, match="not a results file of an evaluation"):
        merge_results([tmp_path / "crf"], tmp_path / "o")


def test_planes_that_a_filter_leaves_alone_have_a_dash(tiny_store, tmp_path):
    luma = results(tiny_store, "ra")
    same = {f"psnr_{plane}_filtered": 30.0 for plane in "uv"} | {f"psnr_{plane}": 30.0 for plane in "uv"}
    rows = [ResultRow.model_validate(row.to_json() | same) for row in luma.sequences]
    rates = {name: {"y": -3.0, "u": 0.0, "v": 0.0, "yuv_611": -2.0} for name in GAINS}
    luma = luma.model_copy(update={"sequences": tuple(rows), "bd_rate_by_class": rates})
    write_json(tmp_path / "r" / "results.json", results_json([luma]))
    (table,) = merge_results([tmp_path / "r"], tmp_path / "o")
    assert {(row.bd_rate["u"], row.bd_rate["v"]) for row in table.rows} == {(None, None)}
    assert all(row.bd_rate["y"] is not None and row.bd_rate["yuv_611"] is not None for row in table.rows)
    note = "no BD-rate U, V: the filter does not change U, V"
    assert table.notes.count(note) == 1
    page = (tmp_path / "o" / "report.html").read_text()
    assert note in page
    assert "<td>-3.00 %</td><td>–</td><td>–</td><td>-2.00 %</td>" in page
    # Bits of decisions change the BD-rate of every plane.
    paid = [row.model_copy(update={"flag_bits": 8}) for row in rows]
    (table,) = tables_of([luma.model_copy(update={"sequences": tuple(paid)})])
    assert table.rows[0].bd_rate["u"] == 0.0
    assert note not in table.notes


def test_the_workbook_has_a_summary_and_the_rd_points(tiny_store, tmp_path, run, monkeypatch):
    models = [results(tiny_store, each) for each in ("ra", "ai")]
    timed = [row.model_copy(update={"fps": 25.0, "pictures": 2}) for row in models[0].sequences]
    models[0] = models[0].model_copy(update={"sequences": tuple(timed)})
    write_json(tmp_path / "r" / "results.json", results_json(models))
    monkeypatch.setenv("COLUMNS", "40")
    status, text, _ = run("jvet", tmp_path / "r", "-o", tmp_path / "o")
    assert (status, "…" in text) == (0, False)
    # The table is wider than the terminal, and this is not one.
    assert any(all(head in line for head in ("BD-rate", "gain Y, dB", "filter s")) for line in text.splitlines())
    book = openpyxl.load_workbook(tmp_path / "o" / "jvet.xlsx")
    assert book.sheetnames == ["Summary", "AI half", "RA half"]
    summary = list(book["Summary"].iter_rows(values_only=True))
    assert [row[1] for row in summary[2:7]] == ["Class A1", "Class B", "Class E", "Overall", "Class D"]
    assert summary[2][2:6] == pytest.approx([rate(-1.0)] * 4, abs=0.05)
    head, first, second, *_ = list(book["RA half"].iter_rows(values_only=True))[2:]
    assert head[:5] == ("Class", "Sequence", "QP", "kbit/s", "Y PSNR")
    # 8,000 bits in two pictures at 25 Hz; the rows begin with the lowest QP
    assert first[:3] == ("A1", "in_A1", 27)
    figures = (100.0, 39, 39, 39, 100.0, 38, 38, 38, 4.0, 1.0, *[rate(-1.0)] * 3)
    assert first[3:] == pytest.approx(figures, abs=0.05)
    assert second[2:4] == (32, 50.0)
    assert list(book["AI half"].iter_rows(values_only=True))[2][3] == "kbit per picture"


def test_an_evaluation_writes_the_workbook_in_kbit_a_second(tmp_path):
    """With every second picture of 50 Hz, the rate is that of a video of 25 Hz, as VTM logs it."""
    clip = write_clip(tmp_path / "clip_64x64_50.yuv", VideoFormat(64, 64, "420", 8), 4, seed=1)
    options = {"qps": [32, 42], "codec": "hevc", "preset": "ultrafast", "step": 2}
    (model,) = codecnn.evaluate(clip, lambda picture: picture.y, tmp_path / "out", **options)
    sheet = list(openpyxl.load_workbook(tmp_path / "out" / "jvet.xlsx").worksheets[1].iter_rows(values_only=True))
    assert sheet[2][3] == "kbit/s"
    assert [row[3] for row in sheet[3:]] == pytest.approx([row.bits / 2 * 25 / 1000 for row in model.sequences])


def test_names_in_the_workbook_are_text(tiny_store, tmp_path):
    model = results(tiny_store, "ai", name="=1+1")
    model = model.model_copy(
        update={"sequences": tuple(row.model_copy(update={"name": "#N/A\a"}) for row in model.sequences)}
    )
    write_workbook(tmp_path / "a.xlsx", tables_of([model]))
    book = openpyxl.load_workbook(tmp_path / "a.xlsx")
    cells = [book["Summary"]["A1"], book.worksheets[1]["A1"], book.worksheets[1]["B4"], book.worksheets[1]["C4"]]
    assert [(cell.value, cell.data_type) for cell in cells] == [
        ("=1+1", "s"),
        ("=1+1", "s"),
        ("#N/A\ufffd", "s"),
        (27, "n"),
    ]


@pytest.mark.parametrize(
    ("configuration", "words"), [("zz", "the configuration 'zz', which is none of ai"), (["ai"], "which is none of ai")]
)
def test_unknown_configuration_is_one_sentence(tiny_store, tmp_path, run, configuration, words):
    content = results_json([results(tiny_store, "ai")])
    content["settings"]["configuration"] = configuration
    write_json(tmp_path / "r" / "results.json", content)
    status, _, err = run("jvet", tmp_path / "r", "-o", tmp_path / "o")
    assert (status, "results.json" in err, words in " ".join(err.split())) == (1, True, True)
    assert "Traceback" not in err


def test_evaluation_in_the_loop_is_merged(tmp_path):
    """In the loop, 10 % fewer bits and 1.5 dB more both count; behind the decoder, only the quality does."""
    rows = []
    for index, qp in enumerate((42, 37, 32, 27)):
        facts = {"name": "clip", "model": "half", "qp": qp, "pictures": 2, "pictures_off": 0}
        facts |= {"used": True, "seconds_per_picture": 0.25, "encoder_seconds_per_picture": 1.5, "folder": "x"}
        for chain, bits, gain in (("without", 1.0, 0.0), ("post_filter", 1.0, 1.5), ("in_loop", 0.9, 1.5)):
            psnrs = dict.fromkeys(("psnr_y", "psnr_u", "psnr_v"), 30 + 3 * index + gain)
            rows.append(LoopRow(chain=chain, bits=round(bits * 1000 * 2**index), **psnrs, **facts))
    loop = LoopResults(
        decisions="ctu",
        settings={"preset": "medium"},
        library="libvvenc 1.15.0",
        models={"half": {"weights_sha256": "abc", "kmac_per_pixel": 17.5, "parameters": 200, "device": "cpu"}},
        rows=tuple(rows),
        bd_rate={"half": {}},
        bd_rate_per_sequence={},
    )
    write_json(tmp_path / "loop" / "in_loop.json", loop.model_dump())
    post_filter, in_loop = merge_results([tmp_path / "loop"], tmp_path / "table")
    assert post_filter.rows[0].bd_rate["yuv_611"] == pytest.approx(rate(1.5), abs=0.05)
    assert in_loop.rows[1].bd_rate["y"] == pytest.approx(100 * (0.9 * 2**-0.5 - 1), abs=0.05)
    assert [row.name for row in in_loop.rows] == ["All sequences", "clip"]
    first = in_loop.rows[0]
    assert (in_loop.label, first.filter_seconds, first.encoder_seconds) == ("in the loop", 0.25, 1.5)
    assert (in_loop.kmac_per_pixel, in_loop.parameters, in_loop.weights, in_loop.device) == (17.5, 200, "abc", "cpu")


def test_encoder_time_is_stored_on_request(tiny_store, tiny_recipe, tmp_path):
    assert tiny_store.units[0].encoder_seconds is None
    recipe = load_recipe(tiny_recipe, ["times=true", "qp=[42]"])
    unit = build_store(recipe, tiny_recipe.parent, tmp_path / "timed").units[0]
    assert unit.key in {each.key for each in tiny_store.units}, "the time is not part of the key"
    measures = [PictureMeasure(mse=(1.0, 1.0, 1.0), seconds=0.1) for _ in unit.pictures]
    row = make_row(unit, measures, measures)
    assert 0 < row.encoder_seconds_per_picture < 60
    assert row.encoder_seconds_per_picture == pytest.approx(unit.encoder_seconds / len(unit.pictures))
    old = unit.model_copy(update={"decoded_file": unit.original_file})  # the folder of the originals has no times
    assert old.encoder_seconds is None
    assert "encoder_seconds_per_picture" not in make_row(old, measures, measures).to_json()
    assert Results(sequences=(row,)).sequences[0] == row
