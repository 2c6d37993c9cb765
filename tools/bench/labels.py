"""Labels of one picture, all 67 modes by DCT cost, against coding it with libvvenc and against the plain reference.

Labels are made in this process, from samples in memory to rows of a table, with the kernels compiled; the encoder's
time is that of ffmpeg with libvvenc, preset medium, QP 32, all intra, raw YUV in. Both use as many threads and take
turns. The plain NumPy reference labels the topmost 128 rows of the picture, on one thread as it is, and once more with
the transform by scipy.fft.dctn; their ratios are to the labels of these rows on one thread, at best, in CPU time. That
all find the same least costs, but for the rounding of float32, is checked.
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
from codecnn.intra import (
    block_costs_reference,
    block_positions,
    blocks_at,
    predict_modes_reference,
    reference_lines,
)
from codecnn.labels import LabelSettings, Source, label_pictures
from codecnn.video import VideoFormat, ffmpeg_path, open_video
from tools.bench._rows import Row, row, seconds

REFERENCE_ROWS = 128


def main(argv: list[str]) -> list[Row]:
    """Measure and print; --json for figures alone."""
    parser = argparse.ArgumentParser(prog="benchmark.py labels", description=__doc__.splitlines()[0])
    parser.add_argument("picture", nargs="?", type=Path, help="whose upper left part is taken [one of scikit-image]")
    parser.add_argument("--size", default="768x512", help="of that part [768x512]")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; cuda measures pictures a second alone")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="threads of both [2]")
    parser.add_argument("--rounds", type=int, default=5, help="turns that each takes [5]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    result = measure(options)
    times, command = result["seconds"], options.device == "cpu"
    if options.json:
        print(json.dumps(result, indent=2))
        return rows(result, options)
    print(f"{options.size}, {result['blocks']} blocks, {options.jobs} threads, load {result['load']:.1f}")
    print(f"labels    {min(times['labels']):7.3f} s at best, {1 / min(times['labels']):.2f} pictures/s")
    if command:
        print(f"libvvenc  {min(times['libvvenc']):7.3f} s at best; labels take {result['ratio_of_minima']:.3f} of it")
        print(f"labels are {result['times_the_reference']:.1f} times as fast as the NumPy reference, a thread each,")
        print(f"and {result['times_scipy']:.1f} times as fast as with scipy.fft.dctn in it")
    return rows(result, options)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds by turns of the labels and of the encoder; CPU seconds of the topmost rows by each way."""
    luma = _luma(options.picture, *map(int, options.size.split("x")))
    settings = LabelSettings()

    def labels(rows: int | None = None, jobs: int = options.jobs) -> list[Any]:
        part = luma[:rows]
        pieces = label_pictures([Source("picture", 0, part, part, 10)], settings, jobs=jobs, device=options.device)
        return [batch for _, batch, _ in pieces]

    blocks = sum(len(batch) for batch in labels())  # compiles, and fills caches
    result = {"size": options.size, "jobs": options.jobs, "blocks": blocks, "load": os.getloadavg()[0]}
    times: dict[str, list[float]] = {"labels": [], "libvvenc": []}
    with tempfile.TemporaryDirectory() as folder:
        command = _encode(luma, Path(folder), options.jobs) if options.device == "cpu" else []
        for _ in range(options.rounds):
            times["labels"].append(seconds(labels))
            if command:
                times["libvvenc"].append(seconds(lambda: subprocess.run(command, check=True, capture_output=True)))
    result["seconds"] = times
    if command:
        result["ratio_of_minima"] = min(times["labels"]) / min(times["libvvenc"])
        ours = min(seconds(lambda: labels(REFERENCE_ROWS, 1), time.process_time) for _ in range(options.rounds))
        peers = {"numpy": block_costs_reference, "scipy": _scipy_costs}
        found = sum(batch.column("cost_dct").to_numpy().sum() for batch in labels(REFERENCE_ROWS, 1))
        cpu = {}
        for name, costs in peers.items():
            started = time.process_time()
            least = _reference(luma, settings, costs)
            cpu[name] = time.process_time() - started
            if not np.isclose(found, least, rtol=1e-5):
                sys.exit(f"least costs by {name} sum to {least:.6g}, those of the labels to {found:.6g}")
        result["cpu_seconds"] = {"labels": ours, **cpu}
        result["times_the_reference"], result["times_scipy"] = cpu["numpy"] / ours, cpu["scipy"] / ours
    return result


def _luma(path: Path | None, width: int, height: int) -> np.ndarray:
    """10-bit luma of `width` x `height`, repeated by mirroring where the picture is smaller."""
    if path is None:
        plane = skimage.data.coffee().astype(np.uint16).sum(2) * 4 // 3
    else:
        with open_video(path) as video:
            plane = video[0].y
    pads = [(0, max(0, wanted - have)) for wanted, have in zip((height, width), plane.shape, strict=True)]
    return np.ascontiguousarray(np.pad(plane, pads, mode="symmetric")[:height, :width]).astype(np.uint16)


def _encode(luma: np.ndarray, folder: Path, jobs: int) -> list[str]:
    form = VideoFormat(luma.shape[1], luma.shape[0], "420", 10)
    grey = np.full(2 * ((luma.shape[0] + 1) // 2) * ((luma.shape[1] + 1) // 2), 512, np.uint16)
    np.concatenate((luma.ravel(), grey)).tofile(folder / "in.yuv")
    settings = CodecSettings(qp=32, preset="medium", configuration="ai", threads=jobs)
    return encode_argv(ffmpeg_path(), str(folder / "in.yuv"), form, settings, str(folder / "out.266"))


def _reference(luma: np.ndarray, settings: LabelSettings, costs: Callable[..., np.ndarray]) -> float:
    """The sum of the least costs of all blocks of the topmost rows."""
    total = 0.0
    for width, height in settings.block_sizes:
        positions = block_positions(luma.shape[1], REFERENCE_ROWS, width, height)
        lines = reference_lines(luma[:REFERENCE_ROWS], positions, width, height, 10)
        total += costs(lines, blocks_at(luma, positions, width, height), 10, "dct").min(1).sum()
    return total


def _scipy_costs(lines: np.ndarray, blocks: np.ndarray, bit_depth: int, _cost: str) -> np.ndarray:
    """What `block_costs_reference` computes, with the transform by scipy."""
    height, width = blocks.shape[1:]
    corner = 2 * height
    sides = lines[:, corner], lines[:, corner + 1 :], lines[:, :corner][:, ::-1]
    residual = blocks[:, None].astype(np.float64) - predict_modes_reference(*sides, width, height, bit_depth)
    return abs(scipy.fft.dctn(residual, axes=(2, 3), norm="ortho", overwrite_x=True)).sum((2, 3))


def rows(result: dict[str, Any], options: argparse.Namespace) -> list[Row]:
    """Labels of the picture against coding it, and of its topmost rows against NumPy and scipy."""
    times, device = result["seconds"], f"{options.jobs} threads" if options.device == "cpu" else options.device
    what = f"labels of {options.size}, {device}: time"
    made = [row(what, "s", times["labels"], "libvvenc `medium`, QP 32", times["libvvenc"])]
    if options.device == "cpu":
        cpu = result["cpu_seconds"]
        what = f"labels of the topmost {REFERENCE_ROWS} rows of {options.size}, one thread: CPU time"
        made.append(row(what, "s", [cpu["labels"]], "NumPy reference", [cpu["numpy"]]))
        made.append(row(what, "s", [cpu["labels"]], "NumPy reference with `scipy.fft.dctn`", [cpu["scipy"]]))
    return made
