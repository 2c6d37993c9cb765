"""Pictures in and out: geometry, file names, raw YUV and Y4M by memmap, stills, and anything ffmpeg decodes.

`open_video` opens any of them as a `Video` of `Picture`s (`open_raw`, `open_y4m` and `open_stream` one kind each),
`open_like` one beside another; `create_video` writes raw YUV or Y4M. `VideoFormat` is the geometry, `parse_name` and
`guess_format` read it from a file's name, `probe_stream` from a stream. `read_still`, `rgb_to_ycbcr` and `ycbcr_to_rgb`
convert colour; `convert`, `downscale` and `pad_to_even` change a picture's bit depth and size.
"""

from codecnn.video._colour import rgb_to_ycbcr, ycbcr_to_rgb
from codecnn.video._ffmpeg import StreamInfo, open_stream, probe_stream
from codecnn.video._formats import NameFields, VideoFormat, frame_rate, guess_format, parse_name, parse_size
from codecnn.video._stills import STILL_SUFFIXES, read_still, stills_in
from codecnn.video._video import Video
from codecnn.video._writer import VideoWriter, create_video
from codecnn.video._y4m import open_y4m
from codecnn.video.open import open_like, open_video
from codecnn.video.picture import Picture, convert, downscale, pad_to_even
from codecnn.video.raw import open_raw

__all__ = [
    "STILL_SUFFIXES",
    "NameFields",
    "Picture",
    "StreamInfo",
    "Video",
    "VideoFormat",
    "VideoWriter",
    "convert",
    "create_video",
    "downscale",
    "frame_rate",
    "guess_format",
    "open_like",
    "open_raw",
    "open_stream",
    "open_video",
    "open_y4m",
    "pad_to_even",
    "parse_name",
    "parse_size",
    "probe_stream",
    "read_still",
    "rgb_to_ycbcr",
    "stills_in",
    "ycbcr_to_rgb",
]
