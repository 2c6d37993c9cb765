"""Raw clips with motion and texture for encoders, and syntax elements that ffmpeg reads from their bitstreams."""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from codecnn.pictures.files import VideoFormat, create_video, ffmpeg_path


def write_planes(path: Path, video_format: VideoFormat, pictures: Iterable[Iterable[np.ndarray]]) -> Path:
    """Write pictures, each a list of planes of any type, and return the path."""
    with create_video(path, video_format) as video:
        for planes in pictures:
            video.write([plane.astype(video_format.dtype) for plane in planes])
    return path


def write_clip(
    path: Path, video_format: VideoFormat, pictures: int = 2, *, seed: int = 0, edges: int = 30, flat_v: bool = False
) -> Path:
    """Write moving waves with noise and a checkerboard of height `edges`; x265 codes a flat V plane without error."""
    rng = np.random.default_rng(seed)
    scale = 2 ** (video_format.bit_depth - 8)
    path.parent.mkdir(parents=True, exist_ok=True)

    def plane(number: int, height: int, width: int) -> np.ndarray:
        y, x = np.mgrid[:height, :width]
        wave = 128 + 50 * np.sin((x + 3 * number) / 9) * np.cos(y / 7) + edges * ((x // 20 + y // 13) % 2)
        return (wave + rng.normal(0, 5, wave.shape)).clip(0, 255) * scale

    clip = [[plane(number, *shape) for shape in video_format.plane_shapes] for number in range(pictures)]
    if flat_v:
        clip = [[*planes[:2], np.full_like(planes[2], 90 * scale)] if planes[2:] else planes for planes in clip]
    return write_planes(path, video_format, clip)


def traced(bitstream: Path) -> dict[str, list[int]]:
    """Return the values of each syntax element in coding order, read by trace_headers of ffmpeg.

    Parameter sets appear once more than in the stream, because ffmpeg reads the first ones twice.
    """
    argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-loglevel", "verbose", "-i", str(bitstream)]
    argv += ["-c", "copy", "-bsf:v", "trace_headers", "-f", "null", "-"]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stderr
    values: dict[str, list[int]] = {}
    for name, value in re.findall(r"\s(\w+)\s+[01]+ = (-?\d+)$", text, re.MULTILINE):
        values.setdefault(name, []).append(int(value))
    return values
