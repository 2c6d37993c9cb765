"""Planes of a VVC bitstream, rebuilt or of its coding tree: as files, in a store, beside a picture to be filtered."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.codec.base import CodedSequence
from codecnn.codec.blocks.planes import drawn_cells
from codecnn.codec.blocks.vvc_partition import SUFFIXES, rows_of, shown_pictures_of, table_of_units
from codecnn.errors import ConfigError, FormatError, UnsupportedError
from codecnn.planes import BLOCK_SIZE, CELL_FILES, CELL_PLANES, STRENGTH_FILE, TREE_PLANES, file_of
from codecnn.runs import atomic_path
from codecnn.video import VideoFormat, create_video
from codecnn.vvc import Picture

Planes = dict[str, npt.NDArray[Any]]

RESIDUAL_ZERO = 1 << 15
"""What stands for a residual of 0 in files of 16 bit, which have no sign."""

REBUILDER = 1
"""Goes up with every change after which a stream gives other planes, for the keys of what is made from one."""

_KINDS = {"unfiltered": "unf", "prediction": "pred", "residual": "resid"}
"""What is rebuilt for the files of a unit."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PlaneFiles:
    """The files of some planes by name, and where their pictures stand among the `shown` ones of the stream."""

    files: dict[str, Path]
    positions: tuple[int, ...]
    shown: int


def check_planes(names: Sequence[str]) -> None:
    """Raise ConfigError for a name that is of neither `codecnn.reconstruct.PLANES` nor TREE_PLANES."""
    from codecnn.reconstruct import PLANES

    for name in names:
        if name not in (*PLANES, *TREE_PLANES):
            raise ConfigError(f"there is no plane {name!r}: one of {', '.join((*PLANES, *TREE_PLANES))}")


def write_planes(
    stream: Path | str, planes: Sequence[str], folder: Path | str, progress: Progress | None = None
) -> PlaneFiles:
    """Write `planes` of the pictures that a VVC stream shows into `folder`, a raw file of grey pictures each.

    They are those that `codecnn.reconstruct` rebuilds of intra pictures, and those of the coding tree, TREE_PLANES.
    Files are called as pred_y_416x240_10bit_400.yuv, which tells their geometry to every reader of such names. Samples
    have the stream's bit depth; a residual is written as residual + RESIDUAL_ZERO in 16 bit, boundary strengths, 0 to
    2, and values of the coding tree, those below 0 as 0, in 8 bit. Pictures come in output order; those with P or B
    slices are passed over if any plane is to be rebuilt. Files are whole or absent.

    Raises ConfigError for a plane that there is not, MissingFileError, FormatError for damage, and UnsupportedError for
    what codecnn does not read or where no picture is intra that has to be.
    """
    stream, folder = Path(stream), Path(folder)
    names = tuple(dict.fromkeys(planes))
    check_planes(names)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: planes are written into a folder, a file each")
    tree, others = [name for name in names if name in TREE_PLANES], [name for name in names if name not in TREE_PLANES]
    shown = shown_pictures_of(stream)
    chosen = {position: picture for position, picture in enumerate(shown) if picture.is_intra or not others}
    if not chosen:
        raise UnsupportedError(f"{stream}: no picture is intra, and codecnn reconstructs intra pictures only")
    files: dict[str, Path] = {}
    with ExitStack() as stack:
        writers = {}
        for done, picture in enumerate(chosen.values()):
            made = next(rebuilt([picture], others, str(stream))) if others else {}
            for name, plane in (made | tree_planes(picture, tree, str(stream))).items():
                samples, bit_depth = as_written(name, plane, picture.sps.bit_depth)
                if name not in writers:
                    height, width = samples.shape
                    files[name] = folder / f"{name}_{width}x{height}_{bit_depth}bit_400.yuv"
                    form = VideoFormat(width, height, "400", bit_depth)
                    writers[name] = stack.enter_context(create_video(files[name], form))
                writers[name].write([samples])
            if progress is not None:
                progress(done + 1, len(chosen))
    return PlaneFiles(files, tuple(chosen), len(shown))


def rebuilt(pictures: Sequence[Picture], planes: Sequence[str], name: str) -> Iterator[Planes]:
    """`planes` of each of some intra pictures; errors name the stream `name` and the picture."""
    # numba takes half a second to import, which who asks for no planes does not need.
    from codecnn.reconstruct import reconstruct

    for picture in pictures:
        try:
            yield reconstruct(picture, planes)
        except FormatError as error:
            raise type(error)(f"{name}, POC {picture.poc}: {error}") from None
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None


def tree_planes(picture: Picture, planes: Sequence[str], name: str) -> Planes:
    """`planes`, of TREE_PLANES, of a picture: int8 (h, w), each 4x4 cell repeated; -1 is unknown.

    Errors name the stream `name` and the picture.
    """
    if not planes:
        return {}
    from codecnn.vvc import coding_units

    (units,) = rows_of(coding_units, [picture], name)
    sps, pps = picture.sps, picture.pps
    width, height = pps.pps_pic_width_in_luma_samples, pps.pps_pic_height_in_luma_samples
    table = table_of_units(units, np.zeros(len(units), np.int32))
    cells = np.stack(list(drawn_cells(table, 0, width, height, planes).values()))
    window = pps.conformance_window
    rows = slice(window.top << sps.log2_sub_height_c, height - (window.bottom << sps.log2_sub_height_c))
    columns = slice(window.left << sps.log2_sub_width_c, width - (window.right << sps.log2_sub_width_c))
    full = cells.repeat(BLOCK_SIZE, axis=1).repeat(BLOCK_SIZE, axis=2)
    return dict(zip(planes, full[:, rows, columns], strict=True))


def as_written(name: str, plane: npt.NDArray[Any], bit_depth: int) -> tuple[npt.NDArray[Any], int]:
    """A plane as unsigned samples, and their bit depth, where that of the picture is `bit_depth`."""
    kind = name.split("_")[0]
    if kind == "resid":
        return (plane.astype(np.int32) + RESIDUAL_ZERO).astype("<u2"), 16
    if name in CELL_PLANES:
        return plane.clip(min=0).astype(np.uint8), 8
    return plane, bit_depth


def with_intra_planes(sequence: CodedSequence, planes: Sequence[str], folder: Path) -> CodedSequence:
    """`sequence` with the files that hold `planes`, of REBUILT_PLANES, rebuilt from its bitstream into `folder`.

    unfiltered.yuv, prediction.yuv and residual.yuv have all components in the sequence's format; a residual is written
    as `signed_samples`. strengths.npy holds bs_v and bs_h, int8 (pictures, 2, ceil(h/4), ceil(w/4)). Raises ConfigError
    without a VVC bitstream, UnsupportedError for a picture that is not intra, FormatError for damage.
    """
    stream, form = sequence.bitstream, sequence.format
    if stream is None or stream.suffix not in SUFFIXES:
        raise ConfigError(f"{', '.join(planes)} are rebuilt from VVC bitstreams, and there is none")
    files = list(dict.fromkeys(file_of(name) for name in planes))
    letters = "y" if form.chroma == "400" else "yuv"
    wanted = [f"{_KINDS[file]}_{letter}" for file in files if file in _KINDS for letter in letters]
    wanted += CELL_FILES[STRENGTH_FILE] if STRENGTH_FILE in files else ()
    paths: dict[str, Any] = {file: folder / f"{file}.{'npy' if file == STRENGTH_FILE else 'yuv'}" for file in files}
    pictures = shown_pictures_of(stream)
    cells = []
    with ExitStack() as stack:
        writers = {file: stack.enter_context(create_video(paths[file], form)) for file in files if file in _KINDS}
        for made in rebuilt(_all_intra(pictures, stream.name), wanted, stream.name):
            for file, writer in writers.items():
                parts = [made[f"{_KINDS[file]}_{letter}"] for letter in letters]
                writer.write([signed_samples(part, form.bit_depth) for part in parts] if file == "residual" else parts)
            if STRENGTH_FILE in files:
                edges = [made[name][::BLOCK_SIZE, ::BLOCK_SIZE] for name in CELL_FILES[STRENGTH_FILE]]
                cells.append(np.stack(edges).astype(np.int8))
    if cells:
        with atomic_path(paths[STRENGTH_FILE]) as part, part.open("wb") as out:
            np.save(out, np.stack(cells))
    return replace(sequence, **paths)


def planes_of_stream(stream: Path | str, planes: Sequence[str]) -> Callable[[int], Planes]:
    """A function that gives `planes`, of REBUILT_PLANES, of a VVC stream's picture by its place in output order.

    They are as networks take them: samples are integers, boundary strengths float32 in the loader's scale, (h, w) each.
    Raises as `with_intra_planes`.
    """
    pictures = _all_intra(shown_pictures_of(stream), str(stream))

    def of_picture(number: int) -> Planes:
        (made,) = rebuilt(pictures[number : number + 1], planes, str(stream))
        bit_depth = pictures[number].sps.bit_depth
        for name in made:
            if name in CELL_PLANES:
                made[name] = made[name].astype(np.float32) / np.float32(CELL_PLANES[name].scale)
            elif file_of(name) == "residual":
                made[name] = signed_samples(made[name], bit_depth)
        return made

    return of_picture


def signed_samples(residual: npt.NDArray[Any], bit_depth: int) -> npt.NDArray[np.uint16]:
    """A residual plus 2^(bit_depth - 1), cut to samples of `bit_depth`, so that it lies among pictures."""
    samples = residual.astype(np.int32) + (1 << (bit_depth - 1))
    return samples.clip(0, (1 << bit_depth) - 1).astype(np.uint16)


def _all_intra(pictures: Sequence[Picture], name: str) -> Sequence[Picture]:
    for number, picture in enumerate(pictures):
        if not picture.is_intra:
            raise UnsupportedError(
                f"{name}: picture {number} has P or B slices, and only intra pictures are rebuilt from their bits"
            )
    return pictures
