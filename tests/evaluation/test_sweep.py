"""The sweep: kills, several filters, decisions with their bits, metrics beside PSNR, tables for other programs."""

import csv
import dataclasses
import json
import multiprocessing
import os
import random
import signal
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from codecnn.analysis import correlate, load_table
from codecnn.errors import ConfigError, ModelError, StoreError
from codecnn.evaluation import psnr
from codecnn.evaluation.measure import Entry, measure_filtered, parse_metrics
from codecnn.evaluation.summary import summarise
from codecnn.evaluation.sweep import evaluate
from codecnn.filtering import decide_picture, rounded
from codecnn.models import create_model, save_weights
from codecnn.quality.libvmaf import vmaf
from codecnn.quality.structure import ssim
from codecnn.video import create_video
from tests.models.test_models import SMALL, awaken


class Toward:
    """A filter for tests: goes a share of the way to the original in the left half, away from it in the right half."""

    planes, outputs = ("rec_y",), ("y",)

    def __init__(self, unit_originals, share=0.5, log=None, pause=0.0):
        self.originals, self.share, self.log, self.pause = unit_originals, share, log, pause

    def samples(self, picture, qp, beside=None):
        if self.log:
            with self.log.open("a") as file:
                file.write("call\n")
            time.sleep(self.pause)
        original = next(y for y in self.originals if y.shape == picture.y.shape)
        change = self.share * (original.astype(np.float64) - picture.y)
        change[:, picture.y.shape[1] // 2 :] *= -1
        return {"y": picture.y + change}

    def __call__(self, picture, qp, beside=None):
        return rounded(picture, self.samples(picture, qp))


@pytest.fixture(scope="module")
def store(tiny_store):
    """All six units of the tiny store as test pictures: three pictures of two classes, two QPs."""
    classes = {"a": "B", "b": "B", "small": "D"}
    units = [
        dataclasses.replace(unit, record=unit.record | {"split": "test", "class": classes[unit.name]})
        for unit in tiny_store.units
    ]
    return dataclasses.replace(tiny_store, units=tuple(units))


@pytest.fixture(scope="module")
def originals(store):
    planes = []
    for unit in store.units:
        with unit.originals() as video:
            planes.append(np.array(video[0].y))
    return planes


def _entry(originals, name="half", **options):
    card = {"network": "toward", "kmac_per_pixel": 1.0, "parameters": 2, "sha256": name}
    return Entry(name, card, Toward(originals, **options))


def test_kills_at_random_moments_lose_one_cell_each_at_most(store, originals, tmp_path):
    """Forked evaluations are killed; each measures again only what it was at when it died."""
    log = tmp_path / "calls"
    log.touch()
    context = multiprocessing.get_context("fork")
    rng = random.Random(7)
    kills = 0
    for attempt in range(12):
        entry = _entry(originals, log=log, pause=0.1)
        child = context.Process(target=evaluate, args=([entry], store, "test", tmp_path / "out"))
        child.start()
        before = len(log.read_text().split())
        # Let it come a little further each time, then kill it anywhere: measuring, writing, in between.
        while child.is_alive() and len(log.read_text().split()) == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3))
        if not child.is_alive() or attempt >= 8:
            child.kill()
            child.join()
            break
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        kills += 1
        for cell in (tmp_path / "out").glob("cells/*.json"):
            json.loads(cell.read_text())
    assert kills >= 3
    results = evaluate([_entry(originals, log=log)], store, "test", tmp_path / "out")
    # One call a unit, one for each of three crops, and one again for each kill.
    crops = 3
    assert len(log.read_text().split()) <= len(store.units) + crops + kills + 1
    fresh = evaluate([_entry(originals)], store, "test", tmp_path / "fresh")
    for row, other in zip(results["sequences"], fresh["sequences"], strict=True):
        assert {**row, "seconds_per_picture": 0} == {**other, "seconds_per_picture": 0}
    assert (tmp_path / "out" / "pictures.csv").read_text() == (tmp_path / "fresh" / "pictures.csv").read_text()


def test_a_damaged_cell_is_measured_again(store, originals, tmp_path):
    first = evaluate([_entry(originals)], store, "test", tmp_path)
    for index, cell in enumerate(sorted((tmp_path / "cells").iterdir())):
        if index % 3 == 0:
            cell.unlink()
        elif index % 3 == 1 and cell.suffix == ".json":
            cell.write_text(cell.read_text()[:20])
    again = evaluate([_entry(originals)], store, "test", tmp_path)
    assert [row["psnr_y_filtered"] for row in again["sequences"]] == [
        row["psnr_y_filtered"] for row in first["sequences"]
    ]


def test_decisions_keep_the_good_half_and_pay_for_their_flags(store, originals, tmp_path):
    entry = _entry(originals, share=0.9)
    plain = evaluate([entry], store, "test", tmp_path / "plain")
    results = evaluate([entry], store, "test", tmp_path / "ctu", decisions="ctu")
    for row, network, unit in zip(results["sequences"], plain["sequences"], store.units, strict=True):
        assert row["psnr_y_network"] == network["psnr_y_filtered"]
        assert network["flag_bits"] == 0
        with unit.originals() as source, unit.decoded() as decoded:
            picture, decision = decide_picture(
                source[0], decoded[0], {0: entry.filter.samples(decoded[0], unit.qp)}, qp=unit.qp, ctu=64
            )
            assert row["psnr_y_filtered"] == psnr(source[0].y, picture.y, 10)
        # A sequence of which nothing is filtered has no flags at all.
        assert row["flag_bits"] == (0 if decision.mode == "off" else decision.bits)
    by_name = {row["name"]: row for row in results["sequences"]}
    assert by_name["a"]["psnr_y_filtered"] > by_name["a"]["psnr_y_network"]
    assert by_name["a"]["psnr_y_filtered"] > by_name["a"]["psnr_y"]
    assert by_name["a"]["flag_bits"] > 2
    assert results["gain_db_network"]["y"] == plain["gain_db"]["y"]
    ctus = pq.read_table(tmp_path / "ctu" / "ctus.parquet").to_pylist()
    left = [row["flag"] for row in ctus if row["sequence"] == "a" and row["x"] + row["w"] <= 104]
    right = [row["flag"] for row in ctus if row["sequence"] == "a" and row["x"] >= 128]
    assert all(left)
    assert not any(right)
    assert left
    assert right


def test_a_harmful_filter_is_left_out_of_the_sequence_without_a_bit(store, originals, tmp_path):
    entry = _entry(originals, share=-0.5)
    for unit in store.units[:2]:
        entry.filter.share = -0.5

        def harm(picture, qp, beside=None):
            original = next(y for y in originals if y.shape == picture.y.shape)
            return {"y": picture.y - 0.5 * (original.astype(float) - picture.y)}

        entry.filter.samples = harm
        for metrics in (["psnr"], ["psnr", "ssim"]):
            rows, table = measure_filtered(entry.filter, unit, metrics, "ctu", 64)
            assert [(row["bits"], row["mode"]) for row in rows] == [(0, "off")]
            assert table["mse_y"].equals(table["mse_y_filtered"])
            assert not any(table["flag"].to_pylist())
            with unit.originals() as source, unit.decoded() as decoded:
                assert rows[0]["mse"][0] == pytest.approx(((source[0].y - decoded[0].y.astype(float)) ** 2).mean())
                if "ssim" in metrics:
                    assert rows[0]["ssim"] == ssim(source[0].y, decoded[0].y, 10)


def test_table_of_ctus(store, originals, tmp_path):
    """Brute force over slices, and the analysis reads it as it reads a store's."""
    entry = _entry(originals)
    evaluate([entry], store, "test", tmp_path)
    table = pq.read_table(tmp_path / "ctus.parquet").to_pylist()
    for unit in store.units:
        rows = [row for row in table if row["unit"] == unit.key]
        with unit.originals() as source, unit.decoded() as decoded:
            filtered = entry.filter(decoded[0], unit.qp)
            covered = np.zeros(source[0].y.shape, int)
            for row in rows:
                place = np.s_[row["y"] : row["y"] + row["h"], row["x"] : row["x"] + row["w"]]
                covered[place] += 1
                for name, picture in (("mse_y", decoded[0]), ("mse_y_filtered", filtered)):
                    error = source[0].y[place].astype(float) - picture.y[place]
                    assert row[name] == pytest.approx((error**2).mean(), rel=1e-12)
                assert row["flag"] is None
                assert (row["qp"], row["sequence"], row["model"]) == (unit.qp, unit.name, "half")
        assert (covered == 1).all()
    own = {(row["unit"], row["poc"], row["x"], row["y"]): row["mse_y"] for row in store.ctus().to_pylist()}
    assert {(row["unit"], row["poc"], row["x"], row["y"]): row["mse_y"] for row in table} == own
    depths = [row | {"depth_mean": float(index % 3)} for index, row in enumerate(table)]
    assert set(load_table(tmp_path / "ctus.parquet")) >= {"qp", "depth_mean", "mse_y", "sequence", "poc"}
    columns = {name: [row[name] for row in depths] for name in ("qp", "depth_mean", "mse_y", "sequence")}
    assert correlate(columns)["n"] == len(table)


def test_decisions_as_block_statistics(store, originals, tmp_path):
    evaluate([_entry(originals, share=0.5)], store, "test", tmp_path, decisions="ctu")
    files = sorted((tmp_path / "statistics").iterdir())
    assert len(files) == len(store.units)
    table = pq.read_table(tmp_path / "ctus.parquet").to_pylist()
    text = (tmp_path / "statistics" / "half_a_qp42.vtmbmsstats").read_text()
    assert text.startswith("# VTMBMS Block Statistics\n# Sequence size: [208x 144]\n")
    assert "# Block Statistic Type: Filtered; Integer; [0, 1]" in text
    for row in (row for row in table if row["sequence"] == "a" and row["qp"] == 42):
        block = f"BlockStat: POC 0 @({row['x']:4d},{row['y']:4d}) [{row['w']:2d}x{row['h']:2d}]"
        after = row["mse_y_filtered"]
        gain = min(round(1000 * np.log10(row["mse_y"] / after)), 1000) if after else 1000
        assert f"{block} Filtered={int(row['flag'])}\n" in text
        assert f"{block} GainCentiDB={gain}\n" in text


def test_several_filters(store, originals, tmp_path):
    entries = [_entry(originals), _entry(originals, name="less", share=0.1)]
    results = evaluate(entries, store, "test", tmp_path)
    assert [one["name"] for one in results["models"]] == ["half", "less"]
    alone = evaluate(entries[1:], store, "test", tmp_path / "alone")
    assert results["models"][1]["gain_db"] == alone["gain_db"]
    with (tmp_path / "results.csv").open() as file:
        assert [row["model"] for row in csv.DictReader(file)] == ["half"] * 6 + ["less"] * 6
    page = (tmp_path / "report.html").read_text()
    assert "Filters side by side" in page
    assert (tmp_path / "results.md").read_text().count("\n# less") == 1


def test_metrics_beside_psnr(store, originals, tmp_path):
    entry = _entry(originals)
    results = evaluate([entry], store, "test", tmp_path, metrics=["psnr", "ssim", "ms_ssim", "vmaf"])
    unit = next(unit for unit in store.units if unit.name == "a" and unit.qp == 42)
    row = next(row for row in results["sequences"] if (row["name"], row["qp"]) == ("a", 42))
    with unit.originals() as source, unit.decoded() as decoded:
        filtered = entry.filter(decoded[0], 42)
        assert row["ssim"] == ssim(source[0].y, decoded[0].y, 10)
        assert row["ssim_filtered"] == ssim(source[0].y, filtered.y, 10)
        with create_video(tmp_path / "f.yuv", unit.format) as out:
            out.write(filtered)
        y, u, v = (psnr(a, b, 10) for a, b in zip(source[0].planes, filtered.planes, strict=True))
        assert row["psnr_yuv_611_filtered"] == pytest.approx((6 * y + u + v) / 8)
        a, b = (np.concatenate([p.ravel() for p in x.planes]).astype(float) for x in (source[0], filtered))
        assert row["psnr_yuv_mse_filtered"] == pytest.approx(10 * np.log10(1020**2 / ((a - b) ** 2).mean()))
    assert row["vmaf_filtered"] == vmaf(unit.folder / unit.record["original"], tmp_path / "f.yuv", unit.format)[0]
    assert row["vmaf"] != row["vmaf_filtered"]
    # 208x144 is too small for five scales.
    assert row["ms_ssim"] is None
    assert row["psnr_y_of_mean_mse"] == pytest.approx(row["psnr_y"])


def test_bd_rates_by_class_and_over_all(store):
    """3 dB are worth a factor of two, so g dB are worth 2^(-g/3): means over the sequences of a class, and over all."""

    def rows(name, class_, gain):
        psnrs = {f"psnr_{p}{s}": 0.0 for p in "yuv" for s in ("", "_filtered")}
        return [
            psnrs
            | {"name": name, "class": class_, "qp": qp, "bits": 1000 * 2**i, "flag_bits": 0}
            | {f"psnr_{p}": 30.0 + 3 * i for p in "yuv"}
            | {f"psnr_{p}_filtered": 30.0 + 3 * i + gain for p in "yuv"}
            for i, qp in enumerate((42, 37, 32, 27))
        ]

    every = rows("p", "B", 0.1) + rows("q", "B", 0.3) + rows("r", "C", 0.6) + rows("s", "D", 0.9)
    results = summarise(every, {}, store, "test")
    worth = {name: 100 * (2 ** (-gain / 3) - 1) for name, gain in zip("pqrs", (0.1, 0.3, 0.6, 0.9), strict=True)}
    by_class = {label: rates["y"] for label, rates in results["bd_rate_by_class"].items()}
    assert by_class == pytest.approx({"B": (worth["p"] + worth["q"]) / 2, "C": worth["r"], "D": worth["s"]}, abs=0.01)
    assert results["bd_rate"]["v"] == pytest.approx(sum(worth.values()) / 4, abs=0.01)
    assert results["bd_rate_jvet"]["y"] == pytest.approx((worth["p"] + worth["q"] + worth["r"]) / 3, abs=0.01)
    assert results["bd_rate_akima"]["y"] == pytest.approx(results["bd_rate"]["y"], abs=0.01)
    short = summarise(every[:-1], {}, store, "test")
    assert short["bd_rate"]["y"] is None
    assert short["bd_rate_by_class"]["C"]["y"] is not None
    assert any("no BD-rate Y for s" in note and "4 points" in note for note in short["notes"])


def test_refusals(store, originals, tmp_path):
    entry = _entry(originals)
    with pytest.raises(ConfigError, match="'lpips'"):
        evaluate([entry], store, "test", tmp_path, metrics=["lpips"])
    with pytest.raises(ConfigError, match="two filters have one name: half, half"):
        evaluate([entry, entry], store, "test", tmp_path)
    with pytest.raises(ConfigError, match="'maybe'"):
        evaluate([entry], store, "test", tmp_path, decisions="maybe")
    with pytest.raises(ConfigError, match="no filter"):
        evaluate([], store, "test", tmp_path)
    with pytest.raises(ModelError, match="half does not tell the sha256"):
        evaluate([Entry("half", {}, entry.filter)], store, "test", tmp_path)
    assert parse_metrics("psnr, ms-ssim") == ("psnr", "ms_ssim")
    assert not list(tmp_path.iterdir())


def test_the_command_takes_filters_metrics_decisions_and_qps(tiny_store, tmp_path, capsys):
    from codecnn.cli import app

    identity, other = create_model("rdn", **SMALL), awaken(create_model("rdn", **SMALL))
    save_weights(tmp_path / "one" / "best.safetensors", identity, "rdn", {})
    save_weights(tmp_path / "two" / "best.safetensors", other, "rdn", {})

    def run(*options):
        models = ("-m", tmp_path / "one" / "best.safetensors", "-m", tmp_path / "two" / "best.safetensors")
        argv = ["evaluate", tiny_store.folder, *models, "-o", tmp_path / "out", *options]
        with pytest.raises(SystemExit) as end:
            app([str(part) for part in argv])
        return end.value.code, capsys.readouterr()

    code, told = run("-q", "42", "--metrics", "psnr,ssim", "--decisions", "ctu", "--json")
    assert code == 0
    first, second = json.loads(told.out)["models"]
    assert (first["name"], second["name"]) == ("one/best", "two/best")
    assert [(row["name"], row["qp"]) for row in first["sequences"]] == [("small", 42)]
    assert first["sequences"][0]["ssim"] > 0
    assert first["decisions"] == "ctu"
    assert first["sequences"][0]["psnr_y_network"] == first["sequences"][0]["psnr_y"]
    assert second["sequences"][0]["psnr_y_network"] != second["sequences"][0]["psnr_y"]
    code, told = run("-q", "42", "--metrics", "psnr,ssim", "--decisions", "ctu")
    assert code == 0
    assert "the network alone" in told.out
    with pytest.raises(StoreError, match="no pictures at QP 22"):
        app([str(part) for part in ("evaluate", tiny_store.folder, "-m", tmp_path / "one" / "best.safetensors",
                                    "-q", "22", "-o", tmp_path / "out")], standalone_mode=False)  # fmt: skip
