"""Memory and speed of filtering a long sequence: resident memory must not grow with the number of pictures.

    python tools/bench/sequence.py                                 1,000 pictures of 416x240 through low_cost_5
    python tools/bench/sequence.py --frames 200 --size 832x480 --decide

Resident memory (VmRSS of /proc/self/status, so Linux only) is read after each picture. Allocators take and give back
some of it all the time, 15 MiB of 300 from picture to picture, but the most that they held is steady, and a leak raises
it: exits with 1 where the second half of the pictures held over 2 % more than the first half at its most.
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
from codecnn.video import VideoFormat, create_video, open_video
from tools.bench._rows import Row, row

TOLERANCE = 1.02


def resident_mib() -> float:
    """Memory of this process that lies in RAM, mapped files included, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def write_clip(path: Path, video_format: VideoFormat, frames: int) -> None:
    """Noise that moves: every picture differs, and none needs to be computed sample by sample."""
    rng = np.random.default_rng(0)
    noise = [rng.integers(64, 940, shape).astype("<u2") for shape in video_format.plane_shapes]
    with create_video(path, video_format) as out:
        for number in range(frames):
            out.write([np.roll(plane, number, axis=1) for plane in noise])


def main(argv: list[str]) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="low_cost_5")
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--size", default="416x240", help="WxH")
    parser.add_argument("--decide", action="store_true", help="decide against an original as well")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    seconds, resident = measure(args)
    first, last = (max(half) for half in (resident[: args.frames // 2], resident[args.frames // 2 :]))
    figures = {"pictures": args.frames, "seconds_a_picture": seconds, "after_the_first_mib": resident[0]}
    figures |= {"first_half_mib": first, "second_half_mib": last, "least_mib": min(resident)}
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
    if last > TOLERANCE * first:
        sys.exit(f"memory grew from {first:.1f} to {last:.1f} MiB")
    what = f"{args.frames} pictures of {args.size} through `{args.network}`{', decided' if args.decide else ''}"
    return [
        row(f"{what}: time of one", "s", [seconds]),
        row(f"{what}: most memory in the second half", "MiB", [last], "the first half", [first]),
    ]


def measure(args: argparse.Namespace) -> tuple[float, list[float]]:
    """Seconds a picture, and resident memory in MiB after each of them."""
    width, height = (int(part) for part in args.size.split("x"))
    filter_ = FloatFilter(create_model(args.network))
    resident: list[float] = []

    def report(_done: int) -> None:
        resident.append(resident_mib())

    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "clip.yuv", Path(folder) / "filtered.yuv"
        write_clip(source, VideoFormat(width, height, bit_depth=10), args.frames)
        started = time.perf_counter()
        with open_video(source, size=(width, height), bit_depth=10) as video:
            if args.decide:
                decide_video(filter_, video, video, [37], output, progress=report)
            else:
                filter_video(filter_, video, [37], output, progress=report)
        return (time.perf_counter() - started) / args.frames, resident


if __name__ == "__main__":
    main(sys.argv[1:])
