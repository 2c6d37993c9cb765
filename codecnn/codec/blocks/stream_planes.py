"""Planes that codecnn derives from a VVC bitstream: rebuilt by `codecnn.vvc.decoder`, or drawn from the coding tree.

They are written as files for users, added to a coded sequence of a store, or returned for a picture to be filtered.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.files import atomic_path
from codecnn.base.outputs import check_outputs
from codecnn.base.planes import BLOCK_SIZE, CELL_FILES, CELL_PLANES, STRENGTH_FILE, TREE_PLANES, file_of
from codecnn.codec.base import CodedSequence
from codecnn.codec.blocks.table import draw_cells
from codecnn.codec.blocks.vvc_stream import VVC_SUFFIXES, read_output_pictures, read_rows, table_of_units
from codecnn.pictures.files import VideoFormat, create_video
from codecnn.vvc.syntax import ParsedPicture

Planes = dict[str, npt.NDArray[Any]]

RESIDUAL_ZERO = 1 << 15
"""Sample value of a residual of 0 in files of 16 bit, whose samples are unsigned."""

REBUILDER_VERSION = 1
"""Version of the rebuilt planes in cache keys; increase it with every change that alters the planes of a stream."""

_PREFIXES = {"unfiltered": "unf", "prediction": "pred", "residual": "resid"}
"""Files of a unit that hold rebuilt pictures, with the prefix of their planes."""


@dataclass(frozen=True)
class PlaneFiles:
    """Files of planes of a bitstream.

    Attributes:
        files: File of each plane.
        pictures: Number of pictures that the stream outputs.
    """

    files: dict[str, Path]
    pictures: int


def check_planes(names: Sequence[str]) -> None:
    """Raise ConfigError for a name that is in neither `codecnn.vvc.decoder.PLANES` nor TREE_PLANES."""
    from codecnn.vvc.decoder import PLANES

    for name in names:
        if name not in (*PLANES, *TREE_PLANES):
            raise ConfigError(f"there is no plane {name!r}: one of {', '.join((*PLANES, *TREE_PLANES))}")


def write_planes(
    stream: Path | str, planes: Sequence[str], folder: Path | str, progress: Progress | None = None
) -> PlaneFiles:
    """Write planes of the pictures that a VVC stream outputs, one raw file of grey pictures per plane.

    A file name such as pred_y_416x240_10bit_400.yuv contains the geometry. Samples have the bit depth of the stream. A
    residual is written as residual + RESIDUAL_ZERO in 16 bit; boundary strengths (0 to 2) and values of the coding tree
    (negative ones as 0) in 8 bit. Pictures are in output order. Files are written completely or not at all.

    Args:
        stream: VVC byte stream.
        planes: Planes to write, of `codecnn.vvc.decoder.PLANES` and TREE_PLANES.
        folder: Output folder.
        progress: Called with the number of finished pictures and the number of all pictures.

    Raises:
        ConfigError: A plane does not exist, or the folder is a file.
        MissingFileError: The stream does not exist.
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses a feature that codecnn does not read.
    """
    stream, folder = Path(stream), Path(folder)
    names = tuple(dict.fromkeys(planes))
    check_planes(names)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: planes are written into a folder, one file each")
    tree_names = [name for name in names if name in TREE_PLANES]
    rebuilt_names = [name for name in names if name not in TREE_PLANES]
    output = read_output_pictures(stream)
    files: dict[str, Path] = {}
    with ExitStack() as stack:
        writers = {}
        rebuilt = _rebuild(stream, output, rebuilt_names) if rebuilt_names else repeat({}, len(output))
        for done, (picture, arrays) in enumerate(zip(output, rebuilt, strict=True)):
            for name, plane in (arrays | _tree_planes(picture, tree_names, str(stream))).items():
                samples, bit_depth = as_samples(name, plane, picture.sps.bit_depth)
                if name not in writers:
                    height, width = samples.shape
                    files[name] = folder / f"{name}_{width}x{height}_{bit_depth}bit_400.yuv"
                    check_outputs([files[name]], [stream])
                    video_format = VideoFormat(width, height, "400", bit_depth)
                    writers[name] = stack.enter_context(create_video(files[name], video_format))
                writers[name].write([samples])
            if progress is not None:
                progress(done + 1, len(output))
    return PlaneFiles(files, len(output))


def add_rebuilt_planes(sequence: CodedSequence, planes: Sequence[str], folder: Path) -> CodedSequence:
    """Rebuild planes from the bitstream of a sequence into the files of a store's unit.

    unfiltered.yuv, prediction.yuv and residual.yuv contain all components in the format of the sequence; the residual
    is stored as `residual_samples` returns it. strengths.npy contains bs_v and bs_h, int8, shape
    (pictures, 2, ceil(h / 4), ceil(w / 4)).

    Args:
        sequence: A coded sequence.
        planes: Planes, of REBUILT_PLANES.
        folder: Output folder.

    Returns:
        The sequence with the paths of the new files.

    Raises:
        ConfigError: The sequence has no VVC bitstream.
        FormatError: The bitstream is damaged.
    """
    stream, video_format = sequence.bitstream, sequence.format
    if stream is None or stream.suffix not in VVC_SUFFIXES:
        raise ConfigError(f"{', '.join(planes)} are rebuilt from VVC bitstreams, and the sequence has none")
    files = list(dict.fromkeys(file_of(name) for name in planes))
    components = "y" if video_format.chroma == "400" else "yuv"
    rebuilt_names = [
        f"{_PREFIXES[file]}_{component}" for file in files if file in _PREFIXES for component in components
    ]
    rebuilt_names += CELL_FILES[STRENGTH_FILE] if STRENGTH_FILE in files else ()
    paths: dict[str, Any] = {file: folder / f"{file}.{'npy' if file == STRENGTH_FILE else 'yuv'}" for file in files}
    pictures = read_output_pictures(stream)
    cells = []
    with ExitStack() as stack:
        writers = {
            file: stack.enter_context(create_video(paths[file], video_format)) for file in files if file in _PREFIXES
        }
        for _, arrays in zip(pictures, _rebuild(stream, pictures, rebuilt_names), strict=True):
            for file, writer in writers.items():
                parts = [arrays[f"{_PREFIXES[file]}_{component}"] for component in components]
                # Pictures that were padded for the encoder are cropped, like the decoded ones.
                shapes = video_format.plane_shapes
                parts = [part[:height, :width] for part, (height, width) in zip(parts, shapes, strict=True)]
                if file == "residual":
                    parts = [residual_samples(part, video_format.bit_depth) for part in parts]
                writer.write(parts)
            if STRENGTH_FILE in files:
                height, width = video_format.height, video_format.width
                edges = [arrays[name][:height:BLOCK_SIZE, :width:BLOCK_SIZE] for name in CELL_FILES[STRENGTH_FILE]]
                cells.append(np.stack(edges).astype(np.int8))
    if cells:
        with atomic_path(paths[STRENGTH_FILE]) as part, part.open("wb") as out:
            np.save(out, np.stack(cells))
    return replace(sequence, **paths)


class _RebuiltPictures:
    """Planes of the pictures of a stream by position in output order, decoded up to the last one that was asked for."""

    def __init__(self, stream: Path, pictures: Sequence[ParsedPicture], planes: Sequence[str]) -> None:
        self._arguments = stream, pictures, planes
        self._restart()

    def _restart(self) -> None:
        self._decoding = _rebuild(*self._arguments)
        self._decoded = 0
        self._last: Planes = {}

    def __getitem__(self, number: int) -> Planes:
        if number < self._decoded - 1:
            self._restart()
        while self._decoded <= number:
            self._last = next(self._decoding)
            self._decoded += 1
        return dict(self._last)


def stream_plane_reader(stream: Path | str, planes: Sequence[str]) -> Callable[[int], Planes]:
    """Return a function that rebuilds planes of a VVC stream for the picture at a position in output order.

    The planes are in the form in which networks take them, shape (h, w): samples are integers, boundary strengths are
    float32 in the scale of the loader. A stream with inter pictures is decoded up to the picture, and from the start
    again for an earlier one.

    Args:
        stream: VVC byte stream.
        planes: Planes, of REBUILT_PLANES.

    Raises:
        UnsupportedError: The stream uses a feature that codecnn does not read.
        MissingFileError: The stream does not exist.
        FormatError: The stream is damaged.
    """
    stream = Path(stream)
    pictures = read_output_pictures(stream)
    all_intra = all(picture.is_intra for picture in pictures)
    rebuilt = _RebuiltPictures(stream, pictures, planes)

    def read(number: int) -> Planes:
        arrays = next(_rebuild(stream, pictures[number : number + 1], planes)) if all_intra else rebuilt[number]
        bit_depth = pictures[number].sps.bit_depth
        result: Planes = {}
        for name, array in arrays.items():
            if name in CELL_PLANES:
                result[name] = array.astype(np.float32) / np.float32(CELL_PLANES[name].scale)
            else:
                result[name] = residual_samples(array, bit_depth) if name.startswith("resid") else array
        return result

    return read


def residual_samples(residual: npt.NDArray[Any], bit_depth: int) -> npt.NDArray[np.uint16]:
    """Return a residual plus 2^(bit_depth - 1), clipped to samples of `bit_depth`."""
    samples = residual.astype(np.int32) + (1 << (bit_depth - 1))
    return samples.clip(0, (1 << bit_depth) - 1).astype(np.uint16)


def _rebuild(stream: Path, pictures: Sequence[ParsedPicture], planes: Sequence[str]) -> Iterator[Planes]:
    """Rebuild planes of pictures in output order; errors name the stream and the POC.

    Intra pictures are reconstructed alone. If there are others, the whole stream is decoded, and each picture must
    equal its hash.

    Args:
        stream: VVC stream.
        pictures: Its pictures in output order; any of them if they are all intra.
        planes: Names of `codecnn.vvc.decoder.PLANES`.
    """
    # Imported here because numba takes half a second to import.
    from codecnn.codec.vvc_pictures import read_pictures
    from codecnn.vvc.decoder import reconstruct

    try:
        if not all(picture.is_intra for picture in pictures):
            for _, arrays in read_pictures(stream, planes):
                yield arrays
            return
        for picture in pictures:
            try:
                yield reconstruct(picture, planes)
            except FormatError as error:
                raise type(error)(f"{stream}, POC {picture.poc}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{stream}: {error}") from None


def _tree_planes(picture: ParsedPicture, planes: Sequence[str], name: str) -> Planes:
    """Draw TREE_PLANES of a picture, int8 (h, w), each 4x4 cell repeated, -1 for unknown; `name` names the stream."""
    if not planes:
        return {}
    from codecnn.vvc.syntax import coding_units

    (units,) = read_rows(coding_units, [picture], name)
    sps, pps = picture.sps, picture.pps
    width, height = pps.pps_pic_width_in_luma_samples, pps.pps_pic_height_in_luma_samples
    table = table_of_units(units, np.zeros(len(units), np.int32))
    cells = np.stack(list(draw_cells(table, 0, width, height, planes).values()))
    window = pps.conformance_window
    rows = slice(window.top << sps.log2_sub_height_c, height - (window.bottom << sps.log2_sub_height_c))
    columns = slice(window.left << sps.log2_sub_width_c, width - (window.right << sps.log2_sub_width_c))
    full = cells.repeat(BLOCK_SIZE, axis=1).repeat(BLOCK_SIZE, axis=2)
    return dict(zip(planes, full[:, rows, columns], strict=True))


def as_samples(name: str, plane: npt.NDArray[Any], bit_depth: int) -> tuple[npt.NDArray[Any], int]:
    """Return a plane as unsigned samples, and their bit depth; `bit_depth` is that of the picture."""
    kind = name.split("_")[0]
    if kind == "resid":
        return (plane.astype(np.int32) + RESIDUAL_ZERO).astype("<u2"), 16
    if name in CELL_PLANES:
        return plane.clip(min=0).astype(np.uint8), 8
    return plane, bit_depth
