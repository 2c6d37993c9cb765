"""How QP and CU depth relate to the error that a codec leaves."""

from codecnn.analysis.correlation import correlate
from codecnn.analysis.table import CtuTable, check_table, load_table
from codecnn.analysis.write import write_correlation

__all__ = ["CtuTable", "check_table", "correlate", "load_table", "write_correlation"]
