"""Recipe files: the pictures, the encoder, the QPs and the splits that define a store."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from codecnn.base.errors import ConfigError
from codecnn.base.planes import MAX_QP, REBUILT_PLANES, STREAM_PLANES, TEMPORAL_PLANES, file_of
from codecnn.base.rate_modes import rate_mode
from codecnn.codec import CODECS, CONFIGURATIONS, RATES, STREAMS, UNKNOWN_PRESET, CodecSettings, codes_vvc
from codecnn.dataset.encoder_specs import (
    CODING_KEYS,
    OVERRIDABLE_KEYS,
    CtuSize,
    EncoderSpec,
    InLoopSpec,
    RateSpec,
    Text,
    ToolsSpec,
)
from codecnn.dataset.records import Coding
from codecnn.dataset.sequence_specs import SequenceSpec
from codecnn.dataset.supplied import DecodedSpec, NumberAsText, QpScale
from codecnn.dataset.variants import VariantsSpec

_Plane = Literal[
    "unf_y",
    "pred_y",
    "resid_y",
    "bs_v",
    "bs_h",
    "cbf_y",
    "ts_y",
    "mts",
    "tr_hor",
    "tr_ver",
    "lfnst",
    "bdpcm",
    "prev_mc_y",
    "next_mc_y",
    "prev2_mc_y",
    "next2_mc_y",
    "ref0_y",
    "ref1_y",
    "ref0_mc_y",
    "ref1_mc_y",
]

_STREAM_KEYS = {"qp_scale": None, "check": True}
"""Keys for supplied streams alone, and their defaults."""

_ENCODER_KEYS = (
    *("preset", "qp", "rate", "qps_per_source", "params", "unfiltered", "tools", "seed", "variants", "encoders", "ctc"),
    "in_loop",
)
"""Keys of a recipe that only apply if codecnn runs the encoder."""
_CTC_CODECS = ("vvc", "vvencapp", "vtm")
_MAX_X26X_QP = 51


class Recipe(BaseModel):
    """The content of a recipe file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: str
    sequences: list[SequenceSpec] = Field(min_length=1)
    classes: list[str] | None = Field(default=None, description="use only the sequences of these classes")
    root: str = Field(default=".", description="folder of relative sources; itself relative to the recipe's folder")
    codec: str = "vvc"
    preset: Annotated[str, NumberAsText] = "medium"
    configuration: Literal["ai", "ra", "ldb"] = "ai"
    qp: list[int] = Field(default=[], description="QPs to code at; not allowed for codec streams")
    rate: RateSpec | None = Field(
        default=None,
        description="rate control in place of qp: {crf: [24, 29, 34, 39]}, {qp: [22, 27, 32, 37]} or "
        "{kbps: [400, 800, 1600, 3200]}",
    )
    qps_per_source: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="QPs drawn for each source of the split train; default: all of them"
    )
    loop_filters: bool = True
    ctu_size: CtuSize = 128
    internal_bit_depth: Literal[8, 10] = 10
    chroma: Annotated[Literal["400", "420"], NumberAsText] = Field(
        default="420", description="chroma format to which stills are converted"
    )
    params: dict[Text, Text] = Field(default_factory=dict, description="further settings in the encoder's own names")
    unfiltered: bool = Field(default=False, description="also store the reconstruction before the in-loop filters")
    ctc: bool = Field(default=False, description="ra and ldb close to JVET's common test conditions")
    planes: list[_Plane] = Field(
        default=[],
        description="planes to rebuild from the VVC bitstreams, or to compute from the decoded pictures of any codec",
    )
    qp_scale: QpScale | None = Field(
        default=None,
        description="for codec streams: converts the slice_qp of decoded pictures, {from: [0, 255], to: [0, 63]}",
    )
    check: bool = Field(
        default=True,
        description="for codec streams: check that decoded pictures can come from their original at their QP",
    )
    times: bool = Field(
        default=False,
        description="record each encoder's processor time, in a file that differs from build to build",
    )
    tools: ToolsSpec = ToolsSpec()
    seed: int = Field(default=0, description="seed from which variants and encoders are drawn")
    variants: VariantsSpec | None = Field(default=None, description="variants of all sequences of the split train")
    encoders: list[EncoderSpec] = Field(default=[], description="encoder settings for the split train")
    in_loop: InLoopSpec | None = Field(
        default=None, description="CNN filter in the prediction loop, for codec vvc and configuration ldb"
    )

    def __repr__(self) -> str:
        """Return one line; `model_dump` has all fields."""
        coder = f"{self.codec} {self.preset} {self.configuration}"
        mode = rate_mode(None if self.rate is None else self.rate.kind)
        qps = f", {mode.text(' '.join(map(str, self.points)))}" if self.points else ""
        return f"<Recipe {self.name}: {len(self.sequences)} sources, {coder}{qps}>"

    __str__ = __repr__

    @model_validator(mode="before")
    @classmethod
    def _resolve_steps(cls, value: Any) -> Any:
        """Replace each step that depends on the configuration by its value for this recipe's configuration."""
        sequences = value.get("sequences") if isinstance(value, dict) else None
        if not isinstance(sequences, list):
            return value
        resolved = []
        for spec in sequences:
            step = spec.get("step") if isinstance(spec, dict) else None
            if isinstance(step, dict):
                if unknown := set(step) - set(CONFIGURATIONS):
                    raise ValueError(
                        f"step of {sorted(map(str, unknown))[0]}: the configurations are {', '.join(CONFIGURATIONS)}"
                    )
                resolved.append(spec | {"step": step.get(value.get("configuration", "ai"), 1)})
            else:
                resolved.append(spec)
        return value | {"sequences": resolved}

    @model_validator(mode="before")
    @classmethod
    def _check_stream_keys(cls, value: Any) -> Any:
        """Refuse encoder settings for supplied streams."""
        if not isinstance(value, dict) or value.get("codec") != STREAMS:
            given = value if isinstance(value, dict) else {}
            if wrong := [key for key, default in _STREAM_KEYS.items() if given.get(key, default) != default]:
                raise ValueError(f"{wrong[0]} is for the codec streams")
            return value
        if wrong := [key for key in _ENCODER_KEYS if key in value]:
            raise ValueError(f"codec streams takes no {', '.join(wrong)}: its pictures are coded already")
        return value | {"preset": UNKNOWN_PRESET}

    @model_validator(mode="after")
    def _check_consistency(self) -> "Recipe":
        if self.codec not in (*CODECS, STREAMS):
            raise ValueError(f"unknown codec {self.codec!r}: one of {', '.join((*CODECS, STREAMS))}")
        if self.ctc and self.codec not in _CTC_CODECS:
            raise ValueError(f"ctc is for the codecs {', '.join(_CTC_CODECS)}, not for {self.codec}")
        for spec in self.sequences:
            if bool(spec.streams) != (self.codec == STREAMS):
                verb = "takes no" if spec.streams else "needs"
                raise ValueError(f"the sequence {spec.source}: codec {self.codec} {verb} streams")
            if spec.streams and spec.planned:
                raise ValueError(f"the sequence {spec.source}: planned is for sequences without streams: remove it")
            if spec.streams and (spec.scales != [1] or spec.variants is not None):
                raise ValueError(
                    f"the sequence {spec.source}: it is coded already, so it has no scales and variants: remove them"
                )
            for stream in spec.streams:
                if isinstance(stream, DecodedSpec):
                    self.stated_qps(stream)
        if self.qp and self.rate is not None:
            raise ValueError("give qp for constant QP, or rate")
        if not self.points and self.codec != STREAMS:
            raise ValueError("qp: give at least one")
        if len(set(self.qp)) != len(self.qp):
            raise ValueError(f"qp lists a value twice: {self.qp}")
        if self.qps_per_source is not None and self.qps_per_source > len(self.points):
            raise ValueError(f"qps_per_source is {self.qps_per_source}, but qp has {len(self.points)} values")
        if self.rate is not None and self.rate.kind not in RATES.get(self.codec, ()):
            known = ", ".join(codec for codec, kinds in RATES.items() if self.rate.kind in kinds)
            raise ValueError(f"rate: {self.rate.kind} is for the codecs {known}, not for {self.codec}")
        limited = self.rate is not None and self.rate.kind != "kbps" and self.codec in ("avc", "hevc")
        if limited and max(self.points) > _MAX_X26X_QP:
            raise ValueError(f"rate: {max(self.points)} is above {_MAX_X26X_QP}, the largest value of {self.codec}")
        if len({encoder.share is None for encoder in self.encoders}) > 1:
            raise ValueError("encoders: give all of them a share, or none")
        self._check_in_loop()
        self._check_rebuilt_planes()
        for qp in self.points:
            for encoder in (None, *self.encoders):
                self.settings(qp, encoder)
        return self

    def _check_in_loop(self) -> None:
        if self.in_loop is None:
            return
        required = (
            ("codec", self.codec, "vvc"),
            ("configuration", self.configuration, "ldb"),
            ("ctc", self.ctc, False),
        )
        for key, given, value in required:
            if given != value:
                raise ValueError(f"in_loop goes with {key}: {str(value).lower()}, not {str(given).lower()}")

    def _check_rebuilt_planes(self) -> None:
        listed = ", ".join(self.stream_planes)
        if listed and self.codec != STREAMS and not codes_vvc(self.codec):
            raise ValueError(
                f"planes: {listed} are rebuilt from VVC bitstreams, and {self.codec} makes others: choose codec vvc"
            )
        for name, key, given in (
            ("unf_y", "unfiltered: true", self.unfiltered),
            ("pred_y", "tools.prediction", self.tools.prediction),
        ):
            if name in self.planes and given:
                raise ValueError(f"planes: {name} would be there twice, give it or {key}")

    @property
    def points(self) -> list[int]:
        """QPs, or values of `rate`, at which sources are coded; none for supplied streams."""
        return self.qp if self.rate is None else self.rate.values

    @property
    def stream_planes(self) -> list[str]:
        """Names in `planes` that only VVC bitstreams provide."""
        return [name for name in self.planes if name in STREAM_PLANES]

    @property
    def rebuilt_planes(self) -> list[str]:
        """Names in `planes` that `codecnn.vvc.decoder` rebuilds from the bitstream."""
        return [name for name in self.planes if name in REBUILT_PLANES]

    @property
    def rebuilt_files(self) -> list[str]:
        """Files of a unit that hold the planes of `planes` from its bitstream, except temporal ones, sorted."""
        return sorted({file_of(name) for name in self.planes if name not in TEMPORAL_PLANES})

    @property
    def temporal_files(self) -> list[str]:
        """Files of a unit that hold the temporal planes of `planes`, sorted."""
        return sorted({file_of(name) for name in self.planes if name in TEMPORAL_PLANES})

    def stated_qps(self, spec: DecodedSpec) -> tuple[int, ...]:
        """Return the slice QPs of supplied pictures, converted by `qp_scale`.

        Raises:
            ConfigError: A QP is out of range, or no whole number.
        """
        if self.qp_scale is not None:
            return tuple(self.qp_scale.convert(qp) for qp in spec.slice_qp)
        for qp in spec.slice_qp:
            if not 0 <= qp <= MAX_QP or qp != int(qp):
                raise ConfigError(
                    f"slice_qp {qp:g} of {spec.decoded} is not a whole number from 0 to {MAX_QP}: qp_scale "
                    "converts the QPs of another codec"
                )
        return tuple(int(qp) for qp in spec.slice_qp)

    def settings(self, qp: int, encoder: EncoderSpec | None = None) -> CodecSettings:
        """Return the codec settings of a unit at one of `points`, with the overrides of one of the `encoders`."""
        overrides = self.coding(encoder).model_dump(include=OVERRIDABLE_KEYS)
        rate = None if self.rate is None else self.rate.kind
        return CodecSettings(qp=qp, rate=rate, **self.model_dump(include=CODING_KEYS) | overrides)

    def coding(self, encoder: EncoderSpec | None) -> Coding:
        """Return the recipe's encoder settings with the overrides of `encoder`, or as they are for None."""
        overrides = encoder or EncoderSpec()
        return Coding(
            preset=overrides.preset or self.preset,
            ctu_size=overrides.ctu_size or self.ctu_size,
            params=self.params | overrides.params,
            source_bit_depth=overrides.source_bit_depth,
        )
