"""The evaluation: figures against the encoder's log and against slices by hand, resumed work, honest labels."""

import json

import numpy as np
import pytest

from codecnn.evaluation import psnr, sweep
from codecnn.evaluation.measure import Entry, measure_decoded, measure_filtered
from codecnn.evaluation.summary import label, make_row, summarise
from codecnn.evaluation.sweep import evaluate
from codecnn.filtering import filter_luma, float_filter
from codecnn.models import create_model, load_model, save_weights
from tests.models.test_models import SMALL, awaken


def measure(model, unit, metrics=("psnr",), decisions="none"):
    filtered, _ = measure_filtered(float_filter(model), unit, metrics, decisions, 64)
    return make_row(unit, measure_decoded(unit, metrics), filtered)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **SMALL)), "rdn", {"data_key": "none"})
    return load_model(path)


@pytest.fixture(scope="module")
def entry(weights):
    return Entry("w", weights[1], float_filter(weights[0]))


def test_unfiltered_psnr_is_the_encoders_own(tiny_store):
    for unit in tiny_store.units:
        row = measure(create_model("rdn", **SMALL), unit)
        assert row["psnr_y"] == pytest.approx(unit.record["psnr_y"], abs=1e-4)
        assert row["psnr_u"] == pytest.approx(unit.record["psnr_u"], abs=1e-4)
        assert row["psnr_y_filtered"] == row["psnr_y"]


def test_filtered_psnr_is_that_of_the_filtered_picture(tiny_store, weights):
    unit = tiny_store.split("test")[1]
    row = measure(weights[0], unit)
    with unit.originals() as originals, unit.decoded() as decoded:
        filtered = filter_luma(weights[0], decoded[0].y, 42, 10)
        assert row["psnr_y_filtered"] == psnr(originals[0].y, filtered, 10)
        assert row["psnr_y_filtered"] != row["psnr_y"]
    assert row["bits"] == 8 * (unit.folder / unit.record["bitstream"]).stat().st_size


def test_results_and_report(tiny_store, entry, tmp_path):
    results = evaluate([entry], tiny_store, "test", tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    rows = results["sequences"]
    gains = {str(row["qp"]): row["psnr_y_filtered"] - row["psnr_y"] for row in rows}
    assert results["gain_db"]["y"] == gains | {"mean": pytest.approx(np.mean(list(gains.values())))}
    assert results["gain_db"]["u"]["mean"] == 0
    assert results["bd_rate"]["y"] is None
    assert any("no BD-rate Y for small" in note for note in results["notes"])
    assert results["label"].startswith("in-loop")
    assert not results["trained_on_this_data"]
    page = (tmp_path / "report.html").read_text()
    assert "small" in page
    assert "data:image/" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 3


def test_an_interrupted_evaluation_goes_on(tiny_store, entry, tmp_path, monkeypatch):
    calls = []
    original = sweep.measure_filtered

    def counted(filter_, unit, *options):
        calls.append(unit.key)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(filter_, unit, *options)

    monkeypatch.setattr(sweep, "measure_filtered", counted)
    with pytest.raises(KeyboardInterrupt):
        evaluate([entry], tiny_store, "test", tmp_path)
    evaluate([entry], tiny_store, "test", tmp_path)
    assert len(calls) == 3
    assert calls[1] == calls[2] != calls[0]
    other = Entry("other", entry.card | {"sha256": "other"}, entry.filter)
    evaluate([entry, other], tiny_store, "test", tmp_path)
    assert len(calls) == 5
    evaluate([entry, other], tiny_store, "test", tmp_path, metrics=["psnr", "ssim"])
    assert len(calls) == 9
    evaluate([other, entry], tiny_store, "test", tmp_path)
    assert len(calls) == 9


def test_bd_rate_counts_flag_bits_and_is_averaged_over_sequences(tiny_store):
    def rows(name, gain, flag_bits):
        return [
            {"name": name, "qp": qp, "bits": 1000 * 2**index, "flag_bits": flag_bits * 2**index}
            | {
                f"psnr_{plane}{end}": 30.0 + 3 * index + (gain if end else 0)
                for plane in "yuv"
                for end in ("", "_filtered")
            }
            for index, qp in enumerate((42, 37, 32, 27))
        ]

    # 3 dB are worth a factor of two in bits everywhere, so 0.3 dB are worth 2^-0.1.
    results = summarise(rows("a", 0.3, 0) + rows("b", 0.0, 10), {}, tiny_store, "test")
    per_sequence = results["bd_rate_per_sequence"]
    assert per_sequence["a"]["y"] == pytest.approx(100 * (2**-0.1 - 1), abs=0.01)
    assert per_sequence["b"]["y"] == pytest.approx(1.0, abs=0.01)
    assert results["bd_rate"]["y"] == pytest.approx((per_sequence["a"]["y"] + per_sequence["b"]["y"]) / 2)
    assert results["gain_db"]["y"]["27"] == pytest.approx(0.15)


def test_random_access_is_labelled_post_filter(tiny_store):
    recipe = tiny_store.manifest["recipe"] | {"configuration": "ra"}
    assert label(recipe).startswith("post-filter")


def test_a_picture_without_error_has_no_gain_to_show(tmp_path, capsys, weights):
    from skimage.io import imsave

    from codecnn.config import load_recipe
    from codecnn.console import print_gains
    from codecnn.dataset.build import build_store

    imsave(tmp_path / "black.png", np.zeros((64, 64, 3), np.uint8), check_contrast=False)
    recipe = tmp_path / "black.yaml"
    recipe.write_text("name: b\npreset: faster\nqp: [22]\nsequences: [{source: black.png, split: test}]\n")
    store = build_store(load_recipe(recipe), tmp_path, tmp_path / "store")
    identity = Entry("identity", weights[1], float_filter(create_model("rdn", **SMALL)))
    results = evaluate([identity], store, "test", tmp_path / "out")
    assert results["sequences"][0]["psnr_y"] is None
    print_gains(results)
    assert "black" in capsys.readouterr().out


def test_a_qp_that_was_not_trained_is_noted(tiny_store, weights, tmp_path):
    card = weights[1] | {"qps": [22, 37]}
    notes = summarise([], card, tiny_store, "test")["notes"]
    assert notes == []
    results = evaluate([Entry("w", card, float_filter(weights[0]))], tiny_store, "test", tmp_path)
    assert [note for note in results["notes"] if note.startswith("QP 42 lies outside of 22 to 37")]
    assert not [note for note in results["notes"] if note.startswith("QP 32")]
