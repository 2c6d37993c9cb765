"""Low delay VVC with a filter inside the coding loop.

`code_in_loop` uses libvvenc as a shared library, whose reconstruction callback provides the reference picture itself.

The callback works as a loop because of processPictures in source/Lib/EncoderLib/EncGOP.cpp of libvvenc 1.15: without
threads and frame parallelism the encoder codes one picture, calls back, and only then begins the next one. With
PicReordering=0 the pictures are in coding order. LOOP_PARAMS are therefore required.

Motion vectors across the border read the margins around a reference picture. The encoder fills them at the end of each
CTU row (EncSlice.cpp, CCALF_RECONSTRUCT), before the callback, and not again, so they would keep the unfiltered
picture. `ReferencePlane` verifies their layout and content, and writes them again after the filter.
"""

import ctypes
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from codecnn.base.errors import ConfigError, EncoderError, FormatError
from codecnn.base.files import atomic_path, write_text
from codecnn.codec import (
    CODING_BLOCK_SIZE,
    VVENC_PRESETS,
    CodecSettings,
    CodedPicture,
    coded_format,
    normalise_library_log,
    parse_log,
    verify_picture,
    verify_slice_qp,
    vvenc_params,
)
from codecnn.pictures.files import Picture, VideoFormat, convert
from codecnn.signalling.in_loop.vvenc_library import (
    CHROMA_FORMATS,
    AccessUnit,
    LogCallback,
    PictureCallback,
    ReferencePlane,
    VvencLibrary,
    YuvBuffer,
    format_message,
    plane_samples,
)

LOOP_PARAMS = {
    "Threads": "0",
    "MaxParallelFrames": "0",
    "WaveFrontSynchro": "0",
    "PicReordering": "0",
    # The hash is that of the picture before the filter, so it must not be in the stream; `AddMessages` may add that of
    # the picture after the filter.
    "SEIDecodedPictureHash": "log_md5",
}
"""Parameters that the loop requires, so that no picture is begun before the callback of the preceding one."""

LoopFilter = Callable[[CodedPicture, Picture], Picture]
"""A filter inside the loop.

It takes the encoder's log entry of a picture (POC, slice type, slice QP, bits) and the reconstructed picture, and
returns the picture that is output and used as reference.
"""

AddMessages = Callable[[int, bytes], bytes]
"""A function that adds messages to the access unit of the picture with a given number, called after its filter."""

_ERROR = 1
"""VVENC_ERROR of vvencMsgLevel."""


def code_in_loop(
    library: VvencLibrary,
    originals: Sequence[Picture],
    video_format: VideoFormat,
    settings: CodecSettings,
    bitstream: Path,
    filter_: LoopFilter | None,
    log: Path | None = None,
    messages: AddMessages | None = None,
) -> tuple[tuple[CodedPicture, ...], float]:
    """Code pictures with a filter inside the loop: every picture is predicted from filtered pictures.

    Args:
        library: libvvenc.
        originals: Original pictures.
        video_format: Format of the originals.
        settings: Settings of the encode; the configuration must be "ldb".
        bitstream: Output file. It is written completely or not at all.
        filter_: Filter, called for every picture in output order; None codes without a filter. Its exceptions
            propagate.
        log: File for the normalised log of the encoder.
        messages: Adds messages to the access units of the encoder.

    Returns:
        The log entry of every picture, which describes the picture before the filter, and the processor time of the
        encoder in seconds, without that of the filter.

    Raises:
        ConfigError: The loop cannot be coded with these settings.
        FormatError: It cannot be coded with this picture size, or the filter returns a picture of another format.
        EncoderError: The library fails, or its log does not confirm the slice QPs, or MD5 and PSNR of the samples
            that the filter receives.
    """
    _check_settings(video_format, settings)
    encoder = _Encoder(library, coded_format(video_format, settings), settings)
    with atomic_path(bitstream) as part:
        with part.open("wb") as file:
            encoder.run(originals, file, filter_, messages)
        name = f"{bitstream.name} at QP {settings.qp}"
        verify_slice_qp(encoder.pictures, settings, name)
        returned = len(originals) if filter_ is None else encoder.returned
        if not len(encoder.pictures) == returned == len(originals):
            raise EncoderError(
                f"{name}: of {len(originals)} pictures {len(encoder.pictures)} were coded and {returned} returned"
            )
        if messages is not None and encoder.written != len(originals):
            raise EncoderError(f"{name}: {encoder.written} access units were written for {len(originals)} pictures")
        if log is not None:
            write_text(log, normalise_library_log("".join(encoder.lines), ""))
    return tuple(encoder.pictures), encoder.seconds


def _check_settings(video_format: VideoFormat, settings: CodecSettings) -> None:
    if settings.configuration != "ldb":
        raise ConfigError(
            f"a filter inside the loop needs the configuration ldb, not {settings.configuration}: libvvenc returns "
            "pictures in output order, and only low delay codes them in that order"
        )
    if settings.ctc:
        raise ConfigError("a filter inside the loop excludes ctc: its temporal pre-filter uses later pictures")
    if settings.ctu_size is None:
        raise ConfigError("a filter inside the loop needs a CTU size, because the margins of references depend on it")
    if video_format.chroma not in CHROMA_FORMATS:
        raise ConfigError(f"libvvenc codes 4:2:0 and 4:0:0 in the loop, not {video_format.chroma}")
    if video_format.width % CODING_BLOCK_SIZE or video_format.height % CODING_BLOCK_SIZE:
        raise FormatError(
            f"a filter inside the loop needs width and height that are multiples of {CODING_BLOCK_SIZE}, not "
            f"{video_format.width}x{video_format.height}: libvvenc does not return the samples of its padding"
        )


def loop_params(settings: CodecSettings, video_format: VideoFormat) -> dict[str, str]:
    """Return the parameters of libvvenc in the loop other than size, QP and preset; a pure function.

    Args:
        settings: Settings of the encode.
        video_format: Format of the coded pictures.

    Returns:
        Values by the encoder's own names.
    """
    rate = video_format.fps or 30
    params = {"InputBitDepth": str(video_format.bit_depth), "qpa": "0", "fps": f"{rate.numerator}/{rate.denominator}"}
    return params | vvenc_params(settings, video_format) | LOOP_PARAMS


class _Encoder:
    """An open encoder of the library, and the results of its callbacks.

    Attributes:
        lines: Log lines of the pictures.
        pictures: Log entries of the pictures.
        returned: Number of pictures that the reconstruction callback received.
        written: Number of access units in the bitstream.
        seconds: Processor time of the encoder without the filter.
        message: First error message of the library.
        error: First exception in a callback.
    """

    def __init__(self, library: VvencLibrary, video_format: VideoFormat, settings: CodecSettings) -> None:
        self.library, self.format, self.settings = library, video_format, settings
        self.lines: list[str] = []
        self.message: str | None = None
        self.pictures: list[CodedPicture] = []
        self.returned = 0
        self.seconds = 0.0
        self.error: BaseException | None = None
        self.originals: Sequence[Picture] = ()
        self.filter: LoopFilter | None = None
        self.written = 0
        # ctypes keeps no reference to a callback, and the library calls it as long as the encoder is open.
        self.log_callback, self.picture_callback = LogCallback(self._on_message), PictureCallback(self._on_picture)

    def run(
        self,
        originals: Sequence[Picture],
        file: BinaryIO,
        filter_: LoopFilter | None,
        messages: AddMessages | None,
    ) -> None:
        """Code all pictures and write the bitstream."""
        functions = self.library.functions
        self.originals, self.filter = originals, filter_
        config = self._config()
        encoder = functions.vvenc_encoder_create()
        if not encoder:
            raise EncoderError("libvvenc did not create an encoder")
        buffer, unit = functions.vvenc_YUVBuffer_alloc(), functions.vvenc_accessUnit_alloc()
        try:
            self._check_status(functions.vvenc_encoder_open(encoder, config), encoder, "opening the encoder")
            if filter_ is not None:
                functions.vvenc_encoder_set_RecYUVBufferCallback(encoder, None, self.picture_callback)
            functions.vvenc_YUVBuffer_alloc_buffer(
                buffer, CHROMA_FORMATS[self.format.chroma], self.format.width, self.format.height
            )
            # An upper bound for a coded picture: twice its samples, and headers.
            functions.vvenc_accessUnit_alloc_payload(unit, 8 * self.format.width * self.format.height + 100_000)
            done = ctypes.c_bool(False)
            number = 0
            while not done.value:
                source = None
                if number < len(originals):
                    self._fill(buffer.contents, number)
                    source, number = buffer, number + 1
                # The encoder works in this thread only, so thread time is its processor time.
                self.seconds -= time.thread_time()
                status = functions.vvenc_encode(encoder, source, unit, ctypes.byref(done))
                self.seconds += time.thread_time()
                if self.error is not None:
                    raise self.error
                self._check_status(status, encoder, f"coding picture {number - 1}")
                if unit.contents.payload_used:
                    self._write(unit.contents, file, messages)
        finally:
            functions.vvenc_encoder_close(encoder)
            functions.vvenc_YUVBuffer_free(buffer, True)
            functions.vvenc_accessUnit_free(unit, True)

    def _write(self, unit: AccessUnit, file: BinaryIO, messages: AddMessages | None) -> None:
        """Write the access unit of a picture, with its SEI messages."""
        access_unit = ctypes.string_at(unit.payload, unit.payload_used)
        if messages is not None:
            if self.written >= self.returned:
                raise EncoderError(
                    f"libvvenc wrote picture {self.written} before it returned its samples, so that its decisions are "
                    "not known yet"
                )
            access_unit = messages(self.written, access_unit)
        file.write(access_unit)
        self.written += 1

    def _config(self) -> Any:
        functions, settings, video_format = self.library.functions, self.settings, self.format
        config = self.library.config()
        params = loop_params(settings, video_format)
        # vvencPresetMode numbers the presets from faster on, as VVENC_PRESETS lists them.
        preset = VVENC_PRESETS.index(settings.preset)
        functions.vvenc_init_default(config, video_format.width, video_format.height, 30, 0, settings.qp, preset)
        functions.vvenc_set_msg_callback(config, None, self.log_callback)
        for name, value in params.items():
            if functions.vvenc_set_param(config, name.encode(), value.encode()):
                raise ConfigError(f"libvvenc does not take the parameter {name}={value}")
        return config

    def _check_status(self, status: int, encoder: int, what: str) -> None:
        if status:
            functions = self.library.functions
            text = functions.vvenc_get_last_error(encoder) or functions.vvenc_get_error_msg(status)
            reason = self.message or text.decode(errors="replace").strip()
            raise EncoderError(f"{what} at QP {self.settings.qp} failed in libvvenc: {reason}")

    def _fill(self, buffer: YuvBuffer, number: int) -> None:
        original = convert(self.originals[number], self.format.bit_depth)
        for plane, samples in zip(buffer.planes, original.planes, strict=False):
            plane_samples(plane)[...] = samples
        buffer.sequence_number, buffer.cts_valid = number, False

    def _on_message(self, _: Any, level: int, text: bytes, arguments: Any) -> None:
        """Receive a message of the library: an error, or the log line of a picture, before the picture itself."""
        try:
            line = format_message(text, arguments)
            if line.startswith("POC"):
                self.lines.append(line)
                planes = 1 if self.format.chroma == "400" else 3
                self.pictures += parse_log(line, planes)
            elif level == _ERROR:
                self.message = self.message or line.strip()
        except BaseException as error:
            self.error = self.error or error

    def _on_picture(self, _: Any, buffer: Any) -> None:
        """Receive the reference picture and replace its samples by the filtered ones."""
        # An exception cannot pass through the library, so it is kept until vvenc_encode has returned.
        if self.error is not None:
            return
        start = time.thread_time()
        try:
            number, self.returned = self.returned, self.returned + 1
            if buffer.contents.sequence_number != number or len(self.pictures) != self.returned:
                raise EncoderError(
                    f"libvvenc returned picture {buffer.contents.sequence_number} after coding {len(self.pictures)}, "
                    f"so the filter is not in the loop: picture {number} was expected"
                )
            assert self.settings.ctu_size is not None
            planes = [
                ReferencePlane.of(plane, self.format, index, self.settings.ctu_size)
                for index, plane in enumerate(buffer.contents.planes[: len(self.format.plane_shapes)])
            ]
            coded = self.pictures[number]
            decoded = Picture(tuple(plane.samples.astype(self.format.dtype) for plane in planes), self.format.bit_depth)
            original = convert(self.originals[number], self.format.bit_depth)
            verify_picture(f"QP {self.settings.qp}", coded, original, decoded)
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
        if filtered.bit_depth != self.format.bit_depth or shapes != self.format.plane_shapes:
            raise FormatError(
                f"the filter returns planes of {shapes} at {filtered.bit_depth} bit for picture {number}: "
                f"they must be {self.format}"
            )
        limit = 1 << self.format.bit_depth
        if any(int(plane.min()) < 0 or int(plane.max()) >= limit for plane in filtered.planes):
            raise FormatError(
                f"the filter returns samples for picture {number} that do not fit in {filtered.bit_depth} bit"
            )
