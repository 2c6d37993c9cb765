"""Size and processor time of a build, computed from the headers of the recipe's pictures before anything is coded."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

from codecnn.base.planes import (
    BLOCK_FILE,
    BLOCK_SIZE,
    CELL_FILES,
    LUMA_FILES,
    TEMPORAL_PLANES,
)
from codecnn.codec import STREAMS, SuppliedStream, codes_vvc
from codecnn.dataset.originals import check_sources, source_format
from codecnn.dataset.rates import (
    RECORD_BYTES_PER_SAMPLE,
    RECORD_BYTES_PER_UNIT,
    bits_per_sample,
    coding_seconds,
    other_seconds,
    qp_of_bits,
    rebuilding_seconds,
    similar_seconds,
    temporal_seconds,
)
from codecnn.dataset.recipe import Recipe
from codecnn.dataset.sources import Source, by_lowest_qp, drawn_qps, expand
from codecnn.pictures.files import VideoFormat

_NPY_HEADER = 128
"""Bytes before the samples of a NumPy file of planes of cells."""
_GIB = 1 << 30


@dataclass(frozen=True)
class CoreHours:
    """Processor time of a build in core-hours.

    Attributes:
        coding: Running the encoder; None if it was not measured for these settings.
        rebuilding: Rebuilding planes from VVC bitstreams.
        temporal: Motion search for the temporal planes.
        other: Conversion of sources, decoding, CU tables, errors of the CTUs and hashes.
    """

    coding: float | None
    rebuilding: float
    temporal: float
    other: float

    @property
    def total(self) -> float | None:
        """Sum of all; None if coding is not known."""
        return None if self.coding is None else self.coding + self.rebuilding + self.temporal + self.other


@dataclass(frozen=True)
class PlanRow:
    """Units of a build with the same encoder settings.

    Attributes:
        configuration: Codec, preset and configuration, e.g. "vvc fast ai".
        units: Number of units.
        pictures: Number of coded pictures of all units.
        samples: Luma samples of these pictures.
        sizes: Bytes by kind of file.
        core_hours: Processor time.
    """

    configuration: str
    units: int
    pictures: int
    samples: int
    sizes: dict[str, int]
    core_hours: CoreHours

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(self.sizes.values())

    def to_json(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return asdict(self) | {
            "core_hours": asdict(self.core_hours) | {"total": self.core_hours.total},
            "gib": self.bytes / _GIB,
        }


@dataclass(frozen=True)
class BuildPlan:
    """Units, size and processor time of a build.

    Attributes:
        name: Name of the recipe.
        rows: A row for each setting of the encoder, in the order of the recipe.
        planned: Number of sources whose files are missing, with the sizes that the recipe states for them.
    """

    name: str
    rows: tuple[PlanRow, ...]
    planned: int = 0

    @property
    def total(self) -> PlanRow:
        """Sum of the rows."""
        sizes: dict[str, int] = defaultdict(int)
        for row in self.rows:
            for kind, size in row.sizes.items():
                sizes[kind] += size
        hours = [row.core_hours for row in self.rows]
        coding = [each.coding for each in hours if each.coding is not None]
        return PlanRow(
            "total",
            sum(row.units for row in self.rows),
            sum(row.pictures for row in self.rows),
            sum(row.samples for row in self.rows),
            dict(sizes),
            CoreHours(
                sum(coding) if len(coding) == len(hours) else None,
                sum(each.rebuilding for each in hours),
                sum(each.temporal for each in hours),
                sum(each.other for each in hours),
            ),
        )

    @property
    def not_measured(self) -> tuple[str, ...]:
        """Configurations whose coding time is not known."""
        return tuple(row.configuration for row in self.rows if row.core_hours.coding is None)

    def to_json(self) -> dict[str, Any]:
        """Return the plan for JSON."""
        return {
            "name": self.name,
            "total": self.total.to_json(),
            "rows": [row.to_json() for row in self.rows],
            "not_measured": list(self.not_measured),
            "planned": self.planned,
        }

    def __repr__(self) -> str:
        """Return one line; `to_json` has all fields."""
        total = self.total
        hours = "unknown" if total.core_hours.total is None else f"{total.core_hours.total:.3g}"
        return f"<BuildPlan {self.name}: {total.units} units, {total.bytes / _GIB:.3g} GiB, {hours} core-hours>"

    __str__ = __repr__


def plan_build(recipe: Recipe, recipe_folder: Path) -> BuildPlan:
    """Compute units, size and processor time of a recipe's store.

    Sizes of raw video and of planes are exact, those of other files are estimated. Processor time is that of
    `codecnn.dataset.rates`. Sources that are missing count as the recipe's key `planned` states, if it does.

    Args:
        recipe: The recipe.
        recipe_folder: Folder from which the recipe's root is resolved.

    Returns:
        The plan.

    Raises:
        ConfigError: The recipe and its pictures do not fit.
        CodecnnError: A source is missing or cannot be read.
    """
    sources = expand(recipe, recipe_folder, planning=True)
    check_sources(recipe, (source for source in sources if source.planned is None), 1)
    groups: dict[str, list[Source]] = defaultdict(list)
    for source in sources:
        groups[_configuration(recipe, source)].append(source)
    rows = tuple(_row(recipe, name, group) for name, group in groups.items())
    return BuildPlan(recipe.name, rows, sum(source.planned is not None for source in sources))


def unit_costs(recipe: Recipe, units: Sequence[tuple[Source, int]], jobs: int) -> list[int]:
    """Predict the processor time of units, to share the work of a build evenly.

    Settings whose time was not measured count as the most similar ones that were.

    Args:
        recipe: The recipe.
        units: Source and QP of each unit.
        jobs: Number of files whose headers are read at the same time.

    Returns:
        Milliseconds of each unit; whole numbers, so that machines which round floats differently agree.

    Raises:
        CodecnnError: A source is missing or cannot be read.
    """
    sources = {source.name: source for source, _ in units}

    with ThreadPoolExecutor(jobs) as pool:
        formats = pool.map(lambda source: source_format(recipe, source), sources.values())
        known = dict(zip(sources, formats, strict=True))
    return [_milliseconds(recipe, source, qp, *known[source.name]) for source, qp in units]


def _milliseconds(recipe: Recipe, source: Source, qp: int, form: VideoFormat, pictures: int) -> int:
    picture = form.width * form.height
    samples = picture * pictures
    if (bits := _bits_at_rate(recipe, form, qp)) is not None:
        qp = qp_of_bits(recipe.configuration, bits)
    coding = similar_seconds(recipe, source.encoder, qp, samples, picture)
    return round(1000 * (coding + sum(_further_seconds(recipe, samples))))


def _further_seconds(recipe: Recipe, samples: int) -> tuple[float, float, float]:
    """Return the seconds of rebuilding planes, of temporal planes and of all other work except coding for a unit."""
    rebuilding = rebuilding_seconds(samples) if recipe.rebuilt_planes else 0.0
    return rebuilding, temporal_seconds(samples, _searches(recipe)), other_seconds(recipe, samples)


def _configuration(recipe: Recipe, source: Source) -> str:
    """Return codec, preset and configuration of a source, with the parameters that its encoder gets."""
    if recipe.codec == STREAMS:
        return f"{STREAMS} {recipe.configuration}"
    coding = recipe.coding(source.encoder)
    params = "".join(f" {name}={value}" for name, value in coding.params.items())
    return f"{recipe.codec} {coding.preset} {recipe.configuration}{' ctc' if recipe.ctc else ''}{params}"


def _row(recipe: Recipe, name: str, sources: Sequence[Source]) -> PlanRow:
    """Sum sizes and times of the sources with one setting of the encoder."""
    sizes: dict[str, int] = defaultdict(int)
    units = pictures = samples = 0
    coding: float | None = 0.0
    further = [0.0, 0.0, 0.0]
    for source in sources:
        form, count = source_format(recipe, source)
        sizes["originals"] += count * form.picture_bytes
        luma = form.width * form.height * count
        given = by_lowest_qp(source.given, source.name)
        for qp in drawn_qps(recipe, source) or given:
            units, pictures, samples = units + 1, pictures + count, samples + luma
            for kind, size in _unit_sizes(recipe, form, count, qp, given.get(qp)).items():
                sizes[kind] += size
            if coding is not None:
                seconds = coding_seconds(recipe, source.encoder, qp, luma, form.width * form.height)
                coding = None if seconds is None else coding + seconds
            further = [total + part for total, part in zip(further, _further_seconds(recipe, luma), strict=True)]
    hours = CoreHours(None if coding is None else coding / 3600, *(seconds / 3600 for seconds in further))
    return PlanRow(name, units, pictures, samples, dict(sizes), hours)


def _searches(recipe: Recipe) -> int:
    """Return the number of motion searches for each picture."""
    planes = [name for file in recipe.temporal_files for name in LUMA_FILES[file]]
    return sum(TEMPORAL_PLANES[name].compensated for name in planes)


def _unit_sizes(
    recipe: Recipe, form: VideoFormat, pictures: int, qp: int, given: SuppliedStream | None
) -> dict[str, int]:
    """Return the bytes of a unit's files by kind."""
    luma = form.width * form.height * pictures
    video = form.picture_bytes * pictures
    sizes = {"decoded": video}
    if given is None:
        bits = _bits_at_rate(recipe, form, qp) or bits_per_sample(recipe.configuration, qp)
        sizes["bitstream"] = round(luma * bits / 8)
    elif not given.stated_qps:
        sizes["bitstream"] = given.path.stat().st_size
    if _has_blocks(recipe, given):
        sizes[BLOCK_FILE] = _cell_bytes(form, pictures, len(CELL_FILES[BLOCK_FILE]))
    if recipe.unfiltered:
        sizes["unfiltered"] = video
    if recipe.tools.prediction:
        sizes["prediction"] = video
    for file in recipe.rebuilt_files:
        sizes[file] = _cell_bytes(form, pictures, len(CELL_FILES[file])) if file in CELL_FILES else video
    for file in recipe.temporal_files:
        sizes[file] = luma * form.dtype.itemsize * len(LUMA_FILES[file])
    sizes["records"] = round(RECORD_BYTES_PER_UNIT + luma * RECORD_BYTES_PER_SAMPLE)
    return sizes


def _bits_at_rate(recipe: Recipe, form: VideoFormat, kbps: int) -> float | None:
    """Return the bits for a luma sample that a bit rate stands for; None for recipes of QPs or crf."""
    if recipe.rate is None or recipe.rate.kind != "kbps":
        return None
    fps = float(form.fps or 30)  # sources that are only planned state none
    return 1000 * kbps / (fps * form.width * form.height)


def _has_blocks(recipe: Recipe, given: SuppliedStream | None) -> bool:
    """Return whether a unit has a CU table."""
    if given is not None:
        return given.is_vvc
    in_rate = recipe.rate is not None and recipe.codec != "vvc"
    return codes_vvc(recipe.codec) or recipe.tools.trace or (recipe.codec == "hevc" and not in_rate)


def _cell_bytes(form: VideoFormat, pictures: int, planes: int) -> int:
    """Return the size of a NumPy file of planes of 4x4 cells, one byte a cell."""
    cells = ceil(form.width / BLOCK_SIZE) * ceil(form.height / BLOCK_SIZE)
    return _NPY_HEADER + planes * pictures * cells
