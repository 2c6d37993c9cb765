"""The planes that a network declares beyond decoded pictures and QP, from a coded unit, as the loader scales them."""

from collections.abc import Sequence

import numpy as np

from codecnn.codec.base import QP_SCALE
from codecnn.codec.planes import BLOCK_PLANES, BLOCK_SIZE
from codecnn.ctu.store import Unit
from codecnn.errors import StoreError
from codecnn.filtering.frame import Array

CELL_SCALES = {"depth": 8.0, "cu_qp": QP_SCALE, "pred_mode": 3.0, "intra_mode": 67.0, "partition": 3.0}
"""What cells of block planes are divided by; what is unknown (-1) becomes 0."""

_CELLS = {"cu_qp" if name == "qp" else name: index for index, name in enumerate(BLOCK_PLANES)}
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
            if cells is None or name not in _CELLS:
                raise StoreError(f"{unit.name} at QP {unit.qp} has no plane {name!r}")
            scaled = np.maximum(cells[picture, _CELLS[name]], 0).astype(np.float32) / np.float32(CELL_SCALES[name])
            full = scaled.repeat(BLOCK_SIZE, axis=0).repeat(BLOCK_SIZE, axis=1)
            planes[name] = full[: unit.format.height, : unit.format.width]
    return planes
