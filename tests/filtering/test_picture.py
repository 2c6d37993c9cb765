"""Filters of pictures: tiles, bfloat16, QPs, rounding, auxiliary planes, and YUV networks."""

import numpy as np
import pytest
import torch

from codecnn import api as verbs
from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, ModelError, StoreError
from codecnn.base.planes import BLOCK_PLANES
from codecnn.filtering import (
    BFloat16Filter,
    FloatFilter,
    filter_luma,
    filter_outputs,
    filter_video,
    load_filter,
    unit_planes,
)
from codecnn.models import as_card, create_model
from codecnn.pictures.files import Picture, VideoFormat, create_video, open_video
from codecnn.training import filter_loss, psnr_gains
from tests.helpers.filters import row_of
from tests.helpers.networks import SMALL, awaken, random_picture


def random_samples(height, width, bit_depth=10):
    """Draw a luma plane."""
    plane = np.random.default_rng(1).integers(0, 2**bit_depth, (height, width))
    return plane.astype(np.uint16 if bit_depth > 8 else np.uint8)


def whole_luma(model, qp=0.5, **planes):
    """Filter luma in one piece by the unprepared network, from planes (h, w); in units of 10-bit samples."""
    tensors = {name: torch.from_numpy(plane)[None, None] for name, plane in planes.items()}
    with torch.inference_mode():
        return filter_outputs(model, tensors | {"qp": torch.full((1, 1, 1, 1), qp)}, None)["y"][0, 0].numpy() * 1024


CHROMA = {"planes": ["rec_y", "rec_u", "rec_v", "qp"]}


@pytest.mark.parametrize(
    ("name", "options", "sizes"),
    [
        *[("rdn", {"shuffle": shuffle}, [(64, 64), (65, 97), (130, 71), (9, 200), (3, 5)]) for shuffle in (1, 2, 4)],
        *[(name, CHROMA, [(37, 51), (64, 48), (5, 3)]) for name in ("rdn", "rdn_yuv")],
    ],
)
@pytest.mark.parametrize("tile", [16, 33, 64])
def test_tiles_equal_the_whole_picture(name, options, sizes, tile):
    model = awaken(create_model(name, **SMALL, **options))
    for size in sizes:
        picture = random_picture(model, *size)
        with torch.inference_mode():
            whole, tiled = filter_outputs(model, picture, None), filter_outputs(model, picture, tile)
        assert tuple(whole) == model.outputs
        for output, plane in whole.items():
            assert plane.shape == picture[f"rec_{output}"].shape
            assert (plane - picture[f"rec_{output}"]).abs().mean() > 1e-3
            assert (plane - tiled[output]).abs().max() <= 1e-5


@pytest.mark.parametrize("name", ["low_cost_5", "low_cost_yuv_17", "rdn_32_3_6_16"])
def test_bfloat16_is_nearly_the_same_filter(name):
    y, x = np.mgrid[:96, :128]
    waves = 400 + 200 * np.sin(x / 9) * np.cos(y / 7) + np.random.default_rng(3).normal(0, 12, (96, 128))
    luma = np.clip(waves, 0, 1023).astype(np.uint16)
    picture = Picture((luma, luma[::2, ::2], 1023 - luma[1::2, 1::2]), 10)
    full, quick = (load_filter(name, precision=kind).samples(picture, 37) for kind in ("float32", "bfloat16"))
    assert set(full) == set(quick)
    for output, plane in zip("yuv", picture.planes, strict=True):
        if output in full:
            assert quick[output].dtype == np.float32
            changed, apart = np.abs(full[output] - plane).mean(), np.abs(full[output] - quick[output]).mean()
            assert 0 < apart < 0.2 * changed


def test_bfloat16_is_refused_where_samples_would_lose_bits():
    with pytest.raises(ConfigError, match="output: picture needs 10 bits"):
        BFloat16Filter(create_model("rdn", **SMALL, output="picture"))
    for weights, exact in (("low_cost_5", True), ("low_cost_5.int8", False)):
        with pytest.raises(ConfigError, match="cannot be computed in bfloat16"):
            load_filter(weights, exact=exact, precision="bfloat16")


def test_measurements_in_float32_are_not_reused_for_bfloat16(tiny_store, tmp_path):
    results = [
        verbs.evaluate(tiny_store.folder, "low_cost_5", tmp_path, precision=precision)[0]
        for precision in ("float32", "float32", "bfloat16")
    ]
    assert ["bfloat16" in result.device for result in results] == [False, False, True]
    first, again, quick = (result.sequences[0] for result in results)
    assert first == again
    assert 0 < abs(quick.after.psnr["y"] - first.after.psnr["y"]) < 0.05


def test_outside_the_trained_qps_the_network_gets_the_nearest():
    model = awaken(create_model("low_cost_17", features=8, blocks=2, expansion=2))
    picture = Picture((random_samples(40, 48),), 10)
    with_qps = FloatFilter(model, card=as_card({"qps": [27, 22, 42]}))
    without_qps = FloatFilter(model)
    for qp, nearest in ((0, 22), (22, 22), (30, 30), (42, 42), (43, 42), (63, 42)):
        expected = without_qps.samples(picture, nearest)["y"]
        np.testing.assert_array_equal(with_qps.samples(picture, qp)["y"], expected)
        assert (nearest == qp) == np.array_equal(without_qps.samples(picture, qp)["y"], expected)
    with pytest.raises(ConfigError, match="out of range"):
        with_qps(picture, 64)


def test_too_little_context_changes_the_samples():
    model = awaken(create_model("rdn", **SMALL))
    picture = random_picture(model, 64, 64)
    with torch.inference_mode():
        whole = filter_outputs(model, picture, None)["y"]
        model.radius = model.halo
        assert (whole - filter_outputs(model, picture, 16)["y"]).abs().max() > 1e-4


def test_edges_are_those_of_a_patch_with_the_edge_repeated():
    model = awaken(create_model("rdn", **SMALL))
    picture = random_picture(model, 24, 40)
    with torch.inference_mode():
        patch = torch.nn.functional.pad(picture["rec_y"], (2, 2, 2, 2), mode="replicate")
        torch.testing.assert_close(filter_outputs(model, picture)["y"], model(picture | {"rec_y": patch}))


@pytest.mark.parametrize("bit_depth", [8, 10])
def test_an_untrained_network_changes_no_sample(bit_depth):
    luma = random_samples(50, 70, bit_depth)
    filtered = filter_luma(create_model("rdn", **SMALL), luma, 32, bit_depth)
    assert filtered.dtype == luma.dtype
    np.testing.assert_array_equal(filtered, luma)


def test_samples_are_rounded_and_clipped():
    model = create_model("rdn", **SMALL)

    def shift(by):
        torch.nn.init.constant_(model.tail.bias, by / 1024 / 0.02 / 2 ** (-5 / 9))
        luma = np.array([[0, 1, 511, 1022, 1023]], np.uint16)
        return filter_luma(model.eval(), luma, 32, 10)[0].tolist()

    assert shift(1.4) == [1, 2, 512, 1023, 1023]
    assert shift(1.6) == [2, 3, 513, 1023, 1023]
    assert shift(-1.6) == [0, 0, 509, 1020, 1021]


def test_a_qp_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="QP 64"):
        filter_luma(create_model("rdn", **SMALL), random_samples(8, 8), 64, 10)


def test_a_sequence_keeps_format_chroma_and_order(tmp_path):
    form = VideoFormat(32, 18, "422", 10, 30)
    rng = np.random.default_rng(2)
    pictures = [[rng.integers(0, 1024, shape).astype("<u2") for shape in form.plane_shapes] for _ in range(3)]
    source, output = tmp_path / "in.y4m", tmp_path / "out.y4m"
    with create_video(source, form) as out:
        for picture in pictures:
            out.write(picture)
    model = awaken(create_model("rdn", **SMALL))
    with open_video(source) as video:
        filter_video(FloatFilter(model), video, [22, 32, 42], output)
        with pytest.raises(ConfigError, match="2 QPs were given for 3 pictures"):
            filter_video(FloatFilter(model), video, [22, 32], tmp_path / "none.y4m")
    assert not (tmp_path / "none.y4m").exists()
    with open_video(output) as filtered:
        assert filtered.format == form
        for picture, result, qp in zip(pictures, filtered, (22, 32, 42), strict=True):
            np.testing.assert_array_equal(result.y, filter_luma(model, picture[0], qp, 10))
            np.testing.assert_array_equal(result.u, picture[1])
            np.testing.assert_array_equal(result.v, picture[2])


def test_the_prepared_network_equals_the_network_up_to_rounding():
    """filter_luma uses the prepared network, whose samples before rounding are within 1e-5 of full scale."""
    model = awaken(create_model("rdn", **SMALL | {"growth": 16}), std=0.1)
    luma = random_samples(70, 90)
    filtered = filter_luma(model, luma, 32, 10)
    assert (filtered != luma).mean() > 0.5
    plain = whole_luma(model, rec_y=luma / np.float32(1024))
    assert np.abs(np.clip(plain, 0, 1023) - filtered).max() <= 0.5 + 1e-5 * 1024


def test_a_yuv_network_filters_chroma_as_well():
    model = awaken(create_model("rdn_yuv", **SMALL))
    filter_ = FloatFilter(model)
    planes = (random_samples(34, 46), random_samples(17, 23), random_samples(17, 23))
    filtered = filter_(Picture(planes, 10), 32)
    again = FloatFilter(model, tile=16)(Picture(planes, 10), 32)
    for plane, new, tiled in zip(planes, filtered.planes, again.planes, strict=True):
        assert new.shape == plane.shape
        assert new.dtype == plane.dtype
        assert (new != plane).any()
        assert np.abs(new.astype(int) - tiled).max() <= 1
    for wrong, message in (((planes[0],) * 3, "46x34, 46x34, 46x34"), (planes[:1], r"the picture's planes are 46x34$")):
        with pytest.raises(ModelError, match=message):
            filter_(Picture(wrong, 10), 32)


def test_further_planes_reach_the_network_scaled():
    model = awaken(create_model("rdn", **SMALL, planes=["rec_y", "unf_y", "depth", "qp"]))
    luma, unfiltered = random_samples(20, 30), random_samples(20, 30)[::-1].copy()
    depth = np.random.default_rng(3).random((20, 30), dtype=np.float32)
    filtered = filter_luma(model, luma, 32, 10, planes={"unf_y": unfiltered, "depth": depth})
    scaled = {"rec_y": luma / np.float32(1024), "unf_y": unfiltered / np.float32(1024), "depth": depth}
    assert np.abs(np.clip(whole_luma(model, **scaled), 0, 1023) - filtered).max() <= 0.52
    with pytest.raises(ModelError, match="needs the plane 'unf_y'"):
        filter_luma(model, luma, 32, 10, planes={"depth": depth})
    with pytest.raises(ModelError, match=r"'depth' has shape \(1, 1, 19, 30\)"):
        filter_luma(model, luma, 32, 10, planes={"depth": depth[1:], "unf_y": unfiltered})


def with_files(unit, **files):
    """Add files to a unit; its originals serve as pictures before the in-loop filters."""
    return unit.model_copy(update={f"{name}_file": path for name, path in files.items()})


def test_planes_of_a_unit_have_the_size_of_luma(tiny_store, tmp_path):
    (unit, *_) = tiny_store.split("test")
    height, width = unit.format.height, unit.format.width
    cells = np.full((1, len(BLOCK_PLANES), ceil_div(height, 4), ceil_div(width, 4)), -1, np.int8)
    cells[0, BLOCK_PLANES.index("depth"), 2, 3] = 4
    cells[0, BLOCK_PLANES.index("qp"), 2, 3] = 32
    np.save(tmp_path / "cells.npy", cells)
    complete = with_files(unit, block_planes=str(tmp_path / "cells.npy"), unfiltered=unit.original_file)
    planes = unit_planes(complete, 0, ["rec_y", "qp", "depth", "cu_qp", "qp_depth", "unf_y"])
    assert set(planes) == {"depth", "cu_qp", "qp_depth", "unf_y"}
    expected = np.zeros((height, width), np.float32)
    expected[8:12, 12:16] = 0.5
    np.testing.assert_array_equal(planes["depth"], expected)
    np.testing.assert_array_equal(planes["cu_qp"], expected)
    np.testing.assert_array_equal(planes["qp_depth"], 2 * expected * np.float32((32 + 4 * 4) / 95))
    with unit.originals() as originals:
        np.testing.assert_array_equal(planes["unf_y"], originals[0].y)
    bare = with_files(unit, block_planes=None)
    for name in ("depth", "unf_y", "pred_y"):
        with pytest.raises(StoreError, match=f"QP {unit.qp} .* '{name}'"):
            unit_planes(bare, 0, [name])


def test_evaluation_and_validation_supply_the_declared_planes(tiny_store):
    (unit, *_) = tiny_store.split("test")
    model = create_model("rdn_yuv", **SMALL, planes=["rec_y", "rec_u", "rec_v", "unf_y", "qp"])
    with_unfiltered = with_files(unit, unfiltered=unit.original_file)
    row = row_of(model, with_unfiltered)
    assert row.after.psnr["u"] == row.before.psnr["u"]
    assert psnr_gains(model, [with_unfiltered], "cpu")["y"] == {unit.qp: 0.0}
    awaken(model)
    assert row_of(model, with_unfiltered).after.psnr["v"] < row.before.psnr["v"]
    with pytest.raises(StoreError, match="'unf_y'"):
        row_of(model, unit)


def test_the_loss_of_a_yuv_network_weighs_its_components():
    model = create_model("rdn_yuv", **SMALL)
    n, size, halo = 2, 16, model.halo
    generator = torch.Generator().manual_seed(0)

    def draw(side):
        return torch.rand(n, 1, side, side, generator=generator)

    batch = {"rec_y": draw(size + 2 * halo), "orig_y": draw(size), "qp": torch.full((n, 1, 1, 1), 0.5)}
    batch |= {f"rec_{c}": draw(size // 2 + halo) for c in "uv"} | {f"orig_{c}": draw(size // 2) for c in "uv"}
    batch |= {"valid": torch.ones(n, 1, size, size), "weight": torch.ones(2)}
    left = {"y": [0.5, 2.0], "u": [0.2, 0.25], "v": [0.1, 4.0]}
    batch |= {"picture_mse" if c == "y" else f"picture_mse_{c}": torch.tensor(mses) for c, mses in left.items()}
    batch["valid"][1, :, 10:] = 0
    errors = {}
    for c, h in (("y", halo), ("u", halo // 2), ("v", halo // 2)):
        error = (batch[f"rec_{c}"][:, :, h:-h, h:-h] - batch[f"orig_{c}"]).square().numpy()[:, 0]
        rows = 10 if c == "y" else 5
        errors[c] = (error[0].mean() / left[c][0] + error[1, :rows].mean() / left[c][1]) / 2
    expected = (6 * errors["y"] + errors["u"] + errors["v"]) / 8
    assert filter_loss(model, batch, "picture").item() == pytest.approx(expected, rel=1e-5)
    expected = (2 * errors["y"] + 3 * errors["u"] + 5 * errors["v"]) / 10
    weights = {"y": 2, "u": 3, "v": 5}
    assert filter_loss(model, batch, "picture", components=weights).item() == pytest.approx(expected, rel=1e-5)
