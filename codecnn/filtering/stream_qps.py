"""Slice QPs of a sequence, picture by picture in output order, from its bitstream."""

from pathlib import Path

from codecnn.codec.blocks.vvc_partition import SUFFIXES, stream_info
from codecnn.errors import ConfigError, FormatError


def stream_qps(path: Path | str, count: int) -> list[int]:
    """The slice QP of each of the first `count` pictures that the stream shows, in the order it shows them.

    Raises ConfigError for anything but a VVC elementary stream, for one that codecnn cannot read, for a picture whose
    slices differ in QP, and where the stream shows fewer pictures.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"{path} does not tell its slice QPs, only VVC streams ({', '.join(SUFFIXES)}) do: give it as -q QP"
        )
    try:
        pictures = stream_info(path).pictures
    except FormatError as error:
        raise ConfigError(f"the slice QPs cannot be read, give them as -q QP: {error}") from error
    shown = {picture.position: picture.slice_qps for picture in pictures if picture.position is not None}
    if len(shown) < count:
        raise ConfigError(f"{path} tells the QPs of {len(shown)} pictures and decodes to {count}: give it as -q QP")
    for position in range(count):
        if len(set(shown[position])) > 1:
            listed = ", ".join(map(str, shown[position]))
            raise ConfigError(f"{path}: the slices of picture {position} have the QPs {listed}: give it as -q QP")
    return [shown[position][0] for position in range(count)]
