"""Perceptual metrics of luma: SSIM and MS-SSIM in float64, and VMAF through the libvmaf of ffmpeg.

SSIM uses a Gaussian window of 11x11 samples with sigma 1.5, K1 = 0.01, K2 = 0.03 and the data range 2^bit_depth - 1,
and averages over the positions where the window is inside the picture: Wang, Bovik, Sheikh and Simoncelli, "Image
quality assessment: from error visibility to structural similarity", 2004. The features float_ssim and float_ms_ssim of
libvmaf differ from the papers: the former downscales large pictures first, the latter downscales with the low-pass
filter of a wavelet.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d

from codecnn.base.errors import CodecnnError, EncoderError, FormatError
from codecnn.base.files import read_json
from codecnn.base.leftovers import temporary_folder
from codecnn.pictures.files import VideoFormat, ffmpeg_path, run

WINDOW, SIGMA, K1, K2 = 11, 1.5, 0.01, 0.03
SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Wang, Simoncelli and Bovik, "Multiscale structural similarity for image quality assessment", 2003, section 3.2."""

MIN_SIDE = (WINDOW - 1) * 2 ** (len(SCALE_WEIGHTS) - 1) + 1
"""Shortest side of a picture for MS-SSIM: the window must fit into the smallest of the five scales."""

VMAF_MODEL = "vmaf_v0.6.1"
"""Default model of libvmaf, for 1080p on a television."""

Array = NDArray[Any]


def ssim(a: Array, b: Array, bit_depth: int) -> float:
    """Compute the structural similarity of two planes.

    Args:
        a: Integer samples of shape (h, w), with sides of at least 11.
        b: Integer samples of the same shape.
        bit_depth: Bits per sample.

    Returns:
        Mean SSIM over all positions of the window, at most 1.

    Raises:
        FormatError: The shapes differ, or the window does not fit.
    """
    first, second = _planes(a, b, WINDOW)
    similarity, _ = _means(first, second, (1 << bit_depth) - 1)
    return similarity


def ms_ssim(a: Array, b: Array, bit_depth: int) -> float:
    """Compute the multi-scale structural similarity of two planes over five scales.

    Each scale is the mean of 2x2 samples of the one before, with the last row or column replicated if their number is
    odd. A negative mean of contrast and structure counts as 0, because its power is not defined.

    Args:
        a: Integer samples of shape (h, w), with sides of at least MIN_SIDE.
        b: Integer samples of the same shape.
        bit_depth: Bits per sample.

    Returns:
        MS-SSIM, 0 to 1.

    Raises:
        FormatError: The shapes differ, or a side is shorter than MIN_SIDE.
    """
    first, second = _planes(a, b, MIN_SIDE)
    result = 1.0
    for scale, weight in enumerate(SCALE_WEIGHTS):
        if scale:
            first, second = halve(first), halve(second)
        similarity, contrast = _means(first, second, (1 << bit_depth) - 1)
        last = scale == len(SCALE_WEIGHTS) - 1
        result *= max(similarity if last else contrast, 0.0) ** weight
    return result


def _planes(a: Array, b: Array, smallest: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if a.shape != b.shape or a.ndim != 2:
        raise FormatError(f"structural similarity needs two planes (h, w) of one shape, not {a.shape} and {b.shape}")
    if min(a.shape) < smallest:
        raise FormatError(f"a plane of {a.shape[1]}x{a.shape[0]} is too small: each side needs {smallest} samples")
    return a.astype(np.float64), b.astype(np.float64)


def _means(a: NDArray[np.float64], b: NDArray[np.float64], data_range: float) -> tuple[float, float]:
    """Return the mean SSIM, and the mean of its factor of contrast and structure."""
    c1, c2 = (K1 * data_range) ** 2, (K2 * data_range) ** 2
    mean_a, mean_b = _blur(a), _blur(b)
    variances = _blur(a * a) + _blur(b * b) - mean_a * mean_a - mean_b * mean_b
    covariance = _blur(a * b) - mean_a * mean_b
    contrast = (2 * covariance + c2) / (variances + c2)
    luminance = (2 * mean_a * mean_b + c1) / (mean_a * mean_a + mean_b * mean_b + c1)
    return float(np.mean(luminance * contrast)), float(np.mean(contrast))


def _blur(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted mean under the window at every position where it is inside the plane."""
    reach = WINDOW // 2
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / SIGMA) ** 2)
    taps /= taps.sum()
    rows = correlate1d(plane, taps, axis=0)[reach:-reach]
    blurred: NDArray[np.float64] = correlate1d(rows, taps, axis=1)[:, reach:-reach]
    return blurred


def halve(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average 2x2 samples; the last row or column is replicated if their number is odd."""
    even = np.pad(plane, [(0, extent % 2) for extent in plane.shape], mode="edge")
    return 0.25 * (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2])


def vmaf(reference: Path, distorted: Path, form: VideoFormat, *, model: str = VMAF_MODEL) -> list[float]:
    """Compute the VMAF of every picture of a raw YUV file.

    libvmaf uses luma only. It uses the motion between pictures, so the value of a picture depends on its neighbours.

    Args:
        reference: Raw YUV file of the original.
        distorted: Raw YUV file to be rated.
        form: Geometry of both files.
        model: Name of a model that is built into libvmaf.

    Returns:
        VMAF of each picture, 0 to 100.

    Raises:
        FormatError: The files differ in size, or the model's name has unusual characters.
        EncoderError: ffmpeg cannot compare the files: it has no libvmaf, the model is unknown, or libvmaf does not
            accept the sample layout.
    """
    if re.fullmatch(r"[A-Za-z0-9_.]+", model) is None:
        raise FormatError(f"VMAF model {model!r} is not a plain name")
    sizes = {path: path.stat().st_size for path in (reference, distorted)}
    if len(set(sizes.values())) > 1:
        raise FormatError(f"{distorted} has {sizes[distorted]} bytes and {reference} has {sizes[reference]}")
    raw = ["-f", "rawvideo", "-pix_fmt", form.ffmpeg_pix_fmt, "-s", f"{form.width}x{form.height}", "-r", "25"]
    with temporary_folder("vmaf") as folder:
        # ffmpeg takes grey pictures for full range, and would scale them to the limited range of libvmaf's formats.
        colour = replace(form, chroma="444").ffmpeg_pix_fmt
        planes = f"split=3,mergeplanes=0x001020:{colour}" if form.chroma == "400" else "null"
        # The name of the log is relative because the option's syntax has no safe way to quote an arbitrary path.
        compare = f"libvmaf=model=version={model}:log_fmt=json:log_path=log.json:n_threads=1:shortest=1"
        filters = f"[0:v]{planes}[distorted];[1:v]{planes}[reference];[distorted][reference]{compare}"
        argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-nostats", "-loglevel", "error"]
        for path in (distorted, reference):
            argv += [*raw, "-i", f"file:{path.absolute()}"]
        argv += ["-lavfi", filters, "-f", "null", "-"]
        run(argv, what=f"measuring VMAF of {distorted}", cwd=Path(folder))
        try:
            scores = [float(frame["metrics"]["vmaf"]) for frame in read_json(Path(folder) / "log.json")["frames"]]
        except (CodecnnError, KeyError, TypeError, ValueError) as error:
            raise EncoderError(f"libvmaf reported no scores of {distorted}") from error
    pictures = sizes[reference] // form.picture_bytes
    if len(scores) != pictures:
        raise EncoderError(f"libvmaf reported {len(scores)} scores for the {pictures} pictures of {distorted}")
    return scores
