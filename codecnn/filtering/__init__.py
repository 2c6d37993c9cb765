"""Filter pictures and sequences with a network, and decide as an encoder would.

- `load_filter` creates a filter from weights; `FloatFilter` one from a network in memory. A filter restores luma
  planes, pictures and videos. `filter_luma` is the short form for one luma plane. `JoinedFilter` takes luma of one
  filter and chroma of another.
- `filter_outputs` and `in_tiles` compute a network on a whole picture, tile by tile.
- `unit_planes`, `auxiliary_planes`, `stream_qps` and `stream_slice_types` provide the planes and QPs that a network
  declares besides the decoded picture.
- `decide_picture` and `decide_video` choose, knowing the original, which CTUs are filtered and how strongly
  (`codecnn.filtering.decisions`); `filter_and_decide` filters a picture first.
- `export_stacked` writes a network for VapourSynth and ffmpeg.
- `codecnn.filtering.integer` holds integer networks, which give the same samples on every machine.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
