"""The types of a store's own JSON, so that a damaged or hostile file is told when the store is opened."""

from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from codecnn.errors import StoreError


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name or len(name.encode()) > 255:
        raise ValueError("is not the name of a file in the store")
    return name


FileName = Annotated[str, AfterValidator(_inside)]


class _Record(BaseModel):
    """Whatever else the JSON holds is passed over."""

    model_config = ConfigDict(strict=True)


class _Format(_Record):
    model_config = ConfigDict(strict=True, extra="forbid")

    width: int
    height: int
    chroma: str
    bit_depth: int
    fps: str | None


class _Picture(_Record):
    qp: int
    psnr_y: float | None


class _Unit(_Record):
    key: str
    sequence: str
    qp: int
    split: str
    bits: float
    psnr_y: float | None
    format: _Format
    pictures: list[_Picture] = Field(min_length=1)
    original: FileName
    decoded: FileName
    unfiltered: FileName | None = None
    prediction: FileName | None = None
    block_planes: FileName | None = None
    files: dict[FileName, str]


class _Manifest(_Record):
    units: int
    data_key: str
    ctus_sha256: str
    units_sha256: str


def check_unit(path: Path, record: Any) -> None:
    """Raise StoreError that names `path` and the key unless `record` is a unit's line of units.jsonl."""
    _check(_Unit, path, record)


def check_manifest(path: Path, manifest: Any) -> None:
    """Raise StoreError that names `path` and the key unless `manifest` is that of a store."""
    _check(_Manifest, path, manifest)


def _check(schema: type[BaseModel], path: Path, value: Any) -> None:
    try:
        schema.model_validate(value)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])[:80]
        message = problem["msg"].removeprefix("Value error, ")
        raise StoreError(f"{path} is damaged at {where or 'its top'}: {message}: build the store again") from None
