"""Quality of videos against their original, picture by picture."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from codecnn.base.choices import METRICS
from codecnn.base.errors import ConfigError
from codecnn.base.leftovers import temporary_folder
from codecnn.pictures.files import Picture, Video, convert, create_video, forget_pages
from codecnn.pictures.metrics import MIN_SIDE, VMAF_NEG_MODEL, ms_ssim, psnr, ssim, vmaf, xpsnr

_BY_FFMPEG = ("xpsnr", "vmaf", "vmaf_neg")
_COMPONENTS = "yuv"


@dataclass(frozen=True)
class VideoQuality:
    """Quality of a video against its original.

    Attributes:
        video: The video.
        pictures: Values of all pictures by metric: psnr_y, psnr_u, psnr_v, ssim, ms_ssim, xpsnr_y, ..., vmaf, vmaf_neg.
            PSNRs are in dB with the peak 255·2^(b-8), and infinite for equal pictures; SSIM and MS-SSIM are of luma.
    """

    video: Path
    pictures: dict[str, list[float]]

    @property
    def mean(self) -> dict[str, float]:
        """Mean over the pictures of each metric, as codecs log PSNR."""
        return {name: float(np.mean(values)) for name, values in self.pictures.items()}

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {value:.4f}" for name, value in self.mean.items())
        return f"<VideoQuality of {self.video}: means {means}>"

    def as_json(self) -> dict[str, Any]:
        """Return the values as JSON; infinite ones are null."""
        values = {name: [_finite(value) for value in each] for name, each in self.pictures.items()}
        mean = {name: _finite(value) for name, value in self.mean.items()}
        return {"video": str(self.video), "pictures": len(next(iter(values.values()))), "mean": mean, "values": values}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def measure_quality(
    original: Video,
    video: Video,
    metrics: Sequence[str] = METRICS,
    progress: Callable[[int], None] | None = None,
) -> VideoQuality:
    """Measure a video against its original.

    Args:
        original: The original.
        video: The video, of the same size, chroma format and length. If the bit depths differ, samples of the smaller
            one are shifted left, as encoders do.
        metrics: Names from `METRICS`. MS-SSIM is left out of pictures that are too small for five scales.
        progress: Called with the number of pictures that are done.

    Raises:
        ConfigError: The videos differ in size, chroma format or length.
        EncoderError: ffmpeg cannot compute XPSNR or VMAF of the videos.
    """
    depth = max(original.format.bit_depth, video.format.bit_depth)
    original, video = at_bit_depth(original, depth), at_bit_depth(video, depth)
    check_comparable(original, video)
    computed = [name for name in metrics if name not in _BY_FFMPEG]
    if min(original.format.width, original.format.height) < MIN_SIDE and "ms_ssim" in computed:
        computed.remove("ms_ssim")
    values: dict[str, list[float]] = {}
    for number in range(len(video)) if computed else ():
        pair = original[number], video[number]
        for name, value in _picture_values(*pair, computed).items():
            values.setdefault(name, []).append(value)
        for picture in pair:
            # Pages of a mapped file stay resident once they are read.
            forget_pages(picture.y)
        if progress is not None:
            progress(number + 1)
    if any(name in metrics for name in _BY_FFMPEG):
        values |= _values_by_ffmpeg(original, video, metrics)
    return VideoQuality(video.path, values)


def _values_by_ffmpeg(original: Video, video: Video, metrics: Sequence[str]) -> dict[str, list[float]]:
    """Return the values of metrics that filters of ffmpeg compute from raw files."""
    values: dict[str, list[float]] = {}
    with temporary_folder("quality") as folder:
        files = Path(folder) / "original.yuv", Path(folder) / "video.yuv"
        for file, source in zip(files, (original, video), strict=True):
            with create_video(file, original.format, check_name=False) as out:
                for picture in source:
                    out.write(picture)
                    forget_pages(picture.y)
        if "xpsnr" in metrics:
            rows = xpsnr(*files, original.format)
            values |= {f"xpsnr_{_COMPONENTS[n]}": [row[n] for row in rows] for n in range(len(rows[0]))}
        if "vmaf" in metrics:
            values["vmaf"] = vmaf(*files, original.format)
        if "vmaf_neg" in metrics:
            values["vmaf_neg"] = vmaf(*files, original.format, model=VMAF_NEG_MODEL)
    return values


def at_bit_depth(video: Video, bit_depth: int) -> Video:
    """Return a video with pictures converted to a bit depth, by an exact left shift if it is larger."""
    if video.format.bit_depth == bit_depth:
        return video
    form = replace(video.format, bit_depth=bit_depth)
    return Video(video.path, form, lambda number: convert(video[number], bit_depth).planes, len(video), video.tags)


def check_comparable(original: Video, video: Video) -> None:
    """Raise ConfigError unless two videos have pictures of the same size and chroma format, and as many."""
    first, second = original.format, video.format
    size, other = f"{first.width}x{first.height}", f"{second.width}x{second.height}"
    if size != other:
        raise ConfigError(
            f"{video.path} has the size {other}, and {original.path} {size}: name an original of the same size, or "
            f"scale the video first, e.g. ffmpeg -i {video.path} -vf scale={first.width}:{first.height} scaled.y4m"
        )
    if first.chroma != second.chroma:
        raise ConfigError(
            f"{video.path} has the chroma format {second.chroma}, and {original.path} {first.chroma}: convert one of "
            "them to the chroma format of the other"
        )
    if len(original) != len(video):
        raise ConfigError(
            f"{video.path} has {len(video)} pictures and {original.path} has {len(original)}: measure the first ones "
            f"with -f {min(len(original), len(video))}"
        )


def _picture_values(original: Picture, picture: Picture, metrics: Sequence[str]) -> dict[str, float]:
    """Return the values of metrics that are computed here."""
    values = {}
    depth = original.bit_depth
    if "psnr" in metrics:
        for name, a, b in zip(_COMPONENTS, original.planes, picture.planes, strict=False):
            values[f"psnr_{name}"] = psnr(a, b, depth)
    if "ssim" in metrics:
        values["ssim"] = ssim(original.y, picture.y, depth)
    if "ms_ssim" in metrics:
        values["ms_ssim"] = ms_ssim(original.y, picture.y, depth)
    return values
