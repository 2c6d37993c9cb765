"""The interface of picture filters, and the planes that enter one.

A network declares its input planes by name. The decoded components come from the picture. All other planes are
auxiliary: they come from a unit of a store (`unit_planes`), or from the bitstream, further videos and the CU table of a
sequence (`auxiliary_planes`). The slice QPs and slice types of a sequence are read from its bitstream (`stream_qps`,
`stream_slice_types`).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import ConfigError, FormatError, ModelError, StoreError
from codecnn.base.planes import (
    BLOCK_SIZE,
    CELL_PLANES,
    MAX_QP,
    SAMPLE_PLANES,
    SLICE_TYPE_PLANE,
    SLICE_TYPES,
    TEMPORAL_PLANES,
    TREE_PLANES,
    how_to_have,
    lowest_qp,
)
from codecnn.codec import (
    RESIDUAL_ZERO,
    BlockTable,
    StreamPicture,
    draw_cells,
    output_pictures,
    picture_qp,
    read_headers,
    residual_samples,
)
from codecnn.dataset import Unit
from codecnn.models import CHROMA_PLANES
from codecnn.models.graph import Array
from codecnn.pictures.files import Picture, Video, VideoFormat, stream_codec
from codecnn.pictures.motion import References, TemporalPlanes

Planes = Mapping[str, Array]
"""Planes (h, w) of one picture by name: samples as integers, planes of the coding tree as the loader scales them."""

PlaneSource = Callable[[int], Planes]
"""A function that returns the auxiliary planes of the picture with a given number."""

Value = TypeVar("Value")

NO_PLANES: Planes = {}

AUXILIARY_SAMPLES = {name: source for name, source in SAMPLE_PLANES.items() if source.beside}
"""Planes of samples other than the decoded picture."""


def check_slice_qp(qp: int, bit_depth: int) -> None:
    """Raise ConfigError unless a slice QP is possible at a bit depth; below 0 networks take it as 0."""
    lowest = lowest_qp(bit_depth)
    if not lowest <= qp <= MAX_QP:
        at_depth = f" at {bit_depth} bit" if lowest else ""
        raise ConfigError(f"QP {qp} is out of range: {lowest} to {MAX_QP}{at_depth}")


class PictureFilter(Protocol):
    """A filter that restores whole pictures, one at a time."""

    @property
    def planes(self) -> tuple[str, ...]:
        """Names of the planes that the network declares: decoded components, "qp", and auxiliary planes."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Components that the filter changes, ("y",) or ("y", "u", "v"); it passes on all others unchanged."""

    def samples(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> dict[str, Array]:
        """Filter a picture and return each output before it is rounded and clipped.

        Args:
            picture: The decoded picture.
            qp: Slice QP that the picture was coded at.
            beside: Auxiliary planes by name.

        Returns:
            Each output, shape (h, w), in units of the picture's samples. A filter that computes in integers returns
            its final samples.

        Raises:
            ConfigError: The QP is out of range.
            ModelError: A plane is missing or does not fit the picture.
        """

    def __call__(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> Picture:
        """Filter a picture at full strength.

        Args:
            picture: The decoded picture.
            qp: Slice QP that the picture was coded at.
            beside: Auxiliary planes by name; see `unit_planes` and `auxiliary_planes`.

        Returns:
            The picture with its `outputs` filtered.

        Raises:
            ConfigError: The QP is out of range.
            ModelError: A plane is missing or does not fit the picture.
        """


def components(picture: Picture) -> dict[str, Array]:
    """Return the planes of a picture by component: {"y": ...}, or "y", "u" and "v"."""
    return dict(zip("yuv", picture.planes, strict=False))


def decoded_planes(picture: Picture, names: tuple[str, ...], auxiliary: Planes) -> dict[str, Array]:
    """Collect the planes that a network declares from a decoded picture and its auxiliary planes.

    Args:
        picture: The decoded picture.
        names: Names of the planes; "qp" is skipped because it is a number, not a plane.
        auxiliary: Auxiliary planes by name.

    Returns:
        The planes by name, in the order of `names`.

    Raises:
        ModelError: The network takes chroma and the picture is not 4:2:0, or a plane is missing.
    """
    decoded = {"rec_y": picture.y}
    if any(name in CHROMA_PLANES for name in names):
        height, width = picture.y.shape
        if len(picture.planes) != 3 or picture.planes[1].shape != ((height + 1) // 2, (width + 1) // 2):
            shapes = ", ".join(f"{plane.shape[1]}x{plane.shape[0]}" for plane in picture.planes)
            raise ModelError(f"the network needs 4:2:0 chroma, and the picture's planes are {shapes}")
        decoded |= {"rec_u": picture.planes[1], "rec_v": picture.planes[2]}
    available = {**auxiliary, **decoded}
    missing = [name for name in names if name not in available and name != "qp"]
    if missing:
        raise ModelError(f"the network needs the plane {missing[0]!r}, which is missing")
    return {name: available[name] for name in names if name in available}


def round_samples(picture: Picture, samples: Planes) -> Picture:
    """Replace components of a picture by filtered samples, rounded half to even and clipped to the bit depth.

    Args:
        picture: The decoded picture, which provides the bit depth, the types and the components that stay.
        samples: Filtered components by name, shape (h, w), in units of samples.

    Returns:
        The filtered picture.

    Raises:
        ModelError: Samples are not finite, as those of a network whose training diverged.
    """
    peak = 2**picture.bit_depth - 1
    planes = []
    for name, plane in components(picture).items():
        if name in samples:
            check_finite(name, samples[name])
            planes.append(np.clip(np.rint(samples[name]), 0, peak).astype(plane.dtype))
        else:
            planes.append(plane)
    return Picture(tuple(planes), picture.bit_depth)


def check_finite(name: str, samples: Array) -> None:
    """Raise ModelError if a component holds NaN or infinity, which would look like samples once cast to integers."""
    if not np.isfinite(samples).all():
        raise ModelError(f"the network computes values for {name} that are not finite: use other weights")


def unit_planes(unit: Unit, picture: int, names: Sequence[str]) -> dict[str, Array]:
    """Read auxiliary planes of one picture of a coded unit.

    Args:
        unit: A unit of a store.
        picture: Number of the picture in the unit.
        names: Names of planes; those that are not auxiliary are skipped.

    Returns:
        The planes by name, shape (h, w). Samples are integers; planes of the coding tree are float32 with each 4x4 cell
        repeated.

    Raises:
        StoreError: The unit does not hold one of the planes.
    """
    planes: dict[str, Array] = {}
    for name in names:
        if name in TEMPORAL_PLANES:
            planes[name] = unit.temporal_plane(name, picture)
        elif name in AUXILIARY_SAMPLES and (video := unit.pictures_of(AUXILIARY_SAMPLES[name].file)) is not None:
            with video:
                planes[name] = np.array(video[picture].planes[AUXILIARY_SAMPLES[name].component])
        elif name in CELL_PLANES and (cells := unit.cells(CELL_PLANES[name].file)) is not None:
            planes[name] = _full_size(CELL_PLANES[name].read(cells[picture]), name, unit.format)
        elif name == SLICE_TYPE_PLANE:
            planes[name] = np.full((unit.format.height, unit.format.width), unit.slice_type_value(picture), np.float32)
        elif name in AUXILIARY_SAMPLES or name in CELL_PLANES:
            raise StoreError(f"{unit.title} has no plane {name!r}{how_to_have(name)}")
    return planes


def auxiliary_planes(
    names: Sequence[str],
    video_format: VideoFormat,
    videos: Mapping[str, Video],
    table: BlockTable | None,
    rebuilt: PlaneSource | None = None,
    slice_types: Sequence[str] = (),
    temporal: PlaneSource | None = None,
) -> PlaneSource:
    """Build the source of the auxiliary planes of a sequence.

    Args:
        names: Names of the planes that the network declares; those that are not auxiliary are ignored.
        video_format: Format of the decoded pictures.
        videos: Videos whose luma provides planes of samples such as `unf_y`, by plane.
        table: CU table that provides the planes of the coding tree; its `poc` is the number of the picture.
        rebuilt: Source of the planes rebuilt from a bitstream (`codecnn.base.planes.REBUILT_PLANES`).
        slice_types: Slice type for all pictures, or one for each, which provides the plane `slice_type`.
        temporal: Source of the temporal planes (`temporal_source`) that `videos` do not provide.

    Returns:
        A function from the number of a picture to its auxiliary planes, shape (h, w).

    Raises:
        ConfigError: A plane has no source, a video is not needed, or a video differs from the decoded pictures in size
            or bit depth.
    """
    wanted_samples = [name for name in names if name in AUXILIARY_SAMPLES]
    for name in videos:
        if name not in wanted_samples:
            hint = f": it takes {', '.join(wanted_samples)}" if wanted_samples else ""
            raise ConfigError(f"the network takes no plane {name!r} besides the decoded picture{hint}")
    if SLICE_TYPE_PLANE in names and not slice_types:
        raise ConfigError(
            f"the network needs the plane {SLICE_TYPE_PLANE!r}, which is read from a stream of VVC, HEVC, AVC or AV1: "
            "filter the stream, or give --slice-type"
        )
    for name in names:
        if (
            name in AUXILIARY_SAMPLES
            and name not in videos
            and (temporal if name in TEMPORAL_PLANES else rebuilt) is None
        ):
            raise ConfigError(
                f"the network needs the plane {name!r}, {AUXILIARY_SAMPLES[name].beside}: "
                f"give it as --plane {name}=FILE"
            )
        if name in CELL_PLANES and name not in TREE_PLANES:
            if rebuilt is None:
                raise ConfigError(
                    f"the network needs the plane {name!r}, which is read from a VVC bitstream: filter the bitstream"
                )
        elif name in TREE_PLANES and table is None:
            raise ConfigError(
                f"the network needs the plane {name!r} of the coding tree, which is read from a VVC bitstream: "
                "filter the bitstream, or give a table of the CUs as --blocks FILE"
            )
    for name, video in videos.items():
        expected, given = ((form.width, form.height, form.bit_depth) for form in (video_format, video.format))
        # A residual has a sign and may be as large as the range of samples: `codecnn partition` writes it with 16 bits.
        if expected[:2] != given[:2] or given[2] != (16 if AUXILIARY_SAMPLES[name].signed else expected[2]):
            raise ConfigError(f"{video.path} for {name!r} is {video.format}, the decoded pictures are {video_format}")
    tree = [name for name in names if name in TREE_PLANES]

    def read_planes(number: int) -> Planes:
        planes: dict[str, Array] = {}
        for name, video in videos.items():
            plane = video[number].y
            if AUXILIARY_SAMPLES[name].signed:
                plane = residual_samples(plane.astype(np.int32) - RESIDUAL_ZERO, video_format.bit_depth)
            planes[name] = plane
        if table is not None and tree:
            cells = draw_cells(table, number, video_format.width, video_format.height, tree)
            planes |= {name: _full_size(plane, name, video_format) for name, plane in cells.items()}
        if rebuilt is not None:
            planes |= rebuilt(number)
        if temporal is not None:
            planes |= temporal(number)
        if slice_types:
            slice_type = slice_types[0 if len(slice_types) == 1 else number]
            planes |= slice_type_plane(names, slice_type, video_format)
        return planes

    return read_planes


def temporal_source(names: Sequence[str], video: Video, references: Sequence[References] = ()) -> PlaneSource:
    """Build the source of the temporal planes of a sequence.

    A plane of the following picture makes the filter read one picture ahead in output order.

    Args:
        names: Names of temporal planes.
        video: The decoded pictures in output order.
        references: First reference pictures of each picture (`codecnn.codec.first_references`); only planes of
            reference pictures need them.

    Returns:
        A function from the number of a picture to its temporal planes, shape (h, w).
    """
    return TemporalPlanes(names, lambda number: video[number].y, len(video), video.format.bit_depth, references)


def slice_type_plane(names: Sequence[str], slice_type: str, video_format: VideoFormat) -> dict[str, Array]:
    """Draw the plane `slice_type` of a picture if the network declares it.

    Args:
        names: Names of the planes that the network declares.
        slice_type: Most general type of the picture's slices: "I", "P" or "B".
        video_format: Format of the picture.

    Returns:
        {"slice_type": plane} with a float32 plane of shape (h, w), or an empty dict.
    """
    if SLICE_TYPE_PLANE not in names:
        return {}
    return {SLICE_TYPE_PLANE: np.full((video_format.height, video_format.width), SLICE_TYPES[slice_type], np.float32)}


def stream_qps(path: Path | str, count: int, *, all_pictures: bool = False) -> list[int]:
    """Read the slice QPs of the first pictures of a stream of VVC, HEVC, AVC or AV1.

    Args:
        path: The stream, also in a container.
        count: Number of pictures.
        all_pictures: These are all pictures that decoders output, so that the stream must not have more.

    Returns:
        The QP of each picture, in output order; see `codecnn.codec.picture_qp` for slices of different QPs.

    Raises:
        ConfigError: The file is not such a stream, cannot be parsed, or has another number of pictures.
    """
    codec = str(stream_codec(path))
    return _read_from_stream(
        Path(path), count, all_pictures, lambda picture: picture_qp(picture, codec), "slice QPs", "-q QP"
    )


def stream_slice_types(path: Path | str, count: int, *, all_pictures: bool = False) -> list[str]:
    """Read the most general slice type of the first pictures of a stream of VVC, HEVC, AVC or AV1.

    Args:
        path: The stream, also in a container.
        count: Number of pictures.
        all_pictures: These are all pictures that decoders output, so that the stream must not have more.

    Returns:
        "I", "P" or "B" for each picture, in output order.

    Raises:
        ConfigError: The file is not such a stream, cannot be parsed, or has another number of pictures.
    """
    return _read_from_stream(
        Path(path), count, all_pictures, lambda picture: picture.slice_type, "slice types", "--slice-type"
    )


def _read_from_stream(
    path: Path,
    count: int,
    all_pictures: bool,
    read: Callable[[StreamPicture], Value],
    what: str,
    option: str,
) -> list[Value]:
    """Read a value of each of the first pictures in output order; `what` and `option` are for messages."""
    if stream_codec(path) is None:
        raise ConfigError(f"{path} does not hold its {what}, only streams of VVC, HEVC, AVC and AV1 do: give {option}")
    try:
        pictures = output_pictures(read_headers(path))
        values = [read(picture) for picture in pictures[:count]]
    except FormatError as error:
        raise ConfigError(f"the {what} cannot be read: give {option}: {error}") from error
    if len(values) < count or (all_pictures and len(pictures) != count):
        raise ConfigError(
            f"{path} holds the {what} of {len(pictures)} pictures and decodes to {count} pictures: give {option}"
        )
    return values


def _full_size(cells: npt.NDArray[np.int8], name: str, video_format: VideoFormat) -> Array:
    """Scale the cells of the plane `name` and repeat each 4x4 cell, shape (h, w)."""
    scaled = np.maximum(cells, 0).astype(np.float32) / np.float32(CELL_PLANES[name].scale)
    full: Array = scaled.repeat(BLOCK_SIZE, axis=0).repeat(BLOCK_SIZE, axis=1)
    return full[: video_format.height, : video_format.width]
