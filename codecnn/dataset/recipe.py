"""A recipe: which pictures, which encoder, which QPs, which split. It alone says what a store holds."""

import glob
from collections import defaultdict
from dataclasses import fields
from fnmatch import fnmatch
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from codecnn.codec import CODECS, CONFIGURATIONS, STREAMS, UNKNOWN_PRESET, CodecSettings, Given, makes_vvc
from codecnn.dataset._streams import StreamSpec, find_streams
from codecnn.dataset._variants import VariantsSpec, uniform
from codecnn.dataset.encoder_specs import CtuSize, EncoderSpec, InLoopSpec, ToolsSpec
from codecnn.dataset.records import Coding, Variant
from codecnn.errors import ConfigError, MissingFileError
from codecnn.planes import REBUILT_PLANES, file_of
from codecnn.video import STILL_SUFFIXES, stills_in

Split = Literal["train", "val", "test"]
_SKIMAGE_PREFIX = "skimage:"

# YAML reads 420 and IntraPeriod: 1 as numbers.
_NUMBER_AS_TEXT = BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)
_Text = Annotated[str, BeforeValidator(str)]


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what is not given of these keys, so that manifests are what they were before there were any."""
        later = ("seed", "variants", "encoders", "streams", "ctc", "planes", "times", "in_loop")
        return {key: value for key, value in handler(self).items() if value or key not in later}


class SequenceSpec(_Spec):
    """A source of pictures: a video, a still, a folder of stills, or a pattern, with what its file does not say itself.

    Sequences of one `group` show the same scene (a stereo pair, shots of one film) and never part into two splits.
    """

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
    step: int = Field(default=1, ge=1, description="every so-many-th picture, also by configuration: {ai: 8}")
    packing: Literal["p010"] | None = Field(
        default=None, description="p010: 10 bit in the upper bits, U and V by turns"
    )
    matrix: Literal["bt601", "bt709", "bt2020"] = Field(default="bt709", description="RGB to Y'CbCr of stills")
    full_range: bool = Field(default=False, description="full instead of limited range for stills")
    series: bool = Field(default=False, description="a folder of stills is one video, in the order of its numbers")
    scales: list[Annotated[float, Field(gt=0, le=1)]] = Field(
        default=[1], min_length=1, description="also at these sizes: 0.5 is half the width and height"
    )
    variants: VariantsSpec | None = Field(default=None, description="default: the recipe's, in the split train")
    streams: list[StreamSpec] = Field(
        default=[], description="of codec streams: what was coded of it; paths or patterns, {name} for the name"
    )


_Plane = Literal[
    "unf_y", "pred_y", "resid_y", "bs_v", "bs_h", "cbf_y", "ts_y", "mts", "tr_hor", "tr_ver", "lfnst", "bdpcm"
]

_CODING = {field.name for field in fields(CodecSettings)} - {"qp", "threads"}
"""What a recipe says on coding, under the names of `CodecSettings`."""
_TO_ENCODERS = ("preset", "qp", "params", "unfiltered", "tools", "seed", "variants", "encoders", "ctc", "in_loop")
"""What a recipe says to encoders alone."""
_WITH_CTC = ("vvc", "vvencapp", "vtm")
_OWN = {"preset", "ctu_size", "params"}
"""Those of them that an encoder of a recipe may say instead."""


class Recipe(_Spec):
    """The content of a recipe file; unknown keys are errors."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: str
    sequences: list[SequenceSpec] = Field(min_length=1)
    classes: list[str] | None = Field(default=None, description="only the sequences of these classes")
    root: str = Field(default=".", description="folder that relative sources start from; itself relative to the recipe")
    codec: str = "vvc"
    preset: str = "medium"
    configuration: Literal["ai", "ra", "ldb"] = "ai"
    qp: list[int] = Field(default=[], description="of codec streams: none, the streams have their own")
    loop_filters: bool = True
    ctu_size: CtuSize = 128
    internal_bit_depth: Literal[8, 10] = 10
    chroma: Annotated[Literal["400", "420"], _NUMBER_AS_TEXT] = Field(
        default="420", description="chroma format that still pictures are turned into"
    )
    params: dict[_Text, _Text] = Field(default_factory=dict, description="further settings in the encoder's own names")
    unfiltered: bool = Field(default=False, description="also the pictures before the codec's in-loop filters")
    ctc: bool = Field(default=False, description="ra and ldb as near to JVET's common test conditions as can be")
    planes: list[_Plane] = Field(
        default=[], description="from the VVC bitstreams as they are; the first five of intra pictures only"
    )
    times: bool = Field(
        default=False,
        description="note each encoder's processor time, in a file that another build has otherwise",
    )
    tools: ToolsSpec = ToolsSpec()
    seed: int = Field(default=0, description="what the variants and the encoders of the sources are drawn from")
    variants: VariantsSpec | None = Field(default=None, description="of all sequences of the split train")
    encoders: list[EncoderSpec] = Field(default=[], description="settings that the split train is coded by")
    in_loop: InLoopSpec | None = Field(default=None, description="of vvc in low delay: a filter in the loop")

    @model_validator(mode="before")
    @classmethod
    def _steps(cls, value: Any) -> Any:
        """A step that depends on the configuration becomes the one that it is in this recipe."""
        sequences = value.get("sequences") if isinstance(value, dict) else None
        if not isinstance(sequences, list):
            return value
        resolved = []
        for spec in sequences:
            step = spec.get("step") if isinstance(spec, dict) else None
            if isinstance(step, dict):
                if unknown := set(step) - set(CONFIGURATIONS):
                    raise ValueError(f"step of {sorted(map(str, unknown))[0]}: of {', '.join(CONFIGURATIONS)}")
                resolved.append(spec | {"step": step.get(value.get("configuration", "ai"), 1)})
            else:
                resolved.append(spec)
        return value | {"sequences": resolved}

    @model_validator(mode="before")
    @classmethod
    def _of_streams(cls, value: Any) -> Any:
        """Streams are coded already, so that nothing is known of the encoder, and nothing can be said to it."""
        if not isinstance(value, dict) or value.get("codec") != STREAMS:
            return value
        if given := [key for key in _TO_ENCODERS if key in value]:
            raise ValueError(f"codec streams takes no {', '.join(given)}: its pictures are coded already")
        return value | {"preset": UNKNOWN_PRESET}

    @model_validator(mode="after")
    def _consistent(self) -> "Recipe":
        if self.codec not in (*CODECS, STREAMS):
            raise ValueError(f"unknown codec {self.codec!r}: one of {', '.join((*CODECS, STREAMS))}")
        if self.ctc and self.codec not in _WITH_CTC:
            raise ValueError(f"ctc is for the codecs {', '.join(_WITH_CTC)}, not for {self.codec}")
        for spec in self.sequences:
            if bool(spec.streams) != (self.codec == STREAMS):
                verb = "takes no" if spec.streams else "needs"
                raise ValueError(f"the sequence {spec.source}: codec {self.codec} {verb} streams")
            if spec.streams and (spec.scales != [1] or spec.variants is not None):
                raise ValueError(f"the sequence {spec.source}: what is coded already has no scales and variants")
        if not self.qp and self.codec != STREAMS:
            raise ValueError("qp: give at least one")
        if len(set(self.qp)) != len(self.qp):
            raise ValueError(f"qp lists a value twice: {self.qp}")
        if len({encoder.share is None for encoder in self.encoders}) > 1:
            raise ValueError("encoders: give all of them a share, or none")
        self._check_in_loop()
        self._check_rebuilt_planes()
        for qp in self.qp:
            for encoder in (None, *self.encoders):
                self.settings(qp, encoder)
        return self

    def _check_in_loop(self) -> None:
        wanted = {"codec": "vvc", "configuration": "ldb", "ctc": False}
        for key, value in wanted.items() if self.in_loop is not None else ():
            if (given := getattr(self, key)) != value:
                raise ValueError(f"in_loop goes with {key}: {str(value).lower()}, not {str(given).lower()}")

    def _check_rebuilt_planes(self) -> None:
        if not self.planes:
            return
        listed = ", ".join(self.planes)
        if self.codec != STREAMS and not makes_vvc(self.codec):
            raise ValueError(f"planes: {listed} are rebuilt from VVC bitstreams, and {self.codec} makes others")
        if self.configuration != "ai" and self.rebuilt_planes:
            listed = ", ".join(self.rebuilt_planes)
            raise ValueError(f"planes: {listed} are those of intra pictures, and need the configuration ai")
        for name, key, given in (
            ("unf_y", "unfiltered: true", self.unfiltered),
            ("pred_y", "tools.prediction", self.tools.prediction),
        ):
            if name in self.planes and given:
                raise ValueError(f"planes: {name} would be there twice, give it or {key}")

    @property
    def rebuilt_planes(self) -> list[str]:
        """Those of `planes` that are rebuilt as pictures are."""
        return [name for name in self.planes if name in REBUILT_PLANES]

    @property
    def rebuilt_files(self) -> list[str]:
        """The files of a unit that `planes` asks for."""
        return sorted({file_of(name) for name in self.planes})

    def settings(self, qp: int, encoder: EncoderSpec | None = None) -> CodecSettings:
        """The codec settings of one unit at `qp`, by one of the recipe's encoders or by none."""
        return CodecSettings(qp=qp, **self.model_dump(include=_CODING) | self.coding(encoder).model_dump(include=_OWN))

    def coding(self, encoder: EncoderSpec | None) -> Coding:
        """What the encoder, or None, makes of the recipe's settings."""
        own = encoder or EncoderSpec()
        return Coding(
            preset=own.preset or self.preset,
            ctu_size=own.ctu_size or self.ctu_size,
            params=self.params | own.params,
            source_bit_depth=own.source_bit_depth,
        )


class Source(BaseModel):
    """One sequence of a recipe with its file found: what `expand` returns."""

    model_config = ConfigDict(frozen=True)

    name: str
    group: str
    path: Path
    spec: SequenceSpec
    scale: float = 1
    variant: Variant | None = None
    encoder: EncoderSpec | None = None
    given: tuple[Given, ...] = ()

    @property
    def still(self) -> bool:
        """Whether the file is a still picture, or a folder of them, and not Y'CbCr."""
        return self.path.is_dir() or self.path.suffix.lower() in STILL_SUFFIXES

    @property
    def source_bit_depth(self) -> int | None:
        """What the original is rounded to before it is coded; None: nothing."""
        return None if self.encoder is None else self.encoder.source_bit_depth


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
            given = find_streams(spec.streams, root, name)
            for scale in spec.scales:
                scaled = name if scale == 1 else f"{name}_x{scale:g}"
                source = Source(name=scaled, group=spec.group or name, path=path, spec=spec, scale=scale, given=given)
                sources.append(source)
            sources += _variants(recipe, Source(name=name, group=spec.group or name, path=path, spec=spec))
    sources = [coded for source in sources for coded in _coded(recipe, source)]
    _check(sources)
    if recipe.encoders and not any(source.encoder for source in sources):
        raise ConfigError(f"recipe {recipe.name!r} has encoders, but no sequence of the split train, which they code")
    return sources


def _variants(recipe: Recipe, source: Source) -> list[Source]:
    """The source's variants: all of its group and split, for it is one picture however it was varied."""
    spec = source.spec.variants
    if spec is None and source.spec.split == "train":
        spec = recipe.variants
    if spec is None:
        return []
    found = (spec.draw(recipe.seed, source.name, n, still=source.still) for n in range(1, spec.count + 1))
    return [source.model_copy(update={"name": f"{source.name}_v{one.number}", "variant": one}) for one in found]


def _coded(recipe: Recipe, source: Source) -> list[Source]:
    """The source for the encoder that it drew, or for each where none has a share; as it is outside the split train."""
    encoders = recipe.encoders if source.spec.split == "train" else []
    if not encoders:
        return [source]
    shares = [encoder.share for encoder in encoders if encoder.share is not None]
    if not shares:
        each = enumerate(encoders, 1)
        return [source.model_copy(update={"name": f"{source.name}_e{n}", "encoder": encoder}) for n, encoder in each]
    drawn = uniform(recipe.seed, source.name, "encoder") * sum(shares)
    # The last also takes what rounding leaves.
    number = next((n for n, until in enumerate(accumulate(shares)) if drawn < until), len(shares) - 1)
    return [source.model_copy(update={"encoder": encoders[number]})]


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
        where = "" if Path(source).is_absolute() else ": root=FOLDER says where the pictures of a recipe lie"
        raise MissingFileError(f"no {'folder' if series else 'file of pictures'} matches {path}{where}")
    return found


def _check(sources: list[Source]) -> None:
    splits: dict[str, set[str]] = defaultdict(set)
    names: set[str] = set()
    streams: dict[Path, str] = {}
    for source in sources:
        if source.name in names:
            raise ConfigError(f"two sequences are named {source.name!r}: give one of them another name")
        if not source.name or any(character in source.name for character in "/\\\0\n\r") or source.name[0] in ".-":
            raise ConfigError(f"sequence name {source.name!r} cannot be used in file names: give it another name")
        names.add(source.name)
        for given in source.given:
            if (other := streams.setdefault(given.path.resolve(), source.name)) != source.name:
                raise ConfigError(f"{given.path} is given for two sequences, {other!r} and {source.name!r}")
        splits[f"group {source.group!r}"].add(source.spec.split)
        splits[f"file {source.path.resolve()}"].add(source.spec.split)
    for what, found in splits.items():
        if len(found) > 1:
            raise ConfigError(f"{what} lies in the splits {' and '.join(sorted(found))}: a picture belongs to one")
