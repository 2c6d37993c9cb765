"""Build sdist and wheel of the files that git tracks, install the wheel in a fresh environment, and try it there.

    python tools/wheel.py -o dist

The wheel is built from the sdist, and both must contain exactly the tracked files. The environment uses the packages of
this Python except codecnn itself. In it run `codecnn doctor`, `codecnn models`, `codecnn demo` on three small pictures
with few training steps, and the Python examples of docs/site/python.md.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLES = REPOSITORY / "docs" / "site" / "python.md"
DEMO = """
import sys
import codecnn
from codecnn import cli
from codecnn.api import config, demo

assert codecnn.__file__.startswith(sys.prefix), codecnn.__file__
recipe = ["qp=[32, 42]", "preset=faster", 'sequences=[{source: "skimage:astronaut.png", split: train, scales: [0.25]}, '
          '{source: "skimage:rocket.jpg", split: val, scales: [0.25]}, '
          '{source: "skimage:coffee.png", split: test, scales: [0.25]}]']
training = ["training.steps=20", "training.validate_every=20", "training.warmup=5"]
demo.load_recipe = lambda path: config.load_recipe(path, recipe)
demo.load_config = lambda path, overrides: config.load_config(path, [*overrides, *training])
sys.argv = ["codecnn", "demo", "-o", "demo"]
cli.main()
"""
"""Program that runs `codecnn demo` with smaller pictures and fewer steps."""


def main(argv: Sequence[str] | None = None) -> None:
    """Build, check, install and try; with --output keep sdist and wheel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="folder in which sdist and wheel are kept")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        check_sdist(sdist)
        check_wheel(wheel)
        python = install(folder, wheel)
        run_examples(python, folder / "elsewhere")
        if options.output is not None:
            options.output.mkdir(parents=True, exist_ok=True)
            for archive in (sdist, wheel):
                shutil.copy2(archive, options.output)
    print(f"{sdist.name}, {wheel.name}: installed and used outside of the repository")


def tracked_files() -> list[str]:
    """Return the tracked files that exist, relative to the repository."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return [name for name in listing.stdout.split("\0") if name and (REPOSITORY / name).is_file()]


def build(folder: Path) -> tuple[Path, Path]:
    """Build sdist and wheel from a copy of the tracked files, so that untracked files cannot be part of them."""
    for name in tracked_files():
        copy = folder / "clone" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, copy)
    subprocess.run([sys.executable, "-m", "build", "-o", str(folder), str(folder / "clone")], check=True)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def check_sdist(sdist: Path) -> None:
    """Check that the sdist contains all tracked files below its folder, the metadata, and nothing else."""
    with tarfile.open(sdist) as archive:
        contained = {name.partition("/")[2] for name in archive.getnames()}
    _check_equal(sdist, contained - {"PKG-INFO"}, set(tracked_files()))


def check_wheel(wheel: Path) -> None:
    """Check that the wheel contains the licence, all tracked files of package, recipes, configurations, no others."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        raise SystemExit(f"{wheel.name} lacks the licence")
    contained = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    bundled = ("datasets/", "configs/")
    packaged = {f"codecnn/_bundled/{name}" if name.startswith(bundled) else name for name in tracked_files()}
    _check_equal(wheel, contained, {name for name in packaged if name.startswith("codecnn/")})


def _check_equal(archive: Path, contained: set[str], expected: set[str]) -> None:
    for verb, names in (("lacks", expected - contained), ("should not contain", contained - expected)):
        if names:
            raise SystemExit(f"{archive.name} {verb} {', '.join(sorted(names))}")


def install(folder: Path, wheel: Path) -> Path:
    """Install the wheel in a fresh environment, and return the environment's Python."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    # The path comes after the environment's packages. An editable codecnn is found by a .pth file, which Python does
    # not read in a folder that is added this way.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run_examples(python: Path, folder: Path) -> None:
    """Run commands and the Python examples of docs/site/python.md in `folder`, with the files that they name."""
    folder.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [str(python.with_name("codecnn"))]
    for argv in ([*command, "doctor"], [str(python), "-c", DEMO], [*command, "models"]):
        subprocess.run(argv, cwd=folder, env=environment, check=True)
    if not (folder / "demo" / "evaluation" / "report.html").stat().st_size > 10_000:
        raise SystemExit("the demo wrote no report")
    shutil.copytree(folder / "demo" / "runs" / "demo", folder / "runs" / "mine")
    shutil.copytree(folder / "demo" / "stores" / "demo", folder / "stores" / "demo")
    picture = np.random.default_rng(0).integers(300, 700, 416 * 240 * 3 // 2).astype("<u2")
    for name in ("original", "decoded"):
        picture.tofile(folder / f"{name}_416x240_10bit.yuv")
        picture = picture + 1  # the decoded picture differs from the original
    shutil.copy(REPOSITORY / "tests" / "data" / "vvc" / "clip416x240_ra_qp37.266", folder / "stream.266")
    examples = re.findall(r"^```python\n(.*?)^```", EXAMPLES.read_text(), re.DOTALL | re.MULTILINE)
    if not examples:
        raise SystemExit(f"{EXAMPLES} contains no Python example")
    for example in examples:
        subprocess.run([str(python), "-c", example], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
