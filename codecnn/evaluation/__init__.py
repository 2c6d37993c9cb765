"""Evaluation of filters on coded test sequences: PSNR gain, BD-rate, complexity and reports.

`evaluate` runs one or more filters, each described by an `Entry`, over the units of a store. It measures every cell
(one filter on one unit), summarises the cells into `Results`, and writes results.json, tables and an HTML report.
`merge_results` combines evaluations of several configurations into one table in the layout of JVET's sheets.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
