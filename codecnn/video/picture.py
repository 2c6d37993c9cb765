"""One picture as planes of integer samples, and exact changes of its bit depth and size."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codecnn.errors import FormatError
from codecnn.video._formats import VideoFormat, check_bit_depth

Plane = NDArray[Any]
"""(h, w) integer samples: uint8 at 8 bit, else little-endian uint16."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Planes Y or Y, U, V, each (h, w), and the bit depth of their samples."""

    planes: tuple[Plane, ...]
    bit_depth: int

    @property
    def y(self) -> Plane:
        """Luma, (h, w)."""
        return self.planes[0]

    @property
    def u(self) -> Plane | None:
        """Cb, None where the chroma format is 400."""
        return self.planes[1] if len(self.planes) == 3 else None

    @property
    def v(self) -> Plane | None:
        """Cr, None where the chroma format is 400."""
        return self.planes[2] if len(self.planes) == 3 else None


def convert(picture: Picture, bit_depth: int) -> Picture:
    """Change the bit depth: an exact shift left upwards; downwards a right shift that rounds half up, then clips.

    These are the conversions of HM and VTM between input and internal bit depth. The same picture comes back where
    the depth stays as it is.
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
    """Make the luma size even, or another `multiple`, and at least `minimum`, by replicating the last column and row.

    Encoders refuse odd sizes in 420 and 422. A picture whose size fits already comes back as it is. Chroma planes of
    420 have (n + 1) // 2 samples and so fit the even size unchanged; those of 422 grow by a row, those of 444 by what
    luma grows. Raises FormatError when the planes are not of the chroma format.
    """
    height, width = picture.y.shape
    odd = VideoFormat(width, height, chroma=chroma, bit_depth=picture.bit_depth)
    shapes = tuple(plane.shape for plane in picture.planes)
    if shapes != odd.plane_shapes:
        raise FormatError(f"planes of {shapes} are not of chroma format {chroma}: that has {odd.plane_shapes}")
    padded_width, padded_height = (max(extent + -extent % multiple, minimum) for extent in (width, height))
    even = VideoFormat(padded_width, padded_height, chroma=chroma, bit_depth=picture.bit_depth)
    if even.plane_shapes == odd.plane_shapes:
        return picture
    planes = tuple(
        np.pad(plane, ((0, h - plane.shape[0]), (0, w - plane.shape[1])), mode="edge")
        for plane, (h, w) in zip(picture.planes, even.plane_shapes, strict=True)
    )
    return Picture(planes, picture.bit_depth)


def downscale(picture: Picture, chroma: str, scale: float) -> Picture:
    """The picture at `scale` times its width and height, 0 < scale <= 1, rounded to whole samples, at least one.

    Cubic interpolation after a Gaussian that keeps aliasing away (skimage.transform.resize), plane by plane.
    """
    from skimage.transform import resize

    if not 0 < scale <= 1:
        raise FormatError(f"scale {scale} is not above 0 and at most 1")
    if scale == 1:
        return picture
    height, width = (max(round(extent * scale), 1) for extent in picture.y.shape)
    small = VideoFormat(width, height, chroma=chroma, bit_depth=picture.bit_depth)
    planes = []
    for plane, shape in zip(picture.planes, small.plane_shapes, strict=True):
        samples = resize(plane.astype(np.float64), shape, order=3, mode="edge", anti_aliasing=True, preserve_range=True)  # type: ignore[no-untyped-call]
        planes.append(np.clip(np.rint(samples), 0, (1 << picture.bit_depth) - 1).astype(small.dtype))
    return Picture(tuple(planes), picture.bit_depth)
