"""Speed of reading random CTUs: codecnn's memory maps against h5py and zarr with the same pictures.

A pair is a decoded patch of 132x132 and an original patch of 128x128, copied into the arrays of a batch. All readers
read the same patches in the same random order from a warm page cache, by turns, on one core, and must return the same
samples. Then the whole loader is timed: random symmetries, and float tensors as networks take them, without a network.
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
from codecnn.pictures.files import VideoFormat
from tools.bench._common import Row, make_parser, row

SIZE, HALO, BATCH = 128, 2, 16
PEER_CHUNK = 256
"""Width and height of a peer's chunks: between chunks of a CTU, of which a halo touches nine, and whole pictures."""

Array = npt.NDArray[Any]
Cut = Callable[[Sequence[Patch]], tuple[Array, Array]]


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return the rows."""
    parser = make_parser("reads", __doc__)
    parser.add_argument("--store", type=Path, help="store to read [generated pictures]")
    parser.add_argument("--split", default="train", help="split of the store [train]")
    parser.add_argument("--pictures", type=int, default=6, help="1920x1080 pictures to generate [6]")
    parser.add_argument("--bit-depth", type=int, default=8, choices=(8, 10), help="of generated pictures [8]")
    parser.add_argument("--patches", type=int, default=1600, help="pairs per round [1600]")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each reader [5]")
    parser.add_argument("--workers", type=int, default=2, help="processes of the whole loader [2]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    result = measure(options)
    if options.json:
        print(json.dumps(result, indent=2))
        return rows(result)
    print(f"{result['machine']}; {result['bit_depth']} bit, {options.patches} pairs x {options.rounds} rounds")
    print(f"\n{'reader':44} {'pairs/s':>9} {'pairs/CPU s':>12} {'codecnn is':>11}")
    for reader in result["reads"]:
        print(
            f"{reader['reader']:44} {reader['pairs_per_s']:9.0f} {reader['pairs_per_cpu_s']:12.0f} "
            f"{reader['ratio']:10.1f}x"
        )
    print(f"\n{'whole loader':44} {'pairs/s':>9}")
    for loader in result["loader"]:
        print(f"{loader['loader']:44} {loader['pairs_per_s']:9.0f}")
    return rows(result)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure pairs per second of every reader ("reads") and of the whole loader ("loader")."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.store is None:
            units = make_units(folder, options.pictures, options.bit_depth)
        else:
            units = open_store(options.store).split(options.split)
        reads = _measure_readers(units, folder, options)
        loader = _measure_loader(units, options)
    machine = f"{platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}"
    return {"machine": machine, "bit_depth": units[0].format.bit_depth, "reads": reads, "loader": loader}


def rows(result: dict[str, Any]) -> list[Row]:
    """Create the rows: reading against each peer, and the loader alone."""
    ours, *peers = result["reads"]
    depth = result["bit_depth"]
    reading = [
        row(f"reading patches, {depth} bit", "pairs/s", ours["turns"], peer["reader"], peer["turns"]) for peer in peers
    ]
    return reading + [
        row(f"the whole loader, {depth} bit, {loader['loader']}", "pairs/s", [loader["pairs_per_s"]])
        for loader in result["loader"]
    ]


def make_units(folder: Path, pictures: int, bit_depth: int) -> list[Unit]:
    """Write units of one 1920x1080 picture each, in raw files as a build does: photographs, with noise when decoded."""
    video_format = VideoFormat(1920, 1080, "420", bit_depth)
    rng = np.random.default_rng(0)
    photos = [getattr(skimage.data, name)() for name in ("astronaut", "coffee", "rocket", "chelsea")]
    units = []
    for number in range(pictures):
        photo = photos[number % len(photos)].astype(float).mean(axis=2)
        luma = np.roll(np.tile(photo, (5, 6))[:1080, :1920], 37 * number, axis=1)
        planes = (luma, luma[::2, ::2], luma[1::2, 1::2])
        for name, noise in (("original", 0), ("decoded", 3)):
            data = [plane * 2 ** (bit_depth - 8) + rng.normal(0, noise, plane.shape) for plane in planes]
            samples = np.concatenate([np.clip(np.rint(plane), 0, 2**bit_depth - 1).ravel() for plane in data])
            samples.astype(video_format.dtype).tofile(folder / f"{name}{number}.yuv")
        figures = {"bits": 0, "psnr_y": 35.0, "psnr_u": None, "psnr_v": None}
        record = {"key": str(number), "sequence": f"picture{number}", "group": f"picture{number}", "split": "train"}
        record |= {"original": f"original{number}.yuv", "decoded": f"decoded{number}.yuv"}
        record |= {"format": video_format, "qp": 32, "encoder": "none", "bitstream": "none", "argv": []}
        record |= {"files": {}, "sizes": {}, **figures}
        record["pictures"] = [{"poc": 0, "slice_type": "I", "qp": 32, **figures}]
        units.append(Unit.from_json(folder, record, folder=folder))
    return units


def _measure_readers(units: Sequence[Unit], folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Check that all readers return the same samples, and time them by turns; codecnn is the first."""
    patches = CtuPatches(units, SIZE, HALO).patches
    rng = np.random.default_rng(1)
    order = [patches[index] for index in rng.permutation(np.resize(np.arange(len(patches)), options.patches))]
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    ours = "codecnn, memory map"
    with ExitStack() as stack:
        readers = {ours: _codecnn_reader(PatchReader(units, SIZE, HALO))}
        readers |= _peer_readers(units, folder, stack)
        for name, cut in readers.items():  # also warms caches
            for batch in batches[:10]:
                for expected, actual in zip(readers[ours](batch), cut(batch), strict=True):
                    if not np.array_equal(expected, actual):
                        sys.exit(f"{name} reads other samples than codecnn")
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in readers}
        for _ in range(options.rounds):
            for name, cut in readers.items():
                times[name].append(_time_cuts(cut, batches))
    wall, cpu = ({name: float(np.median([turn[i] for turn in turns])) for name, turns in times.items()} for i in (0, 1))
    return [
        {
            "reader": name,
            "pairs_per_s": len(order) / wall[name],
            "pairs_per_cpu_s": len(order) / cpu[name],
            "ratio": wall[name] / wall[ours],
            "turns": [len(order) / turn for turn, _ in times[name]],
        }
        for name in readers
    ]


def _time_cuts(cut: Cut, batches: Sequence[Sequence[Patch]]) -> tuple[float, float]:
    """Return the wall and CPU seconds of cutting all batches."""
    wall, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        cut(batch)
    return time.perf_counter() - wall, time.process_time() - cpu


def _codecnn_reader(reader: PatchReader) -> Cut:
    def cut(patches: Sequence[Patch]) -> tuple[Array, Array]:
        batch = reader.cut(patches, [0] * len(patches))
        return batch["rec_y"][:, 0], batch["orig_y"][:, 0]

    return cut


def _peer_readers(units: Sequence[Unit], folder: Path, stack: ExitStack) -> dict[str, Cut]:
    """Return readers of h5py and zarr, with a luma array (pictures, h, w) for every unit and kind of picture."""
    try:
        import h5py
        import zarr
    except ImportError as error:
        sys.exit(f"{error.name} is not installed: pip install 'codecnn[benchmark]'")
    reader = PatchReader(units, SIZE, HALO)
    count = len(units)
    kinds = ("decoded", "original")

    def luma(kind: str, unit: int) -> Array:
        return np.stack([reader.files.plane(kind, unit, i, 0) for i in range(reader.files.counts[unit])])

    def reader_of(create: Callable[[str, Array], Any]) -> Cut:
        arrays = {(kind, unit): create(f"{kind}{unit}", luma(kind, unit)) for kind in kinds for unit in range(count)}
        return _array_reader(arrays, reader.dtype)

    h5 = f"h5py {h5py.__version__} (HDF5 {h5py.version.hdf5_version})"
    contiguous = stack.enter_context(h5py.File(folder / "contiguous.h5", "w"))
    chunked = stack.enter_context(h5py.File(folder / "chunked.h5", "w"))
    chunks = (1, PEER_CHUNK, PEER_CHUNK)
    compressed = zarr.create_group(folder / "compressed.zarr")
    uncompressed = zarr.create_group(folder / "uncompressed.zarr")
    z = f"zarr {zarr.__version__}"

    def in_zarr(target: Any, **options: Any) -> Callable[[str, Array], Any]:
        def create(name: str, data: Array) -> Any:
            array = target.create_array(name, shape=data.shape, dtype=data.dtype, chunks=chunks, **options)
            array[:] = data
            return array

        return create

    return {
        f"{h5}, contiguous": reader_of(lambda name, data: contiguous.create_dataset(name, data=data)),
        f"{h5}, chunks {PEER_CHUNK}": reader_of(
            lambda name, data: chunked.create_dataset(name, data=data, chunks=chunks)
        ),
        f"{z}, chunks {PEER_CHUNK}, uncompressed": reader_of(in_zarr(uncompressed, compressors=None)),
        f"{z}, chunks {PEER_CHUNK}, its compression": reader_of(in_zarr(compressed)),
    }


def _array_reader(arrays: dict[tuple[str, int], Any], dtype: np.dtype[Any]) -> Cut:
    def cut(patches: Sequence[Patch]) -> tuple[Array, Array]:
        outputs = []
        for kind, halo in (("decoded", HALO), ("original", 0)):
            side = SIZE + 2 * halo
            out = np.empty((len(patches), side, side), dtype)
            for target, (unit, picture, x, y, *_) in zip(out, patches, strict=True):
                array = arrays[kind, unit]
                left, top = max(x - halo, 0), max(y - halo, 0)
                # The window ends at the picture's edge, and copy_window repeats the nearest sample beyond it.
                window = array[picture, top : y - halo + side, left : x - halo + side]
                copy_window(target, window, x - halo - left, y - halo - top)
            outputs.append(out)
        return outputs[0], outputs[1]

    return cut


def _measure_loader(units: Sequence[Unit], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure pairs per second of the whole loader in three ways."""
    steps = max(options.patches // BATCH, 50) * options.rounds
    data = TrainingBatches(units, batch=BATCH, steps=steps, size=SIZE, halo=HALO, positions="ctu")
    resident = ResidentBatches(data, "cpu")
    torch.set_num_threads(1)  # more threads contend with the loading processes over small operations
    ways: dict[str, Iterator[dict[str, torch.Tensor]]] = {
        f"{options.workers} processes": iterate(data, range(steps), workers=options.workers),
        "no process of its own": iterate(data, range(steps)),
        "resident in memory": (resident[step] for step in range(steps)),
    }
    return [{"loader": name, "pairs_per_s": _pairs_per_second(batches)} for name, batches in ways.items()]


def _pairs_per_second(batches: Iterator[dict[str, torch.Tensor]]) -> float:
    """Return the pairs per second after the first twenty batches, during which processes start."""
    for _ in range(20):
        next(batches)
    start, count = time.perf_counter(), 0
    for batch in batches:
        count += len(batch["rec_y"])
    return count / (time.perf_counter() - start)
