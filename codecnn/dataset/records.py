"""Records of a store's JSON files: frozen models that are validated when a file is read.

A damaged or hostile file raises an error that names the file and the key. Unknown keys, which a newer codecnn may have
written, are ignored.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError

from codecnn.base.errors import FormatError, StoreError
from codecnn.base.rate_modes import RateName
from codecnn.pictures.files import VideoFormat


class Record(BaseModel):
    """A JSON object of a store. Fields are declared in the order of the keys, so that a record is written as read."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    @classmethod
    def from_json(cls, path: Path, value: Any, **further: Any) -> Self:
        """Validate a JSON value.

        Args:
            path: File of the value, for error messages.
            value: The JSON value.
            **further: Fields that are not in the file.

        Returns:
            The record.

        Raises:
            StoreError: A value is missing or invalid; the message names `path` and the key.
        """
        try:
            return cls.model_validate(value | further if isinstance(value, dict) else value)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"])[:80] or "its top"
            message = problem["msg"].removeprefix("Value error, ")
            raise StoreError(f"{path} is damaged at {where}: {message}: build the store again") from None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; optional fields that were never set have no key."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def _check_file_name(name: str) -> str:
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
    """Write the frame rate as text, so that 30000/1001 stays exact."""
    return vars(form) | {"fps": None if form.fps is None else str(form.fps)}


_FileName = Annotated[str, AfterValidator(_check_file_name)]
Format = Annotated[VideoFormat, PlainValidator(_format_from_json), PlainSerializer(_format_to_json)]


class PictureRecord(Record):
    """One picture of a unit: slice type, slice QP, bits, and PSNR in dB.

    The PSNR is None if the plane has no error; bits are None if they are unknown. `quantiser` is the quantiser index of
    AV1, of which `qp` is the QP. `network_qp` is the QP that networks take where it is not the slice QP.
    """

    poc: int
    slice_type: str
    qp: int
    bits: int | None
    psnr_y: float | None
    psnr_u: float | None
    psnr_v: float | None
    quantiser: int | None = None
    network_qp: int | None = None

    @property
    def qp_for_networks(self) -> int:
        """QP that networks take, in training and evaluation as in `codecnn filter`."""
        return self.qp if self.network_qp is None else self.network_qp


class Variant(Record):
    """Operations that turn a source into a variant; the defaults leave the picture unchanged.

    Attributes:
        number: Number of the variant, from 1.
        scale: Factor of width and height.
        kernel: Kernel of the resizing.
        linear_light: The picture is resized in linear light.
        blur: Sigma of a Gaussian in luma samples.
        sharpen: Amount of unsharp masking.
        contrast: Factor about the middle grey.
        gamma: Exponent of R'G'B'.
        full_range: Range of the Y'CbCr to which stills are converted; None: as the sequence says.
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
    """Encoder settings of a unit, in stores whose recipe has several; otherwise the manifest's recipe has them."""

    preset: str
    ctu_size: int
    params: dict[str, str]
    source_bit_depth: int | None = Field(default=None, description="to which the original was rounded")


class GivenRecord(Record):
    """The supplied file from which a unit was taken."""

    file: str
    codec: str | None = Field(default=None, description="of the stream; None: decoded pictures with stated QPs")
    ctu_size: int | None = None
    md5s: int | None = Field(default=None, description="number of pictures whose MD5 in the stream was verified")


class InLoopRecord(Record):
    """The CNN filter in the prediction loop of a unit.

    The unit's decoded pictures are those before the filter, predicted from filtered ones. Its stream decodes only with
    the filter.
    """

    weights: str
    network: str
    sha256: str = Field(description="of the file of weights")
    decisions: str


class CodedUnit(Record):
    """The content of unit.json: one sequence coded at one QP. File names are relative to the store."""

    key: str = Field(description="sha256 of all facts that determine the unit's bytes")
    name: str = Field(alias="sequence")
    qp: int = Field(description="the requested QP; each picture has its own slice QP")
    encoder: str
    format: Format = Field(description="of the decoded pictures and of the originals")
    original_file: _FileName = Field(alias="original")
    bitstream_file: _FileName | None = Field(default=None, alias="bitstream")
    decoded_file: _FileName = Field(alias="decoded")
    bits: int | None = Field(default=None, description="of the bitstream, headers included; None if they are unknown")
    unfiltered_file: _FileName | None = Field(default=None, alias="unfiltered")
    prediction_file: _FileName | None = Field(default=None, alias="prediction")
    residual_file: _FileName | None = Field(default=None, alias="residual")
    strengths_file: _FileName | None = Field(default=None, alias="strengths")
    neighbours_file: _FileName | None = Field(default=None, alias="neighbours")
    second_neighbours_file: _FileName | None = Field(default=None, alias="second_neighbours")
    references_file: _FileName | None = Field(default=None, alias="references")
    blocks_file: _FileName | None = Field(default=None, alias="blocks")
    block_planes_file: _FileName | None = Field(default=None, alias="block_planes")
    transforms_file: _FileName | None = Field(default=None, alias="transforms")
    psnr_y: float | None = Field(description="mean over the pictures in dB; None if a picture has no error")
    psnr_u: float | None
    psnr_v: float | None
    # JSON has only lists, which strict validation does not accept as tuples.
    pictures: tuple[PictureRecord, ...] = Field(strict=False, min_length=1)
    argv: tuple[str, ...] = Field(strict=False)
    files: dict[_FileName, str] = Field(description="sha256 of each file, the original included, by name")
    sizes: dict[_FileName, int] = Field(description="bytes of each file, by name")
    no_blocks: str | None = Field(default=None, description="why the unit has no CU table, in a sentence")
    variant: Variant | None = Field(default=None, description="None for the source itself")
    given: GivenRecord | None = Field(default=None, description="None if the build ran the encoder")
    in_loop: InLoopRecord | None = Field(default=None, description="None without a CNN filter in the prediction loop")


class EncoderTime(Record):
    """The content of seconds.json of a unit, present if the recipe sets `times`; it differs from build to build.

    Attributes:
        encoder_cpu: Processor time of the encoder in seconds: user and system time of all its threads.
    """

    encoder_cpu: float


class StoredInLoop(Record):
    """The CNN filter in the prediction loop as the manifest's recipe names it; each unit has its sha256."""

    weights: str
    decisions: str
    exact: bool


class StoredQpScale(Record):
    """Conversion of the slice QPs of supplied pictures: two values of the codec, and the QPs that they became."""

    source: tuple[float, float] = Field(alias="from", strict=False)
    target: tuple[float, float] = Field(alias="to", strict=False)


class StoredRecipe(Record):
    """The coding settings and sources of the manifest's recipe."""

    name: str
    codec: str
    preset: str
    configuration: str
    loop_filters: bool
    ctu_size: int
    internal_bit_depth: int
    params: dict[str, str]
    qp: list[int]
    ctc: bool
    in_loop: StoredInLoop | None
    qp_scale: StoredQpScale | None
    check: bool
    rate: dict[RateName, list[int]] | None = None

    @property
    def rate_option(self) -> RateName | None:
        """Rate control whose values are the QPs of the units, a key of `RATE_MODES`; None at constant QP."""
        return None if self.rate is None else next(option for option, values in self.rate.items() if values)


class Manifest(Record):
    """The content of manifest.json: the recipe, the encoder, and hashes of the store's content."""

    recipe: StoredRecipe
    encoder: str
    units: int
    data_key: str
    ctus_sha256: str
    units_sha256: str
