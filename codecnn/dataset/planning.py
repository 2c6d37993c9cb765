"""Plan of a build: the units of a recipe with the facts that determine their bytes, and which of them are complete."""

import contextlib
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codecnn.base.errors import CodecnnError, ConfigError, StoreError
from codecnn.base.files import read_json, sha256_json
from codecnn.base.leftovers import shortened
from codecnn.base.rate_modes import rate_mode
from codecnn.codec import (
    QP_RULE_VERSION,
    Codec,
    CodecSettings,
    CodecTools,
    SuppliedStream,
    block_reader_version,
)
from codecnn.dataset.originals import LONGEST_NAME, original_name, source_sha256
from codecnn.dataset.recipe import Recipe
from codecnn.dataset.records import CodedUnit
from codecnn.dataset.sources import Source, by_lowest_qp, drawn_qps
from codecnn.dataset.store import SCHEMA
from codecnn.dataset.unit_files import derived_facts, same_stream_keys

CODED, UNIT = "coded", "unit.json"

_UNIT_FOLDER = re.compile(r"(?P<name>.+)_qp(?P<qp>\d+)_[0-9a-f]{12}", re.DOTALL)
_LISTED_UNITS = 8
"""Number of units that an error message lists."""


@dataclass(frozen=True)
class UnitPlan:
    """A unit to code.

    Attributes:
        source: Its sequence.
        original: Name of the original in the store.
        settings: Settings of the codec.
        key: Hash of `facts`.
        facts: All facts that determine the unit's bytes.
        given: Supplied stream or pictures, or None if codecnn runs the encoder.
    """

    source: Source
    original: str
    settings: CodecSettings
    key: str
    facts: dict[str, Any]
    given: SuppliedStream | None = None

    @property
    def title(self) -> str:
        """Name and QP of the unit in messages."""
        return f"{self.source.name} at {rate_mode(self.settings.rate).text(self.settings.qp)}"

    @property
    def folder(self) -> str:
        """Folder of the unit relative to the store; the key in its name separates units of different recipes."""
        return _unit_folder(self.source.name, self.settings.qp, self.key)


@dataclass(frozen=True)
class Build:
    """The part of a build that is the same for all units; it is pickled for the workers of a cluster."""

    recipe: Recipe
    tools: CodecTools
    store: Path
    identity: str
    label: str
    codec: Codec | None = None


def plan_units(sources: list[Source], work: Build, jobs: int) -> list[UnitPlan]:
    """Return a plan for each sequence and QP; sources are hashed in `jobs` threads."""
    with ThreadPoolExecutor(jobs) as pool:
        originals = list(pool.map(lambda source: original_name(work.recipe, source, work.store), sources))
    plans = []
    for source, original in zip(sources, originals, strict=True):
        given = by_lowest_qp(source.given, source.name)
        for qp in drawn_qps(work.recipe, source) or given:
            settings = work.recipe.settings(qp, source.encoder)
            facts = _unit_facts(original, settings, given.get(qp), work)
            plans.append(UnitPlan(source, original, settings, sha256_json(facts), facts, given.get(qp)))
    return plans


def _unit_facts(original: str, settings: CodecSettings, given: SuppliedStream | None, work: Build) -> dict[str, Any]:
    """Return all facts that determine a unit's bytes, which its key hashes.

    The identity of the encoder includes its version, so a new version codes again. The number of threads, the machine
    and the split are not included.
    """
    recipe, tools = work.recipe, work.tools
    if recipe.stream_planes and given is not None and not given.is_vvc:
        raise ConfigError(f"{given.path}: {', '.join(recipe.stream_planes)} are rebuilt from VVC streams only")
    return {
        "schema": SCHEMA,
        "original": original,
        "codec": recipe.codec,
        "encoder": work.identity,
        "settings": _setting_facts(settings),
        "decoder_output": [tools.trace, *tools.prediction],
        "block_reader": block_reader_version("vvc" if given is not None and given.is_vvc else recipe.codec, tools),
        "given": None if given is None else _given_facts(given, work.store),
        **({"network_qps": QP_RULE_VERSION} if recipe.rate is not None or given is not None else {}),
        **derived_facts(recipe.rebuilt_files, recipe.temporal_files),
    }


def _setting_facts(settings: CodecSettings) -> dict[str, Any]:
    """Return the settings that determine a unit's bytes; `rate` has no key at constant QP."""
    facts = {key: value for key, value in vars(settings).items() if key != "threads"}
    return facts if settings.rate is not None else {key: value for key, value in facts.items() if key != "rate"}


def _given_facts(given: SuppliedStream, store: Path) -> dict[str, Any]:
    """Return the facts of a supplied file that determine a unit's bytes."""
    return {
        "file": given.path.name,
        "sha256": source_sha256(given.path, store),
        "stated_qps": given.stated_qps,
        "reading": given.reading,
        "picture_bits": given.picture_bits,
        "total_bits": given.total_bits,
        "checked": given.checked,
    }


def check_unchanged(plan: UnitPlan, work: Build) -> None:
    """Raise StoreError if the supplied stream of a unit has changed since it was planned."""
    if plan.given is not None and source_sha256(plan.given.path, work.store) != plan.facts["given"]["sha256"]:
        raise StoreError(f"{plan.given.path} changed while store {work.store} was built: build the store again")


def check_nothing_is_lost(plans: Sequence[UnitPlan], work: Build, advice: str) -> None:
    """Check that the store holds only units of the recipe.

    A unit whose bitstream a unit of the recipe keeps is not counted: the two differ in rebuilt planes only.

    Raises:
        StoreError: The store holds other units, which a complete build would remove.
    """
    foreign = other_units(plans, work.store)
    if foreign:
        kept = {
            Path(_unit_folder(plan.source.name, plan.settings.qp, key)).name
            for plan in plans
            for key in same_stream_keys(plan.facts)
        }
        foreign = [path for path in foreign if path.name not in kept]
    if not foreign:
        return
    matches = [match for path in foreign if (match := _UNIT_FOLDER.fullmatch(path.name))]
    listed = [f"{match['name']} at QP {match['qp']}" for match in matches[:_LISTED_UNITS]]
    if len(matches) > _LISTED_UNITS:
        listed.append(f"{len(matches) - _LISTED_UNITS} more")
    units = "1 unit that does" if len(foreign) == 1 else f"{len(foreign)} units that do"
    raise StoreError(
        f"store {work.store} holds {units} not belong to recipe {work.recipe.name!r} with its present settings and "
        f"encoder ({', '.join(listed)}): {advice}"
    )


def other_units(plans: Sequence[UnitPlan], store: Path) -> list[Path]:
    """Return the folders of units that no plan names, sorted; working folders and other files are not included."""
    planned = {Path(plan.folder).name for plan in plans}
    folders = sorted((store / CODED).iterdir())
    return [
        path
        for path in folders
        if path.name not in planned and _UNIT_FOLDER.fullmatch(path.name) and (path / UNIT).is_file()
    ]


def finished_unit(plan: UnitPlan, store: Path) -> CodedUnit | None:
    """Return the unit if it is complete: its key is that of the plan, and its files have their recorded sizes."""
    path = store / plan.folder / UNIT
    with contextlib.suppress(CodecnnError, OSError):
        unit = CodedUnit.from_json(path, read_json(path))
        if unit.key == plan.key and all((store / name).stat().st_size == size for name, size in unit.sizes.items()):
            return unit
    return None


def _unit_folder(name: str, qp: int, key: str) -> str:
    return f"{CODED}/{shortened(name, LONGEST_NAME)}_qp{qp}_{key[:12]}"
