"""Filters inside the loop of low delay: what a post-filter cannot tell, measured with a real encoder.

`evaluate_in_loop` codes sequences at QPs without a filter and with each one in the loop, and writes streams, pictures
and BD-rates; docs/inloop.md says what they are. `closed_loop` approximates them where there is no such library.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
