"""Encoder back ends, supplied streams, and coding trees of coded pictures.

- `get_codec` returns a back end, whose `encode` codes a raw YUV file with `CodecSettings`, decodes the result, and
  checks that log, bitstream and decoded pictures agree. `StreamsCodec` takes supplied streams instead of coding.
- `read_headers` reads the headers of bitstreams of VVC, HEVC, AVC and AV1.
- `read_blocks` and `write_blocks` read and write CU tables (`BlockTable`); `block_table` returns that of a coded
  sequence. `block_planes` and `ctu_depths` paint planes from it.
- `write_planes` and `add_rebuilt_planes` rebuild planes of VVC bitstreams.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
