"""Neural-network post-filter SEI messages (H.274) in VVC and HEVC streams.

`Characteristics` (NNPFC) and `Activation` (NNPFA) are the messages, `write_message` and `read_message` code them, and
`read_messages` and `insert_messages` take them out of streams and put them in.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
