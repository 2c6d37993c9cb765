"""Build sdist and wheel of what git tracks, install the wheel in a fresh environment, and use it elsewhere.

    python tools/wheel.py -o dist

The wheel is built from the sdist; both hold the files that git tracks of them and nothing else. The environment borrows
this Python's packages, but for codecnn itself. In it run: `codecnn doctor`, `codecnn demo` on three small pictures with
a few training steps, and the Python examples of docs/jobs.md.
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
DEMO = """
import sys
import codecnn
from codecnn import cli, config, demo

assert codecnn.__file__.startswith(sys.prefix), codecnn.__file__
recipe = ["qp=[32, 42]", "preset=faster", 'sequences=[{source: "skimage:astronaut.png", split: train, scales: [0.25]}, '
          '{source: "skimage:rocket.jpg", split: val, scales: [0.25]}, '
          '{source: "skimage:coffee.png", split: test, scales: [0.25]}]']
training = ["training.steps=20", "training.validate_every=20", "training.warmup=5"]
demo.load_recipe = lambda path: config.load_recipe(path, recipe)
demo.load_config = lambda path: config.load_config(path, training)
sys.argv = ["codecnn", "demo", "-o", "demo"]
cli.main()
"""
"""`codecnn demo` with its own recipe and configuration, made small."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="a folder that sdist and wheel are kept in")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        check_sdist(sdist)
        check_wheel(wheel)
        python = install(folder, wheel)
        use(python, folder / "elsewhere")
        if args.output is not None:
            args.output.mkdir(parents=True, exist_ok=True)
            for made in (sdist, wheel):
                shutil.copy2(made, args.output)
    print(f"{sdist.name}, {wheel.name}: installed and used outside of the repository")


def tracked() -> list[str]:
    told = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return [name for name in told.stdout.split("\0") if name and (REPOSITORY / name).is_file()]


def build(folder: Path) -> tuple[Path, Path]:
    """Sdist and wheel, of tracked files alone, so that what lies about untracked cannot be missed in a clone."""
    for name in tracked():
        copy = folder / "clone" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, copy)
    subprocess.run([sys.executable, "-m", "build", "-o", str(folder), str(folder / "clone")], check=True)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def check_sdist(sdist: Path) -> None:
    """All that git tracks, below a folder of the archive's name, and the metadata."""
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    _check_same(sdist, held - {"PKG-INFO"}, set(tracked()))


def check_wheel(wheel: Path) -> None:
    """Every tracked file of the package, zoo and templates too, recipes and configurations beside them, metadata."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    bundled = ("datasets/", "configs/")
    named = {f"codecnn/_bundled/{name}" if name.startswith(bundled) else name for name in tracked()}
    _check_same(wheel, held, {name for name in named if name.startswith("codecnn/")})


def _check_same(archive: Path, held: set[str], wanted: set[str]) -> None:
    for told, names in (("lacks", wanted - held), ("should not hold", held - wanted)):
        if names:
            raise SystemExit(f"{archive.name} {told} {', '.join(sorted(names))}")


def install(folder: Path, wheel: Path) -> Path:
    """The Python of a fresh environment with the wheel in it."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    # Behind its own packages; an editable codecnn stands in a .pth there, which is not read.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def use(python: Path, folder: Path) -> None:
    """Run commands and the examples of docs/jobs.md in `folder`, with the files that the examples name."""
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
        picture = picture + 1  # so that there is an error
    shutil.copy(REPOSITORY / "tests" / "data" / "vvc" / "clip416x240_ra_qp37.266", folder / "stream.266")
    jobs = (REPOSITORY / "docs" / "jobs.md").read_text()
    for example in re.findall(r"^```python\n(.*?)^```", jobs, re.DOTALL | re.MULTILINE):
        subprocess.run([str(python), "-c", example], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
