"""What the headers of a stream tell of its pictures, VVC or HEVC: the one way to its slice QPs."""

from pathlib import Path

from codecnn.codec.blocks.vvc_partition import SUFFIXES, StreamInfo, StreamPicture, stream_info
from codecnn.codec.hevc_headers import HEVC_SUFFIXES, hevc_info
from codecnn.errors import FormatError

STREAM_SUFFIXES = (*SUFFIXES, *HEVC_SUFFIXES)
"""Names of elementary streams whose headers tell their slice QPs."""


def read_headers(path: Path) -> StreamInfo:
    """The headers of a VVC or HEVC byte stream, by its suffix.

    Raises MissingFileError, FormatError for damage, and UnsupportedError for a VVC stream that codecnn does not read.
    """
    return hevc_info(path) if path.suffix.lower() in HEVC_SUFFIXES else stream_info(path)


def shown_pictures(info: StreamInfo) -> list[StreamPicture]:
    """The pictures that a stream shows, in the order it shows them."""
    shown = {picture.position: picture for picture in info.pictures if picture.position is not None}
    return [shown[position] for position in range(len(shown))]


def slice_qp(picture: StreamPicture, path: Path) -> int:
    """The one slice QP of a picture of the stream `path`. Raises FormatError where its slices differ."""
    if len(set(picture.slice_qps)) > 1:
        listed = ", ".join(map(str, picture.slice_qps))
        raise FormatError(f"{path}: the slices of picture {picture.position} have the QPs {listed}")
    return picture.slice_qps[0]
