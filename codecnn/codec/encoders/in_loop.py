"""Low delay VVC with a filter inside the loop: libvvenc's reconstruction callback hands out the reference itself.

What makes this a loop (libvvenc 1.15, source/Lib/EncoderLib/EncGOP.cpp, processPictures): without threads and without
frame parallelism it codes one picture, calls back, and only then begins the next; with PicReordering=0 pictures come in
coding order. So the settings below are not a matter of taste.

The margins around a picture, which motion over the edge reads, are the encoder's own affair: it makes them as it ends
each row of CTUs (EncSlice.cpp, CCALF_RECONSTRUCT), before the callback, and never again. Left alone they would go on
showing the picture before the filter. So they are written anew here, once they are found where and as they should be.
"""

import ctypes
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from codecnn.codec.base import CodecSettings, CodedPicture, coded_format
from codecnn.codec.checks import prove_picture, prove_slice_qp
from codecnn.codec.encoders.jvet import parse_log
from codecnn.codec.encoders.libvvenc import PRESETS, normalised_log, vvenc_params
from codecnn.codec.encoders.vvenc_library import (
    CHROMA_FORMATS,
    AccessUnit,
    LogCallback,
    PictureCallback,
    Plane,
    VvencLibrary,
    YuvBuffer,
)
from codecnn.errors import ConfigError, EncoderError, FormatError
from codecnn.runs import atomic_path, write_text
from codecnn.video import Picture, VideoFormat, convert

LOOP_PARAMS = {
    "Threads": "0",
    "MaxParallelFrames": "0",
    "WaveFrontSynchro": "0",
    "PicReordering": "0",
    # Of the pictures before the filter: in the stream it would contradict those that a decoder has to show.
    "SEIDecodedPictureHash": "log_md5",
}
"""What the loop needs, whatever else is asked for: no picture begun before the callback of the one before it."""

LoopFilter = Callable[[CodedPicture, Picture], Picture]
"""Makes of a picture, as the encoder reconstructed it, the one that is shown and predicted from.

It also gets the encoder's line on the picture: POC, slice type, slice QP, bits.
"""

_ERROR = 1
"""VVENC_ERROR of vvencMsgLevel."""

_MARGIN = 16
"""Luma samples of margin on each side of a reference picture, beyond a CTU (EncStage.h, Picture::create)."""

_ALIGNMENT = 32
"""Samples to a multiple of which a row is made long (MEMORY_ALIGN_DEF_SIZE of CommonDef.h)."""

DECISIONS = "decisions.vtmbmsstats"
"""The file of what was decided of the filter, beside a stream."""

BLOCK = 8
"""Side of the smallest coding block: a picture is padded to whole ones, and the callback does not show the padding."""


def code_in_loop(
    library: VvencLibrary,
    originals: Sequence[Picture],
    video_format: VideoFormat,
    settings: CodecSettings,
    bitstream: Path,
    filter_: LoopFilter | None,
    log: Path | None = None,
) -> tuple[tuple[CodedPicture, ...], float]:
    """Code `originals` into the file `bitstream`, every picture predicted from those that `filter_` made.

    `filter_` is called picture by picture in the order of the file, and None registers no callback. Returns the
    encoder's line on each picture, before the filter, and its processor time in seconds without the filter's. `log`,
    where it is given, is written as the encoder told it.

    Raises ConfigError or FormatError for what cannot be coded so, EncoderError where the library fails, and where its
    log does not prove the slice QPs, or the MD5 and PSNR of the samples that `filter_` gets; what `filter_` raises goes
    through. No file is left then.
    """
    _check(video_format, settings)
    form = coded_format(video_format, settings)
    encoder = _Encoder(library, form, settings)
    with atomic_path(bitstream) as part:
        with part.open("wb") as file:
            encoder.run(originals, file, filter_)
        name = f"{bitstream.name} at QP {settings.qp}"
        prove_slice_qp(encoder.pictures, settings, name)
        called = len(originals) if filter_ is None else encoder.called
        if not len(encoder.pictures) == called == len(originals):
            raise EncoderError(
                f"{name}: of {len(originals)} pictures {len(encoder.pictures)} were coded, {called} shown"
            )
        if log is not None:
            write_text(log, normalised_log("".join(encoder.lines), ""))
    return tuple(encoder.pictures), encoder.seconds


def _check(video_format: VideoFormat, settings: CodecSettings) -> None:
    if settings.configuration != "ldb":
        raise ConfigError(
            f"a filter inside the loop needs the configuration ldb, not {settings.configuration}: libvvenc hands out "
            "pictures in the order they are shown, and only low delay codes them in that order"
        )
    if settings.ctc:
        raise ConfigError("a filter inside the loop goes without ctc: its temporal pre-filter looks at later pictures")
    if settings.ctu_size is None:
        raise ConfigError("a filter inside the loop needs a CTU size, for references have margins by it")
    if video_format.chroma not in CHROMA_FORMATS:
        raise ConfigError(f"libvvenc codes 4:2:0 and 4:0:0 in the loop, not {video_format.chroma}")
    if video_format.width % BLOCK or video_format.height % BLOCK:
        raise FormatError(
            f"a filter inside the loop needs width and height that are multiples of {BLOCK}, not "
            f"{video_format.width}x{video_format.height}: libvvenc does not hand out the samples it pads with"
        )


def loop_params(settings: CodecSettings, form: VideoFormat) -> dict[str, str]:
    """What the library is told beside size, QP and preset, in its own names; `form` is that of the coded pictures."""
    rate = form.fps or 30
    told = {"InputBitDepth": str(form.bit_depth), "qpa": "0", "fps": f"{rate.numerator}/{rate.denominator}"}
    return told | vvenc_params(settings, form) | LOOP_PARAMS


class _Encoder:
    """An encoder of the library that is open, and what its callbacks have told so far."""

    def __init__(self, library: VvencLibrary, form: VideoFormat, settings: CodecSettings) -> None:
        self.library, self.form, self.settings = library, form, settings
        self.lines: list[str] = []
        self.complaint: str | None = None
        self.pictures: list[CodedPicture] = []
        self.called = 0
        self.seconds = 0.0
        self.error: BaseException | None = None
        self.originals: Sequence[Picture] = ()
        self.filter: LoopFilter | None = None
        # ctypes keeps no reference to a callback, and the library calls it as long as the encoder is open.
        self.hear, self.receive = LogCallback(self._hear), PictureCallback(self._receive)

    def run(self, originals: Sequence[Picture], file: BinaryIO, filter_: LoopFilter | None) -> None:
        """Feed all pictures, and write what comes out."""
        functions = self.library.functions
        self.originals, self.filter = originals, filter_
        config = self._config()
        encoder = functions.vvenc_encoder_create()
        if not encoder:
            raise EncoderError("libvvenc did not make an encoder")
        buffer, unit = functions.vvenc_YUVBuffer_alloc(), functions.vvenc_accessUnit_alloc()
        try:
            self._done(functions.vvenc_encoder_open(encoder, config), encoder, "opening the encoder")
            if filter_ is not None:
                functions.vvenc_encoder_set_RecYUVBufferCallback(encoder, None, self.receive)
            functions.vvenc_YUVBuffer_alloc_buffer(
                buffer, CHROMA_FORMATS[self.form.chroma], self.form.width, self.form.height
            )
            # More than a picture ever takes: its samples, twice, and headers.
            functions.vvenc_accessUnit_alloc_payload(unit, 8 * self.form.width * self.form.height + 100_000)
            done = ctypes.c_bool(False)
            number = 0
            while not done.value:
                given = None
                if number < len(originals):
                    self._fill(buffer.contents, number)
                    given, number = buffer, number + 1
                # It codes in this thread, and in no other.
                self.seconds -= time.thread_time()
                status = functions.vvenc_encode(encoder, given, unit, ctypes.byref(done))
                self.seconds += time.thread_time()
                if self.error is not None:
                    raise self.error
                self._done(status, encoder, f"coding picture {number - 1}")
                _write(unit.contents, file)
        finally:
            functions.vvenc_encoder_close(encoder)
            functions.vvenc_YUVBuffer_free(buffer, True)
            functions.vvenc_accessUnit_free(unit, True)

    def _config(self) -> Any:
        functions, settings, form = self.library.functions, self.settings, self.form
        config = self.library.config()
        params = loop_params(settings, form)
        # vvencPresetMode counts the presets from faster on, as PRESETS lists them.
        preset = PRESETS.index(settings.preset)
        functions.vvenc_init_default(config, form.width, form.height, 30, 0, settings.qp, preset)
        functions.vvenc_set_msg_callback(config, None, self.hear)
        for name, value in params.items():
            if functions.vvenc_set_param(config, name.encode(), value.encode()):
                raise ConfigError(f"libvvenc does not take the parameter {name}={value}")
        return config

    def _done(self, status: int, encoder: int, what: str) -> None:
        if status:
            functions = self.library.functions
            text = functions.vvenc_get_last_error(encoder) or functions.vvenc_get_error_msg(status)
            told = self.complaint or text.decode(errors="replace").strip()
            raise EncoderError(f"{what} at QP {self.settings.qp} failed in libvvenc: {told}")

    def _fill(self, buffer: YuvBuffer, number: int) -> None:
        original = convert(self.originals[number], self.form.bit_depth)
        for plane, samples in zip(buffer.planes, original.planes, strict=False):
            _samples(plane)[...] = samples
        buffer.sequence_number, buffer.cts_valid = number, False

    def _hear(self, _: Any, level: int, text: bytes, arguments: Any) -> None:
        """A message of the library: a line a picture, which comes before the picture itself, and errors."""
        try:
            line = _formatted(text, arguments)
            if line.startswith("POC"):
                self.lines.append(line)
                planes = 1 if self.form.chroma == "400" else 3
                self.pictures += parse_log(line, planes)
            elif level == _ERROR:
                self.complaint = self.complaint or line.strip()
        except BaseException as error:
            self.error = self.error or error

    def _receive(self, _: Any, buffer: Any) -> None:
        """The reference picture itself: what is written into it is what the next picture predicts from."""
        # An exception cannot cross the library, so it waits until vvenc_encode has returned.
        if self.error is not None:
            return
        start = time.thread_time()
        try:
            number, self.called = self.called, self.called + 1
            if buffer.contents.sequence_number != number or len(self.pictures) != self.called:
                raise EncoderError(
                    f"libvvenc handed out picture {buffer.contents.sequence_number} after coding "
                    f"{len(self.pictures)}, which is no loop: picture {number} was to come"
                )
            assert self.settings.ctu_size is not None
            planes = [
                _Reference.of(plane, self.form, index, self.settings.ctu_size)
                for index, plane in enumerate(buffer.contents.planes[: len(self.form.plane_shapes)])
            ]
            coded = self.pictures[number]
            decoded = Picture(tuple(plane.samples.astype(self.form.dtype) for plane in planes), self.form.bit_depth)
            original = convert(self.originals[number], self.form.bit_depth)
            prove_picture(f"QP {self.settings.qp}", coded, original, decoded)
            assert self.filter is not None
            filtered = self.filter(coded, decoded)
            self._check_filtered(filtered, number)
            for plane, samples in zip(planes, filtered.planes, strict=True):
                plane.replace(samples)
        except BaseException as error:
            self.error = error
        self.seconds -= time.thread_time() - start

    def _check_filtered(self, filtered: Picture, number: int) -> None:
        shapes = tuple(plane.shape for plane in filtered.planes)
        if filtered.bit_depth != self.form.bit_depth or shapes != self.form.plane_shapes:
            raise FormatError(
                f"the filter makes planes of {shapes}, {filtered.bit_depth} bit, of picture {number}: "
                f"it was to keep {self.form}"
            )
        if any(int(plane.min()) < 0 or int(plane.max()) >= 1 << self.form.bit_depth for plane in filtered.planes):
            raise FormatError(f"the filter makes samples of picture {number} that are not of {filtered.bit_depth} bit")


@dataclass(frozen=True, eq=False)
class _Reference:
    """A plane of a reference picture in the library's memory: `whole` (h + 2m, w + 2m) has its margins of m samples."""

    whole: NDArray[np.int16]
    margin: int

    @classmethod
    def of(cls, plane: Plane, form: VideoFormat, index: int, ctu: int) -> Self:
        """The plane `index` of a picture of `form`; raises EncoderError unless it lies as it is known, margins made.

        PelStorage::create of CommonLib/Buffer.cpp: rows hold whole CTUs and both margins, made long for alignment.
        """
        height, width = form.plane_shapes[index]
        shift = 1 if index else 0
        margin = (ctu + _MARGIN) >> shift
        row = (-(-form.width // ctu) * ctu >> shift) + 2 * margin
        stride = -(-row // _ALIGNMENT) * _ALIGNMENT
        told = (plane.height, plane.width, plane.stride)
        if told != (height, width, stride):
            raise EncoderError(
                f"libvvenc handed out {'YUV'[index]} as {told} rows, columns and stride, not "
                f"{(height, width, stride)}: its references do not lie as those of the version that is known"
            )
        first = ctypes.addressof(plane.ptr.contents) - 2 * margin * (stride + 1)
        count = (height + 2 * margin - 1) * stride + width + 2 * margin
        flat = np.ctypeslib.as_array((ctypes.c_int16 * count).from_address(first))
        whole = np.lib.stride_tricks.as_strided(flat, (height + 2 * margin, width + 2 * margin), (2 * stride, 2))
        made = cls(whole, margin)
        if not np.array_equal(whole, np.pad(made.samples, margin, mode="edge")):
            raise EncoderError(f"libvvenc did not extend {'YUV'[index]} by {margin} samples, as the known version does")
        return made

    @property
    def samples(self) -> NDArray[np.int16]:
        """The picture's own samples (h, w)."""
        return self.whole[self.margin : -self.margin, self.margin : -self.margin]

    def replace(self, samples: NDArray[Any]) -> None:
        """Put others (h, w) in their place, and what they extend to in that of the margins."""
        self.whole[...] = np.pad(samples, self.margin, mode="edge")


def _samples(plane: Plane) -> NDArray[np.int16]:
    """The samples (h, w) of a plane that goes into the library, in place."""
    # The last row may end where the memory does, so it counts no further than its width.
    flat = np.ctypeslib.as_array(plane.ptr, ((plane.height - 1) * plane.stride + plane.width,))
    return np.lib.stride_tricks.as_strided(flat, (plane.height, plane.width), (2 * plane.stride, 2))


def _write(unit: AccessUnit, file: BinaryIO) -> None:
    if unit.payload_used:
        file.write(ctypes.string_at(unit.payload, unit.payload_used))


@functools.cache
def _vsnprintf() -> Any:
    return ctypes.CDLL(None).vsnprintf


def _formatted(text: bytes, arguments: Any) -> str:
    """A message of C: its format and a va_list, which on every ABI of 64 bits is handed over as a pointer."""
    buffer = ctypes.create_string_buffer(4096)
    _vsnprintf()(buffer, ctypes.c_size_t(len(buffer)), text, ctypes.c_void_p(arguments))
    return buffer.value.decode(errors="replace")
