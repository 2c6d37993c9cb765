"""Patches, halos and batches against plain slicing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from codecnn.base.errors import ConfigError
from codecnn.dataset import CtuPatches, Patch, PatchReader, TrainingBatches, as_floats, as_tensors, copy_window


@settings(max_examples=400, deadline=None)
@given(st.integers(-60, 60), st.integers(-60, 60), st.integers(1, 45), st.integers(1, 45))
def test_window_equals_that_of_a_padded_plane(x, y, width, height):
    plane = np.random.default_rng(0).integers(0, 1023, (23, 31), dtype=np.uint16)
    padded = np.pad(plane, 120, mode="edge")
    out = np.zeros((height, width), np.uint16)
    copy_window(out, plane, x, y)
    np.testing.assert_array_equal(out, padded[120 + y : 120 + y + height, 120 + x : 120 + x + width])


def read_luma(unit):
    with unit.originals() as originals, unit.decoded() as decoded:
        return np.array(originals[0].y), np.array(decoded[0].y)


def cut_batch(reader, patch, transform):
    return as_floats(as_tensors(reader.cut([patch], [transform])))


def test_halo_holds_samples_of_neighbouring_ctus(tiny_store):
    units = tiny_store.split("train")
    patches = CtuPatches(units, size=128, halo=2)
    assert len(patches) == len(units) * 2 * 2
    original, decoded = read_luma(units[0])
    first = patches[0]
    assert first["rec_y"].shape == (1, 132, 132)
    assert first["orig_y"].shape == (1, 128, 128)
    np.testing.assert_array_equal(first["orig_y"][0].numpy() * 1024, original[:128, :128])
    np.testing.assert_array_equal(first["rec_y"][0, 2:, 2:].numpy() * 1024, decoded[:130, :130])
    np.testing.assert_array_equal(first["rec_y"][0, 0, 2:].numpy() * 1024, decoded[0, :130])
    second = patches[1]
    np.testing.assert_array_equal(second["rec_y"][0, 2:, :2].numpy() * 1024, decoded[:130, 126:128])
    # The picture is 208x144: of the second CTU of the second row, 80x16 samples lie inside.
    assert patches[3]["valid"].sum() == 80 * 16


def test_patches_hold_qp_and_error_of_their_unit(tiny_store):
    units = tiny_store.split("train")
    for index, unit in enumerate(units):
        batch = cut_batch(PatchReader(units, 64, 2), Patch(index, 0, 8, 16), 0)
        assert batch["qp"].shape == (1, 1, 1, 1)
        assert batch["qp"].item() * 64 == unit.pictures[0].qp
        original, decoded = read_luma(unit)
        error = np.mean((original.astype(float) - decoded) ** 2) / 1024**2
        assert batch["picture_mse"].item() == pytest.approx(error, rel=1e-3)
        np.testing.assert_array_equal(batch["orig_y"][0, 0].numpy() * 1024, original[16:80, 8:72])


def test_chroma_error_is_at_least_a_share_of_luma_error(tiny_store):
    unit = tiny_store.split("train")[0]
    (picture, *_) = unit.pictures
    grey = unit.model_copy(
        update={"pictures": (picture.model_copy(update={"psnr_u": None, "psnr_v": picture.psnr_y + 60}),)}
    )
    batch = cut_batch(PatchReader([grey], 64, 2, ("rec_y", "orig_u", "orig_v")), Patch(0, 0, 0, 0), 0)
    for name in ("picture_mse_u", "picture_mse_v"):
        assert batch[name].item() == pytest.approx(batch["picture_mse"].item() / 32)


def test_batch_depends_on_seed_and_step_only(tiny_store):
    def batches(seed):
        return TrainingBatches(tiny_store.split("train"), batch=4, steps=10, size=64, halo=2, seed=seed)

    a, b, c = batches(1), batches(1), batches(2)
    list(map(a.__getitem__, range(5)))
    assert torch.equal(a[7]["rec_y"], b[7]["rec_y"])
    assert not torch.equal(a[7]["rec_y"], a[8]["rec_y"])
    assert not torch.equal(a[7]["rec_y"], c[7]["rec_y"])


def test_picture_smaller_than_a_patch_is_valid_inside_only(tiny_store):
    data = TrainingBatches(tiny_store.split("test"), batch=2, steps=1, size=128, halo=4)
    batch = data[0]
    assert batch["rec_y"].shape == (2, 1, 136, 136)
    assert batch["valid"].sum() == 2 * 52 * 68
    assert torch.isfinite(batch["rec_y"]).all()


def test_invalid_patch_size_is_refused(tiny_store):
    with pytest.raises(ConfigError, match="multiple of 8"):
        TrainingBatches(tiny_store.split("train"), batch=2, steps=1, size=100)
