"""What a coded sequence has to prove: slice QPs, bits, the samples that decode, and that two streams hold the same CUs.

An encoder is asked for much that it may do otherwise (by its preset, by a parameter of the user's), and a training set
would not show it. So what its log states is held against the settings, the bitstream and the decoded pictures.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codecnn.codec.base import CodecSettings, CodedPicture
from codecnn.codec.blocks.vvc_partition import stream_units
from codecnn.errors import EncoderError
from codecnn.quality import ctu_means, mean_psnr, mse, peak_value
from codecnn.video import Picture, Plane, VideoFormat, convert, open_raw
from codecnn.vvc import CU_COLUMNS

PSNR_TOLERANCE = 1e-4
"""dB between our PSNR and that of a log of HM, VTM or libvvenc, which print four decimals."""

X265_TOLERANCE = 5.1e-4
"""dB between our PSNR and x265's, which prints three decimals."""

LOSSLESS_PSNR = 99.99
"""What x265 states for a plane without any error."""

_SEI_TYPES = (39, 40)
"""nal_unit_type of prefix and suffix SEI (H.265 table 7-1)."""

CELL = 64
"""Side in samples of the squares that `prove_alike` compares, in chroma as in luma."""

MAX_CHANGE = 0.8
"""Largest change by the filters in a square, as a share of the coding error there.

Measured with libvvenc 1.15, presets faster, fast and medium, QP 22 to 42, on 12 photographs and 8 pictures of text,
gradients and noise: all 115 pairs of streams coded without EDO lie below. Of 37 pairs whose first stream was coded with
EDO, and so differently, 35 lie above.
"""

_FLOOR = 1.0
"""MSE at 10 bit that filters may change in squares with hardly an error, where a share says nothing."""


def prove_slice_qp(
    pictures: Sequence[CodedPicture], settings: CodecSettings, name: str, *, hierarchy: bool = True
) -> None:
    """Raise EncoderError unless the log proves constant QP: I slices at `intra_qp`, and all intra has I slices only.

    With a `hierarchy` of QPs, as VVC has it in RA and LDB, P and B slices may lie above that.
    """
    if not pictures:
        raise EncoderError(f"the encoder's log for {name} lists no picture")
    for picture in pictures:
        wrong_type = settings.configuration == "ai" and picture.slice_type != "I"
        may_lie_above = hierarchy and picture.slice_type != "I"
        if wrong_type or picture.qp < settings.intra_qp or (picture.qp > settings.intra_qp and not may_lie_above):
            raise EncoderError(
                f"{name} POC {picture.poc} was coded as {picture.slice_type} slice at QP {picture.qp}, "
                f"not as {settings.configuration.upper()} at QP {settings.intra_qp}"
            )


def prove_x265_bits(bitstream: bytes, pictures: Sequence[CodedPicture], name: str) -> None:
    """Raise EncoderError unless the pictures' bits add up to the bitstream's NAL units but SEI, to the bit."""
    # A NAL unit never ends in a zero byte, so zeros before a start code belong to that (H.265 clause B.2).
    units = [unit.rstrip(b"\0") for unit in bitstream.split(b"\0\0\1")[1:]]
    found = 8 * sum(len(unit) for unit in units if unit and unit[0] >> 1 & 63 not in _SEI_TYPES)
    stated = sum(picture.bits or 0 for picture in pictures)
    if found != stated:
        raise EncoderError(f"{name}: x265 states {stated} bits and its bitstream has {found}")


def prove_decoded(
    name: str,
    source: Path,
    source_format: VideoFormat,
    decoded: Path,
    decoded_format: VideoFormat,
    pictures: Sequence[CodedPicture],
) -> None:
    """Raise EncoderError unless every decoded picture has the MD5 and the PSNR that the log states for it.

    The MD5 only where width and height are multiples of 8. HM, VTM and libvvenc log PSNR with the peak 255·2^(b-8).
    """
    with open_raw(source, source_format) as originals, open_raw(decoded, decoded_format) as outputs:
        if len(outputs) != len(pictures):
            raise EncoderError(f"{name}: {len(pictures)} pictures were coded and {len(outputs)} decoded")
        for coded, original, output in zip(pictures, originals, outputs, strict=True):
            prove_picture(name, coded, convert(original, decoded_format.bit_depth), output)


def prove_picture(name: str, coded: CodedPicture, original: Picture, decoded: Picture) -> None:
    """Raise EncoderError unless a decoded picture has the MD5 and the PSNR that its line of the log states.

    `original` is at the bit depth of `decoded`. See `prove_decoded`.
    """
    # Encoders hash the picture they code, padded to whole 8x8 blocks; of another size we only see the inner part.
    hashed = coded.md5 and not any(extent % 8 for extent in decoded.y.shape)
    for index, (a, b) in enumerate(zip(original.planes, decoded.planes, strict=True)):
        if hashed and hashlib.md5(b.tobytes()).hexdigest() != coded.md5[index]:
            raise EncoderError(f"{name} POC {coded.poc}: plane {'YUV'[index]} decodes to another MD5")
        stated = (coded.psnr_y, coded.psnr_u, coded.psnr_v)[index]
        ours = mean_psnr([mse(a, b)], decoded.bit_depth)
        # Programs print an infinite PSNR in many ways.
        if stated is not None and math.isfinite(ours) and abs(ours - stated) > PSNR_TOLERANCE:
            raise EncoderError(
                f"{name} POC {coded.poc}: PSNR {'YUV'[index]} is {ours:.4f} dB, the encoder states {stated:.4f}"
            )


def prove_x265_psnr(
    originals: Sequence[Picture],
    decoded: Sequence[Picture],
    uncropped: Sequence[Picture],
    pictures: Sequence[CodedPicture],
    name: str,
) -> tuple[CodedPicture, ...]:
    """The pictures with their PSNR in full precision: 10·log10(peak²/MSE) in float64, peak = 255·2^(b-8).

    A source of fewer bits is shifted left first. Raises EncoderError unless as many pictures were decoded as coded,
    each of the PSNR that x265 states. Its statement takes in the rows that pad the height to whole CUs, of which
    `uncropped` has the decoded samples, and counts the samples of chroma as in 4:2:0 whatever the format.
    """
    if not len(originals) == len(pictures) == len(decoded) == len(uncropped):
        raise EncoderError(f"{name}: of {len(originals)} pictures {len(pictures)} were coded, {len(decoded)} decoded")
    proven = []
    for coded, original, output, padded in zip(pictures, originals, decoded, uncropped, strict=True):
        peak = peak_value(output.bit_depth)
        reference = convert(original, output.bit_depth)
        stated = [value for value in (coded.psnr_y, coded.psnr_u, coded.psnr_v) if value is not None]
        psnr = []
        for index, (plane, full) in enumerate(zip(reference.planes, padded.planes, strict=True)):
            extended = np.pad(plane, ((0, len(full) - len(plane)), (0, 0)), mode="edge")
            samples = reference.y.size / (4 if index else 1)
            ours = _psnr(_sse(extended, full[:, : plane.shape[1]]) / samples, peak)
            if abs(ours - stated[index]) > X265_TOLERANCE:
                raise EncoderError(
                    f"{name} POC {coded.poc}: PSNR {'YUV'[index]} is {ours:.4f} dB, x265 states {stated[index]:.3f}"
                )
            error = _sse(plane, output.planes[index])
            psnr.append(_psnr(error / plane.size, peak) if error else math.inf)
        chroma = (psnr[1], psnr[2]) if len(psnr) == 3 else (None, None)
        proven.append(replace(coded, psnr_y=psnr[0], psnr_u=chroma[0], psnr_v=chroma[1]))
    return tuple(proven)


def _sse(a: Plane, b: Plane) -> float:
    return float(np.sum((a.astype(np.float64) - b.astype(np.float64)) ** 2))


def _psnr(mse: float, peak: float) -> float:
    # Not quality's: NumPy's logarithm may differ from this one in the last bit, and stores hold these figures.
    return 10 * math.log10(peak**2 / mse) if mse else LOSSLESS_PSNR


def prove_same_cus(name: str, filtered: Path, plain: Path) -> None:
    """Raise EncoderError unless two VVC streams hold the same CUs in every picture.

    Partition, modes and QPs are compared, and a hash of all bins but those of the loop filters: residuals, chroma modes
    and whatever else decides the samples before the filters. Raises UnsupportedError for what codecnn does not read.
    """
    streams = stream_units(filtered), stream_units(plain)
    if len(streams[0]) != len(streams[1]):
        raise EncoderError(f"{name}: {len(streams[0])} pictures were coded and {len(streams[1])} without loop filters")
    for number, (with_filters, without) in enumerate(zip(*streams, strict=True)):
        if np.array_equal(with_filters, without):
            continue
        count = min(len(with_filters), len(without))
        unlike = with_filters[:count] != without[:count]
        row = int(np.argmax(unlike.any(axis=1)))
        x, y = with_filters[row, CU_COLUMNS.index("x")], with_filters[row, CU_COLUMNS.index("y")]
        raise EncoderError(
            f"{name}, picture {number} in decoding order: without loop filters the encoder decided otherwise, "
            f"{CU_COLUMNS[int(np.argmax(unlike[row]))]} differs at the CU at ({x}, {y})"
        )


def prove_alike(
    name: str, source: Path, source_format: VideoFormat, decoded: Path, unfiltered: Path, coded_format: VideoFormat
) -> None:
    """Raise EncoderError unless `decoded` looks like `unfiltered` with filters applied, everywhere in every picture.

    Loop filters change a part of the coding error. Where a CU was coded in another way its error is another one, as
    large as the first, and so is the difference of the two pictures. So in each square of 64x64 samples of each plane
    the MSE between the two may be MAX_CHANGE of the MSE between `unfiltered` and the source, at most. This is evidence,
    not a comparison of the CUs: decisions that spread are found, one that changes few samples of a square is not.
    """
    with (
        open_raw(source, source_format) as originals,
        open_raw(decoded, coded_format) as filtered,
        open_raw(unfiltered, coded_format) as plain,
    ):
        if len(plain) != len(filtered):
            raise EncoderError(f"{name}: {len(filtered)} pictures were coded and {len(plain)} without loop filters")
        floor = _FLOOR * 4.0 ** (coded_format.bit_depth - 10)
        for number, (original, picture, before) in enumerate(zip(originals, filtered, plain, strict=True)):
            reference = convert(original, coded_format.bit_depth)
            planes = zip("YUV", reference.planes, picture.planes, before.planes, strict=False)
            for plane, wanted, after, unchanged in planes:
                error, change = _square_mse(unchanged, wanted), _square_mse(after, unchanged)
                excess = change - (MAX_CHANGE * error + floor)
                if excess.max() > 0:
                    row, column = np.unravel_index(excess.argmax(), excess.shape)
                    raise EncoderError(
                        f"{name}, picture {number}: without loop filters the encoder decided otherwise, plane {plane} "
                        f"differs by an MSE of {change[row, column]:.1f} in the square at "
                        f"({CELL * column}, {CELL * row}), where the coding error is {error[row, column]:.1f}"
                    )


def _square_mse(a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Mean squared difference in each square of the grid, those at the edges cut."""
    return ctu_means((a.astype(np.float64) - b) ** 2, CELL).reshape(-(-a.shape[0] // CELL), -1)
