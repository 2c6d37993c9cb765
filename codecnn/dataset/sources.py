"""Sources of a recipe: each sequence with its file, its variant, its encoder and its supplied streams."""

import csv
import glob
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from codecnn.base.errors import ConfigError, MissingFileError
from codecnn.codec import SuppliedStream
from codecnn.dataset.encoder_specs import EncoderSpec
from codecnn.dataset.recipe import Recipe
from codecnn.dataset.records import CodedUnit, Variant
from codecnn.dataset.sequence_specs import PlannedFiles, SequenceSpec
from codecnn.dataset.supplied import DecodedSpec
from codecnn.dataset.variants import uniform
from codecnn.pictures.files import is_still, stills_in

_SKIMAGE_PREFIX = "skimage:"
_NAME = "{name}"
"""Placeholder for the sequence's name in the paths of its streams."""


class Source(BaseModel):
    """One sequence of a recipe with its file.

    Attributes:
        name: Name of the sequence in the store.
        group: Sequences of one group show the same scene and are in one split.
        path: File of pictures, or a folder of stills that are one video.
        spec: The recipe's entry.
        scale: Factor of width and height.
        variant: Changes made to the pictures, or None for the source itself.
        encoder: Encoder settings that override the recipe's, or None.
        given: Supplied streams or decoded pictures; empty if codecnn runs the encoder.
        planned: Size and number of pictures if the file is missing and the source is only planned, else None.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    group: str
    path: Path
    spec: SequenceSpec
    scale: float = 1
    variant: Variant | None = None
    encoder: EncoderSpec | None = None
    given: tuple[SuppliedStream, ...] = ()
    planned: PlannedFiles | None = None

    @property
    def still(self) -> bool:
        """True for a still picture or a folder of stills, whose samples are R'G'B' rather than Y'CbCr."""
        return is_still(self.path)

    @property
    def source_bit_depth(self) -> int | None:
        """Bit depth to which the original is rounded before coding, or None."""
        return None if self.encoder is None else self.encoder.source_bit_depth


def expand(recipe: Recipe, recipe_folder: Path, *, planning: bool = False) -> list[Source]:
    """Find the files of a recipe's sequences.

    Args:
        recipe: The recipe.
        recipe_folder: Folder from which the recipe's root is resolved.
        planning: Whether sequences whose files are missing have the sources that their key `planned` states.

    Returns:
        Sources in the recipe's order; the files of a pattern are sorted by name.

    Raises:
        MissingFileError: A source or a stream matches no file.
        ConfigError: A name is used twice, a group or a file is in two splits, or no sequence remains.
    """
    root = recipe_folder / Path(recipe.root).expanduser()
    sources = []
    chosen = [spec for spec in recipe.sequences if recipe.classes is None or spec.class_ in recipe.classes]
    if not chosen:
        raise ConfigError(f"recipe {recipe.name!r} has no sequence of the classes {', '.join(recipe.classes or [])}")
    for position, spec in enumerate(chosen, 1):
        try:
            matches = _find_files(spec.source, root, spec.series, recipe.name)
        except MissingFileError:
            if not (planning and spec.planned):
                raise
            for source in _planned_sources(spec, root, position):
                sources += [*_scaled(source), *_variants(recipe, source)]
            continue
        paths = [path for path in matches if not any(fnmatch(path.name, pattern) for pattern in spec.exclude)]
        if not paths:
            raise ConfigError(f"{spec.source}: every file that matches is excluded: change the patterns of exclude")
        if spec.name is not None and len(paths) > 1:
            raise ConfigError(f"{spec.source} matches {len(paths)} files, which cannot all be named {spec.name!r}")
        for path in paths:
            name = spec.name or path.stem
            given = find_streams(spec.streams, root, name, recipe)
            source = Source(name=name, group=spec.group or name, path=path, spec=spec, given=given)
            sources += [*_scaled(source), *_variants(recipe, source)]
    sources = [coded for source in sources for coded in _with_encoders(recipe, source)]
    _check(sources)
    if recipe.encoders and not any(source.encoder for source in sources):
        raise ConfigError(f"recipe {recipe.name!r} has encoders, but no sequence of the split train, which they code")
    return sources


def _scaled(source: Source) -> list[Source]:
    """Return a source at each of the sizes of its entry."""
    return [
        source.model_copy(update={"name": source.name if scale == 1 else f"{source.name}_x{scale:g}", "scale": scale})
        for scale in source.spec.scales
    ]


def _planned_sources(spec: SequenceSpec, root: Path, position: int) -> Iterator[Source]:
    """Return a source for each of the files that an entry states; `position` makes their names unique."""
    path = root / Path(spec.source).expanduser()
    files = [planned for planned in spec.planned for _ in range(planned.files)]
    for number, planned in enumerate(files, 1):
        name = spec.name or f"planned_{position}_{number}"
        yield Source(name=name, group=spec.group or name, path=path, spec=spec, planned=planned)


def find_streams(
    specs: Sequence[str | DecodedSpec], root: Path, name: str, recipe: Recipe
) -> tuple[SuppliedStream, ...]:
    """Find the supplied streams and decoded pictures of a sequence.

    Args:
        specs: Entries of the recipe's key `streams`.
        root: Folder from which relative paths are resolved.
        name: Name of the sequence, which replaces "{name}" in the paths.
        recipe: The recipe, for the scale of the QPs.

    Returns:
        The files in the order of the entries; those of a pattern are sorted by name.

    Raises:
        MissingFileError: An entry matches no file.
        ConfigError: A file has no slice QPs, or is listed twice, or its bits cannot be read.
    """
    files: list[SuppliedStream] = []
    for spec in specs:
        stated: dict[str, Any] = {}
        if isinstance(spec, DecodedSpec):
            reading = spec.model_dump(include={"size", "bit_depth", "chroma"}, exclude_none=True)
            stated = {"stated_qps": recipe.stated_qps(spec), "reading": reading, "checked": recipe.check}
            stated |= _stated_bits(spec, root, name)
            spec = spec.decoded
        paths = _matching(spec, root, name)
        if len(paths) > 1 and stated.get("total_bits") is not None:
            raise ConfigError(f"the bits of {name!r} are those of one file, and {spec} matches {len(paths)} files")
        files += [SuppliedStream(match, **stated) for match in paths]
    paths = [file.path for file in files]
    twice = [path for number, path in enumerate(paths) if path in paths[:number]]
    if twice:
        raise ConfigError(f"the sequence {name!r} has {twice[0]} twice: remove one of the entries")
    return tuple(files)


def _matching(pattern: str, root: Path, name: str) -> list[Path]:
    """Return the files that a path or a pattern of a sequence matches, sorted; raise MissingFileError if none does."""
    path = root / Path(pattern.replace(_NAME, name)).expanduser()
    # A file may have the characters of patterns in its name.
    escaped = str(root / Path(pattern.replace(_NAME, glob.escape(name))).expanduser())
    paths = [path] if path.is_file() else sorted(map(Path, glob.glob(escaped, recursive=True)))  # noqa: PTH207
    paths = [match for match in paths if match.is_file()]
    if not paths:
        raise MissingFileError(f"no stream of the sequence {name!r} matches {path}")
    return paths


def _stated_bits(spec: DecodedSpec, root: Path, name: str) -> dict[str, Any]:
    """Return the bits of supplied pictures as attributes of `SuppliedStream`: those of each picture, and of all."""
    if spec.bitstream is not None:
        sizes = [8 * path.stat().st_size for path in sorted(_matching(spec.bitstream, root, name), key=_by_number)]
        return {"total_bits": sum(sizes)} | ({"picture_bits": tuple(sizes)} if len(sizes) > 1 else {})
    if spec.bits is None:
        return {}
    bits = _read_bits(_matching(spec.bits, root, name)[0]) if isinstance(spec.bits, str) else spec.bits
    return {"picture_bits": tuple(bits), "total_bits": sum(bits)}


def _by_number(path: Path) -> list[str | int]:
    """Return a key that sorts file names with numbers by these numbers: frame_2 precedes frame_10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]


def _read_bits(path: Path) -> list[int]:
    """Read the column `bits` of a CSV file, or its only column if it has no header."""
    try:
        rows = [row for row in csv.reader(path.read_text(encoding="utf-8-sig").splitlines()) if row]
        header = [field.strip() for field in rows[0]]
        column = header.index("bits") if "bits" in header else 0
        values = [int(row[column]) for row in (rows[1:] if "bits" in header else rows)]
        if ("bits" not in header and len(header) > 1) or not values or min(values) < 0:
            raise ValueError
    except (ValueError, IndexError, csv.Error):
        raise ConfigError(
            f"{path} does not have the bits of each picture: write a CSV file with the column bits, whole numbers, "
            "a row for each picture in output order"
        ) from None
    return values


def by_lowest_qp(given: Sequence[SuppliedStream], name: str) -> dict[int, SuppliedStream]:
    """Index the supplied files of the sequence `name` by their lowest slice QP.

    Raises:
        ConfigError: Two files have the same lowest slice QP.
    """
    files: dict[int, SuppliedStream] = {}
    for file in given:
        qp = file.lowest_qp()
        first = files.setdefault(qp, file)
        if first is not file:
            raise ConfigError(
                f"{first.path.name} and {file.path.name} of the sequence {name!r} are both of QP {qp}: "
                "give each a sequence of its own, with another name and one group"
            )
    return files


def check_stated_qps(units: Iterable[CodedUnit]) -> None:
    """Check that the error rises with the QP between units of a sequence of which one or both have no stream.

    Raises:
        ConfigError: A unit with a higher QP has the higher PSNR, so a QP that the recipe states must be wrong.
    """
    by_name: dict[str, list[CodedUnit]] = defaultdict(list)
    for unit in units:
        by_name[unit.name].append(unit)
    for name, same_name in by_name.items():
        for lower, higher in pairwise(sorted(same_name, key=lambda unit: unit.qp)):
            stated = lower.bitstream_file is None or higher.bitstream_file is None
            # The PSNR of a picture without any error is None.
            if stated and (lower.psnr_y or math.inf) < (higher.psnr_y or math.inf):
                raise ConfigError(
                    f"the sequence {name!r} has more error at QP {lower.qp} ({lower.psnr_y:.2f} dB) than at QP "
                    f"{higher.qp} ({higher.psnr_y or math.inf:.2f} dB): a slice_qp that the recipe states is wrong"
                )


def _variants(recipe: Recipe, source: Source) -> list[Source]:
    """Return the variants of a source; all keep its group and split, since they show the same picture."""
    spec = source.spec.variants
    if spec is None and source.spec.split == "train":
        spec = recipe.variants
    if spec is None:
        return []
    variants = (spec.draw(recipe.seed, source.name, n, still=source.still) for n in range(1, spec.count + 1))
    return [
        source.model_copy(update={"name": f"{source.name}_v{variant.number}", "variant": variant})
        for variant in variants
    ]


def _with_encoders(recipe: Recipe, source: Source) -> list[Source]:
    """Return the source with the encoder drawn for it, or once per encoder if they have no shares.

    Sources outside the split train are returned as they are.
    """
    encoders = recipe.encoders if source.spec.split == "train" else []
    if not encoders:
        return [source]
    shares = [encoder.share for encoder in encoders if encoder.share is not None]
    if not shares:
        return [
            source.model_copy(update={"name": f"{source.name}_e{number}", "encoder": encoder})
            for number, encoder in enumerate(encoders, 1)
        ]
    drawn = uniform(recipe.seed, source.name, "encoder") * sum(shares)
    # Rounding of the sums can leave a draw above all of them; it goes to the last encoder.
    index = next((n for n, limit in enumerate(accumulate(shares)) if drawn < limit), len(shares) - 1)
    return [source.model_copy(update={"encoder": encoders[index]})]


def drawn_qps(recipe: Recipe, source: Source) -> list[int]:
    """Return the QPs at which a source is coded, in the order of the recipe; none for supplied streams.

    With `qps_per_source`, a source of the split train is coded at that many neighbours in the list of QPs, which is
    closed to a ring. The draw depends on the seed and the name of the source, not on the other sources.
    """
    if recipe.qps_per_source is None or source.spec.split != "train":
        return recipe.points
    count = len(recipe.points)
    first = int(uniform(recipe.seed, source.name, "qp") * count)
    chosen = {(first + step) % count for step in range(recipe.qps_per_source)}
    return [recipe.points[index] for index in sorted(chosen)]


def _find_files(source: str, root: Path, series: bool, recipe: str) -> list[Path]:
    if source.startswith(_SKIMAGE_PREFIX):
        import skimage

        path = Path(skimage.__file__).parent / "data" / source.removeprefix(_SKIMAGE_PREFIX)
        if not path.is_file():
            raise MissingFileError(f"scikit-image has no sample picture {path.name}")
        return [path]
    path = root / Path(source).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        matches = [path] if series else stills_in(path)
    else:
        # glob of Path takes no absolute patterns.
        paths = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207
        matches = [match for match in paths if (match.is_dir() if series else match.is_file())]
    if not matches:
        where = f" in {root.absolute()}: root=FOLDER sets the folder of its pictures"
        where = "" if Path(source).is_absolute() else where
        kind = "folder" if series else "file of pictures"
        raise MissingFileError(f"recipe {recipe!r}: no {kind} matches {source}{where}")
    return matches


def _check(sources: list[Source]) -> None:
    splits: dict[str, set[str]] = defaultdict(set)
    names: set[str] = set()
    streams: dict[Path, str] = {}
    for source in sources:
        if source.name in names:
            raise ConfigError(f"two sequences are named {source.name!r}: give one of them another name")
        if not source.name or any(character in source.name for character in "/\\\0\n\r") or source.name[0] in ".-":
            raise ConfigError(f"sequence name {source.name!r} cannot be used in file names: give it another name")
        names.add(source.name)
        for given in source.given:
            if (other := streams.setdefault(given.path.resolve(), source.name)) != source.name:
                raise ConfigError(f"{given.path} is given for two sequences, {other!r} and {source.name!r}")
        splits[f"group {source.group!r}"].add(source.spec.split)
        splits[f"file {source.path.resolve()}"].add(source.spec.split)
    for subject, names_of_splits in splits.items():
        if len(names_of_splits) > 1:
            raise ConfigError(
                f"{subject} lies in the splits {' and '.join(sorted(names_of_splits))}: give all of it one split"
            )
