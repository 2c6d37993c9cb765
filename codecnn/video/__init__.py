"""Pictures in and out: geometry, file names, raw YUV and Y4M by memmap, stills, and anything ffmpeg decodes."""

from codecnn.video.colour import rgb_to_ycbcr, ycbcr_to_rgb
from codecnn.video.ffmpeg import StreamInfo, open_stream, probe_stream
from codecnn.video.formats import VideoFormat, frame_rate, guess_format, parse_name, parse_size
from codecnn.video.open import open_video
from codecnn.video.picture import Picture, convert, downscale, pad_to_even
from codecnn.video.raw import open_raw
from codecnn.video.stills import STILL_SUFFIXES, read_still, stills_in
from codecnn.video.video import Video
from codecnn.video.writer import VideoWriter, create_video
from codecnn.video.y4m import open_y4m

__all__ = [
    "STILL_SUFFIXES",
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
