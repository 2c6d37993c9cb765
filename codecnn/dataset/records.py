"""The records of a store, frozen: checked once where their JSON is read, by attribute from there on.

A damaged or hostile file is told when the store is opened, in a sentence that names the file and the key. Keys that are
not known here, of a newer codecnn, are passed over.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError

from codecnn.errors import FormatError, StoreError
from codecnn.video import VideoFormat


class Record(BaseModel):
    """A JSON object of a store. Fields stand in the order of its keys, so that it is written as it was read."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    @classmethod
    def from_json(cls, path: Path, value: Any, **further: Any) -> Self:
        """The record of a JSON value and of what is not in the file; StoreError that names `path` and the key."""
        try:
            return cls.model_validate(value | further if isinstance(value, dict) else value)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"])[:80] or "its top"
            message = problem["msg"].removeprefix("Value error, ")
            raise StoreError(f"{path} is damaged at {where}: {message}: build the store again") from None

    def to_json(self) -> dict[str, Any]:
        """The object to write: no key for an optional field that was never set."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def _inside(name: str) -> str:
    """Refuse names that lead out of the store, or that no file can have."""
    if not name or name[0] == "/" or ".." in name.split("/") or "\0" in name or len(name.encode()) > 255:
        raise ValueError("is not the name of a file in the store")
    return name


def _format_from_json(value: Any) -> VideoFormat:
    if isinstance(value, VideoFormat):
        return value
    try:
        return VideoFormat(**value)
    except TypeError:
        raise FormatError("is not the format of a video") from None


def _format_to_json(form: VideoFormat) -> dict[str, Any]:
    """The frame rate as text, so that 30000/1001 stays exact."""
    return vars(form) | {"fps": None if form.fps is None else str(form.fps)}


_FileName = Annotated[str, AfterValidator(_inside)]
Format = Annotated[VideoFormat, PlainValidator(_format_from_json), PlainSerializer(_format_to_json)]


class PictureRecord(Record):
    """One picture of a unit as the encoder's log tells it: slice type, slice QP, bits, PSNR in dB (None: no error).

    Bits are None without a bitstream.
    """

    poc: int
    slice_type: str
    qp: int
    bits: int | None
    psnr_y: float | None
    psnr_u: float | None
    psnr_v: float | None


class Variant(Record):
    """What makes a variant of a source: 1, 0 and None stand for what was left as it is.

    scale          of width and height, resized by `kernel`, in linear light or not
    blur, sharpen  sigma of a Gaussian in luma samples; amount of unsharp masking
    contrast       factor about the middle grey; `gamma` the exponent of R'G'B'
    full_range     of the Y'CbCr that stills become; None: as the sequence says
    """

    number: int
    scale: float = 1
    kernel: str = ""
    linear_light: bool = False
    blur: float = 0
    sharpen: float = 0
    contrast: float = 1
    gamma: float = 1
    full_range: bool | None = None


class Coding(Record):
    """How a unit of a store of several encoder settings was coded; else the manifest's recipe says it of all."""

    preset: str
    ctu_size: int
    params: dict[str, str]
    source_bit_depth: int | None = Field(default=None, description="that the original was rounded to")


class GivenRecord(Record):
    """What a unit was taken from that somebody else coded."""

    file: str
    codec: str | None = Field(default=None, description="of the stream; None: decoded pictures, their QPs as stated")
    ctu_size: int | None = None
    md5s: int | None = Field(default=None, description="pictures that decode to the MD5 that the stream states")


class LoopRecord(Record):
    """The filter in whose loop a unit was coded: its decoded pictures are those before it, predicted from filtered
    ones, and its stream decodes only with it."""

    weights: str
    network: str
    sha256: str = Field(description="of the file of weights")
    decisions: str


class CodedUnit(Record):
    """unit.json: what coding one sequence at one QP gave. File names are relative to the store."""

    key: str = Field(description="sha256 of all that decides the unit's bytes")
    name: str = Field(alias="sequence")
    qp: int = Field(description="the QP asked for; every picture has its own slice QP")
    encoder: str
    format: Format = Field(description="of the decoded pictures, and of the originals")
    original_file: _FileName = Field(alias="original")
    bitstream_file: _FileName | None = Field(default=None, alias="bitstream")
    decoded_file: _FileName = Field(alias="decoded")
    bits: int | None = Field(default=None, description="of the bitstream, headers included; None without one")
    unfiltered_file: _FileName | None = Field(default=None, alias="unfiltered")
    prediction_file: _FileName | None = Field(default=None, alias="prediction")
    residual_file: _FileName | None = Field(default=None, alias="residual")
    strengths_file: _FileName | None = Field(default=None, alias="strengths")
    blocks_file: _FileName | None = Field(default=None, alias="blocks")
    block_planes_file: _FileName | None = Field(default=None, alias="block_planes")
    transforms_file: _FileName | None = Field(default=None, alias="transforms")
    psnr_y: float | None = Field(description="mean over the pictures in dB; None where one of them has no error")
    psnr_u: float | None
    psnr_v: float | None
    # JSON has lists only, which strict validation would not take for tuples.
    pictures: tuple[PictureRecord, ...] = Field(strict=False, min_length=1)
    argv: tuple[str, ...] = Field(strict=False)
    files: dict[_FileName, str] = Field(description="name -> sha256 of every file, the original included")
    sizes: dict[_FileName, int] = Field(description="name -> bytes")
    no_blocks: str | None = Field(default=None, description="why the unit has no table of CUs, in a sentence")
    variant: Variant | None = Field(default=None, description="of the source, where it is not the source itself")
    given: GivenRecord | None = Field(default=None, description="where nothing was coded for the store")
    in_loop: LoopRecord | None = Field(default=None, description="where it was coded with a filter in the loop")


class Seconds(Record):
    """seconds.json of a unit, where the recipe's `times` asks for it: what another build has otherwise.

    encoder_cpu    processor time of the encoder, user and system, of all its threads
    """

    encoder_cpu: float


class StoredLoop(Record):
    """What the manifest's recipe says of the filter in the loop; its sha256 each unit tells."""

    weights: str
    decisions: str
    exact: bool


class StoredRecipe(Record):
    """What the manifest's recipe says of coding; the sequences that it names have become units."""

    name: str
    codec: str
    preset: str
    configuration: str
    loop_filters: bool
    ctu_size: int
    internal_bit_depth: int
    params: dict[str, str]
    qp: list[int]
    ctc: bool = False
    in_loop: StoredLoop | None = None


class Manifest(Record):
    """manifest.json: what a store was built from, and what it holds."""

    recipe: StoredRecipe
    encoder: str
    units: int
    data_key: str
    ctus_sha256: str
    units_sha256: str
