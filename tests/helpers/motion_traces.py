"""Motion that VTM traces (block statistics), picture by picture."""

import gzip
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

Block = tuple[int, int, int, int]
"""Position and size of a coding unit: x, y, w, h."""


class TracedPicture(NamedTuple):
    """Traced values of a picture.

    Attributes:
        poc: POC.
        units: Values of each coding unit by their names; vectors are tuples.
        vectors: Vectors of 4x4 blocks in 1/16 luma sample by (x, y, list).
    """

    poc: int
    units: dict[Block, dict[str, tuple[int, ...]]]
    vectors: dict[tuple[int, int, int], tuple[int, ...]]


_LINE = re.compile(r"BlockStat: POC (-?\d+) @\( *(\d+), *(\d+)\) \[ *(\d+)x *(\d+)\] (\w+)=(.*)")


def traced_pictures(path: Path) -> list[TracedPicture]:
    """Read a trace of VTM; the pictures are in decoding order."""
    pictures: list[TracedPicture] = []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            match = _LINE.match(line)
            if match is None:
                continue
            poc, x, y, w, h = (int(number) for number in match.groups()[:5])
            name, value = match.group(6), tuple(int(number) for number in match.group(7).strip("{} \n").split(","))
            if not pictures or pictures[-1].poc != poc:
                pictures.append(TracedPicture(poc, defaultdict(dict), {}))
            if name.startswith("MotionBufL"):
                pictures[-1].vectors[x, y, int(name[-1])] = value
            else:
                pictures[-1].units[x, y, w, h][name] = value
    return pictures
