"""Weights that are shared: the folder with its model card, weights in folders, weights on a hub."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import codecnn
from codecnn.base.errors import ConfigError, MissingFileError, ModelError, ToolMissingError
from codecnn.models import card_path, create_model, hub_weights, load_model, save_weights, weights_path
from tests.helpers.commands import result_of
from tests.helpers.hub_server import hub
from tests.helpers.networks import SMALL, awaken

SHIPPED = "low_cost_5"


@pytest.fixture
def shared(tmp_path):
    """The folder by which shipped weights are shared."""
    codecnn.export(SHIPPED, tmp_path / "shared", form="hub")
    return tmp_path / "shared"


@pytest.fixture
def own(tmp_path):
    """Weights of somebody, without a test and without integers."""
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "best.safetensors"
    save_weights(path, awaken(create_model("rdn", **SMALL)), "rdn", {"validation": {"gain_db": {"32": 0.125}}})
    return path


def head_and_text(folder):
    _, head, text = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(head), text


def test_integers_alone_have_no_further_forms(run, tmp_path):
    status, text, _ = run("export", "-m", f"{SHIPPED}.int8", "--format", "hub", "-o", tmp_path / "int8")
    assert status == 0
    assert not [line for line in text.splitlines() if line.startswith("integers")]
    assert codecnn.export(SHIPPED, tmp_path / "float", form="hub")["integers"] == ["low_cost_5.vvc.int8.safetensors"]


def test_the_folder_has_weights_integers_and_a_model_card(shared):
    names = {path.name for path in shared.iterdir()}
    form = [f"low_cost_5.vvc{suffix}" for suffix in (".safetensors", ".json", ".int8.safetensors", ".int8.json")]
    assert names == {*form, "README.md"}
    assert (shared / form[0]).read_bytes() == weights_path(SHIPPED).read_bytes()
    head, text = head_and_text(shared)
    assert head["license"] == "bsd-3-clause"
    assert (head["library_name"], head["pipeline_tag"]) == ("codecnn", "image-to-image")
    assert {"in-loop-filter", "vvc"} <= set(head["tags"])
    assert head["metrics"] == ["psnr", "bd-rate"]
    card = load_model(SHIPPED)[1]
    (result,) = head["model-index"][0]["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert values["bd-rate"] == pytest.approx(card.test.luma[1], abs=1e-3)
    assert f"BD-rate Y {card.test.luma[1]:+.2f} %" in text
    luma = next(line for line in text.splitlines() if line.startswith("| luma |"))
    assert f"{card.test.gain_db['y']['37']:+.3f}" in luma
    assert "codecnn filter -i video.mp4 -m low_cost_5.vvc.safetensors" in text


def test_values_of_crf_are_no_qps(tmp_path):
    assert load_model("low_cost_17.hevc_video_mc")[1]["test"]["settings"]["rate"] == "crf"
    codecnn.export("low_cost_17.hevc_video_mc", tmp_path / "video", form="hub")
    _, text = head_and_text(tmp_path / "video")
    (head,) = (line for line in text.splitlines() if line.startswith("| component |"))
    assert head.split(" | ")[1].startswith("crf ")
    assert "QP" not in head


def test_a_test_of_integers_says_so(shared, tmp_path):
    codecnn.export("low_cost_17.hevc_video_mc", tmp_path / "video", form="hub")
    assert load_model("low_cost_17.hevc_video_mc")[1].test.bits == 8
    assert ", 8-bit integers." in head_and_text(tmp_path / "video")[1]
    assert "8-bit integers" not in head_and_text(shared)[1]


def test_the_hub_reads_the_head(shared):
    hub_package = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: pip install 'codecnn[hub]'")
    data = hub_package.ModelCard.load(shared / "README.md").data
    assert (data.license, data.library_name, data.pipeline_tag) == ("bsd-3-clause", "codecnn", "image-to-image")
    rates = [result.metric_value for result in data.eval_results if result.metric_type == "bd-rate"]
    assert rates == [pytest.approx(load_model(SHIPPED)[1].test.luma[1], abs=1e-3)]


def test_weights_of_somebody_have_no_licence_yet(run, own, tmp_path):
    status, text, _ = run("export", "-m", own, "-o", tmp_path / "mine", "--format", "hub")
    assert status == 0
    assert "licence                  unknown: state yours in README.md" in text
    head, text = head_and_text(tmp_path / "mine")
    assert head["license"] == "unknown"
    assert "model-index" not in head
    assert "| luma | +0.125 |" in text
    assert "have not been tested" in text


def test_files_of_the_user_are_not_replaced(own, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "README.md").write_text("mine")
    for output in (tmp_path / "notes", tmp_path / "notes" / "README.md", own.parent):
        with pytest.raises(ConfigError, match=r"new folder|name one with"):
            codecnn.export(own, output, form="hub")
    assert (tmp_path / "notes" / "README.md").read_text() == "mine"


def test_damaged_weights_and_mode_networks_are_not_shared(own, tmp_path):
    with pytest.raises(ModelError, match="holds no filter"):
        codecnn.export("modes_8", tmp_path / "modes", form="hub")
    own.write_bytes(own.read_bytes()[:-1] + b"\1")
    with pytest.raises(ModelError, match="sha256 differs"):
        codecnn.export(own, tmp_path / "damaged", form="hub")
    assert not (tmp_path / "damaged").exists()


def test_a_folder_stands_for_its_weights(run, shared, own, tmp_path):
    assert weights_path(shared) == shared / "low_cost_5.vvc.safetensors"
    assert weights_path(own.parent) == own
    picture = np.random.default_rng(0).integers(0, 256, (1, 96, 64), dtype=np.uint8)
    picture.tofile(tmp_path / "in_64x64.yuv")
    argv = ("filter", "-i", tmp_path / "in_64x64.yuv", "-q", "37", "--json")
    result = result_of(run, *argv, "-m", shared, "-o", tmp_path / "a.yuv")
    assert result["weights"] == "low_cost_5.vvc"
    result_of(run, *argv, "-m", SHIPPED, "-o", tmp_path / "b.yuv")
    assert (tmp_path / "a.yuv").read_bytes() == (tmp_path / "b.yuv").read_bytes()


def test_a_name_goes_before_a_folder(shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(shared, "low_cost_17")
    shutil.copytree(shared, "own")
    assert weights_path("low_cost_17").name == "low_cost_17.vvc.safetensors"
    assert weights_path("own") == Path("own/low_cost_5.vvc.safetensors")


def test_folders_with_no_or_two_weights_are_errors(run, own, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingFileError, match="holds no weights"):
        weights_path(tmp_path / "empty")
    (tmp_path / "empty" / "checkpoint.pt").touch()
    config = {"training": {"validate_every": 500, "steps": 300}}
    (tmp_path / "empty" / "config.json").write_text(json.dumps(config))
    for absent in (tmp_path / "empty", tmp_path / "empty" / "best.safetensors"):
        with pytest.raises(MissingFileError, match=r"empty has no weights yet: .* first validation at step 300$"):
            load_model(absent)
    shutil.copy(own, own.with_name("last.safetensors"))
    with pytest.raises(ModelError, match=r"holds the weights best, last: add the name"):
        load_model(own.parent)
    status, _, text = run("complexity", own.parent)
    assert (status, text.count("\n")) == (1, 1)
    assert "add the name of one of the files" in text


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "codecnn.models.locations.find_spec", lambda name: None if name == "huggingface_hub" else find_spec(name)
    )
    with pytest.raises(ToolMissingError, match=r"hf://owner/name needs .*'codecnn\[hub\]'"):
        load_model("hf://owner/name")


@pytest.mark.parametrize("reference", ["hf://owner", "hf://", "hf://owner/name/", "hf://owner/name@"])
def test_malformed_references_are_errors(reference):
    with pytest.raises(MissingFileError, match="write hf://owner/name"):
        weights_path(reference)


@pytest.mark.parametrize("file", ["weights.bin", "model.py", "../x.safetensors", "a/../../x.safetensors"])
def test_only_weights_are_read_from_a_hub(file):
    with pytest.raises(ModelError, match=r"\.safetensors files only"):
        weights_path(f"hf://owner/name/{file}")


@pytest.fixture
def repositories(shared, own):
    one = {path.name: path.read_bytes() for path in shared.iterdir()} | {"train.py": b"raise SystemExit('executed')"}
    two = {path.name: path.read_bytes() for path in (own, card_path(own))}
    return {"me/one": one, "me/two": one | two, "me/none": {"README.md": b""}}


@pytest.fixture
def served(repositories, tmp_path, monkeypatch):
    """A hub in place of the real one; the list of requests."""
    constants = pytest.importorskip(
        "huggingface_hub.constants", reason="needs huggingface_hub: pip install 'codecnn[hub]'"
    )
    with hub(repositories) as (address, requests):
        for name, value in (("ENDPOINT", address), ("HF_HUB_CACHE", str(tmp_path / "cache"))):
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
        hub_weights.cache_clear()
        yield requests
    hub_weights.cache_clear()


def test_weights_come_from_a_hub(served, repositories, tmp_path):
    path = weights_path("hf://me/one")
    assert path.is_relative_to(tmp_path / "cache")
    assert path.read_bytes() == repositories["me/one"]["low_cost_5.vvc.safetensors"]
    assert {file.name for file in path.parent.iterdir()} == repositories["me/one"].keys() - {"README.md", "train.py"}
    assert codecnn.load_filter(Path("hf://me/one"), exact=True).card.network == SHIPPED
    downloads = len(served)
    weights_path("hf://me/one")
    assert len(served) == downloads


def test_a_file_and_a_revision_can_be_named(served):
    assert weights_path("hf://me/two/best.safetensors@v1").parent.name == "b" * 40
    assert any("/revision/v1" in request for request in served)
    assert not any("low_cost" in request for request in served)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("hf://me/two", "holds the weights best, low_cost_5.vvc: add the name"),
        ("hf://me/none", "holds no weights"),
        ("hf://me/two/other.safetensors", r"has no file other\.safetensors: it has best\.safetensors"),
        ("hf://me/one@v2", "no revision v2"),
        ("hf://me/absent", "no such repository, or it is private"),
    ],
)
def test_errors_of_a_hub_are_one_sentence(served, reference, message):
    with pytest.raises((MissingFileError, ModelError), match=message) as error:
        weights_path(reference)
    assert "\n" not in str(error.value)


def test_the_command_line_downloads_once_and_then_works_without_a_connection(repositories, tmp_path):
    """In processes of their own, since huggingface_hub reads its environment when it is imported."""
    pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: pip install 'codecnn[hub]'")

    def export(weights, output):
        argv = [sys.executable, "-m", "codecnn", "export", "-m", weights, "-o", str(tmp_path / output)]
        return subprocess.run([*argv, "--format", "hub"], env=environment, capture_output=True, text=True)

    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    with hub(repositories) as (address, _):
        environment["HF_ENDPOINT"] = address
        first = export("hf://me/one", "first")
        assert first.returncode == 0, first.stderr
    second = export("hf://me/one", "second")
    assert second.returncode == 0, second.stderr
    for folder in (tmp_path / "first", tmp_path / "second"):
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
            name: content for name, content in repositories["me/one"].items() if name != "train.py"
        }
    third = export("hf://me/two/best.safetensors", "third")
    assert third.returncode == 1
    assert "the hub cannot be reached" in third.stderr
