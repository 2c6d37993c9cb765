"""Speed and memory of inference on the CPU against plain PyTorch, ONNX Runtime and OpenVINO.

    python tools/benchmark.py inference --size 640x384                     all ways by turns
    python tools/benchmark.py inference --network low_cost_17 --runs 5
    python tools/benchmark.py inference --only codecnn --size 3840x2160    peak memory of one way

All ways use the same weights, the same 10-bit picture, float32 and the same number of threads, and each run is a
separate process. "eager" is a plain PyTorch module: for an RDN without shuffle as its public implementations are
written (NCHW, torch.cat), for other networks codecnn's module before it is prepared for inference. ONNX Runtime and
OpenVINO run what `codecnn export` writes. The peers take the picture in one piece. Loading, compiling and a first pass,
in which all ways allocate memory, are not counted. Memory is that of the process, Python and PyTorch included in all
ways. The outputs of all ways must agree to 1e-4 of full scale. Figures are the least of the runs. CPU time is that of
all threads; on a busy machine compare it with --threads 1.
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

from codecnn.base.planes import QP_SCALE
from codecnn.filtering import FloatFilter, in_tiles
from codecnn.models import FilterNetwork, create_model, list_models, named_outputs
from codecnn.models.families.rdn import RDN
from tools.bench._common import (
    QP,
    Planes,
    Row,
    make_parser,
    peak_mib,
    randomised_model,
    row,
    run_in_onnxruntime,
    run_in_openvino,
    size_argument,
)

PACKAGES = {
    "eager": (),
    "onnxruntime": ("onnx", "onnxruntime"),
    "openvino": ("onnx", "onnxruntime", "openvino"),
    "codecnn": (),
}
"""Packages that each way needs. The export itself is checked with onnxruntime, whichever peer runs it."""
TOLERANCE = 1e-4
"""Largest difference between the outputs of two ways, as a share of full scale."""


class EagerRDN(nn.Module):
    """The layers of an RDN, computed as public implementations of its paper write them."""

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
    """Return whether `EagerRDN` computes this network."""
    return (
        type(model) is RDN
        and model.stride == 1
        and model.planes == model.channels == ("rec_y", "qp")
        and model.head2 is not None
        and model.global_residual
        and all(block.local_residual for block in model.blocks)
        and not model.predicts_picture
    )


def picture_planes(model: FilterNetwork, width: int, height: int) -> dict[str, Tensor]:
    """Create the network's planes for a 10-bit 4:2:0 picture of waves and noise, samples as x / 2^10, and the QP."""
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
def measure_way(way: str, options: argparse.Namespace) -> dict[str, float]:
    """Measure wall and CPU seconds of one pass over a picture, and the peak memory of this process in MiB."""
    torch.set_num_threads(options.threads)
    model = randomised_model(options.network)
    planes = picture_planes(model, *options.size)
    height, width = planes["rec_y"].shape[2:]
    filter_ = FloatFilter(model)
    run, (tile, threads) = filter_.model, filter_.tiles((height, width))
    if way == "eager":
        module = EagerRDN(model).eval() if is_eager_rdn(model) else model
        run, tile, threads = (lambda window: named_outputs(module(window))), None, 1
    elif way != "codecnn":
        run = {"onnxruntime": run_in_onnxruntime, "openvino": run_in_openvino}[way](options.onnx, options.threads)
        tile, threads = None, 1

    def filter_picture() -> dict[str, Tensor]:
        return in_tiles(run, model, planes, tile, threads)

    filter_picture()
    started, before = time.perf_counter(), time.process_time()
    filtered = filter_picture()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - before
    if options.save is not None:
        np.savez(options.save, **{name: plane.numpy() for name, plane in filtered.items()})
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mib": peak_mib()}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all ways by turns, each run in its own process.

    Returns:
        "ways", the figures of each way by turn, and "missing", the reasons why a way is missing.
    """
    missing = {}
    for way, packages in PACKAGES.items():
        absent = [name for name in packages if find_spec(name) is None]
        if absent:
            missing[way] = f"{' and '.join(absent)} not here: pip install 'codecnn[benchmark]'"
    ways: dict[str, dict[str, list[float]]] = {
        way: {"seconds": [], "cpu_seconds": [], "peak_mib": []} for way in PACKAGES if way not in missing
    }
    width, height = options.size
    benchmark = [sys.executable, str(Path(__file__).resolve().parents[1] / "benchmark.py"), "inference"]
    arguments = ["--network", options.network, "--size", f"{width}x{height}", "--threads", str(options.threads)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "onnxruntime" in ways:
            from codecnn.models import export_onnx

            export_onnx(folder / "network.onnx", randomised_model(options.network))
            arguments += ["--onnx", str(folder / "network.onnx")]
        for _ in range(options.runs):
            for way, figures in ways.items():
                command = [*benchmark, "--only", way, *arguments, "--save", str(folder / f"{way}.npz")]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                for key, figure in json.loads(done.stdout.splitlines()[-1]).items():
                    figures[key].append(figure)
        for way in ways:
            check_output(way, folder)
    return {"ways": ways, "missing": missing}


def check_output(way: str, folder: Path) -> None:
    """Exit with an error if the planes that a way wrote differ from codecnn's by more than TOLERANCE."""
    with np.load(folder / "codecnn.npz") as expected, np.load(folder / f"{way}.npz") as outputs:
        if set(outputs) != set(expected):
            sys.exit(f"{way} computes the outputs {', '.join(outputs)}, codecnn {', '.join(expected)}")
        difference = max(float(np.abs(expected[name] - outputs[name]).max()) for name in expected)
    if not difference <= TOLERANCE:
        sys.exit(f"the outputs of {way} and codecnn differ by {difference:.1e} of full scale, more than {TOLERANCE}")


def rows(result: dict[str, Any], options: argparse.Namespace) -> list[Row]:
    """Create the rows: time, CPU time and memory against each peer."""
    ours = result["ways"]["codecnn"]
    width, height = options.size
    what = f"`{options.network}` on {width}x{height}, {options.threads} threads"
    plain = "PyTorch, `torch.cat`" if is_eager_rdn(create_model(options.network)) else "PyTorch, the plain module"
    titles = {"eager": plain, "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
    kinds = (("seconds", "s", "time"), ("cpu_seconds", "s", "CPU time"), ("peak_mib", "MiB", "memory"))
    return [
        row(
            f"{what}: {kind}",
            unit,
            ours[key],
            title,
            result["ways"].get(way, {}).get(key, ()),
            result["missing"].get(way, ""),
        )
        for key, unit, kind in kinds
        for way, title in titles.items()
    ]


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return the rows."""
    parser = make_parser("inference", __doc__)
    parser.add_argument(
        "--network", default="rdn_32_4_6_24", choices=list_models(), metavar="NAME", help="[rdn_32_4_6_24]"
    )
    parser.add_argument("--size", type=size_argument, default="640x384", help="of the picture, WxH [640x384]")
    parser.add_argument("--runs", type=int, default=3, help="turns of each way [3]")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="CPU threads [all]")
    parser.add_argument("--only", choices=PACKAGES, help="measure this way once, in this process")
    parser.add_argument("--save", type=Path, help="with --only: write the filtered planes, .npz")
    parser.add_argument("--onnx", type=Path, help="with --only onnxruntime or openvino: the exported network")
    options = parser.parse_args(argv)
    if options.only:
        if PACKAGES[options.only] and options.onnx is None:
            parser.error(f"--only {options.only} needs --onnx: without --only, the benchmark writes that file itself")
        print(json.dumps(measure_way(options.only, options)))
        return []
    result = measure(options)
    least = {way: {key: min(turns) for key, turns in figures.items()} for way, figures in result["ways"].items()}
    width, height = options.size
    print(f"{options.network}, {width}x{height}, {options.threads} threads, least of {options.runs} runs by turns")
    for way, figures in least.items():
        ratio = {key: least["codecnn"][key] / figures[key] for key in figures}
        print(
            f"{way:11} {figures['seconds']:8.3f} s, CPU {figures['cpu_seconds']:8.3f} s, "
            f"{figures['peak_mib']:6.0f} MiB resident; codecnn takes {ratio['seconds']:.3f} of the time, "
            f"{ratio['cpu_seconds']:.3f} of the CPU time, {ratio['peak_mib']:.3f} of the memory"
        )
    for way, reason in result["missing"].items():
        print(f"{way:11} {reason}")
    return rows(result, options)
