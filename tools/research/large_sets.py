"""Measure how evenly shards of a build finish, and how fast patches are read from object storage.

python tools/research/large_sets.py balance RECIPE [KEY=VALUE]...
python tools/research/large_sets.py read STORE ADDRESS

`balance` builds the recipe into a temporary store with one process, and prints the largest shard over the mean, for
every n-th unit and for shards by predicted cost. `read` draws the same batches from the folder of a store, from its
copy in object storage (files copied first; single planes without and with a cache), and from a tar file of cut batches.
"""

import argparse
import io
import resource
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pyarrow.fs import FileSystem

from codecnn.api.config import load_recipe
from codecnn.base.cluster import of_shard
from codecnn.dataset import TrainingBatches, build, build_store, expand, open_store
from codecnn.dataset.estimate import unit_costs
from codecnn.dataset.patches import MappedUnits

BATCH, STEPS, COLD_STEPS = 16, 400, 20


def processor_time() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def balance(recipe_file: str, *overrides: str) -> None:
    recipe = load_recipe(recipe_file, overrides)
    folder = Path(recipe_file).parent
    seconds: dict[tuple[str, int], float] = {}
    code = build.code_unit

    def timed(plan: Any, work: Any) -> None:
        start = processor_time()
        code(plan, work=work)
        seconds[plan.source.name, plan.settings.qp] = processor_time() - start

    build.code_unit = timed
    with tempfile.TemporaryDirectory() as store:
        units = [(unit.name, unit.qp) for unit in build_store(recipe, folder, Path(store)).units]
    sources = {source.name: source for source in expand(recipe, folder)}
    costs = unit_costs(recipe, [(sources[name], qp) for name, qp in units], 1)
    spent = [seconds[unit] for unit in units]
    numbers = range(len(units))
    print(
        f"{len(units)} units, {sum(spent):.0f} s measured, {sum(costs) / 1000:.0f} s predicted, r of logarithms",
        end=" ",
    )
    print(f"{np.corrcoef(np.log(spent), np.log(costs))[0, 1]:.2f}")
    print("shards  every n-th: predicted measured  by cost: predicted measured  bound")
    for shards in (2, 4, 8, 16):
        ways = (
            [numbers[first::shards] for first in range(shards)],
            [of_shard(numbers, (index, shards), costs) for index in range(1, shards + 1)],
        )
        ratios = [
            max(sum(values[number] for number in part) for part in parts) * shards / sum(values)
            for parts in ways
            for values in (costs, spent)
        ]
        print(f"{shards:6}", *(f"{ratio:.2f}" for ratio in ratios), f"{max(1, max(spent) * shards / sum(spent)):.2f}")
    for jobs in (2, 4, 8):
        orders = (numbers, of_shard(numbers, (1, 1), costs))
        print(f"{jobs} jobs: recipe order, longest first", *(f"{finish(order, spent, jobs):.2f}" for order in orders))


def finish(order: Any, seconds: list[float], jobs: int) -> float:
    """Return when the last of some jobs ends that take units in an order, relative to the mean."""
    ends = [0.0] * jobs
    for number in order:
        ends[ends.index(min(ends))] += seconds[number]
    return max(ends) * jobs / sum(seconds)


class RemotePlanes(MappedUnits):
    """Planes that are read one by one from object storage, with or without a cache in memory."""

    def connect(self, store: str, address: str, cached: bool) -> None:
        self.store, self.cached = store, cached
        self.system, self.root = FileSystem.from_uri(address)
        self.bytes = self.requests = 0

    def plane(self, file: str, unit: int, picture: int, index: int) -> npt.NDArray[Any]:
        key = (file, unit, picture, index)
        if (plane := self._planes.get(key)) is not None:
            return plane
        form = self.formats[unit]
        start, (height, width) = self.extent(file, unit, index)
        size = height * width * form.dtype.itemsize
        name = self.paths[file][unit].relative_to(self.store)
        with self.system.open_input_file(f"{self.root}/{name}") as source:
            data = source.read_at(size, picture * form.picture_bytes + start * form.dtype.itemsize)
        self.bytes, self.requests = self.bytes + size, self.requests + 1
        plane = np.frombuffer(data, form.dtype).reshape(height, width)
        if self.cached:
            self._planes[key] = plane
        return plane


def batches(store: str) -> TrainingBatches:
    units = open_store(store).split("train")
    return TrainingBatches(units, batch=BATCH, steps=10**6, size=128, halo=2, planes=("rec_y", "qp"), seed=0)


def rate(name: str, steps: int, work: Callable[[int], object]) -> None:
    start, spent = time.perf_counter(), processor_time()
    for step in range(steps):
        work(step)
    patches = steps * BATCH
    wall, spent = time.perf_counter() - start, processor_time() - spent
    print(f"{name}: {patches / wall:.0f} patches/s, {patches / spent:.0f} a second of processor time")


def read(store: str, address: str) -> None:
    local = batches(store)
    rate("memory map, first", STEPS, local.integers)
    start = time.perf_counter()
    remote = batches(address)
    copied = {path for paths in remote.reader.files.paths.values() for path in paths}
    size = sum(path.stat().st_size for path in copied)
    print(f"copied first: {size / 2**20:.0f} MiB in {time.perf_counter() - start:.1f} s")
    for step in range(STEPS):
        one, other = local.integers(step), remote.integers(step)
        assert all((one[name] == other[name]).all() for name in one), "the batches differ"
    with tempfile.TemporaryDirectory() as folder:
        tar = Path(folder) / "batches.tar"
        write_tar(tar, local)
        mib = tar.stat().st_size / 2**20 / (STEPS * BATCH) * 1e6
        for _ in range(3):
            rate("memory map", STEPS, local.integers)
            rate("copied first", STEPS, remote.integers)
            stream = read_tar(tar)
            rate(f"tar, {mib:.0f} MiB for a million patches", STEPS, lambda _, stream=stream: next(stream))
    for cached in (False, True):
        data = batches(store)
        planes = RemotePlanes(data.reader.units, {cut.file for cut in data.reader.cuts})
        planes.connect(store, address, cached)
        data.reader.files = planes
        rate(f"planes, {'cached' if cached else 'no cache'}", COLD_STEPS, partial(load_planes, data, planes))
        patches = COLD_STEPS * BATCH
        print(f"  {planes.requests / patches:.2f} requests, {planes.bytes / 2**20 / patches:.2f} MiB for a patch")
    touched: set[tuple[int, int]] = set()
    pictures = sum(len(unit.pictures) for unit in local.reader.units)
    for step in range(1000):
        touched |= {(patch.unit, patch.picture) for patch in local.draw(step)[0]}
        if step + 1 in (1, 10, 100, 1000):
            units = len({unit for unit, _ in touched}) / len(local.reader.units)
            print(f"{step + 1} steps need {units:.0%} of the units, {len(touched) / pictures:.0%} of the pictures")


def load_planes(data: TrainingBatches, planes: RemotePlanes, step: int) -> None:
    """Read the planes of a batch, with a cache 16 at a time, and cut it."""
    if planes.cached:
        cuts = data.reader.cuts
        keys = {(cut.file, patch.unit, patch.picture, cut.index) for patch in data.draw(step)[0] for cut in cuts}
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: planes.plane(*key), keys))
    data.integers(step)


def write_tar(path: Path, data: TrainingBatches) -> None:
    with tarfile.open(path, "w") as tar:
        for step in range(STEPS):
            content = io.BytesIO()
            np.savez(content, **{name: tensor.numpy() for name, tensor in data.integers(step).items()})
            info = tarfile.TarInfo(f"{step:06}.npz")
            info.size = content.tell()
            content.seek(0)
            tar.addfile(info, content)


def read_tar(path: Path) -> Iterator[dict[str, npt.NDArray[Any]]]:
    with tarfile.open(path) as tar:
        for member in tar:
            source = tar.extractfile(member)
            assert source is not None
            arrays = np.load(io.BytesIO(source.read()))
            yield {name: arrays[name] for name in arrays.files}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("balance", "read"))
    parser.add_argument("arguments", nargs="+")
    options = parser.parse_args(argv)
    {"balance": balance, "read": read}[options.what](*options.arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
