"""Pictures before the codec's in-loop filters, from a second stream that is coded without any.

In all intra, prediction takes unfiltered samples of the same picture, so a filter changes no decision unless the
encoder tries it out while it decides (vvenc's EDO). Then both streams hold the same CUs, and the second one decodes to
what the first one's filters are given: of VVC that is proven bin by bin, of HEVC by HM there is evidence in the
pictures. ffmpeg's VVC decoder cannot leave the filters out (`-skip_loop_filter` does nothing), which is why it takes a
second stream.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codecnn.codec.base import Codec, CodecSettings
from codecnn.codec.blocks.vvc_partition import SUFFIXES, stream_units
from codecnn.errors import EncoderError, UnsupportedError
from codecnn.runs import remove_tree
from codecnn.video import VideoFormat, convert, open_raw
from codecnn.vvc.state import CU_COLUMNS

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


def code_unfiltered(
    codec: Codec, source: Path, source_format: VideoFormat, settings: CodecSettings, bitstream: Path, decoded: Path
) -> Path:
    """Code `source` again without loop filters; the pictures become unfiltered.yuv beside `bitstream`, returned.

    `bitstream` and `decoded` are what coding it with loop filters gave. Everything else that the second run leaves is
    removed. Raises what `codec.encode` raises, and EncoderError unless both streams were decided alike: by
    `prove_same_cus` where codecnn reads them, else by `prove_alike`.
    """
    work, path = bitstream.with_name("unfiltered"), bitstream.with_name("unfiltered.yuv")
    name = f"{source.stem} at QP {settings.qp}"
    work.mkdir(parents=True, exist_ok=True)
    try:
        plain = codec.encode(source, source_format, replace(settings, loop_filters=False, unfiltered=False), work)
        read = bitstream.suffix in SUFFIXES
        if read:
            try:
                prove_same_cus(name, bitstream, plain.bitstream)
            except UnsupportedError:
                read = False
        if not read:
            prove_alike(name, source, source_format, decoded, plain.decoded, plain.format)
        plain.decoded.replace(path)
    finally:
        remove_tree(work)
    return path


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
    squared = (a.astype(np.float64) - b) ** 2
    rows, columns = np.arange(0, a.shape[0], CELL), np.arange(0, a.shape[1], CELL)
    total = np.add.reduceat(np.add.reduceat(squared, columns, axis=1), rows, axis=0)
    area = np.outer(np.diff(rows, append=a.shape[0]), np.diff(columns, append=a.shape[1]))
    return np.asarray(total / area)
