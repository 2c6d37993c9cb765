"""What a network declares beyond decoded pictures: slice QPs, and further planes as the loader scales them.

They come from a coded unit of a store, or from what lies beside a sequence: its bitstream, further pictures, and a
table of its CUs.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from codecnn.codec import (
    RESIDUAL_ZERO,
    STREAM_SUFFIXES,
    BlockTable,
    StreamPicture,
    drawn_cells,
    read_headers,
    shown_pictures,
    signed_samples,
    slice_qp,
)
from codecnn.dataset import Unit
from codecnn.errors import ConfigError, FormatError, StoreError
from codecnn.filtering._base import Array, Planes
from codecnn.planes import (
    BLOCK_SIZE,
    CELL_PLANES,
    SAMPLE_PLANES,
    SLICE_TYPE_PLANE,
    SLICE_TYPES,
    TREE_PLANES,
    how_to_have,
)
from codecnn.video import Video, VideoFormat

Told = TypeVar("Told")
Beside = Callable[[int], Planes]
"""A function that gives the planes beside a picture, by the picture's number."""

SAMPLES_BESIDE = {name: source for name, source in SAMPLE_PLANES.items() if source.beside}
"""Planes of samples beside the decoded picture."""


def unit_planes(unit: Unit, picture: int, names: Sequence[str]) -> dict[str, Array]:
    """Those of the planes `names` that lie beside the decoded picture number `picture` of `unit`, each (h, w).

    Samples of `unf_y`, `pred_y` and `resid_y` are integers; planes of cells are float32, each 4x4 cell repeated. Raises
    StoreError that names a plane that the unit does not have.
    """
    planes: dict[str, Array] = {}
    for name in names:
        if name in SAMPLES_BESIDE and (video := unit.pictures_of(SAMPLES_BESIDE[name].file)) is not None:
            with video:
                planes[name] = np.array(video[picture].planes[SAMPLES_BESIDE[name].component])
        elif name in CELL_PLANES and (cells := unit.cells(CELL_PLANES[name].file)) is not None:
            planes[name] = _full_size(CELL_PLANES[name].read(cells[picture]), name, unit.format)
        elif name == SLICE_TYPE_PLANE:
            planes[name] = np.full((unit.format.height, unit.format.width), unit.inter(picture), np.float32)
        elif name in SAMPLES_BESIDE or name in CELL_PLANES:
            raise StoreError(f"{unit.name} at QP {unit.qp} has no plane {name!r}{how_to_have(name)}")
    return planes


def planes_beside(
    names: Sequence[str],
    video_format: VideoFormat,
    videos: Mapping[str, Video],
    table: BlockTable | None,
    rebuilt: Beside | None = None,
    slice_types: Sequence[str] = (),
) -> Beside:
    """Those of the planes `names` that lie beside the pictures of a sequence, by the picture's number.

    `videos` gives `unf_y`, `pred_y` and `resid_y`, their luma; `table` the planes of the coding tree, its `poc` the
    number of the picture; `rebuilt` those of REBUILT_PLANES that are of neither; `slice_types`, one of all pictures or
    one a picture, the plane of that name. Raises ConfigError that says what a missing plane is, or whose pictures have
    another size or bit depth.
    """
    takes = [name for name in names if name in SAMPLES_BESIDE]
    for name in videos:
        if name not in takes:
            told = f": it takes {', '.join(takes)}" if takes else ""
            raise ConfigError(f"the network takes no plane {name!r} beside the decoded picture{told}")
    if SLICE_TYPE_PLANE in names and not slice_types:
        raise ConfigError(
            f"the network needs the plane {SLICE_TYPE_PLANE!r}, which a VVC or HEVC stream as input tells: "
            "give it as --slice-type"
        )
    for name in names:
        if name in SAMPLES_BESIDE and name not in videos and rebuilt is None:
            raise ConfigError(
                f"the network needs the plane {name!r}, {SAMPLES_BESIDE[name].beside}: give it as --plane {name}=FILE"
            )
        if name in CELL_PLANES and name not in TREE_PLANES:
            if rebuilt is None:
                raise ConfigError(
                    f"the network needs the plane {name!r}, which an all-intra VVC bitstream as input tells"
                )
        elif name in TREE_PLANES and table is None:
            raise ConfigError(
                f"the network needs the plane {name!r} of the coding tree, which a VVC bitstream "
                "as input tells: give a table of the CUs as --blocks FILE"
            )
    for name, video in videos.items():
        ours, theirs = ((form.width, form.height, form.bit_depth) for form in (video_format, video.format))
        # A residual has a sign, and may be as large as the range of samples: `codecnn partition` writes it in 16 bit.
        if ours[:2] != theirs[:2] or theirs[2] != (16 if SAMPLES_BESIDE[name].signed else ours[2]):
            raise ConfigError(f"{video.path} for {name!r} is {video.format}, the decoded pictures are {video_format}")
    tree = [name for name in names if name in TREE_PLANES]

    def beside(number: int) -> Planes:
        planes: dict[str, Array] = {name: video[number].y for name, video in videos.items()}
        for name in planes:
            if SAMPLES_BESIDE[name].signed:
                residual = planes[name].astype(np.int32) - RESIDUAL_ZERO
                planes[name] = signed_samples(residual, video_format.bit_depth)
        if table is not None and tree:
            cells = drawn_cells(table, number, video_format.width, video_format.height, tree)
            planes |= {name: _full_size(plane, name, video_format) for name, plane in cells.items()}
        if rebuilt is not None:
            planes |= rebuilt(number)
        if slice_types:
            kind = slice_types[0 if len(slice_types) == 1 else number]
            planes |= slice_type_beside(names, kind, video_format)
        return planes

    return beside


def slice_type_beside(names: Sequence[str], slice_type: str, video_format: VideoFormat) -> dict[str, Array]:
    """The plane `slice_type` (h, w) of a picture whose most general slices are I, P or B, if it is among `names`."""
    if SLICE_TYPE_PLANE not in names:
        return {}
    return {SLICE_TYPE_PLANE: np.full((video_format.height, video_format.width), SLICE_TYPES[slice_type], np.float32)}


def stream_qps(path: Path | str, count: int) -> list[int]:
    """The slice QP of each of the first `count` pictures that the stream shows, in the order it shows them.

    Raises ConfigError for anything but a VVC or HEVC elementary stream, for one that codecnn cannot read, for a picture
    whose slices differ in QP, and where the stream shows fewer pictures.
    """
    return _of_stream(Path(path), count, slice_qp, "slice QPs", "-q QP")


def stream_slice_types(path: Path | str, count: int) -> list[str]:
    """The most general type, I, P or B, of the slices of each of those pictures. Raises ConfigError likewise."""
    return _of_stream(Path(path), count, lambda picture, _: picture.slice_type, "slice types", "--slice-type")


def _of_stream(
    path: Path, count: int, told: Callable[[StreamPicture, Path], Told], what: str, option: str
) -> list[Told]:
    if path.suffix.lower() not in STREAM_SUFFIXES:
        raise ConfigError(
            f"{path} does not tell its {what}, only VVC and HEVC streams ({', '.join(STREAM_SUFFIXES)}) do: "
            f"give it as {option}"
        )
    try:
        found = [told(picture, path) for picture in shown_pictures(read_headers(path))[:count]]
    except FormatError as error:
        raise ConfigError(f"the {what} cannot be read, give them as {option}: {error}") from error
    if len(found) < count:
        raise ConfigError(
            f"{path} tells the {what} of {len(found)} pictures and decodes to {count}: give it as {option}"
        )
    return found


def _full_size(cells: npt.NDArray[np.int8], name: str, video_format: VideoFormat) -> Array:
    """The cells of the plane `name`, scaled, each 4x4 cell repeated: (h, w)."""
    scaled = np.maximum(cells, 0).astype(np.float32) / np.float32(CELL_PLANES[name].scale)
    full: Array = scaled.repeat(BLOCK_SIZE, axis=0).repeat(BLOCK_SIZE, axis=1)
    return full[: video_format.height, : video_format.width]
