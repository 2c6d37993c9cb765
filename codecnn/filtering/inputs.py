"""The planes that a network declares beyond decoded pictures and QP, as the loader scales them.

They come from a coded unit of a store, or from what lies beside a sequence: further pictures, and a table of its CUs.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from codecnn.codec.blocks.planes import BLOCK_SIZE, block_planes
from codecnn.codec.blocks.table import BlockTable
from codecnn.dataset.loader import CELL_SCALES
from codecnn.dataset.patches import CELL_PLANES
from codecnn.dataset.store import Unit
from codecnn.errors import ConfigError, StoreError
from codecnn.filtering.picture_filter import Array
from codecnn.video import Video, VideoFormat

Beside = Callable[[int], Mapping[str, Array]]
"""Gives the planes beside the picture with a number."""

_VIDEOS = {"unf_y": Unit.unfiltered, "pred_y": Unit.prediction}
SAMPLE_SOURCES = {
    "unf_y": "the pictures before the codec's loop filters, which no bitstream tells but a store built with them holds",
    "pred_y": "the codec's prediction, which no bitstream tells but a decoder can be made to write",
}
"""What the planes of samples beside the decoded picture are."""


def unit_planes(unit: Unit, picture: int, names: Sequence[str]) -> dict[str, Array]:
    """Those of the planes `names` that lie beside the decoded picture number `picture` of `unit`, each (h, w).

    `unf_y` and `pred_y` are integer samples; block planes are float32, each 4x4 cell repeated. Raises StoreError that
    names a plane that the unit does not have.
    """
    planes: dict[str, Array] = {}
    for name in names:
        if name in _VIDEOS:
            video = _VIDEOS[name](unit)
            if video is None:
                raise StoreError(f"{unit.name} at QP {unit.qp} has no plane {name!r}")
            with video:
                planes[name] = np.array(video[picture].y)
        elif name in CELL_SCALES:
            cells = unit.block_planes()
            if cells is None:
                raise StoreError(f"{unit.name} at QP {unit.qp} has no plane {name!r}")
            planes[name] = _full_size(cells[picture], name, unit.format)
    return planes


def planes_beside(
    names: Sequence[str], video_format: VideoFormat, videos: Mapping[str, Video], table: BlockTable | None
) -> Beside:
    """Those of the planes `names` that lie beside the pictures of a sequence, by the picture's number.

    `videos` gives `unf_y` and `pred_y`, their luma; `table` the planes of the coding tree, its `poc` the number of the
    picture. Raises ConfigError that says what a missing plane is, or whose pictures have another size or bit depth.
    """
    for name in names:
        if name in SAMPLE_SOURCES and name not in videos:
            raise ConfigError(
                f"the network needs the plane {name!r}, {SAMPLE_SOURCES[name]}: give it as --plane {name}=FILE"
            )
        if name in CELL_SCALES and table is None:
            raise ConfigError(
                f"the network needs the plane {name!r} of the coding tree, which a VVC bitstream "
                "as input tells: give a table of the CUs as --blocks FILE"
            )
    for name, video in videos.items():
        if name not in names or name not in SAMPLE_SOURCES:
            raise ConfigError(f"the network takes no plane {name!r} beside the decoded picture")
        ours, theirs = ((form.width, form.height, form.bit_depth) for form in (video_format, video.format))
        if ours != theirs:
            raise ConfigError(f"{video.path} for {name!r} is {video.format}, the decoded pictures are {video_format}")
    cell_names = [name for name in names if name in CELL_SCALES]

    def beside(number: int) -> Mapping[str, Array]:
        planes: dict[str, Array] = {name: video[number].y for name, video in videos.items()}
        if table is not None and cell_names:
            (cells,) = block_planes(table, [number], video_format.width, video_format.height)
            planes |= {name: _full_size(cells, name, video_format) for name in cell_names}
        return planes

    return beside


def _full_size(cells: npt.NDArray[np.int8], name: str, video_format: VideoFormat) -> Array:
    """The plane `name` of all those of a picture's cells, scaled, each 4x4 cell repeated: (h, w)."""
    scaled = np.maximum(cells[CELL_PLANES[name]], 0).astype(np.float32) / np.float32(CELL_SCALES[name])
    full: Array = scaled.repeat(BLOCK_SIZE, axis=0).repeat(BLOCK_SIZE, axis=1)
    return full[: video_format.height, : video_format.width]
