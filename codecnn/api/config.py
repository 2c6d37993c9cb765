"""Recipes and training configurations: YAML files that are read, overridden and checked."""

import contextlib
import copy
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from codecnn.base.errors import ConfigError, MissingFileError
from codecnn.base.parts import absent_parts, task_configuration, tasks
from codecnn.base.user_code import search_folder
from codecnn.dataset import Recipe, Store, open_store
from codecnn.models import is_on_hub
from codecnn.training import LOSSES, FilterSettings, LoopSettings, Schema

if TYPE_CHECKING:  # these need torch, which a recipe does not
    from pydantic_core import ErrorDetails

    from codecnn.base.cluster import Progress
    from codecnn.training import Task
    from codecnn.training.checks import Finding
    from codecnn.training.filter import FilterTask

Value = TypeVar("Value")

_MAX_VALUES = 100_000
"""Largest number of values in a YAML file after the expansion of aliases; recipes have a few dozen."""


_RECIPE_PATHS = {"": {"root"}, "tools": {"encoder", "decoder", "cfg"}, "in_loop": {"weights", "library"}}
"""Keys of a recipe that hold paths, at its top and in its tables."""


class NetworkConfig(Schema):
    """Name and options of a network."""

    name: str = Field(description="a name from `codecnn models`, or package.module:Name, a network of the user")
    options: dict[str, Any] = Field(default_factory=dict)


class StoreShare(Schema):
    """One of several stores to train on, with its share of the patches."""

    store: str = Field(description="folder written by `codecnn dataset build`, or its address s3://...")
    share: float = Field(
        gt=0, allow_inf_nan=False, description="share of the patches, relative to that of the other stores"
    )


class FilterConfig(Schema):
    """Configuration that trains an in-loop filter on stores; unknown keys are errors."""

    task: Literal["filter"] = "filter"
    store: str | None = Field(
        default=None, description="folder written by `codecnn dataset build`, or its address s3://..."
    )
    stores: list[StoreShare] | None = Field(
        default=None, min_length=1, description="several stores with their shares, instead of store"
    )
    model: NetworkConfig
    training: FilterSettings = FilterSettings()

    @model_validator(mode="after")
    def _one_kind(self) -> "FilterConfig":
        if (self.store is None) == (self.stores is None):
            raise ValueError("give either store (one folder) or stores (a list of store and share)")
        if self.training.loss not in LOSSES and "weighting" in self.training.model_fields_set:
            raise ValueError(
                f"the loss {self.training.loss} weights pictures itself, by picture_mse of the batch: remove "
                "training.weighting"
            )
        return self

    @property
    def data(self) -> list[str]:
        """The stores that the training reads."""
        return [part.store for part in self.stores or ()] or [str(self.store)]

    @property
    def weights(self) -> list[str]:
        """The weights that the training starts from and those of its teachers."""
        start, teacher = self.training.start, self.training.teacher
        names = [] if start is None or start.weights is None else [start.weights]
        return names if teacher is None else [*names, *teacher.weights, *teacher.chroma]

    def mix(self) -> list[tuple[Store, float]]:
        """Open the stores and return them with their shares."""
        shares = self.stores or [StoreShare(store=str(self.store), share=1)]
        return [(open_store(part.store), part.share) for part in shares]

    def make_task(self, *, resume: bool = False) -> "FilterTask":
        """Create the task to train, from scratch or from its last checkpoint."""
        from codecnn.training.filter import filter_task

        return filter_task(self.mix(), self.model.name, self.model.options, self.training, resume=resume)

    def check(self, progress: "Progress | None" = None) -> "list[Finding]":
        """Run all checks of the set-up; see `check_filter`."""
        from codecnn.training.checks import check_filter

        return check_filter(self.mix(), self.model.name, self.model.options, self.training, progress)


class TrainConfig(Protocol):
    """Content of a training configuration; its key `task` selects the class: `FilterConfig`, or that of a part."""

    @property
    def task(self) -> str:
        """Name of the kind of training."""

    @property
    def training(self) -> LoopSettings:
        """Settings of the loop."""

    @property
    def data(self) -> Sequence[Path | str]:
        """The stores or tables that the training reads."""

    @property
    def weights(self) -> list[str]:
        """The weights that the training starts from and those of its teachers."""

    def make_task(self, *, resume: bool = False) -> "Task":
        """Create the task to train, from scratch or from its last checkpoint."""

    def check(self, progress: "Progress | None" = None) -> "list[Finding]":
        """Run the checks of the set-up."""


def bundled(name: str) -> Path:
    """Find a file of `datasets/` or `configs/`, in a checkout or in an installed package.

    Args:
        name: Relative path, e.g. "datasets/demo.yaml".

    Returns:
        The path.

    Raises:
        MissingFileError: The file is missing.
    """
    package = Path(__file__).parents[1]
    for root in (package.parent, package / "_bundled"):
        if (root / name).is_file():
            return root / name
    raise MissingFileError(f"{name}, a file of codecnn, is missing: install codecnn again")


def load_recipe(source: Path | str | Mapping[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    Args:
        source: YAML file, or a dictionary with its content; a missing file in `datasets/` or `configs/` is that of
            codecnn.
        overrides: Texts "key.sub=value" that replace values of the file. Relative paths in them start at the current
            folder, those in the file at the folder of the recipe.

    Returns:
        The recipe.

    Raises:
        MissingFileError: The file does not exist.
        ConfigError: A value is invalid; the message names the file and the key.
    """
    value, name = _read(source, overrides), _name(source, "recipe")
    _locate(value, parse_overrides(overrides))
    if value.keys() & {"model", "training"}:
        raise ConfigError(f"{name} is a training configuration, not a recipe: use it with `codecnn train`")
    return checked(Recipe, value, name)


def load_config(source: Path | str | Mapping[str, Any], overrides: Sequence[str] = ()) -> TrainConfig:
    """Read and check a training configuration; without the key `task` it trains a filter.

    Args:
        source: YAML file, or a dictionary with its content; a missing file in `datasets/` or `configs/` is that of
            codecnn. Code that it names is also searched in the folder of the file.
        overrides: Texts "key.sub=value" that replace values of the file.

    Returns:
        The configuration.

    Raises:
        MissingFileError: The file does not exist.
        ConfigError: A value is invalid; the message names the file and the key.
    """
    value = _read(source, overrides)
    search_folder(None if isinstance(source, Mapping) else Path(source).parent)
    path = _name(source, "configuration")
    if "sequences" in value:
        raise ConfigError(f"{path} is a recipe, not a training configuration: use it with `codecnn dataset build`")
    task = value.setdefault("task", "filter")
    if task == "modes":
        raise ConfigError(f"{path}: the task modes was renamed: write intra_modes")
    if task == "filter":
        return checked(FilterConfig, value, path)
    if task not in tasks():
        absent = ", ".join(f"codecnn.{part}" for part in absent_parts())
        hint = f"; not installed, and may have it: {absent}" if absent else ""
        raise ConfigError(f"{path}: task must be {' or '.join(('filter', *tasks()))}, not {_shown(task)}{hint}")
    configuration: type[TrainConfig] = task_configuration(task)
    return checked(configuration, value, path)


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Parse texts "key.sub=value" into nested dictionaries.

    Args:
        overrides: The texts; values are YAML.

    Returns:
        The dictionary.

    Raises:
        ConfigError: A text has another form.
    """
    value: dict[str, Any] = {}
    for override in overrides:
        _apply(value, override)
    return value


def _name(source: Path | str | Mapping[str, Any], kind: str) -> str:
    """Return the name of a file, or of a dictionary of Python, for messages."""
    return f"the {kind}" if isinstance(source, Mapping) else str(source)


def _read(source: Path | str | Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    value = copy.deepcopy(dict(source)) if isinstance(source, Mapping) else _read_file(Path(source))
    for override in overrides:
        _apply(value, override)
    return value


def _read_file(path: Path) -> dict[str, Any]:
    if path.parts[:1] in (("datasets",), ("configs",)) and not path.exists():
        with contextlib.suppress(MissingFileError):
            path = bundled(str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingFileError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder, not a YAML file") from None
    except OSError as error:
        raise MissingFileError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file") from None
    value = _parse_yaml(text, str(path))
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold keys and values, as the files in configs/ and datasets/ do")
    return value


def _locate(value: dict[str, Any], overrides: dict[str, Any]) -> None:
    """Make relative paths of a recipe absolute, from the current folder, where they come from overrides."""
    for key, names in _RECIPE_PATHS.items():
        table, given = (each.get(key) if key else each for each in (value, overrides))
        if isinstance(table, dict) and isinstance(given, dict):
            for name in given.keys() & names:
                paths = table[name]
                located = [_located(path) for path in paths] if isinstance(paths, list) else _located(paths)
                # A name without folder is a program in PATH, or shipped weights; others may be on a hub.
                is_name = isinstance(paths, str) and (Path(paths).name == paths or is_on_hub(paths))
                if not (is_name and (key == "tools" or (name == "weights" and not Path(paths).is_file()))):
                    table[name] = located


def _located(path: Any) -> Any:
    return str(Path(path).expanduser().absolute()) if isinstance(path, str) else path


def checked(schema: type[Value], value: dict[str, Any], where: str) -> Value:
    """Validate a value against a schema.

    Args:
        schema: Type to validate against.
        value: Nested dictionaries.
        where: Origin of the value, with which an error message begins.

    Returns:
        The validated object.

    Raises:
        ConfigError: The value is invalid; the message names the key.
    """
    try:
        return TypeAdapter(schema).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_first_problem(error)}{_suggestion(schema, error)}") from error


def _apply(value: dict[str, Any], override: str) -> None:
    """Set "key.sub=value" in nested dictionaries; the value is parsed as YAML."""
    key, separator, text = override.partition("=")
    parts = key.split(".")
    if not separator or not all(parts):
        raise ConfigError(f"override {_shown(override)} does not have the form key.sub=value")
    parsed = _parse_yaml(text, f"override {_shown(override)}")
    for part in parts[:-1]:
        value = value.setdefault(part, {})
        if not isinstance(value, dict):
            raise ConfigError(f"override {_shown(override)}: {part} is a single value and has no keys below it")
    value[parts[-1]] = parsed


def _parse_yaml(text: str, where: str) -> Any:
    """Parse a YAML text; invalid or excessively large content raises a ConfigError that begins with `where`."""
    try:
        value = yaml.safe_load(text)
        _count(value, {})
    except yaml.YAMLError as error:
        text = str(error).replace('in "<unicode string>", ', "at ")
        raise ConfigError(f"{where} is not valid YAML: {' '.join(text.split())[:300]}") from error
    except RecursionError:
        raise ConfigError(f"{where} is not valid YAML: it is nested too deeply") from None
    except ValueError as error:  # invalid dates, numbers with thousands of digits, and too many values (_count)
        raise ConfigError(f"{where} is not valid YAML: {error}") from error
    return value


def _count(value: Any, counts: dict[int, int]) -> int:
    """Count the values after the expansion of all aliases; a few lines can stand for billions of values."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in counts:
        counts[id(value)] = _MAX_VALUES  # until known: an alias to its own container never ends
        children = [*value, *value.values()] if isinstance(value, dict) else value
        counts[id(value)] = 1 + sum(_count(child, counts) for child in children)
    if counts[id(value)] >= _MAX_VALUES:
        raise ValueError(f"it has more than {_MAX_VALUES} values after the expansion of its aliases")
    return counts[id(value)]


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than about 4,300 digits
        text = "a number with thousands of digits"
    return text if len(text) <= 100 else f"{text[:100]}..."


def _suggestion(schema: Any, error: ValidationError) -> str:
    """Suggest a key of the schema that is similar to an unknown key."""
    problem = _main_problem(error)
    if problem["type"] != "extra_forbidden":
        return ""
    whole = TypeAdapter(schema).json_schema()
    parts = [whole, *whole.get("$defs", {}).values()]
    known = sorted({name for part in parts for name in part.get("properties", {})})
    near = get_close_matches(str(problem["loc"][-1]), known, 1)
    return f": did you mean {near[0]!r}?" if near else ""


def _main_problem(error: ValidationError) -> "ErrorDetails":
    """Choose the first problem that is not a missing key, because an unknown key may be the missing one, misspelt."""
    problems = error.errors()
    return next((problem for problem in problems if problem["type"] != "missing"), problems[0])


def _first_problem(error: ValidationError) -> str:
    problem = _main_problem(error)
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {where!r}"
    if problem["type"] == "missing":
        return f"the key {where!r} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if isinstance(problem["input"], dict) else f", not {_shown(problem['input'])}"
    return f"{where}: {message[0].lower() + message[1:]}{given}" if where else message
