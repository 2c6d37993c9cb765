"""The training loop: starts at 0 dB, learns, resumes exactly, stops at values that are not finite."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from codecnn.base.errors import CodecnnError, ConfigError, StoreError
from codecnn.dataset import TrainingBatches
from codecnn.filtering import FloatFilter
from codecnn.models import create_model, load_model
from codecnn.training import FilterSettings, Trainer, filter_loss, psnr_gains, train_task, warmup_cosine
from codecnn.training.filter import trained_on
from codecnn.training.optimiser import MovingAverage
from tests.helpers.networks import SMALL, awaken
from tests.helpers.toy_task import SETTINGS as TOY_SETTINGS
from tests.helpers.toy_task import ToyTask, run_toy
from tests.helpers.training import rows, train_filter, weights_of

SETTINGS = FilterSettings(
    steps=6, batch=4, patch=64, learning_rate=2e-3, warmup=2, ema=0.5, validate_every=3, seed=3, threads=1, device="cpu"
)


def test_the_loss_of_an_untrained_network_is_that_of_no_filter(tiny_store):
    model = create_model("rdn", **SMALL)
    data = TrainingBatches(tiny_store.split("train"), batch=32, steps=4, size=64, halo=model.halo)
    losses = [filter_loss(model, data[step], "picture").item() for step in range(4)]
    assert np.mean(losses) == pytest.approx(1, abs=0.1)
    plain = filter_loss(model, data[0], "none").item()
    error = (data[0]["rec_y"][:, :, 2:-2, 2:-2] - data[0]["orig_y"]).square().mean().item()
    assert plain == pytest.approx(error, rel=1e-5)


def test_the_loss_counts_only_samples_of_the_picture(tiny_store):
    model = create_model("rdn", **SMALL)
    data = TrainingBatches(tiny_store.split("test"), batch=2, steps=1, size=128, halo=model.halo)[0]
    before = filter_loss(model, data, "none")
    spoiled = data | {"orig_y": torch.where(data["valid"] > 0, data["orig_y"], 9.0)}
    assert torch.equal(filter_loss(model, spoiled, "none"), before)


def test_one_batch_can_be_fitted(tiny_store):
    torch.manual_seed(0)
    model = create_model("rdn", **SMALL)
    batch = TrainingBatches(tiny_store.split("train"), batch=2, steps=4, size=32, halo=model.halo)[0]
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    first = filter_loss(model, batch, "picture").item()
    for _ in range(200):
        optimiser.zero_grad()
        loss = filter_loss(model, batch, "picture")
        gain = 10 * np.log10(first / loss.item())
        if gain > 0.3:
            break
        loss.backward()
        optimiser.step()
    assert gain > 0.3


def test_gain_of_identity_is_zero_and_of_noise_negative(tiny_store):
    units = tiny_store.split("val")
    assert psnr_gains(create_model("rdn", **SMALL), units, "cpu")["y"] == {32: 0.0, 42: 0.0}
    worse = psnr_gains(awaken(create_model("rdn", **SMALL)), units, "cpu")["y"]
    assert all(gain < -0.1 for gain in worse.values())


def test_gains_of_chroma_are_reported_and_count_in_the_score(tiny_store, tmp_path):
    options = {"features": 8, "blocks": 1}
    train_filter(tiny_store, "low_cost_yuv_17", options, SETTINGS, tmp_path / "run")
    units = tiny_store.split("val")
    for row in rows(tmp_path / "run"):
        means = [row["gain_mean_db"], row["gain_u_mean_db"], row["gain_v_mean_db"]]
        assert row["score"] == pytest.approx((6 * means[0] + means[1] + means[2]) / 8)
        assert row["gain_mean_db"] == pytest.approx(np.mean(list(row["gain_db"].values())))
    model = awaken(create_model("low_cost_yuv_17", **options), std=0.05)
    model.gain.log_gain.data.sub_(50)  # luma is not changed
    gains = psnr_gains(model, units, "cpu")
    assert gains["y"] == {32: 0.0, 42: 0.0}
    for name in ("u", "v"):
        for qp, gain in gains[name].items():
            of_qp = [unit for unit in units if unit.qp == qp]
            expected = [_chroma_gain(model, unit, "yuv".index(name)) for unit in of_qp]
            assert gain == pytest.approx(np.mean(expected), abs=1e-6)
            assert abs(gain) > 1e-3


def _chroma_gain(model, unit, index):
    """Compute the PSNR gain of the first picture of a unit with the picture filter."""
    (original, *_), (decoded, *_) = (unit.pictures_of(kind) for kind in ("original", "decoded"))
    filtered = FloatFilter(model)(decoded, unit.pictures[0].qp)
    target, before, after = (picture.planes[index].astype(float) for picture in (original, decoded, filtered))
    return 10 * np.log10(((before - target) ** 2).mean() / ((after - target) ** 2).mean())


def test_warmup_rises_and_the_cosine_ends_at_zero():
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = warmup_cosine(optimiser, FilterSettings(steps=100, warmup=10))
    rates = []
    for _ in range(100):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert rates[0] == pytest.approx(0.01)
    assert int(np.argmax(rates)) == 10
    assert max(rates) == pytest.approx(1)
    assert rates[55] == pytest.approx(0.5, abs=0.01)
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0, abs=1e-9)


def _train(store, run, resume=False, **changes):
    return train_filter(store, "rdn", SMALL, SETTINGS.model_copy(update=changes), run, resume=resume)


def test_files_of_a_run(tiny_store, tmp_path):
    run = tmp_path / "run"
    last = _train(tiny_store, run)
    metrics = rows(run)
    assert [row["step"] for row in metrics] == [3, 6]
    assert set(metrics[0]["gain_db"]) == {"32", "42"}
    assert last.best_score == max(row["gain_mean_db"] for row in metrics)
    assert (last.last, last.weights) == (metrics[-1], run / "best.safetensors")
    model, card = load_model(run / "best.safetensors")
    gain = psnr_gains(model, tiny_store.split("val"), "cpu")["y"]
    best = max(metrics, key=lambda row: row["gain_mean_db"])
    assert {str(qp): value for qp, value in gain.items()} == pytest.approx(best["gain_db"])
    assert card["data_key"] == tiny_store.data_key
    (description,) = card.trained_on
    assert (description.name, description.codec, description.preset, description.configuration) == (
        "tiny",
        "vvc",
        "faster",
        "ai",
    )
    assert (description.sequences, description.varied, description.loop_filters) == ({"": 1}, 0, True)
    assert list(run.glob("events.out.tfevents*"))
    assert not list(run.glob("*.part*"))
    with pytest.raises(ConfigError, match="already holds a run"):
        _train(tiny_store, run)


def test_shares_in_a_card_add_up_to_1(tiny_store):
    assert [description.share for description in trained_on([(tiny_store, 1700), (tiny_store, 300)])] == [0.85, 0.15]


def test_a_resumed_run_ends_at_the_same_weights(tiny_store, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    _train(tiny_store, whole)

    class KilledError(Exception):
        pass

    get = TrainingBatches.__getitem__

    def killed(self, step):
        if step == 5:
            raise KilledError
        return get(self, step)

    parted = tmp_path / "parted"
    monkeypatch.setattr(TrainingBatches, "__getitem__", killed)
    with pytest.raises(KilledError):
        _train(tiny_store, parted)
    monkeypatch.setattr(TrainingBatches, "__getitem__", get)
    _train(tiny_store, parted, resume=True)
    for name in ("last", "best"):
        assert weights_of(whole, name) == weights_of(parted, name)
    untimed = ["step", "loss", "learning_rate", "gain_db"]
    a, b = ([[row[key] for key in untimed] for row in rows(run)] for run in (whole, parted))
    assert a == b
    with pytest.raises(ConfigError, match=r"training\.batch differs"):
        _train(tiny_store, parted, resume=True, batch=5)


def test_a_diverging_run_ends_with_an_error(tiny_store, tmp_path):
    message = r"loss is no longer finite at step 2, while its input is: lower training\.learning_rate"
    with pytest.raises(CodecnnError, match=message):
        _train(tiny_store, tmp_path / "run", learning_rate=1e30, warmup=0)
    # Without a checkpoint the folder is free for another run.
    _train(tiny_store, tmp_path / "run")


class BrokenTask(ToyTask):
    """A toy in which input, loss or gradient is not finite at the fourth step."""

    def __init__(self, broken):
        super().__init__(norm=False, dropout=False)
        self.broken = broken

    def batches(self, steps, rank, world, device):
        for step, batch in zip(steps, super().batches(steps, rank, world, device), strict=True):
            if self.broken == "input" and step == 3:
                batch["x"][2, 0, 1, 1] = float("nan")
            yield batch

    def loss(self, model, batch):
        loss = super().loss(model, batch)
        if self.counts["loss"] == 4 and self.broken == "loss":
            return loss * float("inf")
        if self.counts["loss"] == 4 and self.broken == "gradient":
            return loss + (loss - loss).sqrt()  # the derivative of a root at zero
        return loss


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("input", r"the input of step 4 is not finite \(x\): run `codecnn dataset verify` on the store"),
        ("loss", r"the loss is no longer finite at step 4, while its input is: lower training\.learning_rate"),
        ("gradient", r"the gradient is no longer finite at step 4, while loss and input are: run `codecnn check`"),
    ],
)
@pytest.mark.parametrize("checkpoint_every", [4, 7])
def test_the_error_names_what_is_not_finite_and_the_step(tmp_path, broken, message, checkpoint_every):
    settings = TOY_SETTINGS.model_copy(update={"checkpoint_every": checkpoint_every})
    with pytest.raises(CodecnnError, match=message):
        train_task(lambda: BrokenTask(broken), settings, tmp_path)
    assert not (tmp_path / "checkpoint.pt").exists()


@pytest.mark.parametrize("kind", ["mse", "l1", "charbonnier", "satd", "dct"])
def test_a_patch_without_valid_samples_contributes_nothing(tiny_store, kind):
    model = awaken(create_model("low_cost_yuv_17", features=8, blocks=1), std=0.05)
    planes = (*model.planes, "orig_y", "orig_u", "orig_v")
    data = TrainingBatches(tiny_store.split("train"), batch=3, steps=1, size=32, halo=model.halo, planes=planes)
    batch = data[0]
    without_first = filter_loss(model, {name: tensor[1:] for name, tensor in batch.items()}, "picture", kind)
    batch["valid"][0] = 0
    loss = filter_loss(model, batch, "picture", kind)
    assert loss.item() == pytest.approx(without_first.item() * 2 / 3, rel=1e-5)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_runs_that_cannot_start_are_refused(tiny_store, tmp_path):
    with pytest.raises(StoreError, match="checkpoint"):
        _train(tiny_store, tmp_path / "none", resume=True)
    with pytest.raises(ConfigError, match="'tpu'"):
        _train(tiny_store, tmp_path / "run", device="tpu")
    assert not (tmp_path / "run").exists()


def test_training_starts_from_weights_with_frozen_parts(tiny_store, tmp_path):
    _train(tiny_store, tmp_path / "first")
    weights = tmp_path / "first" / "last.safetensors"
    start = {"weights": str(weights), "freeze": ["blocks.*"]}
    groups = {"head*": {"lr": 1e-9}}
    settings = FilterSettings.model_validate(SETTINGS.model_dump() | {"start": start, "groups": groups, "ema": 0})
    wider = {**SMALL, "planes": ["rec_y", "qp", "pred_y"]}
    with pytest.raises(StoreError, match="pred_y"):
        train_filter(tiny_store, "rdn", wider, settings, tmp_path / "second")
    train_filter(tiny_store, "rdn", SMALL, settings, tmp_path / "second")
    before, after = load_file(weights), load_file(tmp_path / "second" / "last.safetensors")
    for name, tensor in before.items():
        changed = (after[name] - tensor).abs().max()
        if name.startswith("blocks."):
            assert changed == 0, name
        elif name.startswith("head"):
            assert changed < 1e-7, name
        elif name.startswith("tail"):
            assert changed > 1e-5, name
    report = json.loads((tmp_path / "second" / "transfer.json").read_text())
    assert {entry["status"] for entry in report["tensors"]} == {"loaded"}
    whole = weights_of(tmp_path / "second")
    train_filter(tiny_store, "rdn", SMALL, settings, tmp_path / "second", resume=True)
    assert weights_of(tmp_path / "second") == whole


@pytest.mark.gpu
def test_training_on_cuda_gives_the_same_loss(tiny_store, tmp_path):
    _train(tiny_store, tmp_path / "cpu")
    _train(tiny_store, tmp_path / "cuda", device="cuda")
    cpu, cuda = (rows(tmp_path / name)[0] for name in ("cpu", "cuda"))
    assert cpu["loss"] == pytest.approx(cuda["loss"], rel=1e-3)


def test_a_step_does_not_search_the_network_for_parameters(tmp_path, monkeypatch):
    """Searching takes a tenth of the processor time of a step, and a GPU waits for it."""
    searches, step, named_parameters = [], Trainer.step, nn.Module.named_parameters

    def counted(self, *arguments, **options):
        searches.append(type(self).__name__)
        return named_parameters(self, *arguments, **options)

    def watched(self, batch):
        with monkeypatch.context() as patch:
            if not self.monitor.due():
                patch.setattr(nn.Module, "named_parameters", counted)
            step(self, batch)

    monkeypatch.setattr(Trainer, "step", watched)
    run_toy(tmp_path)
    assert searches == []


def test_saved_weights_are_the_moving_average_of_every_step(tmp_path, monkeypatch):
    expected, step = {}, Trainer.step

    def followed(self, batch):
        step(self, batch)
        for name, weight in self.state.model.named_parameters():
            expected[name] = 0.5 * expected[name] + 0.5 * weight if name in expected else weight.clone()

    monkeypatch.setattr(Trainer, "step", followed)
    run_toy(tmp_path / "run", {"steps": 6, "ema": 0.5, "validate_every": 6})
    saved = load_file(tmp_path / "run/last.safetensors")
    for name, weight in expected.items():
        torch.testing.assert_close(saved[name], weight.detach())


def test_the_average_follows_buffers_that_a_network_replaces():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2))
            self.register_buffer("calls", torch.zeros(()))

    model = Counting()
    average = MovingAverage(model, 0.5)
    for calls in range(1, 4):
        model.calls = torch.tensor(float(calls))
        model.weight.data += 1
        average.update_parameters(model)
    assert average.module.calls == 3
    torch.testing.assert_close(average.module.weight, torch.full((2,), 2.25))  # 1, then 1.5, then 2.25
