"""The evaluation of filters on coded test sequences, and the figures it is made of.

`evaluate` runs filters, each an `Entry`, over a store: it measures, then summarises, then writes. `psnr`, `mse` and
`bd_rate` are the figures themselves; they come without torch, which only the evaluation needs.
"""

from typing import TYPE_CHECKING, Any

from codecnn.quality.bdrate import bd_rate
from codecnn.quality.metrics import mean_psnr, mse, psnr, psnr_of_mean_mse

if TYPE_CHECKING:
    from codecnn.evaluation._sweep import evaluate
    from codecnn.evaluation.measure import Entry

__all__ = ["Entry", "bd_rate", "evaluate", "mean_psnr", "mse", "psnr", "psnr_of_mean_mse"]


def __getattr__(name: str) -> Any:
    if name not in ("Entry", "evaluate"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from codecnn.evaluation import _sweep as sweep

    return getattr(sweep, name)
