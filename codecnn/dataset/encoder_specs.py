"""What a recipe says of whoever codes: programs of the user's, several settings, a filter in the loop."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from codecnn.codec import CodecTools

CtuSize = Literal[16, 32, 64, 128]
_Text = Annotated[str, BeforeValidator(str)]


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


class EncoderSpec(BaseModel):
    """One of several settings that the training sources of a recipe are coded by; what it does not say the recipe says.

    `params` are added to the recipe's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="of the sources, relative to the others'; none: all sources",
    )
    preset: str | None = None
    ctu_size: CtuSize | None = None
    params: dict[_Text, _Text] = Field(default_factory=dict)
    source_bit_depth: Literal[8] | None = Field(default=None, description="what the original is rounded to before")


class InLoopSpec(BaseModel):
    """A filter in the encoder's loop: units hold the pictures before it, each predicted from those that it made.

    Relative paths start from the recipe's folder.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: str = Field(description="a name of `codecnn models`, or a file")
    decisions: Literal["none", "ctu", "full"] = Field(default="ctu", description="as of `codecnn evaluate`")
    exact: bool = Field(default=False, description="filter by the integers that lie beside the weights")
    library: str | None = Field(
        default=None, description="libvvenc as a shared library; none: that of CODECNN_VVENC_LIBRARY"
    )
