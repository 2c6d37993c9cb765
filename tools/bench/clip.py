"""Where the time goes when a coded clip of 1080p is filtered as an encoder would: every part of the way has a clock.

    python tools/benchmark.py clip [--network low_cost_17] [--frames 16] [--size 1920x1080] [--turns 3] [--threads 2]

Three photographs of scikit-image, side by side and repeated, move by four samples a picture and are coded by libvvenc
`faster` in low delay. What `codecnn filter --original` does is done with the stream: decode it, read pictures, filter,
decide by CTU, write Y4M, in float32 and bfloat16 in turn, or in one of them with `--form`, and in integers with
`--integers FILE`. A picture is decided on and written while the next one is in the network, so that the parts may sum
to more than all.
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

from codecnn.codec import CodecSettings, encode_argv
from codecnn.filtering import NetworkFilter, PictureFilter, Precision, decide_video, load_filter, stream_qps
from codecnn.video import Video, VideoFormat, VideoWriter, create_video, ffmpeg_path, open_like, open_video
from tools.bench._rows import Row, row

STEP = 4
"""Samples that the clip moves by from picture to picture."""
FORMS: tuple[Precision, ...] = ("float32", "bfloat16")
PLACES: dict[str, tuple[object, str]] = {
    "reading": (Video, "__getitem__"),
    "the network": (NetworkFilter, "samples"),
    "decisions": (sys.modules[decide_video.__module__], "decide_picture"),
    "writing": (VideoWriter, "write"),
}


def main(argv: list[str]) -> list[Row]:
    """Measure and print, a row for each form and part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="low_cost_17")
    parser.add_argument("--form", action="append", choices=FORMS, help="instead of both")
    parser.add_argument("--integers", type=Path, help="as well, written by `codecnn export --format int8`")
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    filters: dict[str, PictureFilter] = {
        form: load_filter(options.network, precision=form) for form in options.form or FORMS
    }
    if options.integers is not None:
        filters["integers"] = load_filter(options.integers)
    times: dict[str, dict[str, list[float]]] = {form: defaultdict(list) for form in filters}
    with tempfile.TemporaryDirectory() as folder:
        original, stream = coded_clip(Path(folder), options)
        for turn in range(options.turns + 1):
            for form, filter_ in filters.items():
                parts = filtered(filter_, stream, original, Path(folder) / "filtered.y4m")
                for part, seconds in parts.items() if turn else ():  # the first turn chooses and compiles
                    times[form][part].append(seconds / options.frames)
    return [made for form in times for made in rows(form, times, options)]


def rows(form: str, times: dict[str, dict[str, list[float]]], options: argparse.Namespace) -> list[Row]:
    """Seconds a picture of a form, in all and by part, beside those of float32."""
    what = f"{options.size}, `{options.network}` in {form}, {options.threads} threads"
    peer = "float32" if form != "float32" and "float32" in times else None
    made = []
    for part, own in times[form].items():
        made.append(row(f"{what}: {part}, a picture", "s", own, peer, times["float32"][part] if peer else ()))
        print(f"{form:9} {part:12} {made[-1]['ours'] * 1000:8.1f} ms a picture", flush=True)
    return made


def coded_clip(folder: Path, options: argparse.Namespace) -> tuple[Path, Path]:
    """The original as raw YUV, and the stream."""
    width, height = (int(part) for part in options.size.split("x"))
    shown = [skimage.data.astronaut(), skimage.data.coffee(), skimage.data.chelsea()]
    strip = np.hstack([picture[:300] for picture in shown])
    still = folder / "still.png"
    imsave(still, np.tile(strip, (-(-height // 300), -(-width // strip.shape[1]), 1))[:height, :width])
    form = VideoFormat(width, height, "420", 10)
    original, stream = folder / "original_10bit.yuv", folder / "coded.266"
    with open_video(still) as video, create_video(original, form) as out:
        y, u, v = video[0].planes
        for number in range(options.frames):
            step = STEP * number
            out.write([np.roll(y, step, 1), np.roll(u, step // 2, 1), np.roll(v, step // 2, 1)])
    settings = CodecSettings(qp=32, preset="faster", configuration="ldb", threads=options.threads)
    command = encode_argv(ffmpeg_path(), str(original), form, settings, str(stream))
    subprocess.run(command, check=True, capture_output=True)
    return original, stream


def filtered(filter_: PictureFilter, stream: Path, original: Path, output: Path) -> dict[str, float]:
    """Seconds in all, of decoding, and of each part behind it."""
    spent: dict[str, float] = defaultdict(float)
    started = time.perf_counter()
    with open_video(stream) as video:
        spent["all"], spent["decoding"] = 0.0, time.perf_counter() - started
        with open_like(original, video.format) as originals, _clocks(spent):
            decide_video(filter_, video, originals, stream_qps(stream, len(video)), output)
    spent["all"] = time.perf_counter() - started
    return spent


@contextlib.contextmanager
def _clocks(spent: dict[str, float]) -> Iterator[None]:
    """Count in `spent` what the places take."""
    with contextlib.ExitStack() as stack:
        for part, (owner, name) in PLACES.items():
            stack.enter_context(patch.object(owner, name, _clocked(getattr(owner, name), part, spent)))
        yield


def _clocked(call: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    def timed(*args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return call(*args, **options)
        finally:
            spent[part] += time.perf_counter() - started

    return timed


if __name__ == "__main__":
    main(sys.argv[1:])
