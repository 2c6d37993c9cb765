"""Reading a store: its files, units, CTU table, statistics and verification.

A store is a folder:

    manifest.json   schema version, recipe, encoder; written last, so its presence means that the store is complete
    units.jsonl     one line per coded unit (a sequence at a QP): key, files, bits, PSNR, argv; from each unit.json
    ctus.parquet    one row per CTU
    originals/      the pictures that the encoder reads, as raw YUV
    coded/          one folder per unit: bitstream, decoded pictures, log, CTU rows; with `times` also seconds.json
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from codecnn.codec import UNKNOWN_CODEC
from codecnn.dataset.records import CodedUnit, Coding, EncoderTime, Manifest
from codecnn.errors import MissingFileError, StoreError
from codecnn.motion import temporal_number
from codecnn.notebook import html_table
from codecnn.planes import LUMA_FILES, SAMPLE_PLANES, SLICE_TYPES, how_to_have
from codecnn.runs import read_json, read_jsonl, sha256_file
from codecnn.video import READER_VERSION, STILL_SUFFIXES, VIDEO_SUFFIXES, Video, changed_name, open_raw

SCHEMA = 2
"""Version of the store's layout."""

MANIFEST, UNITS, CTUS = "manifest.json", "units.jsonl", "ctus.parquet"
SECONDS = "seconds.json"

UNIT_SCHEMA = pa.schema(
    dict.fromkeys(("unit", "sequence"), pa.string())
    | dict.fromkeys(("poc", "x", "y", "w", "h", "qp"), pa.int32())
    | dict.fromkeys(("mse_y", "psnr_y", "depth_mean", "depth_max", "variance", "bits"), pa.float64()),
    metadata={"codecnn_schema": str(SCHEMA)},
)
"""Columns of the table of one unit's CTUs.

`mse_y` and `variance` are in sample units squared at the coded bit depth; `psnr_y` is in dB with the peak 255·2^(b-8);
depths are null if the CU table is not known; `bits` is null, since the encoders do not report bits per CTU.
"""

CTU_SCHEMA = UNIT_SCHEMA.append(pa.field("group", pa.string())).append(pa.field("split", pa.string()))
"""Columns of ctus.parquet: those of a unit, and the group and split of its sequence."""


class Unit(CodedUnit):
    """A line of units.jsonl: a coded unit, the recipe's metadata of its sequence, and its store.

    Attributes:
        split: "train", "val" or "test".
        group: Sequences of one group show the same scene.
        class_: JVET class of the sequence, or None.
        coding: Encoder settings, if the recipe has several.
        folder: Folder of the store.
        teacher_file: File of pictures that a teacher network filtered, or None.
        all_intra: The recipe's configuration is all-intra.
    """

    split: str
    group: str
    class_: str | None = Field(default=None, alias="class")
    coding: Coding | None = None
    folder: Path = Field(exclude=True)
    teacher_file: str | None = Field(default=None, alias="teacher", exclude=True)
    all_intra: bool = Field(default=False, exclude=True)

    def slice_type_value(self, picture: int) -> float:
        """Return the value of the plane `slice_type`: 0 for an intra picture, 1 for an inter picture.

        Args:
            picture: Index of the picture in output order.

        Raises:
            StoreError: The slice type is not known, because the picture was supplied without a stream.
        """
        known = "I" if self.all_intra else self.pictures[picture].slice_type
        if known not in SLICE_TYPES:
            raise StoreError(
                f"{self.name} at QP {self.qp} has no plane 'slice_type': slice types are known from streams only"
            )
        return SLICE_TYPES[known]

    def has(self, file: str) -> bool:
        """Return whether the unit has a file.

        Args:
            file: "original", "decoded", "unfiltered", "prediction", "residual" or "teacher" for pictures;
                "block_planes", "transforms" or "strengths" for planes of 4x4 cells; "neighbours" or "references" for
                temporal planes.
        """
        return getattr(self, f"{file}_file") is not None

    def path(self, file: str) -> Path:
        """Return the path of a file, named as in `has`.

        Raises:
            StoreError: The unit has no such file.
        """
        name: str | None = getattr(self, f"{file}_file")
        if name is None:
            raise StoreError(f"sequence {self.name!r} of store {self.folder} has no file {file}")
        return self.folder / name

    @property
    def original_path(self) -> Path:
        """Raw YUV file of the original pictures."""
        return self.folder / self.original_file

    @property
    def decoded_path(self) -> Path:
        """Raw YUV file of the decoded pictures."""
        return self.folder / self.decoded_file

    @property
    def encoder_seconds(self) -> float | None:
        """Processor time of the encoder in seconds, or None if the recipe does not set `times`."""
        path = self.decoded_path.with_name(SECONDS)
        return EncoderTime.from_json(path, read_json(path)).encoder_cpu if path.is_file() else None

    def originals(self) -> Video:
        """Open the original pictures by memory map."""
        return open_raw(self.original_path, self.format)

    def decoded(self) -> Video:
        """Open the decoded pictures by memory map."""
        return open_raw(self.decoded_path, self.format)

    def unfiltered(self) -> Video | None:
        """Open the reconstruction before the in-loop filters; None if the unit has none."""
        return self.pictures_of("unfiltered")

    def prediction(self) -> Video | None:
        """Open the prediction signal; None if the unit has none."""
        return self.pictures_of("prediction")

    def residual(self) -> Video | None:
        """Open the residual plus 2^(bit_depth - 1), clipped to the sample range; None if the unit has none."""
        return self.pictures_of("residual")

    def pictures_of(self, file: str) -> Video | None:
        """Open one of the unit's files of pictures by memory map; None if the unit has no such file."""
        return open_raw(self.path(file), self.format) if self.has(file) else None

    def temporal_plane(self, name: str, picture: int) -> npt.NDArray[Any]:
        """Read a temporal plane of a picture.

        Args:
            name: Name of the plane, of `codecnn.planes.TEMPORAL_PLANES`.
            picture: Number of the picture in output order.

        Returns:
            Luma samples, shape (h, w).

        Raises:
            StoreError: The unit does not hold the plane.
        """
        file = SAMPLE_PLANES[name].file
        if file not in LUMA_FILES:
            with self.decoded() as decoded:
                return np.array(decoded[temporal_number(name, picture, len(decoded))].y)
        if not self.has(file):
            raise StoreError(f"{self.name} at QP {self.qp} has no plane {name!r}{how_to_have(name)}")
        names = LUMA_FILES[file]
        with open_raw(self.path(file), replace(self.format, chroma="400")) as planes:
            return np.array(planes[picture * len(names) + names.index(name)].y)

    def block_planes(self) -> npt.NDArray[np.int8] | None:
        """Map the planes of the coding tree, shape (pictures, planes, ceil(h/4), ceil(w/4)).

        The planes are `codecnn.planes.BLOCK_PLANES`, -1 where a value is not known.

        Returns:
            The planes, or None if the unit's CU table is not known.

        Raises:
            StoreError: The file is damaged.
        """
        return self.cells("block_planes")

    def cells(self, file: str) -> npt.NDArray[np.int8] | None:
        """Map the planes of 4x4 cells of one of `codecnn.planes.CELL_FILES`, with the shape of `block_planes`.

        Returns:
            The planes, or None if the unit has no such file.

        Raises:
            StoreError: The file is damaged.
        """
        return map_cells(self.path(file)) if self.has(file) else None


@dataclass(frozen=True)
class Store:
    """A complete store, opened for reading.

    Attributes:
        folder: Folder of the store.
        manifest: Content of manifest.json.
        units: The coded units in the recipe's order.
    """

    folder: Path
    manifest: Manifest
    units: tuple[Unit, ...]

    def split(self, name: str) -> tuple[Unit, ...]:
        """Return the units of the split "train", "val" or "test".

        Raises:
            StoreError: The split has no units.
        """
        chosen = tuple(unit for unit in self.units if unit.split == name)
        if not chosen:
            raise StoreError(f"store {self.folder} has no pictures in the split {name!r}")
        return chosen

    def _repr_html_(self) -> str:
        """Show pictures, CTUs, bits and PSNR by split and QP in a notebook."""
        stats = store_stats(self)
        heads = ("split", "QP", "sequences", "pictures", "CTUs", "bit/sample", "PSNR Y, dB", "mean CU depth")
        keys = ("split", "qp", "sequences", "pictures", "ctus", "bits_per_sample", "psnr_y", "depth_mean")
        caption = f"store {self.folder}: {stats['name']}, {stats['codec']} {stats['configuration']}, {stats['encoder']}"
        return html_table(heads, ([row[key] for key in keys] for row in stats["rows"]), caption)

    @property
    def data_key(self) -> str:
        """sha256 over the keys of all units, which weights record as their training data."""
        return self.manifest.data_key

    def ctus(self) -> pa.Table:
        """Read the table of CTUs, with the columns of CTU_SCHEMA.

        Raises:
            StoreError: The file is damaged.
        """
        path = self.folder / CTUS
        try:
            return pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{path} is not a readable table: build the store again") from error


def map_cells(path: Path) -> npt.NDArray[np.int8]:
    """Map a file of planes of 4x4 cells.

    Raises:
        StoreError: The file is not a readable array.
    """
    try:
        planes: npt.NDArray[np.int8] = np.load(path, mmap_mode="r")
    except Exception as error:  # NumPy evaluates a damaged header as Python text, which can raise anything
        raise StoreError(f"{path} is not a readable array: build the store again") from error
    return planes


def is_store(folder: Path) -> bool:
    """Return whether `folder` is a store, complete or not.

    A folder without still pictures counts as a store, so that opening it reports what is missing.
    """
    if not folder.is_dir():
        return False
    return (folder / "coded").exists() or not any(path.suffix.lower() in STILL_SUFFIXES for path in folder.iterdir())


def open_store(folder: Path | str) -> Store:
    """Open a complete store and validate its records.

    Args:
        folder: Folder of the store.

    Returns:
        The store.

    Raises:
        MissingFileError: The folder does not exist.
        StoreError: The folder is not a store, is not complete, is damaged, or has another schema version.
    """
    folder = Path(folder)
    if folder.is_file():
        raise StoreError(f"{folder} is a file, not the folder of a store: `codecnn dataset build` makes one")
    if not folder.is_dir():
        raise MissingFileError(f"store {folder} does not exist: `codecnn dataset build RECIPE -o {folder}` makes it")
    if not (folder / MANIFEST).is_file():
        if (folder / UNITS).exists() or (folder / "coded").exists():
            raise StoreError(f"store {folder} is not finished: run the same `codecnn dataset build` again to continue")
        raise StoreError(f"{folder} is not a store, it has no {MANIFEST}: `codecnn dataset build` makes one")
    value = read_json(folder / MANIFEST)
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        raise StoreError(f"store {folder} has schema {schema}, this codecnn reads schema {SCHEMA}: build it again")
    manifest = Manifest.from_json(folder / MANIFEST, value)
    facts: dict[str, Any] = {"folder": folder, "all_intra": manifest.recipe.configuration == "ai"}
    units = tuple(Unit.from_json(folder / UNITS, line, **facts) for line in read_jsonl(folder / UNITS))
    if len(units) != manifest.units:
        raise StoreError(
            f"store {folder} lists {len(units)} units, its manifest says {manifest.units}: build the store again"
        )
    return Store(folder, manifest, units)


def verify_store(store: Store) -> Iterator[tuple[str, str | None]]:
    """Hash every file of a store again.

    Yields:
        The path of each file relative to the store, and None if it is intact, else the problem.
    """
    expected = {CTUS: store.manifest.ctus_sha256, UNITS: store.manifest.units_sha256}
    for unit in store.units:
        expected |= unit.files
    for name, sha256 in sorted(expected.items()):
        path = store.folder / name
        if not path.is_file():
            yield name, "is missing"
        elif sha256_file(path) != sha256:
            yield name, "has other content than when it was built"
        else:
            yield name, None


def doubtful_sources(store: Store) -> list[str]:
    """List the sources of a store that reader version 1 may have read wrong, as its recipe names them.

    That reader misread some kinds of still pictures and of layouts in names of raw files (see
    `codecnn.video.READER_VERSION`). The store does not hold the sources, so which files were misread is known only when
    the store is built again: that codes misread files again and keeps the units of all others.

    Args:
        store: The store.

    Returns:
        Sequences whose names state a layout that was ignored, then files, patterns and folders whose names do so, or
        that can be still pictures; empty for stores of a later reader, and for stores that hold video only.
    """
    if store.manifest.reader >= READER_VERSION:
        return []
    names = dict.fromkeys(unit.name for unit in store.units if changed_name(unit.name))
    # A sequence can have another name than its file.
    sources = dict.fromkeys(
        source
        for source in store.manifest.recipe.sources
        if _may_be_stills(source) or (changed_name(Path(source).stem) and Path(source).stem not in names)
    )
    return [*names, *sources]


def _may_be_stills(source: str) -> bool:
    """Return whether a source of a recipe can be still pictures that reader version 1 misread."""
    suffix = Path(source).suffix.lower()
    if source.startswith("skimage:"):
        return suffix in (".tif", ".gif")
    return suffix not in VIDEO_SUFFIXES


def store_stats(store: Store) -> dict[str, Any]:
    """Summarise a store.

    Args:
        store: The store.

    Returns:
        "name", "encoder", "codec", "preset", "configuration" and "rows". Each row is a split and QP with its number of
        sequences, pictures and CTUs, bits per luma sample (None without bitstreams), mean PSNR Y in dB over the units
        that have one (None if none has), and mean CTU depth. If the store has them, also "variants" (which operations
        were drawn, for how many sequences), "encoders" (the settings) and "given" (facts of supplied units).
    """
    table = store.ctus()
    depth = table["depth_mean"].to_numpy()
    unit_of_row = np.array(table["unit"].to_pylist())
    groups: dict[tuple[str, int], list[Unit]] = defaultdict(list)
    for unit in store.units:
        groups[unit.split, unit.qp].append(unit)
    rows = []
    for (split, qp), units in sorted(groups.items()):
        samples = sum(unit.format.width * unit.format.height * len(unit.pictures) for unit in units)
        psnrs = [unit.psnr_y for unit in units if unit.psnr_y is not None]
        bits = [unit.bits for unit in units if unit.bits is not None]
        rows_of_units = np.isin(unit_of_row, [unit.key for unit in units])
        depths = depth[rows_of_units]
        rows.append(
            {
                "split": split,
                "qp": qp,
                "sequences": len(units),
                "pictures": sum(len(unit.pictures) for unit in units),
                "ctus": int(rows_of_units.sum()),
                "bits_per_sample": sum(bits) / samples if len(bits) == len(units) else None,
                "psnr_y": float(np.mean(psnrs)) if psnrs else None,
                "depth_mean": float(np.nanmean(depths)) if np.isfinite(depths).any() else None,
            }
        )
    recipe = store.manifest.recipe
    optional: dict[str, Any] = {
        "variants": _variant_stats(store.units),
        "encoders": encoder_settings(store.units),
        "given": _supplied_stats(store.units),
    }
    return {
        "name": recipe.name,
        "encoder": store.manifest.encoder,
        "codec": recipe.codec,
        "preset": recipe.preset,
        "configuration": recipe.configuration,
        "rows": rows,
    } | {name: value for name, value in optional.items() if value}


def codecs(store: Store, split: str) -> list[str]:
    """Return the codecs of a split's units, sorted; "unknown" for pictures supplied without a stream."""
    given = [unit.given for unit in store.units if unit.split == split and unit.given is not None]
    names = {record.codec or UNKNOWN_CODEC for record in given}
    return sorted(names) or [store.manifest.recipe.codec]


def encoder_settings(units: Iterable[Unit]) -> list[dict[str, Any]]:
    """Return the encoder settings of units whose recipe has several.

    Returns:
        One entry per setting, the most used first, each with "units": the number of its units by split.
    """
    settings: dict[str, dict[str, Any]] = {}
    for unit in units:
        if unit.coding is not None:
            coding = unit.coding.to_json()
            row = settings.setdefault(json.dumps(coding, sort_keys=True), coding | {"units": Counter()})
            row["units"][unit.split] += 1
    rows = sorted(settings.values(), key=lambda row: -row["units"].total())
    return [row | {"units": dict(sorted(row["units"].items()))} for row in rows]


def _supplied_stats(units: Iterable[Unit]) -> dict[str, Any]:
    """Count the supplied streams by codec, the decoded pictures without a stream, and the pictures verified by MD5."""
    given = [(unit.given, len(unit.pictures)) for unit in units if unit.given is not None]
    if not given:
        return {}
    return {
        "streams": dict(sorted(Counter(record.codec for record, _ in given if record.codec is not None).items())),
        "decoded": sum(record.codec is None for record, _ in given),
        "stream_pictures": sum(pictures for record, pictures in given if record.codec is not None),
        "md5s": sum(record.md5s or 0 for record, _ in given),
        "ctu_sizes": sorted({record.ctu_size for record, _ in given if record.ctu_size is not None}),
    }


def _variant_stats(units: Iterable[Unit]) -> dict[str, Any]:
    """Count the variants, and for each operation the sequences that it changes and the range of its values."""
    variants = list({unit.name: unit.variant for unit in units if unit.variant is not None}.values())
    if not variants:
        return {}
    stats: dict[str, Any] = {"sequences": len(variants)}
    for name in ("scale", "blur", "sharpen", "contrast", "gamma"):
        values = [getattr(variant, name) for variant in variants if name in variant.model_fields_set]
        if values:
            stats[name] = {"sequences": len(values), "range": [min(values), max(values)]}
    stats["kernels"] = dict(sorted(Counter(variant.kernel for variant in variants if variant.scale < 1).items()))
    stats["linear_light"] = sum(variant.linear_light and variant.scale < 1 for variant in variants)
    for name, is_full in (("full_range", True), ("limited_range", False)):
        stats[name] = sum(variant.full_range is is_full for variant in variants)
    return stats
