"""Real encoders, and the CUs of what they coded.

`get_codec` gives a back end that codes and proves what it did; `read_blocks` and `write_blocks` the table of CUs of any
file that tells them, which `block_planes` and `ctu_depths` draw from; `stream_info` the headers of a VVC bitstream,
`stream_transform_blocks` its transform blocks.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
