"""Pictures as planes of integer samples, exact changes of their bit depth and size, and videos as sequences of them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from codecnn.base.errors import ConfigError, FormatError
from codecnn.pictures.files.formats import VideoFormat, check_bit_depth
from codecnn.pictures.files.rgb import encode_png, planes_to_rgb

Plane = NDArray[Any]
"""Integer samples of one component, shape (h, w): uint8 at 8 bit, else little-endian uint16."""

ReadPlanes = Callable[[int], tuple[Plane, ...]]
"""Function that returns the planes of a picture, given its number counted from 0 in its file."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Planes Y or Y, U, V, each of shape (h, w), and the bit depth of their samples."""

    planes: tuple[Plane, ...]
    bit_depth: int

    @property
    def y(self) -> Plane:
        """Luma, shape (h, w)."""
        return self.planes[0]

    @property
    def u(self) -> Plane | None:
        """Cb, None where the chroma format is 400."""
        return self.planes[1] if len(self.planes) == 3 else None

    @property
    def v(self) -> Plane | None:
        """Cr, None where the chroma format is 400."""
        return self.planes[2] if len(self.planes) == 3 else None

    def __repr__(self) -> str:
        height, width = self.y.shape
        return f"<Picture {width}x{height}, {len(self.planes)} planes, {self.bit_depth} bit>"

    def _repr_png_(self) -> bytes:
        """Show the picture in a notebook, taking its samples for BT.709 in limited range."""
        return encode_png(planes_to_rgb(self.planes, self.bit_depth))


@dataclass(frozen=True)
class VideoTags:
    """Properties of a video besides its samples, in the words of Y4M headers (yuv4mpeg(5) of mjpegtools).

    Attributes:
        interlacing: Field order: p (progressive), t (top field first), b (bottom first), m (mixed) or ? (unknown).
        aspect: Sample aspect ratio, e.g. "128:117"; "0:0" if unknown.
        colour: Chroma format with the position of its samples, e.g. "420jpeg"; None: chosen by the writer.
        rate: Frame rate as written, e.g. "30000:1001"; None: chosen by the writer.
        comments: Other properties, e.g. "COLORRANGE=FULL".
        frames: Properties of single pictures by their number in the file, e.g. "Itn".
        without_place: Properties for which Y4M has no place, e.g. "colour bt2020nc/bt2020/smpte2084".
    """

    interlacing: str = "p"
    aspect: str = "1:1"
    colour: str | None = None
    rate: str | None = None
    comments: tuple[str, ...] = ()
    frames: Mapping[int, str] = field(default_factory=dict)
    without_place: tuple[str, ...] = ()


def convert(picture: Picture, bit_depth: int) -> Picture:
    """Change the bit depth as HM and VTM do between input and internal bit depth.

    A larger depth is an exact left shift; a smaller depth is a right shift that rounds half up, followed by clipping.

    Args:
        picture: Picture of any bit depth.
        bit_depth: Bits per sample of the result, 8 to 16.

    Returns:
        The converted picture; `picture` itself if it already has this bit depth.

    Raises:
        FormatError: The bit depth is outside 8 to 16.
    """
    check_bit_depth(bit_depth)
    shift = bit_depth - picture.bit_depth
    if shift == 0:
        return picture
    dtype = VideoFormat(1, 1, bit_depth=bit_depth).dtype
    planes = []
    for plane in picture.planes:
        samples = plane.astype(np.int32)
        if shift > 0:
            samples <<= shift
        else:
            samples = np.minimum((samples + (1 << (-shift - 1))) >> -shift, (1 << bit_depth) - 1)
        planes.append(samples.astype(dtype))
    return Picture(tuple(planes), bit_depth)


def pad_to_even(picture: Picture, chroma: str, minimum: int = 2, multiple: int = 2) -> Picture:
    """Pad the luma size to a multiple and a minimum by replicating the last column and row.

    Encoders refuse odd sizes in 420 and 422. Chroma planes get the size that belongs to the padded luma size; those of
    an odd 420 picture already have it, because they have (n + 1) // 2 samples.

    Args:
        picture: Picture of any size.
        chroma: Chroma format of the picture.
        minimum: Smallest width and height of the result in luma samples.
        multiple: Number of luma samples that must divide the width and height of the result.

    Returns:
        The padded picture; `picture` itself if its size already fits.

    Raises:
        FormatError: The planes are not of the chroma format.
    """
    height, width = picture.y.shape
    source = VideoFormat(width, height, chroma=chroma, bit_depth=picture.bit_depth)
    shapes = tuple(plane.shape for plane in picture.planes)
    if shapes != source.plane_shapes:
        raise FormatError(f"planes of {shapes} are not of chroma format {chroma}: that has {source.plane_shapes}")
    return pad_to_size(picture, chroma, *(padded_extent(extent, minimum, multiple) for extent in (width, height)))


def padded_extent(extent: int, minimum: int = 2, multiple: int = 2) -> int:
    """Return the width or height to which `pad_to_even` pads, in luma samples."""
    return max(extent + -extent % multiple, minimum)


def downscaled_extent(extent: int, scale: float) -> int:
    """Return the width or height that `downscale` makes of one, in luma samples."""
    return max(round(extent * scale), 1)


def pad_to_size(picture: Picture, chroma: str, width: int, height: int) -> Picture:
    """Pad a picture on the right and at the bottom by replicating its last column and row.

    Args:
        picture: Picture of the chroma format `chroma`.
        chroma: Chroma format of the picture.
        width: Width of the result in luma samples, at least that of the picture.
        height: Height of the result in luma samples, at least that of the picture.

    Returns:
        The padded picture; `picture` itself if no plane changes its size.
    """
    target = VideoFormat(width, height, chroma=chroma, bit_depth=picture.bit_depth)
    if target.plane_shapes == tuple(plane.shape for plane in picture.planes):
        return picture
    planes = tuple(
        np.pad(plane, ((0, h - plane.shape[0]), (0, w - plane.shape[1])), mode="edge")
        for plane, (h, w) in zip(picture.planes, target.plane_shapes, strict=True)
    )
    return Picture(planes, picture.bit_depth)


def downscale(picture: Picture, chroma: str, scale: float) -> Picture:
    """Scale a picture down with cubic interpolation after a Gaussian low-pass filter (skimage.transform.resize).

    Args:
        picture: Picture of any size.
        chroma: Chroma format of the picture.
        scale: Factor for width and height, 0 < scale <= 1; sizes are rounded to whole samples and at least 1.

    Returns:
        The scaled picture; `picture` itself if `scale` is 1.

    Raises:
        FormatError: The scale is outside its range.
    """
    from skimage.transform import resize

    if not 0 < scale <= 1:
        raise FormatError(f"scale {scale} is not above 0 and at most 1")
    if scale == 1:
        return picture
    height, width = (downscaled_extent(extent, scale) for extent in picture.y.shape)
    small = VideoFormat(width, height, chroma=chroma, bit_depth=picture.bit_depth)
    planes = []
    for plane, shape in zip(picture.planes, small.plane_shapes, strict=True):
        samples = resize(plane.astype(np.float64), shape, order=3, mode="edge", anti_aliasing=True, preserve_range=True)  # type: ignore[no-untyped-call]
        planes.append(np.clip(np.rint(samples), 0, (1 << picture.bit_depth) - 1).astype(small.dtype))
    return Picture(tuple(planes), picture.bit_depth)


class Video(Sequence[Picture]):
    """Sequence of the pictures of a file or folder, each read when it is accessed.

    An index reads a picture, whose planes are read-only; a slice returns a list of pictures.

    Attributes:
        path: File or folder.
        format: Geometry of all pictures.
        tags: Further properties of the file, None if it states none.
    """

    def __init__(
        self,
        path: Path,
        video_format: VideoFormat,
        read: ReadPlanes,
        numbers: int | range,
        tags: VideoTags | None = None,
    ) -> None:
        """Create a sequence of the pictures `numbers` of a file (a range, or a count of all its pictures)."""
        self.path = path
        self.format = video_format
        self.tags = tags
        self._read: ReadPlanes | None = read
        self._numbers = range(numbers) if isinstance(numbers, int) else numbers
        self._checked: set[int] = set()

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return f"<Video {self.path}: {len(self)} pictures, {self.format}>"

    @overload
    def __getitem__(self, index: int) -> Picture: ...

    @overload
    def __getitem__(self, index: slice) -> list[Picture]: ...

    def __getitem__(self, index: int | slice) -> Picture | list[Picture]:
        """Return the picture at `index`, counted from the end if negative, or a list of pictures for a slice.

        Raises:
            IndexError: The index is beyond the end.
            FormatError: A sample is too large for the bit depth.
            ConfigError: The video is closed.
        """
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"{self.path} has {len(self)} pictures: there is no picture {index}")
        number = self._numbers[position]
        picture = Picture(self._open_reader()(number), self.format.bit_depth)
        for plane in picture.planes:
            plane.flags.writeable = False
        if number not in self._checked:
            self._check_range(picture, number)
            self._checked.add(number)
        return picture

    def _open_reader(self) -> ReadPlanes:
        if self._read is None:
            raise ConfigError(f"{self.path} has been closed: its pictures can no longer be read")
        return self._read

    def _check_range(self, picture: Picture, number: int) -> None:
        if picture.bit_depth in (8, 16):
            return
        peak = (1 << picture.bit_depth) - 1
        largest = max(int(plane.max()) for plane in picture.planes)
        if largest > peak:
            raise FormatError(
                f"{self.path}: picture {number} has a sample of {largest}, more than the {peak} of "
                f"{picture.bit_depth} bit: give its true bit depth, or its packing if the samples are in the upper "
                "bits as in p010"
            )

    def select(
        self, *, start: int = 0, frames: int | None = None, step: int = 1, fps: Fraction | None = None
    ) -> "Video":
        """Return a video of a part of the pictures: from `start` on, every `step`-th, at most `frames`.

        Args:
            start: Number of pictures to skip.
            frames: Largest number of pictures of the result; None for all.
            step: Distance between selected pictures.
            fps: Frame rate of this video in Hz, if not that of its format. The rate of the result is divided by
                `step`.

        Raises:
            ConfigError: No picture is selected, or a number is out of range.
        """
        check_selection(self.path, start=start, frames=frames, step=step)
        if start >= len(self):
            raise ConfigError(f"{self.path} has {len(self)} pictures: start {start} selects none of them")
        rate = self.format.fps if fps is None else fps
        video_format = dataclasses.replace(self.format, fps=None if rate is None else rate / step)
        return Video(self.path, video_format, self._open_reader(), self._numbers[start::step][:frames], self.tags)

    def frame_tags(self, index: int) -> str:
        """Return the properties of the picture at `index` that only it has, see `VideoTags`; "" if there are none."""
        return "" if self.tags is None else self.tags.frames.get(self._numbers[index], "")

    def close(self) -> None:
        """Release the file; pictures that have been read stay valid."""
        self._read = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_selection(path: Path, *, start: int = 0, frames: int | None = None, step: int = 1) -> None:
    """Raise ConfigError unless `start` is not negative, and `frames` (or None) and `step` are positive."""
    if frames is not None and frames < 1:
        raise ConfigError(f"{path}: {frames} frames were requested, which is not a positive number")
    if start < 0:
        raise ConfigError(f"{path}: start {start} is negative: pictures are counted from 0")
    if step < 1:
        raise ConfigError(f"{path}: step {step} is not a positive number")


def planes_at(data: NDArray[np.uint8], starts: Sequence[int], video_format: VideoFormat) -> ReadPlanes:
    """Return a reader of planar pictures in `data`, shape (n,) bytes, that begin at the offsets `starts`.

    The planes that the reader returns are views of `data`.
    """

    def read(number: int) -> tuple[Plane, ...]:
        planes = []
        start = starts[number]
        for height, width in video_format.plane_shapes:
            end = start + height * width * video_format.dtype.itemsize
            planes.append(data[start:end].view(video_format.dtype).reshape(height, width))
            start = end
        return tuple(planes)

    return read
