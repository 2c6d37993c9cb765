"""The evaluation report, one HTML page that works offline: `write_report` writes it."""

from codecnn.evaluation.report._page import write_report

__all__ = ["write_report"]
