"""Sample layouts of raw files, by ffmpeg's names of pixel formats and other names in common use.

Every layout is read as planar pictures with samples aligned to the least significant bit. Layouts of 16-bit words with
samples in the upper bits are those of Microsoft's "10-bit and 16-bit YUV Video Formats".
"""

import functools
import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError
from codecnn.pictures.files.formats import VideoFormat
from codecnn.pictures.files.pictures import Plane

PLANAR = "planar"
"""Name of the layout whose planes follow one another in the order Y, U, V, little-endian."""


@dataclass(frozen=True)
class PixelFormat:
    """Sample layout of a raw picture.

    Attributes:
        name: Name of the format.
        chroma: Chroma format.
        bit_depth: Bits per sample; None if the name does not state it: 8 unless an option or another token does.
        order: Order of the components in memory: "Y,U,V" for planes, "Y,UV" for a plane of luma and one of pairs, or
            four letters such as "YUYV" for two luma samples with their chroma.
        big_endian: Words have their upper byte first.
        upper: Samples are in the upper bits of their words, whose lower bits are zero.
    """

    name: str
    chroma: str
    bit_depth: int | None = None
    order: str = "Y,U,V"
    big_endian: bool = False
    upper: bool = False

    @property
    def is_planar(self) -> bool:
        """True for the layout `PLANAR`, which needs no conversion."""
        return self.order == "Y,U,V" and not self.big_endian and not self.upper

    def picture_bytes(self, video_format: VideoFormat) -> int:
        """Return the size of one picture in bytes."""
        if "," in self.order:
            return video_format.picture_bytes
        # Rows of an odd width have an unused luma sample at their end.
        return video_format.height * ceil_div(video_format.width, 2) * 4 * video_format.dtype.itemsize

    def read(self, data: NDArray[np.uint8], video_format: VideoFormat) -> tuple[Plane, ...]:
        """Return the planes of a picture.

        Args:
            data: Its bytes, shape (`picture_bytes`,).
            video_format: Geometry of the picture, with the chroma format and bit depth of this layout.

        Raises:
            FormatError: A lower bit that must be zero is not; the message is the end of a sentence.
        """
        words = data.view(video_format.dtype.newbyteorder(">" if self.big_endian else "<"))
        samples = words.astype(video_format.dtype)
        if self.upper and (shift := 16 - video_format.bit_depth):
            low = samples & ((1 << shift) - 1)
            if low.any():
                word = int(samples[low != 0][0])
                raise FormatError(f"has a word of {word}, but in {self.name} the lower {shift} bits are zero")
            samples >>= shift
        shapes = video_format.plane_shapes
        if "," not in self.order:
            groups = samples.reshape(video_format.height, -1, 4)
            first, second = (place for place, component in enumerate(self.order) if component == "Y")
            luma = groups[:, :, first : second + 1 : second - first].reshape(video_format.height, -1)
            chroma = (groups[:, :, self.order.index(component)] for component in "UV")
            return tuple(map(np.ascontiguousarray, (luma[:, : video_format.width], *chroma)))
        sizes = [height * width for height, width in shapes]
        luma = samples[: sizes[0]].reshape(shapes[0])
        if len(shapes) == 1:
            return (luma,)
        rest = samples[sizes[0] :]
        if self.order in ("Y,UV", "Y,VU"):
            pairs = rest.reshape(*shapes[1], 2)
            planes = [np.ascontiguousarray(pairs[:, :, part]) for part in (0, 1)]
        else:
            planes = [rest[: sizes[1]].reshape(shapes[1]), rest[sizes[1] :].reshape(shapes[2])]
        return (luma, *(planes[::-1] if self.order in ("Y,VU", "Y,V,U") else planes))


_NAMED = {
    **{f"i{chroma}": PixelFormat(f"yuv{chroma}p", chroma) for chroma in ("420", "422", "444")},
    "iyuv": PixelFormat("yuv420p", "420", 8),
    "yu12": PixelFormat("yuv420p", "420", 8),
    "yv12": PixelFormat("yv12", "420", 8, "Y,V,U"),
    "yv16": PixelFormat("yv16", "422", 8, "Y,V,U"),
    "yv24": PixelFormat("yv24", "444", 8, "Y,V,U"),
    "y42b": PixelFormat("yuv422p", "422", 8),
    "y444": PixelFormat("yuv444p", "444", 8),
    "y8": PixelFormat("gray", "400", 8),
    **dict.fromkeys(("mono", "monochrome", "luma"), PixelFormat("gray", "400")),
    "y800": PixelFormat("gray", "400", 8),
    "y16": PixelFormat("gray16le", "400", 16),
    "i010": PixelFormat("yuv420p10le", "420", 10),
    "i210": PixelFormat("yuv422p10le", "422", 10),
    "i410": PixelFormat("yuv444p10le", "444", 10),
    **{
        f"nv{number}": PixelFormat(f"nv{number}", chroma, 8, order)
        for chroma, numbers in (("420", (12, 21)), ("422", (16, 61)), ("444", (24, 42)))
        for number, order in zip(numbers, ("Y,UV", "Y,VU"), strict=True)
    },
    **{
        name: PixelFormat(names[0], "422", 8, names[1].upper())
        for names in (("yuyv422", "yuyv", "yuy2", "yunv"), ("uyvy422", "uyvy", "2vuy", "uynv"), ("yvyu422", "yvyu"))
        for name in names
    },
}
"""Formats of 8 bits and formats without a variant of byte order, by name."""

_WORDS = {
    "nv20": PixelFormat("nv20", "422", 10, "Y,UV"),
    **{
        f"p{layout}{depth % 100}": PixelFormat(f"p{layout}{depth % 100}", chroma, depth, "Y,UV", upper=True)
        for layout, chroma in ((0, "420"), (2, "422"), (4, "444"))
        for depth in (10, 12, 16)
    },
    **{f"y2{depth}": PixelFormat(f"y2{depth}", "422", depth, "YUYV", upper=True) for depth in (10, 12, 16)},
}
"""Formats of 16-bit words by their name without the byte order, little-endian by default."""

_PLANES = re.compile(
    r"(?:yuvj?(?P<chroma>420|422|444|400)p|gr[ae]y|mono(?=\d))(?P<depth>[89]|1[0-6])?(?P<order>le|be)?", re.ASCII
)
_UNREADABLE = re.compile(
    r"yuva?j?4\d\d[a-z].*|yvu\d.*|nv\d\d[a-z]*|p[0-4]1\d[a-z]*|gr[ae]y[af\d].*|ya\d.*|yaf\d.*|"
    r"[axrb0]?(?:rgb|bgr|gbr)(?:a|p|0|ap|x)?f?\d+.*|(?:[ax0](?:rgb|bgr)|(?:rgb|bgr)[ax0]|gbra?p)(?:le|be|f\d.*|\d.*)?|"
    r"x2(?:rgb|bgr)10.*|r210|r10k|v210x?|v216|v30x(?:le|be)?|v308|v40[48]|v410|xv(?:30|36|48)x?(?:le|be)?|ayuv(?:64)?(?:le|be)?|"
    r"vuy[ax]|vyu444|uyva|uyyvyy411|y21\d[a-z]*|y41[0-6pb](?:le|be)?|y211|yuv9|yvu9|i[024]1\d[a-z]*|imc[1-4]|"
    r"xyz\d+.*|bayer.*|pal8|mono(?:w|b|white|black)",
    re.ASCII,
)
"""Names of pixel formats that are not read: with alpha, of R'G'B', of other chroma formats, or of other packings."""

_UNREADABLE_WORDS = re.compile(
    r"be|big|bigendian|\d{1,2}(?:b|bits?)?be|packed|interleaved|semiplanar|msb|(?:rgb|bgr|gbr)\w*|xyz|"
    r"(?:u?int|[us])(?:16|32)(?:le|be)|u?int(?:16|32|64)|float(?:16|32|64)?|double",
    re.ASCII,
)
"""Words that state a layout in a name, if they stand where properties are stated."""


@functools.cache
def parse_pixel_format(name: str) -> PixelFormat | None:
    """Return the layout of a name such as "nv12", "yuv420p10be" or "p010le", or None if it is not one that is read.

    Args:
        name: Name in lower case.
    """
    if name in _NAMED:
        return _NAMED[name]
    base, order = (name[:-2], name[-2:]) if name.endswith(("le", "be")) else (name, "")
    if base in _WORDS:
        return replace(_WORDS[base], name=base + "be" * (order == "be"), big_endian=order == "be")
    match = _PLANES.fullmatch(name)
    if match is None:
        return None
    depth = int(match["depth"]) if match["depth"] else None
    return PixelFormat(name, match["chroma"] or "400", depth, big_endian=match["order"] == "be" and (depth or 8) > 8)


def names_unreadable_format(token: str, *, stated: bool) -> bool:
    """Return whether a token of a file name is a pixel format that is not read.

    Args:
        token: Token in lower case.
        stated: The token stands where properties are stated, so that words such as "be" and "rgb" count.
    """
    return bool(_UNREADABLE.fullmatch(token) or (stated and _UNREADABLE_WORDS.fullmatch(token)))
