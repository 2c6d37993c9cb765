"""Filters inside the loop of low delay: what a post-filter cannot tell, measured with a real encoder.

`evaluate_in_loop` codes sequences at QPs without a filter and with each one in the loop, and writes streams, pictures
and BD-rates; docs/inloop.md says what they are. `closed_loop` approximates them where there is no such library.
"""

from codecnn.evaluation.in_loop._closed_loop import ClosedLoop, closed_loop
from codecnn.evaluation.in_loop._results import CHAINS, LoopResults, rates_of
from codecnn.evaluation.in_loop._sweep import evaluate_in_loop

__all__ = ["CHAINS", "ClosedLoop", "LoopResults", "closed_loop", "evaluate_in_loop", "rates_of"]
