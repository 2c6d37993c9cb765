"""Processor time of choosing intra modes by a network against the full search, one thread, by turns.

    python tools/benchmark.py modes [modes_8 modes_16] [--size 1920x1080] [--exact]

The full search computes the DCT cost of all 67 modes of every block. The network ranks the modes, alone and with the
costs of its eight likeliest modes. References are included in all times. With --exact, the integer weights next to the
float weights run as well.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from codecnn.models import list_mode_weights, weights_path
from codecnn.modes.labels import likeliest_modes, rank_modes
from codecnn.modes.networks import load_integer_sketch, load_mode_network
from codecnn.vvc.intra import block_costs, block_positions, blocks_at, reference_lines, selected_costs
from tools.bench._common import Row, in_turns, make_parser, row, size_argument

TRIED = 8
"""Likeliest modes of which the costs are computed."""
BIT_DEPTH, QP = 10, 32


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return the rows."""
    parser = make_parser("modes", __doc__)
    parser.add_argument("weights", nargs="*", default=list_mode_weights(), help="mode networks by name or file [all]")
    parser.add_argument("--size", type=size_argument, default="1920x1080", help="of the picture, WxH [1920x1080]")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each way [5]")
    parser.add_argument("--exact", action="store_true", help="run the integer weights as well")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = []
    for weights in options.weights:
        times = in_turns(calls(weights, *options.size, exact=options.exact), options.rounds)
        what = "`{}` on {}x{}, one thread: CPU time of ".format(weights, *options.size)
        search = times.pop("the full search")
        for way, spent in times.items():
            rows.append(row(what + way, "s", spent, "the full search", search))
            print(
                f"{weights} {way:40} {1000 * min(spent):5.0f} ms, full search {1000 * min(search):5.0f} ms", flush=True
            )
    return rows


def calls(weights: str, width: int, height: int, *, exact: bool) -> dict[str, Callable[[], object]]:
    """Return the ways of choosing the modes of all blocks of a picture, as calls by name."""
    model, _ = load_mode_network(weights)
    ((block_width, block_height),) = model.block_sizes or ()
    rng = np.random.default_rng(0)
    steps = rng.normal(500, 80, (height, width)).cumsum(1)
    plane = np.clip(steps / 30 % 1024, 0, 1023).astype(np.uint16)
    positions = block_positions(width, height, block_width, block_height)

    def cut() -> tuple[Any, Any]:
        line = reference_lines(plane, positions, block_width, block_height, BIT_DEPTH)
        return line, blocks_at(plane, positions, block_width, block_height)

    def search() -> None:
        rank_modes(block_costs(*cut(), BIT_DEPTH, "dct"), 3, exact=False)

    def predict(network: Any) -> None:
        likeliest_modes(network, *cut(), BIT_DEPTH, QP, TRIED)

    def predict_and_try() -> None:
        line, block = cut()
        modes, _ = likeliest_modes(model, line, block, BIT_DEPTH, QP, TRIED)
        rank_modes(selected_costs(line, block, BIT_DEPTH, "dct", modes), 3, exact=False)

    ways: dict[str, Callable[[], object]] = {
        "the full search": search,
        "the network": lambda: predict(model),
        f"the network and the costs of {TRIED} modes": predict_and_try,
    }
    if exact:
        integers, _ = load_integer_sketch(weights_path(weights).with_suffix(".int16.safetensors"))
        ways["the integer network"] = lambda: predict(integers)
    return ways
