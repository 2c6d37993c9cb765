"""The pictures of a byte stream: parameter sets activated, picture order counts (H.266 clauses 7.4.2.4 and 8.3.1)."""

from collections.abc import Iterator
from typing import NamedTuple

from codecnn.errors import FormatError, UnsupportedError
from codecnn.vvc import nal
from codecnn.vvc.aps import AlfFilters, read_alf_aps
from codecnn.vvc.bits import Bits
from codecnn.vvc.picture_header import PictureHeader
from codecnn.vvc.pps import PictureParameterSet
from codecnn.vvc.ref_lists import list_pocs
from codecnn.vvc.slice_header import SliceHeader
from codecnn.vvc.sps import SequenceParameterSet


class Slice(NamedTuple):
    """One slice: its headers, its RBSP and where in it (bytes) the slice data begins, the ALF parameter sets by id.

    `others` are the RBSPs of the parameter sets of LMCS and scaling lists by type (`aps.LMCS_APS`) and id. `references`
    are (is long-term, POC) of the active entries of L0 and L1.
    """

    header: SliceHeader
    picture_header: PictureHeader
    poc: int
    rbsp: bytes
    start: int
    filters: dict[int, AlfFilters]
    references: list[list[tuple[bool, int]]]
    others: dict[tuple[int, int], bytes]


class Picture(NamedTuple):
    """One picture in decoding order. `cvs` counts coded video sequences; POCs are unique only within one.

    `output` tells whether a decoder shows it: not where its header says so.
    """

    poc: int
    cvs: int
    temporal_id: int
    output: bool
    sps: SequenceParameterSet
    pps: PictureParameterSet
    slices: list[Slice]

    @property
    def is_intra(self) -> bool:
        """Whether all its slices are I slices."""
        return all(part.header.slice_type == "I" for part in self.slices)


class _Reader:
    """What carries over from one NAL unit to the next."""

    def __init__(self) -> None:
        self.sps: dict[int, SequenceParameterSet] = {}
        self.sps_rbsp: dict[int, bytes] = {}
        self.pps_rbsp: dict[int, bytes] = {}
        self.pps: dict[int, PictureParameterSet] = {}
        self.filters: dict[int, AlfFilters] = {}
        self.others: dict[tuple[int, int], bytes] = {}
        self.header: PictureHeader | None = None
        self.picture: Picture | None = None
        self.sequence_ended = True
        self.skip_leading = False
        self.cvs = -1
        self.previous_poc = 0
        self.decoded: list[int] = []

    def parameter_sets(self, number: int) -> tuple[SequenceParameterSet, PictureParameterSet]:
        """The SPS and PPS for a ph_pic_parameter_set_id; the PPS is read when it is first asked for."""
        if number not in self.pps:
            if number not in self.pps_rbsp:
                raise FormatError(f"there is no PPS {number}")
            rbsp = self.pps_rbsp[number]
            sps_id = Bits(rbsp).u(10) & 15
            if sps_id not in self.sps:
                raise FormatError(f"there is no SPS {sps_id}")
            self.pps[number] = PictureParameterSet(rbsp, self.sps[sps_id])
        pps = self.pps[number]
        return self.sps[pps.pps_seq_parameter_set_id], pps


def read_pictures(stream: bytes) -> Iterator[Picture]:
    """The pictures of an Annex B byte stream in decoding order, their headers read and their slice data not.

    Leading pictures that refer to what precedes the stream (RASL behind the first CRA) are left out, as decoders do.
    Raises FormatError for damage, UnsupportedError for a tool that this reader does not know; both name the picture.
    """
    state = _Reader()
    count = 0
    for unit in nal.nal_units(stream):
        try:
            done = _unit(state, unit)
        except FormatError as error:
            raise type(error)(f"picture {count} in decoding order: {error}") from None
        if done is not None:
            count += 1
            yield done
    if state.picture is not None:
        yield state.picture
    elif count == 0:
        raise FormatError("there are no pictures in it")


def _unit(state: _Reader, unit: nal.NalUnit) -> Picture | None:
    """Take one NAL unit in; the picture that ended before it, if one did."""
    if unit.layer:
        raise UnsupportedError(f"it has a layer {unit.layer}, and codecnn reads streams of one layer")
    ends_picture = unit.type in (nal.SPS, nal.PPS, nal.PH, nal.EOS, nal.EOB)
    done = _end_picture(state) if ends_picture else None
    if unit.type == nal.SPS:
        _take_sps(state, unit.rbsp)
    elif unit.type == nal.PPS:
        number = Bits(unit.rbsp).u(6)
        state.pps_rbsp[number] = unit.rbsp
        state.pps.pop(number, None)
    elif unit.type in (nal.PREFIX_APS, nal.SUFFIX_APS):
        found = read_alf_aps(unit.rbsp)
        if found is not None:
            state.filters = {**state.filters, found[0]: found[1]}
        else:
            r = Bits(unit.rbsp)
            state.others = {**state.others, (r.u(3), r.u(5)): unit.rbsp}
    elif unit.type == nal.PH:
        state.header = PictureHeader(Bits(unit.rbsp), state.parameter_sets, in_slice=False)
    elif unit.type in (nal.EOS, nal.EOB):
        state.sequence_ended = True
    elif unit.type in nal.SLICES:
        done = _slice(state, unit)
    return done


def _end_picture(state: _Reader) -> Picture | None:
    done, state.picture, state.header = state.picture, None, None
    return done


def _take_sps(state: _Reader, rbsp: bytes) -> None:
    sps = SequenceParameterSet(rbsp)
    number = sps.sps_seq_parameter_set_id
    if state.sps_rbsp.get(number) != rbsp:
        state.sps[number], state.sps_rbsp[number] = sps, rbsp
        # Every PPS was read by the SPS it then had.
        state.pps.clear()


def _slice(state: _Reader, unit: nal.NalUnit) -> Picture | None:
    r = Bits(unit.rbsp)
    done = None
    if r.flag():
        done = _end_picture(state)
        state.header = PictureHeader(r, state.parameter_sets, in_slice=True)
    h = state.header
    if h is None:
        raise FormatError("a slice has no picture header")
    if state.picture is None and not _start_picture(state, unit, h):
        return done
    assert state.picture is not None
    s = SliceHeader(r, unit.type, h)
    poc = state.picture.poc
    log2_lsb = h.sps.log2_max_pic_order_cnt_lsb
    references = [list_pocs(entries, poc, log2_lsb, state.decoded) for entries in s.ref_pic_lists]
    references = [entries[:active] for entries, active in zip(references, s.num_ref_idx_active, strict=True)]
    state.picture.slices.append(Slice(s, h, poc, unit.rbsp, r.position // 8, state.filters, references, state.others))
    return done


def _start_picture(state: _Reader, unit: nal.NalUnit, h: PictureHeader) -> bool:
    """Begin a picture at its first slice (clause 8.3.1); False for one that cannot be decoded."""
    idr = unit.type in (nal.IDR_W_RADL, nal.IDR_N_LP)
    starts = idr or (state.sequence_ended and unit.type in (nal.CRA, nal.GDR))
    if state.sequence_ended and not starts:
        raise FormatError("the stream does not begin with an IRAP or GDR picture")
    if idr or unit.type == nal.CRA:
        state.skip_leading = starts and not idr
    if unit.type == nal.RASL and state.skip_leading:
        return False
    if starts:
        state.cvs += 1
        state.sequence_ended = False
        state.decoded = []
    poc = _poc(state, h, starts)
    if unit.temporal_id == 0 and not h.ph_non_ref_pic_flag and unit.type not in (nal.RASL, nal.RADL):
        state.previous_poc = poc
    state.decoded.append(poc)
    state.picture = Picture(poc, state.cvs, unit.temporal_id, h.ph_pic_output_flag, h.sps, h.pps, [])
    return True


def _poc(state: _Reader, h: PictureHeader, starts: bool) -> int:
    """PicOrderCntVal: the LSB from the header, the MSB too or by nearness to the previous picture of TemporalId 0."""
    size = 1 << h.sps.log2_max_pic_order_cnt_lsb
    lsb = h.ph_pic_order_cnt_lsb
    if h.ph_poc_msb_cycle_val is not None:
        return h.ph_poc_msb_cycle_val * size + lsb
    if starts:
        return lsb
    previous_lsb = state.previous_poc % size
    msb = state.previous_poc - previous_lsb
    if lsb < previous_lsb and previous_lsb - lsb >= size // 2:
        msb += size
    elif lsb > previous_lsb and lsb - previous_lsb > size // 2:
        msb -= size
    return msb + lsb
