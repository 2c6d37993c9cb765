"""Checks of a training set-up: an intact one passes all, and each check fails on the fault that it looks for."""

import dataclasses
import functools
import os
import shutil

import numpy as np
import pytest
import torch
from scipy.ndimage import zoom
from skimage import data
from torch import nn
from torch.nn import functional as F

from codecnn.base.files import sha256_file
from codecnn.dataset import Store, Unit, open_store
from codecnn.models import create_model, named_outputs
from codecnn.training import FilterSettings
from codecnn.training.checks import Setup, check_filter, check_task, task_setup
from codecnn.training.checks import data as checks_data
from codecnn.training.checks import network as checks_network
from codecnn.training.checks.data import (
    check_codec_error,
    check_data_untouched,
    check_planes,
    check_qps,
    check_splits,
    check_waiting,
    correlations,
    sketch_picture,
)
from codecnn.training.checks.network import (
    check_batch_norm,
    check_dead_units,
    check_determinism,
    check_evaluation_mode,
    check_float64,
    check_gradients,
    check_initial_loss,
    check_last_layer,
    check_modulations,
    check_overfit,
    check_updates,
    first_steps,
)
from codecnn.training.checks.run import _no_identity, check_device, judge_gpu, judge_load
from codecnn.training.filter import filter_task
from tests.helpers.clock import Clock
from tests.helpers.commands import result_of
from tests.helpers.networks import SMALL
from tests.helpers.store_units import make_unit
from tests.helpers.training import Wrapped, write_config

SETTINGS = FilterSettings(steps=100, batch=2, patch=32, threads=1, device="cpu")
CPU = torch.device("cpu")
WIDER = {"features": 16, "blocks": 2, "layers": 3, "growth": 8}
"""Options of an RDN that can fit a batch of the tiny store, whose pictures are noise."""


def _setup(store: Store, network: str = "rdn", **options) -> Setup:
    return task_setup(lambda changed: filter_task(store, network, options, changed), SETTINGS, CPU)


@pytest.fixture
def setup(tiny_store) -> Setup:
    return _setup(tiny_store, **WIDER)


@pytest.fixture
def normed(tiny_store) -> Setup:
    """A set-up with batch norm."""
    return _setup(tiny_store, "dncnn", features=8, layers=4)


def changed(setup: Setup, change) -> Setup:
    """Return a set-up that applies `change` to every network; a result other than None replaces the network."""

    def build():
        network = setup.build()
        return change(network) or network

    return dataclasses.replace(setup, build=build)


def after_layer(name, function):
    """Return a change that applies `function` to the output of a layer."""

    def change(network):
        network.get_submodule(name).register_forward_hook(lambda module, args, output: function(output))

    return change


ALL = (
    check_initial_loss,
    check_gradients,
    check_overfit,
    check_last_layer,
    check_evaluation_mode,
    check_float64,
    check_determinism,
)


@pytest.mark.parametrize("name", ["setup", "normed"])
def test_an_intact_network_passes(request, name):
    setup = request.getfixturevalue(name)
    assert [finding for finding in (check(setup) for check in ALL) if finding.verdict != "pass"] == []
    assert check_batch_norm(setup).verdict == ("pass" if name == "normed" else "skipped")


def test_networks_of_other_kinds_pass(tiny_store):
    quick = [check for check in ALL if check is not check_overfit]
    for network, options in (
        ("low_cost_5", {"features": 8, "blocks": 1}),
        ("rdn_yuv", {"features": 8, "blocks": 1, "layers": 2, "growth": 4}),
        ("rdn", SMALL | {"shuffle": 2, "transform": "haar", "conditioning": "film"}),
        ("rdn", SMALL | {"shuffle": 2, "upsampling": "transposed"}),
    ):
        setup = _setup(tiny_store, network, **options)
        assert [f for f in (check(setup) for check in quick) if f.verdict != "pass"] == [], network


def fails(finding, *words, verdict="fail"):
    assert finding.verdict == verdict, finding
    assert finding.hint
    for word in words:
        assert word in finding.measured, finding


def test_a_network_that_does_not_start_as_the_identity_fails(setup):
    fails(check_initial_loss(changed(setup, lambda network: nn.init.constant_(network.tail.bias, 1e-2) and None)))
    # A network without the global residual.
    lost = changed(setup, lambda network: Wrapped(network, after=lambda output, batch: output * 0))
    fails(check_initial_loss(lost))
    assert check_initial_loss(dataclasses.replace(setup, no_identity="a reason")).measured == "a reason"


def test_why_a_filter_does_not_start_as_the_identity():
    def reason(start=None, **options):
        settings = FilterSettings(start=start)
        return _no_identity(create_model("rdn", **SMALL | options), settings)

    assert reason() is reason({"lift": True}) is None
    assert reason({"weights": "low_cost_17"}) == "training starts from low_cost_17"
    assert "output: picture" in reason(output="picture")
    assert "initialisation: torch" in reason(initialisation="torch")


def test_a_batch_that_cannot_be_fitted_fails(setup, monkeypatch):
    monkeypatch.setattr(checks_network, "OVERFIT_STEPS", 80)

    def shuffled(network, batch):
        noise = torch.randn(batch["orig_y"].shape) * batch["picture_mse"].sqrt().view(-1, 1, 1, 1)
        return setup.loss(network, batch | {"orig_y": batch["rec_y"][:, :, 2:-2, 2:-2] + noise})

    fails(check_overfit(dataclasses.replace(setup, loss=shuffled)), "after 80 steps")
    stuck = changed(setup, lambda network: Wrapped(network, after=lambda output, batch: output.detach()))
    fails(check_overfit(stuck), "0.00 dB")
    assert check_overfit(stuck, seconds=0).verdict == "skipped"


def test_parameters_without_gradient_fail(setup):
    def unused(network):
        network.forgotten = nn.Conv2d(3, 3, 1)

    fails(check_gradients(changed(setup, unused)), "none in 2 of", "forgotten.weight")
    cut = changed(setup, after_layer("head2", lambda output: output.detach()))
    fails(check_gradients(cut), "none in 2", "head2.weight")
    dead = changed(setup, after_layer("blocks.1.layers.0", lambda output: output - 1e6))
    fails(check_gradients(dead), "blocks.1.layers.0.weight")
    fails(
        check_gradients(changed(setup, lambda n: Wrapped(n, after=lambda output, batch: output.detach()))),
        "none at all",
    )
    # Frozen parameters are no fault.
    frozen = changed(setup, lambda network: network.head.requires_grad_(False) and None)
    assert check_gradients(frozen).verdict == "pass"


def test_gradients_that_are_not_finite_fail(setup):
    # The root has an infinite derivative where the residual is zero, as it is at the start.
    root = changed(setup, after_layer("tail", lambda output: output.abs().sqrt()))
    fails(check_gradients(root), "not finite")
    nothing = dataclasses.replace(setup, loss=lambda network, batch: setup.loss(network, batch).log() * 0 - torch.inf)
    fails(check_gradients(nothing), "not finite of the loss")


def test_evaluation_mode_that_behaves_as_training_fails(setup, normed):
    dropping = changed(setup, after_layer("head2", lambda output: F.dropout(output, 0.1, training=True)))
    fails(check_evaluation_mode(dropping), "second call")

    def by_the_batch(network):
        for norm in network.norms[1:3]:
            norm.track_running_stats, norm.running_mean, norm.running_var = False, None, None

    fails(check_evaluation_mode(changed(normed, by_the_batch)))
    training = changed(normed, lambda network: Wrapped(network, before=lambda batch: network.train() and batch))
    fails(check_evaluation_mode(training), "running_mean", "changed")
    # Modules switch dropout off in evaluation mode.
    proper = changed(setup, lambda n: setattr(n, "fusion2", nn.Sequential(n.fusion2, nn.Dropout(0.1))))
    assert check_evaluation_mode(proper).verdict == "pass"


def test_batch_norm_with_constant_statistics_fails(normed):
    fails(check_batch_norm(changed(normed, lambda n: setattr(n.norms[2], "momentum", 0.0))), "1 of 2", "norms.2")
    never = changed(normed, lambda network: Wrapped(network, before=lambda batch: network.eval() and batch))
    fails(check_batch_norm(never), "2 of 2")
    frozen = changed(normed, lambda network: network.norms.requires_grad_(False) and None)
    assert check_batch_norm(frozen).verdict == "skipped"


@pytest.mark.parametrize("activation", [F.relu, torch.tanh, torch.sigmoid, lambda x: F.leaky_relu(x, 0.2), F.hardtanh])
def test_an_activation_after_the_last_layer_fails(setup, activation):
    fails(check_last_layer(changed(setup, after_layer("shuffle", activation))), "response to tail deviates")


def test_a_clamped_output_fails(setup):
    fails(
        check_last_layer(changed(setup, lambda n: Wrapped(n, after=lambda output, batch: output.clamp(0, 1)))),
        "deviates",
    )
    fails(
        check_last_layer(changed(setup, lambda n: Wrapped(n, after=lambda output, batch: batch["orig_y"]))), "not reach"
    )


def test_arithmetic_that_loses_digits_fails(setup):
    cancelling = changed(setup, after_layer("fusion2", lambda output: (output + 1e5) - 1e5))
    fails(check_float64(cancelling), "loss differs")

    def halved(network):
        forward = network.features

        def features(x, planes):
            with torch.autocast("cpu", torch.bfloat16):
                return forward(x, planes).to(x.dtype)

        network.features = features

    fails(check_float64(changed(setup, halved)), "float64")


def drawn_elsewhere(setup):
    """Return a set-up that draws different batches at every call."""
    offsets = iter(range(100))
    return dataclasses.replace(setup, draw=lambda count: setup.draw(next(offsets) + count)[-count:])


def test_runs_that_do_not_depend_on_the_seed_only_fail(setup):
    rng = np.random.default_rng()
    noisy = changed(setup, after_layer("head", lambda output: output * float(1 + 1e-6 * rng.standard_normal())))
    fails(check_determinism(noisy), "tensors differ")
    fails(check_determinism(drawn_elsewhere(setup)), "tensors differ")
    state = torch.get_rng_state()
    assert (
        check_determinism(changed(setup, after_layer("head", lambda output: F.dropout(output, 0.1)))).verdict == "pass"
    )
    torch.set_rng_state(state)


def test_data_that_is_modified_fails(setup, tiny_store, tmp_path):
    units = tiny_store.split("train")
    assert check_data_untouched(setup, units).verdict == "pass"
    centred = changed(
        setup, lambda n: Wrapped(n, before=lambda batch: batch["rec_y"].sub_(0.001) is not None and batch)
    )
    fails(check_data_untouched(centred, units), "written in place: rec_y")
    replaced = changed(
        setup, lambda n: Wrapped(n, before=lambda batch: batch.update(rec_y=batch["rec_y"] + 0) or batch)
    )
    assert check_data_untouched(replaced, units).verdict == "pass"
    fails(check_data_untouched(drawn_elsewhere(setup), units), "4 batches differ when drawn again")

    store = open_store(shutil.copytree(tiny_store.folder, tmp_path / "store"))
    path = store.split("train")[0].decoded_path
    samples = np.memmap(path, dtype=np.uint16, mode="r+")
    samples[1000] ^= 1
    samples.flush()
    fails(check_data_untouched(_setup(store, **SMALL), store.split("train")), "changed since", path.name)


def test_planes_of_a_wrong_bit_depth_fail(setup):
    batches = setup.draw(16)
    assert check_planes(batches).verdict == "pass"

    def with_rec(function):
        return [batch | {"rec_y": function(batch["rec_y"])} for batch in batches]

    fails(check_planes(with_rec(lambda plane: plane * 4)), "rec_y runs from")  # 10 bits read as 8
    fails(check_planes(with_rec(lambda plane: plane / 4)), "rec_y stays below")  # 8 bits read as 10
    fails(check_planes(with_rec(lambda plane: plane - 0.5)), "rec_y runs from -")
    fails(check_planes(with_rec(lambda plane: plane * torch.nan)), "nan")
    fails(check_planes([batch | {"depth": torch.zeros(2, 1, 4, 4)} for batch in batches]), "depth is 0.000 everywhere")


def test_a_store_that_records_a_wrong_bit_depth_fails(tiny_store):
    deep = [
        unit.model_copy(update={"format": dataclasses.replace(unit.format, bit_depth=16)}) for unit in tiny_store.units
    ]
    store = dataclasses.replace(tiny_store, units=tuple(deep))
    fails(check_planes(_setup(store, **SMALL).draw(16)), "stays below")


def test_wrong_qp_planes_fail(setup, tiny_store):
    units, batches = tiny_store.split("train"), setup.draw(16)
    assert check_qps(batches, units).measured == "values 32, 42"
    fails(check_qps([batch | {"qp": torch.full((2, 1, 1, 1), 0.5)} for batch in batches], units), "values 32")
    fails(check_qps([batch | {"qp": batch["qp"] * 64 / 51} for batch in batches], units), "40.1")
    assert check_qps(batches, [unit for unit in units if unit.qp == 32]).verdict == "skipped"
    assert check_qps([{"rec_y": batches[0]["rec_y"]}], units).verdict == "skipped"


def unit_of(folder, name, luma, qp, *, split="train", group=None, decoded=None, bit_depth=8) -> Unit:
    """Return a unit of one luma picture, quantised in steps of 2^((QP - 4) / 6) as an encoder might do."""
    step = 2 ** ((qp - 4) / 6) * 2 ** (bit_depth - 8)
    dtype = np.uint8 if bit_depth == 8 else np.uint16
    if decoded is None:
        decoded = np.clip(np.round(luma / step) * step, 0, 2**bit_depth - 1)
    files = {f"{name}.yuv": luma, f"{name}_{qp}.yuv": decoded}
    for file, plane in files.items():
        np.asarray(plane).round().astype(dtype).tofile(folder / file)
    height, width = luma.shape
    form = {"width": width, "height": height, "chroma": "400", "bit_depth": bit_depth, "fps": None}
    hashes = {file: sha256_file(folder / file) for file in files}
    named = {"original": f"{name}.yuv", "decoded": f"{name}_{qp}.yuv", "files": hashes}
    return make_unit(folder, name, qp, split=split, group=group or name, format=form, **named)


def test_coding_errors_that_a_codec_cannot_cause_fail(tmp_path):
    a, b = data.camera()[:256, :256], data.camera()[256:, 256:]
    good = [unit_of(tmp_path, name, plane, qp) for name, plane in (("a", a), ("b", b)) for qp in (22, 32, 42)]
    finding = check_codec_error(good)
    assert finding.verdict == "pass", finding
    swapped = [unit_of(tmp_path, "a", a, 22, decoded=a), unit_of(tmp_path, "a", a, 32)]
    fails(check_codec_error(swapped), "none at QP 22")

    def with_file_of(unit, other):
        return unit.model_copy(update={"decoded_file": other.decoded_file})

    fails(check_codec_error([with_file_of(good[0], good[2]), good[1], with_file_of(good[2], good[0])]), "but")
    fails(check_codec_error([good[0], with_file_of(good[1], good[0]), good[2]]), "at QP 22 but")
    fails(check_codec_error([with_file_of(good[0], good[3]), good[1], good[2]]), "beyond the 64 of its quantiser")
    # A picture shifted by 4 samples does not belong to the original.
    shifted = [unit_of(tmp_path, "c", a, qp, decoded=np.roll(a, 4, axis=1)) for qp in (22, 32)]
    fails(check_codec_error(shifted), "beyond")


def test_coding_errors_at_bit_rates_must_fall(tmp_path):
    plane = data.camera()[:256, :256]
    # QPs from which a bit rate follows; units of bit rates have only the latter.
    good = [
        unit_of(tmp_path, "a", plane, qp).model_copy(update={"rate": "kbps", "qp": kbps})
        for qp, kbps in ((42, 400), (32, 1600), (22, 100_000))
    ]
    finding = check_codec_error(good)
    assert finding.verdict == "pass", finding
    assert "at 100000 kbit/s" in finding.measured
    swapped = [unit.model_copy(update={"qp": 2000 - unit.qp}) for unit in good[:2]]
    fails(check_codec_error(swapped), "at 1600 kbit/s but")


def test_pictures_in_two_splits_fail(tmp_path):
    camera, coins = data.camera().astype(float), data.coins().astype(float)
    train = [unit_of(tmp_path, "camera", camera, qp) for qp in (22, 37)]
    other = unit_of(tmp_path, "coins", coins, 37, split="val")
    assert check_splits(train, [other]).verdict == "pass"
    assert check_splits(train, []).verdict == "skipped"
    fails(check_splits(train, [unit_of(tmp_path, "x", coins, 37, split="val", group="camera")]), "group camera")
    again = unit_of(tmp_path, "again", camera, 32, split="test")
    fails(check_splits(train, [other, again]), "the same picture: camera and again")
    rng = np.random.default_rng(3)
    twins = {
        "half": zoom(camera, 0.5, order=1),
        "deep": camera * 4,
        "brighter": np.clip(camera * 0.8 + 30, 0, 255),
        "noisy": np.clip(camera + rng.normal(0, 15, camera.shape), 0, 255),
        "cropped": camera[15:, 25:],
        "decoded": np.round(camera / 30) * 30,
    }
    for name, plane in twins.items():
        unit = unit_of(tmp_path, name, plane, 37, split="val", bit_depth=10 if name == "deep" else 8)
        fails(check_splits(train, [other, unit]), f"near twins: camera and {name}")


def test_two_views_of_a_scene_are_twins_and_other_pictures_are_not():
    left, right, _ = data.stereo_motorcycle()
    views = np.stack([sketch_picture(view.mean(axis=2)) for view in (left, right)])
    assert correlations(views[:1], views[1:])[0, 0] > 0.75
    names = ("camera", "coins", "text", "brick", "grass", "gravel", "moon", "astronaut", "coffee", "chelsea")
    pictures = [getattr(data, name)() for name in names]
    luma = [picture if picture.ndim == 2 else picture.mean(axis=2) for picture in pictures]
    small = np.stack([views[0], *map(sketch_picture, luma)])
    alike = correlations(small, small)
    assert np.allclose(alike.diagonal(), 1)
    assert (alike - np.eye(len(small))).max() < 0.4
    assert correlations(np.zeros_like(views[:1]), views)[0].max() == 0
    assert sketch_picture(np.arange(12).reshape(3, 4)).shape == small.shape[1:]


def test_unrelated_real_pictures_are_no_twins(shared_data):
    from skimage.io import imread

    pictures = [imread(path).astype(float).mean(axis=2) for path in sorted((shared_data / "images/val").glob("*.png"))]
    small = np.stack([sketch_picture(picture) for picture in pictures[:12]])
    halves = np.stack([sketch_picture(zoom(picture, 0.5, order=1)) for picture in pictures[:12]])
    alike = correlations(small, halves)
    assert alike.diagonal().min() > 0.9
    assert (alike - np.diag(alike.diagonal())).max() < 0.45


@pytest.mark.parametrize(("data", "verdict"), [(1, "note"), (0.1, "pass"), (0, "pass")])
def test_waiting_for_data(setup, monkeypatch, data, verdict):
    clock = Clock(monkeypatch)
    (batch,) = setup.draw(1)

    def step(given):
        assert given is batch
        clock.now += 3

    def batches():
        while True:
            clock.now += data
            yield batch

    finding = check_waiting(step, batches(), CPU, seconds=60)
    assert finding.verdict == verdict
    assert f"{data / (3 + data):.1%} of the time: {1 / (3 + data):.3g} steps/s, 0.333 with" in finding.measured


def test_a_busy_machine_is_noted(monkeypatch):
    fails(judge_load(1.5, 2), "load 1.50 on 2", verdict="note")
    assert judge_load(0.4, 2).verdict == "pass"
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0, 0))
    fails(check_device(CPU), "99", verdict="note")
    gib = 2**30
    assert judge_gpu(gib // 2, 80 * gib, 0).verdict == "pass"
    assert judge_gpu(gib // 2, 80 * gib, None).verdict == "pass"
    fails(judge_gpu(20 * gib, 80 * gib, 0), "20.00 of 80 GiB", verdict="note")
    fails(judge_gpu(gib // 2, 80 * gib, 90), "busy 90 %", verdict="note")


@pytest.mark.gpu
def test_a_free_gpu_passes():
    device = torch.device("cuda")
    assert check_device(device).verdict == "pass"


def test_modulations_that_switch_the_network_off_fail(tiny_store):
    setup = _setup(tiny_store, "low_cost_17", features=8, blocks=2)

    def finding(**settings):
        return check_modulations(first_steps(setup, SETTINGS.model_copy(update=settings | {"warmup": 0}), steps=60))

    assert finding(learning_rate=1e-3).verdict == "pass"
    assert finding(optimiser="muon", modulation_rate=0.1).verdict == "pass"
    fails(finding(learning_rate=5e-2), "after 60 steps")

    def shrink(network):
        for modulation in network.modulations:
            torch.nn.init.constant_(modulation.out.bias, -0.8)

    # Start weights may have small factors and still learn.
    small = check_modulations(first_steps(changed(setup, shrink), SETTINGS, steps=2))
    assert small.verdict == "pass"
    assert "mean factor 0.2" in small.measured
    assert check_modulations(first_steps(_setup(tiny_store), SETTINGS, steps=2)).verdict == "skipped"


def test_dead_units_fail(setup):
    def kill(network):
        torch.nn.init.constant_(network.blocks[1].layers[0].bias, -100)

    assert check_dead_units(first_steps(setup, SETTINGS, steps=8)).verdict == "pass"
    dead_units = check_dead_units(first_steps(changed(setup, kill), SETTINGS, steps=8))
    fails(dead_units, "at most 100%, of blocks.1.layers.0, after 8 steps; more than 50% in blocks.1.layers.0")
    assert check_dead_units(first_steps(setup, SETTINGS, steps=1)).verdict == "skipped"  # one small batch


def test_updates_of_a_wrong_size_fail(setup):
    def finding(rate):
        return check_updates(first_steps(setup, SETTINGS.model_copy(update={"learning_rate": rate}), steps=5))

    assert finding(1e-3).verdict == "pass"
    assert finding(1e-8).verdict == finding(10.0).verdict == "fail"


def test_first_steps_respect_the_time_limit(setup):
    assert first_steps(setup, SETTINGS, steps=50, seconds=0).end.step == 1


@pytest.fixture
def few_steps(monkeypatch):
    """Take fewer first steps, but enough of them for the samples by which dead units are told from rare ones."""
    monkeypatch.setattr(checks_network, "first_steps", functools.partial(first_steps, steps=40))


@pytest.fixture
def free_machine(monkeypatch):
    """Hide the load of other processes, such as other tests."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0, 0))
    monkeypatch.setattr(checks_data, "WAITING_BOUND", 0.7)
    monkeypatch.setattr(checks_data, "WAITING_SECONDS", 0.5)


def test_the_intact_set_up_passes_every_check(tiny_store, free_machine, few_steps):
    progress = []
    state = torch.get_rng_state()
    torch.set_num_threads(2)
    options = {"features": 8, "layers": 4, "planes": ["rec_y", "qp"]}
    findings = check_filter([(tiny_store, 1)], "dncnn", options, SETTINGS, lambda *counts: progress.append(counts))
    assert {finding.name: finding.verdict for finding in findings if finding.verdict != "pass"} == {
        "modulations": "skipped"  # the QP is a plane
    }
    assert len({finding.name for finding in findings}) == len(findings) == 18
    assert progress == [(index + 1, 18) for index in range(18)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == 2


def test_checks_that_apply_to_any_task(tiny_store, free_machine, few_steps):
    def make(settings):
        return filter_task(tiny_store, "dncnn", {"features": 8, "layers": 4}, settings)

    findings = check_task(make, SETTINGS)
    assert [finding.name for finding in findings if finding.verdict != "pass"] == ["modulations"]
    assert len(findings) == 11

    def lame(settings):
        task = make(settings)
        task.model.forgotten = nn.Parameter(torch.ones(1))
        return task

    assert [f.name for f in check_task(lame, SETTINGS) if f.verdict == "fail"] == ["gradients"]


def test_the_check_command(run, tiny_store, tmp_path, monkeypatch, free_machine, few_steps):
    settings = {"batch": 2, "patch": 32, "threads": 1, "device": "cpu"}
    config = write_config(tmp_path / "small.yaml", tiny_store, WIDER | {"planes": ["rec_y"]}, **settings)
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 0, 0))
    verdicts = {finding["name"]: finding["verdict"] for finding in result_of(run, "check", config)}
    assert verdicts["QP plane"] == verdicts["batch norm"] == "skipped"
    assert (verdicts["device"], verdicts["waiting for data"]) == ("note", "skipped"), "and result_of expects status 0"
    monkeypatch.setattr(checks_network, "OVERFIT_STEPS", 5)
    status, text, err = run("check", config, "model.options.output=picture")
    assert status == 1
    assert "does not start" in " ".join(text.split())
    assert "device: other processes are running" in text
    assert "waiting for data │ skipped" in " ".join(text.replace("|", "│").split())
    status, _, err = run("check", config, "model.options.planes=[rec_y, pred_y]")
    assert status == 1
    assert "pred_y" in err


def test_the_loss_of_no_filter_is_that_of_the_decoded_picture(tiny_store):
    """Compare with NumPy, for luma and chroma."""
    setup = _setup(tiny_store, "rdn_yuv", features=8, blocks=1, layers=2, growth=4)
    (batch,) = setup.draw(1)
    output = checks_network.NoFilter()(batch)
    halo = create_model("rdn_yuv").halo
    assert named_outputs(output).keys() == {"y", "u", "v"}
    np.testing.assert_array_equal(output["y"], batch["rec_y"][:, :, halo:-halo, halo:-halo])
    np.testing.assert_array_equal(output["v"], batch["rec_v"][:, :, halo // 2 : -halo // 2, halo // 2 : -halo // 2])
