"""Compute the cost of recipes of public data sets, and of 1,000 sequences of BVI-DVC, for docs/research/scale.md.

python tools/research/scale.py

prints tables in Markdown. Nothing is coded or trained: builds are those of `codecnn dataset plan`, and training is
computed from the counts of docs/research/gpu_step.md and the data sheet of the NVIDIA H100 SXM.
"""

from collections.abc import Iterable
from pathlib import Path

from codecnn import plan_dataset
from codecnn.dataset import BuildPlan
from codecnn.models import complexity, create_model

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
RECIPES = ("bvi_dvc", "bvi_aom", "tvd", "uvg", "jvet_ctc")
JVET_CLASSES = {"ra": "[A1,A2,B,C,D]", "ldb": "[B,C,D,E]"}

SEQUENCES, SIZES = 1000, ("3840x2176", "1920x1088", "960x544", "480x272")
PLANES = "planes=[unf_y, prev_mc_y, prev2_mc_y]"
WORK = {
    "coding": ("coding", ("decoded", "bitstream")),
    "unfiltered pictures": ("rebuilding", ("unfiltered",)),
    "four motion-compensated neighbours": ("temporal", ("neighbours", "second_neighbours")),
    "originals, tables, checks": ("other", ("originals", "block_planes", "records")),
}
"""Field of the core-hours and kinds of file of each row."""
CORES = 64

STEPS, PATCHES, PATCH = 10**6, 16, 128
PEAK, BANDWIDTH = 989e12, 3.35e12
"""Operations in bfloat16 and bytes per second of an H100 SXM by its data sheet."""
UTILISATION = 0.1
"""Share of the peak that convolutions with few channels are taken to reach; not measured."""
NETWORKS = {"low_cost_17": (1.39e9, 96), "rdn_64_4_6_24_shuffle": (4.98e9, 44)}
"""Bytes of a step in bfloat16, and steps per second for which the host starts all kernels (gpu_step.md)."""


def main() -> None:
    """Print the tables."""
    for table in (recipe_rows(), build_rows(), training_rows()):
        print(*table, "", sep="\n")


def recipe_rows() -> Iterable[str]:
    """Return the lines of the table of recipes."""
    yield "| recipe | configuration | sequences | units | pictures | GiB | core-hours |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for name in RECIPES:
        for configuration in ("ai", "ra", "ldb"):
            conditions = name == "jvet_ctc" and configuration != "ai"
            ctc = ["ctc=true", f"classes={JVET_CLASSES[configuration]}"] if conditions else []
            build_plan = plan(name, f"configuration={configuration}", *ctc)
            total = build_plan.total
            figures = [build_plan.planned, total.units, total.pictures, total.bytes / 2**30, total.core_hours.total]
            shown = " | ".join("–" if figure is None else f"{figure:,.0f}" for figure in figures)
            yield f"| [{name}](../../datasets/{name}.yaml) | {configuration}{' ctc' if ctc else ''} | {shown} |"


def build_rows() -> Iterable[str]:
    """Return the lines of the table of a build of 1,000 sequences."""
    files = ", ".join(f"{{files: {SEQUENCES // len(SIZES)}, size: {size}, pictures: 64}}" for size in SIZES)
    sequences = f"sequences=[{{source: missing.mp4, planned: [{files}]}}]"
    total = plan("bvi_dvc", "configuration=ra", PLANES, sequences).total
    hours = total.core_hours
    assert hours.total is not None
    assert {kind for _, kinds in WORK.values() for kind in kinds} == set(total.sizes)
    yield f"| work | core-hours | share | hours on {CORES} cores | TiB |"
    yield "|---|---:|---:|---:|---:|"
    rows = {what: (getattr(hours, part), sum(map(total.sizes.get, kinds))) for what, (part, kinds) in WORK.items()}
    for what, (spent, size) in (rows | {"total": (hours.total, total.bytes)}).items():
        figures = f"{spent:,.0f} | {spent / hours.total:.0%} | {spent / CORES:.1f} | {size / 2**40:.2f}"
        yield f"| {what} | {figures} |"


def training_rows() -> Iterable[str]:
    """Return the lines of the table of a training."""
    yield "| network | operations, ms | memory, ms | starting kernels, ms | 10^6 steps, h | without the start, h |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, (moved, started) in NETWORKS.items():
        operations = 6e3 * complexity(create_model(name)).kmac_per_pixel * PATCHES * PATCH**2
        times = [operations / (UTILISATION * PEAK), moved / BANDWIDTH, 1 / started]
        hours = [max(times) * STEPS / 3600, max(times[:2]) * STEPS / 3600]
        figures = " | ".join(f"{figure:.2g}" for figure in [*(1000 * each for each in times), *hours])
        yield f"| `{name}` | {figures} |"


def plan(name: str, *overrides: str) -> BuildPlan:
    """Return the plan of a recipe whose files are missing."""
    return plan_dataset(DATASETS / f"{name}.yaml", overrides=["root=/missing", *overrides])


if __name__ == "__main__":
    main()
