"""Pictures of a VVC stream, reconstructed."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from codecnn.errors import FormatError, MissingFileError, UnsupportedError
from codecnn.reconstruct.picture import Plane, reconstruct
from codecnn.video import byte_stream
from codecnn.vvc import read_pictures as parsed_pictures


def read_pictures(
    path: Path | str, planes: Sequence[str] = ("pred_y", "unf_y")
) -> Iterator[tuple[int, dict[str, Plane]]]:
    """Read a VVC stream and reconstruct planes of its intra pictures.

    The first call on a machine compiles for about two minutes.

    Args:
        path: VVC byte stream (Annex B), or a container with a VVC stream.
        planes: Names of `PLANES`.

    Yields:
        POC and planes by name of each intra picture, in decoding order; pictures with P or B slices are skipped. Planes
        have the shape (h, w) without the margin of the conformance window; residuals are int16, the others uint16. Luma
        is scaled as in decoded pictures: luma mapping (LMCS) is inverted, except for the residual of mapped samples.

    Raises:
        ConfigError: A plane does not exist.
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses an unsupported tool, or no picture is intra.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    stream = byte_stream(path, ("vvc",))
    any_intra = False
    picture = None
    try:
        for picture in parsed_pictures(stream.path.read_bytes()):
            if picture.is_intra:
                any_intra = True
                yield picture.poc, reconstruct(picture, planes)
    except FormatError as error:
        where = "" if picture is None else f", POC {picture.poc}"
        raise type(error)(f"{path}{where}: {error}") from None
    if not any_intra:
        raise UnsupportedError(f"{path}: no picture is intra, and codecnn reconstructs intra pictures only")
