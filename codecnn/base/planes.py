"""Names, sources and scales of the planes that a network can take as input.

The loader cuts these planes from a store, a network declares them by name, and the frame filter supplies them beside a
decoded picture. All three read this module, so a new plane is added here. The module imports nothing else of codecnn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

CellArray = npt.NDArray[np.int8]

MAX_QP = 63
"""Largest slice QP of VVC without QpBdOffset (H.266 clause 7.4.3.8); the largest of HEVC is 51."""


def lowest_qp(bit_depth: int) -> int:
    """Return the smallest slice QP of a bit depth, -QpBdOffset (H.266 clause 7.4.3.4, H.265 clause 7.4.3.2.1)."""
    return -6 * (bit_depth - 8)


QP_SCALE = 64.0
"""A QP enters a network as QP / QP_SCALE."""

BLOCK_SIZE = 4
"""Width and height of a cell in luma samples: the smallest CU of VVC (H.266 clause 7.4.3.4); that of HEVC is 8."""

BLOCK_PLANES: tuple[str, ...] = ("depth", "qp", "pred_mode", "intra_mode", "partition")
"""Planes of the coding tree in file order: columns of the CU table, and `partition`, the edges of the CUs."""

TRANSFORM_PLANES: tuple[str, ...] = ("cbf_y", "ts_y", "mts", "tr_hor", "tr_ver", "lfnst", "bdpcm")
"""Planes of the luma transforms of each CU in file order: columns of the CU table that VVC bitstreams provide."""

BLOCK_FILE, TRANSFORM_FILE, STRENGTH_FILE = "block_planes", "transforms", "strengths"
CELL_FILES: dict[str, tuple[str, ...]] = {
    BLOCK_FILE: BLOCK_PLANES,
    TRANSFORM_FILE: TRANSFORM_PLANES,
    STRENGTH_FILE: ("bs_v", "bs_h"),
}
"""Files of a unit that hold planes of 4x4 cells, with their planes in file order. All other files hold pictures."""

NEIGHBOUR_FILE, SECOND_FILE, REFERENCE_FILE = "neighbours", "second_neighbours", "references"
LUMA_FILES: dict[str, tuple[str, ...]] = {
    NEIGHBOUR_FILE: ("prev_mc_y", "next_mc_y"),
    SECOND_FILE: ("prev2_mc_y", "next2_mc_y"),
    REFERENCE_FILE: ("ref0_y", "ref1_y", "ref0_mc_y", "ref1_mc_y"),
}
"""Files of a unit that hold several luma planes of each picture, with their planes in file order."""


@dataclass(frozen=True)
class Samples:
    """A plane of samples: one component of one of a unit's picture files.

    Attributes:
        file: Name of the unit's file, e.g. "decoded".
        component: 0 for Y, 1 for U, 2 for V.
        beside: Description of the pictures if they accompany the decoded ones (e.g. the prediction), else None. The
            network receives their difference from the decoded picture, or, if `signed`, the values themselves.
        signed: Samples are stored with an offset of 2^(bit_depth - 1), which stands for 0.
        offset: Distance in output order from the current picture to the one that the plane shows. Beyond the ends of
            the sequence it shows the nearest picture.
    """

    file: str
    component: int = 0
    beside: str | None = None
    signed: bool = False
    offset: int = 0


@dataclass(frozen=True)
class Temporal:
    """The picture that a temporal plane shows.

    Attributes:
        offset: Distance in output order from the current picture; 0 for planes of reference pictures.
        list: Reference picture list whose first picture is shown, 0 or 1; None for neighbours in output order.
        compensated: The picture is motion-compensated towards the current one.
    """

    offset: int = 0
    list: int | None = None
    compensated: bool = False


@dataclass(frozen=True)
class Cells:
    """A plane of 4x4 cells: one column of one of `CELL_FILES`, int8, -1 (unknown) read as 0.

    Attributes:
        column: Name of the column in the file.
        scale: Divisor that brings the values to about 0 to 1.
        file: Name of the unit's file.
        plus: A second column and the factor with which it is added, or None.
    """

    column: str
    scale: float
    file: str = BLOCK_FILE
    plus: tuple[str, int] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the file that the plane is computed from."""
        return (self.column,) if self.plus is None else (self.column, self.plus[0])

    def combine(self, cells: Callable[[str], npt.NDArray[Any]]) -> CellArray:
        """Compute the plane, int8, from a function that returns the cells of a column."""
        plane: CellArray = cells(self.column)
        if self.plus is not None:
            other, factor = self.plus
            plane = np.maximum(plane, 0) + np.int8(factor) * np.maximum(cells(other), 0)
        return plane

    def read(self, planes: npt.NDArray[Any]) -> CellArray:
        """Compute the plane, shape (..., h/4, w/4), from the planes of its file, shape (..., planes, h/4, w/4)."""
        return self.combine(lambda column: planes[..., CELL_FILES[self.file].index(column), :, :])

    @property
    def index(self) -> int:
        """Index of the column among the planes of its file."""
        return CELL_FILES[self.file].index(self.column)


_PREVIOUS, _NEXT = (
    "the decoded picture before this one in output order",
    "the decoded picture after this one in output order",
)
_SECOND_PREVIOUS, _SECOND_NEXT = (
    "the decoded picture two before this one in output order",
    "the decoded picture two after this one in output order",
)
_REFERENCE = "the first picture of reference list {}, which is known from VVC bitstreams"
_MOVED = ", motion-compensated by block matching"

SAMPLE_PLANES: dict[str, Samples] = {
    "rec_y": Samples("decoded", 0),
    "rec_u": Samples("decoded", 1),
    "rec_v": Samples("decoded", 2),
    "unf_y": Samples(
        "unfiltered",
        beside="the reconstruction before the in-loop filters, which is available from a VVC bitstream",
    ),
    "pred_y": Samples("prediction", beside="the codec's prediction, which is available from a VVC bitstream"),
    "resid_y": Samples("residual", beside="the codec's residual, which is available from a VVC bitstream", signed=True),
    "prev_y": Samples("decoded", beside=_PREVIOUS, offset=-1),
    "next_y": Samples("decoded", beside=_NEXT, offset=1),
    "prev_mc_y": Samples(NEIGHBOUR_FILE, beside=_PREVIOUS + _MOVED),
    "next_mc_y": Samples(NEIGHBOUR_FILE, beside=_NEXT + _MOVED),
    "prev2_mc_y": Samples(SECOND_FILE, beside=_SECOND_PREVIOUS + _MOVED),
    "next2_mc_y": Samples(SECOND_FILE, beside=_SECOND_NEXT + _MOVED),
    "ref0_y": Samples(REFERENCE_FILE, beside=_REFERENCE.format(0)),
    "ref1_y": Samples(REFERENCE_FILE, beside=_REFERENCE.format(1)),
    "ref0_mc_y": Samples(REFERENCE_FILE, beside=_REFERENCE.format(0) + _MOVED),
    "ref1_mc_y": Samples(REFERENCE_FILE, beside=_REFERENCE.format(1) + _MOVED),
}
"""Planes of samples that a network can take."""

TEMPORAL_PLANES: dict[str, Temporal] = {
    "prev_y": Temporal(offset=-1),
    "next_y": Temporal(offset=1),
    "prev_mc_y": Temporal(offset=-1, compensated=True),
    "next_mc_y": Temporal(offset=1, compensated=True),
    "prev2_mc_y": Temporal(offset=-2, compensated=True),
    "next2_mc_y": Temporal(offset=2, compensated=True),
    "ref0_y": Temporal(list=0),
    "ref1_y": Temporal(list=1),
    "ref0_mc_y": Temporal(list=0, compensated=True),
    "ref1_mc_y": Temporal(list=1, compensated=True),
}
"""Planes of other decoded pictures of the sequence. They show the current picture itself where there is no other."""

ORIGINAL_PLANES: dict[str, Samples] = {
    "orig_y": Samples("original", 0),
    "orig_u": Samples("original", 1),
    "orig_v": Samples("original", 2),
}
"""Training targets: the original samples."""

TEACHER_PLANES: dict[str, Samples] = {
    "teacher_y": Samples("teacher", 0),
    "teacher_u": Samples("teacher", 1),
    "teacher_v": Samples("teacher", 2),
}
"""Training targets for distillation: the decoded pictures filtered by a teacher network."""

QP_PLANE = "qp"
"""Slice QP as QP / QP_SCALE, one value per picture."""

SLICE_TYPE_PLANE = "slice_type"
"""Slice type of a picture: 0 if it has I slices only, 1 if it has P or B slices."""

SLICE_TYPES = {"I": 0.0, "P": 1.0, "B": 1.0}
"""Value of `SLICE_TYPE_PLANE` for the most general slice type of a picture."""

CELL_PLANES: dict[str, Cells] = {
    "depth": Cells("depth", 8.0),  # number of splits below the CTU
    "cu_qp": Cells("qp", QP_SCALE),
    "pred_mode": Cells("pred_mode", 3.0),  # inter, intra, IBC, palette
    "intra_mode": Cells("intra_mode", 67.0),
    # QP + 4 * depth, which is nearly linear in ln MSE (docs: correlation); at most 63 + 4 * 8
    "qp_depth": Cells("qp", 95.0, plus=("depth", 4)),
    "partition": Cells("partition", 3.0),  # two bits: CU edge to the left, CU edge above
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
"""Planes of the coding tree and its transforms, and boundary strengths at the left and upper edges of 4x4 cells."""

REBUILT_PLANES = ("unf_y", "pred_y", "resid_y", "bs_v", "bs_h")
"""Planes that `codecnn.vvc.decoder` rebuilds from a VVC bitstream."""

TREE_PLANES = tuple(name for name in CELL_PLANES if name not in REBUILT_PLANES)
"""Planes that are drawn from a CU table."""

NEIGHBOUR_PLANES = (*LUMA_FILES[NEIGHBOUR_FILE], *LUMA_FILES[SECOND_FILE])
"""Planes computed from the decoded pictures of any codec."""

REFERENCE_PLANES = LUMA_FILES[REFERENCE_FILE]
"""Planes that also need the reference lists of VVC."""

STREAM_PLANES: tuple[str, ...] = (*REBUILT_PLANES, *TRANSFORM_PLANES, *REFERENCE_PLANES)
"""Planes that a store provides from VVC bitstreams only."""

RECIPE_PLANES: tuple[str, ...] = (*STREAM_PLANES, *NEIGHBOUR_PLANES)
"""Planes that a store holds only if its recipe asks for them."""


def how_to_have(name: str) -> str:
    """Return the end of an error message that says which recipe key provides the missing plane `name`."""
    if name not in RECIPE_PLANES:
        return ""
    verb = "rebuilds" if name in REBUILT_PLANES else "computes" if name in TEMPORAL_PLANES else "provides"
    other = ", or unfiltered: true for a codec other than VVC" if name == "unf_y" else ""
    return f": the key planes: [{name}] of its recipe {verb} it{other}"


def file_of(name: str) -> str:
    """Return the name of the unit's file that holds the plane `name`."""
    return CELL_PLANES[name].file if name in CELL_PLANES else SAMPLE_PLANES[name].file
