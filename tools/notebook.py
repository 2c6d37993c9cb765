"""The notebook's table again: its three networks and what it changed about them, each trained on the same patches.

    python tools/notebook.py full --store stores/zoo --test stores/zoo_test -o runs/notebook steps=20000
    python tools/notebook.py quarter --store stores/zoo --test stores/zoo_test -o runs/quarter steps=2000

A is RDN(32, 3, 6, 16) (features, blocks, layers, growth), B is RDN(32, 4, 6, 24), C is RDN(64, 4, 6, 24) on
PixelUnshuffle; "quarter" has a quarter of the features and of the growth, which is what a CPU can train, and changes A
instead of B. The notebook claims 0.15, 0.20 and 0.08 dB for the three over finished VVC pictures and nothing without
the global residual; of its other changes no figures are known. A variant that is done is not run again, one that was
interrupted goes on from its checkpoint; table.md is written anew after each.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools import variants


def notebook(divisor: int, changed: str) -> dict[str, variants.Variant]:
    """The notebook's networks with the `divisor`th part of their features, and what it changed, in `changed`."""
    small = {"features": 32 // divisor, "blocks": 3, "layers": 6, "growth": 16 // divisor}
    large = small | {"blocks": 4, "growth": 24 // divisor}
    half = large | {"features": 64 // divisor, "shuffle": 2}
    one = {"A": small, "B": large}[changed]
    return {
        "A": ("rdn", small),
        "B": ("rdn", large),
        "C: down and up": ("rdn", half),
        "C, transposed convolution up": ("rdn", half | {"upsampling": "transposed"}),
        f"{changed} without global residual": ("rdn", one | {"global_residual": False}),
        f"{changed} without local residual": ("rdn", one | {"local_residual": False}),
        f"{changed}, picture instead of residual": ("rdn", one | {"output": "picture"}),
        f"{changed}, one 5x5 head": ("rdn", one | {"head": "5x5"}),
    }


TABLES = {"full": notebook(1, "B"), "quarter": notebook(4, "A")}
CLAIMS = {"A": "+0.15", "B": "+0.20", "C: down and up": "+0.08", "B without global residual": "0"}

if __name__ == "__main__":
    variants.main(sys.argv[1:], TABLES, CLAIMS, __doc__)
