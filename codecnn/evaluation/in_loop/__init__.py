"""Filters inside the loop of low delay: what a post-filter cannot tell, measured with a real encoder.

`evaluate_in_loop` codes sequences at QPs without a filter and with each one in the loop, and writes streams, pictures
and BD-rates; docs/inloop.md says what they are.
"""

from codecnn.evaluation.in_loop._results import CHAINS, LoopResults
from codecnn.evaluation.in_loop._sweep import evaluate_in_loop

__all__ = ["CHAINS", "LoopResults", "evaluate_in_loop"]
