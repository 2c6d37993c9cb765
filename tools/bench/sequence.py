"""Memory and speed of filtering a long sequence: resident memory must not grow with the number of pictures.

    python tools/bench/sequence.py                                 1,000 pictures of 416x240 through low_cost_5
    python tools/bench/sequence.py --frames 200 --size 832x480 --decide

Resident memory (VmRSS of /proc/self/status, so Linux only) is read after each picture. Exits with 1 where it is more
than 2 % above that after the tenth picture at any later one.
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

from codecnn.filtering import decide_video, filter_video, float_filter
from codecnn.models import create_model
from codecnn.video import VideoFormat, create_video, open_video

SETTLED = 10
"""Pictures after which everything that is kept has been made."""
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


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="low_cost_5")
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--size", default="416x240", help="WxH")
    parser.add_argument("--decide", action="store_true", help="decide against an original as well")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    width, height = (int(part) for part in args.size.split("x"))
    video_format = VideoFormat(width, height, bit_depth=10)
    filter_ = float_filter(create_model(args.network))
    resident: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "clip.yuv"
        write_clip(source, video_format, args.frames)
        started = time.perf_counter()
        with open_video(source, size=(width, height), bit_depth=10) as video:
            output = Path(folder) / "filtered.yuv"

            def report(_done: int) -> None:
                resident.append(resident_mib())

            if args.decide:
                decide_video(filter_, video, video, [37], output, progress=report)
            else:
                filter_video(filter_, video, [37], output, progress=report)
        seconds = time.perf_counter() - started
    settled, most = resident[SETTLED - 1], max(resident[SETTLED - 1 :])
    places = [1, SETTLED, *(args.frames * part // 4 for part in (1, 2, 3, 4))]
    print(
        json.dumps(
            {
                "pictures": args.frames,
                "seconds_a_picture": round(seconds / args.frames, 4),
                "resident_mib": {place: round(resident[place - 1], 1) for place in places},
                "most_after_settling_mib": round(most, 1),
            }
        )
    )
    if most > TOLERANCE * settled:
        sys.exit(f"memory grew from {settled:.1f} MiB after {SETTLED} pictures to {most:.1f} MiB")


if __name__ == "__main__":
    main(sys.argv[1:])
