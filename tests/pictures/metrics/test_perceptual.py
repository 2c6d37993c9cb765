"""SSIM and MS-SSIM against scikit-image, pytorch-msssim and libvmaf; VMAF against another call of libvmaf."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_msssim import ms_ssim as torch_ms_ssim
from skimage import data
from skimage.metrics import structural_similarity

from codecnn.base.errors import EncoderError, FormatError
from codecnn.pictures.files import VideoFormat, create_video, ffmpeg_path
from codecnn.pictures.metrics import MIN_SIDE, SCALE_WEIGHTS, ms_ssim, ssim, vmaf, xpsnr
from codecnn.pictures.metrics.structural import halve
from tests.helpers.clips import write_planes
from tests.helpers.video_files import random_pictures


def _pair(bit_depth, shape, strength, seed=0):
    """Return a natural picture cropped to `shape`, and the same with noise that grows to the right."""
    picture = data.camera()[: shape[0], : shape[1]].astype(np.float64) * (1 << (bit_depth - 8))
    noise = np.random.default_rng(seed).normal(0, strength * (1 << (bit_depth - 8)), shape)
    noisy = np.clip(np.rint(picture + noise * np.linspace(0.2, 2, shape[1])), 0, (1 << bit_depth) - 1)
    dtype = np.uint8 if bit_depth == 8 else np.uint16
    return picture.astype(dtype), noisy.astype(dtype)


@pytest.mark.parametrize(("bit_depth", "shape"), [(8, (96, 130)), (10, (101, 77)), (12, (11, 40))])
@pytest.mark.parametrize("strength", [1, 20])
def test_ssim_equals_scikit_image(bit_depth, shape, strength):
    a, b = _pair(bit_depth, shape, strength)
    # Without data_range, scikit-image would assume a range of 65535 for uint16.
    settings = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    expected = structural_similarity(a, b, data_range=(1 << bit_depth) - 1, **settings)
    assert ssim(a, b, bit_depth) == pytest.approx(expected, abs=1e-9)
    assert 0 < expected < 1


@pytest.mark.parametrize(
    ("bit_depth", "shape", "strength"), [(8, (176, 208), 5), (8, (512, 512), 30), (10, (320, 256), 2)]
)
def test_ms_ssim_equals_pytorch_msssim(bit_depth, shape, strength):
    """The sides are divisible by 16, because pytorch-msssim pads odd sides with zeros."""
    a, b = _pair(bit_depth, shape, strength)
    planes = [torch.from_numpy(x.astype(np.float64))[None, None] for x in (a, b)]
    expected = float(torch_ms_ssim(*planes, data_range=(1 << bit_depth) - 1, win_size=11, win_sigma=1.5))
    assert ms_ssim(a, b, bit_depth) == pytest.approx(expected, abs=1e-5)  # its window and weights are float32
    assert 0.3 < expected < 0.999


def test_odd_sides_replicate_their_last_row_and_column():
    a, b = _pair(8, (201, 187), 10)
    padded = [np.pad(x.astype(float), ((0, 1), (0, 1)), mode="edge") for x in (a, b)]
    halves = [x.reshape(101, 2, 94, 2).mean(axis=(1, 3)) for x in padded]
    assert halves[0].shape == (101, 94)
    assert np.array_equal(halve(a.astype(float)), halves[0])
    assert 0.5 < ms_ssim(a, b, 8) < 1


def test_identical_pictures_give_1_and_inverted_noise_gives_0():
    a, _ = _pair(8, (180, 180), 1)
    assert ssim(a, a, 8) == ms_ssim(a, a, 8) == 1
    noise = np.random.default_rng(0).integers(0, 256, (180, 180)).astype(np.uint8)
    assert ssim(noise, 255 - noise, 8) < 0
    assert ms_ssim(noise, 255 - noise, 8) == 0
    assert sum(SCALE_WEIGHTS) == pytest.approx(1, abs=2e-4)


def test_small_or_unequal_planes_are_refused():
    a = np.zeros((160, 200), np.uint8)
    with pytest.raises(FormatError, match="200x160 is too small: each side needs 161"):
        ms_ssim(a, a, 8)
    assert ms_ssim(*[np.zeros((MIN_SIDE, MIN_SIDE), np.uint8)] * 2, 8) == 1
    with pytest.raises(FormatError, match="8x8 is too small: each side needs 11"):
        ssim(a[:8, :8], a[:8, :8], 8)
    with pytest.raises(FormatError, match=r"\(160, 200\) and \(160, 199\)"):
        ssim(a, a[:, 1:], 8)


def _write(path, planes, form):
    chroma = [np.full(shape, 1 << (form.bit_depth - 1)) for shape in form.plane_shapes[1:]]
    return write_planes(path, form, [[plane, *chroma] for plane in planes])


def _clip(tmp_path, form, strength=12, pictures=3, name=""):
    a, _ = _pair(form.bit_depth, (512, 512), 1)
    shape = (form.height, form.width)
    rng = np.random.default_rng(1)
    # A moving crop, because VMAF uses motion.
    reference = [a[3 * i : 3 * i + shape[0], 2 * i : 2 * i + shape[1]] for i in range(pictures)]
    scale = strength * (1 << (form.bit_depth - 8))
    top = (1 << form.bit_depth) - 1
    distorted = [np.clip(np.rint(x + rng.normal(0, scale, shape)), 0, top).astype(a.dtype) for x in reference]
    clips = {"reference": reference, "distorted": distorted}
    paths = [_write(tmp_path / f"{role}{name}.yuv", planes, form) for role, planes in clips.items()]
    return paths, reference, distorted


@pytest.mark.parametrize("bit_depth", [8, 10])
def test_vmaf_equals_libvmaf_on_y4m(tmp_path, bit_depth):
    """The reference call uses Y4M files, two threads, an XML log and additional features."""
    form = VideoFormat(256, 192, "420", bit_depth, 30)
    paths, reference, distorted = _clip(tmp_path, form)
    scores = vmaf(*paths, form)
    clips = zip(paths, (reference, distorted), strict=True)
    y4m = [_write(path.with_suffix(".y4m"), planes, form) for path, planes in clips]
    log = tmp_path / "log.xml"
    features = "feature=name=float_ssim|name=float_ms_ssim"
    filters = f"libvmaf=log_fmt=xml:log_path={log}:n_threads=2:{features}"
    argv = [ffmpeg_path(), "-loglevel", "error", "-i", y4m[1], "-i", y4m[0], "-lavfi", filters, "-f", "null", "-"]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    text = log.read_text()

    def logged(name):
        return [float(value) for value in re.findall(rf'<frame [^>]*? {name}="([^"]+)"', text)]

    assert scores == pytest.approx(logged("vmaf"), abs=1e-6)
    assert len(scores) == 3
    assert all(20 < score < 95 for score in scores)
    # The pictures are too small for libvmaf to downscale them before SSIM.
    assert [ssim(a, b, bit_depth) for a, b in zip(reference, distorted, strict=True)] == pytest.approx(
        logged("float_ssim"), abs=3e-3
    )
    # libvmaf's MS-SSIM downscales with another filter, but is close enough to reveal wrong scales or weights.
    assert [ms_ssim(a, b, bit_depth) for a, b in zip(reference, distorted, strict=True)] == pytest.approx(
        logged("float_ms_ssim"), abs=1e-2
    )


def test_vmaf_does_not_depend_on_chroma_format_or_bit_depth(tmp_path):
    """ffmpeg takes grey pictures for full range; scaling them to the limited range would change their VMAF."""
    results = {}
    for chroma, bit_depth in (("420", 8), ("400", 8), ("444", 8), ("400", 10), ("420", 16)):
        form = VideoFormat(256, 192, chroma, bit_depth)
        (first, second), *_ = _clip(tmp_path, VideoFormat(256, 192, "400", 8), name="8")
        paths = []
        for path in (first, second):
            samples = np.fromfile(path, np.uint8).reshape(3, 192, 256).astype(np.uint16) << (bit_depth - 8)
            paths.append(_write(tmp_path / f"{path.stem}_{chroma}_{bit_depth}.yuv", samples, form))
        results[chroma, bit_depth] = vmaf(*paths, form)
    first = results["420", 8]
    for scores in results.values():
        assert scores == pytest.approx(first, abs=1e-6)
    assert max(first) < 95


def test_vmaf_models_and_refused_arguments(tmp_path):
    form = VideoFormat(256, 192, "400", 8)
    (reference, distorted), *_ = _clip(tmp_path, form)
    assert max(vmaf(reference, distorted, form, model="vmaf_v0.6.1neg")) < max(vmaf(reference, distorted, form)) + 1e-9
    with pytest.raises(EncoderError, match="measuring VMAF of"):
        vmaf(reference, distorted, form, model="vmaf_v9")
    with pytest.raises(FormatError, match="not a plain name"):
        vmaf(reference, distorted, form, model="x:path=/etc/passwd")
    distorted.write_bytes(distorted.read_bytes()[: form.picture_bytes])
    with pytest.raises(FormatError, match="49152 bytes"):
        vmaf(reference, distorted, form)
    assert json.dumps(vmaf(distorted, distorted, form))[0] == "["


@pytest.mark.parametrize("chroma", ["420", "400"])
def test_xpsnr_falls_with_noise_and_is_infinite_without(tmp_path: Path, chroma: str) -> None:
    form = VideoFormat(64, 48, chroma, 10)
    rng = np.random.default_rng(3)
    original, distorted = tmp_path / "original.yuv", tmp_path / "distorted.yuv"
    pictures = random_pictures(form, 3)
    with (
        create_video(original, form, check_name=False) as out,
        create_video(distorted, form, check_name=False) as noisy,
    ):
        for amplitude, picture in zip((0, 4, 40), pictures, strict=True):
            out.write(picture)
            noise = [rng.integers(-amplitude, amplitude + 1, plane.shape) for plane in picture.planes]
            samples = [np.clip(plane + each, 0, 1023) for plane, each in zip(picture.planes, noise, strict=True)]
            noisy.write([plane.astype(np.uint16) for plane in samples])
    equal, little, much = xpsnr(original, distorted, form)
    assert [len(scores) for scores in (equal, little, much)] == [len(form.plane_shapes)] * 3
    assert all(np.isinf(score) for score in equal)
    assert all(high > low + 10 for high, low in zip(little, much, strict=True))


def _xpsnr_of_luma(tmp_path: Path, original: list, distorted: list, fps: int | None) -> list[float]:
    """Return the XPSNR of 8-bit luma planes."""
    form = VideoFormat(original[0].shape[1], original[0].shape[0], "400", 8, fps)
    files = tmp_path / "original.yuv", tmp_path / "distorted.yuv"
    for file, planes in zip(files, (original, distorted), strict=True):
        write_planes(file, form, [[plane] for plane in planes])
    return [luma for (luma,) in xpsnr(*files, form)]


def test_xpsnr_weights_errors_by_the_activity_of_the_original(tmp_path: Path) -> None:
    """The squared error is the same both ways, but only an original with texture masks it."""
    flat = np.full((96, 128), 128)
    texture = flat + np.random.default_rng(0).integers(-20, 21, flat.shape)
    # The first picture counts as a change from black.
    _, textured_original = _xpsnr_of_luma(tmp_path, [texture] * 2, [flat] * 2, None)
    _, flat_original = _xpsnr_of_luma(tmp_path, [flat] * 2, [texture] * 2, None)
    assert textured_original > flat_original + 6


def test_xpsnr_depends_on_the_frame_rate(tmp_path: Path) -> None:
    """Brightness that grows evenly is activity below 32 Hz (first differences), and none above (second differences)."""
    original = [np.full((96, 128), 20 + 20 * number) for number in range(4)]
    distorted = [plane + 2 for plane in original]
    slow, fast = (_xpsnr_of_luma(tmp_path, original, distorted, fps) for fps in (25, 50))
    assert slow[2] > fast[2] + 6
    assert slow == _xpsnr_of_luma(tmp_path, original, distorted, None)
