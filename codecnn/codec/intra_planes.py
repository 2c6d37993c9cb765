"""Planes of intra pictures as files: what `codecnn.reconstruct` rebuilds from a VVC bitstream, in output order."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.codec.blocks.vvc_partition import shown_pictures_of
from codecnn.errors import ConfigError, FormatError, UnsupportedError
from codecnn.reconstruct import PLANES, reconstruct
from codecnn.video import VideoFormat, create_video
from codecnn.vvc.pictures import Picture

Planes = dict[str, npt.NDArray[Any]]

RESIDUAL_ZERO = 1 << 15
"""What stands for a residual of 0 in files of 16 bit, which have no sign."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PlaneFiles:
    """The files of some planes by name, and where their pictures stand among the `shown` ones of the stream."""

    files: dict[str, Path]
    positions: tuple[int, ...]
    shown: int


def check_planes(names: Sequence[str]) -> None:
    """Raise ConfigError for a name that is not of `codecnn.reconstruct.PLANES`."""
    for name in names:
        if name not in PLANES:
            raise ConfigError(f"there is no plane {name!r}: one of {', '.join(PLANES)}")


def write_planes(
    stream: Path | str, planes: Sequence[str], folder: Path | str, progress: Progress | None = None
) -> PlaneFiles:
    """Write `planes` of every intra picture that a VVC stream shows into `folder`, a raw file of grey pictures each.

    Files are called as pred_y_416x240_10bit_400.yuv, which tells their geometry to every reader of such names. Samples
    have the stream's bit depth; a residual is written as residual + RESIDUAL_ZERO in 16 bit, boundary strengths, 0 to
    2, in 8 bit. Pictures come in output order; those with P or B slices are passed over. Files are whole or absent.

    Raises ConfigError for a plane that there is not, MissingFileError, FormatError for damage, and UnsupportedError for
    what codecnn does not read or where no picture is intra.
    """
    stream, folder = Path(stream), Path(folder)
    names = tuple(dict.fromkeys(planes))
    check_planes(names)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: planes are written into a folder, a file each")
    shown = shown_pictures_of(stream)
    intra = [(position, picture) for position, picture in enumerate(shown) if is_intra(picture)]
    if not intra:
        raise UnsupportedError(f"{stream}: no picture is intra, and codecnn reconstructs intra pictures only")
    files: dict[str, Path] = {}
    with ExitStack() as stack:
        writers = {}
        for done, made in enumerate(rebuilt([picture for _, picture in intra], names, str(stream))):
            for name, plane in made.items():
                samples, bit_depth = as_written(name, plane, intra[0][1].sps.bit_depth)
                if name not in writers:
                    height, width = samples.shape
                    files[name] = folder / f"{name}_{width}x{height}_{bit_depth}bit_400.yuv"
                    form = VideoFormat(width, height, "400", bit_depth)
                    writers[name] = stack.enter_context(create_video(files[name], form))
                writers[name].write([samples])
            if progress is not None:
                progress(done + 1, len(intra))
    return PlaneFiles(files, tuple(position for position, _ in intra), len(shown))


def is_intra(picture: Picture) -> bool:
    """Whether all slices of a picture are I slices."""
    return all(part.header.slice_type == "I" for part in picture.slices)


def rebuilt(pictures: Sequence[Picture], planes: Sequence[str], name: str) -> Iterator[Planes]:
    """`planes` of each of some intra pictures; errors name the stream `name` and the picture."""
    for picture in pictures:
        try:
            yield reconstruct(picture, planes)
        except FormatError as error:
            raise type(error)(f"{name}, POC {picture.poc}: {error}") from None
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None


def as_written(name: str, plane: npt.NDArray[Any], bit_depth: int) -> tuple[npt.NDArray[Any], int]:
    """A plane as unsigned samples, and their bit depth, where that of the picture is `bit_depth`."""
    kind = name.split("_")[0]
    if kind == "resid":
        return (plane.astype(np.int32) + RESIDUAL_ZERO).astype("<u2"), 16
    return (plane.astype(np.uint8), 8) if kind == "bs" else (plane, bit_depth)
