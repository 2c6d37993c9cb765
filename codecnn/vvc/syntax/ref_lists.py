"""Reference picture lists (H.266 clauses 7.3.9, 7.4.10 and 8.3.2): the POCs of the pictures that a slice refers to."""

from collections.abc import Sequence
from typing import NamedTuple

from codecnn.base.errors import FormatError
from codecnn.vvc.syntax.bitstream import Bits
from codecnn.vvc.syntax.pps import PictureParameterSet
from codecnn.vvc.syntax.sps import SequenceParameterSet


class RefPic(NamedTuple):
    """An entry of L0 or L1.

    Attributes:
        long_term: The entry is a long-term reference picture.
        value: POC difference of a short-term picture; LSBs of the POC of a long-term one.
        msb_cycles: POC MSB cycles between a long-term picture and the current one, None if the header does not state
            them.
    """

    long_term: bool
    value: int
    msb_cycles: int | None


RefPicLists = tuple[tuple[RefPic, ...], tuple[RefPic, ...]]
"""L0 and L1."""

NO_REF_PICS: RefPicLists = ((), ())
"""Two empty lists."""


def read_ref_pic_lists(r: Bits, sps: SequenceParameterSet, pps: PictureParameterSet) -> RefPicLists:
    """Read ref_pic_lists() of a picture or slice header (clauses 7.3.9 and 7.4.10).

    Args:
        r: Reader at rpl_sps_flag of the first list.
        sps: Active SPS, whose lists a header may refer to.
        pps: Active PPS.

    Returns:
        L0 and L1.

    Raises:
        FormatError: A list index is out of range, or the data is damaged.
    """
    lists: list[tuple[RefPic, ...]] = []
    from_sps, index = False, 0
    for i in range(2):
        count = len(sps.ref_pic_lists[i])
        has_flag = i == 0 or pps.pps_rpl1_idx_present_flag
        if count == 0:
            from_sps = False
        elif has_flag:
            from_sps = r.flag()
        if from_sps:
            if has_flag:
                index = r.u((count - 1).bit_length())
            if index >= count:
                raise FormatError(f"rpl_idx is {index}, but there are {count} lists")
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
    """Derive the pictures of one reference list.

    Part of clause 8.3.2, Decoding process for reference picture lists construction.

    Args:
        entries: The list.
        poc: POC of the current picture.
        log2_lsb: log2 of MaxPicOrderCntLsb.
        decoded: POCs of the pictures in the picture buffer, in which a long-term picture is searched if only its LSBs
            are stated.

    Returns:
        (is long-term, POC) of each entry.

        A long-term picture that is not among the decoded ones has the POC `value`.
    """
    pocs = []
    for long_term, value, cycles in entries:
        if not long_term:
            pocs.append((False, poc + value))
        elif cycles is not None:
            pocs.append((True, poc - (cycles << log2_lsb) - (poc & ((1 << log2_lsb) - 1)) + value))
        else:
            match = [decoded_poc for decoded_poc in decoded if decoded_poc & ((1 << log2_lsb) - 1) == value]
            pocs.append((True, match[-1] if match else value))
    return pocs
