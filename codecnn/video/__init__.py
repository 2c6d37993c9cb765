"""Pictures in and out: geometry, file names, raw YUV and Y4M by memmap, stills, and anything ffmpeg decodes.

`open_video` opens any of them as a `Video` of `Picture`s (`open_raw`, `open_y4m` and `open_stream` one kind each),
`open_like` one beside another; `create_video` writes raw YUV or Y4M. `VideoFormat` is the geometry, `parse_name` and
`guess_format` read it from a file's name, `probe_stream` from a stream. `read_still`, `rgb_to_ycbcr` and `ycbcr_to_rgb`
convert colour; `convert`, `downscale` and `pad_to_even` change a picture's bit depth and size.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
