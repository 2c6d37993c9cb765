"""Evaluation of filters: PSNR against the encoder log, resumed evaluations, labels and timing devices."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from codecnn.base.runtime import Runtime
from codecnn.evaluation import Entry, Results, cells, evaluate, gain_label, results_json, summarise_rows
from codecnn.filtering import FloatFilter, filter_luma
from codecnn.models import as_card, create_model, load_model, save_weights
from codecnn.pictures.metrics import psnr
from tests.helpers.filters import rate_rows, row_of, toward_entry
from tests.helpers.networks import SMALL, awaken


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **SMALL)), "rdn", {"data_key": "none"})
    return load_model(path)


@pytest.fixture(scope="module")
def entry(weights):
    return Entry("w", weights[1], FloatFilter(weights[0]))


def test_psnr_and_bd_rate_work_without_torch():
    code = "import sys; from codecnn.pictures.metrics import bd_rate, psnr; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unfiltered_psnr_equals_the_encoder_log(tiny_store):
    for unit in tiny_store.units:
        row = row_of(create_model("rdn", **SMALL), unit)
        assert row.before.psnr["y"] == pytest.approx(unit.psnr_y, abs=1e-4)
        assert row.before.psnr["u"] == pytest.approx(unit.psnr_u, abs=1e-4)
        assert row.after.psnr["y"] == row.before.psnr["y"]


def test_filtered_psnr_equals_that_of_the_filtered_picture(tiny_store, weights):
    unit = tiny_store.split("test")[1]
    row = row_of(weights[0], unit)
    with unit.originals() as originals, unit.decoded() as decoded:
        filtered = filter_luma(weights[0], decoded[0].y, 42, 10)
        assert row.after.psnr["y"] == psnr(originals[0].y, filtered, 10)
        assert row.after.psnr["y"] != row.before.psnr["y"]
    assert row.bits == 8 * unit.path("bitstream").stat().st_size


def test_results_and_report(tiny_store, entry, tmp_path):
    (results,) = evaluate([entry], tiny_store, "test", tmp_path)
    written = json.loads((tmp_path / "results.json").read_text())
    assert written == json.loads(json.dumps(results_json([results])))
    assert Results.model_validate(written) == results
    gains = {str(row.qp): row.after.psnr["y"] - row.before.psnr["y"] for row in results.sequences}
    assert results.gain_db["y"] == gains | {"mean": pytest.approx(np.mean(list(gains.values())))}
    assert results.gain_db["u"]["mean"] == 0
    assert results.bd_rate["y"] is None
    assert any("no BD-rate for small" in note for note in results.notes)
    assert results.label.startswith("in-loop")
    assert not results.trained_on_this_data
    page = (tmp_path / "report.html").read_text()
    assert "small" in page
    assert "data:image/" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 3


def test_interrupted_evaluation_continues(tiny_store, entry, tmp_path, monkeypatch):
    calls = []
    original = cells.measure_filtered

    def counted(filter_, unit, *options):
        calls.append(unit.key)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(filter_, unit, *options)

    monkeypatch.setattr(cells, "measure_filtered", counted)
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
    assert gain_label(recipe).startswith("post-filter")


def test_picture_without_error_is_printed(tmp_path, capsys, weights):
    from skimage.io import imsave

    from codecnn.api.config import load_recipe
    from codecnn.cli.console import print_gains
    from codecnn.dataset import build_store

    imsave(tmp_path / "black.png", np.zeros((64, 64, 3), np.uint8), check_contrast=False)
    recipe = tmp_path / "black.yaml"
    recipe.write_text("name: b\npreset: faster\nqp: [22]\nsequences: [{source: black.png, split: test}]\n")
    store = build_store(load_recipe(recipe), tmp_path, tmp_path / "store")
    identity = Entry("identity", weights[1], FloatFilter(create_model("rdn", **SMALL)))
    (results,) = evaluate([identity], store, "test", tmp_path / "out")
    assert results.sequences[0].before.psnr["y"] is None
    print_gains([results])
    assert "black" in capsys.readouterr().out


def test_several_filters_are_printed_as_one_table(tiny_store, tmp_path, capsys, monkeypatch):
    """Lines are whole, also those that are longer than the terminal is wide."""
    from codecnn.cli.console import print_gains

    monkeypatch.setenv("COLUMNS", "80")
    originals = [unit.originals()[0].y for unit in tiny_store.split("test")]
    entries = [toward_entry(originals, "a" * 30), toward_entry(originals, "other")]
    results = evaluate(entries, tiny_store, "test", tmp_path / "out")
    print_gains(results)
    lines = capsys.readouterr().out.splitlines()
    assert sum("PSNR Y gain in dB" in line for line in lines) == 1
    mean = f"{results[1].gain_db['y']['mean']:+.3f}"
    assert [line.split()[0] for line in lines if line.startswith(("small", "mean"))] == ["small", "mean"]
    assert [mean in line for line in lines if line.split()[:1] == ["other"]] == [True, True]
    facts = [line for line in lines if line.startswith(("a" * 30 + ":", "other:"))]
    assert len(facts) == 2
    assert all("vvc faster, all intra, in-loop (all intra: no picture is predicted from a" in line for line in facts)
    assert "…" not in "".join(lines)


def test_untrained_qp_gives_a_note(tiny_store, weights, tmp_path):
    card = weights[1] | {"qps": [22, 37]}
    assert summarise_rows([], card, tiny_store, "test").notes == ()
    (results,) = evaluate([Entry("w", card, FloatFilter(weights[0]))], tiny_store, "test", tmp_path)
    assert "the network was trained for QP 22 to 37; QP 42 is filtered as QP 37" in results.notes
    assert not [note for note in results.notes if "QP 32" in note]


def test_results_name_the_device_of_the_cells(tiny_store, entry, tmp_path):
    """Another device that only reads the cells must not appear as the device of their timing."""
    first = dataclasses.replace(entry, device="cpu, 1 threads")
    (measured,) = evaluate([first], tiny_store, "test", tmp_path)
    assert (measured.device, measured.threads) == ("cpu, 1 threads", torch.get_num_threads())
    (again,) = evaluate([dataclasses.replace(entry, device="another GPU")], tiny_store, "test", tmp_path)
    assert (again.device, again.threads) == (measured.device, measured.threads)
    assert not [note for note in again.notes if "timed" in note]
    for path in tmp_path.glob("cells/*.json"):
        content = json.loads(path.read_text())
        assert ("device" in content) == ("threads" in content) == ("weights" in content["key"])


def test_cells_of_several_devices_are_called_mixed(tiny_store, entry, tmp_path):
    evaluate([dataclasses.replace(entry, device="first")], tiny_store, "test", tmp_path)
    path = next(path for path in sorted(tmp_path.glob("cells/*.json")) if "device" in json.loads(path.read_text()))
    path.unlink()
    (results,) = evaluate([dataclasses.replace(entry, device="second")], tiny_store, "test", tmp_path)
    assert (results.device, results.threads) == ("mixed", None)
    (note,) = (note for note in results.notes if "timed on different devices" in note)
    assert "first (" in note
    assert "second (" in note
    assert json.loads((tmp_path / "results.json").read_text())["device"] == "mixed"


def test_functions_need_no_runtime(tiny_store, entry, tmp_path):
    """The runtime of codecnn does not decide how a function computes."""
    (results,) = evaluate(
        [dataclasses.replace(entry, filter=WithoutRecord(entry.filter))], tiny_store, "test", tmp_path
    )
    assert results.runtime is None


class WithoutRecord:
    """A filter without a record of a runtime."""

    def __init__(self, filter_):
        self.planes, self.outputs, self.samples = filter_.planes, filter_.outputs, filter_.samples
        self.call = filter_.__call__

    def __call__(self, *arguments):
        return self.call(*arguments)


def test_results_in_tf32_are_not_reused_for_float32(tiny_store, entry, tmp_path):
    class OnGpu(FloatFilter):
        runtime = Runtime("cuda:0", tf32=True)

        def samples(self, *arguments):
            return entry.filter.samples(*arguments)

    OnGpu.__name__ = "FloatFilter"
    on_gpu = dataclasses.replace(entry, filter=OnGpu(entry.filter.network))
    (in_tf32,) = evaluate([on_gpu], tiny_store, "test", tmp_path)
    assert in_tf32.runtime == OnGpu.runtime.as_json()
    (results,) = evaluate([entry], tiny_store, "test", tmp_path)
    assert results.runtime == entry.runtime.as_json()
    assert json.loads((tmp_path / "results.json").read_text())["runtime"]["tf32"] is False
