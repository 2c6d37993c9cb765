"""Scaling lists: their parameter set (H.266 clauses 7.3.2.20 and 7.4.3.20)."""

from typing import NamedTuple

from codecnn.errors import FormatError
from codecnn.vvc.bits import Bits
from codecnn.vvc.scans import SCAN

_LISTS = 28
_FLAT = 16


class ScalingList(NamedTuple):
    """A matrix of `side` x `side` entries, row after row, and what stands for its first in blocks beyond 8x8."""

    side: int
    entries: tuple[int, ...]
    dc: int


def side_of(number: int) -> int:
    """matrixSize of a list: 2 of the first two, 4 up to 7, then 8."""
    return 2 if number < 2 else 4 if number < 8 else 8


def read_scaling_list_aps(rbsp: bytes) -> list[ScalingList]:
    """scaling_list_data(): the 28 lists by their id. Raises FormatError for damage."""
    r = Bits(rbsp)
    r.skip(8)
    chroma_present = r.flag()
    lists: list[ScalingList] = []
    for number in range(_LISTS):
        side = side_of(number)
        flat = ScalingList(side, (_FLAT,) * (side * side), _FLAT)
        # Luma has one of three, and the last one.
        if not (chroma_present or number % 3 == 2 or number == _LISTS - 1):
            lists.append(flat)
            continue
        copied = r.flag()
        predicted = copied or r.flag()
        reference = flat
        if predicted and number not in (0, 2, 8):
            least = 0 if number < 2 else 2 if number < 8 else 8
            delta = r.ue("scaling_list_pred_id_delta", number - least)
            reference = lists[number - delta] if delta else flat
        if copied:
            lists.append(reference)
        else:
            lists.append(_read_list(r, number, side, reference if predicted else None))
    return lists


def _read_list(r: Bits, number: int, side: int, reference: ScalingList | None) -> ScalingList:
    entries = [0] * (side * side)
    value = 0 if reference else 8
    dc = 0
    if number > 13:
        value += r.se("scaling_list_dc_coef", -128, 127)
        dc = (value + (reference.dc if reference else 0)) & 255
        if dc == 0:
            raise FormatError(f"scaling_list_dc_coef of list {number} leads to 0")
    log2 = side.bit_length() - 1
    for x, y in SCAN[log2, log2, : side * side].tolist():
        if number > 25 and x >= 4 and y >= 4:
            continue
        value += r.se("scaling_list_delta_coef", -128, 127)
        at = side * y + x
        entries[at] = (value + (reference.entries[at] if reference else 0)) & 255
    return ScalingList(side, tuple(entries), dc if number > 13 else entries[0])
