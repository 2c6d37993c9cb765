"""`benchmark.py all`: a fixed list of benchmarks, one after the other, each in a process of its own; one table.

    python tools/benchmark.py all -o docs/benchmark.md [--keep] [--quick]

Beside the table, NAME.json holds all that was measured, and each result as soon as it is there. With --keep what it has
of the same command, machine, versions and code is not measured again. A benchmark that fails is a row that says so, and
the exit status is then 1.
"""

import argparse
import contextlib
import datetime
import hashlib
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from codecnn import __version__
from codecnn.errors import CodecnnError
from codecnn.models import zoo_cards
from codecnn.runs import read_json, write_json, write_text
from codecnn.video import ffmpeg_identity, ffmpeg_path
from tools.bench._table import document

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "torch numpy scipy numba scikit-image pillow pyarrow onnx onnxruntime openvino h5py zarr"


class Job(NamedTuple):
    """A benchmark of the list: its name in the results, its words, and those of --quick."""

    name: str
    words: str
    quick: str


def _inference(network: str, size: str = "640x384") -> Job:
    words = f"inference --network {network} --size"
    return Job(f"inference-{network}-{size}", f"{words} {size} --runs 5", f"{words} 64x48 --runs 1")


_EIGHT = "--integers codecnn/zoo/{}.int8.safetensors"


JOBS = (
    _inference("rdn_32_4_6_24"),
    _inference("low_cost_17"),
    _inference("low_cost_17", "1920x1080"),
    _inference("low_cost_5"),
    Job("reads", "reads --pictures 6 --patches 1600", "reads --pictures 1 --patches 64 --rounds 1"),
    Job("build", "build --preset medium -q 22,27,32,37,42", "build --preset faster -q 42 --rounds 1"),
    Job("labels", "labels --size 512x384", "labels --size 128x128 --rounds 1"),
    Job("training", "training --steps 80 --turns 3", "training --steps 4 --turns 1 --patch 32 --batch 2"),
    Job("correlate", "correlate --rows 1000000", "correlate --rows 20000 --resamples 0"),
    Job("sequence", "sequence --frames 300 --size 416x240", "sequence --frames 30 --size 64x48"),
    Job(
        "clip",
        f"clip --form float32 {_EIGHT.format('low_cost_17')} --frames 8",
        "clip --frames 2 --size 64x48 --turns 1",
    ),
    Job(
        "exact",
        "exact --network low_cost_5 --network low_cost_17 --size 640x384",
        "exact --network low_cost_5 --size 64x48 --runs 1",
    ),
    Job(
        "exact-files",
        " ".join(
            ("exact", *map(_EIGHT.format, ("low_cost_5", "low_cost_17", "low_cost_75")), "--size 1920x1080 --threads 2")
        ),
        f"exact {_EIGHT.format('low_cost_5')} --size 64x48 --runs 1",
    ),
)
"""What `all` measures: pictures of scikit-image and of noise, minutes in all on two cores."""


def main(argv: list[str]) -> None:
    """Measure what is not kept, write the table, and exit with 1 where a benchmark failed."""
    parser = argparse.ArgumentParser(
        prog="benchmark.py all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="the table, .md")
    parser.add_argument("--keep", action="store_true", help="what an earlier run measured, to go on with where it was")
    parser.add_argument("--quick", action="store_true", help="sizes that only show that everything runs")
    options = parser.parse_args(argv)
    if options.output.suffix != ".md":
        parser.error(f"the table is Markdown: {options.output} does not end in .md")
    place = {"machine": machine(), "versions": versions(), "code": code()}
    run = {"date": datetime.date.today().isoformat(), "load": os.getloadavg()[0]}
    file = options.output.with_suffix(".json")
    earlier = read_json(file)["results"] if options.keep and file.exists() else []
    kept = {one["words"]: one for one in earlier if one["status"] == 0 and all(one[key] == place[key] for key in place)}
    results = []
    for job in JOBS:
        words = job.quick if options.quick else job.words
        if words not in kept:
            print(f"\n== {words}", flush=True)
        results.append(kept.get(words) or {"name": job.name, "words": words, **run, **measured(words), **place})
        write_json(file, {"quick": options.quick, "results": results})
    write_text(options.output, document(results, zoo_cards(), quick=options.quick))
    failed = [result["name"] for result in results if result["status"]]
    if failed:
        sys.exit(f"{len(failed)} of {len(results)} benchmarks failed: {', '.join(failed)}")


def measured(words: str) -> dict[str, Any]:
    """Exit status and rows of `benchmark.py` with these words; what it prints is passed on."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "rows.json"
        command = [sys.executable, str(ROOT / "tools" / "benchmark.py"), *shlex.split(words), "--table", str(table)]
        status = subprocess.run(command, check=False).returncode
        return {"status": status, "rows": read_json(table) if status == 0 else []}


def machine() -> dict[str, Any]:
    """What computes: the CPU by its maker's name, cores that this process may use, memory, system."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        cpu = found[1].strip() if found else cpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": cpu, "cores": cores, "memory_gib": round(memory), "system": platform.system()}


def versions(packages: str = PACKAGES) -> dict[str, str]:
    """Versions of all that takes part by name, with those `packages`; one that is not here says so."""
    found = {"codecnn": __version__, "Python": platform.python_version()}
    for name in packages.split():
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not here"
    try:
        found["ffmpeg"] = ffmpeg_identity(ffmpeg_path()).removeprefix("ffmpeg ")
    except CodecnnError:
        found["ffmpeg"] = "not here"
    return found


def code() -> str:
    """The first digits of a hash of all Python code that is measured or measures."""
    found = hashlib.sha256()
    for path in sorted([*(ROOT / "codecnn").rglob("*.py"), *(ROOT / "tools" / "bench").glob("*.py")]):
        found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]
