"""The planes that a network declares beyond decoded pictures and QP, from a coded unit, as the loader scales them."""

from collections.abc import Sequence

import numpy as np

from codecnn.codec.planes import BLOCK_SIZE
from codecnn.ctu.loader import CELL_SCALES
from codecnn.ctu.patches import CELL_PLANES
from codecnn.ctu.store import Unit
from codecnn.errors import StoreError
from codecnn.filtering.picture_filter import Array

_VIDEOS = {"unf_y": Unit.unfiltered, "pred_y": Unit.prediction}


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
            scaled = np.maximum(cells[picture, CELL_PLANES[name]], 0).astype(np.float32) / np.float32(CELL_SCALES[name])
            full = scaled.repeat(BLOCK_SIZE, axis=0).repeat(BLOCK_SIZE, axis=1)
            planes[name] = full[: unit.format.height, : unit.format.width]
    return planes
