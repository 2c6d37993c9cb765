"""Pictures to label, from files: a video, a picture or a folder of pictures, and what a codec decoded of them."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codecnn.errors import FormatError
from codecnn.intra.labels import Source
from codecnn.runs import sha256_file
from codecnn.video import STILL_SUFFIXES, Video, convert, open_video, stills_in


class PictureFiles:
    """Pictures of a path, and of the path of their decoded versions where there is one.

    A folder is its still pictures by name, each of its own size; its decoded versions then are a folder with as many.
    Of a picture and its decoded version the one of fewer bits is raised to the depth of the other. `options` are those
    of `open_video`, for both; `frames` of a folder are its first files. Raises MissingFileError, and FormatError where
    the two do not hold as many pictures.
    """

    def __init__(self, path: Path, decoded: Path | None = None, **options: Any) -> None:
        self.options = options
        self.files = _files(path, options.get("frames"))
        self.decoded = None if decoded is None else _files(decoded, options.get("frames"))
        if self.decoded is not None and len(self.decoded) != len(self.files):
            raise FormatError(f"{path} holds {len(self.files)} files, {decoded} {len(self.decoded)} decoded ones")
        self.counts = [self._count(file) for file in self.files]
        if self.decoded is not None:
            for file, other, count in zip(self.files, self.decoded, self.counts, strict=True):
                if (found := self._count(other)) != count:
                    raise FormatError(f"{file} holds {count} pictures, {other} {found} decoded ones")

    def __len__(self) -> int:
        return sum(self.counts)

    def __iter__(self) -> Iterator[Source]:
        for number, file in enumerate(self.files):
            with self._open(file) as video:
                if self.decoded is None:
                    for frame, picture in enumerate(video):
                        yield Source(file.stem, frame, picture.y, picture.y, picture.bit_depth)
                    continue
                with self._open(self.decoded[number]) as decoded:
                    for frame, (picture, other) in enumerate(zip(video, decoded, strict=True)):
                        depth = max(picture.bit_depth, other.bit_depth)
                        planes = convert(picture, depth).y, convert(other, depth).y
                        yield Source(file.stem, frame, *planes, depth)

    def inputs(self) -> list[dict[str, Any]]:
        """Name and SHA-256 of every file, for a result's provenance."""
        pairs = itertools.zip_longest(self.files, self.decoded or [])
        return [
            {"picture": str(file), "sha256": sha256_file(file)}
            | ({} if other is None else {"decoded": str(other), "decoded_sha256": sha256_file(other)})
            for file, other in pairs
        ]

    def _open(self, file: Path) -> Video:
        # A still has no header that bit depth or size could contradict: the depth is what it is converted to.
        still = file.suffix.lower() in STILL_SUFFIXES
        options = {key: value for key, value in self.options.items() if not still or key == "bit_depth"}
        return open_video(file, **options)

    def _count(self, file: Path) -> int:
        if file.suffix.lower() in STILL_SUFFIXES and file.is_file():
            return 1
        with self._open(file) as video:
            return len(video)


def _files(path: Path, frames: int | None) -> list[Path]:
    return stills_in(path)[:frames] if path.is_dir() else [path]
