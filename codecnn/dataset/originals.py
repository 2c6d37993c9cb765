"""Originals of a store: each sequence of a recipe, converted once to the raw YUV that the encoder reads."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock
from pydantic import Field

from codecnn.base.errors import CodecnnError, ConfigError, FormatError, StoreError
from codecnn.base.files import file_state, is_settled, read_json, sha256_file, sha256_json, write_json
from codecnn.base.leftovers import shortened
from codecnn.codec import CODING_BLOCK_SIZE
from codecnn.dataset.recipe import Recipe
from codecnn.dataset.records import Format, Record, Variant
from codecnn.dataset.sources import Source
from codecnn.dataset.variants import fit_scale, scaled_extent, vary_picture, vary_rgb
from codecnn.pictures.files import (
    Picture,
    Video,
    VideoFormat,
    check_video,
    convert,
    create_video,
    downscale,
    downscaled_extent,
    is_raw_name,
    open_video,
    pad_to_even,
    padded_extent,
    parse_name,
    parse_size,
    stills_in,
    summarise_video,
    warn,
)

ORIGINALS = "originals"
"""Folder of the converted sequences in the store."""

HASHES = ".hashes"
"""Folder in the store that caches the sha256 of source files during a build."""

LONGEST_NAME = 200
"""Bytes of the name of a sequence in names of files and folders, which have 255 bytes at most."""

ORIGINAL_STEM = re.compile(r".+_[0-9a-f]{16}", re.DOTALL)
"""Form of the names that `original_name` gives, without their suffix."""

_LISTED_FILES = 8
"""Number of files that an error message lists."""

_SMALLEST = 32
"""Width and height to which smaller pictures are padded: ffmpeg gives libvvenc a buffer of one byte per luma sample for
the bitstream, which must also hold the headers."""

_STILL_KEYS = {"matrix", "full_range"}
"""Keys of a recipe's sequence that say how still pictures are converted."""

_READING_KEYS = {"size", "bit_depth", "chroma", "fps", "start", "frames", "step", "packing", "matrix", "full_range"}
"""Keys of a recipe's sequence that say how its file is read."""


class Original(Record):
    """A converted sequence; all but its name is stored in a JSON file with the same stem.

    Attributes:
        name: File name relative to the store.
        sha256: Hash of the file.
        bytes: Size of the file.
        format: Format of the pictures.
        variant: Operations applied to the source, with the scale that was used, or None.
    """

    name: str = Field(exclude=True)
    sha256: str
    bytes: int
    format: Format
    variant: Variant | None = None


def original_name(recipe: Recipe, source: Source, store: Path) -> str:
    """Return the name of a source's original in the store; its last part hashes all facts that determine its samples.

    Args:
        recipe: The recipe.
        source: One of its sources.
        store: Folder of the store, which caches the hash of the source.

    Returns:
        File name relative to the store.
    """
    facts = {
        "source_sha256": source_sha256(source.path, store),
        "bit_depth": recipe.internal_bit_depth,
        "chroma": recipe.chroma,
        "scale": source.scale,
        "variant": None if source.variant is None else source.variant.to_json(),
        "named": _named(source.path),
        "source_bit_depth": source.source_bit_depth,
        "multiple": _size_multiple(recipe),
        **source.spec.model_dump(include=_READING_KEYS),
    }
    return f"{ORIGINALS}/{shortened(source.name, LONGEST_NAME)}_{sha256_json(facts)[:16]}.yuv"


def _named(path: Path) -> dict[str, str] | None:
    """Return the fields by which the name of a raw file decides its samples; None for other files."""
    if not is_raw_name(path):
        return None
    fields = parse_name(path)._replace(frames=None)._asdict()
    return {name: str(value) for name, value in fields.items() if value}


def check_sources(recipe: Recipe, sources: Iterable[Source], jobs: int) -> None:
    """Check by their headers that all sources can be read, and have a frame rate for `kbps`, before the first is coded.

    Args:
        recipe: The recipe.
        sources: Sources to check; each file is read once.
        jobs: Number of files that are checked at the same time.

    Raises:
        CodecnnError: A file cannot be read.
        FormatError: Several files cannot be read; the message names each with its reason.
    """
    files = {
        sha256_json([str(source.path), source.spec.model_dump(include=_READING_KEYS)]): source for source in sources
    }

    def problem(source: Source) -> CodecnnError | None:
        try:
            check_video(source.path, **source.spec.model_dump(include=_READING_KEYS))
            if recipe.rate is not None and recipe.rate.kind == "kbps" and _whole_format(recipe, source)[0].fps is None:
                raise ConfigError(f"{source.path} states no pictures per second, which kbps needs: set its fps")
        except CodecnnError as error:
            return error
        return None

    with ThreadPoolExecutor(jobs) as pool:
        problems = [error for error in pool.map(problem, files.values()) if error is not None]
    if len(problems) == 1:
        raise problems[0]
    if problems:
        listed = "; ".join(map(str, problems[:_LISTED_FILES]))
        more = f"; and {len(problems) - _LISTED_FILES} more" if len(problems) > _LISTED_FILES else ""
        raise FormatError(f"{len(problems)} files of recipe {recipe.name!r} cannot be used: {listed}{more}")


def source_format(recipe: Recipe, source: Source) -> tuple[VideoFormat, int]:
    """Return the format and the number of pictures of a source's original; reads headers only where they state both.

    Args:
        recipe: The recipe.
        source: One of its sources.

    Raises:
        CodecnnError: The source cannot be read, or has no picture of those that the recipe selects.
    """
    spec = source.spec
    form, total = _whole_format(recipe, source)
    pictures = len(range(total)[spec.start :: spec.step][: spec.frames])
    fps = None if form.fps is None else form.fps / spec.step
    if not pictures:
        # Only decoding counts the pictures, or there are none, which is an error of opening.
        with _open(recipe, source, None) as video:
            form, fps, pictures = video.format, video.format.fps, len(video)
    width, height = form.width, form.height
    if source.variant is not None:
        scale = fit_scale(source.variant, width, height).scale
        width, height = scaled_extent(width, scale), scaled_extent(height, scale)
    elif source.scale != 1:
        width, height = downscaled_extent(width, source.scale), downscaled_extent(height, source.scale)
    width, height = (padded_extent(extent, _SMALLEST, _size_multiple(recipe)) for extent in (width, height))
    return VideoFormat(width, height, form.chroma, recipe.internal_bit_depth, fps), pictures


def _whole_format(recipe: Recipe, source: Source) -> tuple[VideoFormat, int]:
    """Return format and number of pictures of a source's file, or of a planned source; 0 if headers do not state it."""
    if source.planned is not None:
        width, height = parse_size(source.planned.size)
        return VideoFormat(width, height, source.spec.chroma or "420"), source.planned.pictures
    reading = source.spec.model_dump(include=_READING_KEYS - {"start", "frames", "step"} - _STILL_KEYS)
    if source.still:
        reading |= {"chroma": recipe.chroma, "bit_depth": recipe.internal_bit_depth}
    summary = summarise_video(source.path, **reading)
    return summary.format, summary.pictures or 0


def convert_original(recipe: Recipe, source: Source, name: str, store: Path) -> Original:
    """Convert a source into the store unless it is there already.

    All QPs of a sequence need the same file at the same time, so the conversion holds a lock that works across threads,
    processes and machines. The JSON description is written last. If it is missing or states another size, an earlier
    conversion was interrupted, and the file is converted again.

    Args:
        recipe: The recipe.
        source: One of its sources.
        name: The result of `original_name`.
        store: Folder of the store.

    Returns:
        The description of the file: pictures of even size at the internal bit depth.

    Raises:
        StoreError: The source has changed since `original_name`.
    """
    path = store / name
    description = path.with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        original = _read_description(name, path, description)
        if original is None:
            form, variant = _convert(recipe, source, path)
            if original_name(recipe, source, store) != name:
                raise StoreError(f"{source.path} changed while it was read for store {store}: build the store again")
            optional = {} if variant is None else {"variant": variant}
            original = Original(name=name, sha256=sha256_file(path), bytes=path.stat().st_size, format=form, **optional)
            write_json(description, original.to_json())
    return original


def written_originals(store: Path) -> dict[str, Path]:
    """Return the originals that codecnn wrote into a store, by name relative to the store.

    A file counts if its name is of the form of `original_name` and a valid description lies beside it.
    """
    originals = {}
    for path in sorted((store / ORIGINALS).glob("*.yuv")):
        name = f"{ORIGINALS}/{path.name}"
        if ORIGINAL_STEM.fullmatch(path.stem) and _read_description(name, path, path.with_suffix(".json")) is not None:
            originals[name] = path
    return originals


def source_sha256(path: Path, store: Path) -> str:
    """Return the sha256 of a source file, or of the names and hashes of the stills in a folder.

    The hash of a file is cached in the store until the build is complete, so that a continued build does not compute it
    again.
    """
    if path.is_dir():
        return sha256_json([[file.name, source_sha256(file, store)] for file in stills_in(path)])
    cached = store / HASHES / f"{sha256_json(file_state(path))}.json"
    with contextlib.suppress(CodecnnError, OSError):
        return str(read_json(cached))
    sha256 = sha256_file(path)
    # Another shard that completes the store removes the cache, possibly during this write.
    with contextlib.suppress(FileNotFoundError):
        if is_settled(path):
            write_json(cached, sha256)
    return sha256


def _read_description(name: str, path: Path, description: Path) -> Original | None:
    with contextlib.suppress(CodecnnError, OSError):
        original = Original.from_json(description, read_json(description), name=name)
        if path.stat().st_size == original.bytes:
            return original
    return None


def _convert(recipe: Recipe, source: Source, path: Path) -> tuple[VideoFormat, Variant | None]:
    """Write the file; return its format and the variant with the scale that was used."""
    depth, variant = recipe.internal_bit_depth, source.variant
    if variant is not None:
        with _open(recipe, source, None) as plain:
            variant = fit_scale(variant, plain.format.width, plain.format.height)
    with _open(recipe, source, variant) as video:
        chroma = video.format.chroma

        def pictures() -> Iterator[Picture]:
            for picture in video:
                converted = downscale(convert(picture, depth), chroma, source.scale)
                if variant is not None and not source.still:
                    converted = vary_picture(converted, chroma, variant)
                if source.source_bit_depth is not None:
                    converted = convert(convert(converted, source.source_bit_depth), depth)
                height, width = converted.y.shape
                if min(height, width) < _SMALLEST:
                    warn(
                        f"{source.path} has pictures of {width}x{height}, which are padded to at least "
                        f"{_SMALLEST}x{_SMALLEST} before they are coded: PSNR and bits are those of the padded pictures"
                    )
                yield pad_to_even(converted, chroma, _SMALLEST, _size_multiple(recipe))

        remaining = pictures()
        first = next(remaining)
        height, width = first.y.shape
        form = VideoFormat(width, height, chroma, depth, video.format.fps)
        # The name of the source may state properties that the conversion changes.
        with create_video(path, form, check_name=False) as out:
            out.write(first)
            for picture in remaining:
                out.write(picture)
    return form, variant


def _open(recipe: Recipe, source: Source, variant: Variant | None) -> Video:
    """Open a source: stills are converted as the recipe and the variant say, other files are read as they are."""
    options = source.spec.model_dump(include=_READING_KEYS)
    if source.still:
        options |= {"chroma": recipe.chroma, "bit_depth": recipe.internal_bit_depth}
        if variant is not None:
            options["change"] = lambda samples: vary_rgb(samples, variant)
            if variant.full_range is not None:
                options["full_range"] = variant.full_range
    return open_video(source.path, **options)


def _size_multiple(recipe: Recipe) -> int:
    """Return the number of which width and height become multiples.

    With a filter in the prediction loop libvvenc passes whole blocks to the filter, so sizes are multiples of a block.
    """
    return 2 if recipe.in_loop is None else CODING_BLOCK_SIZE
