"""Compare `codecnn dataset plan` with what builds take: bytes, and processor time of codecnn and its programs.

python tools/research/plan_check.py OUT.json RECIPE.yaml [KEY=VALUE]...

The recipe is built into a temporary store, after its first source at one QP, which loads the compiled code. OUT.json
has units, bytes and seconds as planned, as measured, and their ratio.
"""

import json
import sys
import tempfile
from pathlib import Path

from codecnn.api.config import load_recipe
from codecnn.dataset import Recipe, Store, build_store, plan_build
from tools.research.build_rates import processor_time, watch


def main(output: str, path: str, *overrides: str) -> None:
    """Plan and build the recipe, and write both."""
    recipe, folder = load_recipe(path, list(overrides)), Path(path).parent
    plan = plan_build(recipe, folder).total
    with tempfile.TemporaryDirectory() as temporary:
        build_store(_first(recipe), folder, Path(temporary) / "first")
        parts = watch()
        start = processor_time()
        store = build_store(recipe.model_copy(update={"times": True}), folder, Path(temporary) / "store")
        total = processor_time() - start
        encoder = sum(unit.encoder_seconds or 0 for unit in store.units)
        rebuilding, temporal = (
            sum(part.get(name, 0.0) for part in parts) for name in ("add_rebuilt_planes", "write_temporal_planes")
        )
        measured = {
            "units": len(store.units),
            "bytes": _size(store),
            "coding_s": encoder,
            "rebuilding_s": rebuilding,
            "temporal_s": temporal,
            "other_s": total - encoder - rebuilding - temporal,
            "total_s": total,
        }
    hours = plan.core_hours
    assert hours.total is not None
    assert hours.coding is not None
    planned = {
        "units": plan.units,
        "bytes": plan.bytes,
        "coding_s": 3600 * hours.coding,
        "rebuilding_s": 3600 * hours.rebuilding,
        "temporal_s": 3600 * hours.temporal,
        "other_s": 3600 * hours.other,
        "total_s": 3600 * hours.total,
    }
    ratio = {name: planned[name] / measured[name] for name in planned if measured[name]}
    result = {"recipe": recipe.name, "planned": planned, "measured": measured, "planned_over_measured": ratio}
    Path(output).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


def _first(recipe: Recipe) -> Recipe:
    """Return the recipe with its first sequence at its last QP."""
    points = {"qp": recipe.qp[-1:]} if recipe.rate is None else {}
    return recipe.model_copy(update={"sequences": recipe.sequences[:1], **points})


def _size(store: Store) -> int:
    """Return the bytes of all files of a store."""
    return sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main(*sys.argv[1:])
