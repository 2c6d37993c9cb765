"""Files with an update: JSON with the text form, the weights that it changes, and what it gains."""

from dataclasses import asdict
from pathlib import Path

from pydantic import ConfigDict, NonNegativeInt, ValidationError
from pydantic.dataclasses import dataclass

from codecnn.base.errors import FormatError
from codecnn.base.files import read_json, write_json

SCHEMA = 1
TASK = "update"


@dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class UpdateFile:
    """Content of a file with an update.

    Attributes:
        weights: Name of the weights that it changes.
        weights_sha256: SHA-256 of their .safetensors file.
        update: Text form of the update; see `codecnn.signalling.updates.write_update`.
        stream: Name of the stream that it was fitted to.
        pictures: Number of pictures that it was fitted to.
        changed: Number of values that it changes.
        bits: Bits that it adds to the stream.
        gain_db: Gain over the filter without update in dB by component, mean over the pictures.
        rate_change: Estimated relative change of the bit rate at equal PSNR, with these bits; negative is better.
    """

    weights: str
    weights_sha256: str
    update: str
    stream: str
    pictures: NonNegativeInt
    changed: NonNegativeInt
    bits: NonNegativeInt
    gain_db: dict[str, float]
    rate_change: float
    schema: int = SCHEMA
    task: str = TASK


def write_update_file(path: Path | str, content: UpdateFile) -> None:
    """Write a file with an update."""
    write_json(path, asdict(content))


def read_update_file(path: Path | str) -> UpdateFile:
    """Read a file with an update.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The file holds no update.
    """
    content = read_json(path)
    if not isinstance(content, dict) or content.get("task") != TASK or content.get("schema") != SCHEMA:
        raise FormatError(f"{path} is no update of schema {SCHEMA}, which codecnn adapt writes")
    try:
        return UpdateFile(**content)
    except (ValidationError, TypeError) as error:
        raise FormatError(f"{path} is no whole update: write it again with codecnn adapt") from error
