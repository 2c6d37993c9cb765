"""Evaluation of filters inside the coding loop, in low delay.

`evaluate_in_loop` codes sequences with libvvenc without a filter and with each filter in its coding loop, and writes
bitstreams, pictures and BD-rates (see docs/howto/inloop.md). `code_in_loop` codes one sequence with any filter in the
loop of libvvenc, which `find_library` loads as a shared library; `in_loop_codec` is the back end for stores, and
`LoopFilter` the hook that decodes such streams.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
