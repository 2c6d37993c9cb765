"""The `kvazaar` back end: HEVC coded by libkvazaar of the ffmpeg in imageio-ffmpeg, all intra.

Constant QP means that every slice header has the QP of the settings and that no block may change it. In ffmpeg,
libkvazaar codes 4:2:0 of 8 bit whose width and height are multiples of 8, with CTUs of 64. Other sizes are padded.
"""

import re
from pathlib import Path

from codecnn.base.errors import ConfigError, EncoderError, FormatError
from codecnn.base.files import write_text
from codecnn.codec.base import CodecSettings, CodedPicture, CodedSequence, coded_format
from codecnn.codec.checks import (
    check_ctu_size,
    check_depth,
    check_hevc,
    check_params,
    check_preset,
    measured_picture,
    verify_slice_qp,
)
from codecnn.codec.encoders.padding import code_padded, padded_size
from codecnn.codec.ffmpeg import decode_stream, encoder_input, library_identity
from codecnn.codec.headers import AccessUnit, access_units, output_pictures, picture_bits, read_headers, slice_qp
from codecnn.pictures.files import VideoFormat, ffmpeg_path, open_raw, require_encoder, run

_PRESETS = "ultrafast superfast veryfast faster fast medium slow slower veryslow placebo"
PRESETS = tuple(_PRESETS.split())

CTU_SIZES = (64,)

SIZE_STEP = 8
"""Widths and heights are multiples of this number of luma samples."""

ALL_INTRA = {"period": "1", "gop": "0"}

REPRODUCIBLE = {"threads": "0", "owf": "0", "no-info": "1"}
"""Parameters for one thread and one picture at a time, without an SEI message that names the options."""

NO_LOOP_FILTERS = {"no-deblock": "1", "sao": "off"}

_FILTERS = {"sample_adaptive_offset_enabled_flag": 0, "pps_deblocking_filter_disabled_flag": 1}
"""Syntax elements that state that the filters are off."""


def kvazaar_params(settings: CodecSettings) -> dict[str, str]:
    """Return the parameters of libkvazaar for `settings`; a pure function.

    Raises:
        ConfigError: HEVC or libkvazaar does not have these settings.
    """
    check_preset("libkvazaar", settings.preset, PRESETS)
    check_hevc(settings)
    check_ctu_size("kvazaar", settings.ctu_size, CTU_SIZES)
    if settings.configuration != "ai":
        raise ConfigError(f"kvazaar codes all intra only, not {settings.configuration}: take codec hevc")
    params = {"preset": settings.preset, "qp": str(settings.qp), **ALL_INTRA}
    if not settings.loop_filters:
        params |= NO_LOOP_FILTERS
    params |= settings.params
    return check_params(params, names="[A-Za-z0-9-]+") | REPRODUCIBLE | {"hash": "md5"}


def kvazaar_encode_argv(
    ffmpeg: str, source: str, source_format: VideoFormat, settings: CodecSettings, output: str
) -> list[str]:
    """Return the ffmpeg command that codes a raw YUV file; a pure function.

    Args:
        ffmpeg: The ffmpeg program.
        source: Raw YUV file.
        source_format: Format of the source.
        settings: Settings of the encode.
        output: Bitstream to write.

    Raises:
        ConfigError: HEVC or libkvazaar does not have these settings or this chroma format.
        FormatError: Width or height is no multiple of 8.
    """
    check_depth(source_format, settings)
    if source_format.chroma != "420" or settings.internal_bit_depth != 8:
        raise ConfigError(
            f"libkvazaar in ffmpeg codes 4:2:0 of 8 bit, not {source_format.chroma} of {settings.internal_bit_depth} "
            "bit: set internal_bit_depth: 8, or take codec hevc"
        )
    if source_format.width % SIZE_STEP or source_format.height % SIZE_STEP:
        raise FormatError(
            f"libkvazaar in ffmpeg codes multiples of {SIZE_STEP}, not {source_format.width}x{source_format.height}: "
            "pad the pictures"
        )
    argv = encoder_input(ffmpeg, source, source_format, settings)
    argv += ["-c:v", "libkvazaar", "-kvazaar-params"]
    return [*argv, ",".join(f"{key}={value}" for key, value in kvazaar_params(settings).items()), "-f", "hevc", output]


def verify_access_units(units: tuple[AccessUnit, ...], settings: CodecSettings, name: str) -> None:
    """Check what the headers state besides the slice QPs.

    Raises:
        EncoderError: Blocks may change the QP, a picture has no MD5, or a filter is on although it is off.
    """
    headers = [elements for unit in units for elements in unit.nal_units]
    if any(elements.get("cu_qp_delta_enabled_flag") for elements in headers):
        raise EncoderError(f"{name}: the blocks may change the QP (cu_qp_delta_enabled_flag)")
    if not all(unit.has_md5 for unit in units):
        raise EncoderError(f"{name}: a picture has no MD5")
    if settings.loop_filters:
        return
    for flag, off in _FILTERS.items():
        if any(elements.get(flag, off) != off for elements in headers):
            raise EncoderError(f"{name} has in-loop filters although they are off: {flag}")


class KvazaarCodec:
    """HEVC coded by libkvazaar; see `codecnn.codec.Codec` for the contract."""

    name = "kvazaar"

    def identity(self) -> str:
        """Return encoder and decoder, for example "libkvazaar of unknown version, ffmpeg n9.0.2-17-g2a571b6068".

        ffmpeg does not print the version, so it is that of ffmpeg.
        """
        return library_identity(ffmpeg_path(), "libkvazaar", "yuv420p", r"Kvazaar v(\S+)")

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code a raw YUV file into bitstream.265, decoded.yuv and log.txt.

        Pictures of other sizes than multiples of 8 are padded for libkvazaar, and the decoded pictures are cropped (see
        `code_padded`). With `settings.unfiltered` the bitstream is also decoded without deblocking and SAO, into
        unfiltered.yuv.

        Args:
            source: Raw YUV file.
            source_format: Format of the source.
            settings: Settings of the encode.
            folder: Output folder.

        Raises:
            ConfigError: HEVC or libkvazaar does not have these settings.
            FormatError: The source is not raw YUV of this format.
            EncoderError: The encoder fails; the headers do not show the settings; or a decoded picture does not have
                the MD5 of the bitstream.
        """
        size = padded_size(source_format, multiple=(SIZE_STEP, SIZE_STEP))
        return code_padded(self._encode, source, source_format, settings, folder, size)

    def _encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Do the work of `encode` for a size that libkvazaar takes."""
        ffmpeg = ffmpeg_path()
        require_encoder(ffmpeg, "libkvazaar")
        name = f"{source.stem} at QP {settings.qp}"
        bitstream, decoded, log = folder / "bitstream.265", folder / "decoded.yuv", folder / "log.txt"
        output_format = coded_format(source_format, settings)
        argv = kvazaar_encode_argv(ffmpeg, f"file:{source.resolve()}", source_format, settings, bitstream.name)
        folder.mkdir(parents=True, exist_ok=True)
        done = run(argv, what=f"coding {name}", cwd=folder)
        if refused := re.search(r"Invalid option: (\S+?)\.?$", done.stderr, re.MULTILINE):
            raise ConfigError(f"libkvazaar does not take the parameter {refused[1]}")
        verify_access_units(tuple(access_units(bitstream)), settings, name)
        pictures, bits = output_pictures(read_headers(bitstream)), picture_bits(bitstream)
        # The decoder compares every picture with its MD5.
        decode_stream(ffmpeg, bitstream, decoded, output_format)
        with open_raw(source, source_format) as originals, open_raw(decoded, output_format) as outputs:
            if not len(originals) == len(outputs) == len(pictures):
                raise EncoderError(
                    f"{name}: of {len(originals)} pictures {len(pictures)} were coded, {len(outputs)} decoded"
                )
            coded = tuple(
                measured_picture(
                    CodedPicture(poc, picture.slice_type, slice_qp(picture, bitstream), bits[poc], 0.0, None, None),
                    originals[poc],
                    outputs[poc],
                )
                for poc, picture in enumerate(pictures)
            )
        verify_slice_qp(coded, settings, name, hierarchy=False)
        unfiltered = None
        if settings.unfiltered:
            # All intra predicts from unfiltered samples of the same picture, so this does not drift.
            unfiltered = folder / "unfiltered.yuv"
            decode_stream(ffmpeg, bitstream, unfiltered, output_format, loop_filters=False)
        portable = tuple(kvazaar_encode_argv("ffmpeg", source.name, source_format, settings, bitstream.name))
        lines = [f"encoder: {self.identity()}", f"command: {' '.join(portable)}", "POC type QP bits PSNR_Y"]
        lines += [f"{p.poc} {p.slice_type} {p.qp} {p.bits} {p.psnr_y:.4f}" for p in coded]
        write_text(log, "\n".join(lines) + "\n")
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=output_format,
            pictures=coded,
            argv=portable,
            encoder=self.identity(),
            log=log,
            unfiltered=unfiltered,
            encoder_seconds=done.cpu_seconds,
        )
