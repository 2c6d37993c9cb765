"""YAML files as checked values: recipes and training configurations, with dotted overrides."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from codecnn.dataset.recipe import Recipe
from codecnn.dataset.store import Store, open_store
from codecnn.errors import ConfigError, MissingFileError
from codecnn.training.settings import TrainingSettings

if TYPE_CHECKING:
    from codecnn.training.intra_modes.task import ModesTask

Model = TypeVar("Model", bound=BaseModel)

_MAX_VALUES = 100_000
"""In a YAML file; recipes have some dozens."""


class NetworkConfig(BaseModel):
    """Which network, and its options; `codecnn models` lists them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class StoreShare(BaseModel):
    """One of several stores to train on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: str = Field(description="folder that `codecnn dataset build` made")
    share: float = Field(gt=0, allow_inf_nan=False, description="share of the patches, relative to the other stores'")


class TrainConfig(BaseModel):
    """The content of a training configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: Literal["filter"] = "filter"
    store: str | None = Field(default=None, description="folder that `codecnn dataset build` made")
    stores: list[StoreShare] | None = Field(default=None, min_length=1, description="several of them, instead of one")
    model: NetworkConfig
    training: TrainingSettings = TrainingSettings()

    @model_validator(mode="after")
    def _one_kind(self) -> "TrainConfig":
        if (self.store is None) == (self.stores is None):
            raise ValueError("give either store, one folder, or stores, a list of store and share")
        return self

    def mix(self) -> list[tuple[Store, float]]:
        """The stores, opened, with their shares. Raises what `open_store` raises."""
        shares = self.stores or [StoreShare(store=str(self.store), share=1)]
        return [(open_store(part.store), part.share) for part in shares]


class ModesConfig(BaseModel):
    """The content of a configuration that trains the mode classifier; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: Literal["modes"]
    labels: str | list[str] = Field(min_length=1, description="tables that `codecnn labels` made")
    validation: str | list[str] = Field(
        default=[], description="tables of other pictures; none validates on the split 'val' of a labelled store"
    )
    cost: Literal["dct", "hadamard", "sad", "sse"] = Field(default="dct", description="by which the best mode is told")
    softness: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description="share of a block's mean excess by which modes count as equal; 0: one mode",
    )
    validation_blocks: int = Field(default=4096, ge=1, description="blocks of 4x4; of 8x8 half as many, and so on")
    model: dict[str, int] = Field(default={}, description="features, blocks, layers, growth, hidden of the network")
    training: TrainingSettings = TrainingSettings()

    def tables(self) -> tuple[list[Path], list[Path]]:
        """Files of `labels`, and of `validation`."""
        given = ([value] if isinstance(value, str) else value for value in (self.labels, self.validation))
        labels, validation = ([Path(name) for name in names] for names in given)
        return labels, validation

    def make_task(self, training: TrainingSettings) -> "ModesTask":
        """The task with these settings of the loop. Raises what `modes_task` raises."""
        from codecnn.training.intra_modes.task import modes_task

        return modes_task(
            *self.tables(),
            self.model,
            training,
            cost=self.cost,
            softness=self.softness,
            validation_blocks=self.validation_blocks,
        )


def bundled(name: str) -> Path:
    """A file of `datasets/` or `configs/`, from a checkout or from an installed package."""
    package = Path(__file__).parent
    for root in (package.parent, package / "_bundled"):
        if (root / name).is_file():
            return root / name
    raise MissingFileError(f"codecnn's own file {name} is missing: install codecnn again")


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe. Raises MissingFileError or ConfigError that names the file and the key."""
    return _load(Recipe, path, overrides)


def load_train_config(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read and check a training configuration. Raises MissingFileError or ConfigError."""
    return _load(TrainConfig, path, overrides)


def load_modes_config(path: Path, overrides: Sequence[str] = ()) -> ModesConfig:
    """Read and check a configuration of the mode classifier. Raises MissingFileError or ConfigError."""
    return _load(ModesConfig, path, overrides)


def task_of(path: Path, overrides: Sequence[str] = ()) -> str:
    """What a training configuration trains, "filter" or "modes". Raises MissingFileError or ConfigError."""
    task = _read(path, overrides).get("task", "filter")
    if task not in ("filter", "modes"):
        raise ConfigError(f"{path}: task is filter or modes, not {_shown(task)}")
    return str(task)


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """`key.sub=value` texts as nested dictionaries."""
    value: dict[str, Any] = {}
    for override in overrides:
        _apply(value, override)
    return value


def _load(schema: type[Model], path: Path, overrides: Sequence[str]) -> Model:
    return checked(schema, _read(path, overrides), str(path))


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


def checked(schema: type[Model], value: dict[str, Any], where: str) -> Model:
    """`value` as a `schema`; ConfigError that begins with `where` and names the key when it is none."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_first_problem(error)}") from error


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
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())[:300]}") from error
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
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {where!r}"
    if problem["type"] == "missing":
        return f"the key {where!r} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if isinstance(problem["input"], dict) else f", not {_shown(problem['input'])}"
    return f"{where}: {message[0].lower() + message[1:]}{given}" if where else message
