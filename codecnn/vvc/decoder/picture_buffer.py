"""Decoded picture buffer: marking of reference pictures and missing ones (H.266 clauses 8.3.2 to 8.3.4).

One array holds the samples of all pictures in slots of equal size. A slot is used again, so the memory does not grow
with the stream.
"""

from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import FormatError
from codecnn.base.records import Records, new_record
from codecnn.vvc.decoder.cells import COLLOCATED_CELL
from codecnn.vvc.decoder.frame import Frame
from codecnn.vvc.decoder.records import RefPicListEntry, SliceValues
from codecnn.vvc.decoder.temporal_motion import stored_motion
from codecnn.vvc.syntax import ConformanceWindow, ParsedPicture, SequenceParameterSet, Slice

Plane = npt.NDArray[np.int32]

NO_MOTION = np.zeros((0, 0), COLLOCATED_CELL)
"""Motion of a picture that no vector can be predicted from."""


@dataclass
class ReferencePicture:
    """A picture in the buffer.

    Attributes:
        poc: Picture order count.
        slot: Slot of its samples.
        sizes: (height, width) of its components.
        window: Margins outside its scaling window, in the unit of the conformance window.
        motion: Motion that later pictures predict from (`temporal_motion.stored_motion`).
        long_term: It is marked as a long-term reference picture.
        missing: POCs of the pictures that are missing in the stream, and that its samples depend on directly or through
            other pictures; its own if it was generated.
        stored: Done when the slot has its samples.
    """

    poc: int
    slot: int
    sizes: list[tuple[int, int]]
    window: ConformanceWindow
    motion: Records
    long_term: bool = False
    missing: frozenset[int] = frozenset()
    stored: Future[None] | None = None


class PictureBuffer:
    """Reference pictures of the current coded video sequence.

    Attributes:
        samples: Samples of all slots, uint16: Y, Cb and Cr of the picture in slot s, each row by row without gaps, from
            s * slot_size on.
        slot_size: Samples of a slot.
        pictures: Pictures marked as reference pictures.
    """

    def __init__(self) -> None:
        """Create an empty buffer."""
        self.samples = np.zeros(0, np.uint16)
        self.slot_size = 1
        self.pictures: list[ReferencePicture] = []
        self._sps: SequenceParameterSet | None = None
        self._uses: list[Future[Any]] = []
        self._missing: frozenset[int] = frozenset()

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self.samples.size // self.slot_size

    def begin(self, picture: ParsedPicture) -> tuple[int, ...]:
        """Mark the reference pictures of a picture before it is decoded, and generate missing ones.

        Clause 8.3.3, Decoding process for reference picture marking.

        Args:
            picture: The picture.

        Returns:
            POCs of the pictures that are missing in the stream, and that the active entries of the slices refer to,
            directly or through other pictures.

        Raises:
            FormatError: The SPS changes within a coded video sequence.
        """
        if picture.first:
            self._sps = picture.sps
            self.pictures = []
            self._set_size(picture.sps)
        elif picture.sps is not self._sps:
            raise FormatError("the SPS changes within a coded video sequence")
        wanted = {poc: long_term for entries in picture.slices[0].listed for long_term, poc in entries}
        # Later slices refer to the same pictures, unless the stream is damaged.
        for part in picture.slices[1:]:
            wanted |= {poc: long_term for entries in part.listed for long_term, poc in entries}
        self.pictures = [kept for kept in self.pictures if kept.poc in wanted]
        present = {kept.poc for kept in self.pictures}
        missing = tuple(poc for poc in wanted if poc not in present)
        if missing:
            # The slot of a picture that is no longer a reference may still be written to or read.
            wait(self._uses)
        for poc in missing:
            self._generate(picture, poc)
        for kept in self.pictures:
            kept.long_term = wanted[kept.poc]
        active = {poc for part in picture.slices for entries in part.references for _, poc in entries}
        for kept in self.pictures:
            if kept.poc in active and kept.stored is not None:
                kept.stored.result()
        self._missing = frozenset().union(*(kept.missing for kept in self.pictures if kept.poc in active))
        return tuple(sorted(self._missing))

    def put_references(self, s: SliceValues, part: Slice, picture: ParsedPicture) -> Records:
        """Set the reference picture lists of a slice.

        Part of clause 8.3.2, Decoding process for reference picture lists construction.

        Args:
            s: Values of the slice.
            part: The slice.
            picture: Its picture.

        Returns:
            `Frame.collocated` of the slice.
        """
        by_poc = {kept.poc: kept for kept in self.pictures}
        s.ref_pic_list[...] = new_record(RefPicListEntry)
        weights = part.header.weights
        plain = (1 << weights.log2_denominator, 0, *(1 << weights.log2_denominator_c, 0) * 2)
        for number, entries in enumerate(part.references):
            for i, (_, poc) in enumerate(entries):
                entry = s.ref_pic_list[number, i]
                self._put_entry(entry, by_poc[poc], picture)
                listed = weights.lists[number]
                values = listed[i].values if i < len(listed) else plain
                for component in range(3):
                    weighting = entry.weighting[component]
                    weighting.weight = values[2 * component]
                    weighting.offset = values[2 * component + 1] << (picture.sps.bit_depth - 8)
                entry.weighted = i < len(listed) and listed[i].weighted
        number, index = part.header.collocated
        if not s.ph_temporal_mvp_enabled_flag or index >= len(part.references[number]):
            return NO_MOTION
        return by_poc[part.references[number][index][1]].motion

    def reserve(self, picture: ParsedPicture) -> tuple[ReferencePicture, list[npt.NDArray[np.uint16]]]:
        """Reserve a slot for a picture that is decoded next.

        Args:
            picture: The picture.

        Returns:
            The picture, not yet in the buffer, and the components in its slot, each (h, w).
        """
        reference = self._new(picture, picture.poc)
        # From the recovery point on, pictures are right although those before refer to pictures before the stream.
        reference.missing = frozenset() if picture.recovering else self._missing
        at = reference.slot * self.slot_size
        planes = []
        for height, width in reference.sizes:
            planes.append(self.samples[at : at + height * width].reshape(height, width))
            at += height * width
        return reference, planes

    def store(
        self,
        reference: ReferencePicture,
        frame: Frame,
        lists: list[Records],
        intra: bool,
        stored: Future[None],
        finish: Future[Any],
    ) -> None:
        """Mark a decoded picture as a short-term reference picture.

        Args:
            reference: The picture, as `reserve` returned it.
            frame: Its state after decoding.
            lists: For each slice its RefPicList.
            intra: All slices are I slices.
            stored: Done when the samples are in the slot.
            finish: Done when the samples are also compared with the hash and output, after `stored`.
        """
        self._uses = [*(use for use in self._uses if not use.done()), finish]
        reference.stored = stored
        reference.motion = NO_MOTION if intra else stored_motion(frame, lists)
        self.pictures = [kept for kept in self.pictures if kept.poc != reference.poc]
        self.pictures.append(reference)

    def _set_size(self, sps: SequenceParameterSet) -> None:
        """Allocate the slots of a sequence unless those of the sequence before fit."""
        luma = sps.sps_pic_width_max_in_luma_samples * sps.sps_pic_height_max_in_luma_samples
        chroma = luma >> (sps.log2_sub_width_c + sps.log2_sub_height_c) if sps.sps_chroma_format_idc else 0
        size = luma + 2 * chroma
        if size != self.slot_size or self.slots != sps.dpb.size:
            self.slot_size = size
            self.samples = np.zeros(size * sps.dpb.size, np.uint16)

    def _free_slot(self) -> int:
        """Return a slot that no picture uses; more slots are added if a stream refers to more pictures than allowed."""
        used = {kept.slot for kept in self.pictures}
        slot = next(number for number in range(len(used) + 1) if number not in used)
        if (slot + 1) * self.slot_size > self.samples.size:
            wait(self._uses)
            self.samples = np.concatenate([self.samples, np.zeros(self.slot_size, np.uint16)])
        return slot

    def _generate(self, picture: ParsedPicture, poc: int) -> None:
        """Generate a missing reference picture: all samples are half the range, and it has no motion.

        Clause 8.3.4.2, Generation of one unavailable picture.
        """
        reference = self._new(picture, poc)
        reference.missing = frozenset((poc,))
        at = reference.slot * self.slot_size
        self.samples[at : at + self.slot_size] = 1 << (picture.sps.bit_depth - 1)
        self.pictures.append(reference)

    def _new(self, picture: ParsedPicture, poc: int) -> ReferencePicture:
        """Return a picture of the size of `picture` in a free slot, which has no motion."""
        sps, pps = picture.sps, picture.pps
        height, width = pps.pps_pic_height_in_luma_samples, pps.pps_pic_width_in_luma_samples
        chroma = (height >> sps.log2_sub_height_c, width >> sps.log2_sub_width_c)
        sizes = [(height, width), *[chroma] * (2 if sps.sps_chroma_format_idc else 0)]
        return ReferencePicture(poc, self._free_slot(), sizes, pps.scaling_window, NO_MOTION)

    def _put_entry(self, entry: RefPicListEntry, reference: ReferencePicture, picture: ParsedPicture) -> None:
        """Set an entry of a list, except for its weights."""
        sps, pps = picture.sps, picture.pps
        entry.slot, entry.poc, entry.long_term = reference.slot, reference.poc, reference.long_term
        height, width = reference.sizes[0]
        entry.width, entry.height = width, height
        at = reference.slot * self.slot_size
        for component, (rows, columns) in enumerate(reference.sizes):
            entry.start[component], entry.stride[component] = at, columns
            at += rows * columns
        unit_x, unit_y = 1 << sps.log2_sub_width_c, 1 << sps.log2_sub_height_c
        full_w, full_h = pps.pps_pic_width_in_luma_samples, pps.pps_pic_height_in_luma_samples
        margins, ref_margins = pps.scaling_window, reference.window
        window_w = full_w - unit_x * (margins.left + margins.right)
        window_h = full_h - unit_y * (margins.top + margins.bottom)
        entry.scale_x = _scale(width - unit_x * (ref_margins.left + ref_margins.right), window_w)
        entry.scale_y = _scale(height - unit_y * (ref_margins.top + ref_margins.bottom), window_h)
        entry.scaled = (width, height, ref_margins) != (full_w, full_h, margins)
        entry.window_left, entry.window_top = unit_x * ref_margins.left, unit_y * ref_margins.top


def _scale(reference: int, current: int) -> int:
    """Return RefPicScale of a width or height of the scaling windows of a reference and the current picture.

    Part of clause 8.3.2, Decoding process for reference picture lists construction.

    A window of a damaged stream may be empty or too large, so the scale is limited to the range of the standard.
    """
    current = max(1, current)
    return min(2 << 14, max((1 << 14) >> 3, ((max(1, reference) << 14) + (current >> 1)) // current))
