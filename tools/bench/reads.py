"""Reading CTUs at random: codecnn's memory maps against h5py and zarr that hold the same pictures.

A pair is a 132x132 decoded and a 128x128 original patch, copied into the arrays of a batch. All read the same patches
in the same random order from warm page cache, taking turns, on one core; that they read the same samples is checked.
Then the whole loader: random symmetries, float tensors as a network gets them, a network that does nothing.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import skimage.data
import torch

from codecnn.dataset import (
    CtuPatches,
    Patch,
    PatchReader,
    ResidentBatches,
    TrainingBatches,
    Unit,
    copy_window,
    iterate,
    open_store,
)
from codecnn.video import VideoFormat
from tools.bench._rows import Row, row

SIZE, HALO, BATCH = 128, 2, 16
PEER_CHUNK = 256
"""Side of a peer's chunk: between a chunk a CTU, of which a halo touches nine, and a whole picture a read."""

Array = npt.NDArray[Any]
Cut = Callable[[Sequence[Patch]], tuple[Array, Array]]


def main(argv: list[str]) -> list[Row]:
    """Measure and print; --json for figures alone."""
    parser = argparse.ArgumentParser(prog="benchmark.py reads", description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, help="a store [pictures made here]")
    parser.add_argument("--split", default="train", help="of the store [train]")
    parser.add_argument("--pictures", type=int, default=6, help="1920x1080 pictures to make [6]")
    parser.add_argument("--bit-depth", type=int, default=8, choices=(8, 10), help="of the pictures to make [8]")
    parser.add_argument("--patches", type=int, default=1600, help="pairs a round [1600]")
    parser.add_argument("--rounds", type=int, default=5, help="turns that each reader takes [5]")
    parser.add_argument("--workers", type=int, default=2, help="processes of the whole loader [2]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    result = measure(options)
    reads, loader = result["reads"], result["loader"]
    if options.json:
        print(json.dumps(result, indent=2))
        return rows(result)
    print(f"{result['machine']}; {result['bit_depth']} bit, {options.patches} pairs x {options.rounds} rounds")
    print(f"\n{'reader':44} {'pairs/s':>9} {'pairs/CPU s':>12} {'codecnn is':>11}")
    for one in reads:
        print(f"{one['reader']:44} {one['pairs_per_s']:9.0f} {one['pairs_per_cpu_s']:12.0f} {one['ratio']:10.1f}x")
    print(f"\n{'whole loader':44} {'pairs/s':>9}")
    for one in loader:
        print(f"{one['loader']:44} {one['pairs_per_s']:9.0f}")
    return rows(result)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Pairs a second of every reader, and of the whole loader."""
    with tempfile.TemporaryDirectory() as folder:
        made = options.store is None
        units = make_units(Path(folder), options) if made else open_store(options.store).split(options.split)
        reads = _reads(units, Path(folder), options)
        loader = _loader(units, options)
    return {"machine": _machine(), "bit_depth": units[0].format.bit_depth, "reads": reads, "loader": loader}


def rows(result: dict[str, Any]) -> list[Row]:
    """Reading against each peer by turns, and the loader alone."""
    ours, *peers = result["reads"]
    depth = result["bit_depth"]
    made = [
        row(f"reading patches, {depth} bit", "pairs/s", ours["turns"], peer["reader"], peer["turns"]) for peer in peers
    ]
    for one in result["loader"]:
        made.append(row(f"the whole loader, {depth} bit, {one['loader']}", "pairs/s", [one["pairs_per_s"]]))
    return made


def _machine() -> str:
    return f"{platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}"


def make_units(folder: Path, options: argparse.Namespace) -> list[Unit]:
    """Units of one picture each, in raw files as a build writes them: natural texture, with noise where decoded."""
    form = VideoFormat(1920, 1080, "420", options.bit_depth)
    rng = np.random.default_rng(0)
    photos = [getattr(skimage.data, name)() for name in ("astronaut", "coffee", "rocket", "chelsea")]
    units = []
    for number in range(options.pictures):
        photo = photos[number % len(photos)].astype(float).mean(axis=2)
        luma = np.roll(np.tile(photo, (5, 6))[:1080, :1920], 37 * number, axis=1)
        planes = (luma, luma[::2, ::2], luma[1::2, 1::2])
        for name, noise in (("original", 0), ("decoded", 3)):
            data = [plane * 2 ** (options.bit_depth - 8) + rng.normal(0, noise, plane.shape) for plane in planes]
            samples = np.concatenate([np.clip(np.rint(plane), 0, 2**options.bit_depth - 1).ravel() for plane in data])
            samples.astype(form.dtype).tofile(folder / f"{name}{number}.yuv")
        figures = {"bits": 0, "psnr_y": 35.0, "psnr_u": None, "psnr_v": None}
        line = {"key": str(number), "sequence": f"picture{number}", "group": f"picture{number}", "split": "train"}
        line |= {"original": f"original{number}.yuv", "decoded": f"decoded{number}.yuv", "format": form, "qp": 32}
        line |= {"encoder": "none", "bitstream": "none", "argv": [], "files": {}, "sizes": {}, **figures}
        line["pictures"] = [{"poc": 0, "slice_type": "I", "qp": 32, **figures}]
        units.append(Unit.from_json(folder, line, folder=folder))
    return units


def _reads(units: Sequence[Unit], folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    patches = CtuPatches(units, SIZE, HALO).patches
    rng = np.random.default_rng(1)
    order = [patches[index] for index in rng.permutation(np.resize(np.arange(len(patches)), options.patches))]
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    with ExitStack() as stack:
        readers = {"codecnn, memory map": _codecnn(PatchReader(units, SIZE, HALO))}
        readers |= _peers(units, folder, stack)
        for name, cut in readers.items():  # also warms caches
            for batch in batches[:10]:
                for ours, theirs in zip(readers["codecnn, memory map"](batch), cut(batch), strict=True):
                    if not np.array_equal(ours, theirs):
                        sys.exit(f"{name} reads other samples than codecnn")
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in readers}
        for _ in range(options.rounds):
            for name, cut in readers.items():
                seconds[name].append(_time(cut, batches))
    wall, cpu = ({name: float(np.median([pair[i] for pair in row])) for name, row in seconds.items()} for i in (0, 1))
    ours = wall["codecnn, memory map"]
    return [
        {
            "reader": name,
            "pairs_per_s": len(order) / wall[name],
            "pairs_per_cpu_s": len(order) / cpu[name],
            "ratio": wall[name] / ours,
            "turns": [len(order) / turn for turn, _ in seconds[name]],
        }
        for name in readers
    ]


def _time(cut: Cut, batches: Sequence[Sequence[Patch]]) -> tuple[float, float]:
    """Wall and CPU seconds of cutting all batches."""
    wall, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        cut(batch)
    return time.perf_counter() - wall, time.process_time() - cpu


def _codecnn(reader: PatchReader) -> Cut:
    def cut(patches: Sequence[Patch]) -> tuple[Array, Array]:
        batch = reader.cut(patches, [0] * len(patches))
        return batch["rec_y"][:, 0], batch["orig_y"][:, 0]

    return cut


def _peers(units: Sequence[Unit], folder: Path, stack: ExitStack) -> dict[str, Cut]:
    """Readers of h5py files and zarr arrays (pictures, h, w) with the luma of all pictures, one a size of picture."""
    try:
        import h5py
        import zarr
    except ImportError as error:
        sys.exit(f"the benchmark needs {error.name}: pip install 'codecnn[benchmark]'")
    reader = PatchReader(units, SIZE, HALO)
    count = len(units)
    kinds = ("decoded", "original")

    def picture(kind: str, unit: int) -> Array:
        return np.stack([reader.files.plane(kind, unit, i, 0) for i in range(reader.files.counts[unit])])

    def filled(create: Callable[[str, Array], Any]) -> Cut:
        arrays = {(kind, unit): create(f"{kind}{unit}", picture(kind, unit)) for kind in kinds for unit in range(count)}
        return _peer(arrays, reader.dtype)

    h5 = f"h5py {h5py.__version__} (HDF5 {h5py.version.hdf5_version})"
    plain = stack.enter_context(h5py.File(folder / "plain.h5", "w"))
    chunked = stack.enter_context(h5py.File(folder / "chunked.h5", "w"))
    chunks = (1, PEER_CHUNK, PEER_CHUNK)
    group = zarr.create_group(folder / "default.zarr")
    bare = zarr.create_group(folder / "bare.zarr")
    z = f"zarr {zarr.__version__}"

    def in_zarr(target: Any, **how: Any) -> Callable[[str, Array], Any]:
        def create(name: str, data: Array) -> Any:
            array = target.create_array(name, shape=data.shape, dtype=data.dtype, chunks=chunks, **how)
            array[:] = data
            return array

        return create

    return {
        f"{h5}, contiguous": filled(lambda name, data: plain.create_dataset(name, data=data)),
        f"{h5}, chunks {PEER_CHUNK}": filled(lambda name, data: chunked.create_dataset(name, data=data, chunks=chunks)),
        f"{z}, chunks {PEER_CHUNK}, uncompressed": filled(in_zarr(bare, compressors=None)),
        f"{z}, chunks {PEER_CHUNK}, its compression": filled(in_zarr(group)),
    }


def _peer(arrays: dict[tuple[str, int], Any], dtype: np.dtype[Any]) -> Cut:
    def cut(patches: Sequence[Patch]) -> tuple[Array, Array]:
        outputs = []
        for kind, halo in (("decoded", HALO), ("original", 0)):
            side = SIZE + 2 * halo
            out = np.empty((len(patches), side, side), dtype)
            for target, (unit, picture, x, y) in zip(out, patches, strict=True):
                array = arrays[kind, unit]
                left, top = max(x - halo, 0), max(y - halo, 0)
                # What lies inside the picture; beyond its edge the nearest sample is repeated.
                window = array[picture, top : y - halo + side, left : x - halo + side]
                copy_window(target, window, x - halo - left, y - halo - top)
            outputs.append(out)
        return outputs[0], outputs[1]

    return cut


def _loader(units: Sequence[Unit], options: argparse.Namespace) -> list[dict[str, Any]]:
    steps = max(options.patches // BATCH, 50) * options.rounds
    data = TrainingBatches(units, batch=BATCH, steps=steps, size=SIZE, halo=HALO, positions="ctu")
    resident = ResidentBatches(data, "cpu")
    torch.set_num_threads(1)  # else the threads of small operations contend with the loading processes
    ways: dict[str, Iterator[dict[str, torch.Tensor]]] = {
        f"{options.workers} processes": iterate(data, range(steps), workers=options.workers),
        "no process of its own": iterate(data, range(steps)),
        "resident in memory": (resident[step] for step in range(steps)),
    }
    return [{"loader": name, "pairs_per_s": _rate(batches)} for name, batches in ways.items()]


def _rate(batches: Iterator[dict[str, torch.Tensor]]) -> float:
    """Pairs a second after the first twenty batches, in which processes start."""
    for _ in range(20):
        next(batches)
    start, count = time.perf_counter(), 0
    for batch in batches:
        count += len(batch["rec_y"])
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    main(sys.argv[1:])
