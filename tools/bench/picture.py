"""Processor time of one picture with shipped weights on one thread, and of finding the motion of one neighbour.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python tools/benchmark.py picture low_cost_5 low_cost_17

Prints the least of `--turns` turns after one that is not counted: processor time, so that other work on the machine
disturbs little.
"""

import time

import numpy as np
import skimage.data
import torch

from codecnn.filtering import load_filter
from codecnn.pictures.motion import compensate_motion
from tools.bench._common import (
    QP,
    Row,
    auxiliary_planes,
    make_parser,
    noise_picture,
    row,
    seconds,
    size_argument,
)


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return a row for each filter and one for the motion."""
    parser = make_parser("picture", __doc__)
    parser.add_argument("weights", nargs="+", help="weights by name, e.g. low_cost_17")
    parser.add_argument("--float", action="store_true", help="in float32 instead of the default form")
    parser.add_argument("--size", type=size_argument, default="1920x1080", help="of the picture, WxH [1920x1080]")
    parser.add_argument("--turns", type=int, default=5, help="timed turns [5]")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    width, height = options.size
    picture = noise_picture(height, width)
    rows = []
    for name in options.weights:
        filter_ = load_filter(name, exact=False if options.float else None)
        beside = auxiliary_planes(filter_.planes, picture)
        rows.append(
            _least(f"{name}, {filter_.precision}", lambda f=filter_, b=beside: f(picture, QP, b), options.turns)
        )
    camera = skimage.data.camera().astype(np.uint16) * 4
    current = np.tile(camera, (-(-height // 512), -(-width // 512)))[:height, :width]
    reference = np.roll(current, (3, 5), (0, 1))
    rows.append(_least("motion of one neighbour", lambda: compensate_motion(current, reference, 10), options.turns))
    return rows


def _least(what: str, call, turns: int) -> Row:
    call()
    least = min(seconds(call, time.process_time) for _ in range(turns))
    print(f"{what}: {least:.2f} s", flush=True)
    return row(what, "s", [least])
