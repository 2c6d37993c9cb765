"""Time of building a store against the bare encodes of the same pictures: the cost of checks, measurements and hashes.

The peer is the command line that a user would type: ffmpeg with libvvenc and the same settings, as many processes at a
time, from raw YUV files. Both run by turns, and each time is that of the whole process. The files are in the page
cache.
"""

import argparse
import json
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import skimage.data
from skimage.io import imsave

from codecnn.api.config import checked
from codecnn.base.files import write_text
from codecnn.dataset import Recipe, build_store
from codecnn.pictures.files import ffmpeg_path
from tools.bench._common import Row, make_parser, row


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return the rows."""
    parser = make_parser("build", __doc__)
    parser.add_argument("pictures", nargs="*", type=Path, help="pictures or videos to code [two of scikit-image]")
    parser.add_argument("--preset", default="medium", help="encoder preset [medium]")
    parser.add_argument("-q", "--qp", default="22,27,32,37,42", help="QPs [22,27,32,37,42]")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="encoders at a time [2]")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each way [3]")
    options = parser.parse_args(argv)
    result = measure(options)
    print(f"{result['encodes']} encodes, preset {options.preset}, {options.jobs} at a time")
    for kind, (bare, build) in result["seconds"].items():
        ratios = ", ".join(f"{b / a:.3f}" for a, b in zip(bare, build, strict=True))
        print(
            f"{kind:5} bare {min(bare):8.2f} s, build {min(build):8.2f} s: "
            f"ratio {min(build) / min(bare):.3f}, by turns {ratios}"
        )
    what = f"a store of {result['encodes']} encodes, preset {options.preset}, {options.jobs} at a time"
    return [
        row(f"{what}: {kind} time", "s", build, "the bare encodes", bare)
        for kind, (bare, build) in result["seconds"].items()
    ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Time the bare encodes and the build by turns.

    Returns:
        "encodes", the number of encodes, and "seconds", by kind of time ("wall", "CPU") the turns of both ways.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pictures = options.pictures or _write_pictures(folder)
        recipe = {
            "name": "benchmark",
            "preset": options.preset,
            "qp": [int(qp) for qp in options.qp.split(",")],
            "sequences": [{"source": str(path.resolve())} for path in pictures],
        }
        write_text(folder / "recipe.yaml", json.dumps(recipe))
        # The first build provides the pictures as YUV and the arguments of the encoder, and fills the page cache.
        store = build_store(checked(Recipe, recipe, "benchmark"), folder, folder / "first", jobs=options.jobs)
        commands = []
        for number, unit in enumerate(store.units):
            words = [ffmpeg_path(), *unit.argv[1:-1], str(folder / f"{number}.266")]
            words[words.index("-i") + 1] = str(unit.original_path)
            commands.append(shlex.join(words))
        bare = ["xargs", "-d", "\\n", "-P", str(options.jobs), "-I", "{}", "sh", "-c", "{} >/dev/null 2>&1"]
        build = [sys.executable, "-m", "codecnn", "dataset", "build", str(folder / "recipe.yaml")]
        build += ["-j", str(options.jobs), "-o"]
        bare_times, build_times = [], []
        for turn in range(options.rounds):
            bare_times.append(_run_timed(bare, "\n".join(commands)))
            build_times.append(_run_timed([*build, str(folder / f"store{turn}")], ""))
    times = {
        kind: [[turn[index] for turn in turns] for turns in (bare_times, build_times)]
        for index, kind in enumerate(("wall", "CPU"))
    }
    return {"encodes": len(commands), "seconds": times}


def _write_pictures(folder: Path) -> list[Path]:
    """Write two pictures of scikit-image, 512x512 and 600x400 samples, as files."""
    paths = [folder / f"{name}.png" for name in ("astronaut", "coffee")]
    for path in paths:
        imsave(path, getattr(skimage.data, path.stem)(), check_contrast=False)
    return paths


def _run_timed(argv: list[str], text: str) -> tuple[float, float]:
    """Run a command with `text` on stdin; return its wall and CPU seconds, child processes included."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, input=text, text=True, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
