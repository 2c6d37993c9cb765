"""Precision, compilation and losses: bfloat16 for convolutions, float32 for 10-bit samples, failing compilers."""

import math

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import sliding_window_view
from scipy.fft import dctn
from scipy.linalg import hadamard

from codecnn.base.errors import ConfigError
from codecnn.dataset import TrainingBatches
from codecnn.models import RESIDUAL_SCALE, create_model, named_outputs
from codecnn.training import FilterSettings, filter_loss
from codecnn.training.execution import Autocast, try_compile
from codecnn.training.filter import filter_task
from codecnn.training.filter.objective import CHARBONNIER_EPSILON, filtering_picture
from tests.helpers.networks import SMALL, awaken
from tests.helpers.toy_task import run_toy
from tests.helpers.training import Wrapped, lines, rows, train_filter, weights_of

CPU = torch.device("cpu")


def planes(model, side=32):
    """Return every 10-bit value in all planes of samples."""
    values = (torch.arange(side * side).reshape(1, 1, side, side) * 7 % 1024).float() / 1024
    half = values[:, :, ::2, ::2]
    result = {name: half if name in ("rec_u", "rec_v") else values for name in model.planes}
    return result | {"qp": torch.full((1, 1, 1, 1), 37 / 64)}


def decoded(model, given, output):
    """Return the decoded plane of an output without the halo of the network."""
    halo, rec = model.halo // (1 if output == "y" else 2), given[f"rec_{output}"]
    return rec[:, :, halo : rec.shape[2] - halo, halo : rec.shape[3] - halo]


@pytest.mark.parametrize("name", ["rdn", "rdn_yuv", "low_cost_5", "vrcnn", "dncnn"])
def test_autocast_keeps_the_identity_exact_and_the_residual_precise(name):
    model = create_model(name, **(SMALL if name.startswith("rdn") else {}))
    given = planes(model)
    half = Autocast(model, CPU)
    for output, plane in named_outputs(half(given)).items():
        assert plane.dtype == torch.float32
        assert torch.equal(plane, decoded(model, given, output))
    awaken(model, std=0.02)
    with torch.no_grad():
        pairs = zip(named_outputs(half(given)).items(), named_outputs(model(given)).values(), strict=True)
        for (output, low), full in pairs:
            assert not torch.equal(low, full)  # it did run in bfloat16
            residual = (full - decoded(model, given, output)).abs().max()
            # The residual is at most three 10-bit steps; rounding the sum to bfloat16 would cost up to two of them.
            assert residual < 3 / 1024
            assert (low - full).abs().max() < 0.03 * residual


def test_residual_is_scaled_and_added_in_float32_under_autocast():
    model = awaken(create_model("rdn", **SMALL, planes=["rec_y"]), std=0.1)
    given = planes(model)
    result = []
    model.tail.register_forward_hook(lambda module, inputs, output: result.append(output))
    with torch.no_grad():
        filtered = Autocast(model, CPU)(given)
    assert result[0].dtype == torch.bfloat16
    expected = decoded(model, given, "y").double() + result[0].double() * RESIDUAL_SCALE
    assert (filtered - expected).abs().max() < 1e-7


def test_training_in_bfloat16_learns_and_averages_in_float32(tiny_store, tmp_path):
    settings = FilterSettings(
        steps=12, batch=4, patch=32, validate_every=6, warmup=2, threads=1, device="cpu", learning_rate=2e-3, ema=0.5
    )
    last = {}
    for precision in ("float32", "bfloat16"):
        chosen = settings.model_copy(update={"precision": precision})
        train_filter(tiny_store, "rdn", SMALL, chosen, tmp_path / precision)
        last[precision] = rows(tmp_path / precision)[-1]
        state = torch.load(tmp_path / precision / "checkpoint.pt", weights_only=True)
        for part in ("model", "averaged"):
            assert {t.dtype for t in state[part].values() if t.is_floating_point()} == {torch.float32}
    a, b = last["float32"]["loss"], last["bfloat16"]["loss"]
    assert a != b
    assert a == pytest.approx(b, rel=1e-2)


def test_a_network_that_predicts_the_picture_needs_float32(tiny_store):
    settings = FilterSettings(precision="bfloat16")
    with pytest.raises(ConfigError, match="bfloat16, which has 8 bits"):
        filter_task(tiny_store, "rdn", {**SMALL, "output": "picture"}, settings)


@pytest.mark.parametrize("where", ["forward", "backward", "at once"])
def test_a_broken_compiler_does_not_end_the_run(tmp_path, monkeypatch, where):
    def fail(_):
        raise RuntimeError("no compiler was found\nand much more")

    broken = {
        "forward": lambda module: Wrapped(module, before=fail),
        "backward": lambda module: Wrapped(module, after=lambda result, x: result.register_hook(fail) and result),
        "at once": fail,
    }
    run_toy(tmp_path / "eager")
    monkeypatch.setattr(torch, "compile", broken[where])
    run_toy(tmp_path / "compiled", {"compile": True})
    assert weights_of(tmp_path / "eager") == weights_of(tmp_path / "compiled")
    events = lines(tmp_path / "compiled" / "log.jsonl")
    reason = "RuntimeError: no compiler was found"
    assert events[1]["text"] == f"torch.compile failed, the network runs uncompiled: {reason}"


def test_the_compiled_network_is_trained(tmp_path, monkeypatch):
    calls = []

    monkeypatch.setattr(torch, "compile", lambda module: Wrapped(module, lambda x: calls.append(x.shape[0]) or x))
    run_toy(tmp_path / "run", {"compile": True, "accumulate": 2, "steps": 3})
    assert calls == [4] * 7  # a trial, then two parts a step


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_real_compiler_computes_the_same():
    torch.compiler.reset()  # after other compilations these shapes would be dynamic, which inductor cannot handle
    model = awaken(create_model("rdn", **SMALL)).train()
    given = planes(model)
    loss = lambda network, batch: network(batch).square().mean()  # noqa: E731
    network, reason = try_compile(model, "float32", CPU, loss, given)
    assert reason is None
    assert network is not model
    torch.testing.assert_close(network(given), model(given), rtol=1e-5, atol=1e-6)


def loss_by_formula(kind, d, inside, side):
    """Return the loss of the differences d (h, w) of one patch, by sample or by blocks of `side` x `side` samples."""
    if kind in ("satd", "dct"):
        blocks = sliding_window_view(np.where(inside, d, 0), (side, side))[::side, ::side].reshape(-1, side, side)
        basis = hadamard(side) / math.sqrt(side)
        result = dctn(blocks, axes=(1, 2), norm="ortho") if kind == "dct" else basis @ blocks @ basis.T
        return abs(result).sum() / inside.sum()
    d, eps = d[inside], CHARBONNIER_EPSILON
    return {"mse": d**2, "l1": abs(d), "charbonnier": np.sqrt(d**2 + eps**2) - eps}[kind].mean()


KINDS = ("mse", "l1", "charbonnier", "satd", "dct")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighting", ["picture", "none"])
@pytest.mark.parametrize("network", ["rdn", "rdn_yuv"])
def test_losses_match_their_formulas(tiny_store, network, kind, weighting):
    model = awaken(create_model(network, **SMALL), std=0.05)
    names = {f"{kind}_{output}" for kind in ("rec", "orig") for output in model.outputs} | {"qp"}
    batch = TrainingBatches(tiny_store.split("test"), batch=3, steps=1, size=72, halo=model.halo, planes=names)[0]
    batch["valid"][0, :, :, 52:] = 0  # beyond the picture, within a block
    with torch.no_grad():
        loss = filter_loss(model, batch, weighting, kind).item()
        filtered = named_outputs(model(batch))
    expected = []
    for output, share in zip(model.outputs, (6, 1, 1) if len(filtered) > 1 else (1,), strict=True):
        step = 1 if output == "y" else 2
        for index in range(3):
            d = (filtered[output][index, 0].double() - batch[f"orig_{output}"][index, 0].double()).numpy()
            inside = batch["valid"][index, 0, ::step, ::step].numpy() > 0
            mse = float(batch["picture_mse" if output == "y" else f"picture_mse_{output}"][index])
            unit = 1 if weighting == "none" else mse if kind == "mse" else math.sqrt(mse)
            expected.append(
                loss_by_formula(kind, d, inside, 8 // step) / unit * share / (8 if len(filtered) > 1 else 1)
            )
    assert loss == pytest.approx(sum(expected) / 3, rel=1e-5)


def test_absolute_errors_are_alike_for_white_noise():
    noise = torch.randn(4, 1, 256, 256, generator=torch.Generator().manual_seed(1)) / 100
    batch = {"valid": torch.ones_like(noise), "orig_y": torch.zeros_like(noise)}
    batch |= {"picture_mse": torch.full((4,), 1e-4), "weight": torch.ones(4)}
    result = [filter_loss(lambda _: noise, batch, "picture", kind).item() for kind in ("l1", "satd", "dct")]
    assert result == pytest.approx([math.sqrt(2 / math.pi)] * 3, rel=0.01)


def test_a_loss_without_an_implementation_is_an_error():
    """A name that only the settings know must not be trained as another loss."""
    plane = torch.zeros(1, 1, 16, 16)
    batch = {"valid": torch.ones_like(plane), "orig_y": plane, "picture_mse": torch.ones(1), "weight": torch.ones(1)}
    with pytest.raises(ConfigError, match="unknown loss 'huber'"):
        filter_loss(lambda _: plane, batch, "picture", "huber")


def test_the_loss_of_the_settings_is_used(tiny_store):
    batch = None
    losses = {}
    for kind in KINDS:
        settings = FilterSettings(batch=4, patch=32, steps=1, device="cpu", loss=kind)
        task = filter_task(tiny_store, "rdn", SMALL, settings)
        batch = next(task.batches(range(1), 0, 1, CPU))
        losses[kind] = task.loss(task.model, batch).item()
        assert losses[kind] == filter_loss(task.model, batch, "picture", kind).item()
    assert len(set(losses.values())) == len(KINDS)


@pytest.mark.parametrize("name", ["rdn", "rdn_yuv"])
def test_pictures_show_decoded_filtered_original_and_residual(tiny_store, name, monkeypatch):
    monkeypatch.setattr("codecnn.training.filter.objective.CROP", 48)
    monkeypatch.setattr("codecnn.training.filter.objective.MARGIN", 8)
    unit = tiny_store.split("val")[0]
    with unit.originals() as originals, unit.decoded() as decoded:
        original, output = originals[0], decoded[0]
    shift = output.bit_depth - 8
    height, width = output.y.shape
    y, x = (height - 48) // 4 * 2, (width - 48) // 4 * 2
    model = create_model(name, **SMALL)
    shown = filtering_picture(model, unit, "cpu").reshape(48, 4, 48).transpose(1, 0, 2)
    np.testing.assert_array_equal(shown[0], output.y[y : y + 48, x : x + 48] >> shift)
    np.testing.assert_array_equal(shown[1], shown[0])
    np.testing.assert_array_equal(shown[2], original.y[y : y + 48, x : x + 48] >> shift)
    assert (shown[3] == 128).all()
    awaken(model)
    shown = filtering_picture(model, unit, "cpu").reshape(48, 4, 48).transpose(1, 0, 2).astype(int)
    assert (shown[1] != shown[0]).any()
    inside = (shown[3] > 0) & (shown[3] < 255)
    # Both pictures are rounded to 8 bits.
    assert abs(shown[3] - 128 - 8 * (shown[1] - shown[0]))[inside].max() <= 16
