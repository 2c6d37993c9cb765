"""Memory and speed of filtering a long sequence: resident memory must not grow with the number of pictures.

    python tools/benchmark.py sequence                             1,000 pictures of 416x240 through low_cost_5
    python tools/benchmark.py sequence --frames 200 --size 832x480 --decide

Resident memory (VmRSS of /proc/self/status, so Linux only) is read after each picture. Allocators take and return
memory from picture to picture, but the maximum is steady, and a leak raises it. The exit status is 1 if the maximum
over the second half of the pictures is more than 2 % above that over the first half.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from codecnn.filtering import FloatFilter, decide_video, filter_video
from codecnn.models import create_model
from codecnn.pictures.files import VideoFormat, create_video, open_video
from tools.bench._common import QP, Row, make_parser, row, size_argument

TOLERANCE = 1.02
"""Largest ratio of the memory in the second half to that in the first half."""


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return the rows."""
    parser = make_parser("sequence", __doc__)
    parser.add_argument("--network", default="low_cost_5", help="architecture, random weights [low_cost_5]")
    parser.add_argument("--frames", type=int, default=1000, help="pictures [1000]")
    parser.add_argument("--size", type=size_argument, default="416x240", help="WxH [416x240]")
    parser.add_argument("--decide", action="store_true", help="also make decisions against an original")
    parser.add_argument("--threads", type=int, help="CPU threads [all]")
    options = parser.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    seconds, resident = measure(options)
    first, second = (max(half) for half in (resident[: options.frames // 2], resident[options.frames // 2 :]))
    figures = {"pictures": options.frames, "seconds_a_picture": seconds, "after_the_first_mib": resident[0]}
    figures |= {"first_half_mib": first, "second_half_mib": second, "least_mib": min(resident)}
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
    if second > TOLERANCE * first:
        sys.exit(f"memory grew from {first:.1f} to {second:.1f} MiB")
    width, height = options.size
    decided = ", decided" if options.decide else ""
    what = f"{options.frames} pictures of {width}x{height} through `{options.network}`{decided}"
    return [
        row(f"{what}: time of one", "s", [seconds]),
        row(f"{what}: most memory in the second half", "MiB", [second], "the first half", [first]),
    ]


def measure(options: argparse.Namespace) -> tuple[float, list[float]]:
    """Return the seconds per picture, and the resident memory in MiB after each picture."""
    width, height = options.size
    filter_ = FloatFilter(create_model(options.network))
    resident: list[float] = []

    def report(_done: int) -> None:
        resident.append(resident_mib())

    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "clip.yuv", Path(folder) / "filtered.yuv"
        write_clip(source, VideoFormat(width, height, bit_depth=10), options.frames)
        started = time.perf_counter()
        with open_video(source, size=(width, height), bit_depth=10) as video:
            if options.decide:
                decide_video(filter_, video, video, [QP], output, progress=report)
            else:
                filter_video(filter_, video, [QP], output, progress=report)
        return (time.perf_counter() - started) / options.frames, resident


def resident_mib() -> float:
    """Return the memory of this process in RAM, mapped files included, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def write_clip(path: Path, video_format: VideoFormat, frames: int) -> None:
    """Write a clip of noise that moves by one sample per picture, so that all pictures differ."""
    rng = np.random.default_rng(0)
    noise = [rng.integers(64, 940, shape).astype("<u2") for shape in video_format.plane_shapes]
    with create_video(path, video_format) as out:
        for number in range(frames):
            out.write([np.roll(plane, number, axis=1) for plane in noise])
