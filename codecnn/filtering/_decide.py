"""One picture filtered, and decided as an encoder that knows the original would."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from codecnn.filtering._base import PictureFilter, rounded
from codecnn.filtering.decisions import Decision, decide_picture
from codecnn.planes import MAX_QP
from codecnn.video import Picture

Decisions = Literal["none", "ctu", "full"]
QP_OFFSETS: Mapping[Decisions, tuple[int, ...]] = {"none": (0,), "ctu": (0,), "full": (0, -5, 5)}
"""What is added to the slice QP that the network gets: the candidates of each kind of decisions, the first as it is."""


@dataclass(frozen=True)
class Filtered:
    """What a filter makes of a picture: the picture that counts, the network's own, and what was decided, if it was."""

    picture: Picture
    network: Picture
    seconds: float
    decision: Decision | None = None

    @property
    def bits(self) -> float:
        """Bits of what was decided."""
        return 0.0 if self.decision is None else self.decision.bits


def filter_and_decide(
    filter_: PictureFilter,
    original: Picture,
    decoded: Picture,
    qp: int,
    beside: Mapping[str, Any],
    decisions: Decisions,
    ctu_size: int,
) -> Filtered:
    """Filter a decoded picture of slice QP `qp`, and decide as an encoder that knows the original would."""
    start = time.perf_counter()
    candidates = {0: filter_.samples(decoded, qp, beside)}
    network = rounded(decoded, candidates[0])
    seconds = time.perf_counter() - start
    if decisions == "none":
        return Filtered(network, network, seconds)
    # Of a network that takes no QP all candidates are one, and a choice among them would only cost bits.
    for offset in QP_OFFSETS[decisions] if "qp" in filter_.planes else ():
        if offset and 0 <= qp + offset <= MAX_QP:
            candidates[offset] = filter_.samples(decoded, qp + offset, beside)
    picture, decision = decide_picture(original, decoded, candidates, qp=qp, ctu=ctu_size)
    return Filtered(picture, network, seconds, decision)
