"""Entries of a recipe for the encoder: programs of the user, settings by share, rate control, a filter in the loop."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from codecnn.base.planes import MAX_QP
from codecnn.base.rate_modes import RateName
from codecnn.codec import CodecSettings, CodecTools
from codecnn.dataset.supplied import NumberAsText

CtuSize = Literal[16, 32, 64, 128]
Text = Annotated[str, BeforeValidator(str)]
"""A text; numbers and truth values of YAML become one."""
_RateValue = Annotated[int, Field(ge=0, le=MAX_QP)]

CODING_KEYS = {field.name for field in fields(CodecSettings)} - {"qp", "threads", "rate"}
"""Keys of a recipe that are settings of the codec, under the names of `CodecSettings`."""
OVERRIDABLE_KEYS = {"preset", "ctu_size", "params"}
"""Settings of the codec that each of a recipe's `encoders` can override."""
_STORE_KEYS = ("codec", *sorted((CODING_KEYS | {"qp", "rate"}) - OVERRIDABLE_KEYS))
"""Settings that are the same in a whole store."""


class ToolsSpec(BaseModel):
    """Programs of the user for the codecs vtm, hm and vvencapp; relative paths start at the recipe's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str | None = Field(default=None, description="path, or the name of a program in PATH")
    decoder: str | None = None
    cfg: list[str] = Field(default=[], description="configuration files of the encoder, in order")
    prediction: list[str] = Field(
        default=[], description="arguments that make the decoder write its prediction signal to {output}"
    )
    trace: bool = Field(default=False, description="read block statistics from the decoder's trace")

    def resolve(self, folder: Path) -> CodecTools:
        """Return the programs with relative paths resolved from `folder`; bare program names are looked up in PATH."""

        def program(name: str | None) -> str | None:
            return name if name is None or Path(name).name == name else str(folder / Path(name).expanduser())

        return CodecTools(
            encoder=program(self.encoder),
            decoder=program(self.decoder),
            cfg=tuple(folder / Path(name).expanduser() for name in self.cfg),
            prediction=tuple(self.prediction),
            trace=self.trace,
        )


class EncoderSpec(BaseModel):
    """One of several encoder settings for the training sequences; keys that it omits keep the recipe's values.

    `params` are added to those of the recipe.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="share of the sequences, relative to the other settings; without shares each codes all sequences",
    )
    preset: Annotated[str | None, NumberAsText] = None
    ctu_size: CtuSize | None = None
    params: dict[Text, Text] = Field(default_factory=dict)
    source_bit_depth: Literal[8] | None = Field(
        default=None, description="bit depth to which the original is rounded before coding"
    )

    @model_validator(mode="before")
    @classmethod
    def _check_store_keys(cls, value: Any) -> Any:
        """Refuse settings that all units of a store share."""
        if isinstance(value, dict) and (wrong := [key for key in _STORE_KEYS if key in value]):
            raise ValueError(
                f"all units of a store have the same {wrong[0]}: build a store for each, and list them with their "
                "shares under stores in the training configuration"
            )
        return value


class RateSpec(BaseModel):
    """Rate control in place of constant QP: values of one kind, at each of which all sources are coded.

    The encoder then has its own defaults: QPs that vary by picture and block, psycho-visual decisions, pre-filters.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    crf: list[_RateValue] = Field(default=[], description="values of -crf, of codecs hevc, avc, av1 and svtav1")
    qp: list[_RateValue] = Field(default=[], description="values of -qp, of codecs hevc, avc and vvc")
    kbps: list[Annotated[int, Field(ge=1)]] = Field(
        default=[],
        description="average bit rates of one pass in kbit/s (-b:v), of codecs hevc, avc, av1, svtav1 and vvc",
    )

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not cls.model_fields.keys() >= value.keys():
            raise ValueError(f"give values of one of {', '.join(cls.model_fields)}, e.g. {{crf: [24, 34]}}")
        return value

    @model_validator(mode="after")
    def _check_one(self) -> "RateSpec":
        if len(self._given()) != 1:
            raise ValueError(f"give values of one of {', '.join(type(self).model_fields)}, e.g. {{crf: [24, 34]}}")
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"it lists a value twice: {self.values}")
        return self

    @property
    def kind(self) -> RateName:
        """Kind of rate control, a key of `RATE_MODES`."""
        return next(iter(self._given()))

    @property
    def values(self) -> list[int]:
        """Values of that kind."""
        return self._given()[self.kind]

    def _given(self) -> dict[RateName, list[int]]:
        lists: dict[RateName, list[int]] = {"crf": self.crf, "qp": self.qp, "kbps": self.kbps}
        return {name: values for name, values in lists.items() if values}


class InLoopSpec(BaseModel):
    """A CNN filter in the encoder's prediction loop; relative paths start at the recipe's folder.

    The units then hold the pictures before the filter, each predicted from filtered pictures.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: str = Field(description="name of shipped weights (see `codecnn models`), or a file")
    decisions: Literal["none", "ctu", "full"] = Field(default="ctu", description="as in `codecnn evaluate`")
    exact: bool = Field(default=False, description="filter with the integer network that is stored with the weights")
    library: str | None = Field(
        default=None, description="libvvenc as a shared library; default: the one that CODECNN_VVENC_LIBRARY names"
    )
