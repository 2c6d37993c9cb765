"""Correlation of QP and CU depth with the coding error of CTUs.

`load_table` reads a table of CTUs from a store, an evaluation or a file, and `check_table` validates it. `correlate`
computes a `Correlation`, and `write_correlation` writes it as JSON, Markdown, CSV and plots. `bootstrap_counts` and
`bootstrap_interval` resample groups of CTUs for other statistics.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
