"""How QP and CU depth relate to the error that a codec leaves."""

from codecnn.analysis.correlation import correlate, load_table
from codecnn.analysis.report import write_correlation

__all__ = ["correlate", "load_table", "write_correlation"]
