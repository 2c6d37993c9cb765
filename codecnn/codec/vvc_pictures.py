"""Pictures of a VVC stream or of a container with one, decoded by `codecnn.vvc.decoder`."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Literal

from codecnn.base.ahead import ahead
from codecnn.base.errors import CodecnnError, ConfigError, FormatError, MissingFileError, UnsupportedError
from codecnn.base.keywords import checked_keywords
from codecnn.pictures.files import byte_stream
from codecnn.vvc.decoder import DecodedPicture, Decoder, PictureHook, Plane, reconstruct, with_logs
from codecnn.vvc.syntax import ParsedPicture
from codecnn.vvc.syntax import read_pictures as parsed_pictures

PICTURES_AHEAD = 2
"""Pictures that are parsed before they are decoded, if several threads may be used."""


@checked_keywords()
def read_pictures(
    path: Path | str,
    planes: Sequence[str] = ("pred_y", "unf_y"),
    pictures: Literal["all", "intra"] = "all",
    hook: PictureHook | None = None,
) -> Iterator[tuple[int, dict[str, Plane]]]:
    """Decode a VVC stream and return planes of its pictures.

    The first call on a machine compiles for about a minute.

    Args:
        path: VVC byte stream (Annex B), or a container with a VVC stream.
        planes: Names of `PLANES`, and of `MOTION_PLANES` unless only intra pictures are read.
        pictures: "all": every picture that a decoder outputs, in output order; all pictures are decoded and each is
            compared with its hash in the stream. "intra": pictures whose slices are all I slices, in
            decoding order; no other picture is decoded, and none is compared with its hash.
        hook: Filter of each picture after the in-loop filters, before it is output or used as a reference; see
            `PictureHook`. `codecnn.signalling.in_loop.LoopFilter()` is that of streams with a CNN filter in the loop.

    Yields:
        POC and planes by name. Planes of samples have the shape (h, w) without the margin of the conformance window;
        residuals are int16, motion is int32 as `MOTION_PLANES` describes it, the others are uint16. Luma is scaled as
        in decoded pictures: luma mapping (LMCS) is inverted, except for the residual of mapped samples.

    Raises:
        ConfigError: A plane does not exist.
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged, or a decoded picture differs from its hash in the stream; use
            `decode_pictures` to read such pictures.
        UnsupportedError: The stream uses an unsupported tool, it was coded with a CNN filter in the loop and there is
            no hook, or no picture is intra although only those are read.
    """
    if pictures == "all":
        for decoded in decode_pictures(path, planes, hook):
            if decoded.hash == "differs":
                raise FormatError(
                    f"{path}, POC {decoded.poc}: the decoded picture differs from its hash in the stream, "
                    "which is damaged or uses a tool that codecnn decodes wrongly"
                )
            yield decoded.poc, decoded.planes
        return
    if pictures != "intra":
        raise ConfigError(f"pictures is {pictures!r}: one of all, intra")
    any_intra = False
    for picture in _parsed_pictures(path):
        if picture.is_intra:
            any_intra = True
            with _located(path, picture):
                result = reconstruct(picture, planes, hook)
            yield picture.poc, result
    if not any_intra:
        raise UnsupportedError(f"{path}: no picture is intra; with pictures='all' the others are read, too")


def decode_pictures(
    path: Path | str, planes: Sequence[str] = (), hook: PictureHook | None = None
) -> Iterator[DecodedPicture]:
    """Decode a VVC stream and compare its pictures with their hashes.

    Args:
        path: VVC byte stream (Annex B), or a container with a VVC stream.
        planes: Names of `PLANES` and `MOTION_PLANES`.
        hook: Filter of each picture after the in-loop filters, before it is output or used as a reference; see
            `PictureHook`. `codecnn.signalling.in_loop.LoopFilter()` is that of streams with a CNN filter in the loop.

    Yields:
        Every picture that a decoder outputs, in output order, also those that differ from their hash.

    Raises:
        ConfigError: A plane does not exist.
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses an unsupported tool, or was coded with a CNN filter in the loop and there is
            no hook.
    """
    # Pictures are yielded while the next one is decoded.
    finished: list[Future[DecodedPicture]] = []
    pictures = ahead(with_logs(_parsed_pictures(path)), PICTURES_AHEAD)
    with contextlib.closing(pictures), Decoder(tuple(planes), hook) as decoder:
        try:
            for picture, log in pictures:
                with _located(path, picture):
                    following = decoder.decode(picture, log)
                yield from _results(finished)
                finished = following
        except CodecnnError:
            yield from _results(finished)
            raise
        yield from _results([*finished, *decoder.flush()])


def _results(pictures: list[Future[DecodedPicture]]) -> Iterator[DecodedPicture]:
    """Yield pictures when they are done, and forget them."""
    while pictures:
        yield pictures.pop(0).result()


def _parsed_pictures(path: Path | str) -> Iterator[ParsedPicture]:
    """Parse the headers of a stream."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    stream = byte_stream(path, ("vvc",))
    try:
        yield from parsed_pictures(stream.path.read_bytes())
    except FormatError as error:
        raise type(error)(f"{path}: {error}") from None


@contextlib.contextmanager
def _located(path: Path | str, picture: ParsedPicture) -> Iterator[None]:
    """Name the stream and the picture in errors of the stream."""
    try:
        yield
    except FormatError as error:
        raise type(error)(f"{path}, POC {picture.poc}: {error}") from None
