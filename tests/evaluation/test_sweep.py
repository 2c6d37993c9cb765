"""Evaluation over a store: killed processes, several filters, decisions and their bits, metrics, output files."""

import csv
import dataclasses
import json
import multiprocessing
import random
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from codecnn.analysis import correlate, load_table
from codecnn.base.errors import ConfigError, ModelError
from codecnn.evaluation import Entry, evaluate, measure_filtered, parse_metrics, summarise_rows
from codecnn.filtering import decide_picture
from codecnn.models import as_card, create_model, save_weights
from codecnn.pictures.files import Picture, create_video
from codecnn.pictures.metrics import VMAF_NEG_MODEL, psnr, ssim, vmaf, xpsnr
from tests.helpers.filters import Toward, rate_rows, toward_entry
from tests.helpers.networks import SMALL, awaken


@pytest.fixture(scope="module")
def store(tiny_store):
    """Provide all six units of the tiny store as test pictures: three pictures of two classes, two QPs."""
    classes = {"a": "B", "b": "B", "small": "D"}
    units = [unit.model_copy(update={"split": "test", "class_": classes[unit.name]}) for unit in tiny_store.units]
    return dataclasses.replace(tiny_store, units=tuple(units))


@pytest.fixture(scope="module")
def originals(store):
    return [first_pictures(unit)[0].y for unit in store.units]


class WithQp(Toward):
    """A filter that takes the QP as input but ignores it."""

    planes = ("rec_y", "qp")


def test_network_without_qp_input_has_no_bits_for_qp_offsets(store, originals):
    """The QP offset is signalled only for a network that takes the QP."""
    unit = store.units[0]
    bits = []
    for filter_ in (Toward(originals, 0.5, 0.5), WithQp(originals, 0.5, 0.5)):
        for decisions in ("ctu", "full"):
            pictures, _ = measure_filtered(filter_, unit, ("psnr",), decisions, 64)
            bits.append(pictures[0].bits)
    assert bits[0] == bits[1] == bits[2]
    assert bits[3] == bits[0] + 2


def configured(manifest, configuration):
    recipe = manifest.recipe.model_copy(update={"configuration": configuration})
    return manifest.model_copy(update={"recipe": recipe})


def first_pictures(unit):
    """Return the first picture of a unit: original and decoded."""
    with unit.originals() as originals, unit.decoded() as decoded:
        pair = originals[0], decoded[0]
        return [Picture(tuple(np.array(plane) for plane in each.planes), each.bit_depth) for each in pair]


def test_each_kill_loses_at_most_one_cell(store, originals, tmp_path):
    """Evaluations killed at random moments repeat only the cell that they were measuring."""
    log = tmp_path / "calls"
    log.touch()
    context = multiprocessing.get_context("fork")
    rng = random.Random(7)
    out, kills = tmp_path / "out", 0
    while kills < 8 and len(list(out.glob("cells/*.parquet"))) < len(store.units):
        entry = toward_entry(originals, log=log, pause=0.15)
        child = context.Process(target=evaluate, args=([entry], store, "test", out))
        child.start()
        before = len(log.read_text().split())
        # Wait for one more call, then kill it at a random moment: while measuring, writing or in between.
        while child.is_alive() and len(log.read_text().split()) == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3))
        kills += child.is_alive()
        child.kill()
        child.join()
        for cell in out.glob("cells/*.json"):
            json.loads(cell.read_text())
    assert kills >= 3
    (results,) = evaluate([toward_entry(originals, log=log)], store, "test", out)
    # One call a unit, one more for each kill, and one for each of three crops, which the last kill may interrupt.
    crops = 3
    assert len(log.read_text().split()) <= len(store.units) + kills + 2 * crops
    (fresh,) = evaluate([toward_entry(originals)], store, "test", tmp_path / "fresh")
    for row, expected in zip(results.sequences, fresh.sequences, strict=True):
        assert row.model_copy(update={"seconds_per_picture": expected.seconds_per_picture}) == expected
    assert (out / "pictures.csv").read_text() == (tmp_path / "fresh" / "pictures.csv").read_text()


def test_damaged_cell_is_measured_again(store, originals, tmp_path):
    (first,) = evaluate([toward_entry(originals)], store, "test", tmp_path)
    for index, cell in enumerate(sorted((tmp_path / "cells").iterdir())):
        if index % 3 == 0:
            cell.unlink()
        elif index % 3 == 1 and cell.suffix == ".json":
            cell.write_text(cell.read_text()[:20])
    (again,) = evaluate([toward_entry(originals)], store, "test", tmp_path)
    assert [row.after.psnr["y"] for row in again.sequences] == [row.after.psnr["y"] for row in first.sequences]


def test_damaged_or_foreign_table_of_a_cell_is_measured_again(store, originals, tmp_path, caplog):
    units = dataclasses.replace(store, units=store.units[:2])
    (first,) = evaluate([toward_entry(originals)], units, "test", tmp_path)
    one, other = sorted(tmp_path.glob("cells/*.parquet"))
    one.write_bytes(one.read_bytes()[:-20])
    pq.write_table(pq.read_table(other).slice(1), other)
    (again,) = evaluate([toward_entry(originals)], units, "test", tmp_path)
    assert [row.after.psnr["y"] for row in again.sequences] == [row.after.psnr["y"] for row in first.sequences]
    messages = [record.getMessage() for record in caplog.records]
    assert [sum(path.name in message for message in messages) for path in (one, other)] == [1, 1]
    caplog.clear()
    evaluate([toward_entry(originals)], units, "test", tmp_path)
    assert not caplog.records


def test_decisions_filter_the_good_half_and_count_flag_bits(store, originals, tmp_path):
    entry = toward_entry(originals, left=0.9)
    (plain,) = evaluate([entry], store, "test", tmp_path / "plain")
    (results,) = evaluate([entry], store, "test", tmp_path / "ctu", decisions="ctu")
    for row, network, unit in zip(results.sequences, plain.sequences, store.units, strict=True):
        assert row.network.psnr["y"] == network.after.psnr["y"]
        assert network.flag_bits == 0
        source, decoded = first_pictures(unit)
        samples = {0: entry.filter.samples(decoded, unit.qp)}
        picture, decision = decide_picture(source, decoded, samples, qp=unit.qp, ctu=64)
        assert row.after.psnr["y"] == psnr(source.y, picture.y, 10)
        # A sequence without filtered CTUs has no flags at all.
        assert row.flag_bits == (0 if decision.mode == "off" else decision.bits)
    by_name = {row.name: row for row in results.sequences}
    assert by_name["a"].after.psnr["y"] > by_name["a"].network.psnr["y"]
    assert by_name["a"].after.psnr["y"] > by_name["a"].before.psnr["y"]
    assert by_name["a"].flag_bits > 2
    assert results.gain_db_network["y"] == plain.gain_db["y"]
    ctus = pq.read_table(tmp_path / "ctu" / "ctus.parquet").to_pylist()
    left = [row["flag"] for row in ctus if row["sequence"] == "a" and row["x"] + row["w"] <= 104]
    right = [row["flag"] for row in ctus if row["sequence"] == "a" and row["x"] >= 128]
    assert all(left)
    assert not any(right)
    assert left
    assert right


def test_harmful_filter_is_disabled_for_the_sequence_without_bits(store, originals):
    harm = Toward(originals, -0.5, -0.5)
    for unit in store.units[:2]:
        for metrics in (["psnr"], ["psnr", "ssim"]):
            (picture,), table = measure_filtered(harm, unit, metrics, "ctu", 64)
            assert (picture.bits, picture.mode) == (0, "off")
            assert table["mse_y"].equals(table["mse_y_filtered"])
            assert not any(table["flag"].to_pylist())
            source, decoded = first_pictures(unit)
            assert picture.mse[0] == pytest.approx(((source.y - decoded.y.astype(float)) ** 2).mean())
            if "ssim" in metrics:
                assert picture.ssim == ssim(source.y, decoded.y, 10)


def test_table_of_ctus(store, originals, tmp_path):
    """The table equals a computation by slices, and the correlation analysis reads it."""
    entry = toward_entry(originals)
    evaluate([entry], store, "test", tmp_path)
    table = pq.read_table(tmp_path / "ctus.parquet").to_pylist()
    for unit in store.units:
        rows = [row for row in table if row["unit"] == unit.key]
        source, decoded = first_pictures(unit)
        filtered = entry.filter(decoded, unit.qp)
        covered = np.zeros(source.y.shape, int)
        for row in rows:
            region = np.s_[row["y"] : row["y"] + row["h"], row["x"] : row["x"] + row["w"]]
            covered[region] += 1
            for name, picture in (("mse_y", decoded), ("mse_y_filtered", filtered)):
                error = source.y[region].astype(float) - picture.y[region]
                assert row[name] == pytest.approx((error**2).mean(), rel=1e-12)
            assert row["flag"] is None
            assert (row["qp"], row["sequence"], row["model"]) == (unit.qp, unit.name, "half")
        assert (covered == 1).all()
    stored = {(row["unit"], row["poc"], row["x"], row["y"]): row["mse_y"] for row in store.ctus().to_pylist()}
    assert {(row["unit"], row["poc"], row["x"], row["y"]): row["mse_y"] for row in table} == stored
    depths = [row | {"depth_mean": float(index % 3)} for index, row in enumerate(table)]
    assert set(load_table(tmp_path / "ctus.parquet")) >= {"qp", "depth_mean", "mse_y", "sequence", "poc"}
    columns = {name: [row[name] for row in depths] for name in ("qp", "depth_mean", "mse_y", "sequence")}
    assert correlate(columns).n == len(table)


def test_decisions_as_block_statistics(store, originals, tmp_path):
    evaluate([toward_entry(originals, left=0.5)], store, "test", tmp_path, decisions="ctu")
    files = sorted((tmp_path / "statistics").iterdir())
    assert len(files) == len(store.units) + 1
    table = pq.read_table(tmp_path / "ctus.parquet").to_pylist()
    (file,) = (tmp_path / "statistics").glob("half_a_qp42_*.vtmbmsstats")
    text = file.read_text()
    assert text.startswith("# VTMBMS Block Statistics\n# Sequence size: [208x 144]\n")
    assert "# Block Statistic Type: Filtered; Integer; [0, 1]" in text
    for row in (row for row in table if row["sequence"] == "a" and row["qp"] == 42):
        block = f"BlockStat: POC 0 @({row['x']:4d},{row['y']:4d}) [{row['w']:2d}x{row['h']:2d}]"
        after = row["mse_y_filtered"]
        gain = min(round(1000 * np.log10(row["mse_y"] / after)), 1000) if after else 1000
        assert f"{block} Filtered={int(row['flag'])}\n" in text
        assert f"{block} GainCentiDB={gain}\n" in text


def test_names_of_block_statistics_are_unique(store, originals, tmp_path):
    """Also where names differ in other characters than those of file names, and behind the length that is kept."""
    unit = dataclasses.replace(store, units=store.units[:1])
    names = ["ä", "ö", "a/b", "a_b", "x" * 300 + "1", "x" * 300 + "2"]
    entries = [toward_entry(originals, left=0.5, name=name) for name in names]
    evaluate(entries, unit, "test", tmp_path, decisions="ctu")
    evaluate(entries[:1], unit, "test", tmp_path, decisions="full")
    assert len(list((tmp_path / "statistics").glob("*.vtmbmsstats"))) == len(names) + 1
    with (tmp_path / "statistics" / "files.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["model"] == "ä"
    assert (tmp_path / "statistics" / row["file"]).is_file()


def test_several_filters(store, originals, tmp_path):
    entries = [toward_entry(originals), toward_entry(originals, name="less", left=0.1)]
    results = evaluate(entries, store, "test", tmp_path)
    assert [each.name for each in results] == ["half", "less"]
    (alone,) = evaluate(entries[1:], store, "test", tmp_path / "alone")
    assert results[1].gain_db == alone.gain_db
    with (tmp_path / "results.csv").open() as file:
        assert [row["model"] for row in csv.DictReader(file)] == ["half"] * 6 + ["less"] * 6
    page = (tmp_path / "report.html").read_text()
    assert "Comparison of the filters" in page
    assert (tmp_path / "results.md").read_text().count("\n# less") == 1


def test_metrics_other_than_psnr(store, originals, tmp_path):
    entry = toward_entry(originals)
    (results,) = evaluate(
        [entry], store, "test", tmp_path, metrics=["psnr", "ssim", "ms_ssim", "vmaf", "vmaf_neg", "xpsnr"]
    )
    unit = next(unit for unit in store.units if unit.name == "a" and unit.qp == 42)
    row = next(row for row in results.sequences if (row.name, row.qp) == ("a", 42))
    source, decoded = first_pictures(unit)
    filtered = entry.filter(decoded, 42)
    assert row.before.perceptual["ssim"] == ssim(source.y, decoded.y, 10)
    assert row.after.perceptual["ssim"] == ssim(source.y, filtered.y, 10)
    with create_video(tmp_path / "f.yuv", unit.format) as out:
        out.write(filtered)
    y, u, v = (psnr(a, b, 10) for a, b in zip(source.planes, filtered.planes, strict=True))
    assert row.after.psnr["yuv_611"] == pytest.approx((6 * y + u + v) / 8)
    a, b = (np.concatenate([p.ravel() for p in x.planes]).astype(float) for x in (source, filtered))
    assert row.after.psnr["yuv_mse"] == pytest.approx(10 * np.log10(1020**2 / ((a - b) ** 2).mean()))
    assert row.after.perceptual["vmaf"] == vmaf(unit.original_path, tmp_path / "f.yuv", unit.format)[0]
    assert row.before.perceptual["vmaf"] != row.after.perceptual["vmaf"]
    neg = vmaf(unit.original_path, tmp_path / "f.yuv", unit.format, model=VMAF_NEG_MODEL)[0]
    assert row.after.perceptual["vmaf_neg"] == neg
    assert row.after.perceptual["xpsnr"] == xpsnr(unit.original_path, tmp_path / "f.yuv", unit.format)[0][0]
    # 208x144 is too small for five scales.
    assert row.before.perceptual["ms_ssim"] is None
    assert row.before.psnr_of_mean_mse["y"] == pytest.approx(row.before.psnr["y"])


def test_bd_rates_by_class_and_over_all(store):
    """Means over the sequences of a class and over all sequences."""
    gains, classes = {"p": 0.1, "q": 0.3, "r": 0.6, "s": 0.9}, {"p": "B", "q": "B", "r": "C", "s": "D"}
    rows = [row for name, gain in gains.items() for row in rate_rows(name, gain, class_=classes[name])]
    results = summarise_rows(rows, as_card({}), store, "test")
    rates = {name: 100 * (2 ** (-gain / 3) - 1) for name, gain in gains.items()}
    by_class = {label: each["y"] for label, each in results.bd_rate_by_class.items()}
    assert by_class == pytest.approx({"B": (rates["p"] + rates["q"]) / 2, "C": rates["r"], "D": rates["s"]}, abs=0.01)
    over = (by_class["B"] + by_class["C"] + by_class["D"]) / 3
    assert results.over_classes.bd_rate_y == pytest.approx(over)
    assert results.over_classes.worst_class[0] == "B"
    assert ("Mean of the 3 classes", over) in [(name, each["y"]) for name, each, _ in results.summary()]
    assert results.bd_rate["v"] == pytest.approx(sum(rates.values()) / 4, abs=0.01)
    assert results.bd_rate_jvet["y"] == pytest.approx((rates["p"] + rates["q"] + rates["r"]) / 3, abs=0.01)
    low_delay = dataclasses.replace(store, manifest=configured(store.manifest, "ldb"))
    in_low_delay = [row.model_copy(update={"class_": {"B": "A1"}.get(row.class_, row.class_)}) for row in rows]
    without_a1 = summarise_rows(in_low_delay, as_card({}), low_delay, "test")
    assert without_a1.bd_rate_jvet["y"] == pytest.approx(rates["r"], abs=0.01)
    assert "Overall without A1 and D" in [name for name, _, _ in without_a1.summary()]
    assert results.bd_rate_akima["y"] == pytest.approx(results.bd_rate["y"], abs=0.01)
    short = summarise_rows(rows[:-1], as_card({}), store, "test")
    assert short.bd_rate["y"] is None
    assert short.over_classes is None
    assert short.bd_rate_by_class["C"]["y"] is not None
    assert any("no BD-rate for s" in note and "it needs 4 QPs" in note for note in short.notes)


def test_invalid_arguments_are_refused(store, originals, tmp_path):
    entry = toward_entry(originals)
    for error, message, entries, options in (
        (ConfigError, "'lpips'", [entry], {"metrics": ["lpips"]}),
        (ConfigError, "two filters have the same name: half, half", [entry, entry], {}),
        (ConfigError, "'maybe'", [entry], {"decisions": "maybe"}),
        (ConfigError, "no filter", [], {}),
        (ModelError, "half does not state the sha256", [Entry("half", as_card({}), entry.filter)], {}),
    ):
        with pytest.raises(error, match=message):
            evaluate(entries, store, "test", tmp_path, **options)
    assert parse_metrics("psnr, ms-ssim") == ("psnr", "ms_ssim")
    assert not list(tmp_path.iterdir())


def test_command_takes_filters_metrics_decisions_and_qps(run, tiny_store, tmp_path):
    identity, other = create_model("rdn", **SMALL), awaken(create_model("rdn", **SMALL))
    save_weights(tmp_path / "one" / "best.safetensors", identity, "rdn", {})
    save_weights(tmp_path / "two" / "best.safetensors", other, "rdn", {})
    argv = ["evaluate", tiny_store.folder, "-m", tmp_path / "one" / "best.safetensors", "-o", tmp_path / "out"]
    options = ["-m", tmp_path / "two" / "best.safetensors", "-q", "42", "--metrics", "psnr,ssim", "--decisions", "ctu"]
    status, text, err = run(*argv, *options, "--json")
    assert status == 0, err
    first, second = json.loads(text)["models"]
    assert (first["name"], second["name"]) == ("one/best", "two/best")
    assert [(row["name"], row["qp"]) for row in first["sequences"]] == [("small", 42)]
    assert first["sequences"][0]["ssim"] > 0
    assert first["decisions"] == "ctu"
    assert first["sequences"][0]["psnr_y_network"] == first["sequences"][0]["psnr_y"]
    assert second["sequences"][0]["psnr_y_network"] != second["sequences"][0]["psnr_y"]
    status, text, err = run(*argv, *options)
    assert status == 0, err
    assert "the network alone" in text
    status, _, err = run(*argv, "-q", "22")
    assert status == 1
    assert "no pictures at QP 22" in err
