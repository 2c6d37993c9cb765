"""Pictures of a byte stream: active parameter sets, headers, picture order counts (H.266 clauses 7.4.2.4, 8.3.1).

The slices of a picture have one type of NAL unit unless its PPS sets pps_mixed_nalu_types_in_pic_flag. A mixed picture
consists of subpictures of different types (clause 7.4.2.2). It is no IRAP or GDR picture, so that it neither begins a
sequence nor resets the POC. It is a RASL picture if one slice is RASL and all are RASL or RADL, and a RADL picture only
if all slices are RADL.
"""

from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple

from codecnn.base.errors import FormatError, UnsupportedError
from codecnn.vvc.syntax import bitstream
from codecnn.vvc.syntax.aps import AlfFilters, read_alf_aps
from codecnn.vvc.syntax.bitstream import Bits
from codecnn.vvc.syntax.picture_hash import PictureHash, read_picture_hashes
from codecnn.vvc.syntax.picture_header import PictureHeader
from codecnn.vvc.syntax.pps import PictureParameterSet
from codecnn.vvc.syntax.ref_lists import list_pocs
from codecnn.vvc.syntax.sei import OUTPUT_MD5_UUID, USER_DATA_UNREGISTERED, read_sei
from codecnn.vvc.syntax.slice_header import SliceHeader
from codecnn.vvc.syntax.sps import SequenceParameterSet

LOOP_FILTER_MARKER = b"CNNf"
"""First bytes of the parameters of a filter in the coding loop (docs/reference/loop_filter.md)."""

_IDR = (bitstream.IDR_W_RADL, bitstream.IDR_N_LP)
_LEADING = {bitstream.RADL, bitstream.RASL}


class Slice(NamedTuple):
    """One slice: its headers and its data.

    Attributes:
        header: Slice header.
        picture_header: Picture header.
        poc: POC of the picture.
        rbsp: Payload of the NAL unit.
        start: Byte position of the slice data in `rbsp`.
        filters: ALF parameter sets by id.
        references: (is long-term, POC) of the active entries of L0 and L1.
        listed: The same of all entries; pictures that no list of a picture has are references no longer.
        parameter_sets: Payloads of the LMCS and scaling list parameter sets by type (`aps.LMCS_APS`) and id.
    """

    header: SliceHeader
    picture_header: PictureHeader
    poc: int
    rbsp: bytes
    start: int
    filters: dict[int, AlfFilters]
    references: list[list[tuple[bool, int]]]
    listed: list[list[tuple[bool, int]]]
    parameter_sets: dict[tuple[int, int], bytes]

    @property
    def no_backward_pred_flag(self) -> bool:
        """NoBackwardPredFlag: no active entry of L0 and L1 follows the picture in output order."""
        return all(poc <= self.poc for entries in self.references for _, poc in entries)


class ParsedPicture(NamedTuple):
    """One picture as the parser returns it.

    Attributes:
        poc: Picture order count, unique within a coded video sequence.
        cvs: Number of the coded video sequence in the stream, from 0.
        temporal_id: TemporalId.
        output: PictureOutputFlag: a decoder outputs the picture.
        first: The picture is the first of its coded video sequence.
        sps: Active SPS.
        pps: Active PPS.
        slices: Slices in decoding order.
        hashes: Hashes of the decoded picture that SEI messages state.
        user_data: Payloads of the unregistered user data in SEI messages before the picture, each with its UUID.
        recovering: The picture precedes the recovery point of a GDR picture at which decoding starts.
    """

    poc: int
    cvs: int
    temporal_id: int
    output: bool
    first: bool
    sps: SequenceParameterSet
    pps: PictureParameterSet
    slices: list[Slice]
    hashes: list[PictureHash]
    user_data: tuple[bytes, ...] = ()
    recovering: bool = False

    @property
    def loop_filter(self) -> bytes | None:
        """Parameters of a filter in the coding loop and the bytes after them; None unless an intra picture has them."""
        extension = self.slice_extension
        return extension if extension and extension.startswith(LOOP_FILTER_MARKER) and self.is_intra else None

    @property
    def slice_extension(self) -> bytes | None:
        """Extension of the first slice header; None if the PPS says that there is none."""
        return self.slices[0].header.extension

    @property
    def output_md5(self) -> bytes | None:
        """MD5 of the output if the picture is filtered behind the coding loop; None if there is none."""
        size = len(OUTPUT_MD5_UUID)
        messages = [payload[size:] for payload in self.user_data if payload[:size] == OUTPUT_MD5_UUID]
        return messages[-1] if messages else None

    @property
    def is_intra(self) -> bool:
        """True if all slices are I slices."""
        return all(part.header.slice_type == "I" for part in self.slices)


class _Reader:
    """State that carries over from one NAL unit to the next."""

    def __init__(self) -> None:
        self.sps: dict[int, SequenceParameterSet] = {}
        self.sps_rbsp: dict[int, bytes] = {}
        self.pps_rbsp: dict[int, bytes] = {}
        self.pps: dict[int, PictureParameterSet] = {}
        self.filters: dict[int, AlfFilters] = {}
        self.aps: dict[tuple[int, int], bytes] = {}
        self.header: PictureHeader | None = None
        self.picture: ParsedPicture | None = None
        self.types: set[int] = set()
        self.sequence_ended = True
        self.skip_leading = False
        self.recovery_poc: int | None = None
        self.cvs = -1
        self.previous_poc = 0
        self.decoded: list[int] = []
        self.user_data: list[bytes] = []

    def parameter_sets(self, number: int) -> tuple[SequenceParameterSet, PictureParameterSet]:
        """Return the SPS and PPS for a ph_pic_parameter_set_id; a PPS is parsed at its first use."""
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


def read_pictures(stream: bytes | mmap) -> Iterator[ParsedPicture]:
    """Read the headers of all pictures of a byte stream; slice data is not parsed.

    Leading pictures that refer to pictures before the stream (RASL after the first CRA) are left out, as in decoders.

    Args:
        stream: The whole Annex B byte stream.

    Yields:
        The pictures in decoding order.

    Raises:
        FormatError: The stream is damaged; the message names the picture.
        UnsupportedError: The stream uses a tool that this parser does not support; the message names the picture.
    """
    state = _Reader()
    count = 0
    for unit in bitstream.nal_units(stream):
        try:
            done = _unit(state, unit)
        except FormatError as error:
            raise type(error)(f"picture {count} in decoding order: {error}") from None
        if done is not None:
            count += 1
            yield done
    done = _end_picture(state)
    if done is not None:
        yield done
    elif count == 0:
        raise FormatError("it has no pictures")


def _unit(state: _Reader, unit: bitstream.NalUnit) -> ParsedPicture | None:
    """Process one NAL unit; return the picture that ended before it, if any."""
    if unit.layer:
        raise UnsupportedError(f"it has a layer {unit.layer}, but codecnn reads only streams of one layer")
    ends_picture = unit.type in (bitstream.SPS, bitstream.PPS, bitstream.PH, bitstream.EOS, bitstream.EOB)
    done = _end_picture(state) if ends_picture else None
    if unit.type == bitstream.SPS:
        _take_sps(state, unit.rbsp)
    elif unit.type == bitstream.PPS:
        number = Bits(unit.rbsp).u(6)
        state.pps_rbsp[number] = unit.rbsp
        state.pps.pop(number, None)
    elif unit.type in (bitstream.PREFIX_APS, bitstream.SUFFIX_APS):
        alf = read_alf_aps(unit.rbsp)
        if alf is not None:
            state.filters = {**state.filters, alf[0]: alf[1]}
        else:
            r = Bits(unit.rbsp)
            state.aps = {**state.aps, (r.u(3), r.u(5)): unit.rbsp}
    elif unit.type == bitstream.PH:
        state.header = PictureHeader(Bits(unit.rbsp), state.parameter_sets, in_slice=False)
    elif unit.type in (bitstream.EOS, bitstream.EOB):
        state.sequence_ended = True
    elif unit.type == bitstream.PREFIX_SEI:
        state.user_data += [each.payload for each in read_sei(unit.rbsp) if each.type == USER_DATA_UNREGISTERED]
    elif unit.type == bitstream.SUFFIX_SEI:
        if state.picture is not None:
            state.picture.hashes.extend(read_picture_hashes(unit.rbsp))
    elif unit.type in bitstream.SLICES:
        done = _slice(state, unit)
    return done


def _end_picture(state: _Reader) -> ParsedPicture | None:
    """End the current picture; return it unless it is left out.

    Part of clause 8.1.1, General decoding process.
    """
    done, header, types = state.picture, state.header, state.types
    state.picture, state.header, state.types = None, None, set()
    if done is None or header is None:
        return None
    rasl = bitstream.RASL in types and types <= _LEADING
    if rasl and state.skip_leading:
        return None
    kept = {poc for part in done.slices for entries in part.listed for _, poc in entries}
    state.decoded = [*(decoded for decoded in state.decoded if decoded in kept), done.poc]
    if done.temporal_id == 0 and not header.ph_non_ref_pic_flag and not rasl and types != {bitstream.RADL}:
        state.previous_poc = done.poc
    return done


def _take_sps(state: _Reader, rbsp: bytes) -> None:
    sps = SequenceParameterSet(rbsp)
    number = sps.sps_seq_parameter_set_id
    if state.sps_rbsp.get(number) != rbsp:
        state.sps[number], state.sps_rbsp[number] = sps, rbsp
        # Each PPS was parsed with the SPS that was active then.
        state.pps.clear()


def _slice(state: _Reader, unit: bitstream.NalUnit) -> ParsedPicture | None:
    r = Bits(unit.rbsp)
    done = None
    if r.flag():
        done = _end_picture(state)
        state.header = PictureHeader(r, state.parameter_sets, in_slice=True)
    h = state.header
    if h is None:
        raise FormatError("a slice has no picture header")
    if state.picture is None:
        _start_picture(state, unit, h)
    assert state.picture is not None
    state.types.add(unit.type)
    if len(state.types) > 1 and not h.pps.pps_mixed_nalu_types_in_pic_flag:
        kinds = " and ".join(map(str, sorted(state.types)))
        raise FormatError(f"its slices have nal_unit_type {kinds}, but pps_mixed_nalu_types_in_pic_flag is 0")
    if state.types == {bitstream.RASL} and state.skip_leading and not h.pps.pps_mixed_nalu_types_in_pic_flag:
        # The picture is left out, whatever is in its slices.
        return done
    s = SliceHeader(r, unit.type, h)
    poc = state.picture.poc
    log2_lsb = h.sps.log2_max_pic_order_cnt_lsb
    listed = [list_pocs(entries, poc, log2_lsb, state.decoded) for entries in s.ref_pic_lists]
    references = [entries[:active] for entries, active in zip(listed, s.num_ref_idx_active, strict=True)]
    state.picture.slices.append(
        Slice(s, h, poc, unit.rbsp, r.position // 8, state.filters, references, listed, state.aps)
    )
    return done


def _start_picture(state: _Reader, unit: bitstream.NalUnit, h: PictureHeader) -> None:
    """Begin a picture at its first slice.

    Part of clause 8.1.1, General decoding process.
    Part of clause 8.1.2, Decoding process for a coded picture.
    """
    user_data, state.user_data = tuple(state.user_data), []
    mixed = h.pps.pps_mixed_nalu_types_in_pic_flag
    idr = unit.type in _IDR and not mixed
    cra, gdr = (unit.type == kind and not mixed for kind in (bitstream.CRA, bitstream.GDR))
    starts = idr or (state.sequence_ended and (cra or gdr))
    if state.sequence_ended and not starts:
        raise FormatError("the sequence does not begin with an IRAP or GDR picture")
    if idr or cra:
        state.skip_leading = starts and not idr
    if starts:
        state.cvs += 1
        state.sequence_ended = False
        state.decoded = []
    poc = _poc(state, h, starts)
    if idr or cra:
        state.recovery_poc = None
    elif gdr and starts:
        state.recovery_poc = poc + h.ph_recovery_poc_cnt
    # Pictures before the recovery point of a GDR picture at which decoding starts are not output (clause 8.1.2).
    recovering = state.recovery_poc is not None and poc < state.recovery_poc
    output = h.ph_pic_output_flag and not recovering
    state.picture = ParsedPicture(
        poc, state.cvs, unit.temporal_id, output, starts, h.sps, h.pps, [], [], user_data, recovering
    )


def _poc(state: _Reader, h: PictureHeader, starts: bool) -> int:
    """Derive PicOrderCntVal.

    Clause 8.3.1, Decoding process for picture order count.

    The LSBs stand in the header. The MSBs stand there too, or follow from the previous picture of TemporalId 0, to
    which the POC is as near as possible.
    """
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
