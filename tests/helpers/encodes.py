"""Encodes of synthetic clips by the back ends, compared with plain numpy."""

import math
from pathlib import Path

import numpy as np
import pytest

from codecnn.codec import CodecSettings, CodedSequence, get_codec
from codecnn.pictures.files import VideoFormat
from tests.helpers.clips import write_clip


def raw_pictures(path: Path, video_format: VideoFormat) -> list[list[np.ndarray]]:
    """Return the flat planes of each picture; chroma of odd sizes is rounded up."""
    width, height = video_format.width, video_format.height
    across = {"400": 0, "420": (width + 1) // 2, "422": (width + 1) // 2, "444": width}[video_format.chroma]
    down = (height + 1) // 2 if video_format.chroma == "420" else height
    luma, chroma = width * height, across * down
    data = np.fromfile(path, "u1" if video_format.bit_depth == 8 else "<u2").reshape(-1, luma + 2 * chroma)
    return [np.split(row, [luma, luma + chroma] if chroma else []) for row in data]


def encode_clip(
    folder: Path, codec: str, video_format: VideoFormat, pictures: int = 2, **settings: object
) -> CodedSequence:
    """Code a clip into `folder`/out, and compare order, bits and PSNR of its pictures with the files.

    Args:
        folder: Folder for the clip and the coded sequence.
        codec: Name of the back end.
        video_format: Format of the clip.
        pictures: Number of pictures.
        **settings: Attributes of `CodecSettings`.
    """
    source = write_clip(folder / "source.yuv", video_format, pictures)
    sequence = get_codec(codec).encode(source, video_format, CodecSettings(**settings), folder / "out")
    assert [picture.poc for picture in sequence.pictures] == list(range(pictures))
    assert sum(picture.bits for picture in sequence.pictures) == sequence.bits
    shift = sequence.format.bit_depth - video_format.bit_depth
    read = (raw_pictures(source, video_format), raw_pictures(sequence.decoded, sequence.format))
    for picture, original, decoded in zip(sequence.pictures, *read, strict=True):
        stated = [psnr for psnr in (picture.psnr_y, picture.psnr_u, picture.psnr_v) if psnr is not None]
        for psnr, a, b in zip(stated, original, decoded, strict=True):
            mse = np.mean((a.astype(float) * 2**shift - b) ** 2)
            peak = 255 * 2 ** (sequence.format.bit_depth - 8)
            assert psnr == pytest.approx(10 * math.log10(peak**2 / mse), abs=1e-9)
    return sequence
