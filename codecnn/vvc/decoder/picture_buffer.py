"""Decoded picture buffer: marking of reference pictures and missing ones (H.266 clauses 8.3.2 to 8.3.4).

One array holds the samples of all pictures in slots of equal size. A slot is used again, so the memory does not grow
with the stream.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import FormatError
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder.frame import Frame
from codecnn.vvc.decoder.temporal_motion import stored_motion
from codecnn.vvc.syntax import ConformanceWindow, ParsedPicture, SequenceParameterSet, Slice

Plane = npt.NDArray[np.int32]

NO_MOTION = np.zeros((fr.STORED, 0, 0), np.int32)
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
        missing: It was not decoded but generated, because a list refers to it.
    """

    poc: int
    slot: int
    sizes: list[tuple[int, int]]
    window: ConformanceWindow
    motion: npt.NDArray[np.int32]
    long_term: bool = False
    missing: bool = False


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

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self.samples.size // self.slot_size

    def begin(self, picture: ParsedPicture) -> tuple[int, ...]:
        """Mark the reference pictures of a picture before it is decoded, and generate missing ones.

        Args:
            picture: The picture.

        Returns:
            POCs of the pictures that the slices refer to, but that were not decoded.

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
        for poc in missing:
            self._generate(picture, poc)
        for kept in self.pictures:
            kept.long_term = wanted[kept.poc]
        active = {poc for part in picture.slices for entries in part.references for _, poc in entries}
        return tuple(kept.poc for kept in self.pictures if kept.missing and kept.poc in active)

    def put_references(self, p: npt.NDArray[np.int64], part: Slice, picture: ParsedPicture) -> npt.NDArray[np.int32]:
        """Set the reference picture lists of a slice in `Frame.p`.

        Args:
            p: Numbers of the picture.
            part: The slice.
            picture: Its picture.

        Returns:
            `Frame.collocated` of the slice.
        """
        by_poc = {kept.poc: kept for kept in self.pictures}
        p[fr.LISTS_OF_REFERENCES : fr.LISTS_OF_REFERENCES + 2 * 16 * fr.REFERENCE] = 0
        weights = part.header.weights
        plain = (1 << weights.log2_denominator, 0, *(1 << weights.log2_denominator_c, 0) * 2)
        for number, entries in enumerate(part.references):
            for i, (_, poc) in enumerate(entries):
                at = fr.LISTS_OF_REFERENCES + fr.REFERENCE * (16 * number + i)
                self._put_entry(p[at : at + fr.REFERENCE], by_poc[poc], picture)
                listed = weights.lists[number]
                values = np.array(listed[i].values if i < len(listed) else plain)
                values[1::2] <<= picture.sps.bit_depth - 8
                p[at + fr.REF_WEIGHT : at + fr.REF_WEIGHT + 6] = values
                p[at + fr.REF_WEIGHTED] = i < len(listed) and listed[i].weighted
        number, index = part.header.collocated
        if not p[fr.TEMPORAL] or index >= len(part.references[number]):
            return NO_MOTION
        return by_poc[part.references[number][index][1]].motion

    def store(
        self, picture: ParsedPicture, frame: Frame, planes: list[Plane], lists: list[npt.NDArray[np.int64]]
    ) -> None:
        """Store a decoded picture as a short-term reference picture.

        Args:
            picture: The picture.
            frame: Its state after decoding.
            planes: Its components after the in-loop filters, each (h, w).
            lists: For each slice its p[LISTS_OF_REFERENCES :].
        """
        slot = self._free_slot()
        at = slot * self.slot_size
        for plane in planes:
            self.samples[at : at + plane.size].reshape(plane.shape)[...] = plane
            at += plane.size
        motion = NO_MOTION if picture.is_intra else stored_motion(frame, lists)
        sizes = [(int(plane.shape[0]), int(plane.shape[1])) for plane in planes]
        self.pictures = [kept for kept in self.pictures if kept.poc != picture.poc]
        self.pictures.append(ReferencePicture(picture.poc, slot, sizes, picture.pps.scaling_window, motion))

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
            self.samples = np.concatenate([self.samples, np.zeros(self.slot_size, np.uint16)])
        return slot

    def _generate(self, picture: ParsedPicture, poc: int) -> None:
        """Generate a missing reference picture (8.3.4.2): all samples are half the range, and it has no motion."""
        sps, pps = picture.sps, picture.pps
        height, width = pps.pps_pic_height_in_luma_samples, pps.pps_pic_width_in_luma_samples
        chroma = (height >> sps.log2_sub_height_c, width >> sps.log2_sub_width_c)
        sizes = [(height, width), *[chroma] * (2 if sps.sps_chroma_format_idc else 0)]
        slot = self._free_slot()
        self.samples[slot * self.slot_size : (slot + 1) * self.slot_size] = 1 << (sps.bit_depth - 1)
        self.pictures.append(ReferencePicture(poc, slot, sizes, pps.scaling_window, NO_MOTION, missing=True))

    def _put_entry(self, entry: npt.NDArray[np.int64], reference: ReferencePicture, picture: ParsedPicture) -> None:
        """Set the numbers of an entry of a list, except for its weights."""
        sps, pps = picture.sps, picture.pps
        entry[fr.REF_SLOT], entry[fr.REF_POC] = reference.slot, reference.poc
        entry[fr.REF_LONG_TERM] = reference.long_term
        height, width = reference.sizes[0]
        entry[fr.REF_WIDTH], entry[fr.REF_HEIGHT] = width, height
        at = reference.slot * self.slot_size
        for component, (rows, columns) in enumerate(reference.sizes):
            entry[fr.REF_AT + component], entry[fr.REF_STRIDE + component] = at, columns
            at += rows * columns
        unit_x, unit_y = 1 << sps.log2_sub_width_c, 1 << sps.log2_sub_height_c
        full_w, full_h = pps.pps_pic_width_in_luma_samples, pps.pps_pic_height_in_luma_samples
        margins, ref_margins = pps.scaling_window, reference.window
        window_w = full_w - unit_x * (margins.left + margins.right)
        window_h = full_h - unit_y * (margins.top + margins.bottom)
        entry[fr.REF_SCALE_X] = _scale(width - unit_x * (ref_margins.left + ref_margins.right), window_w)
        entry[fr.REF_SCALE_Y] = _scale(height - unit_y * (ref_margins.top + ref_margins.bottom), window_h)
        entry[fr.REF_SCALED] = (width, height, ref_margins) != (full_w, full_h, margins)
        entry[fr.REF_LEFT], entry[fr.REF_TOP] = unit_x * ref_margins.left, unit_y * ref_margins.top


def _scale(reference: int, current: int) -> int:
    """Return RefPicScale (8.3.2) of a width or height of the scaling windows of a reference and the current picture.

    A window of a damaged stream may be empty or too large, so the scale is limited to the range of the standard.
    """
    current = max(1, current)
    return min(2 << 14, max((1 << 14) >> 3, ((max(1, reference) << 14) + (current >> 1)) // current))
