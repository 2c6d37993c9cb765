"""Names of architectures and of the weights that come with the package.

`ARCHITECTURE.TAG` names an architecture and its training. The tag says for which codec and pictures the weights are:
`low_cost_17.vvc` for VVC, all intra, `low_cost_17.hevc_video_mc` for HEVC in random access and low delay, with
motion-compensated pictures. The architecture alone stands for its default tag. With the suffix `.int8` the name means
the integer form of the weights, with `.int16` that of a mode network.

Weights are files `ARCHITECTURE.TAG.safetensors` in the folder `codecnn/models/shipped`, each with a card (.json) of the
same name, and `ARCHITECTURE.TAG.int8.safetensors` with the same network in integers. New weights need no more than a
file and its card there. The weights `EXTRA` are files of the same form in the folder `weights` of the repository, and
are found by name if codecnn runs from a checkout.
"""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import codecnn.models.families  # noqa: F401 - registers the architectures
from codecnn.base.errors import MissingFileError, ModelError
from codecnn.base.files import read_json
from codecnn.base.keywords import checked_keywords, nearest, option_names
from codecnn.base.user_code import entry_points, import_reference, is_reference
from codecnn.models.adapter import build_user_network
from codecnn.models.base import ARCHITECTURES, Architecture, FilterNetwork
from codecnn.models.card import Card, card_path, read_card
from codecnn.models.locations import folder_weights, hub_weights, is_on_hub
from codecnn.models.planes import named_planes

FOLDER = Path(__file__).resolve().parent / "shipped"
"""Folder of the weights that come with the package."""

EXTRA_FOLDER = Path(__file__).resolve().parents[2] / "weights"
"""Folder of the weights that a checkout has beside the package."""

EXTRA = ("low_cost_400.vvc_unf", "low_cost_400.hevc_unf")
"""Weights of `EXTRA_FOLDER`: teachers of the shipped networks, which are too large for the package."""

DEFAULT_TAG = "vvc"
"""Tag of a name without a tag, if the architecture has such weights."""

INTEGERS = ("int8", "int16")
"""Suffixes of integer networks."""

OLD_NAMES = {
    "low_cost_17.presets": "low_cost_17.vvc",
    "low_cost_17.video": "low_cost_17.vvc_video",
    "low_cost_17_video": "low_cost_17.vvc_video",
    "low_cost_17_dec_mc4": "low_cost_17.vvc_video_mc",
    "low_cost_17_dec_mc4.video": "low_cost_17.vvc_video_mc",
    "low_cost_17_mc4": "low_cost_17.hevc_video_mc",
    "low_cost_17_mc4.hevc_video": "low_cost_17.hevc_video_mc",
    "low_cost_17_unf": "low_cost_17.vvc_unf",
    "low_cost_17_unf.hevc": "low_cost_17.hevc_unf",
    "low_cost_17_unf.presets": "low_cost_17.vvc_unf",
    "low_cost_75_dec_mc4": "low_cost_75.vvc_video_mc",
    "low_cost_75_dec_mc4.video": "low_cost_75.vvc_video_mc",
    "low_cost_75_unf": "low_cost_75.vvc_unf",
    "low_cost_75_unf.hevc": "low_cost_75.hevc_unf",
    "low_cost_400_unf": "low_cost_400.vvc_unf",
    "low_cost_400_unf.hevc": "low_cost_400.hevc_unf",
    "low_cost_yuv_17.video": "low_cost_yuv_17.vvc_video",
    "low_cost_yuv_17_video": "low_cost_yuv_17.vvc_video",
    "low_cost_yuv_17_dec_mc": "low_cost_yuv_17.vvc_video_mc",
    "low_cost_yuv_17_dec_mc.video": "low_cost_yuv_17.vvc_video_mc",
    "low_cost_yuv_17_unf": "low_cost_yuv_17.vvc_unf",
}
"""Earlier names of weights, and their present names; the ending `.vvc` may be left out or added."""

SUCCESSORS = {
    "low_cost_17_dec.video": "low_cost_17.vvc_video_mc",
    "low_cost_17_dec_mc.video": "low_cost_17.vvc_video_mc",
    "low_cost_75_dec_mc.video": "low_cost_75.vvc_video_mc",
    "low_cost_17_mc.hevc_video": "low_cost_17.hevc_video_mc",
}
"""Weights that no longer ship, by their names then, and the weights that replaced them for the same codec, content and
cost."""

_PLANES_BY_ENDING = {
    "_unf": "unfiltered",
    "_dec": "decoder",
    "_dec_mc": "decoder+neighbours",
    "_dec_mc4": "decoder+neighbours2",
    "_mc": "slice_type+neighbours",
    "_mc4": "slice_type+neighbours2",
}
"""Endings of names of architectures from before planes were an option, and the value of that option."""

_MODES = "modes"
"""Subfolder of the intra mode networks."""

_FILE_SUFFIXES = (".safetensors", ".json", ".pt", ".pth", ".ckpt", ".onnx")
"""Suffixes of files, which no name has."""


@dataclass(frozen=True)
class ShippedWeights:
    """Float weights that come with the package.

    Attributes:
        architecture: First part of the name.
        tag: Name of the training.
        default: Whether the architecture alone stands for these weights.
        path: The weights file.
    """

    architecture: str
    tag: str
    default: bool
    path: Path

    @property
    def name(self) -> str:
        """Shortest name: the architecture alone for the default tag."""
        return self.architecture if self.default else self.full_name

    @property
    def full_name(self) -> str:
        """Name with the tag."""
        return f"{self.architecture}.{self.tag}"

    @property
    def integers(self) -> tuple[str, ...]:
        """Suffixes of the integer forms that come with the weights, e.g. ("int8",)."""
        return tuple(suffix for suffix in INTEGERS if _integer_file(self.path, suffix).is_file())

    @property
    def card(self) -> Card:
        """The card of the weights."""
        return read_card(self.path)


@checked_keywords()
def list_models() -> list[str]:
    """Return the names of the architectures, sorted: ["arcnn", "dncnn", "edsr", "low_cost_17", ...].

    They are the registered ones and those that installed packages add as entry points of the group `codecnn.models`.
    """
    return sorted({*ARCHITECTURES, *entry_points()})


def describe_model(name: str) -> str:
    """Return one line about a network, e.g. "AR-CNN, 9-7-1-5 (Dong et al., ICCV 2015); 106 kMAC/pixel." for "arcnn".

    Raises:
        ModelError: The name is unknown.
    """
    return _architecture(_resolve(name)[0]).description


def create_model(name: str, **options: Any) -> FilterNetwork:
    """Build an untrained filter network, which starts as the identity.

        model = create_model("low_cost_17", planes="unfiltered")        # or planes=["rec_y", "qp", "unf_y"]
        filtered = model({"rec_y": y, "qp": qp, "unf_y": unfiltered})   # (n, 1, h, w) each, samples of [0, 1]

    Args:
        name: An architecture of `list_models`, or `ARCHITECTURE.TAG` of shipped weights, which stands for the
            architecture with the options of these weights. `load_model` loads the weights as well. Or
            "package.module:Name", a class or function of the user: a `FilterNetwork`, or a plain module that keeps to
            the contract of `codecnn.models.as_filter_network`.
        options: Options of the architecture, which replace its defaults. `planes` takes names of planes and of sets of
            planes, see `named_planes`.

    Raises:
        ModelError: The name, the tag or an option is unknown, the network cannot take a value, or a module of the user
            does not keep to the contract.
        ConfigError: A class or function of the user cannot be imported.
    """
    architecture, defaults = _resolve(name)
    build = _architecture(architecture).build
    if architecture not in ARCHITECTURES:
        return build(**defaults | options)
    known = option_names(build)
    if unknown := options.keys() - known:
        raise ModelError(f"network {name!r} has no option {min(unknown)!r}: {nearest(min(unknown), known)}")
    if isinstance(planes := options.get("planes"), str | list | tuple):
        default = defaults.get("planes", inspect.signature(build).parameters["planes"].default)
        options["planes"] = named_planes(planes, default)
    try:
        return build(**defaults | options)
    except TypeError as error:
        raise ModelError(f"network {name!r} does not take these options: {str(error).splitlines()[0]}") from error


def _architecture(name: str) -> Architecture:
    """Return a registered architecture, one of an entry point, or one of the user's code, which is imported."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    build = import_reference(name if is_reference(name) else entry_points()[name].value)
    description = (inspect.getdoc(build) or name).splitlines()[0]

    def create(**options: Any) -> FilterNetwork:
        return build_user_network(build, name, options)

    return Architecture(create, description, {})


def _resolve(name: str) -> tuple[str, dict[str, Any]]:
    """Return the architecture and its default options for a name with or without a tag."""
    if name in ARCHITECTURES:
        return name, ARCHITECTURES[name].options
    for ending, planes in _PLANES_BY_ENDING.items():
        if name.endswith(ending) and (architecture := name.removesuffix(ending)) in ARCHITECTURES:
            raise ModelError(f"planes are an option: instead of {name} write {architecture} with planes={planes}")
    if is_reference(name) or name in entry_points():
        return name, {}
    stem, _ = _split_integers(name)
    weights = _find(stem)
    if weights is not None:
        card = weights.card
        if card.network in ARCHITECTURES:
            return card.network, ARCHITECTURES[card.network].options | card.options
    architecture, _, tag = stem.partition(".")
    if absence := _absence(stem):
        raise ModelError(absence)
    if tag and architecture in ARCHITECTURES:
        raise ModelError(_unknown_tag(architecture, tag))
    raise ModelError(f"unknown network {name!r}: one of {', '.join(list_models())}, or package.module:Name")


def shipped_weights() -> list[ShippedWeights]:
    """Return the float weights of filter networks that come with the package, sorted by name."""
    files: dict[str, dict[str, Path]] = {}
    for stem in _stems(FOLDER):
        architecture, _, tag = stem.partition(".")
        files.setdefault(architecture, {})[tag] = FOLDER / f"{stem}.safetensors"
    return [
        ShippedWeights(architecture, tag, tag == (DEFAULT_TAG if DEFAULT_TAG in tags else min(tags)), path)
        for architecture, tags in sorted(files.items())
        for tag, path in sorted(tags.items())
    ]


@checked_keywords()
def list_weights() -> list[str]:
    """Return the shortest names of the float weights that come with the package, sorted."""
    return sorted(weights.name for weights in shipped_weights())


def list_mode_weights() -> list[str]:
    """Return the names of the intra mode networks that come with the package, for `load_mode_network`, sorted."""
    return _stems(FOLDER / _MODES)


def zoo_cards() -> dict[str, Card]:
    """Return the cards of the shipped weights by shortest name, sorted by ascending cost."""
    cards = {weights.name: weights.card for weights in shipped_weights()}
    return dict(sorted(cards.items(), key=lambda item: (item[1].kmac_per_pixel or 0.0, item[0])))


def weights_path(weights: Path | str) -> Path:
    """Return the file of weights.

    Args:
        weights: A path, which is returned as it is; a folder that holds one weights file, or hf://owner/name[/file]
            [@revision] on the Hugging Face hub, from which it is downloaded; or a name: one of `list_weights` or
            `list_mode_weights`, or one of `EXTRA` in a checkout, the default tag left out or not, with the suffix
            `.int8` for the integer form, `.int16` for that of a mode network. A name goes before a folder.

    Raises:
        MissingFileError: The value is neither a file nor the name of weights that come with the package, or the folder
            or the hub has none.
        ModelError: The folder holds several weights.
        ToolMissingError: The package for a hub is not installed.
    """
    if is_on_hub(weights):
        return hub_weights(str(weights))
    path = Path(weights)
    if path.is_dir() and path.name != str(weights):
        return folder_weights(path)
    if path.is_file() or path.name != str(weights) or path.suffix in _FILE_SUFFIXES:
        return path
    stem, suffix = _split_integers(path.name)
    shipped = _find(stem)
    if shipped is not None:
        file = shipped.path
    elif stem in list_mode_weights():
        file = FOLDER / _MODES / f"{stem}.safetensors"
    elif path.is_dir():
        return folder_weights(path)
    else:
        if absence := _absence(stem):
            raise MissingFileError(absence)
        architecture, _, tag = stem.partition(".")
        if not tag or not (_tags(architecture) or architecture in ARCHITECTURES):
            if path.suffix:
                return path
            if stem in ARCHITECTURES:
                extra = " or ".join(name for name in EXTRA if name.startswith(f"{stem}."))
                what_to_do = f"name {extra} of its repository" if extra else "train it first"
                raise MissingFileError(f"no weights of the network {stem} come with codecnn: {what_to_do}")
            raise MissingFileError(
                f"{path} is neither a file nor the name of weights that come with codecnn: "
                f"{nearest(stem, [*list_weights(), *list_mode_weights()], '`codecnn models` lists these')}"
            )
        raise MissingFileError(_unknown_tag(architecture, tag))
    if suffix and not _integer_file(file, suffix).is_file():
        known = ", ".join(f".{other}" for other in INTEGERS if _integer_file(file, other).is_file())
        raise MissingFileError(
            f"the weights {stem} come without .{suffix} integers, they have {known or 'none'}: write them with "
            f"codecnn export -m {stem} --format {suffix} --store STORE"
        )
    return _integer_file(file, suffix) if suffix else file


def path_of_sha256(sha256: str) -> Path | None:
    """Find weights of a filter network that have a name, integer forms included.

    Args:
        sha256: First hexadecimal digits of the SHA-256 of the weights file, or all of them.

    Returns:
        The weights file, or None.
    """
    files = sorted(FOLDER.glob("*.safetensors"))
    files += [path for name in EXTRA for path in sorted(EXTRA_FOLDER.glob(f"{name}.*safetensors"))]
    return next((path for path in files if str(read_json(card_path(path)).get("sha256")).startswith(sha256)), None)


def _find(stem: str) -> ShippedWeights | None:
    """Return the weights of a name without an integer suffix, or None."""
    stem = OLD_NAMES.get(stem.removesuffix(f".{DEFAULT_TAG}"), stem)
    known = [*shipped_weights(), *_extra_weights()]
    return next((weights for weights in known if stem in (weights.name, weights.full_name)), None)


def _extra_weights() -> list[ShippedWeights]:
    """Return the weights of `EXTRA` if codecnn runs from a checkout, else an empty list."""
    weights = []
    for name in EXTRA:
        architecture, _, tag = name.partition(".")
        path = EXTRA_FOLDER / f"{name}.safetensors"
        if path.is_file():
            weights.append(ShippedWeights(architecture, tag, False, path))
    return weights


def _split_integers(name: str) -> tuple[str, str]:
    """Split the suffix of an integer form from a name; it is empty for float weights."""
    stem, _, suffix = name.rpartition(".")
    return (stem, suffix) if stem and suffix in INTEGERS else (name, "")


def _integer_file(path: Path, suffix: str) -> Path:
    return path.with_suffix(f".{suffix}.safetensors")


def _tags(architecture: str) -> list[str]:
    return [weights.tag for weights in (*shipped_weights(), *_extra_weights()) if weights.architecture == architecture]


def _absence(stem: str) -> str | None:
    """Return why weights of a known name do not come with the package, or None for other names."""
    stem = OLD_NAMES.get(stem, stem)
    for name in EXTRA:
        if stem == name:
            return (
                f"the weights {stem} are too large to come with codecnn: take weights/{name}.safetensors and its card "
                f"weights/{name}.json from codecnn's repository, and name the file"
            )
    for name, successor in SUCCESSORS.items():
        if stem in (name, name.partition(".")[0]):
            return f"the weights {stem} no longer come with codecnn: {successor} replaced them"
    return None


def _unknown_tag(architecture: str, tag: str) -> str:
    tags = ", ".join(_tags(architecture))
    known = f"its tags are {tags}" if tags else "no weights of it come with codecnn"
    return f"{architecture} has no weights with the tag {tag!r}: {known}"


def _stems(folder: Path) -> list[str]:
    stems = (path.stem for path in folder.glob("*.safetensors"))
    return sorted(stem for stem in stems if not stem.endswith(tuple(f".{suffix}" for suffix in INTEGERS)))
