"""What an encoder decides of the filter: on or off by CTU, its strength, and what it costs to say so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from codecnn.video import Picture

Array = npt.NDArray[Any]
Mode = Literal["off", "on", "ctu"]
OFF_BITS = 1.0
"""What a picture without the filter says in a stream that has the filter: one flag of its header."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What is decided of one picture, by component ("y", or "y", "u", "v").

    modes       off, on in every CTU, or by CTU
    flags       (CTU rows, CTU columns) bool, True where the component is filtered
    scales      what the network's residual is multiplied by, in 1/256; 1.0 where off
    qp_offset   what was added to the slice QP that the network was given
    bits        bits of all of this, by an adaptive binary arithmetic code
    distortion_before, distortion_after  weighted sums of squared errors of the components that can be filtered, sample²
    rd_lambda   distortion that one bit is worth, sample²
    """

    modes: dict[str, Mode]
    flags: dict[str, npt.NDArray[np.bool_]]
    scales: dict[str, float]
    qp_offset: int
    bits: float
    distortion_before: float
    distortion_after: float
    rd_lambda: float

    @property
    def mode(self) -> Mode:
        """Of the picture: off if every component is, ctu if any component has flags, else on."""
        if all(mode == "off" for mode in self.modes.values()):
            return "off"
        return "ctu" if "ctu" in self.modes.values() else "on"

    @property
    def cost_before(self) -> float:
        """RD cost of the decoded picture, sample²: the same stream with the filter off in this picture."""
        return self.distortion_before + self.rd_lambda * OFF_BITS

    @property
    def cost_after(self) -> float:
        """RD cost as decided, sample²; never above `cost_before`."""
        return self.distortion_after + self.rd_lambda * self.bits


def decide_picture(
    original: Picture,
    decoded: Picture,
    filtered: Mapping[int, Picture | Mapping[str, Array]],
    *,
    qp: int,
    ctu: int = 128,
) -> tuple[Picture, Decision]:
    """The picture as an encoder would have it filtered, and what it decided.

    `filtered` holds what the network makes of `decoded` at full strength, by what was added to the slice QP `qp` for
    it: `{0: samples}`, or `{0: ..., 5: ..., -5: ...}` to choose from; `PictureFilter.samples` gives it, a picture does
    as well. `ctu` is the side of a CTU in luma samples.
    """
    raise NotImplementedError
