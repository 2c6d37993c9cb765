"""Whole pictures and sequences through a network, and what an encoder would decide of the result.

`load_filter` makes a filter from weights, once: for luma planes, pictures and videos; `FloatFilter` from a network in
memory; `filter_luma` is the short form for one plane. `decide_picture` and `decide_video` choose, knowing the original,
what is filtered and how strongly (`codecnn.filtering.decisions`); `filter_and_decide` filters a picture before. Integer
networks are `codecnn.filtering.integer`, filters inside the loop of an encoder `codecnn.filtering.in_loop`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
