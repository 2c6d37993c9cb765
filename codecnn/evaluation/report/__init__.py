"""The evaluation report: one HTML page that works offline."""
