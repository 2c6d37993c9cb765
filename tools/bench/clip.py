"""Time of each stage when a coded 1080p clip is filtered with decisions, as `codecnn filter --original` does it.

    python tools/benchmark.py clip [--network low_cost_17] [--frames 16] [--size 1920x1080] [--turns 3] [--threads 2]

The clip is three photographs of scikit-image, placed side by side and repeated, that move by four samples per picture.
libvvenc `faster` codes it in low delay. Decoding, reading, filtering, CTU decisions and writing Y4M are timed, in
float32 and bfloat16 by turns, or in the form that `--form` names, and in integers with `--integers FILE`. Decisions and
writing run while the next picture is filtered, so the stages may add up to more than the total.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import skimage.data
import torch
from skimage.io import imsave

from codecnn.base.division import ceil_div
from codecnn.codec import CodecSettings, encode_argv
from codecnn.filtering import NetworkFilter, PictureFilter, Precision, decide_video, load_filter, stream_qps
from codecnn.pictures.files import (
    Video,
    VideoFormat,
    VideoWriter,
    create_video,
    ffmpeg_path,
    open_like,
    open_video,
)
from tools.bench._common import Row, make_parser, row, size_argument

STEP = 4
"""Samples by which the clip moves from picture to picture."""
FORMS: tuple[Precision, ...] = ("float32", "bfloat16")
STAGES: dict[str, tuple[object, str]] = {
    "reading": (Video, "__getitem__"),
    "the network": (NetworkFilter, "samples"),
    "decisions": (sys.modules[decide_video.__module__], "decide_picture"),
    "writing": (VideoWriter, "write"),
}
"""Owner and name of the function that each stage calls."""


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return a row for each form and stage."""
    parser = make_parser("clip", __doc__)
    parser.add_argument("--network", default="low_cost_17", help="weights by name [low_cost_17]")
    parser.add_argument("--form", action="append", choices=FORMS, help="form of the network [both]")
    parser.add_argument(
        "--integers", type=Path, help="integer weights of `codecnn export --format int8` to time as well"
    )
    parser.add_argument("--frames", type=int, default=16, help="pictures of the clip [16]")
    parser.add_argument("--size", type=size_argument, default="1920x1080", help="of the clip, WxH [1920x1080]")
    parser.add_argument("--turns", type=int, default=3, help="timed turns of each form [3]")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads [2]")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    filters: dict[str, PictureFilter] = {
        form: load_filter(options.network, precision=form) for form in options.form or FORMS
    }
    if options.integers is not None:
        filters["integers"] = load_filter(options.integers)
    times: dict[str, dict[str, list[float]]] = {form: defaultdict(list) for form in filters}
    with tempfile.TemporaryDirectory() as folder:
        original, stream = code_clip(Path(folder), options)
        for turn in range(options.turns + 1):
            for form, filter_ in filters.items():
                stages = time_stages(filter_, stream, original, Path(folder) / "filtered.y4m")
                for stage, seconds in stages.items() if turn else ():  # the first turn chooses and compiles
                    times[form][stage].append(seconds / options.frames)
    return [entry for form in times for entry in rows(form, times, options)]


def rows(form: str, times: dict[str, dict[str, list[float]]], options: argparse.Namespace) -> list[Row]:
    """Create the rows of a form: seconds per picture in total and by stage, compared with float32."""
    width, height = options.size
    what = f"{width}x{height}, `{options.network}` in {form}, {options.threads} threads"
    peer = "float32" if form != "float32" and "float32" in times else None
    entries = []
    for stage, stage_times in times[form].items():
        entries.append(
            row(f"{what}: {stage}, a picture", "s", stage_times, peer, times["float32"][stage] if peer else ())
        )
        print(f"{form:9} {stage:12} {entries[-1]['ours'] * 1000:8.1f} ms a picture", flush=True)
    return entries


def code_clip(folder: Path, options: argparse.Namespace) -> tuple[Path, Path]:
    """Write the original as raw YUV and code it; return both paths."""
    width, height = options.size
    photos = [skimage.data.astronaut(), skimage.data.coffee(), skimage.data.chelsea()]
    strip = np.hstack([photo[:300] for photo in photos])
    still = folder / "still.png"
    imsave(still, np.tile(strip, (ceil_div(height, 300), ceil_div(width, strip.shape[1]), 1))[:height, :width])
    video_format = VideoFormat(width, height, "420", 10)
    original, stream = folder / "original_10bit.yuv", folder / "coded.266"
    with open_video(still) as video, create_video(original, video_format) as out:
        y, u, v = video[0].planes
        for number in range(options.frames):
            step = STEP * number
            out.write([np.roll(y, step, 1), np.roll(u, step // 2, 1), np.roll(v, step // 2, 1)])
    settings = CodecSettings(qp=32, preset="faster", configuration="ldb", threads=options.threads)
    command = encode_argv(ffmpeg_path(), str(original), video_format, settings, str(stream))
    subprocess.run(command, check=True, capture_output=True)
    return original, stream


def time_stages(filter_: PictureFilter, stream: Path, original: Path, output: Path) -> dict[str, float]:
    """Filter a stream with decisions; return the seconds of the whole ("all"), of decoding and of each later stage."""
    spent: dict[str, float] = defaultdict(float)
    started = time.perf_counter()
    with open_video(stream) as video:
        spent["all"], spent["decoding"] = 0.0, time.perf_counter() - started
        with open_like(original, video.format) as originals, _timed_stages(spent):
            decide_video(filter_, video, originals, stream_qps(stream, len(video)), output)
    spent["all"] = time.perf_counter() - started
    return spent


@contextlib.contextmanager
def _timed_stages(spent: dict[str, float]) -> Iterator[None]:
    """Add the seconds of every stage to `spent` within the context."""
    with contextlib.ExitStack() as stack:
        for stage, (owner, name) in STAGES.items():
            stack.enter_context(patch.object(owner, name, _timed(getattr(owner, name), stage, spent)))
        yield


def _timed(call: Callable[..., Any], stage: str, spent: dict[str, float]) -> Callable[..., Any]:
    def timed(*args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return call(*args, **options)
        finally:
            spent[stage] += time.perf_counter() - started

    return timed
