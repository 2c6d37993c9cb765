"""What a recipe of `codec: streams` says of each sequence: which files hold what somebody else coded of it."""

import glob
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from codecnn.codec import Given
from codecnn.dataset.records import CodedUnit
from codecnn.errors import ConfigError, MissingFileError

_NAME = "{name}"
"""Stands for the sequence's name in the names of its files."""


class DecodedSpec(BaseModel):
    """Decoded pictures whose stream is not at hand, or is of another codec than VVC and HEVC."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decoded: str = Field(description="raw YUV, Y4M, or anything ffmpeg decodes")
    slice_qp: Annotated[
        list[Annotated[int, Field(ge=0, le=63)]],
        BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
    ] = Field(min_length=1, description="of all pictures, or one of each in output order")
    size: str | None = Field(default=None, description="WxH of a raw YUV whose name does not tell")
    bit_depth: int | None = None
    chroma: Annotated[str | None, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)] = None


StreamSpec = Annotated[
    Annotated[str, Tag("stream")] | Annotated[DecodedSpec, Tag("pictures")],
    Discriminator(lambda value: "stream" if isinstance(value, str) else "pictures"),
]
"""A stream by its path, or decoded pictures without one."""


def find_streams(specs: Sequence[str | DecodedSpec], root: Path, name: str) -> tuple[Given, ...]:
    """The files of the sequence `name`, those of a pattern sorted by name.

    Raises MissingFileError for what matches no file, ConfigError for one that does not tell its slice QPs, or twice.
    """
    found: list[Given] = []
    for spec in specs:
        stated: dict[str, Any] = {}
        if isinstance(spec, DecodedSpec):
            reading = spec.model_dump(include={"size", "bit_depth", "chroma"}, exclude_none=True)
            stated = {"stated_qps": tuple(spec.slice_qp), "reading": reading}
            spec = spec.decoded
        path = root / Path(spec.replace(_NAME, name)).expanduser()
        # A file may have the characters of patterns in its name.
        pattern = str(root / Path(spec.replace(_NAME, glob.escape(name))).expanduser())
        paths = [path] if path.is_file() else sorted(map(Path, glob.glob(pattern, recursive=True)))  # noqa: PTH207
        paths = [one for one in paths if one.is_file()]
        if not paths:
            raise MissingFileError(f"no stream of the sequence {name!r} matches {path}")
        found += [Given(one, **stated) for one in paths]
    twice = [one.path for number, one in enumerate(found) if one.path in {other.path for other in found[:number]}]
    if twice:
        raise ConfigError(f"the sequence {name!r} has {twice[0]} twice")
    return tuple(found)


def by_lowest_qp(given: Sequence[Given], name: str) -> dict[int, Given]:
    """The files of the sequence `name` by their lowest slice QP. Raises ConfigError where two have the same."""
    found: dict[int, Given] = {}
    for one in given:
        qp = one.lowest_qp()
        other = found.setdefault(qp, one)
        if other is not one:
            raise ConfigError(
                f"{other.path.name} and {one.path.name} of the sequence {name!r} are both of QP {qp}: "
                "give each a sequence of its own, with another name and one group"
            )
    return found


def prove_stated_qps(units: Iterable[CodedUnit]) -> None:
    """Raise ConfigError unless the error rises with the QP wherever no stream tells the one of two QPs."""
    by_name: dict[str, list[CodedUnit]] = defaultdict(list)
    for unit in units:
        by_name[unit.name].append(unit)
    for name, of_one in by_name.items():
        for lower, higher in pairwise(sorted(of_one, key=lambda unit: unit.qp)):
            stated = lower.bitstream_file is None or higher.bitstream_file is None
            # A picture without any error has no PSNR.
            if stated and (lower.psnr_y or math.inf) < (higher.psnr_y or math.inf):
                raise ConfigError(
                    f"the sequence {name!r} has more error at QP {lower.qp} ({lower.psnr_y:.2f} dB) than at QP "
                    f"{higher.qp} ({higher.psnr_y or math.inf:.2f} dB): a slice_qp that the recipe states is wrong"
                )
