"""Networks and losses of the user from the command line: train, check, resume, evaluate, filter, complexity, export."""

import functools
import json
import signal
import sys
from pathlib import Path

import pytest
import torch

from codecnn.api.config import load_config
from codecnn.base.errors import ConfigError, ModelError, StoppedError
from codecnn.base.files import read_json
from codecnn.dataset import TrainingBatches
from codecnn.models import create_model, load_model, load_partial, save_weights
from codecnn.training import FilterSettings, Trainer, filter_loss, train, train_task
from codecnn.training.checks import network, task_setup
from codecnn.training.filter import filter_task
from tests.helpers import own_networks
from tests.helpers.commands import result_of
from tests.helpers.training import lines, train_filter, weights_of

SETTINGS = {"steps": 4, "batch": 2, "patch": 32, "validate_every": 2, "checkpoint_every": 2, "ema": 0, "warmup": 1}
SETTINGS |= {"device": "cpu", "validation_pictures": 1}
NET = own_networks.REFERENCE
LOSS = "tests.helpers.own_networks:loss"


def write(path, store, module, **settings):
    model = {"name": f"{module}:Net", "options": {"features": 6}}
    content = {"store": str(store.folder), "model": model, "training": SETTINGS | settings}
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Name of a module in the current folder with a network and a loss; no other test imports it."""
    name = f"user_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(own_networks.SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_commands_take_a_network_and_a_loss_of_the_user(module, tiny_store, tmp_path, run, monkeypatch):
    monkeypatch.setattr(network, "OVERFIT_STEPS", 20)  # these verdicts are not looked at
    monkeypatch.setattr("codecnn.training.checks.data.WAITING_SECONDS", 0.1)
    monkeypatch.setattr(network, "first_steps", functools.partial(network.first_steps, steps=20))
    config = write(tmp_path / "own.yaml", tiny_store, module, loss=f"{module}:loss")
    trust = ("--trust", f"{module}:Net")
    findings = result_of_check(run, config)
    assert findings["initial loss"] in ("pass", "fail")
    assert findings["gradients"] == findings["determinism"] == findings["evaluation mode"] == "pass"
    result = result_of(run, "train", config, "-o", "run")
    card = read_json(tmp_path / "run" / "best.json")
    assert (card["network"], card["options"]) == (f"{module}:Net", {"features": 6})
    assert card["training"]["loss"] == f"{module}:loss"
    assert len(card["code_sha256"]) == len(card["loss_sha256"]) == 64
    assert run("train", config, "-o", "run", "--resume")[0] == 0
    weights = result["weights"]
    evaluated = result_of(run, "evaluate", tiny_store.folder, "-m", weights, "-o", "results", *trust)
    assert evaluated["model"] == f"{module}:Net"
    assert evaluated["gain_db"]["y"]["mean"] != 0
    unit = tiny_store.units[0]
    size = f"{unit.format.width}x{unit.format.height}"
    options = ("-i", unit.decoded_path, "-s", size, "--bit-depth", "10", "-q", "32", "-o", "filtered.yuv")
    assert run("filter", "-m", weights, *options, *trust)[0] == 0
    assert (tmp_path / "filtered.yuv").stat().st_size == unit.decoded_path.stat().st_size
    assert (tmp_path / "filtered.yuv").read_bytes() != unit.decoded_path.read_bytes()
    costs = [
        result_of(run, "complexity", f"{module}:Net", "features=6"),
        result_of(run, "complexity", weights, *trust),
    ]
    assert costs[0]["kmac_per_pixel"] == costs[1]["kmac_per_pixel"] == pytest.approx(0.162)
    exported = result_of(run, "export", "-m", weights, "-o", "w.onnx", *trust)
    assert exported["opset"] == 17
    assert exported["largest_difference_to_pytorch"] < 1e-5
    options = ("--format", "int16", "--store", tiny_store.folder)
    status, _, err = run("export", "-m", weights, "-o", "w.int16.safetensors", *options, *trust)
    assert status == 1
    assert "Net has no graph" in err


def test_a_module_beside_the_configuration_is_found_from_any_folder(tiny_store, tmp_path, monkeypatch):
    name = f"user_{tmp_path.name}"
    for folder in ("here", "there", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(f"{own_networks.SOURCE}\n# {folder}\n")
    (tmp_path / "elsewhere" / f"{name}.py").unlink()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [*sys.path])
    configs = [write(tmp_path / folder / "own.yaml", tiny_store, name) for folder in ("here", "there")]
    load_config(Path("../here/own.yaml")).make_task()
    assert Path(sys.modules[name].__file__) == tmp_path / "here" / f"{name}.py"
    with pytest.raises(ConfigError, match="there"):
        load_config(configs[1]).make_task()
    (tmp_path / "there" / f"{name}.py").unlink()
    with pytest.raises(ConfigError, match=r"there and .*elsewhere"):
        load_config(configs[1], [f"model.name={name}_x:Net"]).make_task()


def result_of_check(run, config):
    _, text, err = run("check", config, "--json")
    assert text, err
    return {finding["name"]: finding["verdict"] for finding in json.loads(text)}


def test_resumed_run_equals_the_uninterrupted_one_and_reports_other_code(module, tiny_store, tmp_path, run):
    config = load_config(write(tmp_path / "own.yaml", tiny_store, module, loss=f"{module}:loss"))
    train(config, tmp_path / "whole")

    class StopError(Exception):
        pass

    task = config.make_task()
    batches = task.batches

    def two_batches(steps, *arguments):
        for step, batch in zip(steps, batches(steps, *arguments), strict=True):
            if step == 2:
                raise StopError
            yield batch

    def make():
        stopping = config.make_task()
        object.__setattr__(stopping, "batches", two_batches)
        return stopping

    with pytest.raises(StopError):
        train_task(make, config.training, tmp_path / "stopped")
    source = tmp_path / f"{module}.py"
    source.write_text(source.read_text() + "# changed\n")
    with pytest.warns(UserWarning, match="changed"):
        train(config, tmp_path / "stopped", resume=True)
    assert weights_of(tmp_path / "stopped") == weights_of(tmp_path / "whole")
    assert [event["text"] for event in lines(tmp_path / "stopped" / "log.jsonl") if event["event"] == "warning"][
        -1:
    ] == [f"the source of the network or the loss has changed since {tmp_path / 'stopped'} was started"]


RELATIVE = "tests.helpers.own_networks:RelativePositions"


def state_of(model):
    """Return type and bytes of every buffer, and of the parameter that is not trained."""
    state = {name: tensor for name, tensor in model.state_dict().items() if name.split(".")[-1] in NOT_TRAINED}
    return {name.split(".")[-1]: (tensor.dtype, tensor.numpy().tobytes()) for name, tensor in state.items()}


NOT_TRAINED = ("index", "small", "far", "mask", "span", "limits")


def test_buffers_of_any_values_are_kept(tiny_store, tmp_path, run, monkeypatch):
    """Integers, booleans, infinities and NaN are the same in checkpoint, average, weights and start weights."""
    settings = SETTINGS | {"ema": 0.9}
    whole = train_filter(tiny_store, RELATIVE, {}, settings, tmp_path / "whole")
    expected = state_of(own_networks.RelativePositions())
    assert set(expected) == set(NOT_TRAINED)
    model, _ = load_model(whole.weights)
    assert state_of(model) == expected
    monkeypatch.setattr(Trainer, "validate", lambda trainer: trainer.stop(signal.SIGTERM))
    with pytest.raises(StoppedError):
        train_filter(tiny_store, RELATIVE, {}, settings, tmp_path / "parts")
    monkeypatch.undo()
    train_filter(tiny_store, RELATIVE, {}, settings, tmp_path / "parts", resume=True)
    for name in ("best", "last"):
        assert weights_of(tmp_path / "parts", name) == weights_of(tmp_path / "whole", name)
    start = {"weights": str(whole.weights)}
    again = train_filter(tiny_store, RELATIVE, {}, settings | {"steps": 1, "start": start}, tmp_path / "again")
    assert state_of(load_model(again.weights)[0]) == expected
    assert read_json(tmp_path / "again" / "transfer.json")["counts"]["loaded"] == len(model.state_dict())
    exported = result_of(run, "export", "-m", whole.weights, "-o", tmp_path / "w.onnx", "--trust", RELATIVE)
    assert exported["largest_difference_to_pytorch"] < 1e-5


def test_checks_take_buffers_of_any_values(tiny_store):
    network_of = functools.partial(filter_task, tiny_store, RELATIVE, {}, FilterSettings(**SETTINGS))
    setup = task_setup(lambda settings: network_of(), FilterSettings(**SETTINGS), torch.device("cpu"))
    assert network.check_evaluation_mode(setup).verdict == "pass"
    assert network.check_determinism(setup).verdict == "pass"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_trained_parameters_have_to_be_finite(tmp_path, value):
    """Also in start weights; and a tensor of another type is no copy."""
    model = create_model(RELATIVE)
    save_weights(tmp_path / "w.safetensors", model, RELATIVE, {})
    load_model(tmp_path / "w.safetensors")
    with torch.no_grad():
        model.network.table[3] = value
    save_weights(tmp_path / "w.safetensors", model, RELATIVE, {})
    for load in (load_model, functools.partial(load_partial, create_model(RELATIVE))):
        with pytest.raises(ModelError, match=r"network\.table"):
            load(tmp_path / "w.safetensors")
    model = create_model(RELATIVE)
    model.network.index = model.network.index.int()
    save_weights(tmp_path / "w.safetensors", model, RELATIVE, {})
    with pytest.raises(ModelError, match=r"network\.index holds int32"):
        load_model(tmp_path / "w.safetensors")


def test_a_state_that_no_file_can_hold_is_refused_before_the_training(monkeypatch):
    def create():
        made = own_networks.Net()
        made.register_buffer("phase", torch.zeros(2, dtype=torch.complex128))
        return made

    monkeypatch.setattr(own_networks, "with_phase", create, raising=False)
    with pytest.raises(ModelError, match=r"with_phase\.phase .* complex128"):
        create_model("tests.helpers.own_networks:with_phase")


def test_loss_of_the_user_equals_the_built_in_one(tiny_store):
    settings = FilterSettings(**SETTINGS | {"loss": LOSS})
    torch.manual_seed(0)
    task = filter_task(tiny_store, NET, {}, settings)
    planes = (*task.model.planes, "orig_y")
    batch = TrainingBatches(tiny_store.split("train"), batch=4, steps=1, size=32, halo=task.model.halo, planes=planes)[
        0
    ]
    expected = filter_loss(task.model, batch, "picture")
    torch.testing.assert_close(task.loss(task.model, batch), expected)
    built_in = filter_task(tiny_store, NET, {}, FilterSettings(**SETTINGS))
    assert task.config()["code_sha256"] != built_in.config()["code_sha256"]


def test_module_of_torch_as_loss(tiny_store, tmp_path):
    result = train_filter(tiny_store, NET, {}, SETTINGS | {"loss": "tests.helpers.own_networks:HuberLoss"}, tmp_path)
    assert load_model(result.weights)[1]["training"]["loss"] == "tests.helpers.own_networks:HuberLoss"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "tests.helpers.own_networks:by_patch"}, r"returns torch.float32 of shape \(2,\): return the mean"),
        ({"loss": "tests.helpers.own_networks:nothing"}, "own_networks:nothing fails: TypeError"),
        ({"loss": "tests.helpers.own_networks:none"}, "none does not exist in"),
        ({"loss": LOSS, "weighting": "picture"}, "remove training.weighting"),
        ({"loss": "l3"}, "one of mse, l1, charbonnier, satd, dct, or package.module:function"),
    ],
)
def test_losses_that_do_not_fit(settings, message, tiny_store, tmp_path):
    config = tmp_path / "own.yaml"
    config.write_text(
        json.dumps({"store": str(tiny_store.folder), "model": {"name": NET}, "training": SETTINGS | settings})
    )
    with pytest.raises(ConfigError, match=message):
        train(load_config(config), tmp_path / "run")
