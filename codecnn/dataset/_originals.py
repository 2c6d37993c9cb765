"""The pictures as the encoder gets them: each sequence of a recipe converted once, whoever asks for it first."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import Field

from codecnn.codec import BLOCK
from codecnn.dataset._variants import fitted, vary_picture, vary_rgb
from codecnn.dataset.recipe import Recipe, Source
from codecnn.dataset.records import Format, Record, Variant
from codecnn.errors import CodecnnError
from codecnn.runs import read_json, sha256_file, sha256_json, write_json
from codecnn.video import (
    Video,
    VideoFormat,
    convert,
    create_video,
    downscale,
    open_video,
    pad_to_even,
    stills_in,
)

ORIGINALS, HASHES = "originals", ".hashes"
_SMALLEST = 32
"""Width and height that smaller pictures are padded to: ffmpeg gives libvvenc a byte a luma sample, headers and all."""


def _multiple(recipe: Recipe) -> int:
    """What width and height are padded to a multiple of: all that libvvenc codes is handed out of whole blocks only."""
    return 2 if recipe.in_loop is None else BLOCK


class Original(Record):
    """A converted sequence: its file's name in the store, and what the JSON beside it keeps of it."""

    name: str = Field(exclude=True)
    sha256: str
    bytes: int
    format: Format
    variant: Variant | None = None


def original_name(recipe: Recipe, source: Source, store: Path) -> str:
    """The file's name in the store; its last part is a hash of all that decides the samples."""
    reading = source.spec.model_dump(include=_READING)
    how = {
        "source_sha256": source_sha256(source.path, store),
        "bit_depth": recipe.internal_bit_depth,
        "chroma": recipe.chroma,
        "scale": source.scale,
        **reading,
    }
    # Only where there are any, so that what was converted before there were these keeps its name.
    if source.variant is not None:
        how["variant"] = source.variant.to_json()
    if source.source_bit_depth is not None:
        how["source_bit_depth"] = source.source_bit_depth
    if recipe.in_loop is not None:
        how["multiple"] = _multiple(recipe)
    return f"{ORIGINALS}/{source.name}_{sha256_json(how)[:16]}.yuv"


_READING = {"size", "bit_depth", "chroma", "fps", "start", "frames", "step", "packing", "matrix", "full_range"}
"""What a recipe's sequence says on how its file is to be read."""


def convert_original(recipe: Recipe, source: Source, name: str, store: Path) -> Original:
    """Convert `source` into the store unless it is there, and say what it is: of even size, at the internal bit depth.

    All QPs of a sequence need the same file at once, so whoever comes first, thread, process or machine, converts it
    under a lock, and the others wait. The JSON beside it is written last: without it, or with another size in bytes,
    the file is what a kill left, and is converted again.
    """
    path = store / name
    described = path.with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        found = _described(name, path, described)
        if found is None:
            form, variant = _convert(recipe, source, path)
            has = {} if variant is None else {"variant": variant}
            found = Original(name=name, sha256=sha256_file(path), bytes=path.stat().st_size, format=form, **has)
            write_json(described, found.to_json())
    return found


def _described(name: str, path: Path, described: Path) -> Original | None:
    with contextlib.suppress(CodecnnError, OSError):
        original = Original.from_json(described, read_json(described), name=name)
        if path.stat().st_size == original.bytes:
            return original
    return None


def _convert(recipe: Recipe, source: Source, path: Path) -> tuple[VideoFormat, Variant | None]:
    """Write the file; its format, and the variant that it became."""
    depth, variant = recipe.internal_bit_depth, source.variant
    if variant is not None:
        with _open(recipe, source, None) as plain:
            variant = fitted(variant, plain.format.width, plain.format.height)
    with _open(recipe, source, variant) as video:
        chroma = video.format.chroma

        def pictures() -> Iterator[Any]:
            for picture in video:
                found = downscale(convert(picture, depth), chroma, source.scale)
                if variant is not None and not source.still:
                    found = vary_picture(found, chroma, variant)
                if source.source_bit_depth is not None:
                    found = convert(convert(found, source.source_bit_depth), depth)
                yield pad_to_even(found, chroma, _SMALLEST, _multiple(recipe))

        converted = pictures()
        first = next(converted)
        height, width = first.y.shape
        form = VideoFormat(width, height, chroma, depth, video.format.fps)
        with create_video(path, form) as out:
            out.write(first)
            for picture in converted:
                out.write(picture)
    return form, variant


def _open(recipe: Recipe, source: Source, variant: Variant | None) -> Video:
    """Stills become what the recipe and their variant say; other files are read as they are."""
    options = source.spec.model_dump(include=_READING)
    if source.still:
        options |= {"chroma": recipe.chroma, "bit_depth": recipe.internal_bit_depth}
        if variant is not None:
            options["change"] = lambda samples: vary_rgb(samples, variant)
            if variant.full_range is not None:
                options["full_range"] = variant.full_range
    return open_video(source.path, **options)


def source_sha256(path: Path, store: Path) -> str:
    """sha256 of a source; of a folder, that of its files. Kept until the build is whole, so no rerun hashes again."""
    if path.is_dir():
        return sha256_json([[file.name, source_sha256(file, store)] for file in stills_in(path)])
    status = path.stat()
    state = [str(path.resolve()), status.st_size, status.st_mtime_ns]
    kept = store / HASHES / f"{sha256_json(state)}.json"
    with contextlib.suppress(CodecnnError, OSError):
        return str(read_json(kept))
    found = sha256_file(path)
    write_json(kept, found)
    return found
