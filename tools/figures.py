"""Measure figures of the README and the reference again, and compare them with what these pages state.

    python tools/figures.py                    # all that needs the repository alone, but no times
    python tools/figures.py --only picture     # one group; this one draws the figure of the README
    python tools/figures.py --only seconds     # the times on one thread

Prints a table, and fails if a figure differs by more than the rounding of the page. Measurements are kept below
`--output`, in a folder that belongs to this code, these weights and this PyTorch: an interrupted command continues
there, and a group whose file is removed is measured again. docs/research/figures.md lists the groups, and the figures
of other material.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import codecnn
from codecnn.api.demo import SHIPPED, run_demo
from codecnn.base.files import read_json, write_json
from codecnn.cli.console import progress
from codecnn.evaluation import Results
from codecnn.models import (
    card_path,
    complexity,
    create_model,
    full_cost,
    list_models,
    list_weights,
    load_model,
    weights_path,
)
from tools import readme_figure, wheel
from tools.wheel import REPOSITORY

Measured = dict[str, dict[str, list[float]]]
"""Figures by row and column of tables, or by subject and quantity of sentences; several to a cell."""

NUMBER = r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?"
WEIGHTS = (*list_weights(), "low_cost_400.vvc_unf", "low_cost_400.hevc_unf")
"""The weights of the package, and the teachers of the repository."""
CHECKPOINTED = ("rdn_32_3_6_16", "rdn_32_4_6_24", "rdn_64_4_6_24_shuffle")
"""Networks whose memory with the option `checkpoint` is stated."""
RANGE = rf"{NUMBER}(?: to {NUMBER})?"


@dataclass(frozen=True)
class Figure:
    """A figure of a page.

    Attributes:
        name: Page, row and column, or page, subject and quantity.
        stated: Number as the page writes it, e.g. "-3.73", "70,997", or a range, "0.08 to 0.09".
        measured: The same, measured again.
    """

    name: str
    stated: str
    measured: float

    @property
    def difference(self) -> float:
        """The measured minus the stated value; of a range, minus its nearer end, and 0 within it."""
        ends = [float(end.replace(",", "")) for end in self.stated.split(" to ")]
        return self.measured - min(max(self.measured, min(ends)), max(ends))

    @property
    def differs(self) -> bool:
        """True if the difference is larger than the rounding to the stated digits."""
        digits = len(self.stated.partition(" ")[0].partition(".")[2])
        return abs(self.difference) > 0.5 * 10**-digits + 1e-9


@dataclass(frozen=True)
class Table:
    """A table of a page whose rows are networks or weights; columns that were not measured are passed over."""

    page: str
    heading: str

    def figures(self, measured: Measured) -> Iterator[Figure]:
        """Yield the figures of the table that were measured."""
        (section,) = re.findall(rf"^#+ {re.escape(self.heading)}\n(.*?)(?=^#|\Z)", read(self.page), re.S | re.M)
        for block in re.findall(r"(?:^\|.*\n)+", section, re.M):
            head, _, *rows = ([cell.strip() for cell in line.strip()[1:-1].split("|")] for line in block.splitlines())
            if head[0] not in ("network", "weights"):
                continue
            for first, *cells in rows:
                for row in filter(measured.__contains__, re.findall(r"`([^`]+)`", first)):
                    for column, cell in zip(head[1:], cells, strict=True):
                        yield from self._cell(row, column, cell, measured[row])

    def _cell(self, row: str, column: str, cell: str, columns: Mapping[str, list[float]]) -> Iterator[Figure]:
        cell, _, chroma = cell.partition("; ")  # "-6.24 %; U -20.4, V -17.3 %"
        parts = [(column, cell.replace("none", "0")), ("U, V", chroma)]
        for name, text in parts:
            numbers = re.findall(NUMBER, re.sub(r"`[^`]*`", "", text))
            for stated, value in zip(numbers, columns.get(name, ()), strict=False):
                yield Figure(f"{self.page}: {row}, {name}", stated, value)


@dataclass(frozen=True)
class Sentence:
    """Figures within a text.

    Attributes:
        page: Path of the page.
        pattern: Regular expression in which X stands for a number or a range.
        names: Subject and quantity of each X.
    """

    page: str
    pattern: str
    names: tuple[tuple[str, str], ...]

    def figures(self, measured: Measured) -> Iterator[Figure]:
        """Yield the figures; SystemExit if the page no longer has the text."""
        text = " ".join(read(self.page).split())
        match = re.search(self.pattern.replace("X", f"({RANGE})"), text)
        if match is None:
            raise SystemExit(f"{self.page} has no text like {self.pattern!r}: adapt the pattern in tools/figures.py")
        for (subject, quantity), stated in zip(self.names, match.groups(), strict=True):
            yield Figure(f"{self.page}: {subject}, {quantity}", stated, measured[subject][quantity][0])


def read(page: str) -> str:
    """Read a page of the repository."""
    return (REPOSITORY / page).read_text("utf-8")


def measure_networks(_folder: Path) -> Measured:
    """Count the cost of all architectures."""
    costs = {name: full_cost(create_model(name)) for name in list_models()}
    measured = {
        name: {
            "kMAC/pixel": [cost["kmac_per_pixel"]],
            "parameters": [cost["parameters"]],
            "receptive field": [cost["receptive_field"]],
            "training MiB": [cost["training_bytes"] / 2**20],
            "inference MiB": [cost["inference_bytes"] / 2**20],
        }
        for name, cost in costs.items()
    }
    for name in CHECKPOINTED:
        peak = full_cost(create_model(name, checkpoint=True))["training_bytes"] / 2**20
        measured[name]["training MiB with checkpoints"] = [peak]
    return measured


def measure_weights(_folder: Path) -> Measured:
    """Count the cost of the weights, and read from their cards what their test measured."""
    measured = recorded_tests()
    for name in WEIGHTS:
        cost = complexity(load_model(weights_path(name))[0])
        measured[name] |= {"kMAC/pixel": [cost.kmac_per_pixel], "parameters": [cost.parameters]}
    return measured


def recorded_tests() -> Measured:
    """Read the tests on classes of pictures from the cards of the weights."""
    measured: Measured = {name: {} for name in WEIGHTS}
    for name in WEIGHTS:
        test = read_json(card_path(weights_path(name))).get("test", {}).get("over_classes")
        if test is not None:
            losing, worst = [float(test["losing_cells"])], [test["worst_class"][1]]
            chroma = [test[key] for key in ("bd_rate_u", "bd_rate_v") if test[key] is not None]
            measured[name] = {
                "BD-rate Y": [test["bd_rate_y"], *(test["bd_rate_y_ci95"] or ())],
                "U, V": chroma,
                "U": chroma[:1],
                "V": chroma[1:],
                "gain Y": [test["gain_db"]],
                "worst class": worst,
                "worst class, BD-rate Y": worst,
                "worst picture": [test["worst_sequence"][1]],
                "luma cells that lose": losing,
                f"cells of {test['cells']} that lose": losing,
            }
    return measured


def measure_picture(folder: Path) -> Measured:
    """Code and filter the picture of the README, and draw the figure."""
    before, after = readme_figure.draw(*readme_figure.code_and_filter(folder), folder / "readme.png")
    print(f"drawn: {folder / 'readme.png'}", flush=True)
    return {readme_figure.PICTURE: {"PSNR Y before": [before], "PSNR Y after": [after]}}


def measure_demo(folder: Path) -> Measured:
    """Run the demo, and evaluate the shipped weights on its store in 8-bit integers too."""

    def figures(results: Results) -> dict[str, list[float]]:
        return {"dB": [results.gain_db["y"]["mean"]], "%": [results.bd_rate["y"]]}

    trained, shipped = run_demo(folder, jobs=2, say=print, progress=progress)["evaluation"]
    (integers,) = codecnn.evaluate(folder / "stores" / "demo", models=SHIPPED, output=folder / "integers")
    return {"demo": figures(trained), SHIPPED: figures(shipped), f"{SHIPPED}.int8": figures(integers)}


def measure_archives(_folder: Path) -> Measured:
    """Build sdist and wheel of the tracked files; sizes in millions of bytes."""
    with tempfile.TemporaryDirectory() as folder:
        sdist, package = wheel.build(Path(folder))
        return {name: {"MB": [path.stat().st_size / 1e6]} for name, path in (("sdist", sdist), ("wheel", package))}


def measure_seconds(folder: Path) -> Measured:
    """Time the weights of the README on a picture of 1920x1080 with one thread."""
    rows = re.findall(r"^\| `([^`]+)`", read("README.md").partition("## Shipped weights")[2], re.MULTILINE)
    names = [name for name in rows if name in WEIGHTS]
    argv = [sys.executable, "tools/benchmark.py", "picture", *names, "--table", str(folder / "rows.json")]
    one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    subprocess.run(argv, cwd=REPOSITORY, env=os.environ | one_thread, check=True)
    *times, _motion = read_json(folder / "rows.json")
    return {name: {"s per 1080p picture": [row["ours"]]} for name, row in zip(names, times, strict=True)}


ALL_INTRA = "Gain on VVC, all intra"
ASTRONAUT = readme_figure.PICTURE
GROUPS: dict[str, tuple[Callable[[Path], Measured], tuple[Table | Sentence, ...]]] = {
    "networks": (
        measure_networks,
        (
            Table("docs/reference/networks.md", "Cost"),
            Sentence(
                "docs/reference/networks.md",
                "`rdn_32_3_6_16` then trains in X instead of X MiB for one 128x128 CTU, "
                "`rdn_32_4_6_24` in X instead of X, `rdn_64_4_6_24_shuffle` in X instead of X",
                tuple(
                    (name, quantity)
                    for name in CHECKPOINTED
                    for quantity in ("training MiB with checkpoints", "training MiB")
                ),
            ),
        ),
    ),
    "weights": (
        measure_weights,
        (
            Table("README.md", "Shipped weights"),
            *(Table("docs/reference/weights.md", heading) for heading in (ALL_INTRA, "HEVC", "AV1")),
        ),
    ),
    "picture": (
        measure_picture,
        (
            Sentence(
                "docs/research/figures.md",
                r"QP 37, PSNR Y \| X to X dB",
                ((ASTRONAUT, "PSNR Y before"), (ASTRONAUT, "PSNR Y after")),
            ),
        ),
    ),
    "demo": (
        measure_demo,
        (
            Sentence(
                "README.md",
                r"two others: X dB, X % BD-rate.*? reach X dB and X % there \(8 bits: X dB, X %\)",
                tuple((name, unit) for name in ("demo", SHIPPED, f"{SHIPPED}.int8") for unit in ("dB", "%")),
            ),
        ),
    ),
    "archives": (
        measure_archives,
        (Sentence("README.md", r"wheel \(X MB\)", (("wheel", "MB"),)),),
    ),
    "seconds": (measure_seconds, (Table("README.md", "Shipped weights"),)),
}
"""Groups by name: the function that measures the figures, and where pages state them."""

ON_REQUEST = ("seconds",)
"""Groups that run only with --only: on a busy machine times mean nothing."""


def identity() -> str:
    """Return a hash of package, recipes, configurations and version of PyTorch."""
    digest = hashlib.sha256(torch.__version__.encode())
    for name in wheel.tracked_files():
        if name.startswith(("codecnn/", "configs/", "datasets/")):
            digest.update(name.encode() + hashlib.sha256((REPOSITORY / name).read_bytes()).digest())
    return digest.hexdigest()[:12]


def measured_once(name: str, output: Path) -> Measured:
    """Measure a group, or read what an earlier command measured."""
    file = output / f"{name}.json"
    if not file.exists():
        print(f"measuring {name}", flush=True)
        folder = output / name
        folder.mkdir(parents=True, exist_ok=True)
        write_json(file, GROUPS[name][0](folder))
    return read_json(file)


def main() -> None:
    """Measure, compare, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=GROUPS, help="one group")
    parser.add_argument("-o", "--output", type=Path, default=REPOSITORY / "build" / "figures", help="[build/figures]")
    options = parser.parse_args()
    output = options.output.resolve() / identity()
    figures: list[Figure] = []
    for name in [options.only] if options.only else [name for name in GROUPS if name not in ON_REQUEST]:
        measured = measured_once(name, output)
        figures += [figure for place in GROUPS[name][1] for figure in place.figures(measured)]
    print("| figure | stated | measured | difference |\n|---|---:|---:|---:|")
    for figure in figures:
        verdict = " **differs**" if figure.differs else ""
        print(f"| {figure.name} | {figure.stated} | {figure.measured:.7g} | {figure.difference:+.3g}{verdict} |")
    wrong = sum(figure.differs for figure in figures)
    print(f"{len(figures)} figures, {wrong} differ by more than their rounding")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
