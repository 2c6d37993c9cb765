"""Raw semi-planar YUV of 16-bit words, P010 and its like: chroma interleaved, samples in the upper bits.

Layout as in Microsoft's "10-bit and 16-bit YUV Video Formats": a plane of Y, then one of Cb and Cr in turn, in
little-endian words whose upper bits hold the sample and whose lower bits are zero.
"""

from pathlib import Path
from typing import Any

from codecnn.errors import ConfigError, FormatError
from codecnn.video._formats import PACKINGS, PLANAR, VideoFormat, guess_format, parse_name
from codecnn.video._video import Video
from codecnn.video.picture import Plane
from codecnn.video.raw import map_pictures, open_raw


def open_packed(
    path: Path, *, packing: str | None, bit_depth: int | None = None, chroma: str | None = None, **more: Any
) -> Video:
    """Open raw YUV in the packing that the option, else the file's name, else the default (planar) tells.

    `bit_depth`, `chroma` and `more` are the options of `guess_format`. Pictures of every packing have planar samples
    aligned to the least significant bit; those of a semi-planar one are unpacked as they are read. Raises ConfigError
    for a packing that does not exist, FormatError when chroma format or bit depth contradict it, and, once a picture is
    read, when the lower bits of a word are not zero: such a file has another packing.
    """
    map_pictures(path, VideoFormat(1, 1, "400"))  # a missing file is told before a missing size
    explicit = packing is not None
    packing = packing or parse_name(path).packing or PLANAR
    if packing == PLANAR:
        return open_raw(path, guess_format(path, bit_depth=bit_depth, chroma=chroma, **more))
    if packing not in PACKINGS:
        raise ConfigError(f"unknown packing {packing!r}: one of {PLANAR}, {', '.join(PACKINGS)}")
    packed = PACKINGS[packing]
    told = guess_format(path, bit_depth=bit_depth, chroma=chroma, **more)
    # An explicit packing beats the name, so only options can contradict it.
    wanted = (chroma or packed[0], bit_depth or packed[1]) if explicit else (told.chroma, told.bit_depth)
    if wanted != packed:
        raise FormatError(
            f"{path}: packing {packing} holds {packed[0]} at {packed[1]} bit, which {wanted[0]} at {wanted[1]} bit "
            f"contradicts: give packing {PLANAR} if it is not packed"
        )
    return _open(path, packing, VideoFormat(told.width, told.height, *packed, told.fps))


def _open(path: Path, packing: str, video_format: VideoFormat) -> Video:
    data, starts = map_pictures(path, video_format)
    shift = 16 - video_format.bit_depth
    luma, (height, width) = video_format.plane_shapes[:2]
    luma_words = luma[0] * luma[1]

    def read(number: int) -> tuple[Plane, ...]:
        words = data[starts[number] : starts[number] + video_format.picture_bytes].view("<u2")
        low = words & ((1 << shift) - 1)
        if low.any():
            word = int(words[low != 0][0])
            raise FormatError(
                f"{path}: picture {number} has a word of {word}, but in {packing} the lower {shift} bits are zero: "
                "the packing or the size is another"
            )
        samples = words >> shift
        chroma = samples[luma_words:].reshape(height, width, 2)
        return (samples[:luma_words].reshape(luma), chroma[:, :, 0].copy(), chroma[:, :, 1].copy())

    return Video(path, video_format, read, len(starts))
