"""How QP and CU depth relate to the error that a codec leaves.

`correlate` takes a table of CTUs, which `load_table` reads from a store, an evaluation or a file and `check_table`
checks, and gives a `Correlation`; `write_correlation` writes it as JSON, Markdown, CSV and plots.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
