"""The table of several configurations: its lines in JVET's order, types of pictures, times, what is merged."""

import csv
import dataclasses
import gzip
import re
from pathlib import Path

import pytest

from codecnn.config import load_recipe
from codecnn.dataset import build_store
from codecnn.errors import ConfigError, MissingFileError, TableError
from codecnn.evaluation import Results, merge_results, results_json
from codecnn.evaluation.in_loop import LoopResults
from codecnn.evaluation.in_loop._results import LoopRow
from codecnn.evaluation.jvet import tables_of
from codecnn.evaluation.measure import Cell, PictureMeasure
from codecnn.evaluation.picture_types import by_picture_type, picture_types
from codecnn.evaluation.rows import make_row
from codecnn.evaluation.summarise import summarise_rows
from codecnn.models import as_card
from codecnn.runs import write_json
from tests.helpers.filters import rate_rows
from tests.helpers.store_units import make_unit

CARD = as_card({"network": "toward", "kmac_per_pixel": 17.5, "parameters": 200, "sha256": "abc"})
GAINS = {"A1": -1.0, "B": 1.0, "E": 0.5, "D": 3.0}
"""3 dB are a factor of two in bits."""


def results(tiny_store, configuration, name="mine", classes=GAINS):
    rows = [row for label, gain in classes.items() for row in rate_rows(f"in_{label}", gain, class_=label)]
    luma = {f"psnr_yuv_611{suffix}" for suffix in ("", "_filtered")}
    extra = [{key: getattr(row, key.replace("yuv_611", "y")) for key in luma} for row in rows]
    times = {"seconds_per_picture": 0.5, "encoder_seconds_per_picture": 2.0}
    rows = [row.model_copy(update=more | times) for row, more in zip(rows, extra, strict=True)]
    recipe = tiny_store.manifest.recipe.model_copy(update={"configuration": configuration, "ctc": True})
    store = dataclasses.replace(tiny_store, manifest=tiny_store.manifest.model_copy(update={"recipe": recipe}))
    return summarise_rows(rows, CARD, store, "test", name)


def rate(gain):
    return 100 * (2 ** (-gain / 3) - 1)


def test_lines_are_in_the_order_of_jvets_sheets(tiny_store):
    for configuration, above, below in (("ra", ["A1", "B"], ["D", "E"]), ("ldb", ["B", "E"], ["A1", "D"])):
        (table,) = tables_of([results(tiny_store, configuration)])
        names = [f"Class {label}" for label in above] + ["Overall"]
        names += [f"Class {label}" for label in sorted(below, key=lambda one: (one == "D", one))] + ["All sequences"]
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


def test_results_of_several_folders_become_one_table(tiny_store, tmp_path):
    for name, configurations in (("first", ("ldb",)), ("second", ("ai", "ra"))):
        every = [results(tiny_store, one, f"{name}/{one}") for one in configurations]
        write_json(tmp_path / name / "results.json", results_json(every))
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
    assert page.count("<h2>") == 1  # the weights are the same, whatever the folders call them
    cells = re.findall(r"<tr[^>]*><th scope=\"row\">Class A1</th><td class=\"bad\">\+([\d.]+) %", page)
    assert cells == [f"{rate(-1.0):.2f}"] * 3
    assert "<script" not in page
    with pytest.raises(TableError, match="two of the results are of"):
        merge_results([tmp_path / "first", tmp_path / "first"], output)
    with pytest.raises(ConfigError, match="would be replaced"):
        merge_results([tmp_path / "first"], tmp_path / "first")
    with pytest.raises(MissingFileError, match=r"no results\.json"):
        merge_results([tmp_path], output)
    for damaged in ("[]", '{"sequences": 1}', '{"models": 3}'):
        (tmp_path / "first" / "results.json").write_text(damaged)
        with pytest.raises(TableError, match="not what an evaluation writes"):
            merge_results([tmp_path / "first"], output)


def test_a_filter_in_the_loop_stands_beside_the_others(tmp_path):
    """A tenth fewer bits for 1.5 dB more: in the loop both count, behind the stream the quality alone."""
    rows = []
    for index, qp in enumerate((42, 37, 32, 27)):
        told = {"name": "clip", "model": "mine", "qp": qp, "pictures": 2, "flag_bits": 0, "pictures_off": 0}
        told |= {"used": True, "seconds_per_picture": 0.25, "encoder_seconds_per_picture": 1.5, "folder": "x"}
        for chain, bits, gain in (("without", 1.0, 0.0), ("post_filter", 1.0, 1.5), ("in_loop", 0.9, 1.5)):
            psnrs = dict.fromkeys(("psnr_y", "psnr_u", "psnr_v"), 30 + 3 * index + gain)
            rows.append(LoopRow(chain=chain, bits=round(bits * 1000 * 2**index), **psnrs, **told))
    loop = LoopResults(
        decisions="ctu",
        settings={"preset": "medium"},
        library="libvvenc 1.15.0",
        models={"mine": {"weights_sha256": "abc", "kmac_per_pixel": 17.5, "parameters": 200, "device": "cpu"}},
        rows=tuple(rows),
        bd_rate={"mine": {}},
        bd_rate_per_sequence={},
    )
    write_json(tmp_path / "loop" / "in_loop.json", loop.model_dump())
    behind, inside = merge_results([tmp_path / "loop"], tmp_path / "table")
    assert behind.rows[0].bd_rate["yuv_611"] == pytest.approx(rate(1.5), abs=0.05)
    assert inside.rows[1].bd_rate["y"] == pytest.approx(100 * (0.9 * 2**-0.5 - 1), abs=0.05)
    assert [row.name for row in inside.rows] == ["All sequences", "clip"]
    assert (inside.label, inside.rows[0].filter_seconds, inside.rows[0].encoder_seconds) == ("in the loop", 0.25, 1.5)
    assert (inside.kmac_per_pixel, inside.parameters, inside.weights, inside.device) == (17.5, 200, "abc", "cpu")
    # As it was written before what took part was noted.
    old = loop.model_dump(exclude={"models"})
    for row in old["rows"]:
        del row["encoder_seconds_per_picture"]
    write_json(tmp_path / "loop" / "in_loop.json", old)
    _, inside = merge_results([tmp_path / "loop"], tmp_path / "table")
    assert (inside.kmac_per_pixel, inside.rows[0].encoder_seconds) == (None, None)


def video_unit(folder: Path, golden_file, qp=37):
    """Seventeen pictures of random access as a store would list them, their types and bits from the encoder's log."""
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    log = gzip.decompress(golden_file("vvc/tinyclip128x64_ra_qp37.enclog.gz").read_bytes()).decode()
    told = re.findall(r"POC +(\d+) .*?TId: (\d) .*?(\w)-SLICE.*? (\d+) bits", log)
    told = sorted((int(poc), int(layer), kind, int(bits)) for poc, layer, kind, bits in told)
    (folder / "a.266").write_bytes(stream.read_bytes())
    form = {"width": 128, "height": 64, "bit_depth": 10, "chroma": "420", "fps": None}
    files = {"format": form, "original": "o.yuv", "decoded": "coded/a/d.yuv", "bitstream": "a.266", "bits": 99}
    unit = make_unit(folder, "clip", qp, pictures=[(poc, 0, 40.0) for poc, *_ in told], **files)
    kinds = {poc: {"slice_type": kind, "bits": bits} for poc, _, kind, bits in told}
    pictures = tuple(one.model_copy(update=kinds[one.poc]) for one in unit.pictures)
    return unit.model_copy(update={"pictures": pictures}), told


def test_types_and_layers_are_those_of_the_encoders_log(golden_file, tmp_path):
    unit, told = video_unit(tmp_path, golden_file)
    types = picture_types([unit])[unit.key]
    assert list(types) == ["I" if kind == "I" else f"{kind} layer {layer}" for _, layer, kind, _ in told]
    assert len(set(types)) > 4
    still = unit.model_copy(update={"pictures": unit.pictures[:1]})
    assert picture_types([still]) == {}
    bare = unit.model_copy(update={"bitstream_file": None})
    assert set(picture_types([bare])[unit.key]) == {"I", "B"}


def test_each_type_is_measured_by_its_own_pictures_and_bits(golden_file, tmp_path):
    """Intra pictures gain, layer 1 loses: what a mean over all pictures does not show."""
    units = [video_unit(tmp_path, golden_file, qp) for qp in (22, 27, 32, 37)]
    unit, told = units[0]
    types = {one.key: picture_types([unit])[unit.key] for one, _ in units}
    better = {"I": 2 ** (1 / 3), "B layer 1": 2 ** (-1 / 3)}
    cells = []
    for index, (one, _) in enumerate(units):
        pictures = tuple(p.model_copy(update={"bits": p.bits * 2 ** (3 - index)}) for p in one.pictures)
        decoded = [PictureMeasure(mse=(4.0**index,) * 3) for _ in pictures]
        after = [4.0**index / better.get(kind, 1) for kind in types[one.key]]
        filtered = [PictureMeasure(mse=(error,) * 3, seconds=0.1) for error in after]
        cells.append(Cell("m", one.model_copy(update={"pictures": pictures}), decoded, filtered, Path()))
    found = by_picture_type(cells, types)
    assert list(found) == sorted(set(types[unit.key]), key=lambda kind: (kind != "I", kind))
    assert {kind: of.pictures for kind, of in found.items()} == {
        kind: sum(one == kind for one in types[unit.key]) for kind in found
    }
    # 6 dB a factor of two in bits here, so 1 dB is a sixth of it.
    assert found["I"].gain_db["y"]["mean"] == pytest.approx(1.003, abs=0.001)
    assert found["I"].bd_rate["y"] == pytest.approx(100 * (2 ** (-1 / 6) - 1), abs=0.1)
    assert found["B layer 1"].bd_rate["yuv_611"] == pytest.approx(100 * (2 ** (1 / 6) - 1), abs=0.1)
    assert found["B layer 2"].bd_rate["u"] == pytest.approx(0, abs=1e-9)
    row = make_row(cells[3].unit, cells[3].decoded, cells[3].filtered, [0])
    assert (row.bits, row.pictures) == (told[0][3], 1)


def test_the_encoders_time_is_kept_where_asked_for(tiny_store, tiny_recipe, tmp_path):
    assert tiny_store.units[0].encoder_seconds is None
    recipe = load_recipe(tiny_recipe, ["times=true", "qp=[42]"])
    unit = build_store(recipe, tiny_recipe.parent, tmp_path / "timed").units[0]
    assert unit.key in {one.key for one in tiny_store.units}, "a time decides no sample"
    measures = [PictureMeasure(mse=(1.0, 1.0, 1.0), seconds=0.1) for _ in unit.pictures]
    row = make_row(unit, measures, measures)
    assert 0 < row.encoder_seconds_per_picture < 60
    assert row.encoder_seconds_per_picture == pytest.approx(unit.encoder_seconds / len(unit.pictures))
    old = unit.model_copy(update={"decoded_file": unit.original_file})  # beside the originals there are no times
    assert old.encoder_seconds is None
    assert "encoder_seconds_per_picture" not in make_row(old, measures, measures).to_json()
    assert Results(sequences=(row,)).sequences[0] == row
