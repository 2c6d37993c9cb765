"""How QP and CU depth relate to the error that a codec leaves.

`correlate` takes a table of CTUs, which `load_table` reads from a store, an evaluation or a file and `check_table`
checks, and gives a `Correlation`; `write_correlation` writes it as JSON, Markdown, CSV and plots.
"""

from codecnn.analysis._correlation import correlate
from codecnn.analysis._ctu_table import CtuTable, check_table, load_table
from codecnn.analysis._report_files import write_correlation
from codecnn.analysis._results import Correlation

__all__ = ["Correlation", "CtuTable", "check_table", "correlate", "load_table", "write_correlation"]
