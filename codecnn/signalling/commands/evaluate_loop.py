"""The command that evaluates filters inside the coding loop."""

from pathlib import Path
from typing import TYPE_CHECKING

from codecnn.cli.commands import command
from codecnn.cli.console import out, print_json, print_loop
from codecnn.signalling import LoopOptions, evaluate_in_loop

if TYPE_CHECKING:
    from codecnn.signalling.in_loop import LoopResults


@command(
    "evaluate-loop",
    evaluate_in_loop,
    "codecnn evaluate-loop clip_416x240_30.yuv -m low_cost_17 -q 22,27,32,37 -o results",
    threads=True,
    trust=True,
    resumable=True,
)
def show_loop(options: LoopOptions, results: "LoopResults", as_json: bool) -> None:
    """Print BD-rates."""
    if as_json:
        print_json(results.model_dump())
        return
    from codecnn.signalling.in_loop import CHAINS, COUNTED

    print_loop(results, CHAINS)
    out.print(COUNTED)
    out.print(f"Streams and pictures: {Path(options.output) / 'coded'}", soft_wrap=True)
