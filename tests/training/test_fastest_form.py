"""Settings precision and compile "auto": the fastest form is chosen once and changes only the speed."""

import json
import math

import pytest
import torch

from codecnn.base.errors import ConfigError, StoppedError
from codecnn.models import load_model
from codecnn.training import FilterSettings, LoopSettings, execution
from codecnn.training.execution import COMPILE_SECONDS, Form, Timing, choose, fastest
from tests.helpers.networks import SMALL
from tests.helpers.toy_task import ToyTask, run_toy
from tests.helpers.training import Wrapped, lines, rows, train_filter, weights_of

F32, BF16 = Form("float32", False), Form("bfloat16", False)
F32C, BF16C = Form("float32", True), Form("bfloat16", True)
AUTO = {"precision": "auto", "compile": "auto"}


def chosen(milliseconds, steps=30_000, compiling=30.0, supports_bfloat16=True, **settings):
    """Return the form that is chosen for given step times, and the forms that were measured for it."""
    asked = []

    def measure(form):
        asked.append(form)
        step = milliseconds[form] / 1000
        return Timing(step, compiling if form.compile else 0.0, "failed" if math.isinf(step) else None)

    choice = choose(LoopSettings(**{**AUTO, **settings}), measure, steps, supports_bfloat16=supports_bfloat16)
    assert list(choice.timings) == asked
    return choice.form, asked


def test_on_processors_with_and_without_bfloat16():
    # Measured networks, see docs/research/training_speed.md.
    assert chosen({F32: 179, BF16: 90, F32C: 213, BF16C: 142}) == (BF16, [F32, BF16, BF16C])
    assert chosen({F32: 341, BF16: 193, F32C: 341, BF16C: 180})[0] == BF16C
    assert chosen({F32: 67, BF16: 151, F32C: 53, BF16C: 143}) == (F32C, [F32, BF16, F32C])


def test_bfloat16_and_compiling_have_to_be_clearly_faster():
    assert chosen({F32: 100, BF16: 96, F32C: 96, BF16C: 94}) == (F32, [F32, BF16, BF16C, F32C])
    assert chosen({F32: 100, BF16: 94, F32C: 200, BF16C: 200})[0] == BF16
    assert chosen({F32: 100, BF16: 120, F32C: 94})[0] == F32C
    assert chosen({F32: 100, BF16: 100, F32C: 100, BF16C: 100})[0] == F32


def test_compiling_is_not_tried_if_half_a_step_would_not_pay_for_it():
    pays = int(COMPILE_SECONDS / 0.050)  # of steps of 100 ms
    times = {F32: 100, F32C: 50}
    assert chosen(times, precision="float32", steps=pays + 1) == (F32C, [F32, F32C])
    assert chosen(times, precision="float32", steps=pays - 1) == (F32, [F32])
    assert chosen({F32: 100, BF16: 70}, steps=100) == (BF16, [F32, BF16])


def test_the_second_compilation_has_to_save_the_time_of_the_first_one():
    """Half a float32 step, 50 ms, would save 10 ms over compiled bfloat16."""
    times = {F32: 100, BF16: 90, F32C: 50, BF16C: 60}
    assert chosen(times, steps=3001, compiling=30)[0] == F32C
    assert chosen(times, steps=2999, compiling=30) == (BF16C, [F32, BF16, BF16C])


def test_only_open_settings_are_chosen():
    times = {F32: 100, BF16: 50, F32C: 40, BF16C: 45}
    assert chosen(times, compile=False) == (BF16, [F32, BF16])
    assert chosen(times, compile=True, steps=1) == (F32C, [F32, BF16, BF16C, F32C])
    assert chosen(times, precision="bfloat16")[0] == BF16C
    assert chosen(times, precision="bfloat16", compile=False) == (BF16, [])
    assert chosen(times, supports_bfloat16=False) == (F32C, [F32, F32C])
    assert chosen(times, supports_bfloat16=False, compile=True) == (F32C, [])


def test_forms_that_fail_are_not_chosen():
    assert chosen({F32: 100, BF16: math.inf, F32C: math.inf})[0] == F32
    assert chosen({F32: 100, BF16: 50, BF16C: math.inf, F32C: 20}, steps=9999)[0] == BF16
    assert chosen({F32: math.inf, BF16: math.inf, F32C: 1, BF16C: 1})[0] == F32


@pytest.fixture
def clock(monkeypatch):
    """Set the step times by precision; returns the times and the list of timed steps."""
    milliseconds, timed = {"float32": 9.0, "bfloat16": 3.0}, []

    def seconds(step, device):
        seen = []
        handle = torch.nn.modules.module.register_module_forward_hook(
            lambda *_: seen.append("bfloat16" if torch.is_autocast_enabled("cpu") else "float32")
        )
        with handle:
            step()
        timed.append(seen[0])
        return milliseconds[seen[0]] / 1000

    monkeypatch.setattr(execution, "_step_seconds", seconds)
    return milliseconds, timed


@pytest.mark.parametrize("taken", ["float32", "bfloat16"])
def test_a_run_that_chose_a_form_equals_a_run_with_that_form(tmp_path, clock, taken):
    """The toy has dropout and batch norm, whose random numbers and statistics the timed steps change."""
    milliseconds, timed = clock
    milliseconds[taken] = 1.0
    run_toy(tmp_path / "given", {"precision": taken})
    assert not timed
    run_toy(tmp_path / "chose", {"precision": "auto"})
    assert sorted(timed) == ["bfloat16"] * 2 + ["float32"] * 2
    for name in ("last", "best"):
        assert weights_of(tmp_path / "chose", name) == weights_of(tmp_path / "given", name)
    given, chose = ([(row["loss"], row["score"]) for row in rows(tmp_path / name)] for name in ("given", "chose"))
    assert given == chose
    note = next(event for event in lines(tmp_path / "chose" / "log.jsonl") if event["event"] == "note")
    seen = ", ".join(f"{name} {milliseconds[name]:.3g} ms per step" for name in ("float32", "bfloat16"))
    assert note["text"] == f"precision: auto, compile: False: the network trains in {taken}: {seen}"
    assert json.loads((tmp_path / "chose" / "config.json").read_text())["training"]["precision"] == "auto"


def test_the_choice_is_kept_on_resuming(tmp_path, clock):
    milliseconds, timed = clock
    run_toy(tmp_path / "whole", {"precision": "bfloat16"})
    with pytest.raises(StoppedError):
        run_toy(tmp_path / "run", {"precision": "auto"}, events={("loss", 20): 15})
    milliseconds["bfloat16"] = 1000.0  # as on another machine
    timed.clear()
    run_toy(tmp_path / "run", {"precision": "auto"}, resume=True)
    assert not timed
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")
    with pytest.raises(ConfigError, match=r"training\.precision differs"):
        run_toy(tmp_path / "run", {"precision": "float32"}, resume=True)


def test_the_fastest_network_is_compiled(tmp_path, monkeypatch, clock):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda module: Wrapped(module, lambda x: calls.append(1) or x))
    monkeypatch.setattr(execution, "COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(execution, "HANDICAP", 0.5)  # the compiled network is chosen at equal times
    run_toy(tmp_path / "run", {"compile": "auto"})
    assert len(calls) == 2 * 1 + 3 + 40  # two trials, three timed steps, the run


def test_timing_does_not_change_network_and_random_numbers():
    task = ToyTask()
    model = task.model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    part = next(task.batches(range(1), 0, 1, torch.device("cpu")))
    kept = {name: tensor.clone() for name, tensor in part.items()}
    state = torch.get_rng_state()
    choice = fastest(LoopSettings(precision="auto"), model, torch.device("cpu"), task.loss, part, 1000)
    assert task.counts["loss"] == 2 * 6
    assert set(choice.timings) == {F32, BF16}
    assert all(0 < timing.step < 1 for timing in choice.timings.values())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(torch.equal(tensor, kept[name]) for name, tensor in part.items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_network_that_predicts_the_picture_stays_in_float32(tiny_store, tmp_path):
    settings = FilterSettings(steps=2, batch=2, patch=32, threads=1, device="cpu", precision="auto")
    train_filter(tiny_store, "rdn", {**SMALL, "output": "picture"}, settings, tmp_path / "run")
    _, card = load_model(tmp_path / "run" / "last.safetensors")
    assert card["training"]["precision"] == "float32"  # the choice, not "auto"
