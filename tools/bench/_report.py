"""Run a fixed list of benchmarks, each in its own process, and write one page.

    python tools/benchmark.py all -o docs/reference/benchmark.md [--keep] [--quick]

The results are also written as JSON next to the page, after each benchmark. With --keep, results of an earlier run are
reused if command, machine, versions and code are the same. A benchmark that fails is listed as failed, and the exit
status is then 1.
"""

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
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from codecnn import __version__
from codecnn.base.errors import CodecnnError
from codecnn.base.files import read_json, write_json, write_text
from codecnn.models import Card, zoo_cards
from codecnn.pictures.files import ffmpeg_identity, ffmpeg_path
from tools.bench._common import make_parser, markdown_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("page.md")
PACKAGES = "torch numpy scipy numba scikit-image pillow pyarrow onnx onnxruntime openvino h5py zarr"
WARNING = "**Written with `--quick`: the sizes only show that everything runs, and the figures mean nothing.**\n\n"


class Job(NamedTuple):
    """A benchmark of the list.

    Attributes:
        name: Name in the results.
        words: Arguments of benchmark.py.
        quick: Arguments with --quick.
    """

    name: str
    words: str
    quick: str


def _inference(network: str, size: str = "640x384") -> Job:
    words = f"inference --network {network} --size"
    return Job(f"inference-{network}-{size}", f"{words} {size} --runs 5", f"{words} 64x48 --runs 1")


_INT8 = "--integers codecnn/models/shipped/{}.vvc.int8.safetensors"

JOBS = (
    _inference("rdn_32_4_6_24"),
    _inference("low_cost_17"),
    _inference("low_cost_17", "1920x1080"),
    _inference("low_cost_5"),
    Job("reads", "reads --pictures 6 --patches 1600", "reads --pictures 1 --patches 64 --rounds 1"),
    Job("build", "build --preset medium -q 22,27,32,37,42", "build --preset faster -q 42 --rounds 1"),
    Job("labels", "labels --size 512x384", "labels --size 128x128 --rounds 1"),
    Job("modes", "modes", "modes --size 128x128 --rounds 1"),
    Job("training", "training --steps 80 --turns 3", "training --steps 4 --turns 1 --patch 32 --batch 2"),
    Job("correlate", "correlate --rows 1000000", "correlate --rows 20000 --resamples 0"),
    Job("sequence", "sequence --frames 300 --size 416x240", "sequence --frames 30 --size 64x48"),
    Job(
        "clip",
        f"clip --form float32 {_INT8.format('low_cost_17')} --frames 8",
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
            ("exact", *map(_INT8.format, ("low_cost_5", "low_cost_17", "low_cost_75")), "--size 1920x1080 --threads 2")
        ),
        f"exact {_INT8.format('low_cost_5')} --size 64x48 --runs 1",
    ),
)
"""Benchmarks of `all`. Their inputs are pictures of scikit-image and noise, and they take minutes on two cores."""


def main(argv: list[str]) -> None:
    """Run the benchmarks without a kept result, write the page, and exit with 1 if a benchmark failed."""
    parser = make_parser("all", __doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="page to write, .md")
    parser.add_argument("--keep", action="store_true", help="reuse matching results of an earlier run")
    parser.add_argument("--quick", action="store_true", help="use sizes that only show that everything runs")
    options = parser.parse_args(argv)
    if options.output.suffix != ".md":
        parser.error(f"the page is Markdown, but {options.output} does not end in .md")
    setup = {"machine": machine(), "versions": versions(), "code": code_digest()}
    run = {"date": datetime.date.today().isoformat(), "load": os.getloadavg()[0]}
    file = options.output.with_suffix(".json")
    earlier = read_json(file)["results"] if options.keep and file.exists() else []
    kept = {
        result["words"]: result
        for result in earlier
        if result["status"] == 0 and all(result[key] == setup[key] for key in setup)
    }
    results = []
    for job in JOBS:
        words = job.quick if options.quick else job.words
        if words not in kept:
            print(f"\n== {words}", flush=True)
        results.append(kept.get(words) or {"name": job.name, "words": words, **run, **measure(words), **setup})
        write_json(file, {"quick": options.quick, "results": results})
    write_text(options.output, format_page(results, zoo_cards(), quick=options.quick))
    failed = [result["name"] for result in results if result["status"]]
    if failed:
        sys.exit(f"{len(failed)} of {len(results)} benchmarks failed: {', '.join(failed)}")


def measure(words: str) -> dict[str, Any]:
    """Run `benchmark.py` with these arguments, and return its exit status and rows."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "rows.json"
        command = [sys.executable, str(ROOT / "tools" / "benchmark.py"), *shlex.split(words), "--table", str(table)]
        status = subprocess.run(command, check=False).returncode
        return {"status": status, "rows": read_json(table) if status == 0 else []}


def machine() -> dict[str, Any]:
    """Describe the machine: model of the CPU, cores that this process may use, memory in GiB, operating system."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        cpu = match[1].strip() if match else cpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": cpu, "cores": cores, "memory_gib": round(memory), "system": platform.system()}


def versions(packages: str = PACKAGES) -> dict[str, str]:
    """Return the versions of codecnn, Python, ffmpeg and `packages`; "not here" for a package that is not installed."""
    result = {"codecnn": __version__, "Python": platform.python_version()}
    for name in packages.split():
        try:
            result[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            result[name] = "not here"
    try:
        result["ffmpeg"] = ffmpeg_identity(ffmpeg_path()).removeprefix("ffmpeg ")
    except CodecnnError:
        result["ffmpeg"] = "not here"
    return result


def code_digest() -> str:
    """Return the first digits of a hash of the Python code of codecnn and of the benchmarks."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "codecnn").rglob("*.py"), *(ROOT / "tools" / "bench").glob("*.py")]):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def format_page(results: Sequence[Mapping[str, Any]], cards: Mapping[str, Card], *, quick: bool) -> str:
    """Format the page: page.md with a table for each benchmark, and one of the quality of the shipped weights.

    Args:
        results: Results of the benchmarks, all of the same machine, versions and code.
        cards: Cards of weights by name, from `zoo_cards`.
        quick: Whether the results are those of --quick.

    Returns:
        The page in Markdown.
    """
    speed = []
    for result in results:
        speed += [f"`python tools/benchmark.py {result['words']}`", ""]
        if result["status"]:
            speed += [f"**Failed with status {result['status']}.**", ""]
        else:
            speed += [*markdown_table(result["rows"]), ""]
    names = ", ".join(f"{name} {version}" for name, version in results[0]["versions"].items())
    return PAGE.read_text(encoding="utf-8").format(
        command="python tools/benchmark.py all -o docs/reference/benchmark.md" + (" --quick" if quick else ""),
        warning=WARNING if quick else "",
        machine=_machine_line(results),
        versions=f"{names}; code {results[0]['code']}.",
        speed="\n".join(speed),
        quality="\n".join(quality_table(cards)),
    )


def quality_table(cards: Mapping[str, Card]) -> list[str]:
    """Format the lines of the table of quality for shipped weights; page.md adds published figures."""
    lines = ["| what | kMAC/pixel | gain, dB | BD-rate, % | source |", "|---|---:|---:|---:|---|"]
    for name, card in cards.items():
        figures = card.test.luma if card.test else (None, None)
        gain, rate = (
            "–" if value is None else f"{value:+.{digits}f}" for value, digits in zip(figures, (4, 2), strict=True)
        )
        source = f"card of `{name}`" if card.test else "no test on its card"
        lines.append(f"| `{name}` | {card.kmac_per_pixel:.1f} | {gain} | {rate} | {source} |")
    return lines


def _machine_line(results: Sequence[Mapping[str, Any]]) -> str:
    """Describe the machine, and the dates and loads of the runs."""
    setup = results[0]["machine"]
    dates, loads = (sorted({result[key] for result in results}) for key in ("date", "load"))
    return (
        f"{setup['cpu']}, {setup['cores']} cores, {setup['memory_gib']} GiB, {setup['system']}; "
        f"{_span(dates)}; load before the run {_span([f'{load:.2f}' for load in loads])}."
    )


def _span(values: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys((values[0], values[-1])))
