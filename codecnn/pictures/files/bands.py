"""Still pictures in bands of rows, so that memory holds a part of a large picture, and the limit of their size."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import ConfigError, FormatError

Samples = NDArray[Any]
"""uint8 or uint16 that use the whole range of their type: shape (h, w) if grey, else (h, w, 3) of R'G'B'."""

BAND_SAMPLES = 1 << 19
"""Number of pixels of a band of rows, in which pictures are decoded and converted."""

WHOLE_SAMPLES = 1 << 22
"""Largest number of pixels of a PNG or TIFF that is decoded whole, which is faster."""

LIMIT_VARIABLE = "CODECNN_MAX_SAMPLES"
"""Environment variable that overrides `MAX_SAMPLES`."""
MAX_SAMPLES = 1 << 29
"""Largest number of samples (width x height x channels) of a still picture: those of RGB of 13377x13377."""
_MAX_EXTENT = 999_999
"""Largest width and height of a still picture, as for raw files."""


def check_size(path: Path, size: tuple[int, int], channels: int) -> None:
    """Raise FormatError if a still picture has no samples, or more than `CODECNN_MAX_SAMPLES` or `MAX_SAMPLES`."""
    width, height = size
    if width < 1 or height < 1:
        raise FormatError(f"{path} cannot be read as a picture: its size is {width}x{height}")
    if max(size) > _MAX_EXTENT:
        raise FormatError(
            f"{path} is {width}x{height}, and codecnn reads at most {_MAX_EXTENT} samples across and down"
        )
    text = os.environ.get(LIMIT_VARIABLE, str(MAX_SAMPLES))
    if not re.fullmatch(r"[1-9][0-9]{0,17}", text):
        raise ConfigError(f"{LIMIT_VARIABLE} is {text[:40]!r}: set it to a number of samples, e.g. {MAX_SAMPLES}")
    if (samples := width * height * channels) > int(text):
        raise FormatError(
            f"{path} has {samples} samples ({width}x{height}, {channels} channels), more than the limit of {text}: "
            f"set {LIMIT_VARIABLE}={samples} to read it nevertheless"
        )


def band_rows(width: int) -> int:
    """Return the number of rows of a band, which is even."""
    return max(2, BAND_SAMPLES // width // 2 * 2)


def split_rows(samples: Samples) -> Iterator[Samples]:
    """Yield the rows of a picture in bands."""
    rows = band_rows(samples.shape[1])
    for start in range(0, len(samples), rows):
        yield samples[start : start + rows]


def joined_rows(parts: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the rows of parts of any height in bands."""
    waiting: list[Samples] = []
    for part in parts:
        waiting.append(part)
        rows = band_rows(part.shape[1])
        if (height := sum(map(len, waiting))) < rows:
            continue
        joined = np.concatenate(waiting) if len(waiting) > 1 else part
        whole = height // rows * rows
        yield from split_rows(joined[:whole])
        waiting = [joined[whole:].copy()] if height > whole else []
    if waiting:
        yield np.concatenate(waiting)
