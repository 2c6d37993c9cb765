"""Speed and memory of inference on the CPU against plain PyTorch, ONNX Runtime and OpenVINO.

    python tools/benchmark.py inference --size 640x384                     all ways, in turn
    python tools/benchmark.py inference --network low_cost_17 --runs 5
    python tools/benchmark.py inference --only codecnn --size 3840x2160    the peak memory of one way alone

All have the same weights, the same 10-bit picture, float32 and as many threads, and each run is a process of its own.
eager is the network as people write it, NCHW and torch.cat, where it is an RDN without shuffle, and otherwise its
module as it stands; onnxruntime and openvino run what `codecnn export` writes. These take the picture in one piece.
Loading and compiling are not counted, nor is a first pass, in which all of them allocate; memory is that of the
process, with Python and PyTorch in all of them. That all ways give the same picture, to 1e-4 of full scale, is checked.
Figures are the least of the runs. CPU time is that of all threads: on a busy machine, with --threads 1, it says more.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.filtering import FloatFilter, in_tiles
from codecnn.models import FilterNetwork, create_model, list_models, named_outputs
from codecnn.models.families.rdn import RDN
from codecnn.planes import QP_SCALE
from tools.bench._peers import Planes, in_onnxruntime, in_openvino
from tools.bench._rows import Row, peak_mib, row
from tools.bench.tiles import awake

NEEDS = {
    "eager": (),
    "onnxruntime": ("onnx", "onnxruntime"),
    "openvino": ("onnx", "onnxruntime", "openvino"),
    "codecnn": (),
}
"""The ways, and the packages that each takes; an export is checked by onnxruntime, whoever runs it."""
TOLERANCE = 1e-4
QP = 37


class EagerRDN(nn.Module):
    """The peer: the layers of an RDN as its paper's public implementations have them."""

    def __init__(self, model: RDN) -> None:
        super().__init__()
        self.model = model

    def forward(self, planes: Planes) -> Tensor:
        model, rec = self.model, planes["rec_y"]
        qp = planes["qp"].expand_as(rec)
        x = (torch.cat([rec, qp], dim=1) - 0.5) * 4.0
        first = model.head(x)
        x = model.head2(first)
        outputs = []
        for block in model.blocks:
            dense = x
            for layer in block.layers:
                dense = torch.cat([dense, F.relu(layer(dense))], dim=1)
            x = x + block.fusion(dense)
            outputs.append(x)
        fused = F.conv2d(torch.cat(outputs, dim=1), model.fusion.weight, model.fusion.bias)
        x = model.fusion2(fused) + first[:, :, 1:-1, 1:-1]
        return rec[:, :, 2:-2, 2:-2] + model.tail(x) * 0.02 * model.gain(qp[:, :, :1, :1])


def is_eager_rdn(model: FilterNetwork) -> bool:
    """Whether `EagerRDN` is this network."""
    return (
        type(model) is RDN
        and model.stride == 1
        and model.planes == model.channels == ("rec_y", "qp")
        and model.head2 is not None
        and model.global_residual
        and all(block.local_residual for block in model.blocks)
        and not model.predicts_picture
    )


def picture(model: FilterNetwork, width: int, height: int) -> dict[str, Tensor]:
    """The network's planes of a 10-bit 4:2:0 picture of waves and noise, in units of full scale, and its QP."""
    rng = np.random.default_rng(0)

    def plane(columns: int, rows: int) -> Tensor:
        y, x = np.mgrid[:rows, :columns].astype(np.float32)
        waves = 512 + 300 * np.sin(x / 37) * np.cos(y / 23) + rng.normal(0, 20, (rows, columns)).astype(np.float32)
        return torch.from_numpy(np.clip(np.round(waves), 0, 1023).astype(np.float32) / 1024)[None, None]

    chroma = (width + 1) // 2, (height + 1) // 2
    planes = {"rec_y": plane(width, height), "rec_u": plane(*chroma), "rec_v": plane(*chroma)}
    planes["qp"] = torch.full((1, 1, 1, 1), QP / QP_SCALE)
    planes["unf_y"] = planes["rec_y"] + 1 / 1024
    return {name: planes[name] for name in model.planes}


@torch.inference_mode()
def measure_way(way: str, args: argparse.Namespace) -> dict[str, float]:
    """Wall and CPU seconds of one pass over one picture and the peak memory of this process in MiB."""
    torch.set_num_threads(args.threads)
    model = awake(args.network)
    planes = picture(model, *_size(args.size))
    height, width = planes["rec_y"].shape[2:]
    ours = FloatFilter(model)
    run, (tile, threads) = ours.model, ours.tiles((height, width))
    if way == "eager":
        module = EagerRDN(model).eval() if is_eager_rdn(model) else model
        run, tile, threads = (lambda given: named_outputs(module(given))), None, 1
    elif way != "codecnn":
        run = {"onnxruntime": in_onnxruntime, "openvino": in_openvino}[way](args.onnx, args.threads)
        tile, threads = None, 1

    def filtered() -> dict[str, Tensor]:
        return in_tiles(run, model, planes, tile, threads)

    filtered()
    started, before = time.perf_counter(), time.process_time()
    result = filtered()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - before
    if args.save is not None:
        np.savez(args.save, **{name: plane.numpy() for name, plane in result.items()})
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mib": peak_mib()}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Figures of each way by turns, and why a way is missing; exits where two ways' pictures differ."""
    missing = {}
    for way, packages in NEEDS.items():
        absent = [name for name in packages if find_spec(name) is None]
        if absent:
            missing[way] = f"{' and '.join(absent)} not here: pip install 'codecnn[benchmark]'"
    ways: dict[str, dict[str, list[float]]] = {
        way: {"seconds": [], "cpu_seconds": [], "peak_mib": []} for way in NEEDS if way not in missing
    }
    benchmark = [sys.executable, str(Path(__file__).resolve().parents[1] / "benchmark.py"), "inference"]
    options = ["--network", args.network, "--size", args.size, "--threads", str(args.threads)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "onnxruntime" in ways:
            from codecnn.models import export_onnx

            export_onnx(folder / "network.onnx", awake(args.network))
            options += ["--onnx", str(folder / "network.onnx")]
        for _ in range(args.runs):
            for way, figures in ways.items():
                command = [*benchmark, "--only", way, *options, "--save", str(folder / f"{way}.npz")]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                for key, figure in json.loads(done.stdout.splitlines()[-1]).items():
                    figures[key].append(figure)
        for way in ways:
            _compare(way, folder)
    return {"ways": ways, "missing": missing}


def _compare(way: str, folder: Path) -> None:
    with np.load(folder / "codecnn.npz") as ours, np.load(folder / f"{way}.npz") as theirs:
        if set(ours) != set(theirs):
            sys.exit(f"{way} makes {', '.join(theirs)}, codecnn {', '.join(ours)}")
        apart = max(float(np.abs(ours[plane] - theirs[plane]).max()) for plane in ours)
    if not apart <= TOLERANCE:
        sys.exit(f"{way} gives another picture than codecnn: {apart:.1e} of full scale apart, more than {TOLERANCE}")


def rows(result: dict[str, Any], args: argparse.Namespace) -> list[Row]:
    """Time, CPU time and memory against each peer."""
    ours = result["ways"]["codecnn"]
    what = f"`{args.network}` on {args.size}, {args.threads} threads"
    plain = "PyTorch, `torch.cat`" if is_eager_rdn(create_model(args.network)) else "PyTorch, the plain module"
    titles = {"eager": plain, "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
    made = []
    for key, unit, kind in (("seconds", "s", "time"), ("cpu_seconds", "s", "CPU time"), ("peak_mib", "MiB", "memory")):
        for way, title in titles.items():
            theirs = result["ways"].get(way, {}).get(key, ())
            made.append(row(f"{what}: {kind}", unit, ours[key], title, theirs, result["missing"].get(way, "")))
    return made


def main(argv: list[str]) -> list[Row]:
    parser = argparse.ArgumentParser(
        prog="benchmark.py inference", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="rdn_32_4_6_24", choices=list_models(), metavar="NAME")
    parser.add_argument("--size", default="640x384", help="of the picture, WxH")
    parser.add_argument("--runs", type=int, default=3, help="of each way, in turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", choices=NEEDS, help="measure this way once, in this process")
    parser.add_argument("--save", type=Path, help="with --only: write the filtered planes, .npz")
    parser.add_argument("--onnx", type=Path, help="with --only onnxruntime or openvino: the exported network")
    args = parser.parse_args(argv)
    if args.only:
        if NEEDS[args.only] and args.onnx is None:
            parser.error(f"--only {args.only} needs --onnx, which is made where all ways are measured")
        print(json.dumps(measure_way(args.only, args)))
        return []
    result = measure(args)
    best = {way: {key: min(figures) for key, figures in of.items()} for way, of in result["ways"].items()}
    print(f"{args.network}, {args.size}, {args.threads} threads, least of {args.runs} runs in turn")
    for way, figures in best.items():
        ratio = {key: best["codecnn"][key] / figures[key] for key in figures}
        print(
            f"{way:11} {figures['seconds']:8.3f} s, CPU {figures['cpu_seconds']:8.3f} s, "
            f"{figures['peak_mib']:6.0f} MiB resident; codecnn takes {ratio['seconds']:.3f} of the time, "
            f"{ratio['cpu_seconds']:.3f} of the CPU's, {ratio['peak_mib']:.3f} of the memory"
        )
    for way, why in result["missing"].items():
        print(f"{way:11} {why}")
    return rows(result, args)


def _size(text: str) -> tuple[int, int]:
    width, height = (int(part) for part in text.split("x"))
    return width, height


if __name__ == "__main__":
    main(sys.argv[1:])
