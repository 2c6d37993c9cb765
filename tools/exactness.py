"""Compare integer networks over many samples of real pictures: NumPy against PyTorch in all its ways of execution.

    python tools/exactness.py PICTURE... -o exactness.jsonl [--gmacs 12] [--network NAME...] [--device cuda]

Every architecture in 16 bits (NAME) and in 8 bits (int8/NAME), and all integer weights of the package (zoo/NAME.int8),
filter windows of the pictures of random size, position and QP: once in plain NumPy, then with PyTorch
in one piece, in tiles, in float64, with two threads, row by row in products of bytes, in batches of eight and in
another memory layout. With ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI, processors with AMX use VNNI.

The output gets a line for every window, with the number of samples that differ; another run continues after the last
line. Every network gets the same number of multiply-accumulates, so cheap networks get more samples: 10^8 samples of
all networks take --gmacs 12 and then 420 for low_cost_5. Architectures have random weights of the usual scale,
calibrated on the first picture. Planes that a picture does not have are synthetic: unf_y adds noise, planes of the
coding tree are random.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from codecnn.base.division import ceil_div
from codecnn.base.files import append_jsonl, read_jsonl
from codecnn.base.planes import CELL_PLANES, SLICE_TYPE_PLANE
from codecnn.filtering.integer import (
    Engine,
    ExactFilter,
    FastNetwork,
    IntegerNetwork,
    engines,
    filter_reference,
    load_integer,
    md5_of,
    quantise,
    quantise_eight,
)
from codecnn.models import (
    CHROMA_PLANES,
    SAMPLE_PLANES,
    FilterNetwork,
    build_graph,
    complexity,
    create_model,
    list_models,
    load_model,
    weights_path,
)
from codecnn.models.graph import Graph, run
from codecnn.models.zoo import FOLDER
from codecnn.pictures.files import Picture, read_still

SHIPPED, EIGHT = "zoo/", "int8/"
WINDOW_GMACS = 3.0
"""Billions of multiply-accumulates of a window in a picture that is large enough; NumPy takes seconds for it."""


def main(argv: list[str]) -> int:
    """Compare until every network has its multiply-accumulates; return 1 if a sample differs, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="+", type=Path, help="pictures, e.g. PNG")
    parser.add_argument("-o", "--output", type=Path, required=True, help="file of the lines, .jsonl")
    parser.add_argument("--gmacs", type=float, default=12, help="billions of multiply-accumulates per network [12]")
    parser.add_argument("--network", action="append", choices=network_names(), metavar="NAME", help="networks [all]")
    parser.add_argument("--device", default="cpu", help="device of PyTorch [cpu]")
    options = parser.parse_args(argv)

    windows, spent = Counter[str](), defaultdict[str, float](float)
    for line in read_jsonl(options.output):
        windows[line["network"]] += 1
        spent[line["network"]] += line["gmacs"]
    pictures = [read_still(path, chroma="420", bit_depth=10) for path in options.pictures]
    for name in options.network or network_names():
        model, network = load_network(name, pictures[0])
        macs = complexity(model).kmac_per_pixel * 1000
        while spent[name] < options.gmacs:
            rng = np.random.default_rng([windows[name], *name.encode()])
            picture = draw_window(pictures, rng, WINDOW_GMACS * 1e9 / macs)
            qp = int(rng.integers(64))
            result = compare_window(network, picture, qp, options.device, rng)
            gmacs = picture.y.size * macs / 1e9
            facts = {"network": name, "window": windows[name], "gmacs": gmacs, "qp": qp, "device": options.device}
            append_jsonl(options.output, facts | result)
            windows[name] += 1
            spent[name] += gmacs
    lines = read_jsonl(options.output)
    differing = sum(sum(line["differing"].values()) for line in lines)
    samples = Counter[str]()
    for line in lines:
        samples[line["network"]] += line["samples"]
    print(json.dumps({"samples": dict(samples), "total": samples.total(), "differing": differing}))
    return int(differing > 0)


def network_names() -> list[str]:
    """Return the names of architectures with random weights, and of the integer weights of the package."""
    return [
        *list_models(),
        *(f"{EIGHT}{name}" for name in list_models()),
        *(f"{SHIPPED}{path.stem}" for path in sorted(FOLDER.glob("*.int*.safetensors"))),
    ]


def load_network(name: str, picture: Picture) -> tuple[FilterNetwork, IntegerNetwork]:
    """Load integer weights of the package, or create random weights and calibrate their integers on a picture.

    Args:
        name: A name of `network_names`.
        picture: The picture.

    Returns:
        The float network and its integer form.
    """
    if name.startswith(SHIPPED):
        path = FOLDER / f"{name.removeprefix(SHIPPED)}.safetensors"
        return load_model(weights_path(path.stem.rpartition(".")[0]))[0], load_integer(path)[0]
    torch.manual_seed(1)
    model = create_model(name.removeprefix(EIGHT)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():  # a last layer of zeros would hide every difference
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    graph = build_graph(model)
    quantise_graph = quantise_eight if name.startswith(EIGHT) else quantise
    return model, quantise_graph(graph, largest_magnitudes(graph, picture), 10)


def largest_magnitudes(graph: Graph, picture: Picture) -> dict[str, float]:
    """Return the largest magnitude of each tensor for the upper left part of a picture."""
    planes = {}
    for name, plane in zip(("rec_y", "rec_u", "rec_v"), picture.planes, strict=True):
        side = (128 if name == "rec_y" else 64) + 2 * graph.halo // (1 if name == "rec_y" else 2)
        planes[name] = torch.from_numpy(plane[:side, :side].astype(np.float32) / 1024)[None, None]
    largest: dict[str, float] = {}
    with torch.inference_mode():
        run(graph, planes, 37, lambda name, x: largest.__setitem__(name, float(x.abs().max())))
    return largest


def draw_window(pictures: list[Picture], rng: np.random.Generator, samples: float) -> Picture:
    """Draw a 4:2:0 window of about `samples` luma samples, of random shape and position."""
    picture = pictures[int(rng.integers(len(pictures)))]
    height, width = picture.y.shape
    h = int(min(height, max(16, samples**0.5 * rng.uniform(0.6, 1.6))))
    w = int(min(width, max(16, samples / h)))
    y, x = 2 * int(rng.integers((height - h) // 2 + 1)), 2 * int(rng.integers((width - w) // 2 + 1))
    planes = [picture.y[y : y + h, x : x + w]]
    planes += [plane[y // 2 : y // 2 + (h + 1) // 2, x // 2 : x // 2 + (w + 1) // 2] for plane in picture.planes[1:]]
    return Picture(tuple(np.ascontiguousarray(plane) for plane in planes), 10)


def synthetic_planes(names: Sequence[str], picture: Picture, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the planes of a picture, and synthetic ones for all other `names`."""
    planes = dict(zip(("rec_y", "rec_u", "rec_v"), picture.planes, strict=True))
    height, width = picture.y.shape
    for name in names:
        if name in SAMPLE_PLANES and name not in planes:
            noisy = picture.y + rng.integers(-16, 17, picture.y.shape)
            planes[name] = np.clip(noisy, 0, 1023).astype(picture.y.dtype)
        elif name == SLICE_TYPE_PLANE:
            planes[name] = np.full(picture.y.shape, rng.integers(2), np.float32)
        elif name not in planes:
            cells = rng.integers(0, 4, (ceil_div(height, 4), ceil_div(width, 4))).repeat(4, axis=0).repeat(4, axis=1)
            planes[name] = (cells[:height, :width] / CELL_PLANES[name].scale).astype(np.float32)
    return planes


def compare_window(
    network: IntegerNetwork, picture: Picture, qp: int, device: str, rng: np.random.Generator
) -> dict[str, Any]:
    """Filter a window in NumPy and in all ways of PyTorch.

    Args:
        network: The integer network.
        picture: The window.
        qp: The QP.
        device: Device of PyTorch.
        rng: Generator for synthetic planes, tile size and batches.

    Returns:
        The number of "samples", the number of "differing" samples by way, the size of the "tile", and the "md5" of
        NumPy's result.
    """
    planes = synthetic_planes(network.graph.planes, picture, rng)
    expected = filter_reference(network, {name: planes[name] for name in network.graph.planes}, qp, 10)
    tile = int(rng.integers(64, max(picture.y.shape) + 64))
    ways: dict[str, tuple[int | None, int, Engine | None]] = {
        "whole": (None, 1, "float32"),
        "tiles": (tile, 2, "float32"),
        "float64": (tile, 1, "float64"),
    }
    if "int8" in engines(network, device):
        ways |= {"int8": (None, 1, "int8"), "int8 in tiles": (tile, 2, "int8")}
    differing = {}
    for way, (side, threads, engine) in ways.items():
        torch.set_num_threads(threads)
        actual = ExactFilter(network, device=device, tile=side, engine=engine).samples(picture, qp, planes)
        differing[way] = sum(int((actual[name] != expected[name]).sum()) for name in expected)
    differing["batch"] = compare_batch(network, planes, qp, device, rng)
    samples = sum(plane.size for plane in expected.values())
    return {"samples": samples, "differing": differing, "tile": tile, "md5": md5_of(expected)}


def compare_batch(
    network: IntegerNetwork, planes: dict[str, np.ndarray], qp: int, device: str, rng: np.random.Generator
) -> int:
    """Count the samples of eight windows that differ between a channels-last batch and the windows one by one."""
    graph, fast = network.graph, FastNetwork(network, device)
    side = 16 + -16 % graph.stride + 2 * graph.halo
    shape = planes["rec_y"].shape
    if min(shape) < side + 2:
        return 0
    positions = [[int(rng.integers((size - side) // 2)) for size in shape] for _ in range(8)]
    batch = {}
    for name in graph.planes:
        factor = 2 if name in CHROMA_PLANES else 1
        size = side // factor
        windows = [planes[name][2 * y // factor :, 2 * x // factor :][:size, :size] for y, x in positions]
        batch[name] = torch.from_numpy(np.stack(windows).astype(np.float32))[:, None].to(device)
    together = fast({name: t.contiguous(memory_format=torch.channels_last) for name, t in batch.items()}, qp, 10)
    differing = 0
    for index in range(8):
        alone = fast({name: t[index : index + 1] for name, t in batch.items()}, qp, 10)
        differing += sum(int((alone[name] != together[name][index : index + 1]).sum()) for name in alone)
    return differing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
