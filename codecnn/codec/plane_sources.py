"""The planes that networks can take, each with where it comes from and what it is divided by: the one list of them.

The loader cuts them from a store, networks declare them by name, and the filter of pictures brings them beside a
picture; all three read this list, so that a plane is added here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.codec.base import QP_SCALE
from codecnn.codec.blocks.planes import BLOCK_PLANES, TRANSFORM_PLANES, block_planes
from codecnn.codec.blocks.table import BlockTable

CellArray = npt.NDArray[np.int8]

BLOCK_FILE, TRANSFORM_FILE, STRENGTH_FILE = "block_planes", "transforms", "strengths"
CELL_FILES: dict[str, tuple[str, ...]] = {
    BLOCK_FILE: BLOCK_PLANES,
    TRANSFORM_FILE: TRANSFORM_PLANES,
    STRENGTH_FILE: ("bs_v", "bs_h"),
}
"""The files of a unit that hold planes of 4x4 cells, and which in which order; the others hold pictures."""


@dataclass(frozen=True)
class Samples:
    """Component `component` (0 Y, 1 U, 2 V) of a unit's file of pictures `file`, samples x / 2^bit_depth.

    `beside` says what pictures they are that lie beside the decoded ones; a network is given the difference to those,
    or, where they are `signed`, the samples less 2^(bit_depth - 1), which stands for 0.
    """

    file: str
    component: int = 0
    beside: str | None = None
    signed: bool = False


@dataclass(frozen=True)
class Cells:
    """A plane of one of CELL_FILES, an int8 a 4x4 cell, divided by `scale` to be about 0 to 1; -1, unknown, is 0.

    `plus` are another column of the file and how many times that is added.
    """

    column: str
    scale: float
    file: str = BLOCK_FILE
    plus: tuple[str, int] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its file that it is made of."""
        return (self.column,) if self.plus is None else (self.column, self.plus[0])

    def made(self, cells: Callable[[str], npt.NDArray[Any]]) -> CellArray:
        """The plane, int8, from a function that gives the cells of a column."""
        own = cells(self.column)
        if self.plus is not None:
            other, times = self.plus
            own = np.maximum(own, 0) + np.int8(times) * np.maximum(cells(other), 0)
        made: CellArray = own
        return made

    def read(self, planes: npt.NDArray[Any]) -> CellArray:
        """The plane from those of its file, (..., planes, h/4, w/4): (..., h/4, w/4)."""
        return self.made(lambda column: planes[..., CELL_FILES[self.file].index(column), :, :])

    @property
    def index(self) -> int:
        """Its number among those of its file."""
        return CELL_FILES[self.file].index(self.column)


SAMPLE_PLANES: dict[str, Samples] = {
    "rec_y": Samples("decoded", 0),
    "rec_u": Samples("decoded", 1),
    "rec_v": Samples("decoded", 2),
    "unf_y": Samples(
        "unfiltered",
        beside="the pictures before the codec's loop filters, which an all-intra VVC bitstream as input tells",
    ),
    "pred_y": Samples("prediction", beside="the codec's prediction, which an all-intra VVC bitstream as input tells"),
    "resid_y": Samples(
        "residual", beside="the codec's residual, which an all-intra VVC bitstream as input tells", signed=True
    ),
}
"""Planes of samples that networks take."""

ORIGINAL_PLANES: dict[str, Samples] = {
    "orig_y": Samples("original", 0),
    "orig_u": Samples("original", 1),
    "orig_v": Samples("original", 2),
}
"""What networks are to come near to."""

TEACHER_PLANES: dict[str, Samples] = {
    "teacher_y": Samples("teacher", 0),
    "teacher_u": Samples("teacher", 1),
    "teacher_v": Samples("teacher", 2),
}
"""What another network made of the decoded pictures, as a smaller one is to learn it."""

QP_PLANE = "qp"
"""The slice QP as q / QP_SCALE, one value a picture."""

SLICE_TYPE_PLANE = "slice_type"
"""0 where a picture has I slices only, 1 where it has P or B slices, one value a picture."""
SLICE_TYPES = {"I": 0.0, "P": 1.0, "B": 1.0}
"""That value, by the most general type among a picture's slices."""

CELL_PLANES: dict[str, Cells] = {
    "depth": Cells("depth", 8.0),  # splits below the CTU
    "cu_qp": Cells("qp", QP_SCALE),
    "pred_mode": Cells("pred_mode", 3.0),  # inter, intra, IBC, palette
    "intra_mode": Cells("intra_mode", 67.0),
    # QP + 4·depth, which goes with ln MSE (docs/correlation.md): 63 + 4·8 at most
    "qp_depth": Cells("qp", 95.0, plus=("depth", 4)),
    "partition": Cells("partition", 3.0),  # two bits: edges to the left and above
    "cbf_y": Cells("cbf_y", 1.0, TRANSFORM_FILE),
    "ts_y": Cells("ts_y", 1.0, TRANSFORM_FILE),
    "mts": Cells("mts", 4.0, TRANSFORM_FILE),
    "tr_hor": Cells("tr_hor", 2.0, TRANSFORM_FILE),  # DCT-II, DST-VII, DCT-VIII
    "tr_ver": Cells("tr_ver", 2.0, TRANSFORM_FILE),
    "lfnst": Cells("lfnst", 2.0, TRANSFORM_FILE),
    "bdpcm": Cells("bdpcm", 2.0, TRANSFORM_FILE),  # none, horizontal, vertical
    "bs_v": Cells("bs_v", 2.0, STRENGTH_FILE),
    "bs_h": Cells("bs_h", 2.0, STRENGTH_FILE),
}
"""Planes of the coding tree, of its transforms, and boundary strengths at the left and upper edges of 4x4 samples."""

REBUILT_PLANES = ("unf_y", "pred_y", "resid_y", "bs_v", "bs_h")
"""Planes of intra pictures that are rebuilt from a VVC bitstream, by the names that `codecnn.reconstruct` knows too."""


TREE_PLANES = tuple(name for name in CELL_PLANES if name not in REBUILT_PLANES)
"""Planes that are drawn from a table of CUs."""

RECIPE_PLANES: tuple[str, ...] = (*REBUILT_PLANES, *TRANSFORM_PLANES)
"""Planes that a store has where its recipe asks for them."""


def how_to_have(name: str) -> str:
    """The end of a sentence that says that a store has no plane `name`: what in a recipe gives it."""
    verb = "rebuilds" if name in REBUILT_PLANES else "gives"
    return f": the key planes: [{name}] of its recipe {verb} it" if name in RECIPE_PLANES else ""


def drawn_cells(table: BlockTable, poc: int, width: int, height: int, names: Iterable[str]) -> dict[str, CellArray]:
    """Those of TREE_PLANES `names` of picture `poc`, from a table of CUs: int8 (h/4, w/4) by name."""
    wanted = {name: CELL_PLANES[name] for name in names}
    columns = list(dict.fromkeys(column for plane in wanted.values() for column in plane.columns))
    if not columns:
        return {}
    cells = dict(zip(columns, block_planes(table, [poc], width, height, columns)[0], strict=True))
    return {name: plane.made(cells.__getitem__) for name, plane in wanted.items()}


def file_of(name: str) -> str:
    """The file of a unit that the plane `name` is in."""
    return CELL_PLANES[name].file if name in CELL_PLANES else SAMPLE_PLANES[name].file
