"""Reference picture lists (H.266 clauses 7.3.9, 7.3.10, 7.4.10 and 8.3.2): which pictures a slice refers to, by POC."""

from types import SimpleNamespace

from codecnn.errors import FormatError
from codecnn.vvc.bits import Bits

MAX_ENTRIES = 29
"""MaxDpbSize + 13 with MaxDpbSize 16, the bound on num_ref_entries."""


def read_ref_pic_list_struct(r: Bits, sps: SimpleNamespace, in_sps: bool) -> SimpleNamespace:
    """ref_pic_list_struct(): `entries` as (is long-term, POC delta or LSB) and `lsb_in_header`.

    A long-term entry whose LSB stands in the header has None.
    """
    count = r.ue("num_ref_entries", MAX_ENTRIES)
    listed = SimpleNamespace(entries=[], lsb_in_header=not in_sps)
    if sps.long_term_ref_pics_flag and in_sps and count:
        listed.lsb_in_header = r.flag()
    delta = 0
    for i in range(count):
        if sps.long_term_ref_pics_flag and not r.flag():
            listed.entries.append((True, None if listed.lsb_in_header else r.u(sps.log2_max_poc_lsb)))
            continue
        step = r.ue("abs_delta_poc_st", 2**15 - 1)
        if not (sps.weighted_pred_flag or sps.weighted_bipred_flag) or i == 0:
            step += 1
        # strp_entry_sign_flag is 1 for a picture before the one that the difference is taken from.
        delta += -step if step and r.flag() else step
        listed.entries.append((False, delta))
    return listed


def read_ref_pic_lists(r: Bits, sps: SimpleNamespace, pps: SimpleNamespace) -> list[list[tuple[bool, int, int | None]]]:
    """ref_pic_lists(): for L0 and L1 entries of (is long-term, POC delta or LSB, MSB cycles back or None)."""
    lists: list[list[tuple[bool, int, int | None]]] = []
    from_sps, index = False, 0
    for i in range(2):
        count = sps.num_ref_pic_lists[i]
        own = i == 0 or pps.rpl1_idx_present_flag
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
            listed = read_ref_pic_list_struct(r, sps, in_sps=False)
        lists.append(_with_header(r, sps, listed))
    return lists


def _with_header(r: Bits, sps: SimpleNamespace, listed: SimpleNamespace) -> list[tuple[bool, int, int | None]]:
    entries, cycles = [], 0
    for long_term, value in listed.entries:
        present = False
        if long_term:
            value = r.u(sps.log2_max_poc_lsb) if listed.lsb_in_header else value
            present = r.flag()
            if present:
                cycles += r.ue("delta_poc_msb_cycle_lt", 2**28)
        entries.append((long_term, value, cycles if present else None))
    return entries


def list_pocs(
    entries: list[tuple[bool, int, int | None]], poc: int, log2_lsb: int, decoded: list[int]
) -> list[tuple[bool, int]]:
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
