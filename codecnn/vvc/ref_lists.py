"""Reference picture lists (H.266 clauses 7.3.9, 7.4.10 and 8.3.2): which pictures a slice refers to, by POC."""

from collections.abc import Sequence
from typing import NamedTuple

from codecnn.errors import FormatError
from codecnn.vvc.bits import Bits
from codecnn.vvc.pps import PictureParameterSet
from codecnn.vvc.sps import SequenceParameterSet


class RefPic(NamedTuple):
    """An entry of L0 or L1: a short-term picture by its POC difference, a long-term one by the LSB of its POC and,
    where the header gives them, the MSB cycles that it lies back."""

    long_term: bool
    value: int
    msb_cycles: int | None


RefPicLists = tuple[tuple[RefPic, ...], tuple[RefPic, ...]]
"""L0 and L1."""

NO_REF_PICS: RefPicLists = ((), ())


def read_ref_pic_lists(r: Bits, sps: SequenceParameterSet, pps: PictureParameterSet) -> RefPicLists:
    """ref_pic_lists(): each list by its number among those of the SPS, or in full."""
    lists: list[tuple[RefPic, ...]] = []
    from_sps, index = False, 0
    for i in range(2):
        count = len(sps.ref_pic_lists[i])
        own = i == 0 or pps.pps_rpl1_idx_present_flag
        if count == 0:
            from_sps = False
        elif own:
            from_sps = r.flag()
        if from_sps:
            if own:
                index = r.u((count - 1).bit_length())
            if index >= count:
                raise FormatError(f"rpl_idx is {index}, of {count} lists")
            listed = sps.ref_pic_lists[i][index]
        else:
            listed = sps.read_ref_pic_list_struct(r, in_sps=False)
        entries, cycles = [], 0
        for long_term, value in listed:
            present = False
            if long_term:
                value = r.u(sps.log2_max_pic_order_cnt_lsb) if value is None else value
                present = r.flag()
                if present:
                    cycles += r.ue("delta_poc_msb_cycle_lt", 2**28)
            assert value is not None
            entries.append(RefPic(long_term, value, cycles if present else None))
        lists.append(tuple(entries))
    return lists[0], lists[1]


def list_pocs(entries: Sequence[RefPic], poc: int, log2_lsb: int, decoded: Sequence[int]) -> list[tuple[bool, int]]:
    """(is long-term, POC) of every entry of one list, for a picture at `poc` (clause 8.3.2).

    A long-term picture named by its LSB alone is looked for in `decoded`, the POCs decoded so far; raises FormatError
    where it is not there.
    """
    pocs = []
    for long_term, value, cycles in entries:
        if not long_term:
            pocs.append((False, poc + value))
        elif cycles is not None:
            pocs.append((True, poc - (cycles << log2_lsb) - (poc & ((1 << log2_lsb) - 1)) + value))
        else:
            match = [other for other in decoded if other & ((1 << log2_lsb) - 1) == value]
            if not match:
                raise FormatError(f"a long-term reference picture of POC LSB {value} is not there")
            pocs.append((True, match[-1]))
    return pocs
