"""YAML files as checked values: recipes and training configurations, with dotted overrides."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from codecnn.dataset import Recipe, Store, open_store
from codecnn.errors import ConfigError, MissingFileError
from codecnn.training import FilterSettings, LoopSettings, Schema

if TYPE_CHECKING:  # they need torch, which a recipe does not
    from pydantic_core import ErrorDetails

    from codecnn.training.checks import Finding, Progress
    from codecnn.training.filter import FilterTask
    from codecnn.training.intra_modes import IntraModesTask

Value = TypeVar("Value")

Paths = Annotated[list[Path], BeforeValidator(lambda value: value if isinstance(value, list) else [value])]
"""One path or a list of them."""
_MAX_VALUES = 100_000
"""In a YAML file; recipes have some dozens."""


class NetworkConfig(Schema):
    """Which network, and its options; `codecnn models` lists them."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class StoreShare(Schema):
    """One of several stores to train on."""

    store: str = Field(description="folder that `codecnn dataset build` made")
    share: float = Field(gt=0, allow_inf_nan=False, description="share of the patches, relative to the other stores'")


class FilterConfig(Schema):
    """What trains a loop filter on stores, and how; unknown keys are errors."""

    task: Literal["filter"] = "filter"
    store: str | None = Field(default=None, description="folder that `codecnn dataset build` made")
    stores: list[StoreShare] | None = Field(default=None, min_length=1, description="several of them, instead of one")
    model: NetworkConfig
    training: FilterSettings = FilterSettings()

    @model_validator(mode="after")
    def _one_kind(self) -> "FilterConfig":
        if (self.store is None) == (self.stores is None):
            raise ValueError("give either store, one folder, or stores, a list of store and share")
        return self

    def mix(self) -> list[tuple[Store, float]]:
        """The stores, opened, with their shares. Raises what `open_store` raises."""
        shares = self.stores or [StoreShare(store=str(self.store), share=1)]
        return [(open_store(part.store), part.share) for part in shares]

    def make_task(self, *, resume: bool = False) -> "FilterTask":
        """The task that `train` trains. Raises what `open_store` and `filter_task` raise."""
        from codecnn.training.filter import filter_task

        return filter_task(self.mix(), self.model.name, self.model.options, self.training, resume=resume)

    def check(self, progress: "Progress | None" = None) -> "list[Finding]":
        """Every check of the set-up; see `check_filter`."""
        from codecnn.training.checks import check_filter

        return check_filter(self.mix(), self.model.name, self.model.options, self.training, progress)


class IntraModesConfig(Schema):
    """What trains the classifier of intra modes on label tables, and how; unknown keys are errors."""

    task: Literal["intra_modes"] = "intra_modes"
    labels: Paths = Field(min_length=1, description="tables that `codecnn labels` made")
    validation: Paths = Field(
        default=[], description="tables of other pictures; none validates on the split 'val' of a labelled store"
    )
    cost: Literal["dct", "hadamard", "sad", "sse", "rate"] = Field(
        default="dct", description="by which the best mode is told"
    )
    softness: float = Field(
        default=0.0, ge=0, le=10, description="share of a block's mean excess by which modes count as equal; 0: one"
    )
    validation_blocks: int = Field(default=4096, ge=1, description="blocks of 4x4; of 8x8 half as many, and so on")
    network: Literal["modes", "mode_sketch"] = Field(default="modes", description="the kind of network")
    model: dict[str, int] = Field(default={}, description="its options, such as features, blocks, hidden")
    training: LoopSettings = LoopSettings()

    def make_task(self, settings: LoopSettings | None = None, *, resume: bool = False) -> "IntraModesTask":
        """The task that `train` trains, or that with other `settings`. Raises what `intra_modes_task` raises."""
        from codecnn.training.intra_modes import intra_modes_task

        return intra_modes_task(
            self.labels,
            self.validation,
            {"network": self.network, **self.model},
            settings or self.training,
            cost=self.cost,
            softness=self.softness,
            validation_blocks=self.validation_blocks,
        )

    def check(self, progress: "Progress | None" = None) -> "list[Finding]":
        """The checks of the set-up that hold for any task; see `check_task`."""
        from codecnn.training.checks import check_task

        return check_task(self.make_task, self.training, progress)


TrainConfig = Annotated[FilterConfig | IntraModesConfig, Field(discriminator="task")]
"""The content of a training configuration, by its key `task`."""


def bundled(name: str) -> Path:
    """A file of `datasets/` or `configs/`, from a checkout or from an installed package."""
    package = Path(__file__).parent
    for root in (package.parent, package / "_bundled"):
        if (root / name).is_file():
            return root / name
    raise MissingFileError(f"codecnn's own file {name} is missing: install codecnn again")


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe. Raises MissingFileError or ConfigError that names the file and the key."""
    value = _read(Path(path), overrides)
    if value.keys() & {"model", "training"}:
        raise ConfigError(f"{path} says how to train, which is for `codecnn train`: a recipe says what to code")
    return checked(Recipe, value, str(path))


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> FilterConfig | IntraModesConfig:
    """Read and check a training configuration; without the key `task` it is one of a filter.

    Raises MissingFileError or ConfigError that names the file and the key.
    """
    value = _read(Path(path), overrides)
    if "sequences" in value:
        raise ConfigError(f"{path} is a recipe, which is for `codecnn dataset build`: train takes one of configs/")
    task = value.setdefault("task", "filter")
    if task == "modes":
        raise ConfigError(f"{path}: task: modes is called intra_modes now")
    if task not in ("filter", "intra_modes"):
        raise ConfigError(f"{path}: task is filter or intra_modes, not {_shown(task)}")
    # Errors begin with the name of the task.
    return checked(TrainConfig, value, str(path), skip=1)  # type: ignore[arg-type]


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """`key.sub=value` texts as nested dictionaries."""
    value: dict[str, Any] = {}
    for override in overrides:
        _apply(value, override)
    return value


def _read(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
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
    for override in overrides:
        _apply(value, override)
    return value


def checked(schema: type[Value], value: dict[str, Any], where: str, *, skip: int = 0) -> Value:
    """`value` as a `schema`; ConfigError that begins with `where` and names the key when it is none.

    The first `skip` parts of where a problem lies are no keys of the file.
    """
    try:
        return TypeAdapter(schema).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_first_problem(error, skip)}{_meant(schema, error)}") from error


def _apply(value: dict[str, Any], override: str) -> None:
    """Set `key.sub=value` in nested dictionaries; the value is read as YAML."""
    key, separator, text = override.partition("=")
    parts = key.split(".")
    if not separator or not all(parts):
        raise ConfigError(f"override {_shown(override)} is not of the form key.sub=value")
    parsed = _parse_yaml(text, f"override {_shown(override)}")
    for part in parts[:-1]:
        value = value.setdefault(part, {})
        if not isinstance(value, dict):
            raise ConfigError(f"override {_shown(override)}: {part} is a single value and has no keys below it")
    value[parts[-1]] = parsed


def _parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; ConfigError that begins with `where` for one that is none or is out of all measure."""
    try:
        value = yaml.safe_load(text)
        _count(value, {})
    except yaml.YAMLError as error:
        told = str(error).replace('in "<unicode string>", ', "at ")
        raise ConfigError(f"{where} is not valid YAML: {' '.join(told.split())[:300]}") from error
    except RecursionError:
        raise ConfigError(f"{where} is not valid YAML: it is nested too deep") from None
    except ValueError as error:  # dates that do not exist, numbers of thousands of digits, and _count
        raise ConfigError(f"{where} is not valid YAML: {error}") from error
    return value


def _count(value: Any, counts: dict[int, int]) -> int:
    """How many values there are when every alias is written out: a few lines can stand for billions of them."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in counts:
        counts[id(value)] = _MAX_VALUES  # until it is known: an alias to what it stands in has no end
        children = [*value, *value.values()] if isinstance(value, dict) else value
        counts[id(value)] = 1 + sum(_count(child, counts) for child in children)
    if counts[id(value)] >= _MAX_VALUES:
        raise ValueError(f"its aliases stand for more than {_MAX_VALUES} values")
    return counts[id(value)]


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than some 4,300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= 100 else f"{text[:100]}..."


def _meant(schema: Any, error: ValidationError) -> str:
    """The key that an unknown one was perhaps meant to be, of all that the schema has."""
    problem = _telling(error)
    if problem["type"] != "extra_forbidden":
        return ""
    whole = TypeAdapter(schema).json_schema()
    parts = [whole, *whole.get("$defs", {}).values()]
    known = sorted({name for part in parts for name in part.get("properties", {})})
    near = get_close_matches(str(problem["loc"][-1]), known, 1)
    return f": did you mean {near[0]!r}?" if near else ""


def _telling(error: ValidationError) -> "ErrorDetails":
    """The first problem, but for keys that are missing where others are unknown: those may be they, misspelt."""
    problems = error.errors()
    return next((one for one in problems if one["type"] != "missing"), problems[0])


def _first_problem(error: ValidationError, skip: int) -> str:
    problem = _telling(error)
    where = ".".join(str(part) for part in problem["loc"][skip:])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {where!r}"
    if problem["type"] == "missing":
        return f"the key {where!r} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if isinstance(problem["input"], dict) else f", not {_shown(problem['input'])}"
    return f"{where}: {message[0].lower() + message[1:]}{given}" if where else message
