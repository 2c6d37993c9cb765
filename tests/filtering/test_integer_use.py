"""Integer networks in use: the integer form of weights, commands, and the loss that evaluation reports."""

import json
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from codecnn.base.errors import MissingFileError, ModelError
from codecnn.cli import app
from codecnn.dataset import open_store
from codecnn.filtering import load_filter, prefers_integers
from codecnn.filtering.integer import (
    ExactFilter,
    filter_reference,
    integer_path,
    load_integer,
    save_integer,
    source_card,
)
from codecnn.models import as_card, save_weights
from codecnn.pictures.files import Picture, open_video
from codecnn.pictures.metrics import psnr
from tests.helpers.integer_zoo import formula_model, formula_network
from tests.helpers.networks import SMALL

OPTIONS = SMALL | {"shuffle": 2}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def weights(tiny_store, tmp_path_factory):
    """Float weights with an integer form of 16 bits in the same folder."""
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    model = formula_model("rdn", OPTIONS)
    with torch.no_grad():
        model.gain.log_gain.sub_(1)  # a filter that changes a picture as a trained one does, by some samples
    save_weights(path, model, "rdn", {"qps": [32, 42]})
    invoke("export", "--model", path, "-o", integer_path(path), "--format", "int16", "--store", tiny_store.folder)
    return path


def test_weights_load_in_the_form_asked_for(weights, tiny_store, tmp_path):
    plain, exact, direct = load_filter(weights), load_filter(weights, exact=True), load_filter(integer_path(weights))
    assert [type(filter_).__name__ for filter_ in (plain, exact, direct)] == [
        "FloatFilter",
        "ExactFilter",
        "ExactFilter",
    ]
    assert exact.card["source_sha256"] == plain.card["sha256"]
    assert set(exact.planes) == set(plain.planes)

    alone = tmp_path / "alone.safetensors"
    for suffix in (".safetensors", ".json"):
        shutil.copy(weights.with_suffix(suffix), alone.with_suffix(suffix))
    with pytest.raises(MissingFileError, match=r"alone\.int8\.safetensors does not exist"):
        load_filter(alone, exact=True)
    save_weights(alone, formula_model("rdn", SMALL), "rdn", {})
    for suffix in (".safetensors", ".json"):
        shutil.copy(integer_path(weights).with_suffix(suffix), integer_path(alone).with_suffix(suffix))
    with pytest.raises(ModelError, match=r"alone\.int16\.safetensors .*alone\.safetensors"):
        load_filter(alone, exact=True)
    with pytest.raises(ModelError, match=r"alone\.int16\.safetensors"):
        invoke("evaluate", tiny_store.folder, "--model", alone, "--exact", "-o", tmp_path / "none")


def test_the_command_filters_prefers_integers(weights, tiny_store, tmp_path):
    """The command writes the samples that the reference engine computes, whatever the tiles and memory."""
    (unit, *_) = tiny_store.split("val")
    form = unit.format
    source = unit.decoded_path
    size = ["-s", f"{form.width}x{form.height}", "--bit-depth", form.bit_depth, "-q", "32"]
    for name, options in {"a": [], "b": ["--tile", "32"], "c": ["--memory", "4MiB"]}.items():
        invoke("filter", "--model", weights, "--exact", "-i", source, "-o", tmp_path / f"{name}.yuv", *size, *options)
    network, _ = load_integer(integer_path(weights))
    with open_video(tmp_path / "a.yuv", size=(form.width, form.height), bit_depth=form.bit_depth) as video:
        filtered = video[0]
    decoded = unit.decoded()[0]
    expected = filter_reference(network, {"rec_y": np.asarray(decoded.y)}, 32, form.bit_depth)
    np.testing.assert_array_equal(filtered.y, expected["y"])
    np.testing.assert_array_equal(filtered.u, decoded.u)
    assert (filtered.y != decoded.y).mean() > 0.2
    for name in "bc":
        assert (tmp_path / f"{name}.yuv").read_bytes() == (tmp_path / "a.yuv").read_bytes()


def test_less_memory_makes_smaller_tiles_and_the_same_samples():
    network = formula_network("low_cost_5", {"features": 8, "blocks": 2})
    planes = np.random.default_rng(0).integers(0, 1024, (200, 300)).astype(np.uint16)
    small, large = (ExactFilter(network, memory=memory) for memory in (2 * 2**20, None))
    windows, compute = [], small.fast
    small.fast = lambda planes, **arguments: windows.append(planes["rec_y"].shape) or compute(planes, **arguments)
    picture = Picture((planes,), 10)
    np.testing.assert_array_equal(small(picture, 37).y, large(picture, 37).y)
    assert len(windows) > 1


def test_evaluation_reports_the_loss_of_integers(weights, tiny_store, tmp_path):
    invoke("evaluate", tiny_store.folder, "--model", weights, "--exact", "-o", tmp_path / "e", "--split", "val")
    results = json.loads((tmp_path / "e" / "results.json").read_text())
    plain, exact = results["models"]
    assert "loss_to_float" not in plain
    assert exact["loss_to_float"]["name"] == plain["name"]
    filters = [load_filter(weights, exact=exact) for exact in (False, True)]
    losses = []
    for unit in open_store(tiny_store.folder).split("val"):
        with unit.originals() as originals, unit.decoded() as decoded:
            figures = [
                psnr(originals[0].y, filter_(decoded[0], unit.qp).y, unit.format.bit_depth) for filter_ in filters
            ]
        losses.append(figures[0] - figures[1])
        assert exact["loss_to_float"]["db"]["y"][str(unit.qp)] == pytest.approx(losses[-1], abs=1e-9)
    assert exact["loss_to_float"]["db"]["y"]["mean"] == pytest.approx(np.mean(losses), abs=1e-9)
    assert max(abs(loss) for loss in losses) > 0
    assert any("difference of the integer filter" in note and "in float: PSNR Y" in note for note in exact["notes"])


def test_the_card_of_integers_leaves_out_the_test_of_the_weights():
    test = {"gain_db": {"y": {"mean": 0.2}}, "bd_rate": {"y": -3.0}}
    assert source_card(as_card({"sha256": "a", "test": test, "qps": [22]})) == {"qps": [22], "source_sha256": "a"}


def test_inexact_arithmetic_is_off_until_the_last_tile_is_done():
    """Several tiles are computed at a time, and some end before others."""
    filter_ = ExactFilter(formula_network("low_cost_5", {"features": 8, "blocks": 2}), tile=40)
    precision = lambda: torch.backends.mkldnn.conv.fp32_precision  # noqa: E731
    before, seen, compute = precision(), [], filter_.fast
    assert before != "ieee"
    filter_.fast = lambda planes, **arguments: seen.append(precision()) or compute(planes, **arguments)
    torch.set_num_threads(2)
    filter_(Picture((np.full((100, 120), 500, np.uint16),), 10), 37)
    assert len(seen) > 2
    assert set(seen) == {"ieee"}
    assert precision() == before


def test_the_8_bit_form_is_the_default(weights, tiny_store, tmp_path):
    path = tmp_path / "w.safetensors"
    for suffix in (".safetensors", ".json"):
        shutil.copy(weights.with_suffix(suffix), path.with_suffix(suffix))
    assert not prefers_integers(path), "there is no integer form"
    save_integer(integer_path(path), *load_integer(integer_path(weights)))
    assert not prefers_integers(path), "the form of 16 bits is many times slower than float"
    invoke("export", "--model", path, "-o", integer_path(path, 8), "--format", "int8", "--store", tiny_store.folder)
    assert prefers_integers(path)
    assert not prefers_integers(path, "bfloat16")
    assert not prefers_integers(integer_path(path, 8)), "the file is the integer form itself"
    kinds = {None: "ExactFilter", True: "ExactFilter", False: "FloatFilter"}
    assert {exact: type(load_filter(path, exact=exact)).__name__ for exact in kinds} == kinds
    assert type(load_filter(path, exact=None, precision="bfloat16")).__name__ == "BFloat16Filter"

    (unit, *_) = tiny_store.split("val")
    size = ["-s", f"{unit.format.width}x{unit.format.height}", "--bit-depth", unit.format.bit_depth, "-q", "32"]
    for name, options in {"default": [], "exact": ["--exact"], "float": ["--float"]}.items():
        invoke("filter", "--model", path, *options, "-i", unit.decoded_path, "-o", tmp_path / f"{name}.yuv", *size)
    default, exact, plain = ((tmp_path / f"{name}.yuv").read_bytes() for name in ("default", "exact", "float"))
    assert default == exact != plain

    for options, names in (([], ["w.int8"]), (["--float"], ["w"]), (["--exact"], ["w", "w.int8"])):
        folder = tmp_path / "-".join(["e", *options])
        invoke("evaluate", tiny_store.folder, "--model", path, *options, "-o", folder, "--split", "val")
        results = json.loads((folder / "results.json").read_text())
        assert [entry["name"].rpartition("/")[2] for entry in results.get("models", [results])] == names
        for file in ("results.md", "report.html"):
            assert ("not all filters are computed in the same arithmetic" in (folder / file).read_text()) == (
                len(names) > 1
            )
