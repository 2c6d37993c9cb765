"""Adaptation of a network to the content: a small change of its last layer, fitted to one sequence and coded.

`Update` is the change and its text form, `adapted` applies it to a filter, and `fit_update` finds the best update for
decoded pictures and their originals. docs/howto/adapt.md describes the syntax.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
