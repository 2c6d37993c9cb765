"""A recipe: which pictures, which encoder, which QPs, which split. It alone says what a store holds."""

import glob
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from codecnn.codec import CODECS, CodecSettings
from codecnn.errors import ConfigError, MissingFileError

Split = Literal["train", "val", "test"]
SKIMAGE_PREFIX = "skimage:"


class SequenceSpec(BaseModel):
    """A source of pictures: a video, a still picture, or a pattern of them, with what its file does not say itself.

    Sequences of one `group` show the same scene (a stereo pair, shots of one film) and never part into two splits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(description="path, glob pattern, or skimage:NAME for a picture that scikit-image brings")
    split: Split = "train"
    name: str | None = Field(default=None, description="default: the file's stem")
    group: str | None = Field(default=None, description="default: the name")
    size: str | None = Field(default=None, description="WxH of a raw YUV whose name does not tell")
    bit_depth: int | None = None
    chroma: str | None = None
    fps: float | None = None
    frames: int | None = Field(default=None, ge=1, description="only the first so many pictures")
    scales: list[Annotated[float, Field(gt=0, le=1)]] = Field(
        default=[1], min_length=1, description="also at these sizes: 0.5 is half the width and height"
    )

    @field_validator("chroma", mode="before")
    @classmethod
    def _chroma_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) else value


class Recipe(BaseModel):
    """The content of a recipe file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: str
    sequences: list[SequenceSpec] = Field(min_length=1)
    root: str = Field(default=".", description="folder that relative sources start from; itself relative to the recipe")
    codec: str = "vvc"
    preset: str = "medium"
    configuration: Literal["ai", "ra", "ldb"] = "ai"
    qp: list[int] = Field(min_length=1)
    loop_filters: bool = True
    ctu_size: Literal[16, 32, 64, 128] = 128
    internal_bit_depth: Literal[8, 10] = 10
    chroma: Literal["400", "420"] = Field(
        default="420", description="chroma format that still pictures are turned into"
    )
    params: dict[str, str] = Field(default_factory=dict, description="further settings in the encoder's own names")

    @field_validator("chroma", mode="before")
    @classmethod
    def _chroma_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) else value

    @field_validator("params", mode="before")
    @classmethod
    def _params_as_text(cls, value: object) -> object:
        if isinstance(value, dict):
            return {str(key): str(item) for key, item in value.items()}
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "Recipe":
        if self.codec not in CODECS:
            raise ValueError(f"unknown codec {self.codec!r}: one of {', '.join(CODECS)}")
        if len(set(self.qp)) != len(self.qp):
            raise ValueError(f"qp lists a value twice: {self.qp}")
        for qp in self.qp:
            self.settings(qp)
        return self

    def settings(self, qp: int) -> CodecSettings:
        """The codec settings of one unit at `qp`."""
        return CodecSettings(
            qp=qp,
            preset=self.preset,
            configuration=self.configuration,
            loop_filters=self.loop_filters,
            ctu_size=self.ctu_size,
            internal_bit_depth=self.internal_bit_depth,
            params=self.params,
        )


class Source(BaseModel):
    """One sequence of a recipe with its file found: what `expand` returns."""

    model_config = ConfigDict(frozen=True)

    name: str
    group: str
    path: Path
    spec: SequenceSpec
    scale: float = 1


def expand(recipe: Recipe, recipe_folder: Path) -> list[Source]:
    """Find the files of a recipe's sequences, in its order (the files of a pattern sorted by name).

    Raises MissingFileError for a source that matches no file, ConfigError for a name used twice or a group (or a
    file) that lies in two splits.
    """
    root = recipe_folder / Path(recipe.root).expanduser()
    sources = []
    for spec in recipe.sequences:
        paths = _find(spec.source, root)
        if spec.name is not None and len(paths) > 1:
            raise ConfigError(f"{spec.source} matches {len(paths)} files, which cannot all be named {spec.name!r}")
        for path in paths:
            name = spec.name or path.stem
            for scale in spec.scales:
                scaled = name if scale == 1 else f"{name}_x{scale:g}"
                sources.append(Source(name=scaled, group=spec.group or name, path=path, spec=spec, scale=scale))
    _check(sources)
    return sources


def _find(source: str, root: Path) -> list[Path]:
    if source.startswith(SKIMAGE_PREFIX):
        import skimage

        path = Path(skimage.__file__).parent / "data" / source.removeprefix(SKIMAGE_PREFIX)
        if not path.is_file():
            raise MissingFileError(f"scikit-image brings no picture {path.name}")
        return [path]
    path = root / Path(source).expanduser()
    if path.is_file():
        return [path]
    matches = sorted(Path(match) for match in glob.glob(str(path)) if Path(match).is_file())  # noqa: PTH207 - may be absolute
    if not matches:
        raise MissingFileError(f"no file matches {path}")
    return matches


def _check(sources: list[Source]) -> None:
    splits: dict[str, set[str]] = defaultdict(set)
    names: set[str] = set()
    for source in sources:
        if source.name in names:
            raise ConfigError(f"two sequences are named {source.name!r}: give one of them another name")
        if not source.name or any(character in source.name for character in "/\\\0\n\r") or source.name[0] in ".-":
            raise ConfigError(f"sequence name {source.name!r} cannot be used in file names: give it another name")
        names.add(source.name)
        splits[f"group {source.group!r}"].add(source.spec.split)
        splits[f"file {source.path.resolve()}"].add(source.spec.split)
    for what, found in splits.items():
        if len(found) > 1:
            raise ConfigError(f"{what} lies in the splits {' and '.join(sorted(found))}: a picture belongs to one")
