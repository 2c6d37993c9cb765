"""The weights that come with the package, by name: `list_weights`, and any function or option that takes weights.

Each is a file NAME.safetensors with its card beside it, and NAME.int16.safetensors, the same network in
integers; where there is NAME.int8.safetensors, in fewer bits, `--exact` takes that.
"""

from pathlib import Path

from codecnn.errors import MissingFileError
from codecnn.models._registry import list_models
from codecnn.models.card import Card, read_card

FOLDER = Path(__file__).resolve().parents[1] / "zoo"
_INTEGERS = (".int8", ".int16")
_MODES = "modes"
"""The subfolder of the networks that tell intra modes."""


def list_weights() -> list[str]:
    """Names of the weights that come with the package, sorted."""
    return _stems(FOLDER)


def list_mode_weights() -> list[str]:
    """Names of the mode networks that come with the package, sorted: `load_mode_network` reads them."""
    return _stems(FOLDER / _MODES)


def _stems(folder: Path) -> list[str]:
    stems = (path.stem for path in folder.glob("*.safetensors"))
    return sorted(stem for stem in stems if not stem.endswith(_INTEGERS))


def weights_path(weights: Path | str) -> Path:
    """The file of `weights`: a path as it is, or one of the names of `list_weights` or `list_mode_weights`.

    Raises MissingFileError for a word that is neither: no such file, and no such name.
    """
    path = Path(weights)
    if path.suffix or path.name != str(weights) or path.is_file():
        return path
    if path.name in list_mode_weights():
        return FOLDER / _MODES / f"{path.name}.safetensors"
    if path.name not in list_weights():
        names = ", ".join(list_weights())
        untrained = "; it names a network, which is to be trained first" if path.name in list_models() else ""
        raise MissingFileError(
            f"{path} is neither a file nor the name of weights that come with codecnn: {names}{untrained}"
        )
    return FOLDER / f"{path.name}.safetensors"


def zoo_cards() -> dict[str, Card]:
    """The cards of the weights that come with the package by their names, from the cheapest network to the dearest."""
    cards = {name: read_card(FOLDER / f"{name}.safetensors") for name in list_weights()}
    return dict(sorted(cards.items(), key=lambda item: (item[1].kmac_per_pixel or 0.0, item[0])))
