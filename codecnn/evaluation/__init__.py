"""The evaluation of filters on coded test sequences, and the figures it is made of.

`evaluate` runs filters, each an `Entry`, over a store: it measures, then summarises, then writes. `psnr`, `mse` and
`bd_rate` are the figures themselves; they come without torch, which only the evaluation needs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
