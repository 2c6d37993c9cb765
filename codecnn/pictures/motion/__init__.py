"""Motion between decoded pictures: block matching, motion compensation and the temporal planes of networks.

Modules: `block_matching` (vectors and compensation), `temporal` (which pictures a plane shows).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
