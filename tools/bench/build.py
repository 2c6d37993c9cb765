"""Building a store against the bare encodes of the same pictures: what checks, measures and hashes cost on top.

The peer is what one would type: ffmpeg with libvvenc and the same settings, the same number at a time, from raw YUV
that lies ready. Both take turns, and each time is that of the whole process. Files are in the page cache. Without
pictures two of scikit-image are taken.
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

from codecnn.config import checked
from codecnn.dataset import Recipe, build_store
from codecnn.runs import write_text
from codecnn.video import ffmpeg_path
from tools.bench._rows import Row, row


def main(argv: list[str]) -> list[Row]:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmark.py build", description=__doc__.splitlines()[0])
    parser.add_argument("pictures", nargs="*", type=Path, help="pictures or videos to code [two of scikit-image]")
    parser.add_argument("--preset", default="medium")
    parser.add_argument("-q", "--qp", default="22,27,32,37,42")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="turns that each takes [3]")
    options = parser.parse_args(argv)
    result = measure(options)
    print(f"{result['encodes']} encodes, preset {options.preset}, {options.jobs} at a time")
    for kind, (bare, build) in result["seconds"].items():
        ratios = ", ".join(f"{b / a:.3f}" for a, b in zip(bare, build, strict=True))
        print(
            f"{kind:5} bare {min(bare):8.2f} s, build {min(build):8.2f} s: "
            f"{min(build) / min(bare):.3f} times, by turns {ratios}"
        )
    what = f"a store of {result['encodes']} encodes, preset {options.preset}, {options.jobs} at a time"
    return [
        row(f"{what}: {kind} time", "s", build, "the bare encodes", bare)
        for kind, (bare, build) in result["seconds"].items()
    ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the bare encodes and of the build by turns, by kind, "wall" and "CPU"."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pictures = options.pictures or _two_pictures(folder)
        recipe = {
            "name": "benchmark",
            "preset": options.preset,
            "qp": [int(qp) for qp in options.qp.split(",")],
            "sequences": [{"source": str(path.resolve())} for path in pictures],
        }
        write_text(folder / "recipe.yaml", json.dumps(recipe))
        # Built once to have the pictures as YUV and the encoder's arguments, and everything in the page cache.
        store = build_store(checked(Recipe, recipe, "benchmark"), folder, folder / "first", jobs=options.jobs)
        commands = []
        for number, unit in enumerate(store.units):
            words = [ffmpeg_path(), *unit.argv[1:-1], str(folder / f"{number}.266")]
            words[words.index("-i") + 1] = str(unit.original_path)
            commands.append(shlex.join(words))
        bare = ["xargs", "-d", "\\n", "-P", str(options.jobs), "-I", "{}", "sh", "-c", "{} >/dev/null 2>&1"]
        build = [sys.executable, "-m", "codecnn", "dataset", "build", str(folder / "recipe.yaml")]
        build += ["-j", str(options.jobs), "-o"]
        plain, built = [], []
        for turn in range(options.rounds):
            plain.append(_seconds(bare, "\n".join(commands)))
            built.append(_seconds([*build, str(folder / f"store{turn}")], ""))
    seconds = {
        kind: [[turn[index] for turn in turns] for turns in (plain, built)]
        for index, kind in enumerate(("wall", "CPU"))
    }
    return {"encodes": len(commands), "seconds": seconds}


def _two_pictures(folder: Path) -> list[Path]:
    """Two pictures of scikit-image as files, 512x512 and 600x400 samples."""
    paths = [folder / f"{name}.png" for name in ("astronaut", "coffee")]
    for path in paths:
        imsave(path, getattr(skimage.data, path.stem)(), check_contrast=False)
    return paths


def _seconds(argv: list[str], text: str) -> tuple[float, float]:
    """Wall and CPU seconds of a command with all that it starts; the latter hardly depend on what else runs."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, input=text, text=True, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
