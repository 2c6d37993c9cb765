"""The reconstruction before the in-loop filters, from a second bitstream that is coded without them.

In all intra, prediction uses unfiltered samples of the same picture. A filter therefore changes no decision, unless the
encoder tries the filter while it decides (EDO of vvenc). Then both bitstreams contain the same CUs, and the second one
decodes to the input of the first one's filters. This is verified bin by bin for VVC, and by the pictures for HEVC coded
with HM. The second bitstream is necessary because ffmpeg's VVC decoder cannot skip the filters (`-skip_loop_filter` has
no effect).
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codecnn.base.division import ceil_div
from codecnn.base.errors import EncoderError, UnsupportedError
from codecnn.base.files import remove_tree
from codecnn.codec.base import Codec, CodecSettings
from codecnn.codec.blocks.vvc_stream import VVC_SUFFIXES, stream_units
from codecnn.pictures.files import VideoFormat, convert, open_raw
from codecnn.pictures.metrics import ctu_means
from codecnn.vvc.syntax import CU_COLUMNS

SQUARE = 64
"""Width and height in samples of the squares that `verify_similar` compares, in chroma as in luma."""

MAX_CHANGE = 0.8
"""Largest change by the filters in a square, as a share of the coding error there.

In-loop filters stay below it in all tested streams of libvvenc that were coded without EDO. Almost all pairs of streams
with different decisions (EDO on) exceed it.
"""

_FLOOR = 1.0
"""MSE at 10 bit by which filters may change any square; for a smaller coding error the share is not meaningful."""


def code_unfiltered(
    codec: Codec, source: Path, source_format: VideoFormat, settings: CodecSettings, bitstream: Path, decoded: Path
) -> Path:
    """Code a source again without in-loop filters, and keep the decoded pictures.

    All other output of the second run is removed.

    Args:
        codec: The back end.
        source: Raw YUV file.
        source_format: Format of the source.
        settings: Settings of the first run.
        bitstream: Bitstream of the first run.
        decoded: Decoded pictures of the first run.

    Returns:
        The file unfiltered.yuv in the folder of `bitstream`.

    Raises:
        EncoderError: The decisions of the two runs differ: by `verify_same_cus` if codecnn reads the bitstreams, else
            by `verify_similar`.
    """
    work, path = bitstream.with_name("unfiltered"), bitstream.with_name("unfiltered.yuv")
    name = f"{source.stem} at QP {settings.qp}"
    work.mkdir(parents=True, exist_ok=True)
    try:
        plain = codec.encode(source, source_format, replace(settings, loop_filters=False, unfiltered=False), work)
        readable = bitstream.suffix in VVC_SUFFIXES
        if readable:
            assert plain.bitstream is not None
            try:
                verify_same_cus(name, bitstream, plain.bitstream)
            except UnsupportedError:
                readable = False
        if not readable:
            verify_similar(name, source, source_format, decoded, plain.decoded, plain.format)
        plain.decoded.replace(path)
    finally:
        remove_tree(work)
    return path


def verify_same_cus(name: str, filtered: Path, plain: Path) -> None:
    """Check that two VVC streams contain the same CUs in every picture.

    Coding tree, modes and QPs are compared, and a hash of all bins except those of the in-loop filters, which covers
    residuals, chroma modes and all else that determines the samples before the filters.

    Args:
        name: Name of the sequence in error messages.
        filtered: Bitstream coded with in-loop filters.
        plain: Bitstream coded without them.

    Raises:
        EncoderError: A CU differs.
        UnsupportedError: A stream uses a feature that codecnn does not read.
    """
    streams = stream_units(filtered), stream_units(plain)
    if len(streams[0]) != len(streams[1]):
        raise EncoderError(f"{name}: {len(streams[0])} pictures were coded and {len(streams[1])} without loop filters")
    for number, (with_filters, without) in enumerate(zip(*streams, strict=True)):
        if np.array_equal(with_filters, without):
            continue
        count = min(len(with_filters), len(without))
        differs = with_filters[:count] != without[:count]
        row = int(np.argmax(differs.any(axis=1)))
        x, y = with_filters[row, CU_COLUMNS.index("x")], with_filters[row, CU_COLUMNS.index("y")]
        raise EncoderError(
            f"{name}, picture {number} in decoding order: without loop filters the encoder decided otherwise, "
            f"{CU_COLUMNS[int(np.argmax(differs[row]))]} differs at the CU at ({x}, {y})"
        )


def verify_similar(
    name: str, source: Path, source_format: VideoFormat, decoded: Path, unfiltered: Path, coded_format: VideoFormat
) -> None:
    """Check that `decoded` looks like `unfiltered` with in-loop filters applied.

    In-loop filters change a part of the coding error. A CU with another decision has another coding error of similar
    size, and the two pictures differ as much. In each square of SQUARE x SQUARE samples of each plane, the MSE between
    the two pictures must therefore be at most MAX_CHANGE of the MSE between `unfiltered` and the source. This is
    evidence only: it detects decisions that spread, but not one that changes few samples of a square.

    Args:
        name: Name of the sequence in error messages.
        source: Raw YUV file of the originals.
        source_format: Format of the originals.
        decoded: Raw YUV file of the decoded pictures.
        unfiltered: Raw YUV file of the pictures that were coded without filters.
        coded_format: Format of `decoded` and `unfiltered`.

    Raises:
        EncoderError: The pictures differ too much, or in number.
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
            for plane, original_plane, after_plane, before_plane in planes:
                error, change = _square_mse(before_plane, original_plane), _square_mse(after_plane, before_plane)
                excess = change - (MAX_CHANGE * error + floor)
                if excess.max() > 0:
                    row, column = np.unravel_index(excess.argmax(), excess.shape)
                    raise EncoderError(
                        f"{name}, picture {number}: without loop filters the encoder decided otherwise, plane {plane} "
                        f"differs by an MSE of {change[row, column]:.1f} in the square at "
                        f"({SQUARE * column}, {SQUARE * row}), where the coding error is {error[row, column]:.1f}"
                    )


def _square_mse(a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Return the MSE in each square; squares at the right and lower border are cut."""
    return ctu_means((a.astype(np.float64) - b) ** 2, SQUARE).reshape(ceil_div(a.shape[0], SQUARE), -1)
