"""Shared parts of the benchmarks: rows of the table, clocks, peers that run exported networks, and test inputs."""

import argparse
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from codecnn.base.errors import CodecnnError
from codecnn.filtering import FloatFilter
from codecnn.models import FilterNetwork, create_model
from codecnn.pictures.files import Picture, parse_size

Row = dict[str, Any]
Planes = Mapping[str, Tensor]
Run = Callable[[Planes], dict[str, Tensor]]

OPENVINO_PRECISIONS = ("f32", "bf16")
"""Precisions that OpenVINO is set to. By default it chooses one of them depending on the processor."""
QP = 37
"""QP that the benchmarks pass to networks; time does not depend on it."""


def make_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Create the parser of a benchmark, whose help keeps the line breaks of the description."""
    return argparse.ArgumentParser(
        prog=f"benchmark.py {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def size_argument(text: str) -> tuple[int, int]:
    """Parse an argument of the form WxH into width and height."""
    try:
        return parse_size(text)
    except CodecnnError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def row(
    what: str,
    unit: str,
    ours: Sequence[float],
    peer: str | None = None,
    peer_figures: Sequence[float] = (),
    note: str = "",
) -> Row:
    """Create a row of the table.

    If both have the same number of turns, a ratio is computed for each turn, since both ran under the same load in it.
    Otherwise the only ratio is that of the medians.

    Args:
        what: Description of the measured quantity.
        unit: Unit of the figures.
        ours: Figures of codecnn, one per turn.
        peer: Name of the peer.
        peer_figures: Figures of the peer, one per turn; empty if it was not measured.
        note: Reason why the peer was not measured.

    Returns:
        The medians "ours" and "theirs", and the median, minimum and maximum of the ratios.
    """
    entry: Row = {"what": what, "unit": unit, "ours": statistics.median(ours), "peer": peer, "note": note}
    if peer_figures:
        paired = len(ours) == len(peer_figures)
        pairs = zip(ours, peer_figures, strict=True) if paired else [(entry["ours"], statistics.median(peer_figures))]
        ratios = [a / b for a, b in pairs]
        entry |= {"theirs": statistics.median(peer_figures), "ratio": statistics.median(ratios), "turns": len(ratios)}
        entry |= {"least": min(ratios), "most": max(ratios)}
    return entry


def markdown_table(rows: Sequence[Row]) -> list[str]:
    """Format rows as the lines of a Markdown table."""
    return ["| what | codecnn | peer | ratio |", "|---|---:|---:|---:|", *map(_table_line, rows)]


def _table_line(entry: Row) -> str:
    unit, peer, ratio = entry["unit"], entry["peer"] or "–", "–"
    if "ratio" in entry:
        peer, ratio = f"{format_figure(entry['theirs'])} {unit}, {entry['peer']}", format_figure(entry["ratio"])
        if entry["turns"] > 1:
            ratio += f" ({format_figure(entry['least'])} to {format_figure(entry['most'])})"
    elif entry["note"]:
        peer += f": {entry['note']}"
    return f"| {entry['what']} | {format_figure(entry['ours'])} {unit} | {peer} | {ratio} |"


def format_figure(value: float) -> str:
    """Format a figure with three significant digits, or as an integer from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that a call takes by a clock."""
    started = clock()
    call()
    return clock() - started


def in_turns(calls: Mapping[str, Callable[[], object]], runs: int) -> dict[str, list[float]]:
    """Time several calls by turns, after one untimed call of each.

    Processor time is measured if torch uses one thread, which other processes disturb less, else wall time.

    Args:
        calls: The calls by name.
        runs: Timed runs of each call.

    Returns:
        Seconds of the runs by name.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs):
        for name, call in calls.items():
            times[name].append(seconds(call, clock))
    return times


def peak_mib() -> float:
    """Return the peak of this process's resident memory in MiB.

    Linux reports it as VmHWM. The figure of getrusage starts with the peak of the parent process there.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def noise_picture(height: int, width: int) -> Picture:
    """Create a 10-bit 4:2:0 picture in which every sample differs from its neighbours."""
    rng = np.random.default_rng(0)
    shapes = [(height, width)] + [((height + 1) // 2, (width + 1) // 2)] * 2
    return Picture(tuple(np.clip(rng.normal(512, 170, shape), 0, 1023).astype("<u2") for shape in shapes), 10)


@torch.no_grad()
def randomised_model(name: str) -> FilterNetwork:
    """Create a network whose last layers are random instead of zero, so that it changes 10-bit samples by up to 20."""
    torch.manual_seed(0)
    model = create_model(name).eval()
    last = [weight for weight in model.parameters() if weight.ndim == 4 and not weight.any()]
    for weight in last:
        torch.nn.init.normal_(weight, std=0.02)
    probe = noise_picture(48, 48)
    filtered = FloatFilter(model).samples(probe, QP, auxiliary_planes(model.planes, probe))["y"]
    for weight in last:
        weight *= 20 / np.abs(filtered - probe.y).max()
    return model


def auxiliary_planes(planes: Sequence[str], picture: Picture) -> dict[str, np.ndarray]:
    """Create the planes other than decoded samples and QP for a network; time does not depend on their values."""
    strengths = np.zeros(picture.y.shape, np.int8)
    available = {"unf_y": picture.y ^ 1, "pred_y": picture.y ^ 2, "bs_v": strengths, "bs_h": strengths}
    available |= {"prev_mc_y": picture.y ^ 4, "next_mc_y": picture.y ^ 8}
    available |= {"prev2_mc_y": picture.y ^ 5, "next2_mc_y": picture.y ^ 9}
    available["slice_type"] = np.zeros(picture.y.shape, np.float32)
    return {name: plane for name, plane in available.items() if name in planes}


def run_in_onnxruntime(model: Path | bytes, threads: int) -> Run:
    """Return a function that computes the outputs of an ONNX file, or of its content, with ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs, outputs = ([value.name for value in ends] for ends in (session.get_inputs(), session.get_outputs()))

    def run(planes: Planes) -> dict[str, Tensor]:
        arrays = session.run(outputs, {name: planes[name].numpy() for name in inputs})
        return {name: torch.from_numpy(array) for name, array in zip(outputs, arrays, strict=True)}

    return run


def run_in_openvino(model: Path | bytes, threads: int, precision: str = "f32") -> Run:
    """Return a function that computes the outputs of an ONNX file, or of its content, with OpenVINO on the CPU."""
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", settings)
    inputs, outputs = ([value.any_name for value in ends] for ends in (compiled.inputs, compiled.outputs))

    def run(planes: Planes) -> dict[str, Tensor]:
        arrays = compiled({name: planes[name].numpy() for name in inputs}, share_inputs=True)
        return {name: torch.from_numpy(arrays[name]) for name in outputs}

    return run
