"""Decoder of a VVC stream: pictures in decoding order in, decoded pictures in output order out (H.266 clause C.5.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from codecnn.vvc.decoder.picture import (
    MOTION_PLANES,
    PLANES,
    PictureHook,
    Plane,
    Reconstruction,
    check_planes,
    reconstruct_picture,
)
from codecnn.vvc.decoder.picture_buffer import PictureBuffer
from codecnn.vvc.syntax import CHROMA_FORMATS, DpbParameters, ParsedPicture

HashState = Literal["ok", "differs", "none"]
"""Comparison of a picture with its decoded picture hash: equal, different, or the stream has no hash of it."""

_GENERALITY = "IPB"


@dataclass(frozen=True)
class DecodedPicture:
    """A decoded picture.

    Attributes:
        poc: Picture order count, unique within its coded video sequence.
        cvs: Number of the coded video sequence in the stream, from 0.
        slice_type: Most general type of its slices: I, P or B.
        slice_qps: SliceQpY of its slices.
        bit_depth: Bit depth of the samples.
        chroma: Chroma format: 400, 420, 422 or 444.
        hash: Comparison with the hash in the stream.
        missing: POCs of reference pictures that the stream does not contain; the picture is not reliable if it has any.
        planes: Planes by name, cropped to the conformance window.
    """

    poc: int
    cvs: int
    slice_type: str
    slice_qps: tuple[int, ...]
    bit_depth: int
    chroma: str
    hash: HashState
    missing: tuple[int, ...]
    planes: dict[str, Plane]


@dataclass
class _Waiting:
    """A picture that waits for output, and the number of pictures decoded since."""

    picture: DecodedPicture
    latency: int = 0


@dataclass
class Decoder:
    """State of a decoder.

    Attributes:
        names: Planes to keep, of `PLANES` and `MOTION_PLANES`.
        hook: Filter of each picture after the in-loop filters, before it is output and used as a reference.
    """

    names: Sequence[str]
    hook: PictureHook | None = None
    _buffer: PictureBuffer = field(default_factory=PictureBuffer)
    _waiting: list[_Waiting] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """Number of decoded pictures that wait for output."""
        return len(self._waiting)

    @property
    def slots(self) -> int:
        """Number of pictures that the memory of the reference pictures holds."""
        return self._buffer.slots

    def decode(self, picture: ParsedPicture) -> list[DecodedPicture]:
        """Decode the next picture in decoding order.

        Clause 8.1.2, Decoding process for a coded picture.
        Clause C.5.2.2, Output and removal of pictures from the DPB.

        Args:
            picture: The parsed picture.

        Returns:
            Pictures to output before or with it, in output order.

        Raises:
            ConfigError: A plane does not exist.
            FormatError: The slice data is damaged.
            UnsupportedError: The picture uses an unsupported tool, or was coded with a CNN filter in the loop and there
                is no hook.
        """
        check_planes(self.names, picture.sps, (*PLANES, *MOTION_PLANES))
        finished = self.flush() if picture.first else []
        missing = self._buffer.begin(picture)
        dpb = picture.sps.dpb
        while self._waiting and self._fullness() >= dpb.size:
            finished.append(self._next())
        decoded = reconstruct_picture(picture, self._buffer, True, hook=self.hook)
        self._buffer.store(picture, decoded.frame, decoded.reference, decoded.lists)
        if picture.output:
            for waiting in self._waiting:
                waiting.latency += 1
            self._waiting.append(_Waiting(self._record(decoded, missing)))
        while self._waiting and self._must_output(dpb):
            finished.append(self._next())
        return finished

    def flush(self) -> list[DecodedPicture]:
        """Return the pictures that wait for output, at the end of a coded video sequence or of the stream."""
        return [self._next() for _ in range(len(self._waiting))]

    def _must_output(self, dpb: DpbParameters) -> bool:
        """Return True if more pictures wait, or one waits longer, than the SPS allows.

        Clause C.5.2.3, Picture decoding, marking, additional bumping and storage.
        """
        if len(self._waiting) > dpb.reorder:
            return True
        longest = max(waiting.latency for waiting in self._waiting)
        return dpb.latency_plus1 > 0 and longest >= dpb.reorder + dpb.latency_plus1 - 1

    def _fullness(self) -> int:
        """Return the number of pictures in the buffer: reference pictures, and pictures that wait for output."""
        references = {kept.poc for kept in self._buffer.pictures}
        return len(references | {waiting.picture.poc for waiting in self._waiting})

    def _next(self) -> DecodedPicture:
        """Remove and return the waiting picture of the smallest POC.

        Clause C.5.2.4, "Bumping" process.
        """
        first = min(range(len(self._waiting)), key=lambda i: self._waiting[i].picture.poc)
        return self._waiting.pop(first).picture

    def _record(self, decoded: Reconstruction, missing: tuple[int, ...]) -> DecodedPicture:
        picture = decoded.picture
        headers = [part.header for part in picture.slices]
        return DecodedPicture(
            picture.poc,
            picture.cvs,
            max((header.slice_type for header in headers), key=_GENERALITY.index),
            tuple(header.slice_qp_y for header in headers),
            picture.sps.bit_depth,
            CHROMA_FORMATS[picture.sps.sps_chroma_format_idc],
            hash_state(decoded),
            missing,
            decoded.planes(self.names),
        )


def hash_state(decoded: Reconstruction) -> HashState:
    """Compare a filtered picture with the hashes in the stream."""
    if not decoded.proven:
        return "differs"
    hashes = decoded.picture.hashes
    if not hashes:
        return "none"
    depth = decoded.picture.sps.bit_depth
    planes = [plane.astype("<u2") for plane in decoded.reference]
    return "ok" if all(each.equals(planes, depth) for each in hashes) else "differs"
