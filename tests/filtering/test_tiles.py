"""Tiles against the picture in one piece, for every kind of layers; threads, memory, and preparation of a filter."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import codecnn.filtering.network_filter as network_filter
from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError
from codecnn.filtering import LARGEST_TILE, BFloat16Filter, FloatFilter, fast_tile, fit_tile, load_filter
from codecnn.models import create_model, peak_bytes, save_weights
from codecnn.pictures.files import Picture, VideoFormat, create_video, open_video
from tests.helpers.networks import DISTINCT, SMALL, awaken, create_case


def trained(name, options=None):
    """Create a network whose residual is as large as a trained one's, up to 20 samples of 10 bit."""
    torch.manual_seed(3)
    model = create_case(name, options).eval()
    last = [weight for weight in model.parameters() if weight.ndim == 4 and not weight.any()]
    for weight in last:
        torch.nn.init.normal_(weight, std=0.02)
    picture = decoded(24, 24)
    moved = np.abs(FloatFilter(model).samples(picture, 37, auxiliary_planes(model, picture))["y"] - picture.y).max()
    with torch.no_grad():
        for weight in last:
            weight *= 20 / moved
    return model


def decoded(height, width, bit_depth=10):
    """Draw a decoded picture, 4:2:0."""
    rng = np.random.default_rng(5)
    shapes = [(height, width)] + [((height + 1) // 2, (width + 1) // 2)] * 2
    top = 2**bit_depth - 1
    planes = [np.clip(rng.normal(top / 2, top / 6, shape), 0, top).astype("<u2") for shape in shapes]
    return Picture(tuple(planes), bit_depth)


def auxiliary_planes(model, picture):
    """Planes of the network that are no part of the picture: pictures that differ a little, strengths, a slice type."""
    strengths = (picture.y % 3).astype(np.int8)
    planes = {"unf_y": picture.y ^ 1, "pred_y": picture.y ^ 2, "bs_v": strengths, "bs_h": 2 - strengths}
    planes |= {"prev_mc_y": picture.y ^ 4, "next_mc_y": picture.y ^ 8}
    planes |= {"prev2_mc_y": picture.y ^ 5, "next2_mc_y": picture.y ^ 9}
    planes["slice_type"] = np.ones(picture.y.shape, np.float32)
    return {name: plane for name, plane in planes.items() if name in model.planes}


@pytest.mark.parametrize("name", DISTINCT)
def test_tiles_and_threads_give_the_whole_picture(name):
    """Samples agree within 1e-5 of full scale before rounding, and hardly any rounds to another integer."""
    model = trained(name)
    samples = differing = 0
    for size, tiles in (((45, 67), (24, 40)), ((7, 50), (16,))):
        picture = decoded(*size)
        auxiliary = auxiliary_planes(model, picture)
        whole = FloatFilter(model, tile=None).samples(picture, 37, auxiliary)
        moved = max(np.abs(plane - picture.planes["yuv".index(c)]).max() for c, plane in whole.items())
        assert 1 < moved < 300
        for threads, tile in enumerate(tiles, start=1):
            torch.set_num_threads(threads)
            tiled = FloatFilter(model, tile=tile).samples(picture, 37, auxiliary)
            for component, plane in whole.items():
                assert np.abs(tiled[component] - plane).max() <= 1e-5 * 1024
                differing += int((np.rint(tiled[component]) != np.rint(plane)).sum())
                samples += plane.size
    assert differing / samples < 1e-3, f"{differing} of {samples} samples round differently"


def test_the_network_is_prepared_once(monkeypatch, tmp_path):
    """A filter prepares a copy of the network when it is created, and not for each plane, picture or video."""
    calls = []
    prepare = network_filter.prepare
    monkeypatch.setattr(network_filter, "prepare", lambda model: calls.append(model) or prepare(model))
    model = awaken(create_model("rdn", **SMALL))
    save_weights(tmp_path / "w.safetensors", model, "rdn", {})
    filter_, loaded = FloatFilter(model), load_filter(tmp_path / "w.safetensors")
    assert len(calls) == 2
    picture = decoded(16, 24)
    first = filter_(picture, 32)
    torch.nn.init.zeros_(model.tail.weight)
    assert np.array_equal(filter_(picture, 32).y, first.y)
    assert np.array_equal(loaded.luma(picture.y, qp=32, bit_depth=10), first.y)
    assert loaded.card.network == "rdn"
    with create_video(tmp_path / "in.y4m", VideoFormat(24, 16, "420", 10)) as out:
        out.write(picture)
        out.write(picture)
    with open_video(tmp_path / "in.y4m") as video:
        loaded.video(video, [32], tmp_path / "out.y4m")
    with open_video(tmp_path / "out.y4m") as video:
        assert [np.array_equal(picture.y, first.y) for picture in video] == [True, True]
    assert len(calls) == 2


def test_the_picture_is_the_rounded_samples():
    filter_ = FloatFilter(trained("rdn_yuv", SMALL))
    picture = decoded(20, 30)
    samples, filtered = filter_.samples(picture, 32), filter_(picture, 32)
    assert tuple(samples) == filter_.outputs == ("y", "u", "v")
    assert filter_.planes == ("rec_y", "rec_u", "rec_v", "qp")
    for plane, name in zip(filtered.planes, "yuv", strict=True):
        assert plane.dtype == np.uint16
        assert (samples[name] % 1).any()
        np.testing.assert_array_equal(plane, np.clip(np.rint(samples[name]), 0, 1023))


@pytest.mark.parametrize("name", ["quarter_light", "low_cost_17", "vrcnn", "rdn"])
def test_tensors_stay_within_the_memory_allowed(name):
    """Peak memory, planes and outputs included, is below the limit, and not far below it."""
    model = trained(name, SMALL if name == "rdn" else None)
    picture = decoded(100, 120)
    # Tiles of the picture's size and of about a quarter of its area.
    per_sample = FloatFilter(model).tile_memory.all
    for share in (1.2, 0.5):
        memory = int(4 * 100 * 120 * 12 + share * per_sample * 100 * 120)
        filter_ = FloatFilter(model, memory=memory)
        peak = peak_bytes(lambda: filter_.samples(picture, 37), list(filter_.model.parameters()))  # noqa: B023
        assert 0.3 * memory < peak <= memory
    whole = FloatFilter(model, tile=None).samples(picture, 37)
    assert np.abs(filter_.samples(picture, 37)["y"] - whole["y"]).max() <= 1e-5 * 1024


def test_measuring_tile_memory_imports_no_compiler_of_networks():
    """Importing torch._dynamo takes seconds."""
    code = """
import sys, numpy as np
from codecnn.filtering import load_filter
from codecnn.pictures.files import Picture
luma = np.full((64, 64), 512, np.uint16)
for exact in (True, False):
    load_filter("low_cost_5", exact=exact)(Picture((luma,), 10), 37)
print("torch" in sys.modules, "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_the_largest_tile_that_fits_the_memory_is_chosen():
    model = trained("rdn", SMALL)

    def tile(memory, limit=640):
        return fit_tile(memory, 100.0, model, (1080, 1920), limit)[0]

    assert tile(2**31) == 640
    assert tile(2**31, None) is None
    planes = 4 * (1080 * 1920 * 3 + (1080 + 5) * (1920 + 5) * 2)
    side = tile(planes + 100 * 300**2)
    assert side % 16 == 0
    assert 300 - 16 - 3 - 2 * model.radius < side <= 300 - 2 * model.radius
    two = [fit_tile(planes + 100 * area, 100.0, model, (1080, 1920), 200, 2) for area in (250**2, 2 * 250**2)]
    assert two == [(200, 1), (200, 2)]
    with pytest.raises(ConfigError, match=r"40 MiB .* 1920x1080"):
        tile(planes)
    with pytest.raises(ConfigError, match="tile size must be positive, not 0"):
        FloatFilter(model, tile=0)


def test_fast_tiles_have_small_tensors_and_work_for_all_threads():
    """No tensor is larger than what glibc keeps when it is freed, and the threads share the tiles evenly."""
    model = create_model("low_cost_17")
    largest = FloatFilter(model).tile_memory.largest
    assert largest == pytest.approx(4 * 96 / 4, rel=0.15)  # 96 features of quarter pictures in float32
    for size in ((1080, 1920), (2160, 3840), (384, 640)):
        side = fast_tile(largest, model, size, 1)
        assert largest * (side + 2 * model.radius) ** 2 <= 2**25
    assert fast_tile(largest, model, (1080, 1920), 1) >= 540
    assert fast_tile(1.0, model, (1080, 1920), 1) == LARGEST_TILE
    assert fast_tile(1e6, model, (1080, 1920), 1) == 128
    for threads in (2, 4, 8):
        side = fast_tile(largest, model, (2160, 3840), threads)
        assert ceil_div(2160, side) * ceil_div(3840, side) % threads == 0


def test_tiles_in_threads_equal_tiles_one_by_one(monkeypatch):
    """Three threads compute the same samples, each with one thread of PyTorch and its own autocast."""
    picture = decoded(100, 120)
    for name, kind in (("low_cost_17", FloatFilter), ("rdn", FloatFilter), ("low_cost_17", BFloat16Filter)):
        model = trained(name, SMALL if name == "rdn" else None)
        filter_, used = kind(model, tile=40), set()
        torch.set_num_threads(1)
        alone = filter_.samples(picture, 37)["y"]
        compute = filter_._compute
        seen = lambda window: used.add((threading.get_ident(), torch.get_num_threads())) or compute(window)  # noqa: B023, E731
        monkeypatch.setattr(filter_, "_compute", seen)
        torch.set_num_threads(3)
        np.testing.assert_allclose(filter_.samples(picture, 37)["y"], alone, rtol=0, atol=1e-5 * 1024)
        assert torch.get_num_threads() == 3
        assert len(used) > 1
        assert {threads for _, threads in used} == {1}
        assert threading.get_ident() not in {thread for thread, _ in used}


def test_an_error_in_a_tile_is_raised_and_the_threads_are_restored(monkeypatch):
    filter_ = FloatFilter(create_model("low_cost_5"), tile=40)
    monkeypatch.setattr(filter_, "_compute", lambda window: 1 / 0)
    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError):
        filter_.samples(decoded(100, 120), 37)
    assert torch.get_num_threads() == 2
