"""Filters in bitstreams: post-filter messages (H.274), updates of weights.

`write_filter` writes a filter into a stream, `adapt` fits an update of its weights to a sequence, and `filter_carried`
filters a stream with the filters that it carries.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
