"""Sizes that an encoder does not take: pictures are padded before coding and cropped after decoding."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from codecnn.codec.base import CodecSettings, CodedSequence
from codecnn.codec.checks import measured_picture
from codecnn.pictures.files import Picture, VideoFormat, convert, create_video, open_raw, pad_to_size

Encode = Callable[[Path, VideoFormat, CodecSettings, Path], CodedSequence]
"""The method `encode` of a back end, for the sizes that its encoder takes."""

MULTIPLE_OF_CHROMA = {"400": (1, 1), "420": (2, 2), "422": (2, 1), "444": (1, 1)}
"""Chroma format -> numbers that divide width and height where chroma planes hold whole samples."""


def padded_size(source_format: VideoFormat, *, minimum: int = 1, multiple: tuple[int, int] = (2, 2)) -> tuple[int, int]:
    """Return the smallest size (width, height) that is at least that of the source and that an encoder takes.

    Args:
        source_format: Format of the source.
        minimum: Least width and height that the encoder takes.
        multiple: Numbers that divide the widths and heights that it takes.
    """
    width, height = (
        max(extent, minimum) + -max(extent, minimum) % step
        for extent, step in zip((source_format.width, source_format.height), multiple, strict=True)
    )
    return width, height


def code_padded(
    encode: Encode,
    source: Path,
    source_format: VideoFormat,
    settings: CodecSettings,
    folder: Path,
    size: tuple[int, int],
) -> CodedSequence:
    """Code a source of any size: padded to `size` by its last column and row, and cropped to its own size again.

    The bitstream, its bits and the encoder's log are those of the padded pictures. All picture files are cropped, and
    the PSNR of the pictures is that of the cropped ones.

    Args:
        encode: Codes a source of the size `size`.
        source: Raw YUV file.
        source_format: Format of the source.
        settings: Settings of the encode.
        folder: Folder for all output files.
        size: Width and height to code, at least those of the source.

    Returns:
        The sequence in the size of the source; `coded_size` is `size` if the source was padded.

    Raises:
        CodecnnError: As `encode`.
    """
    if size == (source_format.width, source_format.height):
        return encode(source, source_format, settings, folder)
    padded_format = replace(source_format, width=size[0], height=size[1])
    folder.mkdir(parents=True, exist_ok=True)
    # The padded file has the name of the source, which messages and the recorded command contain.
    with tempfile.TemporaryDirectory(prefix=".padded-", dir=folder) as name:
        padded = Path(name) / source.name
        with open_raw(source, source_format) as originals, create_video(padded, padded_format, check_name=False) as out:
            for picture in originals:
                out.write(pad_to_size(picture, source_format.chroma, *size))
        sequence = encode(padded, padded_format, settings, folder)
    cropped_format = replace(sequence.format, width=source_format.width, height=source_format.height)
    for path in (sequence.decoded, sequence.unfiltered, sequence.prediction):
        if path is not None:
            _crop_file(path, sequence.format, cropped_format)
    with open_raw(source, source_format) as originals, open_raw(sequence.decoded, cropped_format) as decoded:
        depth = cropped_format.bit_depth
        # The MD5s of a log are those of the padded planes.
        pictures = tuple(
            replace(measured_picture(coded, convert(original, depth), picture), md5=())
            for coded, original, picture in zip(sequence.pictures, originals, decoded, strict=True)
        )
    return replace(sequence, format=cropped_format, pictures=pictures, coded_size=size)


def crop(picture: Picture, video_format: VideoFormat) -> Picture:
    """Return the upper left part of a picture that has the size of `video_format`, in the same chroma format."""
    shapes = video_format.plane_shapes
    planes = tuple(plane[:height, :width] for plane, (height, width) in zip(picture.planes, shapes, strict=True))
    return Picture(planes, picture.bit_depth)


def _crop_file(path: Path, coded_format: VideoFormat, cropped_format: VideoFormat) -> None:
    with open_raw(path, coded_format) as coded, create_video(path, cropped_format) as out:
        for picture in coded:
            out.write(crop(picture, cropped_format))
