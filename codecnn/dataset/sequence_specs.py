"""Entries of a recipe for its pictures: a source, how to read it, and the size of files that are not there yet."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from codecnn.base.errors import FormatError
from codecnn.dataset.supplied import NumberAsText, StreamSpec
from codecnn.dataset.variants import VariantsSpec
from codecnn.pictures.files import parse_size

Split = Literal["train", "val", "test"]


class PlannedFiles(BaseModel):
    """Files that a sequence's pattern matches in the whole collection, for a plan of a build where they are missing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: str = Field(description="WxH")
    pictures: int = Field(ge=1, description="pictures of each file")
    files: int = Field(default=1, ge=1, description="number of files")

    @field_validator("size")
    @classmethod
    def _check_size(cls, text: str) -> str:
        try:
            parse_size(text)
        except FormatError as error:
            raise ValueError(str(error)) from None
        return text


class SequenceSpec(BaseModel):
    """A source of pictures: a video, a still, a folder of stills, or a pattern, and how to read it.

    Sequences of one `group` show the same scene (a stereo pair, shots of one film) and must be in the same split.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(
        description="path, folder of stills, pattern (** for any folders), or skimage:NAME for a sample of scikit-image"
    )
    exclude: list[str] = Field(default=[], description="patterns of file names to exclude from the source")
    split: Split = "train"
    class_: str | None = Field(default=None, alias="class", description="JVET class: A1, B, ...")
    name: str | None = Field(default=None, description="default: the file name without its suffix")
    group: str | None = Field(default=None, description="default: the name")
    size: str | None = Field(default=None, description="WxH of a raw YUV file whose name does not state it")
    bit_depth: int | None = None
    chroma: Annotated[str | None, NumberAsText] = None
    fps: float | None = None
    start: int = Field(default=0, ge=0, description="number of pictures to skip at the start")
    frames: int | None = Field(default=None, ge=1, description="largest number of pictures")
    step: int = Field(default=1, ge=1, description="use every n-th picture; may depend on the configuration: {ai: 8}")
    packing: str | None = Field(
        default=None, description="sample layout of a raw YUV file: planar, or a pixel format such as nv12 or p010"
    )
    matrix: Literal["bt601", "bt709", "bt2020"] = Field(default="bt709", description="RGB to Y'CbCr matrix for stills")
    full_range: bool = Field(default=False, description="full instead of limited range for stills")
    series: bool = Field(default=False, description="treat a folder of numbered stills as one video")
    scales: list[Annotated[float, Field(gt=0, le=1)]] = Field(
        default=[1], min_length=1, description="sizes to code: 0.5 is half the width and height"
    )
    variants: VariantsSpec | None = Field(
        default=None, description="default: the recipe's variants if the split is train, else none"
    )
    planned: list[PlannedFiles] = Field(
        default=[],
        description="size and number of the files, from which `codecnn dataset plan` computes where they are missing",
    )
    streams: list[StreamSpec] = Field(
        default=[],
        description="for codec streams: streams coded from this source, as paths or patterns; {name} is the name",
    )
