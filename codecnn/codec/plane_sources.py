"""The planes that networks can take, each with where it comes from and what it is divided by: the one list of them.

The loader cuts them from a store, networks declare them by name, and the filter of pictures brings them beside a
picture; all three read this list, so that a plane is added here.
"""

from dataclasses import dataclass

from codecnn.codec.base import QP_SCALE
from codecnn.codec.blocks.planes import BLOCK_PLANES


@dataclass(frozen=True)
class Samples:
    """Component `component` (0 Y, 1 U, 2 V) of a unit's file of pictures `file`, samples x / 2^bit_depth.

    `beside` says what pictures they are that lie beside the decoded ones; a network is given the difference to those.
    """

    file: str
    component: int = 0
    beside: str | None = None


@dataclass(frozen=True)
class Cells:
    """One of a unit's BLOCK_PLANES, an int8 a 4x4 cell, divided by `scale` to be about 0 to 1; -1, unknown, is 0."""

    column: str
    scale: float

    @property
    def index(self) -> int:
        """Its number among BLOCK_PLANES."""
        return BLOCK_PLANES.index(self.column)


SAMPLE_PLANES: dict[str, Samples] = {
    "rec_y": Samples("decoded", 0),
    "rec_u": Samples("decoded", 1),
    "rec_v": Samples("decoded", 2),
    "unf_y": Samples(
        "unfiltered",
        beside="the pictures before the codec's loop filters, which no bitstream tells but a store built with them "
        "holds",
    ),
    "pred_y": Samples(
        "prediction",
        beside="the codec's prediction, which no bitstream tells but a decoder can be made to write",
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

CELL_PLANES: dict[str, Cells] = {
    "depth": Cells("depth", 8.0),  # splits below the CTU
    "cu_qp": Cells("qp", QP_SCALE),
    "pred_mode": Cells("pred_mode", 3.0),  # inter, intra, IBC, palette
    "intra_mode": Cells("intra_mode", 67.0),
    "partition": Cells("partition", 3.0),  # two bits: edges to the left and above
}
"""Planes of the coding tree."""
