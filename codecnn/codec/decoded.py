"""Decoding of VVC streams into files, and comparison of the pictures with the hashes in the stream."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.files import atomic_path
from codecnn.base.outputs import check_outputs
from codecnn.codec.blocks.stream_planes import as_samples
from codecnn.codec.blocks.vvc_stream import read_output_pictures
from codecnn.pictures.files import STANDARD_STREAM, VideoFormat, VideoWriter, create_video, probe_stream

if TYPE_CHECKING:
    from codecnn.vvc.decoder import PictureHook

Plane = npt.NDArray[Any]

PICTURE_KINDS = ("rec", "sao", "dbf", "unf", "pred")
"""Kinds of planes that are pictures: Y, Cb and Cr of the bit depth of the stream."""

_LETTERS = "yuv"


@dataclass(frozen=True)
class CheckedPicture:
    """Properties of a decoded picture.

    Attributes:
        poc: Picture order count.
        slice_type: I, P or B.
        slice_qps: QPs of its slices.
        hash: "ok" or "differs" compared with the hash in the stream, or "none" if it has no hash.
        missing: POCs of pictures that the stream does not contain, and that the picture depends on directly or through
            other pictures.
    """

    poc: int
    slice_type: str
    slice_qps: tuple[int, ...]
    hash: str
    missing: tuple[int, ...]


def decode_file(
    stream: Path | str,
    output: Path | str | None = None,
    planes: Sequence[str] = (),
    *,
    frames: int | None = None,
    check: Callable[[CheckedPicture], None] | None = None,
    progress: Progress | None = None,
    hook: "PictureHook | None" = None,
) -> list[CheckedPicture]:
    """Decode a VVC stream and write its pictures in output order.

    A .y4m file, "-" (Y4M to standard output) or a .yuv file gets the pictures of one kind; the decoded pictures by
    default. Any other name is a folder with one file for each plane: raw files of grey pictures as `write_planes`
    describes them, and for planes of motion motion_00000.npz and so on, one for each picture, with the arrays that
    `codecnn.vvc.decoder.MOTION_PLANES` describes. Files are written completely or not at all.

    Args:
        stream: VVC byte stream, or a container with a VVC stream.
        output: File or folder; None decodes only.
        planes: Planes of `codecnn.vvc.decoder`, or kinds of them such as unf for all its components.
        frames: Number of pictures to decode from the start; all by default.
        check: Called with each picture. Without it the first picture that differs from its hash is an error.
        progress: Called with the number of finished pictures and the number of all pictures.
        hook: Filter in the coding loop; see `codecnn.codec.decode_pictures`.

    Returns:
        Properties of the pictures.

    Raises:
        ConfigError: A plane does not exist, or the output cannot hold the planes.
        MissingFileError: The stream does not exist.
        FormatError: The stream is damaged, or its pictures change their size and one file cannot hold them.
        UnsupportedError: The stream uses an unsupported tool, or was coded with a CNN filter in the loop and there is
            no hook.
    """
    from codecnn.codec.vvc_pictures import decode_pictures

    target = None if output is None else Path(output)
    if target is not None and _is_video(target):
        check_outputs([target], [stream])
    expected = len(read_output_pictures(stream))
    expected = min(expected, frames or expected)
    names = _names(stream, target, planes)
    pictures: list[CheckedPicture] = []
    with contextlib.ExitStack() as stack:
        files = None if target is None else _Files(stack, target, names, str(stream))
        for picture in itertools.islice(decode_pictures(stream, names, hook), frames):
            facts = CheckedPicture(picture.poc, picture.slice_type, picture.slice_qps, picture.hash, picture.missing)
            if check is not None:
                check(facts)
            elif picture.hash == "differs":
                raise FormatError(
                    f"{stream}, POC {picture.poc}: the decoded picture differs from its hash in the stream; "
                    "--check decodes all pictures and lists those that differ"
                )
            if files is not None:
                files.write(picture.planes, picture.chroma, picture.bit_depth, picture.poc)
            pictures.append(facts)
            if progress is not None:
                progress(len(pictures), max(expected, len(pictures)))
    return pictures


def has_loop_filter(stream: Path | str) -> bool:
    """Return whether a picture of a VVC stream has the message of a CNN filter in the coding loop."""
    return any(picture.loop_filter is not None for picture in read_output_pictures(stream))


def _is_video(target: Path) -> bool:
    return str(target) == STANDARD_STREAM or target.suffix.lower() in (".y4m", ".yuv")


def _names(stream: Path | str, target: Path | None, planes: Sequence[str]) -> tuple[str, ...]:
    """Return the planes to decode, with the kinds among `planes` as their components."""
    from codecnn.vvc.decoder import MOTION_PLANES, PLANES

    letters = "y" if read_output_pictures(stream)[0].sps.sps_chroma_format_idc == 0 else _LETTERS
    names: list[str] = []
    for name in planes or (("rec",) if target is not None else ()):
        if name in (*PLANES, *MOTION_PLANES):
            names.append(name)
        elif name in (*PICTURE_KINDS, "resid"):
            names += [f"{name}_{letter}" for letter in letters]
        elif name in ("mv", "ref_idx", "motion", "bs"):
            names += [each for each in (*PLANES, *MOTION_PLANES) if each.startswith(f"{name}_")]
        else:
            kinds = (*PICTURE_KINDS, "resid", "bs", "mv", "ref_idx", "motion")
            raise ConfigError(
                f"there is no plane {name!r}: one of {', '.join((*PLANES, *MOTION_PLANES))}, or all of a kind: "
                f"{', '.join(kinds)}"
            )
    names = list(dict.fromkeys(names))
    if target is not None and _is_video(target):
        prefixes = {name.rsplit("_", 1)[0] for name in names}
        if len(prefixes) > 1 or not prefixes <= set(PICTURE_KINDS) or len(names) != len(letters):
            raise ConfigError(
                f"{target} holds whole pictures of one kind ({', '.join(PICTURE_KINDS)}), not {', '.join(names)}: "
                "name a folder for planes"
            )
    return tuple(names)


class _Files:
    """Output files of planes; `write` appends a picture."""

    def __init__(self, stack: contextlib.ExitStack, target: Path, names: tuple[str, ...], stream: str) -> None:
        self._stack, self._target, self._names, self._stream = stack, target, names, stream
        self._writers: dict[str, VideoWriter] = {}
        self._count = 0
        if not _is_video(target) and target.exists() and not target.is_dir():
            raise ConfigError(f"{target} is a file: planes are written into a folder, one file each")

    def write(self, planes: dict[str, Plane], chroma: str, bit_depth: int, poc: int) -> None:
        """Append a picture of bit depth `bit_depth`."""
        if _is_video(self._target):
            parts = [planes[name] for name in self._names]
            self._append("", self._target, parts, chroma, bit_depth, poc)
        else:
            motion = {}
            for name in self._names:
                if name.startswith(("mv_", "ref_idx_", "motion_")):
                    motion[name] = planes[name]
                    continue
                samples, depth = as_samples(name, planes[name], bit_depth)
                height, width = samples.shape
                path = self._target / f"{name}_{width}x{height}_{depth}bit_400.yuv"
                self._append(name, path, [samples], "400", depth, poc)
            if motion:
                self._write_motion(motion)
        self._count += 1

    def _append(self, key: str, path: Path, parts: list[Plane], chroma: str, bit_depth: int, poc: int) -> None:
        height, width = parts[0].shape
        if key not in self._writers:
            check_outputs([path], [self._stream])
            form = VideoFormat(width, height, chroma, bit_depth, _rate(self._stream) if not key else None)
            self._writers[key] = self._stack.enter_context(create_video(path, form))
        form = self._writers[key].format
        if (form.width, form.height) != (width, height):
            raise FormatError(
                f"{self._stream}, POC {poc}: the pictures change their size from {form.width}x{form.height} to "
                f"{width}x{height}, and one file cannot hold both; -f {self._count} decodes those before"
            )
        self._writers[key].write(parts)

    def _write_motion(self, motion: dict[str, Plane]) -> None:
        path = self._target / f"motion_{self._count:05}.npz"
        check_outputs([path], [self._stream])
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as part, part.open("wb") as file:
            np.savez_compressed(file, **motion)  # type: ignore[arg-type]


def _rate(stream: str) -> Fraction | None:
    """Return the frame rate of a stream if ffmpeg knows it."""
    with contextlib.suppress(FormatError):
        return probe_stream(stream).format.fps
    return None


def summary_of(pictures: Sequence[CheckedPicture]) -> dict[str, int]:
    """Count the pictures by the result of the comparison with their hashes."""
    return {state: sum(picture.hash == state for picture in pictures) for state in ("ok", "differs", "none")}


def unproven(pictures: Sequence[CheckedPicture]) -> Iterator[CheckedPicture]:
    """Yield the pictures that differ from their hash, or have no hash and depend on missing pictures."""
    for picture in pictures:
        if picture.hash == "differs" or (picture.hash == "none" and picture.missing):
            yield picture
