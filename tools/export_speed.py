"""Time and samples of exported networks in other programs, each against `codecnn filter` in the same run.

    python tools/export_speed.py clip_1920x1080.y4m --vspipe vspipe --ffmpeg ffmpeg --program build/filter_y4m

The Y4M has 8 bits, 4:2:0 and at least seven pictures. The figure of a way is processor time a picture, median of five
turns; the ways take turns, each on one processor core. Start and loading are subtracted: a turn of a program is the
difference of seven pictures and two. `--vspipe` needs vapoursynth-mlrt-ort and vapoursynth-bestsource, `--ffmpeg` a
build with --enable-libonnxruntime, `--program` docs/examples/cpp. Ways whose program is not named are left out.
"""

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from codecnn import api
from codecnn.filtering import load_filter
from codecnn.models import load_model
from codecnn.pictures.files import Picture, open_video

TURNS, LONG, SHORT = 5, 7, 2
QP = 32

Turn = Callable[[], tuple[float, Picture]]
"""Function that takes one turn: seconds a picture, and the first filtered picture."""


def first_picture(path: Path) -> Picture:
    with open_video(path) as video:
        return next(iter(video))


def cut(source: Path, target: Path, pictures: int) -> Path:
    """Write the first pictures of a Y4M."""
    with source.open("rb") as file:
        header = file.readline()
    video = first_picture(source)
    bytes_each = len(b"FRAME\n") + sum(plane.size for plane in video.planes)
    target.write_bytes(source.read_bytes()[: len(header) + pictures * bytes_each])
    return target


def cpu_seconds(argv: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def program(clips: dict[int, Path], output: Path, argv: Callable[[str, str], list[str]]) -> Turn:
    def turn() -> tuple[float, Picture]:
        short, long = (cpu_seconds(argv(str(clips[count]), str(output))) for count in (SHORT, LONG))
        return (long - short) / (LONG - SHORT), first_picture(output)

    return turn


def codecnn_filter(model: str, picture: Picture) -> Turn:
    filter_ = load_filter(model)
    filter_(picture, QP)

    def turn() -> tuple[float, Picture]:
        start = time.process_time()
        filtered = filter_(picture, QP)
        return time.process_time() - start, filtered

    return turn


def runtime(path: Path, halo: int, picture: Picture) -> Turn:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def turn() -> tuple[float, Picture]:
        start = time.process_time()
        plane = np.pad(picture.y.astype(np.float32) / np.float32(256), halo, mode="edge")[None, None]
        samples = session.run(None, {"rec_y": plane, "qp": np.full((1, 1, 1, 1), QP / 64, np.float32)})[0][0, 0]
        y = np.clip(np.rint(samples * 256), 0, 255).astype(np.uint8)
        return time.process_time() - start, Picture((y, *picture.planes[1:]), 8)

    return turn


def ways(options: argparse.Namespace, folder: Path) -> dict[str, Turn]:
    model, picture = options.model, first_picture(options.clip)
    clips = {count: cut(options.clip, folder / f"{count}.y4m", count) for count in (SHORT, LONG)}
    float32, float16, integers, stacked, one_qp = (folder / f"{name}.onnx" for name in ("f32", "f16", "i8", "vs", "ff"))
    api.export(model, float32)
    api.export(model, float16, fp16=True)
    api.export(f"{model}.int8", integers, bit_depth=8)
    api.export(model, stacked, "vapoursynth")
    api.export(model, one_qp, "vapoursynth", qp=QP)
    halo = load_model(model)[0].halo
    found = {
        "codecnn, float": codecnn_filter(model, picture),
        "codecnn, integers": codecnn_filter(f"{model}.int8", picture),
        "ONNX Runtime in Python, float": runtime(float32, halo, picture),
        "ONNX Runtime in Python, float16": runtime(float16, halo, picture),
        "ONNX Runtime in Python, integers": runtime(integers, halo, picture),
    }

    def add(name: str, argv: Callable[[str, str], list[str]]) -> None:
        found[name] = program(clips, folder / f"out_{len(found)}.y4m", argv)

    if options.program:
        add("C++, float", lambda source, output: [options.program, str(float32), str(QP), source, output])
        add("C++, integers", lambda source, output: [options.program, str(integers), str(QP), source, output])
    if options.vspipe:
        arguments = ["-c", "y4m", "-a", f"qp={QP}"]
        script = str(stacked.with_suffix(".vpy"))
        add("VapourSynth", lambda s, o: [options.vspipe, *arguments, "-a", f"source={s}", script, o])
    if options.ffmpeg:
        graph = f"dnn_processing=dnn_backend=onnx:model={one_qp}:input=input:output=output"
        add("ffmpeg", lambda s, o: [options.ffmpeg, "-y", "-i", s, "-vf", graph, "-strict", "-1", o])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Time exported networks in other programs against codecnn.")
    parser.add_argument("clip", type=Path)
    parser.add_argument("-m", "--model", default="low_cost_17")
    for name in ("--vspipe", "--ffmpeg", "--program"):
        parser.add_argument(name)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # programs inherit it
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        found = ways(options, Path(name))
        seconds: dict[str, list[float]] = {name: [] for name in found}
        pictures: dict[str, Picture] = {}
        for _ in range(TURNS):
            for name, turn in found.items():
                figure, pictures[name] = turn()
                seconds[name].append(figure)
    print(f"{'way':34} s/picture  ratio  largest difference  samples that differ")
    for name, figures in seconds.items():
        peer = "codecnn, integers" if "integers" in name else "codecnn, float"
        median, base = (statistics.median(each) for each in (figures, seconds[peer]))
        differences = [
            np.abs(a.astype(int) - b.astype(int))
            for a, b in zip(pictures[name].planes, pictures[peer].planes, strict=True)
        ]
        largest, count = max(d.max() for d in differences), sum(int((d > 0).sum()) for d in differences)
        print(f"{name:34} {median:9.2f}  {median / base:5.2f}  {largest:18}  {count:19,}", flush=True)


if __name__ == "__main__":
    main()
