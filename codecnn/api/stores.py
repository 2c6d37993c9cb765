"""Functions of training sets: build a store from a recipe, and open it.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from codecnn.api.config import load_recipe
from codecnn.base.cluster import Progress
from codecnn.base.keywords import checked_keywords
from codecnn.dataset import Recipe, Store, build_store, open_store

if TYPE_CHECKING:
    from codecnn.codec import Codec


@checked_keywords()
def build_dataset(
    recipe: Path | str,
    store: Path | str,
    *,
    overrides: Sequence[str] = (),
    jobs: int = 1,
    progress: Progress | None = None,
    prune: bool = False,
) -> Store:
    """Build a training set: code the pictures of a recipe at its QPs; an existing store is completed or updated.

    Args:
        recipe: Recipe file, e.g. "datasets/demo.yaml".
        store: Folder of the store.
        overrides: Texts "key.sub=value" that replace values of the recipe.
        jobs: Number of encoders that run at the same time.
        progress: Called with (units done, all units).
        prune: Remove units of the store that do not belong to the recipe; without it they are an error.

    Returns:
        The store.

    Raises:
        MissingFileError: The recipe or a source does not exist.
        ConfigError: The recipe is invalid.
        EncoderError: An encoder fails.
        StoreError: The store is damaged or in use.
    """
    recipe = Path(recipe)
    loaded = load_recipe(recipe, overrides)
    codec = loop_codec(loaded, recipe.parent)
    return build_store(loaded, recipe.parent, Path(store), codec=codec, jobs=jobs, progress=progress, prune=prune)


def loop_codec(recipe: Recipe, folder: Path) -> "Codec | None":
    """Create the back end of a recipe that codes with a filter in the loop; None for other recipes.

    Args:
        recipe: The recipe.
        folder: Folder of the recipe file, to which its paths are relative.

    Returns:
        The back end, or None.

    Raises:
        ToolMissingError: libvvenc is missing as a shared library.
        ModelError: The filter cannot run in the loop.
    """
    if recipe.in_loop is None:
        return None
    from codecnn.filtering import in_loop_codec

    return in_loop_codec(recipe.in_loop, folder)


@checked_keywords()
def open_dataset(store: Path | str) -> Store:
    """Open a training set: its units, pictures (memory-mapped) and CTU table.

    Args:
        store: Folder of the store.

    Returns:
        The store.

    Raises:
        MissingFileError: The folder does not exist.
        StoreError: The folder is not a complete store.
    """
    return open_store(store)
