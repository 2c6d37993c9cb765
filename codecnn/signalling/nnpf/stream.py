"""Post-filter messages in VVC and HEVC streams: which there are, which pictures they filter, and how to insert them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codecnn.base.errors import ConfigError, FormatError, UnsupportedError
from codecnn.codec import StreamInfo, read_headers
from codecnn.pictures.files import byte_stream
from codecnn.signalling.nnpf.messages import NNPFA, NNPFC, Activation, Characteristics, Message
from codecnn.signalling.nnpf.syntax import read_message
from codecnn.signalling.nnpf.units import (
    NAL_TYPES,
    RawUnit,
    has_only_filter_messages,
    message_unit,
    raw_units,
    unit_messages,
)

MAX_MESSAGE_BYTES = 64 * 2**20
"""Largest message that is read."""


@dataclass
class PictureUnits:
    """NAL units of one coded picture, in decoding order of the stream.

    Attributes:
        cvs: Number of the coded video sequence, from 0.
        starts_cvs: The picture is the first of its coded video sequence.
        type: nal_unit_type of its slices; if they differ, that of RASL pictures or of trailing ones.
        temporal_id: TemporalId.
        insert_at: Position in the stream for prefix SEI NAL units: in front of the picture header or the first slice.
        messages: Post-filter messages of the picture.
        skipped: Reasons why messages of the picture are ignored.
        poc: Picture order count; None for a picture that decoders cannot decode.
        position: Position in output order; None for a picture that is not output.
    """

    cvs: int
    starts_cvs: bool
    type: int
    temporal_id: int
    insert_at: int
    messages: list[Message] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    poc: int | None = None
    position: int | None = None


@dataclass(frozen=True)
class FilterStream:
    """A stream with its pictures and post-filter messages.

    Attributes:
        path: The file.
        codec: "vvc" or "hevc".
        data: The byte stream.
        pictures: Pictures in decoding order, including those that cannot be decoded.
        removable: Byte ranges of the SEI NAL units that hold post-filter messages and nothing else.
        mixed: An SEI NAL unit holds post-filter messages and others.
        info: Headers of the pictures.
    """

    path: Path
    codec: str
    data: bytes
    pictures: tuple[PictureUnits, ...]
    removable: tuple[tuple[int, int], ...]
    mixed: bool
    info: StreamInfo

    @property
    def has_messages(self) -> bool:
        """True if there is a post-filter message, also one that is ignored."""
        return any(picture.messages or picture.skipped for picture in self.pictures)


def read_messages(path: Path | str, info: StreamInfo | None = None) -> FilterStream:
    """Read the post-filter messages of a stream of VVC or HEVC, also in a container.

    Messages that are damaged, or have reserved values for which a decoder is to ignore them, are left out; `skipped`
    of their picture says why.

    Args:
        path: The stream.
        info: Headers of the stream; they are read by default.

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The file is no such stream, or is damaged outside of these messages.
        UnsupportedError: The stream has several layers, or uses a feature that codecnn does not read.
    """
    path = Path(path)
    stream = byte_stream(path, ("vvc", "hevc"))
    info = info or read_headers(path)
    data = stream.path.read_bytes()
    scan = _Scan(data, stream.codec)
    try:
        for unit in raw_units(data, stream.codec):
            scan.take(unit)
    except FormatError as error:
        raise type(error)(f"{path}: {error}") from None
    decodable = _decodable(scan.pictures, stream.codec)
    if len(decodable) != len(info.pictures):
        raise FormatError(
            f"{path} has {len(decodable)} pictures and the headers of {len(info.pictures)}: its NAL units are damaged"
        )
    for picture, header in zip(decodable, info.pictures, strict=True):
        picture.poc, picture.position = header.poc, header.position
    return FilterStream(path, stream.codec, data, tuple(scan.pictures), tuple(scan.removable), scan.mixed, info)


class _Scan:
    """Pictures and messages found so far in a stream."""

    def __init__(self, data: bytes, codec: str) -> None:
        self._data, self._codec, self._types = data, codec, NAL_TYPES[codec]
        self.pictures: list[PictureUnits] = []
        self.removable: list[tuple[int, int]] = []
        self.mixed = False
        self._messages: list[Message] = []
        self._skipped: list[str] = []
        self._header_at: int | None = None
        self._sequence_ended = True
        self._cvs = -1

    def take(self, unit: RawUnit) -> None:
        """Process one NAL unit."""
        types = self._types
        if unit.type in types.slices:
            if unit.layer:
                raise UnsupportedError(f"it has a layer {unit.layer}, but codecnn reads only streams of one layer")
            # sh_picture_header_in_slice_header_flag or first_slice_segment_in_pic_flag
            first = bool(self._data[unit.payload] & 0x80) if unit.payload < unit.end else False
            if first or self._header_at is not None:
                self._start_picture(unit)
            elif self._codec == "vvc" and self.pictures:
                self._continue_picture(unit.type)
        elif unit.type == types.picture_header:
            self._header_at = unit.start
        elif unit.type in types.end_of_sequence:
            self._sequence_ended = True
        elif unit.type in (types.prefix_sei, types.suffix_sei):
            self._take_sei(unit)

    def _start_picture(self, unit: RawUnit) -> None:
        starts = unit.type in self._types.starts_sequence or (self._sequence_ended and unit.type in self._types.irap)
        self._cvs += starts
        self._sequence_ended = False
        insert_at = unit.start if self._header_at is None else self._header_at
        self._header_at = None
        self.pictures.append(PictureUnits(self._cvs, starts, unit.type, unit.temporal_id, insert_at))
        self.pictures[-1].messages += self._messages
        self.pictures[-1].skipped += self._skipped
        self._messages, self._skipped = [], []

    def _continue_picture(self, kind: int) -> None:
        """Take a further slice of a picture, which is no IRAP picture if its slices differ (H.266 clause 7.4.2.2)."""
        picture = self.pictures[-1]
        if kind == picture.type:
            return
        leading = {kind, picture.type} <= {*self._types.radl, *self._types.rasl}
        picture.type = min(self._types.rasl if leading else self._types.slices)  # RASL_NUT or TRAIL_NUT
        if picture.starts_cvs:
            picture.starts_cvs = False
            picture.cvs -= 1
            self._cvs -= 1

    def _take_sei(self, unit: RawUnit) -> None:
        messages: list[Message] = []
        skipped: list[str] = []
        try:
            payloads = unit_messages(self._data[unit.payload : unit.end])
        except FormatError as error:
            if self._data[unit.payload : unit.end][:1] in (bytes([NNPFC]), bytes([NNPFA])):
                skipped.append(str(error))
            payloads = []
        for kind, payload in payloads:
            if kind in (NNPFC, NNPFA):
                try:
                    if len(payload) > MAX_MESSAGE_BYTES:
                        raise FormatError(f"it has {len(payload)} bytes, more than {MAX_MESSAGE_BYTES}")
                    messages.append(read_message(kind, payload))
                except FormatError as error:
                    skipped.append(f"{'NNPFC' if kind == NNPFC else 'NNPFA'}: {error}")
        if has_only_filter_messages(payloads) or (skipped and not payloads):
            self.removable.append((unit.start, unit.end))
        elif messages or skipped:
            self.mixed = True
        if unit.type == self._types.suffix_sei and self.pictures:
            self.pictures[-1].messages += messages
            self.pictures[-1].skipped += skipped
        else:
            self._messages += messages
            self._skipped += skipped


def _decodable(pictures: Sequence[PictureUnits], codec: str) -> list[PictureUnits]:
    """Leave out RASL pictures of IRAP pictures at which decoding starts (H.266 clause 8.1.1, H.265 clause 8.1.3)."""
    types = NAL_TYPES[codec]
    kept, skip = [], False
    for picture in pictures:
        if picture.type in types.irap:
            skip = picture.starts_cvs and picture.type not in types.idr
        if not (picture.type in types.rasl and skip):
            kept.append(picture)
    return kept


# --- activation ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ActiveFilter:
    """A filter that the messages activate for a picture.

    Attributes:
        characteristics: Description of the filter.
        activation: The message that activates it.
        update: Description of the update that is applied to it; None for the base filter.
    """

    characteristics: Characteristics
    activation: Activation
    update: Characteristics | None = None


def active_filters(stream: FilterStream) -> list[list[ActiveFilter]]:
    """Find the filters that are active for each picture that is output (H.274 clauses 8.28.1.2 and 8.28.2.2).

    A persistent activation holds in output order until the end of its coded video sequence or a cancelling one; others
    hold for their picture alone. Characteristics, of base filters and of updates, hold from their picture on, in
    decoding order, within their coded video sequence. An activation is of the base filter or of its update.

    Returns:
        Filters by position in output order.

    Raises:
        FormatError: An activation names a filter that the coded video sequence has not described, and none of its
            messages is ignored.
    """
    by_position: dict[int, list[ActiveFilter]] = {}
    for cvs in sorted({picture.cvs for picture in stream.pictures}):
        pictures = [picture for picture in stream.pictures if picture.cvs == cvs and picture.poc is not None]
        resolved = _resolved(pictures, str(stream.path))
        persistent: dict[int, ActiveFilter] = {}
        for picture in sorted(pictures, key=lambda picture: picture.poc or 0):
            current: dict[int, ActiveFilter] = {}
            for message in picture.messages:
                if not isinstance(message, Activation):
                    continue
                if message.nnpfa_cancel_flag:
                    persistent.pop(message.nnpfa_target_id, None)
                    continue
                target = resolved.get((id(picture), message.nnpfa_target_id))
                if target is None:
                    continue
                current[message.nnpfa_target_id] = target
                if message.nnpfa_persistence_flag:
                    persistent[message.nnpfa_target_id] = target
            if picture.position is not None:
                by_position[picture.position] = list((persistent | current).values())
    return [by_position[position] for position in range(len(by_position))]


def _resolved(pictures: Sequence[PictureUnits], name: str) -> dict[tuple[int, int], ActiveFilter]:
    """Return the filter of every activation of a coded video sequence, by picture and nnpfa_target_id."""
    known: dict[int, Characteristics] = {}
    updates: dict[int, Characteristics] = {}
    resolved = {}
    for picture in pictures:
        for message in picture.messages:
            if isinstance(message, Characteristics):
                if message.nnpfc_base_flag:
                    known[message.nnpfc_id] = message
                else:
                    updates[message.nnpfc_id] = message
        for message in picture.messages:
            if not isinstance(message, Activation) or message.nnpfa_cancel_flag:
                continue
            number = message.nnpfa_target_id
            if number not in known and any(picture.skipped for picture in pictures):
                continue  # its description is among the messages that are ignored
            if number not in known:
                raise FormatError(
                    f"{name} activates its filter {number} at POC {picture.poc}, but does not describe it"
                )
            update = None if message.nnpfa_target_base_flag else updates.get(number)
            resolved[id(picture), number] = ActiveFilter(known[number], message, update)
    return resolved


# --- insertion -------------------------------------------------------------------------------------------------------


def insert_messages(
    stream: FilterStream,
    characteristics: Characteristics,
    *,
    update: Characteristics | None = None,
    unfiltered: Collection[int] = (),
    every_irap: bool = True,
    replace: bool = False,
) -> bytes:
    """Insert a filter into a stream: characteristics and activations as prefix SEI NAL units.

    The characteristics precede the first picture of every coded video sequence. A persistent activation at that picture
    covers all pictures that follow it in output order. RADL pictures precede it in output order and have activations of
    their own, also persistent, because some decoders keep only the last value of nnpfa_persistence_flag. If some
    pictures of a coded video sequence are not filtered, each of the others has a separate activation, which holds
    whatever pictures a decoder drops. All other NAL units do not change.

    Args:
        stream: The stream.
        characteristics: Description of the filter.
        update: Description of an update of it, which follows each description in the same NAL unit and is activated
            instead of the base filter.
        unfiltered: Positions in output order of the pictures that are not filtered.
        every_irap: Repeat both messages at IRAP pictures that do not begin a coded video sequence, for decoders that
            start there.
        replace: Remove the post-filter messages that the stream has.

    Returns:
        The byte stream.

    Raises:
        ConfigError: The stream has post-filter messages and `replace` is False, a position does not exist, or the
            characteristics are invalid.
        UnsupportedError: Messages to be replaced share an SEI NAL unit with others.
    """
    if stream.has_messages and not replace:
        raise ConfigError(f"{stream.path} carries post-filter messages already: --replace removes them")
    if replace and stream.mixed:
        raise UnsupportedError(
            f"{stream.path} has post-filter messages in SEI NAL units with other messages, which codecnn does not split"
        )
    count = sum(picture.position is not None for picture in stream.pictures)
    if wrong := sorted(position for position in unfiltered if not 0 <= position < count):
        raise ConfigError(f"{stream.path} has no picture {wrong[0]}: its {count} pictures are 0 to {count - 1}")
    described = [characteristics] if update is None else [characteristics, update]
    inserted = _messages_by_picture(stream, described, frozenset(unfiltered), every_irap)
    edits = [(start, end, b"") for start, end in stream.removable] if replace else []
    for number, messages in inserted.items():
        picture = stream.pictures[number]
        content = b"".join(message_unit(each, stream.codec, 0, picture.temporal_id) for each in messages)
        edits.append((picture.insert_at, picture.insert_at, content))
    parts, at = [], 0
    for start, end, content in sorted(edits):
        parts += [stream.data[at:start], content]
        at = end
    return b"".join((*parts, stream.data[at:]))


def _messages_by_picture(
    stream: FilterStream, described: Sequence[Characteristics], unfiltered: frozenset[int], every_irap: bool
) -> Mapping[int, list[Sequence[Message]]]:
    """Return the messages of each picture by its number in decoding order, a list for each SEI NAL unit."""
    types = NAL_TYPES[stream.codec]
    number, base = described[0].nnpfc_id, len(described) == 1
    messages: dict[int, list[Sequence[Message]]] = {}
    for cvs in sorted({picture.cvs for picture in stream.pictures}):
        pictures = {n: picture for n, picture in enumerate(stream.pictures) if picture.cvs == cvs}
        # RASL pictures of the first picture of the sequence are never output, so that they need no activation.
        output = {n: picture for n, picture in pictures.items() if picture.position is not None}
        first, *_ = pictures
        iraps = [n for n, picture in pictures.items() if n == first or (every_irap and picture.type in types.irap)]
        filtered = [n for n, picture in output.items() if picture.position not in unfiltered]
        messages |= {n: [described] for n in iraps}
        all_filtered = len(filtered) == len(output)
        if all_filtered:
            first_poc = pictures[first].poc or 0
            filtered = iraps + [
                n
                for n, picture in output.items()
                if n not in iraps and ((picture.poc or 0) < first_poc or (every_irap and picture.type in types.radl))
            ]
        for n in filtered:
            messages.setdefault(n, []).append([activation(number, persistent=all_filtered, base=base)])
    return messages


def activation(number: int, *, persistent: bool, base: bool = True) -> Activation:
    """Create an activation of a base filter, or of its update.

    It states the output of the one picture, and has the elements that came after the edition of 2023-09, with no
    effect: VTM 23.13 refuses activations of base filters without the former, and takes the last bits of a message
    without the latter for one of them.

    Args:
        number: nnpfa_target_id.
        persistent: The activation holds for the pictures that follow in output order.
        base: The activation is of the base filter, not of its update.
    """
    return Activation(
        nnpfa_target_id=number,
        nnpfa_cancel_flag=False,
        nnpfa_persistence_flag=persistent,
        nnpfa_target_base_flag=base,
        nnpfa_no_prev_clvs_flag=False,
        nnpfa_no_foll_clvs_flag=False if persistent else None,
        nnpfa_num_output_entries=1,
        nnpfa_output_flag=(True,),
        nnpfa_prompt_update_flag=False,
        nnpfa_seed_update_flag=False,
        nnpfa_selected_input_flag=False,
    )
