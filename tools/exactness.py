"""Exactness of integer networks over many samples of real pictures: NumPy against PyTorch, all ways of running it.

    python tools/exactness.py PICTURE... -o exactness.jsonl [--gmacs 12] [--network NAME...] [--device cuda]

Every network, in 16 bits and in 8 (int8/NAME), and all integers that come with codecnn (zoo/NAME.int16,
zoo/NAME.int8), filters windows of the pictures, of random sizes, positions and QPs, once in plain NumPy and then with
PyTorch in one piece, in tiles, in float64, with two threads, row by row in products of bytes, in a batch of eight
and laid out otherwise. With ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI products are those of VNNI where there is AMX.
One line a window goes into the output, with the number of samples that differ; run again, it goes on behind the last
one.
Each gets the same number of multiply-accumulates, and so a cheap one more samples: 10^8 of them take 12 for all and
then 420 for low_cost_5. Weights of networks are random of the usual scale, their integers calibrated on the first
picture. A plane that a picture does not have is made up: unf_y of noise on it, those of the coding tree at random.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

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
from codecnn.planes import CELL_PLANES, SLICE_TYPE_PLANE
from codecnn.runs import append_jsonl, read_jsonl
from codecnn.video import Picture, read_still

SHIPPED, EIGHT = "zoo/", "int8/"
WINDOW_GMACS = 3.0
"""Multiply-accumulates of a window, where the picture is as large; it keeps the plain form to seconds."""


def names() -> list[str]:
    """Networks with random weights, and weights that come with the package."""
    return [
        *list_models(),
        *(f"{EIGHT}{name}" for name in list_models()),
        *(f"{SHIPPED}{path.stem}" for path in sorted(FOLDER.glob("*.int*.safetensors"))),
    ]


def network_of(name: str, picture: Picture) -> tuple[FilterNetwork, IntegerNetwork]:
    """The network with random weights, or one with its own, and its integer form."""
    if name.startswith(SHIPPED):
        path = FOLDER / f"{name.removeprefix(SHIPPED)}.safetensors"
        return load_model(weights_path(path.stem.rpartition(".")[0]))[0], load_integer(path)[0]
    torch.manual_seed(1)
    model = create_model(name.removeprefix(EIGHT)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():  # what starts at zero would hide everything
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    graph = build_graph(model)
    made = quantise_eight if name.startswith(EIGHT) else quantise
    return model, made(graph, magnitudes(graph, picture), 10)


def magnitudes(graph: Graph, picture: Picture) -> dict[str, float]:
    """The largest magnitude of each tensor on the upper left of a picture."""
    planes = {}
    for name, plane in zip(("rec_y", "rec_u", "rec_v"), picture.planes, strict=True):
        side = (128 if name == "rec_y" else 64) + 2 * graph.halo // (1 if name == "rec_y" else 2)
        planes[name] = torch.from_numpy(plane[:side, :side].astype(np.float32) / 1024)[None, None]
    largest: dict[str, float] = {}
    with torch.inference_mode():
        run(graph, planes, 37, lambda name, x: largest.__setitem__(name, float(x.abs().max())))
    return largest


def window(pictures: list[Picture], rng: np.random.Generator, samples: float) -> Picture:
    """A window of about `samples` luma samples, of any shape and position; chroma is 4:2:0 of it."""
    picture = pictures[int(rng.integers(len(pictures)))]
    height, width = picture.y.shape
    h = int(min(height, max(16, samples**0.5 * rng.uniform(0.6, 1.6))))
    w = int(min(width, max(16, samples / h)))
    y, x = 2 * int(rng.integers((height - h) // 2 + 1)), 2 * int(rng.integers((width - w) // 2 + 1))
    cut = [picture.y[y : y + h, x : x + w]]
    cut += [plane[y // 2 : y // 2 + (h + 1) // 2, x // 2 : x // 2 + (w + 1) // 2] for plane in picture.planes[1:]]
    return Picture(tuple(np.ascontiguousarray(plane) for plane in cut), 10)


def planes_of(names: Sequence[str], picture: Picture, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Planes of the picture, and made-up ones for all others in `names`."""
    planes = dict(zip(("rec_y", "rec_u", "rec_v"), picture.planes, strict=True))
    height, width = picture.y.shape
    for name in names:
        if name in SAMPLE_PLANES and name not in planes:
            noisy = picture.y + rng.integers(-16, 17, picture.y.shape)
            planes[name] = np.clip(noisy, 0, 1023).astype(picture.y.dtype)
        elif name == SLICE_TYPE_PLANE:
            planes[name] = np.full(picture.y.shape, rng.integers(2), np.float32)
        elif name not in planes:
            cells = rng.integers(0, 4, (-(-height // 4), -(-width // 4))).repeat(4, axis=0).repeat(4, axis=1)
            planes[name] = (cells[:height, :width] / CELL_PLANES[name].scale).astype(np.float32)
    return planes


def differing(network: IntegerNetwork, picture: Picture, qp: int, device: str, rng: np.random.Generator) -> dict:
    """Number of samples of the window, how many of them differ in each way, and the MD5 of the plain form's."""
    planes = planes_of(network.graph.planes, picture, rng)
    expected = filter_reference(network, {name: planes[name] for name in network.graph.planes}, qp, 10)
    tile = int(rng.integers(64, max(picture.y.shape) + 64))
    ways: dict[str, tuple[int | None, int, Engine | None]] = {
        "whole": (None, 1, "float32"),
        "tiles": (tile, 2, "float32"),
        "float64": (tile, 1, "float64"),
    }
    if "int8" in engines(network, device):
        ways |= {"int8": (None, 1, "int8"), "int8 in tiles": (tile, 2, "int8")}
    wrong = {}
    for way, (side, threads, engine) in ways.items():
        torch.set_num_threads(threads)
        made = ExactFilter(network, device=device, tile=side, engine=engine).samples(picture, qp, planes)
        wrong[way] = sum(int((made[name] != expected[name]).sum()) for name in expected)
    wrong["batch"] = in_batches(network, planes, qp, device, rng)
    samples = sum(plane.size for plane in expected.values())
    return {"samples": samples, "differing": wrong, "tile": tile, "md5": md5_of(expected)}


def in_batches(
    network: IntegerNetwork, planes: dict[str, np.ndarray], qp: int, device: str, rng: np.random.Generator
) -> int:
    """Number of samples of eight windows, filtered together in another layout, that differ from each filtered alone."""
    graph, fast = network.graph, FastNetwork(network, device)
    side = 16 + -16 % graph.stride + 2 * graph.halo
    shape = planes["rec_y"].shape
    if min(shape) < side + 2:
        return 0
    places = [[int(rng.integers((size - side) // 2)) for size in shape] for _ in range(8)]
    batch = {}
    for name in graph.planes:
        factor = 2 if name in CHROMA_PLANES else 1
        plane = planes[name]
        own = side // factor
        cuts = [plane[2 * y // factor :, 2 * x // factor :][:own, :own] for y, x in places]
        batch[name] = torch.from_numpy(np.stack(cuts).astype(np.float32))[:, None].to(device)
    together = fast({name: t.contiguous(memory_format=torch.channels_last) for name, t in batch.items()}, qp, 10)
    wrong = 0
    for index in range(8):
        alone = fast({name: t[index : index + 1] for name, t in batch.items()}, qp, 10)
        wrong += sum(int((alone[name] != together[name][index : index + 1]).sum()) for name in alone)
    return wrong


def main(argv: list[str]) -> int:
    """Compare until every network has its multiply-accumulates; 1 where a sample differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pictures", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--gmacs", type=float, default=12, help="billions of multiply-accumulates a network")
    parser.add_argument("--network", action="append", choices=names())
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(argv)

    done, spent = Counter[str](), defaultdict[str, float](float)
    for line in read_jsonl(given.output):
        done[line["network"]] += 1
        spent[line["network"]] += line["gmacs"]
    pictures = [read_still(path, chroma="420", bit_depth=10) for path in given.pictures]
    for name in given.network or names():
        model, network = network_of(name, pictures[0])
        macs = complexity(model).kmac_per_pixel * 1000
        while spent[name] < given.gmacs:
            rng = np.random.default_rng([done[name], *name.encode()])
            picture = window(pictures, rng, WINDOW_GMACS * 1e9 / macs)
            qp = int(rng.integers(64))
            found = differing(network, picture, qp, given.device, rng)
            gmacs = picture.y.size * macs / 1e9
            about = {"network": name, "window": done[name], "gmacs": gmacs, "qp": qp, "device": given.device}
            append_jsonl(given.output, about | found)
            done[name] += 1
            spent[name] += gmacs
    lines = read_jsonl(given.output)
    wrong = sum(sum(line["differing"].values()) for line in lines)
    samples = Counter[str]()
    for line in lines:
        samples[line["network"]] += line["samples"]
    sys.stdout.write(json.dumps({"samples": dict(samples), "total": samples.total(), "differing": wrong}) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
