"""A recipe: which pictures, which encoder, which QPs, which split. It alone says what a store holds."""

import glob
from collections import defaultdict
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from codecnn.codec import CODECS, CodecSettings, CodecTools
from codecnn.errors import ConfigError, MissingFileError
from codecnn.video import stills_in

Split = Literal["train", "val", "test"]
_SKIMAGE_PREFIX = "skimage:"

# YAML reads 420 and IntraPeriod: 1 as numbers.
_NUMBER_AS_TEXT = BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)
_Text = Annotated[str, BeforeValidator(str)]


class SequenceSpec(BaseModel):
    """A source of pictures: a video, a still, a folder of stills, or a pattern, with what its file does not say itself.

    Sequences of one `group` show the same scene (a stereo pair, shots of one film) and never part into two splits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(
        description="path, folder of stills, pattern (** for any folders), or skimage:NAME that scikit-image brings"
    )
    exclude: list[str] = Field(default=[], description="patterns of file names that the source shall not take in")
    split: Split = "train"
    class_: str | None = Field(default=None, alias="class", description="as JVET sorts its sequences: A1, B, ...")
    name: str | None = Field(default=None, description="default: the file's stem")
    group: str | None = Field(default=None, description="default: the name")
    size: str | None = Field(default=None, description="WxH of a raw YUV whose name does not tell")
    bit_depth: int | None = None
    chroma: Annotated[str | None, _NUMBER_AS_TEXT] = None
    fps: float | None = None
    start: int = Field(default=0, ge=0, description="pictures to pass over")
    frames: int | None = Field(default=None, ge=1, description="at most so many pictures")
    step: int = Field(default=1, ge=1, description="every so-many-th picture; 8 is JVET's habit for all intra")
    packing: Literal["p010"] | None = Field(
        default=None, description="p010: 10 bit in the upper bits, U and V by turns"
    )
    matrix: Literal["bt601", "bt709", "bt2020"] = Field(default="bt709", description="RGB to Y'CbCr of stills")
    full_range: bool = Field(default=False, description="full instead of limited range for stills")
    series: bool = Field(default=False, description="a folder of stills is one video, in the order of its numbers")
    scales: list[Annotated[float, Field(gt=0, le=1)]] = Field(
        default=[1], min_length=1, description="also at these sizes: 0.5 is half the width and height"
    )


_CODING = {field.name for field in fields(CodecSettings)} - {"qp", "threads"}
"""What a recipe says on coding, under the names of `CodecSettings`."""


class ToolsSpec(BaseModel):
    """The user's own programs for the codecs vtm, hm and vvencapp; relative paths start from the recipe's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str | None = Field(default=None, description="path, or a name that PATH knows")
    decoder: str | None = None
    cfg: list[str] = Field(default=[], description="the encoder's configuration files, in order")
    prediction: list[str] = Field(
        default=[], description="arguments that make the decoder write its prediction signal to {output}"
    )
    trace: bool = Field(default=False, description="take block statistics from the decoder's trace")

    def found_from(self, folder: Path) -> CodecTools:
        """The same with its paths found from `folder`; a bare program name is left to PATH."""

        def program(name: str | None) -> str | None:
            return name if name is None or Path(name).name == name else str(folder / Path(name).expanduser())

        return CodecTools(
            encoder=program(self.encoder),
            decoder=program(self.decoder),
            cfg=tuple(folder / Path(name).expanduser() for name in self.cfg),
            prediction=tuple(self.prediction),
            trace=self.trace,
        )


class Recipe(BaseModel):
    """The content of a recipe file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: str
    sequences: list[SequenceSpec] = Field(min_length=1)
    classes: list[str] | None = Field(default=None, description="only the sequences of these classes")
    root: str = Field(default=".", description="folder that relative sources start from; itself relative to the recipe")
    codec: str = "vvc"
    preset: str = "medium"
    configuration: Literal["ai", "ra", "ldb"] = "ai"
    qp: list[int] = Field(min_length=1)
    loop_filters: bool = True
    ctu_size: Literal[16, 32, 64, 128] = 128
    internal_bit_depth: Literal[8, 10] = 10
    chroma: Annotated[Literal["400", "420"], _NUMBER_AS_TEXT] = Field(
        default="420", description="chroma format that still pictures are turned into"
    )
    params: dict[_Text, _Text] = Field(default_factory=dict, description="further settings in the encoder's own names")
    unfiltered: bool = Field(default=False, description="also the pictures before the codec's in-loop filters")
    tools: ToolsSpec = ToolsSpec()

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
        return CodecSettings(qp=qp, **self.model_dump(include=_CODING))


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
    chosen = [spec for spec in recipe.sequences if recipe.classes is None or spec.class_ in recipe.classes]
    if not chosen:
        raise ConfigError(f"recipe {recipe.name!r} has no sequence of the classes {', '.join(recipe.classes or [])}")
    for spec in chosen:
        found = _find(spec.source, root, spec.series)
        paths = [path for path in found if not any(fnmatch(path.name, pattern) for pattern in spec.exclude)]
        if not paths:
            raise ConfigError(f"{spec.source}: every file that matches is excluded")
        if spec.name is not None and len(paths) > 1:
            raise ConfigError(f"{spec.source} matches {len(paths)} files, which cannot all be named {spec.name!r}")
        for path in paths:
            name = spec.name or path.stem
            for scale in spec.scales:
                scaled = name if scale == 1 else f"{name}_x{scale:g}"
                sources.append(Source(name=scaled, group=spec.group or name, path=path, spec=spec, scale=scale))
    _check(sources)
    return sources


def _find(source: str, root: Path, series: bool) -> list[Path]:
    if source.startswith(_SKIMAGE_PREFIX):
        import skimage

        path = Path(skimage.__file__).parent / "data" / source.removeprefix(_SKIMAGE_PREFIX)
        if not path.is_file():
            raise MissingFileError(f"scikit-image brings no picture {path.name}")
        return [path]
    path = root / Path(source).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        found = [path] if series else stills_in(path)
    else:
        # glob of Path takes no absolute patterns.
        matches = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207
        found = [match for match in matches if (match.is_dir() if series else match.is_file())]
    if not found:
        raise MissingFileError(f"no {'folder' if series else 'file of pictures'} matches {path}")
    return found


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
