"""Decoder of a VVC stream: pictures in decoding order in, decoded pictures in output order out (H.266 clause C.5.2)."""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from codecnn.base.ahead import one_worker
from codecnn.vvc.decoder.picture import (
    MOTION_PLANES,
    PLANES,
    PictureHook,
    Plane,
    Reconstruction,
    apply_hook,
    check_hook,
    check_planes,
    kinds_of,
    reconstruct_picture,
)
from codecnn.vvc.decoder.picture_buffer import PictureBuffer
from codecnn.vvc.decoder.picture_log import PictureLog
from codecnn.vvc.decoder.plane_memory import PlaneMemory
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
        missing: POCs of pictures not in the stream that it depends on, directly or through others: it may be wrong.
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

    poc: int
    picture: Future[DecodedPicture]
    latency: int = 0


@dataclass
class Decoder:
    """State of a decoder.

    If several threads may be used, the in-loop filters, hashes and planes of a picture are computed in another thread
    while the next picture begins. The pictures are the same with any number of threads. A decoder is a context manager,
    which ends the thread.

    Attributes:
        names: Planes to keep, of `PLANES` and `MOTION_PLANES`.
        hook: Filter of each picture after the in-loop filters, before it is output and used as a reference.
    """

    names: Sequence[str]
    hook: PictureHook | None = None
    _buffer: PictureBuffer = field(default_factory=PictureBuffer)
    _waiting: list[_Waiting] = field(default_factory=list)
    _worker: Executor = field(default_factory=one_worker)
    _unfinished: list[Future[Any]] = field(default_factory=list)
    _memory: PlaneMemory = field(default_factory=PlaneMemory)

    def __enter__(self) -> "Decoder":
        """Return the decoder."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the thread."""
        self._worker.shutdown(cancel_futures=True)

    @property
    def waiting(self) -> int:
        """Number of decoded pictures that wait for output."""
        return len(self._waiting)

    @property
    def slots(self) -> int:
        """Number of pictures that the memory of the reference pictures holds."""
        return self._buffer.slots

    def decode(self, picture: ParsedPicture, log: PictureLog) -> list[Future[DecodedPicture]]:
        """Decode the next picture in decoding order.

        Clause 8.1.2, Decoding process for a coded picture.
        Clause C.5.2.2, Output and removal of pictures from the DPB.

        Args:
            picture: The parsed picture.
            log: Its log, see `read_log`.

        Returns:
            Pictures to output before or with it, in output order. Those that are not done yet are by the end of the
            next call but one.

        Raises:
            ConfigError: A plane does not exist.
            FormatError: The slice data is damaged.
            UnsupportedError: The picture uses an unsupported tool, or was coded with a CNN filter in the loop and there
                is no hook.
        """
        check_planes(self.names, picture.sps, (*PLANES, *MOTION_PLANES))
        # Bounds the number of pictures in memory.
        while len(self._unfinished) > 1:
            self._unfinished.pop(0).result()
        finished = self.flush() if picture.first else []
        if picture.first:
            self._memory.clear()
        missing = self._buffer.begin(picture)
        dpb = picture.sps.dpb
        while self._waiting and self._fullness() >= dpb.size:
            finished.append(self._next())
        check_hook(picture, self.hook)
        reference, slot = self._buffer.reserve(picture)
        target = [] if self.hook is not None else slot
        decoded = reconstruct_picture(
            picture, log, self._buffer, self._worker, self._memory, target, kept=kinds_of(self.names)
        )
        stored = self._worker.submit(_raise_errors, decoded.filtering)
        if self.hook is not None:
            apply_hook(decoded, self.hook)
            for plane, samples in zip(slot, decoded.reference, strict=True):
                plane[...] = samples
        finish: Future[Any] = stored
        if picture.output:
            finish = record = self._worker.submit(self._record, decoded, missing)
            for waiting in self._waiting:
                waiting.latency += 1
            self._waiting.append(_Waiting(picture.poc, record))
        self._unfinished.append(finish)
        self._buffer.store(reference, decoded.frame, decoded.lists, picture.is_intra, stored, finish)
        if self.hook is None:
            # A hook may keep the planes that it gets.
            self._worker.submit(self._memory.give_back, decoded.arrays())
        while self._waiting and self._must_output(dpb):
            finished.append(self._next())
        return finished

    def flush(self) -> list[Future[DecodedPicture]]:
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
        return len(references | {waiting.poc for waiting in self._waiting})

    def _next(self) -> Future[DecodedPicture]:
        """Remove and return the waiting picture of the smallest POC.

        Clause C.5.2.4, "Bumping" process.
        """
        first = min(range(len(self._waiting)), key=lambda i: self._waiting[i].poc)
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


def _raise_errors(parts: list[Future[None]]) -> None:
    """Raise the exception of work that is done, if there is one."""
    for part in parts:
        part.result()


def hash_state(decoded: Reconstruction) -> HashState:
    """Compare a filtered picture with the hashes in the stream, those of the picture or of all its subpictures."""
    if not decoded.proven:
        return "differs"
    picture = decoded.picture
    areas = _areas(picture)
    # A damaged stream may repeat a hash.
    hashes = {each for each in picture.hashes if each.subpicture in areas}
    for each in hashes:
        planes = [plane[area] for plane, area in zip(decoded.reference, areas[each.subpicture], strict=True)]
        if not each.equals(planes, picture.sps.bit_depth):
            return "differs"
    compared = {each.subpicture for each in hashes}
    return "ok" if None in compared or compared == areas.keys() - {None} else "none"


def _areas(picture: ParsedPicture) -> dict[int | None, list[tuple[slice, slice]]]:
    """Return the samples of the subpictures in each component by subpicture ID; those of the picture by None."""
    sps = picture.sps
    shifts = [(0, 0), *[(sps.log2_sub_width_c, sps.log2_sub_height_c)] * (2 if sps.sps_chroma_format_idc else 0)]
    areas: dict[int | None, list[tuple[slice, slice]]] = {None: [(slice(None), slice(None))] * len(shifts)}
    for number, s in zip(picture.pps.subpic_ids, sps.subpictures, strict=True):
        edges = [value << sps.ctb_log2_size_y for value in (s.x, s.x + s.width, s.y, s.y + s.height)]
        areas[number] = [
            (slice(edges[2] >> down, edges[3] >> down), slice(edges[0] >> right, edges[1] >> right))
            for right, down in shifts
        ]
    return areas
