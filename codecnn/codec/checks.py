"""Checks of the settings before an encoder starts (`check_*`), and of the coded result afterwards (`verify_*`).

A preset or a user parameter can make an encoder deviate from the settings without an error, and a training set would
not show it. The checks of the result therefore compare the log with the settings, the bitstream and the decoded
pictures.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from codecnn.base.errors import ConfigError, EncoderError, FormatError
from codecnn.codec.base import CodecSettings, CodedPicture
from codecnn.pictures.files import Picture, Plane, VideoFormat, convert, open_raw
from codecnn.pictures.metrics import mean_psnr, mse, peak_value

HEVC_MAX_QP = 51
"""Largest SliceQpY of HEVC (H.265 clause 7.4.7.1)."""

PSNR_TOLERANCE = 1e-4
"""Allowed difference in dB from the PSNR in a log of HM, VTM or libvvenc, which print four decimals."""

X265_TOLERANCE = 5.1e-4
"""Allowed difference in dB from the PSNR of x265, which prints three decimals."""

LOSSLESS_PSNR = 99.99
"""PSNR in dB that x265 states for a plane without any error."""

_SEI_TYPES = (39, 40)
"""nal_unit_type of prefix and suffix SEI (H.265 table 7-1)."""


def check_params(
    params: Mapping[str, str], names: str = "[A-Za-z0-9_]+", values: str = "[A-Za-z0-9_.,+-]+"
) -> dict[str, str]:
    """Return encoder parameters as text.

    Args:
        params: Parameters in the encoder's own names.
        names: Regular expression for allowed names.
        values: Regular expression for allowed values.

    Raises:
        ConfigError: A name or value is not allowed, e.g. because it contains the separator of parameters.
    """
    texts = {str(name): str(value) for name, value in params.items()}
    for name, value in texts.items():
        if not re.fullmatch(names, name) or not re.fullmatch(values, value, re.ASCII):
            raise ConfigError(f"encoder parameter {name}={value!r} is not a plain name and value")
    return texts


def check_preset(library: str, preset: str, presets: tuple[str, ...]) -> None:
    """Raise ConfigError unless `preset` is one of the library's presets."""
    if preset not in presets:
        raise ConfigError(f"{library} has no preset {preset!r}: one of {', '.join(presets)}")


def check_ctu_size(owner: str, size: int | None, sizes: tuple[int, ...]) -> None:
    """Raise ConfigError unless the CTU size is None or one of the `sizes` of the standard or encoder `owner`."""
    if size is not None and size not in sizes:
        raise ConfigError(f"CTU size {size} is not one of {owner}'s {', '.join(map(str, sizes))}")


def check_hevc(settings: CodecSettings) -> None:
    """Raise ConfigError for a QP or a CTU size that HEVC does not have."""
    if settings.qp > HEVC_MAX_QP:
        raise ConfigError(f"QP {settings.qp} is out of range for HEVC: 0 to {HEVC_MAX_QP}")
    check_ctu_size("HEVC", settings.ctu_size, (16, 32, 64))


def check_even(library: str, source_format: VideoFormat) -> None:
    """Raise FormatError for an odd width or height, whatever the chroma format."""
    if source_format.width % 2 or source_format.height % 2:
        raise FormatError(
            f"{library} needs an even width and height, not {source_format.width}x{source_format.height}: pad to even"
        )


def check_depth(source_format: VideoFormat, settings: CodecSettings) -> None:
    """Raise ConfigError for a source whose bit depth exceeds the internal bit depth."""
    if source_format.bit_depth > settings.internal_bit_depth:
        raise ConfigError(
            f"a source of {source_format.bit_depth} bit cannot be coded at {settings.internal_bit_depth} bit internally"
        )


def check_program_source(source_format: VideoFormat, settings: CodecSettings) -> None:
    """Raise FormatError for a size, or ConfigError for a bit depth, that the external encoder programs do not code."""
    odd_width = source_format.chroma in ("420", "422") and source_format.width % 2
    odd_height = source_format.chroma == "420" and source_format.height % 2
    if odd_width or odd_height:
        raise FormatError(
            f"{source_format.chroma} of {source_format.width}x{source_format.height} cannot be coded: pad to even"
        )
    check_depth(source_format, settings)


def verify_slice_qp(
    pictures: Sequence[CodedPicture], settings: CodecSettings, name: str, *, hierarchy: bool = True
) -> None:
    """Check that the log shows constant QP: I slices at `settings.intra_qp`, and I slices only in all intra.

    Args:
        pictures: Pictures of the log.
        settings: Settings of the encode.
        name: Name of the sequence in error messages.
        hierarchy: P and B slices may have higher QPs, as the QP hierarchy of RA and LDB in VVC requires.

    Raises:
        EncoderError: The log lists no picture, or a picture with another slice type or QP.
    """
    if not pictures:
        raise EncoderError(f"the encoder's log for {name} lists no picture")
    for picture in pictures:
        wrong_type = settings.configuration == "ai" and picture.slice_type != "I"
        may_be_higher = hierarchy and picture.slice_type != "I"
        if wrong_type or picture.qp < settings.intra_qp or (picture.qp > settings.intra_qp and not may_be_higher):
            raise EncoderError(
                f"{name} POC {picture.poc} was coded as {picture.slice_type} slice at QP {picture.qp}, "
                f"not as {settings.configuration.upper()} at QP {settings.intra_qp}"
            )


def verify_x265_bits(bitstream: bytes, pictures: Sequence[CodedPicture], name: str) -> None:
    """Raise EncoderError unless the bits of the pictures add up to the NAL units of the bitstream without SEI."""
    # A NAL unit never ends in a zero byte, so zeros before a start code belong to the start code (H.265 clause B.2).
    units = [unit.rstrip(b"\0") for unit in bitstream.split(b"\0\0\1")[1:]]
    bits = 8 * sum(len(unit) for unit in units if unit and unit[0] >> 1 & 63 not in _SEI_TYPES)
    stated = sum(picture.bits or 0 for picture in pictures)
    if bits != stated:
        raise EncoderError(f"{name}: x265 states {stated} bits and its bitstream has {bits}")


def verify_decoded(
    name: str,
    source: Path,
    source_format: VideoFormat,
    decoded: Path,
    decoded_format: VideoFormat,
    pictures: Sequence[CodedPicture],
) -> None:
    """Check that every decoded picture has the MD5 and the PSNR that the log states for it.

    The MD5 is compared only if width and height are multiples of 8. HM, VTM and libvvenc compute the PSNR with the
    peak 255 * 2^(bit_depth - 8).

    Args:
        name: Name of the sequence in error messages.
        source: Raw YUV file of the originals.
        source_format: Format of the originals.
        decoded: Raw YUV file of the decoded pictures.
        decoded_format: Format of the decoded pictures.
        pictures: Pictures of the log.

    Raises:
        EncoderError: The number of pictures, an MD5 or a PSNR differs.
    """
    with open_raw(source, source_format) as originals, open_raw(decoded, decoded_format) as outputs:
        if len(outputs) != len(pictures):
            raise EncoderError(f"{name}: {len(pictures)} pictures were coded and {len(outputs)} decoded")
        for coded, original, output in zip(pictures, originals, outputs, strict=True):
            verify_picture(name, coded, convert(original, decoded_format.bit_depth), output)


def verify_picture(name: str, coded: CodedPicture, original: Picture, decoded: Picture) -> None:
    """Raise EncoderError unless a decoded picture has the MD5 and the PSNR of its log entry, see `verify_decoded`.

    `original` has the bit depth of `decoded`.
    """
    # Encoders hash the coded picture, which is padded to whole 8x8 blocks; the padding is not in the decoded file.
    hashed = coded.md5 and not any(extent % 8 for extent in decoded.y.shape)
    for index, (original_plane, plane) in enumerate(zip(original.planes, decoded.planes, strict=True)):
        if hashed and hashlib.md5(plane.tobytes()).hexdigest() != coded.md5[index]:
            raise EncoderError(f"{name} POC {coded.poc}: plane {'YUV'[index]} decodes to another MD5")
        stated = (coded.psnr_y, coded.psnr_u, coded.psnr_v)[index]
        psnr = mean_psnr([mse(original_plane, plane)], decoded.bit_depth)
        # The encoders print an infinite PSNR in different ways, so it is not compared.
        if stated is not None and math.isfinite(psnr) and abs(psnr - stated) > PSNR_TOLERANCE:
            raise EncoderError(
                f"{name} POC {coded.poc}: PSNR {'YUV'[index]} is {psnr:.4f} dB, the encoder states {stated:.4f}"
            )


def measured_picture(coded: CodedPicture, original: Picture, decoded: Picture) -> CodedPicture:
    """Return a log entry with the PSNR of its decoded picture; infinite for a plane without any error.

    `original` has the bit depth of `decoded`.
    """
    errors = [mse(a, b) for a, b in zip(original.planes, decoded.planes, strict=True)]
    psnrs = [mean_psnr([error], decoded.bit_depth) if error else math.inf for error in errors]
    u, v = psnrs[1:] or (None, None)
    return replace(coded, psnr_y=psnrs[0], psnr_u=u, psnr_v=v)


def verify_x265_psnr(
    originals: Sequence[Picture],
    decoded: Sequence[Picture],
    uncropped: Sequence[Picture],
    pictures: Sequence[CodedPicture],
    name: str,
) -> tuple[CodedPicture, ...]:
    """Check the PSNR that x265 states, and replace it by the PSNR in full precision.

    The PSNR is 10 * log10(peak² / MSE) in float64 with peak = 255 * 2^(bit_depth - 8). A source of lower bit depth is
    shifted left first. x265 includes the rows that pad the height to whole CUs, and counts chroma samples as in 4:2:0
    whatever the format; the comparison does the same.

    Args:
        originals: Original pictures.
        decoded: Decoded pictures.
        uncropped: Decoded pictures of the coded size.
        pictures: Pictures of x265's statistics.
        name: Name of the sequence in error messages.

    Returns:
        `pictures` with the PSNR of the decoded pictures; infinite for a plane without any error.

    Raises:
        EncoderError: The number of pictures or a PSNR differs.
    """
    if not len(originals) == len(pictures) == len(decoded) == len(uncropped):
        raise EncoderError(f"{name}: of {len(originals)} pictures {len(pictures)} were coded, {len(decoded)} decoded")
    verified = []
    for coded, original, output, padded in zip(pictures, originals, decoded, uncropped, strict=True):
        peak = peak_value(output.bit_depth)
        reference = convert(original, output.bit_depth)
        stated = [value for value in (coded.psnr_y, coded.psnr_u, coded.psnr_v) if value is not None]
        psnr = []
        for index, (plane, full) in enumerate(zip(reference.planes, padded.planes, strict=True)):
            extended = np.pad(plane, ((0, len(full) - len(plane)), (0, 0)), mode="edge")
            samples = reference.y.size / (4 if index else 1)
            padded_psnr = _psnr(_sse(extended, full[:, : plane.shape[1]]) / samples, peak)
            if abs(padded_psnr - stated[index]) > X265_TOLERANCE:
                raise EncoderError(
                    f"{name} POC {coded.poc}: PSNR {'YUV'[index]} is {padded_psnr:.4f} dB, "
                    f"x265 states {stated[index]:.3f}"
                )
            error = _sse(plane, output.planes[index])
            psnr.append(_psnr(error / plane.size, peak) if error else math.inf)
        chroma = (psnr[1], psnr[2]) if len(psnr) == 3 else (None, None)
        verified.append(replace(coded, psnr_y=psnr[0], psnr_u=chroma[0], psnr_v=chroma[1]))
    return tuple(verified)


def _sse(a: Plane, b: Plane) -> float:
    return float(np.sum((a.astype(np.float64) - b.astype(np.float64)) ** 2))


def _psnr(mse: float, peak: float) -> float:
    # NumPy's logarithm, which codecnn.pictures.metrics uses, can differ in the last bit, and stores contain these
    # values.
    return 10 * math.log10(peak**2 / mse) if mse else LOSSLESS_PSNR
