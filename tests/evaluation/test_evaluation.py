"""The evaluation: figures against the encoder's log and against slices by hand, resumed work, honest labels."""

import json
import subprocess
import sys

import numpy as np
import pytest

from codecnn.evaluation import Entry, Results, _cells, evaluate, psnr, results_json
from codecnn.evaluation.summarise import label, summarise_rows
from codecnn.filtering import FloatFilter, filter_luma
from codecnn.models import as_card, create_model, load_model, save_weights
from tests.helpers.filters import rate_rows, row_of
from tests.helpers.networks import SMALL, awaken


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **SMALL)), "rdn", {"data_key": "none"})
    return load_model(path)


@pytest.fixture(scope="module")
def entry(weights):
    return Entry("w", weights[1], FloatFilter(weights[0]))


def test_psnr_and_bd_rate_come_without_torch():
    code = "import sys; from codecnn.evaluation import bd_rate, psnr; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unfiltered_psnr_is_the_encoders_own(tiny_store):
    for unit in tiny_store.units:
        row = row_of(create_model("rdn", **SMALL), unit)
        assert row.psnr_y == pytest.approx(unit.psnr_y, abs=1e-4)
        assert row.psnr_u == pytest.approx(unit.psnr_u, abs=1e-4)
        assert row.psnr_y_filtered == row.psnr_y


def test_filtered_psnr_is_that_of_the_filtered_picture(tiny_store, weights):
    unit = tiny_store.split("test")[1]
    row = row_of(weights[0], unit)
    with unit.originals() as originals, unit.decoded() as decoded:
        filtered = filter_luma(weights[0], decoded[0].y, 42, 10)
        assert row.psnr_y_filtered == psnr(originals[0].y, filtered, 10)
        assert row.psnr_y_filtered != row.psnr_y
    assert row.bits == 8 * unit.path("bitstream").stat().st_size


def test_results_and_report(tiny_store, entry, tmp_path):
    (results,) = evaluate([entry], tiny_store, "test", tmp_path)
    written = json.loads((tmp_path / "results.json").read_text())
    assert written == json.loads(json.dumps(results_json([results])))
    assert Results.model_validate(written) == results
    gains = {str(row.qp): row.psnr_y_filtered - row.psnr_y for row in results.sequences}
    assert results.gain_db["y"] == gains | {"mean": pytest.approx(np.mean(list(gains.values())))}
    assert results.gain_db["u"]["mean"] == 0
    assert results.bd_rate["y"] is None
    assert any("no BD-rate Y for small" in note for note in results.notes)
    assert results.label.startswith("in-loop")
    assert not results.trained_on_this_data
    page = (tmp_path / "report.html").read_text()
    assert "small" in page
    assert "data:image/" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 3


def test_an_interrupted_evaluation_goes_on(tiny_store, entry, tmp_path, monkeypatch):
    calls = []
    original = _cells.measure_filtered

    def counted(filter_, unit, *options):
        calls.append(unit.key)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(filter_, unit, *options)

    monkeypatch.setattr(_cells, "measure_filtered", counted)
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
    rows = rate_rows("a", 0.3) + rate_rows("b", 0.0, flag_share=0.01)
    results = summarise_rows(rows, as_card({}), tiny_store, "test")
    per_sequence = results.bd_rate_per_sequence
    assert per_sequence["a"]["y"] == pytest.approx(100 * (2**-0.1 - 1), abs=0.01)
    assert per_sequence["b"]["y"] == pytest.approx(1.0, abs=0.01)
    assert results.bd_rate["y"] == pytest.approx((per_sequence["a"]["y"] + per_sequence["b"]["y"]) / 2)
    assert results.gain_db["y"]["27"] == pytest.approx(0.15)


def test_random_access_is_labelled_post_filter(tiny_store):
    recipe = tiny_store.manifest.recipe.model_copy(update={"configuration": "ra"})
    assert label(recipe).startswith("post-filter")


def test_a_picture_without_error_has_no_gain_to_show(tmp_path, capsys, weights):
    from skimage.io import imsave

    from codecnn.config import load_recipe
    from codecnn.console import print_gains
    from codecnn.dataset import build_store

    imsave(tmp_path / "black.png", np.zeros((64, 64, 3), np.uint8), check_contrast=False)
    recipe = tmp_path / "black.yaml"
    recipe.write_text("name: b\npreset: faster\nqp: [22]\nsequences: [{source: black.png, split: test}]\n")
    store = build_store(load_recipe(recipe), tmp_path, tmp_path / "store")
    identity = Entry("identity", weights[1], FloatFilter(create_model("rdn", **SMALL)))
    (results,) = evaluate([identity], store, "test", tmp_path / "out")
    assert results.sequences[0].psnr_y is None
    print_gains(results)
    assert "black" in capsys.readouterr().out


def test_a_qp_that_was_not_trained_is_noted(tiny_store, weights, tmp_path):
    card = weights[1] | {"qps": [22, 37]}
    assert summarise_rows([], card, tiny_store, "test").notes == ()
    (results,) = evaluate([Entry("w", card, FloatFilter(weights[0]))], tiny_store, "test", tmp_path)
    assert [note for note in results.notes if note.startswith("the network was trained at QP 22 to 37: of QP 42 it")]
    assert not [note for note in results.notes if "of QP 32" in note]
