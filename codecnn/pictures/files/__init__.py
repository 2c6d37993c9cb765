"""Read and write pictures: raw YUV and Y4M, still pictures, and any stream that ffmpeg decodes.

- `open_video` opens any of these as a `Video`, a sequence of `Picture`s; `open_raw`, `open_y4m` and `open_stream` open
  one kind each, and `open_like` opens a file with the geometry of another. `create_video` writes raw YUV or Y4M.
- `VideoFormat` is the geometry of pictures; `parse_name` and `guess_format` derive it from a file name, `probe_stream`
  reads it from a stream.
- `read_still`, `rgb_to_ycbcr` and `ycbcr_to_rgb` convert colour; `convert`, `downscale` and `pad_to_even` change the
  bit depth and size of a picture.
- `run` and `ffmpeg_path` start encoders and decoders.

Modules: `formats` (geometry and file names), `pictures`, `colour`, `raw`, `y4m`, `stills`, `ffmpeg` (programs),
`probing` (what ffmpeg knows without decoding), `decoding` (all decoding by ffmpeg), `packets`, `tails`, `avc_gaps`
(pictures that are damaged or missing), `streams`, `files` (open and create by file name).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
