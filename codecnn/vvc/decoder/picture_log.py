"""Log of a whole picture: what its reconstruction needs of the slice data, parsed without any decoded sample."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from codecnn.base.errors import FormatError
from codecnn.vvc.syntax import CTU_LOG_SIZE, ParsedCtus, ParsedPicture, parsed_ctus

_LOG_SIZE = 4 * CTU_LOG_SIZE


class PictureLog(NamedTuple):
    """Log of a picture.

    Attributes:
        batches: Consecutive CTUs of the slices in decoding order, without the rows of coding units.
        error: Error at which the slice data ended early, None if it is whole.
    """

    batches: list[ParsedCtus]
    error: FormatError | None


def read_log(picture: ParsedPicture) -> PictureLog:
    """Parse the slice data of a picture."""
    batches: list[ParsedCtus] = []
    try:
        for ctus in parsed_ctus(picture, _LOG_SIZE):
            # The parser overwrites its arrays.
            batches.append(ctus._replace(log=ctus.log.copy(), cus=np.zeros((0, 0), np.int32)))
    except FormatError as error:
        return PictureLog(batches, error)
    return PictureLog(batches, None)


def with_logs(pictures: Iterator[ParsedPicture]) -> Iterator[tuple[ParsedPicture, PictureLog]]:
    """Yield pictures with their logs."""
    for picture in pictures:
        yield picture, read_log(picture)
