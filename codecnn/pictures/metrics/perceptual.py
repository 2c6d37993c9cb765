"""Perceptual metrics of raw files that filters of ffmpeg compute: VMAF (libvmaf) and XPSNR."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from codecnn.base.errors import CodecnnError, EncoderError, FormatError
from codecnn.base.files import read_json
from codecnn.base.leftovers import temporary_folder
from codecnn.pictures.files import VideoFormat, ffmpeg_path, run

VMAF_MODEL = "vmaf_v0.6.1"
"""Default model of libvmaf, for 1080p on a television."""

VMAF_NEG_MODEL = "vmaf_v0.6.1neg"
"""Model that does not reward enhancement, such as sharpening, over the original ("no enhancement gain")."""

_XPSNR = re.compile(r"XPSNR ([yuv]): +(inf|[\d.]+)")
_LOG = "log"
Scores = TypeVar("Scores")


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

    def read(log: Path) -> list[float]:
        return [float(frame["metrics"]["vmaf"]) for frame in read_json(log)["frames"]]

    # ffmpeg takes grey pictures for full range, and would scale them to the limited range of libvmaf's formats.
    colour = replace(form, chroma="444").ffmpeg_pix_fmt
    planes = f"split=3,mergeplanes=0x001020:{colour}" if form.chroma == "400" else "null"
    compare = f"[distorted][reference]libvmaf=model=version={model}:log_fmt=json:log_path={_LOG}:n_threads=1:shortest=1"
    return _compared(reference, distorted, form, f"VMAF of {distorted}", planes, compare, read)


def xpsnr(reference: Path, distorted: Path, form: VideoFormat) -> list[tuple[float, ...]]:
    """Compute the XPSNR of every picture of a raw YUV file.

    XPSNR weights the squared error of blocks by the activity of the original in space and time: Helmrich et al.,
    "XPSNR: A Low-Complexity Extension of the Perceptually Weighted Peak Signal-to-Noise Ratio for High-Resolution Video
    Quality Assessment", ICASSP 2020. The activity in time depends on the frame rate.

    Args:
        reference: Raw YUV file of the original.
        distorted: Raw YUV file to be rated.
        form: Geometry and frame rate of both files; 25 Hz if it has none.

    Returns:
        XPSNR in dB of the components of each picture: Y, or Y, U and V; infinite for equal pictures.

    Raises:
        FormatError: The files differ in size.
        EncoderError: ffmpeg cannot compare the files.
    """

    def read(log: Path) -> list[tuple[float, ...]]:
        rows = [_XPSNR.findall(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("n:")]
        return [tuple(float(value) for _, value in row) for row in rows]

    # Unlike libvmaf, the filter takes the original first: it computes the weights from its first input.
    compare = f"[reference][distorted]xpsnr=stats_file={_LOG}"
    return _compared(reference, distorted, form, f"XPSNR of {distorted}", "null", compare, read)


def _compared(
    reference: Path,
    distorted: Path,
    form: VideoFormat,
    what: str,
    planes: str,
    compare: str,
    read: Callable[[Path], list[Scores]],
) -> list[Scores]:
    """Run a filter of ffmpeg on two raw files and read the scores of all pictures from its log.

    Args:
        reference: Raw file of the original.
        distorted: Raw file to be rated.
        form: Geometry of both files.
        what: What is measured, for messages.
        planes: Filter in front of the comparison.
        compare: Filter, with its inputs [distorted] and [reference], that writes the file `_LOG`.
        read: Function that reads the log.
    """
    sizes = {path: path.stat().st_size for path in (reference, distorted)}
    if len(set(sizes.values())) > 1:
        raise FormatError(f"{distorted} has {sizes[distorted]} bytes and {reference} has {sizes[reference]}")
    raw = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        form.ffmpeg_pix_fmt,
        "-s",
        f"{form.width}x{form.height}",
        "-r",
        str(form.fps or 25),
    ]
    with temporary_folder("metric") as folder:
        # The name of the log is relative because the option's syntax has no safe way to quote an arbitrary path.
        filters = f"[0:v]{planes}[distorted];[1:v]{planes}[reference];{compare}"
        argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-nostats", "-loglevel", "error"]
        for path in (distorted, reference):
            argv += [*raw, "-i", f"file:{path.absolute()}"]
        argv += ["-lavfi", filters, "-f", "null", "-"]
        run(argv, what=f"measuring {what}", cwd=Path(folder))
        try:
            scores = read(Path(folder) / _LOG)
        except (OSError, CodecnnError, KeyError, TypeError, ValueError) as error:
            raise EncoderError(f"ffmpeg reported no {what}") from error
    pictures = sizes[reference] // form.picture_bytes
    if len(scores) != pictures:
        raise EncoderError(f"ffmpeg reported {len(scores)} scores for the {pictures} pictures: {what}")
    return scores
