"""Entries of a recipe for supplied material: streams, or decoded pictures whose QPs the recipe states."""

from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from codecnn.base.errors import ConfigError
from codecnn.base.planes import MAX_QP

NumberAsText = BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)
"""Makes a text of a number, since YAML reads 420 as one."""
_NetworkQp = Annotated[float, Field(ge=0, le=MAX_QP)]


class QpScale(BaseModel):
    """A linear map from the quantiser of a codec to the QP that networks receive.

    Networks receive QP / 64 and are trained for QPs of 0 to 63, so the quantisers of another codec are converted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: tuple[float, float] = Field(alias="from", description="two values of the codec, e.g. [0, 255]")
    target: tuple[_NetworkQp, _NetworkQp] = Field(alias="to", description="the QPs that they become, e.g. [0, 63]")

    @model_validator(mode="after")
    def _check_range(self) -> "QpScale":
        if self.source[0] == self.source[1]:
            raise ValueError(f"qp_scale from {list(self.source)} has no length: give two different values")
        return self

    def convert(self, value: float) -> int:
        """Return the QP of a quantiser, rounded to a whole number.

        Raises:
            ConfigError: The quantiser is not between the ends of the scale.
        """
        low, high = sorted(self.source)
        if not low <= value <= high:
            raise ConfigError(f"slice_qp {value:g} is outside of qp_scale, which is from {low:g} to {high:g}")
        share = (value - self.source[0]) / (self.source[1] - self.source[0])
        return round(self.target[0] + share * (self.target[1] - self.target[0]))


class DecodedSpec(BaseModel):
    """Decoded pictures supplied without a bitstream that states their QPs, such as those of a codec of the user."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decoded: str = Field(description="raw YUV, Y4M, or any file that ffmpeg decodes")
    slice_qp: Annotated[
        list[int | float],
        BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
    ] = Field(
        min_length=1,
        description="one QP for all pictures, or one per picture in output order: 0 to 63, or as qp_scale converts it",
    )
    bits: list[Annotated[int, Field(ge=0)]] | str | None = Field(
        default=None, description="bits of each picture: a list, or a CSV file with the column bits"
    )
    bitstream: str | None = Field(
        default=None, description="file whose size gives the bits, or a pattern of files, one for each picture"
    )
    size: str | None = Field(default=None, description="WxH of a raw YUV file whose name does not state it")
    bit_depth: int | None = None
    chroma: Annotated[str | None, NumberAsText] = None

    @model_validator(mode="after")
    def _check_bits(self) -> "DecodedSpec":
        if self.bits is not None and self.bitstream is not None:
            raise ValueError(f"{self.decoded}: give either bits or bitstream")
        return self


StreamSpec = Annotated[
    Annotated[str, Tag("stream")] | Annotated[DecodedSpec, Tag("pictures")],
    Discriminator(lambda value: "stream" if isinstance(value, str) else "pictures"),
]
"""A supplied stream by its path, or supplied decoded pictures."""
