"""Time of labelling one picture (all 67 modes by DCT cost) against coding it with libvvenc and the plain reference.

Labels are computed in this process, from samples in memory to rows of a table, with compiled kernels. The encoder is
ffmpeg with libvvenc, preset medium, QP 32, all intra, raw YUV in. Both use the same number of threads and run by turns.
The plain NumPy reference labels the topmost 128 rows on one thread, once as it is and once with the transform of
scipy.fft.dctn; its peer is the labelling of these rows on one thread, in CPU time. The least costs of all ways must
agree to float32 rounding. With --device cuda, only the pictures per second are measured.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
import skimage.data

from codecnn.codec import CodecSettings, encode_argv
from codecnn.modes.labels import LabelSettings, Source, label_pictures
from codecnn.pictures.files import VideoFormat, ffmpeg_path, open_video
from codecnn.vvc.intra import (
    block_costs_reference,
    block_positions,
    blocks_at,
    predict_modes_reference,
    reference_lines,
)
from tools.bench._common import Row, make_parser, row, seconds, size_argument

REFERENCE_ROWS = 128
"""Rows of the picture that the plain reference labels."""


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return the rows."""
    parser = make_parser("labels", __doc__)
    parser.add_argument("picture", nargs="?", type=Path, help="picture whose upper left part is used [of scikit-image]")
    parser.add_argument("--size", type=size_argument, default="768x512", help="size of that part, WxH [768x512]")
    parser.add_argument("--device", default="cpu", help="cpu or cuda [cpu]")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="threads of labelling and of the encoder [2]")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each way [5]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    result = measure(options)
    times = result["seconds"]
    if options.json:
        print(json.dumps(result, indent=2))
        return rows(result, options)
    print(f"{result['size']}, {result['blocks']} blocks, {options.jobs} threads, load {result['load']:.1f}")
    print(f"labels    {min(times['labels']):7.3f} s at best, {1 / min(times['labels']):.2f} pictures/s")
    if options.device == "cpu":
        print(f"libvvenc  {min(times['libvvenc']):7.3f} s at best; labels take {result['ratio_of_minima']:.3f} of it")
        print(f"On one thread, labels are {result['times_the_reference']:.1f} times as fast as the NumPy reference,")
        print(f"and {result['times_scipy']:.1f} times as fast as that with scipy.fft.dctn.")
    return rows(result, options)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure seconds of the labels and of the encoder by turns, and CPU seconds of each way for the topmost rows."""
    width, height = options.size
    luma = _luma(options.picture, width, height)
    settings = LabelSettings()

    def label(rows: int | None = None, jobs: int = options.jobs) -> list[Any]:
        part = luma[:rows]
        pieces = label_pictures([Source("picture", 0, part, part, 10)], settings, jobs=jobs, device=options.device)
        return [batch for _, batch, _ in pieces]

    blocks = sum(len(batch) for batch in label())  # compiles, and fills caches
    result = {"size": f"{width}x{height}", "jobs": options.jobs, "blocks": blocks, "load": os.getloadavg()[0]}
    times: dict[str, list[float]] = {"labels": [], "libvvenc": []}
    with tempfile.TemporaryDirectory() as folder:
        command = _encoder_command(luma, Path(folder), options.jobs) if options.device == "cpu" else []
        for _ in range(options.rounds):
            times["labels"].append(seconds(label))
            if command:
                times["libvvenc"].append(seconds(lambda: subprocess.run(command, check=True, capture_output=True)))
    result["seconds"] = times
    if command:
        result["ratio_of_minima"] = min(times["labels"]) / min(times["libvvenc"])
        ours = min(seconds(lambda: label(REFERENCE_ROWS, 1), time.process_time) for _ in range(options.rounds))
        peers = {"numpy": block_costs_reference, "scipy": _scipy_costs}
        total = sum(batch.column("cost_dct").to_numpy().sum() for batch in label(REFERENCE_ROWS, 1))
        cpu = {}
        for name, costs in peers.items():
            started = time.process_time()
            peer_total = _least_cost(luma, settings, costs)
            cpu[name] = time.process_time() - started
            if not np.isclose(total, peer_total, rtol=1e-5):
                sys.exit(f"the least costs by {name} sum to {peer_total:.6g}, those of the labels to {total:.6g}")
        result["cpu_seconds"] = {"labels": ours, **cpu}
        result["times_the_reference"], result["times_scipy"] = cpu["numpy"] / ours, cpu["scipy"] / ours
    return result


def rows(result: dict[str, Any], options: argparse.Namespace) -> list[Row]:
    """Create the rows: labels against coding the picture, and of its topmost rows against NumPy and SciPy."""
    times, device = result["seconds"], f"{options.jobs} threads" if options.device == "cpu" else options.device
    what = f"labels of {result['size']}, {device}: time"
    entries = [row(what, "s", times["labels"], "libvvenc `medium`, QP 32", times["libvvenc"])]
    if options.device == "cpu":
        cpu = result["cpu_seconds"]
        what = f"labels of the topmost {REFERENCE_ROWS} rows of {result['size']}, one thread: CPU time"
        entries.append(row(what, "s", [cpu["labels"]], "NumPy reference", [cpu["numpy"]]))
        entries.append(row(what, "s", [cpu["labels"]], "NumPy reference with `scipy.fft.dctn`", [cpu["scipy"]]))
    return entries


def _luma(path: Path | None, width: int, height: int) -> np.ndarray:
    """Return 10-bit luma of `width` x `height`, extended by mirroring if the picture is smaller."""
    if path is None:
        plane = skimage.data.coffee().astype(np.uint16).sum(2) * 4 // 3
    else:
        with open_video(path) as video:
            plane = video[0].y
    pads = [(0, max(0, size - available)) for size, available in zip((height, width), plane.shape, strict=True)]
    return np.ascontiguousarray(np.pad(plane, pads, mode="symmetric")[:height, :width]).astype(np.uint16)


def _encoder_command(luma: np.ndarray, folder: Path, jobs: int) -> list[str]:
    """Write the picture with grey chroma as raw YUV, and return the encoder's command line."""
    video_format = VideoFormat(luma.shape[1], luma.shape[0], "420", 10)
    grey = np.full(2 * ((luma.shape[0] + 1) // 2) * ((luma.shape[1] + 1) // 2), 512, np.uint16)
    np.concatenate((luma.ravel(), grey)).tofile(folder / "in.yuv")
    settings = CodecSettings(qp=32, preset="medium", configuration="ai", threads=jobs)
    return encode_argv(ffmpeg_path(), str(folder / "in.yuv"), video_format, settings, str(folder / "out.266"))


def _least_cost(luma: np.ndarray, settings: LabelSettings, costs: Callable[..., np.ndarray]) -> float:
    """Return the sum of the least costs of all blocks in the topmost rows."""
    total = 0.0
    for width, height in settings.block_sizes:
        positions = block_positions(luma.shape[1], REFERENCE_ROWS, width, height)
        lines = reference_lines(luma[:REFERENCE_ROWS], positions, width, height, 10)
        total += costs(lines, blocks_at(luma, positions, width, height), 10, "dct").min(1).sum()
    return total


def _scipy_costs(lines: np.ndarray, blocks: np.ndarray, bit_depth: int, _cost: str) -> np.ndarray:
    """Compute the result of `block_costs_reference` with the transform of SciPy."""
    height, width = blocks.shape[1:]
    corner = 2 * height
    sides = lines[:, corner], lines[:, corner + 1 :], lines[:, :corner][:, ::-1]
    residual = blocks[:, None].astype(np.float64) - predict_modes_reference(*sides, width, height, bit_depth)
    return abs(scipy.fft.dctn(residual, axes=(2, 3), norm="ortho", overwrite_x=True)).sum((2, 3))
