"""Tiles equal the picture in one piece; rounding, clipping, format."""

import numpy as np
import pytest
import torch
from test_models import SMALL, awaken

from codecnn.errors import ConfigError
from codecnn.filtering import filter_luma, filter_planes, filter_video
from codecnn.models import create_model
from codecnn.video import VideoFormat, create_video, open_video


def _picture(height, width, bit_depth=10):
    return (
        np.random.default_rng(1)
        .integers(0, 2**bit_depth, (height, width))
        .astype(np.uint16 if bit_depth > 8 else np.uint8)
    )


@pytest.mark.parametrize("shuffle", [1, 2, 4])
@pytest.mark.parametrize("size", [(64, 64), (65, 97), (130, 71), (9, 200), (3, 5)])
@pytest.mark.parametrize("tile", [16, 33, 64])
def test_tiles_equal_the_whole_picture(shuffle, size, tile):
    model = awaken(create_model("rdn", **SMALL, shuffle=shuffle))
    planes = {
        "rec_y": torch.from_numpy(_picture(*size).astype(np.float32))[None, None] / 1024,
        "qp": torch.full((1, 1, 1, 1), 0.5),
    }
    with torch.inference_mode():
        whole = filter_planes(model, planes, None)
        tiled = filter_planes(model, planes, tile)
    assert (whole - planes["rec_y"]).abs().mean() > 1e-3
    assert (whole - tiled).abs().max() <= 1e-5


def test_too_little_context_would_be_seen():
    model = awaken(create_model("rdn", **SMALL))
    planes = {"rec_y": torch.rand(1, 1, 64, 64), "qp": torch.full((1, 1, 1, 1), 0.5)}
    with torch.inference_mode():
        whole = filter_planes(model, planes, None)
        model.radius = model.halo
        assert (whole - filter_planes(model, planes, 16)).abs().max() > 1e-4


def test_edges_are_those_of_a_patch_with_the_edge_repeated():
    model = awaken(create_model("rdn", **SMALL))
    luma = torch.rand(1, 1, 24, 40)
    qp = torch.full((1, 1, 1, 1), 0.5)
    with torch.inference_mode():
        patch = torch.nn.functional.pad(luma, (2, 2, 2, 2), mode="replicate")
        torch.testing.assert_close(filter_planes(model, {"rec_y": luma, "qp": qp}), model({"rec_y": patch, "qp": qp}))


@pytest.mark.parametrize("bit_depth", [8, 10])
def test_an_untrained_network_changes_no_sample(bit_depth):
    luma = _picture(50, 70, bit_depth)
    filtered = filter_luma(create_model("rdn", **SMALL), luma, 32, bit_depth)
    assert filtered.dtype == luma.dtype
    np.testing.assert_array_equal(filtered, luma)


def test_samples_are_rounded_and_clipped():
    model = create_model("rdn", **SMALL)

    def shift(samples):
        torch.nn.init.constant_(model.tail.bias, samples / 1024 / 0.02 / 2 ** (-5 / 9))
        luma = np.array([[0, 1, 511, 1022, 1023]], np.uint16)
        return filter_luma(model.eval(), luma, 32, 10)[0].tolist()

    assert shift(1.4) == [1, 2, 512, 1023, 1023]
    assert shift(1.6) == [2, 3, 513, 1023, 1023]
    assert shift(-1.6) == [0, 0, 509, 1020, 1021]


def test_a_qp_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="QP 64"):
        filter_luma(create_model("rdn", **SMALL), _picture(8, 8), 64, 10)


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
        filter_video(model, video, [22, 32, 42], output)
        with pytest.raises(ConfigError, match="2 QPs were given for 3 pictures"):
            filter_video(model, video, [22, 32], tmp_path / "none.y4m")
    assert not (tmp_path / "none.y4m").exists()
    with open_video(output) as filtered:
        assert filtered.format == form
        for picture, result, qp in zip(pictures, filtered, (22, 32, 42), strict=True):
            np.testing.assert_array_equal(result.y, filter_luma(model, picture[0], qp, 10))
            np.testing.assert_array_equal(result.u, picture[1])
            np.testing.assert_array_equal(result.v, picture[2])
