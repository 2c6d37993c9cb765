"""Subpictures of a sequence (H.266 clauses 7.3.2.4 and 7.4.3.4)."""

from typing import NamedTuple

from codecnn.errors import FormatError
from codecnn.vvc.bits import Bits


class Subpicture(NamedTuple):
    """A rectangle of CTUs; whether loop filters may cross its edges (sps_loop_filter_across_subpic_enabled_flag)."""

    x: int
    y: int
    wide: int
    high: int
    filtered: bool


def read_subpictures(r: Bits, count: int, wide: int, high: int) -> tuple[Subpicture, ...]:
    """The subpictures of a picture of `wide` x `high` CTUs (clause 7.3.2.4)."""
    independent, same_size = r.flag(), r.flag()
    found: list[Subpicture] = []
    across, down = (wide - 1).bit_length(), (high - 1).bit_length()
    for i in range(count):
        filtered = not independent
        if same_size and i > 0:
            first = found[0]
            columns = wide // first.wide
            x, y, w, h = i % columns * first.wide, i // columns * first.high, first.wide, first.high
        else:
            x, y = (r.u(across), r.u(down)) if i > 0 else (0, 0)
            w = r.u(across) + 1 if i < count - 1 else wide - x
            h = r.u(down) + 1 if i < count - 1 else high - y
        if not independent:
            r.skip(1)  # sps_subpic_treated_as_pic_flag
            filtered = r.flag()
        if x + w > wide or y + h > high:
            raise FormatError(f"subpicture {i} leaves the picture")
        found.append(Subpicture(x, y, w, h, filtered))
    return tuple(found)
