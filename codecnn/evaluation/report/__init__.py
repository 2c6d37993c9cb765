"""Reports, HTML pages that work offline: `write_report` of one evaluation, `write_tables` of the table of several."""

from codecnn.evaluation.report._page import write_report
from codecnn.evaluation.report._tables import write_tables

__all__ = ["write_report", "write_tables"]
