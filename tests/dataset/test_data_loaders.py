"""Data loaders for loops outside of codecnn: documented keys, shapes and scales, and a loop that trains."""

import re

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import codecnn
from codecnn.base.errors import ConfigError, StoreError
from codecnn.dataset import TrainingBatches, data_loaders, picture_loader
from codecnn.filtering import FloatFilter
from codecnn.models import as_filter_network
from codecnn.pictures.metrics import mse, psnr
from tests.helpers.own_networks import Net

PLANES = ("rec_y", "rec_u", "qp", "slice_type", "depth", "orig_u")


def documented_keys():
    """The keys in the first column of the table of the module, without those in dots."""
    rows = [line.split("|")[1] for line in data_loaders.__doc__.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def test_patches_are_those_of_the_training(tiny_store):
    options = {"batch": 3, "steps": 2, "planes": PLANES, "halo": 2, "seed": 4}
    expected = TrainingBatches(tiny_store.split("train"), size=32, **options)
    for folder, workers in ((tiny_store, 0), (tiny_store.folder, 2)):
        batches = list(codecnn.patch_loader(folder, patch=32, workers=workers, **options))
        assert len(batches) == 2
        for batch, other in zip(batches, expected, strict=False):
            assert batch.keys() == other.keys()
            assert all(torch.equal(batch[name], other[name]) for name in batch)
    assert {name: tuple(tensor.shape) for name, tensor in batches[0].items()} == {
        **dict.fromkeys(("rec_y", "depth"), (3, 1, 36, 36)),
        "rec_u": (3, 1, 18, 18),
        "orig_u": (3, 1, 16, 16),
        **dict.fromkeys(("orig_y", "valid"), (3, 1, 32, 32)),
        **dict.fromkeys(("qp", "slice_type"), (3, 1, 1, 1)),
        **dict.fromkeys(("picture_mse", "picture_mse_u", "weight"), (3,)),
    }
    assert {tensor.dtype for tensor in batches[0].values()} == {torch.float32}
    assert set(batches[0]) - {"picture_mse_u"} <= documented_keys()


@pytest.mark.parametrize(("halo", "stride"), [(0, 1), (4, 8)])
def test_whole_pictures_have_the_samples_of_the_store(tiny_store, halo, stride):
    units = tiny_store.split("test")  # 68x52, no multiple of 8
    pictures = list(codecnn.picture_loader(tiny_store, "test", planes=PLANES, halo=halo, stride=stride))
    assert len(pictures) == len(units)
    for unit, batch in zip(units, pictures, strict=True):
        height, width = (56, 72) if stride == 8 else (52, 68)
        with unit.originals() as originals, unit.decoded() as decoded:
            for name, source, factor in (("rec_y", decoded[0].y, 1), ("rec_u", decoded[0].u, 2)):
                pad = halo // factor
                shape = (height // factor - source.shape[0] + pad, width // factor - source.shape[1] + pad)
                expected = np.pad(source / 1024, ((pad, shape[0]), (pad, shape[1])), mode="edge")
                np.testing.assert_array_equal(batch[name][0, 0].numpy(), expected.astype(np.float32))
            np.testing.assert_array_equal(
                batch["orig_y"][0, 0, :52, :68].numpy(), (originals[0].y / 1024).astype(np.float32)
            )
            assert batch["picture_mse"].item() == pytest.approx(mse(originals[0].y, decoded[0].y) / 1024**2, rel=1e-3)
        assert batch["orig_y"].shape == batch["valid"].shape == (1, 1, height, width)
        assert batch["valid"].sum() == 52 * 68
        assert bool(batch["valid"][0, 0, :52, :68].all())
        assert batch["qp"].shape == (1, 1, 1, 1)
        assert batch["qp"].item() == unit.qp / 64
        cells = np.maximum(unit.block_planes()[0, 0], 0).repeat(4, axis=0).repeat(4, axis=1)[:52, :68] / 8
        np.testing.assert_array_equal(
            batch["depth"][0, 0, halo : halo + 52, halo : halo + 68].numpy(), cells.astype(np.float32)
        )


def test_loop_outside_of_codecnn(tiny_store):
    """A loop as the tutorial shows it; the loss falls, and its PSNR is that of a frame filter."""
    torch.manual_seed(0)
    network = Net(features=8)
    optimiser = torch.optim.Adam(network.parameters(), 2e-3)
    losses = []
    for batch in codecnn.patch_loader(tiny_store, batch=4, steps=60, patch=64, halo=2):
        loss = (F.mse_loss(network(batch), batch["orig_y"], reduction="none") * batch["valid"]).mean() * 1e4
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    unit = tiny_store.split("val")[0]
    with torch.no_grad():
        batch = next(iter(picture_loader(tiny_store, "val", halo=2)))
        filtered = (network.eval()(batch)[0, 0] * 1024).round().clamp(0, 1023).numpy().astype(np.uint16)
    with unit.originals() as originals, unit.decoded() as decoded:
        frame = FloatFilter(as_filter_network(network))(decoded[0], unit.qp)
        assert psnr(originals[0].y, filtered, 10) == pytest.approx(psnr(originals[0].y, frame.y, 10), abs=1e-3)


def test_what_does_not_fit_is_an_error(tiny_store):
    with pytest.raises(ConfigError, match="stride must be at least 1, not 0"):
        picture_loader(tiny_store, stride=0)
    with pytest.raises(ConfigError, match="even halo"):
        picture_loader(tiny_store, planes=("rec_u",), halo=1)
    with pytest.raises(ConfigError, match="unknown plane 'rec_x'"):
        codecnn.patch_loader(tiny_store, planes=("rec_x",))
    with pytest.raises(StoreError, match="no pictures in the split 'other'"):
        codecnn.patch_loader(tiny_store, "other")
