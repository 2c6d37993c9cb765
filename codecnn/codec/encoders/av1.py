"""Common parts of the AV1 back ends: quantiser levels, checks of the bitstream, decoding and the encode itself.

Constant QP means that every intra frame has the quantiser index nearest to the QP of the settings (see
`codecnn.codec.av1_qp`), and that nothing changes the quantiser inside a frame. The frame headers of the bitstream must
confirm it. The encoders accept 64 of the 256 quantiser indices.
"""

import hashlib
import math
import re
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from codecnn.base.errors import ConfigError, EncoderError
from codecnn.base.files import write_text
from codecnn.codec.av1_headers import AC_STEPS, STEP_SCALE, Av1Stream, av1_info, av1_qp, read_av1
from codecnn.codec.base import CodecSettings, CodedPicture, CodedSequence, coded_format
from codecnn.codec.checks import measured_picture
from codecnn.codec.encoders.av1_unfiltered import uses_restoration, verify_same_headers, without_filters
from codecnn.codec.encoders.padding import code_padded, padded_size
from codecnn.codec.encoders.unfiltered import verify_similar
from codecnn.codec.ffmpeg import decode_stream, join_params, library_identity
from codecnn.pictures.files import VideoFormat, convert, ffmpeg_path, open_raw, require_encoder, run

LEVELS = (*range(0, 241, 4), 244, 249, 255)
"""Quantiser index by libaom's and SVT-AV1's quantiser level, 0 to 63."""

CTU_SIZES = (64, 128)
"""Superblock sizes of AV1."""

DECODER, SECOND_DECODER = "libdav1d", "libaom-av1"
"""Decoders of ffmpeg, whose pictures must be equal."""

NO_RESTORATION: dict[str, str] = {"enable-restoration": "0"}
"""Parameter of libaom and SVT-AV1 that switches off loop restoration."""

PSNR_TOLERANCE = 5.1e-3
"""Allowed difference in dB from the PSNR that ffmpeg prints for libaom, which has two decimals."""

STATISTICS = "statistics.txt"


class Statistics(NamedTuple):
    """Statistics of a temporal unit: PSNR of Y in dB with the peak 255, if it is stated, and size in bytes."""

    psnr_y: float | None
    size: int


def quantiser_level(qp: int) -> int:
    """Return the encoders' quantiser level, 0 to 63, whose step is nearest to that of a QP.

    Raises:
        ConfigError: No level has this QP when rounded.
    """
    target = STEP_SCALE * 2 ** ((qp - 4) / 6)
    level = min(range(1, len(LEVELS)), key=lambda level: abs(math.log(AC_STEPS[LEVELS[level]] / target)))
    if av1_qp(LEVELS[level]) != qp:
        known = sorted({av1_qp(index) for index in LEVELS[1:]})
        near = [value for value in known if value < qp][-1:] + [value for value in known if value > qp][:1]
        raise ConfigError(
            f"AV1 encoders have no quantiser for QP {qp}: take {' or '.join(map(str, near))} "
            f"({min(known)} to {max(known)}, every QP from 15 on)"
        )
    return level


def parse_statistics(text: str) -> list[Statistics]:
    """Parse ffmpeg's statistics of an encoder, one line per temporal unit."""
    lines = re.findall(r"(?:PSNR=\s*(\S+) )?f_size=\s*(\d+) ", text)
    return [Statistics(float(psnr) if psnr else None, int(size)) for psnr, size in lines]


def verify_av1_stream(stream: Av1Stream, settings: CodecSettings, name: str) -> None:
    """Check that the headers of a stream show the quantiser, frame types and filters of the settings.

    Raises:
        EncoderError: A frame has another quantiser index, one that varies, another type, a reduced width, or in-loop
            filters although they are off; the superblocks have another size; or the decoder would add film grain.
    """
    index = LEVELS[quantiser_level(settings.qp)]
    wanted = f"not as {settings.configuration.upper()} at index {index} (QP {settings.qp})"
    for number, frame in enumerate(stream.frames):
        what = f"{name}, frame {number} in coding order,"
        if frame.varying:
            raise EncoderError(f"{what} varies its quantiser: {', '.join(frame.varying)}")
        wrong_type = settings.configuration == "ai" and frame.slice_type != "I"
        if wrong_type or frame.quantiser < index or (frame.quantiser > index and frame.slice_type == "I"):
            raise EncoderError(
                f"{what} was coded as {frame.slice_type} frame at quantiser index {frame.quantiser}, {wanted}"
            )
        filters = ("loop_filter_level[0]", "loop_filter_level[1]", "enable_cdef", "enable_restoration")
        values = {**stream.sequence, **{element.name: element.value for element in frame.elements}}
        active = [element for element in filters if values.get(element)]
        if active and not settings.loop_filters:
            raise EncoderError(f"{what} has in-loop filters although they are off: {', '.join(active)}")
        if values.get("use_superres"):
            raise EncoderError(f"{what} is coded at a reduced width (superres)")
    size = 128 if stream.sequence["use_128x128_superblock"] else 64
    if settings.ctu_size not in (None, size):
        raise EncoderError(f"{name} has superblocks of {size}, which the encoder chose: set ctu_size: {size}")
    if stream.sequence.get("film_grain_params_present"):
        raise EncoderError(f"{name} has film grain parameters")


def coded_pictures(stream: Av1Stream) -> list[CodedPicture]:
    """Return the log entries of the shown frames in output order; the PSNR is not known yet."""
    return [
        CodedPicture(
            poc, frame.slice_type, av1_qp(frame.quantiser), bits, math.nan, None, None, quantiser=frame.quantiser
        )
        for poc, (frame, bits) in enumerate(zip(stream.shown, stream.picture_bits, strict=True))
    ]


def verify_av1_pictures(
    name: str,
    source: Path,
    source_format: VideoFormat,
    decoded: Path,
    decoded_format: VideoFormat,
    pictures: list[CodedPicture],
    stated: list[Statistics],
) -> tuple[CodedPicture, ...]:
    """Check sizes and PSNR of the pictures against the encoder's statistics, and return them with their PSNR.

    Raises:
        EncoderError: The number of pictures, their size together, or a PSNR differs.
    """
    bits, stated_bits = sum(picture.bits or 0 for picture in pictures), 8 * sum(unit.size for unit in stated)
    if bits != stated_bits:
        raise EncoderError(f"{name}: the encoder states {stated_bits} bits and its bitstream has {bits}")
    verified = []
    with open_raw(source, source_format) as originals, open_raw(decoded, decoded_format) as outputs:
        if not len(originals) == len(outputs) == len(pictures) == len(stated):
            raise EncoderError(
                f"{name}: of {len(originals)} pictures {len(pictures)} were coded, {len(outputs)} decoded"
            )
        for picture, unit, original, output in zip(pictures, stated, originals, outputs, strict=True):
            measured = measured_picture(picture, convert(original, decoded_format.bit_depth), output)
            # ffmpeg takes the peak 255 at every bit depth.
            stated_psnr = math.nan if unit.psnr_y is None else unit.psnr_y
            psnr = stated_psnr + 20 * (decoded_format.bit_depth - 8) * math.log10(2)
            if abs(measured.psnr_y - psnr) > PSNR_TOLERANCE:
                raise EncoderError(
                    f"{name} POC {picture.poc}: PSNR Y is {measured.psnr_y:.4f} dB, the encoder states {psnr:.2f}"
                )
            verified.append(measured)
    return tuple(verified)


def log_text(
    encoder: str, settings: CodecSettings, params: dict[str, str], stream: Av1Stream, psnr: list[float]
) -> str:
    """Return the content of log.txt, which is the same in every run: encoder, parameters and the pictures."""
    level = quantiser_level(settings.qp)
    lines = [f"encoder: {encoder}", f"preset: {settings.preset}", f"params: {join_params(params)}"]
    lines.append(f"quantiser: level {level}, base_q_idx {LEVELS[level]}, QP {settings.qp}")
    lines.append("POC type QP base_q_idx bits PSNR_Y")
    bits = stream.picture_bits
    for poc, (frame, psnr_y) in enumerate(zip(stream.shown, psnr, strict=True)):
        qp = av1_qp(frame.quantiser)
        lines.append(f"{poc} {frame.slice_type} {qp} {frame.quantiser} {bits[poc]} {psnr_y:.4f}")
    return "\n".join(lines) + "\n"


def decode_av1(ffmpeg: str, bitstream: Path, output: Path, video_format: VideoFormat) -> None:
    """Decode an AV1 stream with libdav1d, and check that libaom decodes it to the same samples.

    Raises:
        EncoderError: A decoder fails, or the two differ.
    """
    decode_stream(ffmpeg, bitstream, output, video_format, decoder=DECODER)
    with output.open("rb") as file:
        first = hashlib.file_digest(file, "md5").hexdigest()
    if first != _md5(ffmpeg, bitstream, video_format, SECOND_DECODER):
        # libaom always adds film grain.
        with_grain = [_md5(ffmpeg, bitstream, video_format, each) for each in (DECODER, SECOND_DECODER)]
        if first == with_grain[0] or with_grain[0] != with_grain[1]:
            raise EncoderError(f"{bitstream.name} decodes to different pictures with {DECODER} and {SECOND_DECODER}")


def _md5(ffmpeg: str, bitstream: Path, video_format: VideoFormat, decoder: str) -> str:
    """Return the MD5 of all pictures of an AV1 stream as a player shows them, with film grain."""
    argv = [ffmpeg, "-hide_banner", "-nostdin", "-loglevel", "error", "-threads", "1", "-xerror", "-c:v", decoder]
    argv += ["-i", f"file:{bitstream.resolve()}", "-fps_mode", "passthrough", "-pix_fmt", video_format.ffmpeg_pix_fmt]
    finished = run([*argv, "-c:v", "rawvideo", "-f", "md5", "-"], what=f"decoding {bitstream.name} with {decoder}")
    return finished.stdout.strip().removeprefix("MD5=")


class Av1Encoder(ABC):
    """An AV1 encoder of ffmpeg; see `codecnn.codec.Codec` for the contract.

    Attributes:
        name: Name of the back end.
        library: ffmpeg's name of the encoder.
        version: Regular expression for the line with the version of the library, see `library_identity`.
        pix_fmt: A pixel format that the encoder accepts.
        smallest: Least width and height that the encoder takes.
    """

    name: str
    library: str
    version: str
    pix_fmt = "yuv420p"
    smallest = 1

    @abstractmethod
    def params(self, settings: CodecSettings) -> dict[str, str]:
        """Return the parameters of the library; raise ConfigError for settings that it does not have."""

    @abstractmethod
    def argv(
        self, ffmpeg: str, source: str, source_format: VideoFormat, settings: CodecSettings, output: str
    ) -> list[str]:
        """Return the ffmpeg command; raise ConfigError for settings that the library does not have."""

    def identity(self) -> str:
        """Return encoder and decoder, for example "libaom-av1 3.15.1, ffmpeg n9.0.2-17-g2a571b6068-20260930"."""
        return library_identity(ffmpeg_path(), self.library, self.pix_fmt, self.version)

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code a raw YUV file into bitstream.obu, decoded.yuv and log.txt.

        With `settings.unfiltered` the pictures before the in-loop filters are in unfiltered.yuv, see
        `codecnn.codec.encoders.av1_unfiltered`.

        Args:
            source: Raw YUV file.
            source_format: Format of the source.
            settings: Settings of the encode.
            folder: Output folder.

        Raises:
            ConfigError: AV1 or the encoder does not have these settings.
            EncoderError: The encoder fails; the headers do not show the settings; the decoders libdav1d and libaom
                disagree; bits or PSNR differ from the encoder's statistics; or the decisions differ without loop
                restoration.
        """
        size = padded_size(source_format, minimum=self.smallest, multiple=(1, 1))
        return code_padded(self._encode, source, source_format, settings, folder, size)

    def _encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Do the work of `encode` for a size that the encoder takes."""
        ffmpeg = ffmpeg_path()
        require_encoder(ffmpeg, self.library)
        name = f"{source.stem} at QP {settings.qp}"
        bitstream, decoded, log = folder / "bitstream.obu", folder / "decoded.yuv", folder / "log.txt"
        output_format = coded_format(source_format, settings)
        argv = self.argv(ffmpeg, f"file:{source.resolve()}", source_format, settings, bitstream.name)
        folder.mkdir(parents=True, exist_ok=True)
        seconds, stated = self._run(argv, name, folder)
        stream = read_av1(bitstream, name)
        verify_av1_stream(stream, settings, name)
        info = av1_info(stream)
        coded = VideoFormat(info.width, info.height, info.chroma, info.bit_depth)
        if coded != replace(output_format, fps=None):
            raise EncoderError(f"{name} was coded as {coded}, not as {replace(output_format, fps=None)}")
        decode_av1(ffmpeg, bitstream, decoded, output_format)
        pictures = coded_pictures(stream)
        verified = verify_av1_pictures(name, source, source_format, decoded, output_format, pictures, stated)
        unfiltered = None
        if settings.unfiltered:
            unfiltered = folder / "unfiltered.yuv"
            plain = self._without_filters(source, source_format, settings, folder, stream)
            try:
                decode_av1(ffmpeg, plain, unfiltered, output_format)
            finally:
                plain.unlink()
            verify_similar(name, source, source_format, decoded, unfiltered, output_format)
        psnr = [picture.psnr_y for picture in verified]
        write_text(log, log_text(self.identity(), settings, self.params(settings), stream, psnr))
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=output_format,
            pictures=verified,
            argv=tuple(self.argv("ffmpeg", source.name, source_format, settings, bitstream.name)),
            encoder=self.identity(),
            log=log,
            unfiltered=unfiltered,
            encoder_seconds=seconds,
        )

    def _run(self, argv: list[str], name: str, folder: Path) -> tuple[float, list[Statistics]]:
        """Run an encoder in a folder; return its processor time in seconds and its statistics."""
        statistics = folder / STATISTICS
        try:
            done = run(argv, what=f"coding {name}", cwd=folder)
            _refuse_unknown_params(self.library, done.stderr)
            return done.cpu_seconds, parse_statistics(statistics.read_text())
        except EncoderError as error:
            _refuse_unknown_params(self.library, error.report)
            raise
        finally:
            statistics.unlink(missing_ok=True)

    def _without_filters(
        self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path, stream: Av1Stream
    ) -> Path:
        """Return a stream that decodes to the reconstruction before the in-loop filters of `stream`.

        If `stream` uses loop restoration, the source is coded again without it.

        Raises:
            EncoderError: Without loop restoration the encoder decides otherwise.
        """
        plain, bitstream = folder / "unfiltered.obu", folder / "bitstream.obu"
        name = f"{source.stem} at QP {settings.qp}"
        if uses_restoration(stream):
            settings = replace(settings, unfiltered=False, params={**settings.params, **NO_RESTORATION})
            argv = self.argv(ffmpeg_path(), f"file:{source.resolve()}", source_format, settings, plain.name)
            self._run(argv, name, folder)
            bitstream, filtered = plain, stream
            stream = read_av1(plain, name)
            verify_same_headers(name, filtered, stream)
        plain.write_bytes(without_filters(bitstream.read_bytes(), stream))
        return plain


def _refuse_unknown_params(library: str, report: str) -> None:
    """Raise ConfigError if the encoder's messages say that it refused or ignored a parameter."""
    unknown = re.search(
        r"^\[libaom-av1 @ \w+\] (\S+): Invalid parameter\n.*Additional information: (.*)", report, re.MULTILINE
    )
    if unknown:
        raise ConfigError(f"{library} does not take the parameter {unknown[1]}: {unknown[2]}")
    ignored = re.search(r"Error parsing option (\S+): (.*?)\.?$", report, re.MULTILINE)
    if ignored:
        raise ConfigError(f"{library} does not take the parameter {ignored[1]}={ignored[2]}")
