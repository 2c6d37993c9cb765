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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from codecnn.base.errors import MissingFileError, StoreError
from codecnn.base.files import read_json, read_jsonl, sha256_file
from codecnn.base.notebook import html_table
from codecnn.base.rate_modes import rate_mode
from codecnn.codec import UNKNOWN_CODEC
from codecnn.dataset.records import Manifest
from codecnn.dataset.remote import copy_files, copy_manifest, store_address
from codecnn.dataset.unit import Unit
from codecnn.pictures.files import STILL_SUFFIXES

SCHEMA = 3
"""Version of the store's layout and of the facts that keys of units hash."""

MANIFEST, UNITS, CTUS = "manifest.json", "units.jsonl", "ctus.parquet"

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


@dataclass(frozen=True)
class Store:
    """A complete store, opened for reading.

    Attributes:
        folder: Folder of the store.
        manifest: Content of manifest.json.
        units: The coded units in the recipe's order.
        address: Address in object storage from which files come into the folder when they are needed, or None.
    """

    folder: Path
    manifest: Manifest
    units: tuple[Unit, ...]
    address: str | None = None

    def split(self, name: str) -> tuple[Unit, ...]:
        """Return the units of the split "train", "val" or "test".

        Raises:
            StoreError: The split has no units.
        """
        chosen = tuple(unit for unit in self.units if unit.split == name)
        if not chosen:
            raise StoreError(f"store {self.folder} has no pictures in the split {name!r}")
        return chosen

    def __repr__(self) -> str:
        recipe = self.manifest.recipe
        qps = rate_mode(recipe.rate_option).text(" ".join(map(str, sorted({unit.qp for unit in self.units}))))
        names = len({unit.name for unit in self.units})
        coder = f"{recipe.codec} {recipe.preset} {recipe.configuration}"
        return f"<Store {self.folder}: {len(self.units)} units of {names} sources, {coder}, {qps}>"

    def _repr_html_(self) -> str:
        """Show pictures, CTUs, bits and PSNR by split and QP in a notebook."""
        stats = store_stats(self)
        title = rate_mode(stats.get("rate")).title
        heads = ("split", title, "sequences", "pictures", "CTUs", "bit/sample", "PSNR Y, dB", "mean CU depth")
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


def input_files(*sources: Path | str | None) -> list[Path]:
    """List what is read of sources, for `codecnn.base.outputs.check_outputs`.

    Args:
        sources: Files, folders of still pictures, and stores; None is skipped.

    Returns:
        Of a folder the still pictures, of a store the files and folders that make it up; other files that lie in them
        are not included.
    """
    files: list[Path] = []
    for source in sources:
        path = Path("" if source is None else source)
        if source is None or not path.is_dir():
            files += [] if source is None else [path]
        elif (path / "coded").exists() or (path / MANIFEST).exists():
            files += [path / name for name in (MANIFEST, UNITS, CTUS, "coded", "originals")]
        else:
            files += [file for file in path.iterdir() if file.suffix.lower() in STILL_SUFFIXES]
    return files


def is_store(folder: Path) -> bool:
    """Return whether `folder` is a store, complete or not, or an address of one in object storage.

    A folder without still pictures counts as a store, so that opening it reports what is missing.
    """
    if store_address(folder) is not None:
        return True
    if not folder.is_dir():
        return False
    return (folder / "coded").exists() or not any(path.suffix.lower() in STILL_SUFFIXES for path in folder.iterdir())


def open_store(folder: Path | str) -> Store:
    """Open a complete store and validate its records.

    Args:
        folder: Folder of the store, or its address in object storage (see `codecnn.dataset.remote`).

    Returns:
        The store.

    Raises:
        MissingFileError: The folder does not exist, or the address cannot be read.
        StoreError: The folder is not a store, is not complete, is damaged, or has another schema version.
    """
    address = store_address(folder)
    folder = Path(folder) if address is None else copy_manifest(address, MANIFEST)
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
    if address is not None:
        copy_files(address, folder, {UNITS: manifest.units_sha256, CTUS: manifest.ctus_sha256})
    recipe = manifest.recipe
    facts: dict[str, Any] = {"folder": folder, "address": address, "rate": recipe.rate_option}
    facts["all_intra"] = recipe.configuration == "ai"
    units = tuple(Unit.from_json(folder / UNITS, line, **facts) for line in read_jsonl(folder / UNITS))
    if len(units) != manifest.units:
        raise StoreError(
            f"store {folder} lists {len(units)} units, its manifest says {manifest.units}: build the store again"
        )
    return Store(folder, manifest, units, address)


def verify_store(store: Store) -> Iterator[tuple[str, str | None]]:
    """Hash every file of a store again.

    Yields:
        The path of each file relative to the store, and None if it is intact, else the problem.
    """
    expected = {CTUS: store.manifest.ctus_sha256, UNITS: store.manifest.units_sha256}
    for unit in store.units:
        expected |= unit.files
    if store.address is not None:
        copy_files(store.address, store.folder, expected)
    for name, sha256 in sorted(expected.items()):
        path = store.folder / name
        if not path.is_file():
            yield name, "is missing"
        elif sha256_file(path) != sha256:
            yield name, "has other content than when it was built"
        else:
            yield name, None


def store_stats(store: Store) -> dict[str, Any]:
    """Summarise a store.

    Args:
        store: The store.

    Returns:
        "name", "encoder", "codec", "preset", "configuration" and "rows". Each row is a split and QP with its number of
        sequences, pictures and CTUs, bits per luma sample (None without bitstreams), mean PSNR Y in dB over the units
        that have one (None if none has), and mean CTU depth. If the store has them, also "variants" (which operations
        were drawn, for how many sequences), "encoders" (the settings), "given" (facts of supplied units) and "rate"
        (rate control whose values the QPs are, a key of `RATE_MODES`).
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
        "rate": recipe.rate_option,
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
    given = [variant.model_dump(exclude_unset=True) for variant in variants]
    for name in ("scale", "blur", "sharpen", "contrast", "gamma"):
        if values := [operations[name] for operations in given if name in operations]:
            stats[name] = {"sequences": len(values), "range": [min(values), max(values)]}
    stats["kernels"] = dict(sorted(Counter(variant.kernel for variant in variants if variant.scale < 1).items()))
    stats["linear_light"] = sum(variant.linear_light and variant.scale < 1 for variant in variants)
    for name, is_full in (("full_range", True), ("limited_range", False)):
        stats[name] = sum(variant.full_range is is_full for variant in variants)
    return stats
