"""Functions of training sets: build a store from a recipe, and open it.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from codecnn.api.groups import FileName, Jobs, ManyMachines, Overrides
from codecnn.base.cluster import Progress
from codecnn.base.options import argument, option, progress_bar, record, verb
from codecnn.base.parts import extension

if TYPE_CHECKING:
    from codecnn.codec import Codec
    from codecnn.dataset import BuildPlan, Recipe, Store

RecipeName = Annotated[
    FileName | Mapping[str, Any],
    argument("Recipe, e.g. datasets/demo.yaml.", kind=Path, python="Or a dictionary with its keys."),
]


@record
class BuildOptions(ManyMachines):
    """Options of `build_dataset`."""

    recipe: RecipeName
    store: Annotated[FileName, option("-o", "--output", help="Folder of the store, new or existing.")]
    _: KW_ONLY
    overrides: Overrides = ()
    jobs: Jobs = 1
    prune: Annotated[bool, option("--prune", help="Remove units of the store that do not belong to the recipe.")] = (
        False
    )
    progress: Annotated[Progress | None, progress_bar("coding", "unit", "Called with (units done, all units).")] = None


@verb(BuildOptions)
def build_dataset(options: BuildOptions) -> "Store | None":
    """Build a training set: code the pictures of a recipe at its QPs and index their CTUs.

    An interrupted build is continued. A store built again with other QPs or pictures keeps the units that both recipes
    have in common and codes the missing ones. If it holds units that do not belong to the recipe, the build stops
    before it codes anything; --prune removes them when the store is complete.

    For an array job, run N builds into one store with --shard 1/N to --shard N/N, at the same time or one after
    another; the last to finish completes the store. With --backend dask the workers of a cluster code; they must see
    store, pictures and encoder under the same paths.

    Returns:
        The store; None if other shards have not finished.

    Raises:
        MissingFileError: The recipe or a source does not exist.
        ConfigError: The recipe is invalid.
        EncoderError: An encoder fails.
        StoreError: The store is damaged or in use.
    """
    from codecnn.api.config import load_recipe
    from codecnn.dataset import build_shard, open_store

    options.check_backend()
    recipe, store = load_recipe(options.recipe, options.overrides), Path(options.store)
    folder = _recipe_folder(options.recipe)
    complete = build_shard(
        recipe,
        folder,
        store,
        options.shard,
        codec=_loop_codec(recipe, folder),
        jobs=options.jobs,
        scheduler=options.scheduler,
        progress=options.progress,
        prune=options.prune,
    )
    return open_store(store) if complete else None


@record
class PlanOptions:
    """Options of `plan_dataset`."""

    recipe: RecipeName
    _: KW_ONLY
    overrides: Overrides = ()


@verb(PlanOptions)
def plan_dataset(options: PlanOptions) -> "BuildPlan":
    """Show units, pictures, core-hours and GiB of a build before anything is coded.

    The sizes of raw video and of planes are exact; those of bitstreams and tables are estimates. Core-hours follow from
    rates that were measured for some presets at constant QP; for others the plan has no hours. Sequences whose files
    are missing count as their key `planned` in the recipe states.

    Returns:
        The plan.

    Raises:
        MissingFileError: The recipe does not exist, or a source for which it states no sizes.
        ConfigError: The recipe is invalid.
    """
    from codecnn.api.config import load_recipe
    from codecnn.dataset import plan_build

    return plan_build(load_recipe(options.recipe, options.overrides), _recipe_folder(options.recipe))


def _recipe_folder(recipe: "FileName | Mapping[str, Any]") -> Path:
    """Return the folder from which the root of a recipe is resolved."""
    return Path() if isinstance(recipe, Mapping) else Path(recipe).parent


def _loop_codec(recipe: "Recipe", folder: Path) -> "Codec | None":
    """Create the back end of a recipe that codes with a filter in the loop; None for other recipes."""
    if recipe.in_loop is None:
        return None
    codec: Codec = extension("signalling.in_loop_codec")(recipe.in_loop, folder)
    return codec


@record
class StoreOptions:
    """Options of functions of one store."""

    store: Annotated[FileName, argument("Folder of a store.", kind=Path)]


@verb(StoreOptions)
def open_dataset(options: StoreOptions) -> "Store":
    """Open a training set: its units, pictures (memory-mapped) and CTU table.

    Returns:
        The store.

    Raises:
        MissingFileError: The folder does not exist.
        StoreError: The folder is not a complete store.
    """
    from codecnn.dataset import open_store

    return open_store(options.store)
