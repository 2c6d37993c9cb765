from ._closed_loop import ClosedLoop as ClosedLoop
from ._closed_loop import closed_loop as closed_loop
from ._results import CHAINS as CHAINS
from ._results import LoopResults as LoopResults
from ._results import rates_of as rates_of
from ._sweep import evaluate_in_loop as evaluate_in_loop
